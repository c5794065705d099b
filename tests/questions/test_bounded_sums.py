"""Sums with a proven bound for one record: the bound, by brute force, and the grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.private_baselines import NearSums
from privfed.algorithms.private.clients import ClientShares
from privfed.core.asking.question import ClientData, Question
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PrivFedError
from privfed.privacy.bounds import RecordBounded, step_of
from privfed.questions.bounded.bounded_sums import (
    CenterSum,
    GridSums,
    RelativeSums,
    SizeSums,
)
from privfed.questions.bounded.shells import DistanceHistogram
from tests.core.question_examples import EXAMPLES
from tests.default_run import examples
from tests.raised import parameter_refused

RNG = np.random.default_rng(0)
BOUNDED = [
    name
    for name, make in EXAMPLES.items()
    if isinstance(make(Ranges([0.0, 0.0], [1.0, 1.0], 9), np.full((2, 2), 0.5)), RecordBounded)
]


def answered(question: Question, rows: np.ndarray) -> dict[str, np.ndarray]:
    data = ClientData(rows, np.arange(len(rows)) % 3).within(question.ranges)[0]
    return dict(question.answer(data, np.random.default_rng(0)))


@pytest.mark.parametrize("name", BOUNDED)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_one_record_moves_no_entry_by_more_than_its_bound(name: str, data: st.DataObject) -> None:
    d, k = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    ranges = Ranges(np.full(d, -1.0), np.full(d, 1.0), 9)
    question = EXAMPLES[name](ranges, rng.uniform(-1.2, 1.2, (k, d)))
    assert isinstance(question, RecordBounded)
    far = data.draw(st.sampled_from([0.3, 1.0, 5.0, 1e200]))
    rows = rng.uniform(-1, 1, (4, d))
    one, other = rng.uniform(-far, far, (2, 1, d))
    with np.errstate(over="ignore"):
        base, more = answered(question, rows), answered(question, np.vstack([rows, one]))
        instead = answered(question, np.vstack([rows, other]))
    added = [np.linalg.norm(more[entry] - base[entry]) / bound.l2 for entry, bound in question.bounds.items()]
    assert max(added) <= 1.0
    # With the same budget for each entry, replacing costs what one of the two ends costs, or less.
    shares = [
        np.square(more[entry] - instead[entry]).sum() / bound.l2**2
        for entry, bound in question.bounds.items()
    ]
    for weights in (np.ones(len(shares)), rng.dirichlet(np.ones(len(shares)))):
        ends = [[getattr(bound, end) for bound in question.bounds.values()] for end in ("stay", "move")]
        assert weights @ shares <= max(weights @ ends[0], weights @ ends[1]) * (1.0 + 1e-9) + 1e-12


@pytest.mark.parametrize("name", BOUNDED)
def test_answers_are_multiples_of_one_power_of_two_step_an_entry(name: str) -> None:
    ranges = Ranges([-1.0, -1.0], [1.0, 1.0], 40)
    question = EXAMPLES[name](ranges, RNG.uniform(-1, 1, (3, 2)))
    assert isinstance(question, RecordBounded)
    found = answered(question, RNG.uniform(-1, 1, (40, 2)))
    for entry, (name_of, bound) in zip(question.spec.entries, question.bounds.items(), strict=True):
        assert entry.name == name_of
        step = np.unique(entry.resolution)
        assert step.tolist() == [step_of(bound.l2)] and np.frexp(step[0])[0] == 0.5
        assert (found[entry.name] % step[0] == 0).all()


def test_relative_sums_by_hand() -> None:
    ranges = Ranges([-9.0, -9.0], [9.0, 9.0], 9)
    question = RelativeSums(ranges=ranges, centers=np.array([[0.0, 0.0], [8.0, 0.0]]), radius=1.0)
    found = answered(question, np.array([[0.5, 0.0], [0.0, 3.0], [8.0, 0.25]]))
    assert found["count"].tolist() == [2.0, 1.0]
    np.testing.assert_allclose(found["sum"], [[0.5, 1.0], [0.0, 0.25]], atol=1e-5)
    np.testing.assert_allclose(found["distance"], [1.75], atol=1e-5)


def test_near_sums_leave_out_what_is_beyond() -> None:
    ranges = Ranges([-9.0, -9.0], [9.0, 9.0], 9)
    question = NearSums(ranges=ranges, centers=np.array([[0.0, 0.0], [8.0, 0.0]]), radius=1.0)
    found = answered(question, np.array([[0.5, 0.0], [0.0, 3.0], [8.0, 0.25]]))
    assert found["count"].tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(found["sum"], [[0.5, 0.0], [0.0, 0.25], [0.0, 0.0]], atol=1e-5)


def test_grid_cells_tile_the_ranges() -> None:
    ranges = Ranges([-1.0, 0.0], [1.0, 6.0], 9)
    question = GridSums(ranges=ranges, per_axis=3, radius=2.0)
    middles = question.middles()
    cells, offsets = question.place(middles)
    assert cells.tolist() == list(range(9))
    np.testing.assert_allclose(offsets, 0.0, atol=1e-12)
    rows = RNG.uniform(ranges.low, ranges.high, (200, 2))
    cells, offsets = question.place(rows)
    np.testing.assert_allclose(middles[cells] + offsets, rows)
    assert (np.abs(offsets) <= question.widths / 2 + 1e-12).all()


@pytest.mark.parametrize("n_rows", [1, 3, 30])
def test_a_client_is_no_more_than_a_record(n_rows: int) -> None:
    ranges = Ranges(np.full(3, -1.0), np.full(3, 1.0), 99)
    inner = RelativeSums(ranges=ranges, centers=RNG.uniform(-1, 1, (4, 3)), radius=0.7)
    question = ClientShares(ranges=ranges, inner=inner, rows=10.0, most_count=0.4, most_sum=0.2)
    found = answered(question, RNG.uniform(-1, 1, (n_rows, 3)))
    for name, limit in question.limits.items():
        assert np.linalg.norm(found[name]) <= limit
    whole = answered(inner, RNG.uniform(-1, 1, (n_rows, 3)))
    assert set(found) - set(whole) == {"length"}


def test_shortening_a_client_moves_none_of_its_means() -> None:
    ranges, rows = Ranges([-1.0], [1.0], 99), RNG.uniform(-1, 1, (50, 1))
    inner = RelativeSums(ranges=ranges, centers=np.array([[-0.5], [0.5]]), radius=2.0)
    short = answered(ClientShares(ranges=ranges, inner=inner, rows=50.0, most_count=0.1), rows)
    whole = answered(inner, rows)
    assert np.linalg.norm(short["count"]) == pytest.approx(0.1)
    np.testing.assert_allclose(
        short["sum"] / short["count"][:, None], whole["sum"] / whole["count"][:, None], rtol=1e-9
    )


@pytest.mark.parametrize("radius", [0.0, -1.0, 5e-324, 2.0**-900, 2.0**-451, 2.0**451, 1e300, np.inf, np.nan])
def test_a_radius_that_bounds_nothing_is_an_error(radius: float) -> None:
    with parameter_refused("radius"):
        SizeSums(ranges=Ranges([0.0], [1.0], 4), center=np.zeros(1), radius=radius)


def test_cut_cells_tile_a_box_and_magnify_offsets() -> None:
    ranges, rng = Ranges([-9.0, -9.0], [9.0, 9.0], 9), np.random.default_rng(5)
    low, high, cuts = np.array([-1.0, 0.0]), np.array([1.0, 6.0]), np.array([1.0, 3.0, 2.0, 1.0])
    question = GridSums(ranges=ranges, per_axis=2, radius=2.0, low=low, high=high, cuts=cuts)
    middles, owners = question.middles(), question.owners()
    assert question.n_cells == len(middles) == 1 + 9 + 4 + 1
    cells, offsets = question.place(middles)
    assert cells.tolist() == list(range(15))
    np.testing.assert_allclose(offsets, 0.0, atol=1e-12)
    rows = rng.uniform(low, high, (300, 2))
    cells, offsets = question.place(rows)
    np.testing.assert_allclose(middles[cells] + offsets / cuts[owners[cells], None], rows)
    assert (np.abs(offsets) <= question.widths / 2 + 1e-12).all()
    beyond, _ = question.place(np.array([[8.0, 8.0], [-8.0, -8.0]]))
    assert beyond.tolist() == [14, 0]


@pytest.mark.parametrize("cuts", [[1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0], [1.0, 1.5, 1.0, 1.0], [65.0] * 4])
def test_numbers_of_parts_are_whole_and_bounded(cuts: list[float]) -> None:
    ranges = Ranges([-1.0, -1.0], [1.0, 1.0], 9)
    with pytest.raises(ArgumentError, match="whole numbers from 1 to 64"):
        GridSums(ranges=ranges, per_axis=2, radius=2.0, cuts=np.array(cuts))


def test_shells_get_thinner_inwards() -> None:
    ranges = Ranges([-9.0], [9.0], 9)
    question = DistanceHistogram(ranges=ranges, center=np.zeros(1), radius=8.0, n_bins=7)
    edges = question.edges()
    np.testing.assert_allclose(edges, 8.0 * 2.0 ** (-np.arange(7) / 3.0))
    rows = np.array([[8.5], [-8.0], [edges[1]], [edges[1] + 1e-9], [edges[6]], [0.0]])
    assert question.place(rows)[0].tolist() == [0, 0, 1, 0, 6, 6]


def test_offsets_in_units_of_widths_are_clipped_after_division() -> None:
    """A row adds at most the radius, in these units, whatever the widths are."""
    widths, ranges = (
        np.array([1e-6, 1.0, 1e8]),
        Ranges(-np.array([1e-6, 1, 1e8]), np.array([1e-6, 1, 1e8]), 9),
    )
    rows = np.random.default_rng(0).uniform(ranges.low, ranges.high, (200, 3))
    question = CenterSum(ranges=ranges, center=np.zeros(3), radius=0.7, widths=widths)
    lengths = [np.linalg.norm(answered(question, row[None])["sum"]) for row in rows]
    assert max(lengths) <= 0.7 and min(lengths) > 0.0
    near = np.array([[1e-7, 0.2, -3e7]])
    np.testing.assert_allclose(answered(question, near)["sum"][0], [0.1, 0.2, -0.3], atol=1e-5)
    for wrong in (np.zeros(3), np.ones(2), np.full(3, 1e-320), np.array([1.0, -1.0, 1.0])):
        with pytest.raises(PrivFedError, match=r"widths|a point needs"):
            CenterSum(ranges=ranges, center=np.zeros(3), radius=0.7, widths=wrong)
