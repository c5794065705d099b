"""What a record adds to a total must not depend on the records beside it, not even in the last bit.

A bound on one record's contribution bounds the change of a total only if all other contributions stay
what they are. With ties between centers and values on the edge of a step, the last bit of a distance
decides where a record goes, or which step it is truncated to.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.algorithms.private.noised_rounds import FuzzyRelativeSums
from privfed.core.asking.question import ClientData, Question
from privfed.core.values.domain import Ranges
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import FEW_FEATURES
from privfed.privacy.bounds import RecordBounded
from privfed.questions.bounded.bounded_metrics import BoundedSpread
from tests.core.question_examples import EXAMPLES
from tests.default_run import examples

UNIT = Ranges([0.0, 0.0], [1.0, 1.0], 9)
MADE = {name: make for name, make in EXAMPLES.items() if isinstance(make(UNIT, np.eye(2)), RecordBounded)} | {
    "FuzzyRelativeSums, m=1.5": lambda ranges, centers: FuzzyRelativeSums(
        ranges=ranges, radius=0.9, centers=centers, m=1.5
    ),
    "BoundedSpread, m=3, q=2": lambda ranges, centers: BoundedSpread(
        ranges=ranges, centers=centers, m=3.0, q=2.0
    ),
}
NUMBERS = st.integers(0, 2**32 - 1)


def answered(question: Question, rows: np.ndarray) -> np.ndarray:
    data = ClientData(rows, np.arange(len(rows)) % 1)
    return question.spec.flatten(question.answer(data, np.random.default_rng(0)))


def on_an_edge(question: Question, rng: np.random.Generator, d: int) -> np.ndarray:
    """Return two rows a last bit apart between which the answer jumps: to another step or center."""
    ends = rng.uniform(-1, 1, (2, d))
    first, last = (answered(question, end[None]) for end in ends)
    # Counts come first: where they differ, the edge is between two centers.
    changed = np.flatnonzero(first != last)
    if not changed.size:
        return ends
    j = int(changed[0] if rng.random() < 0.7 else rng.choice(changed))
    middle, rising = (first[j] + last[j]) / 2, first[j] < last[j]
    low, high = 0.0, 1.0
    for _ in range(60):
        half = (low + high) / 2
        value = answered(question, (ends[0] + half * (ends[1] - ends[0]))[None])[j]
        low, high = (half, high) if (value < middle) == rising else (low, half)
    return ends[0] + np.array([[low], [high]]) * (ends[1] - ends[0])


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=examples(12), deadline=None)
@given(seed=NUMBERS, d=st.integers(2, 40), k=st.integers(2, 5), n=st.integers(1, 20))
@pytest.mark.few(7)
def test_totals_of_rows_are_exactly_the_sums_of_totals_of_parts(
    name: str, seed: int, d: int, k: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    d = min(d, 3) if name.startswith("GridSums") else d
    question = MADE[name](Ranges(np.full(d, -1.0), np.full(d, 1.0), 1000), rng.uniform(-1, 1, (k, d)))
    rows, one = np.repeat(on_an_edge(question, rng, d), n, axis=0), rng.uniform(-1, 1, (1, d))
    together = answered(question, np.vstack([rows, one]))
    assert (together == answered(question, rows) + answered(question, one)).all()


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("length", [1e-3, 1e-8])
def test_no_edge_of_what_is_sure_moves_a_row_to_another_center(length: float, power: int) -> None:
    # Two centers much shorter than the rows: their differences are rounded by more than their products, so
    # that a margin made for these alone (power 1) sends rows at its edge to either center.
    rng, edge = np.random.default_rng(0), 2.5e-11 * (1.0 + length) ** power / length ** (power - 1)
    for _ in range(20):
        along, across = np.linalg.qr(rng.standard_normal((12, 2)))[0].T
        centers = length * np.stack([along, -along])
        near = edge * (1.0 + rng.uniform(-1, 1, 40) * 10.0 ** -rng.uniform(5, 8))
        rows = across + near[:, None] * along
        each = [int(assign(row[None], centers)[0]) for row in rows]
        assert assign(rows, centers).tolist() == each


@given(seed=NUMBERS, d=st.integers(FEW_FEATURES + 1, 80))
@settings(max_examples=examples(30), deadline=None)
def test_rows_alone_go_to_the_nearest_center(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows, centers = rng.uniform(-1, 1, (200, d)), rng.uniform(-1, 1, (6, d))
    assert (assign(rows, centers) == assign(rows, centers)).all()
    near = (centers[0] + centers[1]) / 2 + 1e-16 * rng.standard_normal((50, d))
    each = [int(assign(row[None], centers)[0]) for row in near]
    assert assign(near, centers).tolist() == each
