"""What a client sees of an encrypted total beside the total: limbs, and what encoding rounded away.

A client holds the key, so that it sees every slot, and each coefficient before it is rounded to the grid.
Where noise hides a total from it, these must hide what the noise hides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenseal
from scipy.stats import chi2_contingency

from privfed.core.asking.statistics import Entry, StatisticsSpec
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised
from privfed.privacy.sampler import SeededBits, discrete_gaussian
from privfed.protocols.ckks.cipher import CipherSum, Key, with_noise
from privfed.protocols.ckks.grid import RING, SLOTS, Capacity, SlotGrid, grid_of
from privfed.questions.bounded.bounded_sums import GridSums
from tests.default_run import slow
from tests.protocols.ckks.padding import unpadded

N = 4
Sides = tuple[np.ndarray, np.ndarray]


def question(
    sigma: float, rows: int = 1 << 24, by_server: bool = False, mechanism: str = "gaussian"
) -> Noised:
    inner = GridSums(ranges=Ranges([-1.0], [1.0], rows), per_axis=4, radius=0.25)
    return Noised(
        ranges=inner.ranges,
        inner=inner,
        sigma=np.full(2, sigma),
        limits=np.array([]),
        by_server=by_server,
        mechanism=mechanism,
    )


# Limbs.


def carries(first: int, sigma: float, low: int, runs: int) -> np.ndarray:
    """Return how often the low limbs of three answers carried, beside what their total tells."""
    bits = SeededBits(np.random.default_rng(first))
    answers = discrete_gaussian(sigma, (runs, 3), bits) + np.array([first, 5, 7])
    return np.floor_divide(np.mod(answers, low).sum(axis=1), low)


@pytest.mark.parametrize(("share", "told"), [(5.0, False), (0.05, True)])
def test_limbs_of_answers_tell_of_them_unless_each_has_wide_noise(share: float, told: bool) -> None:
    low, runs = 1 << 10, 20_000
    tables = [np.bincount(carries(first, share * low, low, runs), minlength=3) for first in (0, low // 2)]
    found = chi2_contingency(np.array(tables))
    assert (found.pvalue < 1e-6) == told


def test_equal_totals_of_exact_answers_have_limbs_that_differ() -> None:
    spec = StatisticsSpec(Entry("x", (1,), 0.0, 2.0**60, 1.0))
    grid = SlotGrid(spec, N)
    low = np.ldexp(grid.step, grid.capacity.limb_bits)
    # One answer and the server's noise, exchanged for others of the same sum.
    seen = [grid.encode(low + one, 0, 0) + grid.encode(low - one, 0, 1) for one in (0.0, grid.step)]
    np.testing.assert_array_equal(*(grid.decode(one).vector for one in seen))
    assert (seen[0] != seen[1]).any()
    with pytest.raises(ArgumentError, match=r"one slot, as limbs of exact answers would tell"):
        SlotGrid(spec, N, np.ones(1))


def test_a_question_whose_shares_do_not_cover_its_low_limbs_is_refused() -> None:
    fine = grid_of(question(2.0**20).to_bytes(), 100)
    assert (fine.limbs == 2).all()
    with pytest.raises(ArgumentError, match=r"limbs .* reveal more than the total.*max_rows.*group-masked"):
        grid_of(question(2.0**10).to_bytes(), 100)
    # One limb needs no noise.
    assert (grid_of(question(5.0, rows=64).to_bytes(), 100).limbs == 1).all()
    assert (grid_of(question(2.0**20, 64, by_server=True).to_bytes(), 100).limbs == 1).all()


def test_skellam_noise_takes_one_limb_only() -> None:
    with pytest.raises(ArgumentError, match=r"no proof .* under skellam noise .*group-masked"):
        grid_of(question(2.0**20, mechanism="skellam").to_bytes(), 100)
    assert (grid_of(question(2.0**11, 64, mechanism="skellam").to_bytes(), 100).limbs == 1).all()


# Rounding.


def coefficients(slots: np.ndarray) -> np.ndarray:
    """Return the polynomials, (n, 8192), of real slots; slot j is the root of order 16384 to the 3^j."""
    powers = np.array([pow(3, j, 2 * RING) for j in range(SLOTS)])
    spread = np.zeros((len(slots), 2 * RING))
    spread[:, powers] = slots
    found: np.ndarray = 2.0 / RING * np.fft.fft(spread, axis=1).real[:, :RING]
    return found


def lost(slots: np.ndarray, capacity: Capacity) -> np.ndarray:
    """Return what encoding adds to each coefficient by rounding it."""
    exact = coefficients(slots) * 2.0**capacity.scale_bits
    rounded: np.ndarray = np.rint(exact) - exact
    return rounded


def guess(capacity: Capacity, trial: int, key: Key, context: Any) -> bool:
    """Say whether a client that knows all but which of two answers one client gave finds out which."""
    rng, truth = np.random.default_rng(trial), trial % 2
    others = rng.integers(-(2**24), 2**24, (N - 1, SLOTS))
    sides = rng.integers(-(2**24), 2**24, (2, SLOTS))
    noise = rng.integers(-(2**26), 2**26, SLOTS)
    total = CipherSum()
    for answer in (*others, sides[truth]):
        total.add(key.encrypt(answer, capacity))
    (opened,) = with_noise(total.total(), noise, capacity)
    raw = np.asarray(tenseal.ckks_vector_from(context, unpadded(opened)).decrypt())
    known = np.rint(raw)
    left = coefficients((raw - known)[None])[0] * 2.0**capacity.scale_bits
    away = []
    for side in sides:
        implied = known - others.sum(axis=0) - side
        away.append(np.linalg.norm(left - lost(np.stack([*others, side, implied]), capacity).sum(axis=0)))
    return int(np.argmin(away)) == truth


@pytest.mark.parametrize("dithered", [slow(False), True])
def test_rounding_tells_which_answer_was_given_unless_it_is_dithered(dithered: bool) -> None:
    key, trials = Key.generate(), 30
    context = tenseal.context_from(unpadded(key.to_bytes()))
    right = sum(guess(Capacity(N + 1, dithered), trial, key, context) for trial in range(trials))
    # Of fair coins 30 fall like this less than once in a million times.
    assert (right == trials) if not dithered else (2 < right < 28)


def test_a_dithered_sum_opens_exactly() -> None:
    rng, key, capacity = np.random.default_rng(1), Key.generate(), Capacity(N + 1, dithered=True)
    most = 1 << (capacity.total_bits - 4)
    answers, total = rng.integers(-most, most, (N, 5000)), CipherSum()
    for answer in answers:
        total.add(key.encrypt(answer, capacity))
    noise = rng.integers(-most, most, 5000)
    opened = key.decrypt(with_noise(total.total(), noise, capacity), capacity, 5000)
    np.testing.assert_array_equal(opened, answers.sum(axis=0) + noise)
    assert capacity.scale_bits > Capacity(N + 1).scale_bits
