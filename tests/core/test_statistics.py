"""Statistics add entry by entry, and flattening keeps that."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.errors import ArgumentError

FINITE = st.floats(-1e100, 1e100)


def entry(name: str, *shape: int) -> Entry:
    return Entry(name, shape, -1.0, 1.0, 0.01)


@st.composite
def specs(draw: st.DrawFn) -> StatisticsSpec:
    names = draw(st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True))
    shapes = st.lists(st.integers(1, 3), min_size=0, max_size=3).map(tuple)
    return StatisticsSpec(*(entry(name, *draw(shapes)) for name in names))


@st.composite
def pairs(draw: st.DrawFn) -> tuple[StatisticsSpec, Statistics, Statistics]:
    spec = draw(specs())
    a, b = (
        Statistics(**{one.name: draw(arrays(np.float64, one.shape, elements=FINITE)) for one in spec.entries})
        for _ in range(2)
    )
    return spec, a, b


def assert_same(a: Statistics, b: Statistics) -> None:
    assert a.layout == b.layout
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


@given(pairs())
def test_unflattening_the_sum_of_flat_vectors_is_the_sum(
    pair: tuple[StatisticsSpec, Statistics, Statistics],
) -> None:
    spec, a, b = pair
    assert_same(spec.unflatten(spec.flatten(a) + spec.flatten(b)), a + b)


@given(pairs())
def test_flattening_goes_back(pair: tuple[StatisticsSpec, Statistics, Statistics]) -> None:
    spec, a, _ = pair
    flat = spec.flatten(a)
    assert flat.shape == (spec.size,)
    assert_same(spec.unflatten(flat), a)


@given(pairs())
def test_addition_commutes(pair: tuple[StatisticsSpec, Statistics, Statistics]) -> None:
    _, a, b = pair
    assert_same(a + b, b + a)


def test_statistics_are_frozen_and_do_not_share_memory_with_what_they_were_made_of() -> None:
    source = np.zeros(3)
    statistics = Statistics(count=source)
    source[0] = 7.0
    np.testing.assert_array_equal(statistics["count"], np.zeros(3))
    with pytest.raises(ValueError, match="read-only"):
        statistics["count"][0] = 1.0
    with pytest.raises(TypeError):
        statistics["count"] = source  # type: ignore[index]
    with pytest.raises(AttributeError):
        statistics.extra = 1  # type: ignore[attr-defined]


def test_statistics_of_different_layouts_do_not_add() -> None:
    with pytest.raises(ArgumentError, match="different layouts"):
        Statistics(count=[1.0]) + Statistics(count=[1.0, 2.0])
    with pytest.raises(ArgumentError, match="different layouts"):
        Statistics(count=[1.0]) + Statistics(sum=[1.0])
    with pytest.raises(TypeError):
        Statistics(count=[1.0]) + 1  # type: ignore[operator]


def test_order_of_the_names_is_part_of_the_layout() -> None:
    spec = StatisticsSpec(entry("a"), entry("b"))
    with pytest.raises(ArgumentError, match="layout"):
        spec.flatten(Statistics(b=0.0, a=0.0))


def test_flattening_another_layout_is_an_error() -> None:
    spec = StatisticsSpec(entry("a", 2))
    with pytest.raises(ArgumentError, match="layout"):
        spec.flatten(Statistics(a=[0.0]))
    with pytest.raises(ArgumentError, match="does not fit 2 entries"):
        spec.unflatten(np.zeros(3))


def test_clip_moves_into_the_ranges_and_counts_what_was_outside() -> None:
    spec = StatisticsSpec(Entry("a", (2,), [0.0, -1.0], 1.0, 0.1), Entry("b", (1,), 0.0, 0.0, 0.1))
    clipped, outside = spec.clip(np.array([-3.0, -1.0, 0.5]))
    np.testing.assert_array_equal(clipped, [0.0, -1.0, 0.0])
    assert outside == 2


@given(arrays(np.float64, 5, elements=FINITE))
def test_clip_lands_inside_and_leaves_what_is_inside(vector: np.ndarray) -> None:
    spec = StatisticsSpec(Entry("a", (5,), -1.0, 2.0, 0.1))
    clipped, outside = spec.clip(vector)
    assert (clipped >= -1.0).all() and (clipped <= 2.0).all()
    np.testing.assert_array_equal(spec.clip(clipped)[0], clipped)
    assert outside == np.count_nonzero((vector < -1.0) | (vector > 2.0))


@pytest.mark.parametrize(
    ("low", "high", "resolution", "message"),
    [
        pytest.param(1.0, 0.0, 0.1, "low above its high", id="empty-range"),
        pytest.param(0.0, np.inf, 0.1, "high of entry 'a' must be finite", id="no-end"),
        pytest.param(np.nan, 1.0, 0.1, "low of entry 'a' must be finite", id="nan"),
        pytest.param(0.0, 1.0, 0.0, "positive resolution", id="no-step"),
    ],
)
def test_entry_checks_its_range(low: float, high: float, resolution: float, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Entry("a", (2,), low, high, resolution)


def test_specification_needs_entries_with_names_of_their_own() -> None:
    with pytest.raises(ArgumentError, match="at least one entry"):
        StatisticsSpec()
    with pytest.raises(ArgumentError, match="each name once"):
        StatisticsSpec(entry("a"), entry("a"))
