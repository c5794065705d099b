"""Speed of the noise samplers compared with OpenDP's exact one and numpy's inexact one, one thread.

Prints draws per second of processor time and ratios within a run; asserts nothing about time. `make bench`
runs it. OpenDP is not a dependency; its rows are skipped if it is not installed.
"""

import time
from collections.abc import Callable

import numpy as np
import pytest

from privfed.privacy.sampler import SecureBits, discrete_gaussian
from privfed.privacy.skellam import LEAST_VARIANCE, skellam

pytestmark = pytest.mark.benchmark


def opendp_draws(sigma: float) -> Callable[[int], object] | None:
    """Return OpenDP's discrete Gaussian on vectors of integers, or None if it is not installed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        return None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i32")), dp.l2_distance(T=float)
    measurement = dp.m.make_gaussian(*space, scale=sigma)
    return lambda size: measurement([0] * size)


@pytest.mark.parametrize("sigma", [1.0, 5.0, 100.0, 5000.0, 2.0**20, 2.0**40])
def test_draws_a_second(sigma: float) -> None:
    generator, wide = np.random.default_rng(0), sigma**2 >= LEAST_VARIANCE
    rows: dict[str, tuple[int, Callable[[int], object] | None]] = {
        "discrete_gaussian": (200_000, lambda size: discrete_gaussian(sigma, size, SecureBits())),
        "skellam": (200_000, (lambda size: skellam(sigma**2, size, SecureBits())) if wide else None),
        "numpy, rounded normal (not exact)": (
            200_000,
            lambda size: np.rint(generator.normal(scale=sigma, size=size)),
        ),
        "OpenDP make_gaussian": (2_000, opendp_draws(sigma)),
    }
    rates: dict[str, list[float]] = {name: [] for name, (_, draw) in rows.items() if draw}
    for _ in range(9):
        for name, (size, draw) in rows.items():
            if draw:
                began = time.process_time()
                draw(size)
                rates[name].append(size / (time.process_time() - began))
    middle = {name: float(np.median(values)) for name, values in rates.items()}
    ours = middle["discrete_gaussian"]
    print(f"\nsigma {sigma:g}")
    for name, rate in middle.items():
        print(f"  {name:36s} {rate / 1e6:9.4f} M/s   ours is {ours / rate:7.2f} x as fast")
    assert len(rates) >= 2
