"""Wide draws by a table: its proof's conditions in exact arithmetic, and the distribution within cells."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from privfed.privacy import rejection
from privfed.privacy.cells import cells_of, draw_wide
from privfed.privacy.sampler import SeededBits, discrete_gaussian

WIDE = st.floats(2.0**20, 2.0**50)


def seeded(seed: int) -> SeededBits:
    return SeededBits(np.random.default_rng(seed))


@given(WIDE)
@example(sigma=2.0**20)
@example(sigma=np.nextafter(2.0**38, 0))
@example(sigma=2.0**50)
def test_what_cells_propose_and_the_rest_make_up_the_probability(sigma: float) -> None:
    """0 <= P(x) - n_c <= M 2^-b for all x of a cell: entries of cells are never too many, p never above 1."""
    cells, width = cells_of(sigma), 1 << cells_of(sigma).width
    assert 32 * width <= sigma < 64 * width
    entries = np.bincount(cells.table[cells.table >= 0] >> cells.width)
    assert np.array_equal(entries, cells.counts[:-1])
    assert (cells.table < 0).sum() == cells.rest == len(cells.table) - cells.counts.sum()
    most = Decimal(cells.rest) / 128
    assert Decimal(cells.height) < 64 * most
    with localcontext() as context:
        context.prec = 60
        ends = [
            Decimal(cells.height) * (-((Decimal(c * width) / Decimal(sigma)) ** 2) / 2).exp()
            for c in range(700)
        ]
    counts = [*map(int, cells.counts), *[0] * (700 - len(cells.counts))]
    assert all(ends[c + 1] >= counts[c] for c in range(699))
    assert all(ends[c] - counts[c] <= most / 2 ** (c // 64) for c in range(700))


@given(WIDE, st.integers(0, 2**32 - 1))
def test_float_chances_of_the_rest_are_within_the_proven_bound(sigma: float, seed: int) -> None:
    rng, cells = np.random.default_rng(seed), cells_of(sigma)
    block = rng.geometric(0.5, 8) - 1
    value = (block << int(cells.shift[0])) + rng.integers(0, 1 << int(cells.shift[0]), 8)
    value ^= -rng.integers(0, 2, 8)
    computed = cells.chance(np.zeros(8, dtype=np.int64), value, block.astype(np.int32))
    assert (computed >= -(2.0**-42)).all()
    assert (computed <= 1.0).all()
    for x, b, q in zip(value.tolist(), block.tolist(), computed.tolist(), strict=True):
        low, high = next(cells.bounds(0, x, b))
        assert low - Fraction(1, 2**42) < Fraction(q) < high + Fraction(1, 2**42)
        assert high - low < Fraction(1, 2**80)


def test_floats_decide_as_exact_arithmetic_does(monkeypatch: pytest.MonkeyPatch) -> None:
    by_floats = draw_wide(1.3 * 2.0**38, 3_000, seeded(5))
    monkeypatch.setattr(rejection, "_MARGIN", 2.0)
    assert np.array_equal(draw_wide(1.3 * 2.0**38, 3_000, seeded(5)), by_floats)


@pytest.mark.parametrize("sigma", [2.0**20, 1.4 * 2.0**38, np.nextafter(2.0**45, 0)])
def test_quarters_of_cells_have_the_probability_of_the_gaussian(sigma: float) -> None:
    draws, quarter = draw_wide(sigma, 1_000_000, seeded(7)), math.ldexp(1.0, cells_of(sigma).width - 2)
    ends = np.arange(-5 * 256, 5 * 256 + 1) * quarter
    # An integer x stands for [x, x + 1), and its probability is the Gaussian's density at x.
    wanted = np.diff(stats.norm.cdf((ends - 0.5) / sigma)) * len(draws)
    found = np.histogram(draws, ends)[0]
    inner = wanted >= 20
    observed = np.append(found[inner], len(draws) - found[inner].sum())
    expected = np.append(wanted[inner], len(draws) - wanted[inner].sum())
    assert stats.chisquare(observed, expected).pvalue > 0.001
    # Within a cell, over all cells: the second half of |x| is rarer than the first.
    halves = np.array([found[:1280][::-1], found[1280:]]).reshape(-1, 2, 2).sum(axis=(0, 2))
    likely = np.array([wanted[:1280][::-1], wanted[1280:]]).reshape(-1, 2, 2).sum(axis=(0, 2))
    assert stats.chisquare(halves, likely * halves.sum() / likely.sum()).pvalue > 0.001


@pytest.mark.parametrize("size", [1 << 10, 5_000, 40_000, (30, 50)])
def test_draws_have_the_asked_shape_and_differ(size: int | tuple[int, ...]) -> None:
    draws = discrete_gaussian(2.0**40, size, seeded(1))
    assert draws.shape == np.empty(size).shape
    assert draws.dtype == np.int64
    assert len(np.unique(draws)) == draws.size


def test_places_of_rejected_proposals_are_filled_with_independent_draws() -> None:
    draws = np.concatenate([draw_wide(2.0**30, 40, seeded(i)) for i in range(3_000)]) / 2.0**30
    assert stats.kstest(draws, "norm").pvalue > 0.001
    lagged = [float(np.mean(draws[lag:] * draws[:-lag])) for lag in (1, 2, 3, 40)]
    assert np.abs(lagged).max() < 4.5 / np.sqrt(draws.size)


class FirstOfTheRest(SeededBits):
    """Bits whose first words all choose an entry of the rest: half of the proposals are rejected."""

    first = True

    def words(self, size: int) -> np.ndarray:
        last = ((1 << 14) - 1) << cells_of(2.0**30).width if self.first else 0
        self.first = False
        return super().words(size) | np.uint64(last)


def test_more_is_drawn_where_the_surplus_does_not_reach() -> None:
    draws = np.concatenate(
        [draw_wide(2.0**30, 500, FirstOfTheRest(np.random.default_rng(i))) for i in range(40)]
    )
    assert len(np.unique(draws)) == len(draws) == 20_000
    # Places that were left as they were would lie in the first cell.
    assert (np.abs(draws) < 1 << cells_of(2.0**30).width).mean() < 0.05


def test_no_proposal_may_be_of_the_rest() -> None:
    """Of the few draws that a surplus lacks, in one of fifty cases."""
    draws = np.concatenate([draw_wide(2.0**30, 1, seeded(i)) for i in range(600)]) / 2.0**30
    assert stats.kstest(draws, "norm").pvalue > 0.001
