"""Nested cells are the same in all fits, and those of two questions lie within each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import privfed
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PrivacyError
from privfed.questions.nested_cells import NestedCells
from tests.default_run import examples
from tests.some import some


def refines(fine: np.ndarray, coarse: np.ndarray) -> bool:
    """Say whether rows that share a cell of one share a cell of the other."""
    return all(len(set(coarse[fine == cell])) == 1 for cell in set(fine))


def asked(ranges: Ranges, amount: int) -> NestedCells:
    boxes = ranges.n_features <= 3
    return NestedCells(ranges=ranges, sides=amount if boxes else 0, planes=0 if boxes else amount)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(1, 6),
    st.integers(0, 2**31),
    st.floats(-1e3, 1e3),
    st.floats(-9, 9),
    st.tuples(st.integers(2, 12), st.integers(2, 12)),
)
def test_cells_of_two_questions_lie_within_each_other(
    d: int, seed: int, shift: float, scale: float, amounts: tuple[int, int]
) -> None:
    rng = np.random.default_rng(seed)
    rows = shift + np.exp(scale) * rng.normal(size=(300, d)) * np.exp(rng.normal(size=d))
    ranges = Ranges(rows.min(axis=0), rows.max(axis=0), 300)
    cells = [asked(ranges, amount).cells(rows) for amount in amounts]
    assert refines(*cells) or refines(*cells[::-1]) or d <= 3
    if d <= 3:
        # Along each feature alone; a side may be finer in one feature and coarser in another.
        for j in some(range(d)):
            own = Ranges(ranges.low[j : j + 1], ranges.high[j : j + 1], 300)
            one, other = (asked(own, amount).cells(rows[:, j : j + 1]) for amount in amounts)
            assert refines(one, other) or refines(other, one)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_boxes_stay_where_they_are_if_ranges_grow(d: int) -> None:
    rows = np.random.default_rng(d).normal(2.0, 1.0, (400, d))
    ranges = Ranges(rows.min(axis=0), rows.max(axis=0), 400)
    wider = Ranges(ranges.low - 0.3, ranges.high + 0.9, 400)
    for amount in some(range(2, 12)):
        for j in some(range(d)):
            column = rows[:, j : j + 1]
            both = [Ranges(one.low[j : j + 1], one.high[j : j + 1], 400) for one in (ranges, wider)]
            one, other = (asked(own, amount).cells(column) for own in both)
            assert refines(one, other) or refines(other, one)


def test_there_are_never_more_cells_than_were_asked_for() -> None:
    rng = np.random.default_rng(0)
    for d in some((1, 2, 3)):
        for _ in range(50):
            low = rng.normal(scale=100.0, size=d)
            ranges = Ranges(low, low + np.exp(rng.normal(scale=5.0, size=d)), 9)
            cells = asked(ranges, 6)
            rows = rng.uniform(ranges.low, ranges.high, (60, d))
            assert cells.n_cells <= 6**d and set(cells.cells(rows)) <= set(range(cells.n_cells))
            assert cells.n_cells > 2.5**d


def test_features_that_do_not_vary_have_one_box() -> None:
    ranges = Ranges([0.0, 5.0], [1.0, 5.0], 9)
    cells = asked(ranges, 4)
    rows = np.array([[0.1, 5.0], [0.9, 5.0]])
    assert cells.n_cells == 4 and len(set(cells.cells(rows))) == 2
    (answer,) = cells.answer_all([ClientData(rows)], [np.random.default_rng(0)])
    assert answer["count"].sum() == 2.0
    np.testing.assert_array_equal(answer["sum"].sum(axis=0), [1.0, 10.0])


@pytest.mark.parametrize(
    ("d", "words"),
    [
        (2, {"sides": 0, "planes": 4}),
        (2, {"sides": 1, "planes": 0}),
        (5, {"sides": 4, "planes": 0}),
        (5, {"sides": 0, "planes": 17}),
        (5, {"sides": 2, "planes": 3}),
        (5, {"sides": 0, "planes": 0}),
    ],
)
def test_other_numbers_of_cells_are_errors(d: int, words: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=f"got sides={words['sides']}, planes={words['planes']}"):
        NestedCells(ranges=Ranges(np.zeros(d), np.ones(d), 9), **words)


def starts_of(model: Any) -> set[bytes]:
    records = model.transcript_.of(Asked)
    return {one.question for one in records if isinstance(question_from_bytes(one.question), NestedCells)}


@pytest.mark.parametrize("d", [2, 5])
def test_fits_with_other_seeds_ask_the_same_start(d: int) -> None:
    rng = np.random.default_rng(1)
    clients = [rng.normal(size=(40, d)) + 4.0 * rng.integers(0, 2, (40, 1)) for _ in range(3)]
    models = [
        privfed.DWFKMeans(4, init="nested", n_init=2, max_iter=50, random_state=seed).fit(clients)
        for seed in range(3)
    ]
    assert len(set.union(*map(starts_of, models))) == 1
    assert all(len(starts_of(one)) == 1 for one in models)


def test_under_differential_privacy_the_budget_bounds_several_fits() -> None:
    claim = privfed.Privacy(
        epsilon=1.0,
        delta=1e-6,
        unit="record",
        domain=privfed.Box(-1.0, 1.0, max_rows=64),
        neighbours="add-remove",
    )
    model = privfed.DWFKMeans(2, init="nested", local_iter=1, privacy=claim)
    with pytest.raises(PrivacyError, match='use init="coreset"'):
        model.fit([np.zeros((9, 2))] * 3)
