"""Cells that are not cut are counted twice, and both counts speak for them."""

from typing import Any

import numpy as np
import pytest

from privfed.algorithms.private.grids import cut
from privfed.algorithms.private.points import Counted
from privfed.algorithms.private.scale import Scale, frame_of
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Setting, Total
from privfed.core.values.domain import Box
from privfed.core.values.guarantee import Neighbours, Noise, Unit
from privfed.questions.bounded.bounded_sums import GridSums

FIRST, SECOND, FULL, FEW = 10.0, 20.0, 5000.0, 27
"""Deviations of the noise in the counts of both totals; rows of a full cell; place of a cell of few rows."""


BUDGET = 1.0 / (0.096 * FIRST**2)
TERMS = PrivacyTerms(
    epsilon=1.0,
    delta=1e-6,
    unit=Unit.RECORD,
    neighbours=Neighbours.ADD_REMOVE,
    noise=Noise.DISTRIBUTED,
    budget=BUDGET,
)


def kept_after(counts: np.ndarray, again: float, sums: tuple[float, float]) -> Any:
    """Return what is kept of a grid of 8 cells an axis, two of them full, if a cell has other rows again."""
    frame = frame_of(Setting(("0",), 2, Box(-1, 1), privacy=TERMS))
    scale = Scale(frame, BUDGET, False, counts.sum(), np.zeros(2), 1.0, spent=0.4)
    question = GridSums(ranges=frame.ranges, per_axis=8, radius=0.2)
    first = Counted(question, counts, np.zeros((64, 2)), FIRST, 1.0)
    first.sums[FEW] = sums[0]
    asking = cut(scale, 3, first)
    ask: Any = next(asking)
    owners = ask.question.owners()
    assert (ask.question.cuts > 1.0).tolist() == (counts == FULL).tolist()
    finer, offsets = np.zeros(len(owners)), np.zeros((len(owners), 2))
    finer[[np.flatnonzero(owners == cell)[0] for cell in np.flatnonzero(counts == FULL)]] = FULL
    finer[owners == FEW], offsets[owners == FEW] = again, sums[1]
    noise = {"count": SECOND, "sum": 2.0}
    with pytest.raises(StopIteration) as found:
        asking.send(Total(Statistics(count=finer, sum=offsets), (0,), noise_std=noise))
    return found.value.value[0]


def counts_of(few: float) -> np.ndarray:
    """Return the counts of a grid with two full cells and one of few rows."""
    counts = np.zeros(64)
    counts[[0, 7]], counts[FEW] = FULL, few
    return counts


@pytest.mark.parametrize("again", [40.0, 90.0])
def test_a_cell_that_is_not_cut_has_both_counts_by_their_noise(again: float) -> None:
    kept = kept_after(counts_of(40.0), again, (0.0, 0.0))
    one = np.flatnonzero(kept.cells == FEW)
    assert kept.weights[one] == pytest.approx([0.8 * 40.0 + 0.2 * again])
    assert kept.errors[one] == pytest.approx([np.sqrt(0.8) * FIRST])


def test_a_cell_that_the_second_count_finds_empty_is_doubtful_and_one_that_it_confirms_is_not() -> None:
    sure = [kept_after(counts_of(33.0), again, (0.0, 0.0)) for again in (-20.0, 60.0)]
    held = [(kept.weights >= kept.least)[kept.cells == FEW] for kept in sure]
    assert not held[0].any() and held[1].all()


def test_its_rows_lie_where_both_sums_say() -> None:
    same, other = (kept_after(counts_of(40.0), 40.0, (5.0, again)) for again in (5.0, -20.0))
    middle = kept_after(counts_of(40.0), 40.0, (0.0, 0.0))
    places = [kept.points[kept.cells == FEW][0] for kept in (same, other, middle)]
    assert (places[0] > places[2]).all()
    np.testing.assert_allclose(places[1], places[2], atol=1e-12)
