"""What a record adds, from the rows that a user passes to the reply that leaves a client.

Clients move rows into the domain before they answer. Rows outside, a last bit from the border, next to
nothing or at the ends of float64 must change what other rows add as little as any others do: not at all.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from privfed.core.asking.question import Question
from privfed.core.values.domain import Ball, Domain, Ranges
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_sums import CenterSum, GridSums, RelativeSums
from tests.privacy.shifts import BALL, BOX, MOST_ROWS, Recorder, answers, claim, odd_rows
from tests.privacy.test_records_alone import MADE

FAR = np.array([[10.0, 10.0]])


def asked(inner: Question) -> Noised:
    sigma = np.full(len(inner.spec.entries), 1e12)
    return Noised(ranges=inner.ranges, inner=inner, sigma=sigma, limits=np.empty(0))


def told(
    inner: Question, tables: Sequence[np.ndarray], domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> np.ndarray:
    """Return the exact answer of a client with each of the tables, (n_tables, n_values), in steps."""
    Recorder(monkeypatch).silence()
    question = asked(inner)
    found = answers([question], tables, claim(1.0, "add-remove", "record", domain))
    steps: np.ndarray = np.rint(found * question.sigma[0])
    return steps


def ranges_of(domain: Domain, d: int) -> Ranges:
    return Ranges(*domain.bounds(d), MOST_ROWS)


def test_a_row_outside_a_ball_moves_no_row_in_the_shell_at_its_border(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rows at 1 + 1e-13, on the edge between two centers, or between two cells of a grid.
    ball, high = Ball(1.0, max_rows=MOST_ROWS), np.sqrt(0.75) * (1 + 1e-13)
    shell = np.tile([[0.5, high]], (500, 1))
    ranges = ranges_of(ball, 2)
    for question in (
        RelativeSums(ranges=ranges, centers=np.array([[0.9, high], [0.1, high]]), radius=1.0),
        GridSums(ranges=ranges, per_axis=40, radius=0.04),
    ):
        without, beside, alone = told(question, [shell, np.vstack([shell, FAR]), FAR], ball, monkeypatch)
        assert (beside - without == alone).all()


@pytest.mark.parametrize("d", [2, 12])
@pytest.mark.parametrize("domain", [BOX, BALL], ids=["box", "ball"])
@pytest.mark.parametrize("name", MADE)
def test_odd_rows_add_what_each_adds_alone(
    name: str, domain: Domain, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "GridSums" and d > 2:
        pytest.skip("a grid over so many features has too many cells")
    centers = np.random.default_rng(d).uniform(-1, 1, (3, d))
    question, odd = MADE[name](ranges_of(domain, d), centers), odd_rows(domain, d)
    found = told(question, [odd, *(row[None] for row in odd)], domain, monkeypatch)
    assert (found[0] == found[1:].sum(axis=0)).all()


def test_a_row_of_zeros_does_not_show_where_squares_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    # The smallest radius that can be asked for, and a point nearer to zeros than squares can tell.
    question = CenterSum(ranges=ranges_of(BOX, 2), center=np.array([1e-165, 0.0]), radius=2.0**-450)
    zeros, other = told(question, [np.zeros((1, 2)), np.array([[0.5, 1.0]])], BOX, monkeypatch)
    assert np.abs(zeros).max() == 0.0 and np.linalg.norm(other) <= 2.0**21
