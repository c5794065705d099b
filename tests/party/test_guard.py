"""A client's defences: what they refuse and change depends on messages, or stays within one answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, DWFKMeans, Privacy
from privfed.algorithms.kmeans.weighted import WeightedCentroids
from privfed.algorithms.local_centers.fkm import SteppedMeans
from privfed.algorithms.private.clients import ClientShares
from privfed.algorithms.private.steps import LocalMovements
from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.coarseness import Coarseness
from privfed.core.asking.declaration import RowCounts
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.stored.messages import Array
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PolicyError, RefusedError
from privfed.party.guard import GuardedAnswerer, looks_chosen
from privfed.privacy.noised import Noised
from privfed.questions.cells import CellSums
from privfed.questions.lloyd import LloydSums
from privfed.questions.local_points import PointCells, PointSums
from privfed.questions.slots import Slots

RANGES = Ranges([-1.0, -1.0], [1.0, 1.0], 50)


class Store:
    """State in memory."""

    def __init__(self) -> None:
        self.state: Any = None

    @contextmanager
    def transaction(self) -> Iterator["Store"]:
        yield self

    def load(self) -> Any:
        return self.state

    def save(self, state: Any) -> None:
        self.state = state


def asked(centers: np.ndarray) -> LloydSums:
    return LloydSums(ranges=RANGES, centers=centers)


def guarded(**policy: Any) -> GuardedAnswerer:
    data = ClientData(np.random.default_rng(0).uniform(-1, 1, (40, 2)))

    def answerer(question: Question, index: int) -> tuple[Statistics, int]:
        return question.answer(data, np.random.default_rng(index)), 0

    return GuardedAnswerer(answerer, ClientPolicy(**{"domain": Box(-1.0, 1.0), **policy}), Store())


def coarsened(held: Statistics, coarseness: Coarseness, *declared: RowCounts) -> Statistics:
    entries = [Entry(name, shape, 0.0, 1e9, 1.0) for name, shape in held.layout]
    return coarseness.of(held, declared, StatisticsSpec(*entries))


@given(st.integers(0, 2**32 - 1), st.integers(2, 20), st.integers(2, 6))
def test_centroids_in_general_position_are_answered(seed: int, k: int, d: int) -> None:
    ranges = Ranges(-np.ones(d), np.ones(d), 50)
    assert not looks_chosen(np.random.default_rng(seed).uniform(-1, 1, (k, d)), ranges)


@given(st.integers(0, 2**32 - 1), st.integers(4, 12), st.integers(2, 6))
def test_slabs_between_pairs_on_a_line_are_refused(seed: int, k: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=d)
    direction /= np.linalg.norm(direction)
    borders = np.sort(rng.uniform(-1, 1, k // 2))
    pairs = np.sort(np.concatenate([borders - 1e-3, borders + 1e-3]))
    parked = rng.uniform(-1, 1, (k - len(pairs), d))
    assert looks_chosen(
        np.concatenate([pairs[:, None] * direction, parked]), Ranges(-np.ones(d), np.ones(d), 5)
    )


@given(st.integers(0, 2**32 - 1), st.integers(4, 14), st.integers(2, 4), st.floats(0.3, 1.0))
def test_half_on_a_line_are_found_among_others_of_any_order(seed: int, k: int, d: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    n_line = max(4, int(np.ceil(share * k)))
    along = rng.uniform(-1, 1, n_line)[:, None] * rng.normal(size=d) / 4 + rng.uniform(-0.3, 0.3, d)
    centers = rng.permutation(np.concatenate([along.clip(-1, 1), rng.uniform(-1, 1, (k - n_line, d))]))[:k]
    chosen = looks_chosen(centers, Ranges(-np.ones(d), np.ones(d), 5))
    assert chosen == (most_on_a_line(centers) >= max(4, k / 2))


def most_on_a_line(centers: np.ndarray) -> int:
    """Try all pairs."""
    most = 0
    for i, start in enumerate(centers):
        for other in centers[:i]:
            direction = (other - start) / np.linalg.norm(other - start)
            offsets = centers - start
            off = np.linalg.norm(offsets - np.outer(offsets @ direction, direction), axis=1)
            most = max(most, int((off <= 1e-6 * 2 * np.sqrt(centers.shape[1])).sum()))
    return most


@pytest.mark.parametrize("far", [2.5, -2.5, 1e9])
def test_parked_centroids_are_refused(far: float) -> None:
    centers = np.array([[0.1, 0.2], [-0.3, 0.4], [far, 0.0]])
    assert looks_chosen(centers, RANGES)
    with pytest.raises(PolicyError, match="policy:probing"):
        guarded(probing_guard=True)(asked(centers), 0)


def test_a_client_answers_so_often_and_no_more() -> None:
    answer, question = guarded(max_answers=2), asked(np.zeros((2, 2)))
    answer(question, 0)
    answer(question, 1)
    with pytest.raises(PolicyError, match="policy:max_answers"):
        answer(question, 2)


def test_jumps_of_the_centroids_are_counted() -> None:
    answer, rng = guarded(max_jumps=1), np.random.default_rng(1)
    start = rng.uniform(-0.1, 0.1, (3, 2))
    for step in range(4):
        answer(asked(start + 0.05 * step), step)
    answer(asked(start + 0.9), 4)
    for _ in range(2):
        # What was refused is not where the centroids were last: asked again, it is the same jump.
        with pytest.raises(PolicyError, match="policy:max_jumps"):
            answer(asked(start), 5)


def test_jumps_are_counted_by_a_client_that_starts_anew_with_every_message() -> None:
    store, policy, start = Store(), ClientPolicy(max_jumps=0, domain=Box(-1.0, 1.0)), np.zeros((2, 2))

    def answerer(question: Question, index: int) -> tuple[Statistics, int]:
        return Statistics(), 0

    GuardedAnswerer(answerer, policy, store)(asked(start), 0)
    with pytest.raises(PolicyError, match="policy:max_jumps"):
        GuardedAnswerer(answerer, policy, store)(asked(start + 0.9), 1)


def test_another_number_of_centroids_hides_no_jump() -> None:
    answer = guarded(max_jumps=0)
    answer(asked(np.array([[0.0, 0.0], [0.1, 0.1]])), 0)
    answer(asked(np.array([[0.0, 0.1], [0.1, 0.0], [0.05, 0.05]])), 1)
    with pytest.raises(PolicyError, match="policy:max_jumps"):
        answer(asked(np.array([[0.0, 0.0], [0.9, 0.9]])), 2)


def test_other_cells_of_rows_are_a_jump() -> None:
    def cells(place: float) -> CellSums:
        where = {"center": np.full(2, place), "normals": np.empty((0, 2)), "per_axis": 2}
        return CellSums(ranges=RANGES, **where)

    answer = guarded(max_jumps=1)
    for place in (0.0, 0.0, 0.1):
        answer(cells(place), 0)
    with pytest.raises(PolicyError, match="policy:max_jumps"):
        answer(cells(0.2), 1)


def test_what_the_question_says_of_its_ranges_is_not_what_it_is_measured_against() -> None:
    wide = Ranges([-1e6, -1e6], [1e6, 1e6], 50)
    parked = LloydSums(ranges=wide, centers=np.array([[0.1, 0.2], [-0.3, 0.4], [50.0, 0.0]]))
    with pytest.raises(PolicyError, match="policy:probing"):
        guarded(probing_guard=True)(parked, 0)
    answer = guarded(max_jumps=0)
    answer(LloydSums(ranges=wide, centers=np.zeros((2, 2))), 0)
    with pytest.raises(PolicyError, match="policy:max_jumps"):
        answer(LloydSums(ranges=wide, centers=np.full((2, 2), 0.9)), 1)


def test_centroids_are_found_however_deep_in_the_question_they_lie() -> None:
    parked = asked(np.array([[2.5, 0.0], [0.1, 0.2]]))
    wrapped = Slots(ranges=RANGES, inner=parked, slots=3)
    noised = Noised(ranges=RANGES, inner=wrapped, sigma=np.full(2, 9.0), limits=np.ones(2), rehearsal=False)
    steps = WeightedCentroids(ranges=RANGES, centers=parked.centers, local_iter=3)
    moved = LocalMovements(ranges=RANGES, radius=1.0, steps=steps)
    shares = ClientShares(ranges=RANGES, inner=moved, rows=1.0)
    paid = Noised(ranges=RANGES, inner=shares, sigma=np.full(3, 9.0), limits=np.ones(3), rehearsal=False)
    points = SteppedMeans(centers=parked.centers, min_cluster_size=1)
    means = PointSums(ranges=RANGES, points=points, centers=np.zeros((2, 2)))
    cells = PointCells(ranges=RANGES, points=points, center=np.zeros(2), normals=np.eye(2), per_axis=0)
    for question in (parked, wrapped, noised, moved, shares, paid, means, cells):
        with pytest.raises(PolicyError, match="policy:probing"):
            guarded(probing_guard=True)(question, 0)


def test_a_jump_of_what_the_points_are_made_from_counts() -> None:
    def means(far: float) -> PointSums:
        points = SteppedMeans(centers=np.full((2, 2), far), min_cluster_size=1)
        return PointSums(ranges=RANGES, points=points, centers=np.zeros((2, 2)))

    answer = guarded(max_jumps=0)
    answer(means(0.0), 0)
    answer(means(0.1), 1)
    with pytest.raises(PolicyError, match="policy:max_jumps"):
        answer(means(0.9), 2)


def test_small_clusters_are_answered_as_empty_however_deep_in_the_question_they_lie() -> None:
    centers = np.array([[0.0, 0.0], [0.9, 0.9], [-0.5, 0.5]])
    plain = asked(centers)
    counts = guarded()(plain, 0)[0]["count"]
    least = int(counts.min()) + 1
    assert (counts >= least).any()
    slots, steps = (
        Slots(ranges=RANGES, inner=plain, slots=3),
        LocalMovements(
            ranges=RANGES,
            radius=1.0,
            steps=WeightedCentroids(ranges=RANGES, centers=centers, local_iter=2),
        ),
    )
    for question, own in ((plain, ...), (slots, 0), (steps, ...)):
        answer, _ = guarded(min_count=least)(question, 0)
        np.testing.assert_array_equal(answer["count"][own], np.where(counts < least, 0.0, counts))
        assert not answer["sum"][own][counts < least].any()


def test_small_clusters_are_answered_as_empty() -> None:
    held = Statistics(count=[0.0, 1.0, 4.0, 5.0], sum=np.arange(8.0).reshape(4, 2), rows=[10.0])
    told = coarsened(held, Coarseness(5), RowCounts("count", ("sum",)))
    np.testing.assert_array_equal(told["count"], [0, 0, 0, 5])
    np.testing.assert_array_equal(told["sum"], [[0, 0], [0, 0], [0, 0], [6, 7]])
    np.testing.assert_array_equal(told["rows"], [10.0])


def test_rounded_counts_keep_the_means() -> None:
    held = Statistics(weight=[11.0, 4.0], weighted=[[22.0, 33.0], [4.0, 8.0]])
    told = coarsened(held, Coarseness(1, 10), RowCounts("weight", ("weighted",)))
    np.testing.assert_array_equal(told["weight"], [10.0, 0.0])
    np.testing.assert_allclose(told["weighted"], [[20.0, 30.0], [0.0, 0.0]])


def test_means_stay_and_totals_are_of_what_is_shown() -> None:
    held = Statistics(count=[8.0, 2.0], mean=[[3.0], [4.0]], rows=[10.0])
    told = coarsened(held, Coarseness(5), RowCounts("count", means=("mean",), totals=("rows",)))
    np.testing.assert_array_equal(told["mean"], [[3.0], [0.0]])
    np.testing.assert_array_equal(told["rows"], [8.0])


def test_a_count_of_a_whole_client_scales_sums_of_any_shape() -> None:
    held = Statistics(rows=[12.0], sum=[24.0, 36.0])
    told = coarsened(held, Coarseness(5, 10), RowCounts("rows", ("sum",)))
    np.testing.assert_array_equal(told["sum"], [20.0, 30.0])


def test_what_is_not_declared_stays() -> None:
    held = Statistics(inertia=[3.0], count=[4.0])
    assert dict(coarsened(held, Coarseness(5, 10))) == dict(held)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 60))
def test_no_count_is_shown_below_the_minimum_or_above_the_rows(least: int, multiple: int, most: int) -> None:
    shown = Coarseness(least, multiple).kept(np.arange(most + 1.0), most)
    assert ((shown == 0) | ((shown >= least) & (shown <= most))).all()
    assert (shown % multiple == 0).all() and (np.diff(shown) >= 0).all()


@pytest.mark.parametrize(
    ("rule", "fixed"),
    [
        pytest.param(CohortRule(), True, id="all"),
        pytest.param(CohortRule(kind="sampled", size=3), False, id="sampled"),
        pytest.param(CohortRule(kind="sampled", size=6), True, id="sampled-all"),
        pytest.param(CohortRule(kind="schedule", rounds=((0, 1, 2), (3, 4, 5))), True, id="groups"),
        pytest.param(CohortRule(kind="schedule", rounds=((0, 1, 2),)), True, id="half"),
        pytest.param(CohortRule(kind="schedule", rounds=((0, 1, 2, 3, 4),)), False, id="one-left"),
        pytest.param(CohortRule(kind="schedule", rounds=((0, 1, 2), (2, 3, 4))), False, id="overlap"),
    ],
)
def test_fixed_cohorts(rule: CohortRule, fixed: bool) -> None:
    agreed = Configuration(
        protocol="plain", algorithm="", clients=tuple("abcdef"), n_features=2, cohorts=rule
    )
    refusal = ClientPolicy(fixed_cohorts=True).refuses_configuration(agreed)
    assert refusal == (None if fixed else "policy:cohorts")


def test_defences_hold_over_every_sum(blobs: list[np.ndarray], protocol: str) -> None:
    policy = ClientPolicy(min_count=3, count_multiple=2, probing_guard=True, max_answers=200)
    words: dict[str, Any] = {"protocol": protocol, "domain": Box(-10, 20), "random_state": 0}
    model = DWFKMeans(4, local_iter=1, policy=policy, **words).fit(blobs)
    totals = [total for asked, total in model.transcript_.totals() if asked.purpose == "round"]
    assert all((np.rint(total.statistics["count"]) % 2 == 0).all() for total in totals)
    with pytest.raises(RefusedError, match="policy:max_answers"):
        DWFKMeans(4, protocol=protocol, policy=ClientPolicy(max_answers=2), random_state=0).fit(blobs)


def test_defences_that_look_at_data_are_off_under_differential_privacy() -> None:
    privacy = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=Box(-1, 1), neighbours="add-remove")
    agreed = Configuration(
        protocol="plain",
        algorithm="",
        clients=("a", "b"),
        n_features=2,
        low=Array.of(np.full(2, -1.0)),
        high=Array.of(np.full(2, 1.0)),
        privacy=privacy.terms(),
    )
    assert ClientPolicy(min_count=2).refuses_configuration(agreed) == "policy:coarse"
    assert ClientPolicy(max_answers=2).refuses_configuration(agreed) is None


@pytest.mark.parametrize("word", ["min_count", "count_multiple"])
def test_bad_words(word: str) -> None:
    with pytest.raises(ArgumentError, match=f"{word} must be a whole number of at least 1"):
        ClientPolicy(**{word: 0})
