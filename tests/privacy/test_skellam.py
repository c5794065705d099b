"""The Skellam sampler against the exact probabilities, and its float arithmetic against mpmath's.

At a standard deviation of 1024 steps no test of draws tells Skellam from discrete Gaussian noise (their
excess kurtoses are a millionth apart): what does are the probabilities that the sampler decides by.
"""

from fractions import Fraction
from itertools import islice

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import special, stats

from privfed.errors import ArgumentError
from privfed.privacy import rejection
from privfed.privacy import skellam as module
from privfed.privacy.sampler import SecureBits
from privfed.privacy.skellam import LEAST_VARIANCE, MOST_VARIANCE, skellam
from tests.privacy.test_sampler import ALL_ONES, Script, seeded
from tests.some import some

VARIANCES = st.floats(20, 100).map(lambda log2: 2.0**log2)
LAW: list[float] = [2.0**20, 3.3e6, 2.0**24]


def relative(x: int, variance: float) -> mpmath.mpf:
    """Return P(x) / P(0) with at least 100 digits, for x up to eight standard deviations."""
    with mpmath.workdps(130):
        mu = mpmath.mpf(variance)
        return mpmath.besseli(abs(x), mu) / mpmath.besseli(0, mu)


def p_value(draws: np.ndarray, variance: float) -> float:
    """Return chi-squared's p-value of draws against exp(-mu) I_x(mu), summed over bins of values."""
    width = max(1, int(np.sqrt(variance) / 60))
    reach = 300 * width
    bins = special.ive(np.abs(np.arange(-reach, reach)), variance).reshape(-1, width).sum(axis=1)
    counts = np.histogram(draws, np.arange(-reach, reach + 1, width))[0]
    keep = bins * draws.size >= 20
    observed = np.append(counts[keep], draws.size - counts[keep].sum())
    expected = np.append(bins[keep], 1 - bins[keep].sum()) * draws.size
    return float(stats.chisquare(observed, expected, sum_check=False).pvalue)


@pytest.mark.parametrize("variance", LAW)
def test_draws_follow_the_probability_mass_function(variance: float) -> None:
    assert p_value(skellam(variance, 400_000, seeded(1)), variance) > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("variance", LAW)
def test_many_draws_follow_the_probability_mass_function(variance: float) -> None:
    values = [p_value(skellam(variance, 5_000_000, seeded(seed)), variance) for seed in range(8)]
    assert stats.kstest(values, "uniform").pvalue > 0.001


def test_a_variance_two_percent_off_would_be_found() -> None:
    assert p_value(skellam(1.02 * 2.0**20, 400_000, seeded(1)), 2.0**20) < 1e-4


def test_sums_of_draws_have_the_sum_of_the_variances() -> None:
    shares = skellam(np.array([2.0**20, 2.0**21, 3.7e6]), (400_000, 3), seeded(2))
    assert p_value(shares.sum(axis=1), 2.0**20 + 2.0**21 + 3.7e6) > 0.001


@pytest.mark.parametrize("log2_variance", [40, 80, 100])
def test_wide_draws_have_the_moments_and_are_uniform_in_their_last_bits(log2_variance: int) -> None:
    draws = skellam(2.0**log2_variance, 200_000, seeded(3))
    units = draws / 2.0 ** (log2_variance / 2)
    # The k-th moment of a normal variable is (k - 1)!!, that of its square the variance of the estimate.
    for order, moment, square in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105), (6, 15, 10395)):
        error = 4.5 * np.sqrt((square - moment**2) / draws.size)
        assert abs(np.mean(units**order) - moment) < error
    assert stats.kstest(units, "norm").pvalue > 0.001
    assert stats.chisquare(np.bincount(draws & 255, minlength=256)).pvalue > 0.001


@given(VARIANCES)
@example(variance=(2.0**14 / 0.589) ** 2)
@example(variance=float(np.nextafter((2.0**14 / 0.589) ** 2, 0)))
@example(variance=LEAST_VARIANCE)
@example(variance=MOST_VARIANCE)
def test_no_proposal_has_a_chance_above_one(variance: float) -> None:
    _, shift, _, scale = module._blocks(np.array([variance]))
    # The first value of each block is its likeliest.
    chances = [float(scale[0]) * 2**block * relative(block << int(shift[0]), variance) for block in range(6)]
    assert 1 - 2.0**-15 < max(chances) <= 1


@given(VARIANCES, st.integers(0, 2**32 - 1))
@example(variance=LEAST_VARIANCE, seed=0)
@example(variance=MOST_VARIANCE, seed=1)
def test_float_chances_are_within_the_proven_bound(variance: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    blocks = module._blocks(np.full(6, variance))
    # Beyond seven standard deviations mpmath's series does not converge; p is below 1e-6 there.
    block = np.minimum(rng.geometric(0.5, 6) - 1, 5)
    size = (block << blocks.shift) + rng.integers(0, 1 << blocks.shift)
    value = np.where(rng.random(6) < 0.5, size, -size)
    computed = blocks.chance(np.arange(6), value, block.astype(np.int32))
    for x, b, c, q in some(zip(value.tolist(), block.tolist(), blocks.scale, computed, strict=True)):
        p = float(c) * 2**b * relative(x, variance)
        assert p <= 1
        assert abs(float(q) - p) <= mpmath.mpf(2) ** -46


def test_the_bound_would_not_hold_for_gaussian_chances() -> None:
    # The same proposals, judged by exp(-x^2 / 2 mu) instead: off by far more than 2^-46.
    blocks = module._blocks(np.full(1, 2.0**24))
    bare = blocks._replace(terms=blocks.terms * np.array([[1.0], [0.0], [0.0]]))
    value, block = np.array([3 * 2**12]), np.array([2], dtype=np.int32)
    wanted = float(blocks.scale[0]) * 4 * relative(int(value[0]), 2.0**24)
    assert abs(float(bare.chance(np.zeros(1, dtype=np.int64), value, block)[0]) - wanted) > 2.0**-30


def test_far_values_have_no_chance() -> None:
    blocks = module._blocks(np.array([2.0**20, 2.0**60]))
    far = np.array([2**22, 2**55])
    assert blocks.chance(np.arange(2), far, np.array([4000, 100], dtype=np.int32)).tolist() == [0.0, 0.0]


def holds(bounds: tuple[Fraction, Fraction], value: mpmath.mpf, width: float) -> bool:
    with mpmath.workdps(150):
        low, high = (mpmath.mpf(bound.numerator) / bound.denominator for bound in bounds)
        return bool(low <= value <= high and high - low <= width * value)


@given(VARIANCES, st.floats(0, 8))
@example(variance=LEAST_VARIANCE, reach=0.0)
@example(variance=MOST_VARIANCE, reach=3.0)
def test_debyes_expansion_is_within_its_proven_bounds(variance: float, reach: float) -> None:
    x = int(reach * np.sqrt(variance))
    assert holds(module._expansion(x, variance), relative(x, variance), 27 / variance**3 + 1e-99)


@pytest.mark.parametrize("x", [0, 1, 5, 700, 3000])
@pytest.mark.parametrize("variance", [0.3, 9.0, 1000.0, 2.0**20])
def test_ratios_of_bessel_functions_are_within_their_bounds(x: int, variance: float) -> None:
    for digits in (20, 40):
        assert holds(module._recurrence(x, variance, digits), relative(x, variance), 10.0 ** (2 - digits))


def test_floats_decide_as_exact_arithmetic_does(monkeypatch: pytest.MonkeyPatch) -> None:
    variance = np.array([2.0**20, 1.7e7, 1e12, 2.0**90])
    by_floats = skellam(variance, (60, 4), seeded(5))
    monkeypatch.setattr(rejection, "_MARGIN", 2.0)
    assert np.array_equal(skellam(variance, (60, 4), seeded(5)), by_floats)


@pytest.mark.parametrize(("x", "block"), [(900, 0), (-1500, 1)])
@pytest.mark.few(1)
def test_a_near_tie_is_decided_by_ratios_of_bessel_functions_and_further_bits(x: int, block: int) -> None:
    variance = 2.0**20
    blocks = module._blocks(np.array([variance]))
    low, high = module._recurrence(abs(x), variance, 80)
    factor = 2**block * Fraction(float(blocks.scale[0])) * 2**192
    bits = int(factor * low)
    assert bits == int(factor * high)
    first, second, third = bits >> 128, bits >> 64 & ALL_ONES, bits & ALL_ONES

    def accepts(uniform: int, *more: int) -> bool:
        return rejection._accepts(blocks.bounds(0, x, block), uniform, Script(*more))

    # What Debye's terms can tell apart, at 2^-55, they do: no further bit is asked for.
    assert accepts(first - 2**16)
    assert not accepts(first + 2**16)
    assert accepts(first, second - 1, 0)
    assert not accepts(first, second + 1, 0)
    assert accepts(first, second, third - 1, 0)
    assert not accepts(first, second, third + 1, 0)


def test_bounds_come_ever_closer() -> None:
    blocks = module._blocks(np.array([2.0**20]))
    widths = [high - low for low, high in islice(blocks.bounds(0, 1234, 1), 3)]
    assert widths[0] > 10**15 * widths[1] > 10**30 * widths[2]


@pytest.mark.parametrize("size", [0, 7, (3, 0), (2, 3, 4), (40_000,)])
def test_draws_have_the_asked_shape(size: int | tuple[int, ...]) -> None:
    assert skellam(2.0**30, size, SecureBits()).shape == np.empty(size).shape


@pytest.mark.parametrize("variance", [0.0, 25.0, 2.0**20 - 1, np.nan, np.inf, 2.0**101])
def test_a_variance_out_of_bounds_is_named_with_the_remedy(variance: float) -> None:
    with pytest.raises(
        ArgumentError, match=r"must lie in \[2\^20, 2\^100\].*finer step .* mechanism=\"gaussian\""
    ):
        skellam(np.array([2.0**30, variance]), (3, 2), SecureBits())


def test_seeded_runs_repeat_and_secure_draws_do_not() -> None:
    def draws(source: rejection.RandomBits) -> list[int]:
        values: list[int] = skellam(2.0**60, 50, source).tolist()
        return values

    assert draws(seeded(6)) == draws(seeded(6))
    assert draws(seeded(6)) != draws(seeded(7))
    source = SecureBits()
    assert not set(draws(source)) & set(draws(source))
