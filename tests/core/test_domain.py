"""Clipping lands inside a domain, and a domain says what lies in it."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privfed.core.asking.question import ClientData
from privfed.core.values.domain import LARGEST, NARROWEST, Ball, Box, Domain, Ranges, check_private
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


ODD_BALLS = [
    pytest.param(Ball(1.0), id="unit"),
    pytest.param(Ball(1.5, [3.0, -7.0, 1e10]), id="off-center"),
    # A coordinate's last bit is a fifth of the radius, or more than all of it.
    pytest.param(Ball(1e-5, 1e10), id="small-far-away"),
    pytest.param(Ball(1.0, 1e16), id="less-than-a-last-bit"),
    pytest.param(Ball(NARROWEST), id="narrowest"),
    pytest.param(Ball(LARGEST / 2, [LARGEST / 2, 0.0, 0.0]), id="largest"),
]


def rows_around(ball: Ball) -> np.ndarray:
    """Return rows inside, in the shell at the border, outside, next to nothing and at the ends of float64."""
    rng, center = np.random.default_rng(0), ball.ends[0] / 2 + ball.ends[1] / 2
    directions = rng.standard_normal((40, 3))
    directions = np.vstack([np.eye(3), directions / np.linalg.norm(directions, axis=1, keepdims=True)])
    shares = (0.0, 0.5, 1 - 1e-13, 1 - 2**-53, 1.0, 1 + 2**-52, 1 + 1e-13, 1 + 1e-12, 1 + 1e-9, 1.1, 1e30)
    ends = rng.choice([0.0, -0.0, 5e-324, -5e-324, 1e-310, 1e-165, 1e200, 1.7e308, -1.7e308], (60, 3))
    return np.vstack([*(center + share * ball.radius * directions for share in shares), ends])


@pytest.mark.parametrize("ball", ODD_BALLS)
@pytest.mark.few(3)
def test_a_ball_clips_each_row_by_itself_and_without_tolerance(ball: Ball) -> None:
    rows = rows_around(ball)
    moved, inside = ball.clip(rows), ball._within(rows)
    assert ball._within(moved).all() and ball.contains(moved).all()
    assert ball.clip(moved).tobytes() == moved.tobytes()
    assert moved[inside].tobytes() == rows[inside].tobytes()
    assert all(ball.clip(row[None]).tobytes() == own.tobytes() for row, own in zip(rows, moved, strict=True))
    shuffled = np.random.default_rng(1).permutation(len(rows))
    assert ball.clip(rows[shuffled]).tobytes() == moved[shuffled].tobytes()


def test_a_row_outside_moves_no_other_row_of_a_client() -> None:
    # Each row lies outside by less than the tolerance of `contains`.
    rows = np.tile([[0.5, np.sqrt(0.75) * (1 + 1e-13)]], (9, 1))
    alone = ClientData(rows).inside(Ball(1.0)).features
    beside = ClientData(np.vstack([rows, [[10.0, 10.0]]])).inside(Ball(1.0)).features
    assert beside[:-1].tobytes() == alone.tobytes()
    assert (np.square(alone).sum(axis=1) <= 1.0).all()


def test_zeros_of_either_sign_become_the_same() -> None:
    for domain in (Box(0.0, 1.0), Box(-1.0, -0.0), Ball(1.0)):
        inside = ClientData(np.array([[-0.0, 0.0], [0.0, -0.0], [5.0, -5.0]])).inside(domain)
        assert not np.signbit(inside.features[inside.features == 0.0]).any()


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        pytest.param(Box(-1e160, 1e160), "reaches to", id="box-too-large"),
        pytest.param(Box([0.0, 0.0], [1.0, 1e61]), "reaches to", id="box-one-feature-too-large"),
        pytest.param(Box(-np.nextafter(LARGEST, np.inf), 0.0), "reaches to", id="box-just-too-large"),
        pytest.param(Ball(1e160), "reaches to", id="ball-too-large"),
        pytest.param(Ball(1.0, [0.0, -1e160]), "reaches to", id="ball-too-far"),
        pytest.param(Box(-1e-200, 1e-200), "wide at least", id="box-too-narrow"),
        pytest.param(Ball(1e-200), "wide at least", id="ball-too-narrow"),
        pytest.param(Box(1e30, np.nextafter(1e30, np.inf)), None, id="box-fits"),
        pytest.param(Box(-LARGEST, LARGEST), None, id="box-largest"),
        pytest.param(Ball(NARROWEST), None, id="ball-narrowest"),
        pytest.param(Box([0.0, 0.0], [1.0, 1e-300]), None, id="box-one-feature-narrow"),
    ],
)
def test_what_a_domain_under_privacy_may_be(domain: Domain, message: str | None) -> None:
    if message is None:
        check_private(*domain.ends)
    else:
        with pytest.raises(ArgumentError, match=message):
            check_private(*domain.ends)


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
        pytest.param(lambda: Box(1, 1), "low must be below high", id="box-empty"),
        pytest.param(lambda: Box([0, 2], [1, 1]), "low must be below high", id="box-one-feature-empty"),
        pytest.param(lambda: Box(0, np.inf), "must be finite", id="box-infinite"),
        pytest.param(lambda: Box(np.nan, 1), "must be finite", id="box-nan"),
        pytest.param(lambda: Box([0, 0], [1, 1, 1]), "one a feature", id="box-bounds-do-not-fit"),
        pytest.param(lambda: Box([[0, 0]], 1), "one a feature", id="box-of-a-table"),
        pytest.param(lambda: Box(0, 1, max_rows=0), "max_rows=0", id="no-rows"),
        pytest.param(lambda: Box(0, 1, max_rows=2**41), "max_rows", id="too-many-rows"),
        pytest.param(lambda: Ball(0), "radius", id="ball-empty"),
        pytest.param(lambda: Ball(np.inf), "radius", id="ball-infinite"),
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
