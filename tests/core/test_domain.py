"""Clipping lands inside a domain, and a domain says what lies in it."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privfed.core.domain import Ball, Box, Domain, Ranges
from privfed.errors import ArgumentError

UNIT_ROWS = arrays(np.float64, (5, 3), elements=st.floats(-1.0, 1.0))
CENTERS = arrays(np.float64, 3, elements=st.floats(-1e6, 1e6))
WIDTHS = st.floats(1e-6, 1e6)


@st.composite
def boxes(draw: st.DrawFn) -> Domain:
    low = draw(CENTERS)
    return Box(low, low + draw(WIDTHS))


@st.composite
def balls(draw: st.DrawFn) -> Domain:
    return Ball(draw(WIDTHS), draw(CENTERS))


@pytest.mark.parametrize("domains", [pytest.param(boxes, id="box"), pytest.param(balls, id="ball")])
class TestDomainContract:
    """What holds for every domain."""

    @given(data=st.data(), rows=UNIT_ROWS, far=st.floats(0.0, 1e9))
    def test_clipped_rows_lie_inside(
        self,
        domains: Callable[[], st.SearchStrategy[Domain]],
        data: st.DataObject,
        rows: np.ndarray,
        far: float,
    ) -> None:
        domain = data.draw(domains())
        low, high = domain.bounds(3)
        clipped = domain.clip(low + far * rows)
        assert domain.contains(clipped).all()
        assert (clipped >= low).all() and (clipped <= high).all()

    @given(data=st.data(), rows=UNIT_ROWS)
    def test_rows_inside_stay(
        self, domains: Callable[[], st.SearchStrategy[Domain]], data: st.DataObject, rows: np.ndarray
    ) -> None:
        domain = data.draw(domains())
        low, high = domain.bounds(3)
        inside = (low + high) / 2 + rows * (high - low) / 4
        assert domain.contains(inside).all()
        np.testing.assert_array_equal(domain.clip(inside), inside)

    @given(data=st.data(), rows=UNIT_ROWS)
    def test_what_is_contained_lies_within_the_bounds(
        self, domains: Callable[[], st.SearchStrategy[Domain]], data: st.DataObject, rows: np.ndarray
    ) -> None:
        # Else the range sum would call a row outside that the face let through.
        domain = data.draw(domains())
        low, high = domain.bounds(3)
        around = (low + high) / 2 + rows * (high - low)
        inside = around[domain.contains(around)]
        assert (inside >= low).all() and (inside <= high).all()


def test_box_contains_its_border_and_nothing_beyond() -> None:
    box = Box([0.0, -1.0], [1.0, 1.0])
    rows = np.array([[0.0, 1.0], [1.0, -1.0], [np.nextafter(1.0, 2.0), 0.0], [0.5, -1.5]])
    assert box.contains(rows).tolist() == [True, True, False, False]


def test_ball_clips_to_its_nearest_point() -> None:
    ball = Ball(2.0, center=[1.0, 0.0])
    np.testing.assert_allclose(
        ball.clip(np.array([[11.0, 0.0], [1.0, 1.0], [1.0, -4.0]])), [[3, 0], [1, 1], [1, -2]]
    )


def test_rows_too_far_for_their_squares_are_outside_and_move_onto_the_ball() -> None:
    # Under differential privacy a warning of an overflow would tell of them; warnings are errors here.
    ball, far = Ball(2.0, center=[1.0, 0.0]), np.array([[1e200, -1e200], [-1.7e308, 0.0], [0.0, 1.0]])
    assert ball.contains(far).tolist() == [False, False, True]
    moved = ball.clip(far)
    np.testing.assert_allclose(moved, [[1 + 2**0.5, -(2**0.5)], [-1.0, 0.0], [0.0, 1.0]])
    assert ball.contains(moved).all()


def test_corner_of_the_box_around_a_ball_is_outside() -> None:
    assert Ball(1.0).contains(np.array([[0.8, 0.8], [0.6, 0.8]])).tolist() == [False, True]


def test_numbers_stand_for_every_feature() -> None:
    low, high = Box(-1, 2).bounds(3)
    assert low.tolist() == [-1.0] * 3 and high.tolist() == [2.0] * 3
    low, high = Ball(1, center=[0.0, 5.0]).bounds(2)
    assert low.tolist() == [-1.0, 4.0] and high.tolist() == [1.0, 6.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: Box(1, 1), "low < high", id="box-empty"),
        pytest.param(lambda: Box([0, 2], [1, 1]), "low < high", id="box-one-feature-empty"),
        pytest.param(lambda: Box(0, np.inf), "finite bounds", id="box-infinite"),
        pytest.param(lambda: Box(np.nan, 1), "finite bounds", id="box-nan"),
        pytest.param(lambda: Box([0, 0], [1, 1, 1]), "one a feature", id="box-bounds-do-not-fit"),
        pytest.param(lambda: Box([[0, 0]], 1), "one a feature", id="box-of-a-table"),
        pytest.param(lambda: Box(0, 1, max_rows=0), "max_rows=0", id="no-rows"),
        pytest.param(lambda: Box(0, 1, max_rows=2**41), "max_rows", id="too-many-rows"),
        pytest.param(lambda: Ball(0), "positive finite radius", id="ball-empty"),
        pytest.param(lambda: Ball(np.inf), "positive finite radius", id="ball-infinite"),
        pytest.param(lambda: Ball(1, center=np.nan), "finite center", id="ball-nowhere"),
        pytest.param(lambda: Ball(1, max_rows=-1), "max_rows=-1", id="ball-no-rows"),
        pytest.param(lambda: Box([0, 0], 1).bounds(3), "the data has 3 features", id="box-other-features"),
        pytest.param(lambda: Ball(1, [0, 0]).bounds(3), "the data has 3 features", id="ball-other-features"),
        pytest.param(lambda: Ranges([0.0], [1.0, 1.0], 1), "one low and one high", id="ranges-do-not-fit"),
        pytest.param(lambda: Ranges([], [], 1), "one low and one high", id="ranges-of-nothing"),
        pytest.param(lambda: Ranges([1.0], [0.0], 1), "at most its high", id="ranges-empty"),
        pytest.param(lambda: Ranges([0.0], [np.inf], 1), "finite", id="ranges-infinite"),
        pytest.param(lambda: Ranges([0.0], [1.0], 0), "rows=0", id="ranges-no-rows"),
    ],
)
def test_what_cannot_be_a_domain_is_an_error(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


@given(rows=arrays(np.float64, (5, 3), elements=st.floats(-1e12, 1e12)))
def test_ranges_clip_each_value(rows: np.ndarray) -> None:
    ranges = Ranges([-1.0, 0.0, 5.0], [1.0, 0.0, 6.0], 4)
    clipped = ranges.clip(rows)
    assert (clipped >= ranges.low).all() and (clipped <= ranges.high).all()
    np.testing.assert_array_equal(ranges.clip(clipped), clipped)
    assert ranges.width.tolist() == [2.0, 0.0, 1.0]
