"""Questions: a contract that every registered one keeps, and their encoding.

The questions of all modules are tested here together, so that a new one cannot be forgotten.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import privfed.algorithms
import privfed.metrics
import privfed.privacy
from privfed.algorithms.kmeans.minibatch import MiniBatchMovements
from privfed.algorithms.kmeans.weighted import FallbackCentroids, WeightedCentroids
from privfed.algorithms.starts.starts import KMeansCentroids
from privfed.core.domain import Ball, Ranges
from privfed.core.question import _REGISTRY, AdditiveOver, ClientData, Question, question_from_bytes
from privfed.core.statistics import Statistics
from privfed.errors import ArgumentError, DataError, MessageError, PrivFedError
from privfed.privacy.bounds import RecordBounded
from privfed.questions.cells import CellSums
from privfed.questions.cluster_spread import ClusterDistances, ClusterSilhouettes
from privfed.questions.contingency import Contingency
from privfed.questions.inertia import Inertia
from privfed.questions.lloyd import LloydSums
from privfed.questions.local_clusters import LocalClusterCounts
from privfed.questions.moments import CentredMoments
from tests.core.question_examples import EXAMPLES, RECORD_WISE, Make
from tests.default_run import examples
from tests.some import some

for package in (privfed.algorithms, privfed.metrics, privfed.privacy):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")

QUESTIONS = {
    name: kind
    for name, kind in _REGISTRY.items()
    if issubclass(kind, Question) and kind.__module__.startswith("privfed.")
}


def test_every_question_of_the_package_is_tested_here() -> None:
    assert {name.partition("-")[0] for name in EXAMPLES} == set(QUESTIONS)


def test_only_single_steps_add_up_over_records() -> None:
    additive = {name for name, kind in QUESTIONS.items() if kind.additive_over is AdditiveOver.RECORDS}
    assert additive == RECORD_WISE


# --- the data that the contract is tried on ---

Cohort = tuple[list[np.ndarray], np.ndarray]
"""Rows of each client, and centers."""


@st.composite
def few_columns(draw: st.DrawFn) -> Cohort:
    """Up to three columns of values with many ties; clients of one row, constant columns."""
    d = draw(st.integers(1, 3))
    scale = draw(st.sampled_from([1.0, 1e-9, 1e9]))
    values = st.one_of(st.floats(-1.0, 1.0, width=32), st.sampled_from([-1.0, 0.0, 0.1, 1.0]))
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    clients = [scale * draw(arrays(np.float64, (n, d), elements=values)) for n in sizes]
    if draw(st.booleans()):
        for rows in clients:
            rows[:, 0] = 0.7 * scale
    far = st.floats(-3.0, 3.0, width=32)
    return clients, scale * draw(arrays(np.float64, (draw(st.integers(1, 4)), d), elements=far))


@st.composite
def many_columns(draw: st.DrawFn) -> Cohort:
    """Eleven columns of continuous values, one of them far from the origin."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    offset = np.zeros(11)
    offset[0] = draw(st.sampled_from([0.0, 1e3, 1.7e9]))
    sizes = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    clients = [offset + rng.normal(size=(n, 11)) for n in sizes]
    return clients, offset + 2.0 * rng.normal(size=(draw(st.integers(1, 4)), 11))


COHORTS = st.one_of(few_columns(), many_columns())


def tight(clients: Sequence[np.ndarray]) -> Ranges:
    """Return the narrowest ranges that hold the clients' data."""
    rows = np.concatenate(clients)
    return Ranges(rows.min(axis=0), rows.max(axis=0), max(map(len, clients)))


def as_clients(clients: Sequence[np.ndarray]) -> list[ClientData]:
    return [ClientData(rows, np.arange(len(rows)) % 3) for rows in clients]


def generators(n: int) -> list[np.random.Generator]:
    return [np.random.default_rng(i) for i in range(n)]


def added(question: Question, clients: Sequence[ClientData]) -> np.ndarray:
    answers = question.answer_all(clients, generators(len(clients)))
    return np.sum([question.spec.flatten(answer) for answer in answers], axis=0)


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in EXAMPLES.items()])
class TestQuestionContract:
    """What holds for every question."""

    @settings(max_examples=examples(25))
    @given(cohort=COHORTS)
    def test_all_at_once_is_one_by_one_bit_for_bit(self, make: Make, cohort: Cohort) -> None:
        clients, centers = cohort
        question = make(tight(clients), centers)
        together = question.answer_all(as_clients(clients), generators(len(clients)))
        alone = [
            question.answer(one, generator)
            for one, generator in zip(as_clients(clients), generators(len(clients)), strict=True)
        ]
        assert len(together) == len(alone)
        for one, other in zip(together, alone, strict=True):
            assert question.spec.flatten(one).tobytes() == question.spec.flatten(other).tobytes()

    @settings(max_examples=examples(25))
    @given(cohort=COHORTS)
    def test_answers_keep_to_the_ranges_of_the_specification(self, make: Make, cohort: Cohort) -> None:
        clients, centers = cohort
        question = make(tight(clients), centers)
        for answer in some(question.answer_all(as_clients(clients), generators(len(clients)))):
            flat = question.spec.flatten(answer)
            assert np.isfinite(flat).all()
            assert question.spec.clip(flat)[1] == 0

    @settings(max_examples=examples(15))
    @given(cohort=COHORTS)
    def test_asking_again_gives_the_same_answer(self, make: Make, cohort: Cohort) -> None:
        clients, centers = cohort
        question, kept = make(tight(clients), centers), as_clients(clients)
        np.testing.assert_array_equal(added(question, kept), added(question, kept))

    @settings(max_examples=examples(15))
    @given(cohort=COHORTS)
    def test_order_of_the_clients_changes_no_answer(self, make: Make, cohort: Cohort) -> None:
        clients, centers = cohort
        question = make(tight(clients), centers)
        forth = question.answer_all(as_clients(clients), generators(len(clients)))
        data = [ClientData(one.features, one.labels) for one in as_clients(clients)]
        # A client's generator is its own, wherever it stands in the list.
        back = question.answer_all(data[::-1], generators(len(clients))[::-1])[::-1]
        for one, other in some(zip(forth, back, strict=True)):
            np.testing.assert_array_equal(question.spec.flatten(one), question.spec.flatten(other))

    @settings(max_examples=examples(15))
    @given(cohort=COHORTS)
    def test_encoding_round_trips(self, make: Make, cohort: Cohort) -> None:
        clients, centers = cohort
        question = make(tight(clients), centers)
        again = question_from_bytes(question.to_bytes())
        assert type(again) is type(question)
        assert again.to_bytes() == question.to_bytes()
        np.testing.assert_array_equal(added(again, as_clients(clients)), added(question, as_clients(clients)))

    @settings(max_examples=examples(15))
    @given(data=st.data())
    def test_cut_or_lengthened_bytes_are_an_error(self, make: Make, data: st.DataObject) -> None:
        encoded = make(Ranges([0.0, 0.0], [1.0, 1.0], 4), np.zeros((2, 2))).to_bytes()
        cut = data.draw(st.integers(0, len(encoded) - 1))
        for damaged in (encoded[:cut], encoded + b"\x00", b"\xc0" + encoded):
            with pytest.raises(MessageError):
                question_from_bytes(damaged)

    @settings(max_examples=examples(60))
    @given(data=st.data())
    def test_any_other_field_is_an_error_or_can_be_answered(self, make: Make, data: st.DataObject) -> None:
        # A client must meet nothing but coded refusals, whatever a coordinator sends.
        question = make(Ranges([0.0, 0.0], [1.0, 1.0], 4), np.full((2, 2), 0.5))
        plain = msgspec.msgpack.decode(question.to_bytes())
        kind = data.draw(st.sampled_from(["options", "arrays"]))
        name = data.draw(st.sampled_from(sorted(plain[kind])))
        odd = [None, "x", "dynamic", True, -1, 0, 1, 2.5, 1e308, float("nan"), 2**40, 2**63]
        bad = [
            *odd,
            {"shape": [1], "data": b"\x00" * 8},
            {"shape": [2, 2], "data": np.full(4, np.nan).tobytes()},
            {"shape": [2, 2], "data": b""},
            {"shape": [-1], "data": b""},
            {"shape": [0, 2], "data": b""},
        ]
        plain[kind][name] = data.draw(st.sampled_from(bad))
        rows = ClientData(np.array([[0.1, 0.2], [0.3, 0.4], [0.9, 0.5]]))
        try:
            changed = question_from_bytes(msgspec.msgpack.encode(plain))
            changed.spec.flatten(changed.answer(rows.within(changed.ranges)[0], np.random.default_rng(0)))
        except PrivFedError:
            pass


@pytest.mark.parametrize("name", sorted(RECORD_WISE))
@settings(max_examples=examples(40))
@given(cohort=COHORTS, data=st.data())
def test_splitting_a_client_in_two_changes_no_total(name: str, cohort: Cohort, data: st.DataObject) -> None:
    clients, centers = cohort
    question = EXAMPLES[name](tight(clients), centers)
    rows, whole = np.concatenate(clients), as_clients([np.concatenate(clients)])[0]
    assert whole.labels is not None
    order = np.argsort([data.draw(st.floats(0, 1)) for _ in rows], kind="stable")
    cut = data.draw(st.integers(1, max(1, len(rows) - 1)))
    parts = [ClientData(rows[own], whole.labels[own]) for own in (order[:cut], order[cut:]) if len(own)]
    one, two = added(question, [whole]), added(question, parts)
    # What a bounded record adds depends on nothing beside it, and multiples of a step add exactly.
    least = 0.0 if isinstance(question, RecordBounded) else 1e-9
    assert (np.abs(two - one) <= least * np.abs(one).max()).all()


# --- encoding ---


def lloyd() -> LloydSums:
    return LloydSums(ranges=Ranges([0.0, 0.0], [1.0, 1.0], 4), centers=np.zeros((2, 2)))


def test_unknown_question_is_an_error() -> None:
    plain = msgspec.msgpack.decode(lloyd().to_bytes())
    plain["name"] = "RowsPlease"
    with pytest.raises(MessageError, match="not a well-formed question"):
        question_from_bytes(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda p: {**p, "more": 1}, id="foreign-key"),
        pytest.param(lambda p: {**p, "options": {**p["options"], "speed": 1}}, id="foreign-option"),
        pytest.param(lambda p: {**p, "options": {}}, id="no-rows"),
        pytest.param(lambda p: {**p, "arrays": {}}, id="no-arrays"),
        pytest.param(lambda p: {**p, "options": {"ranges.rows": True}}, id="bool-for-a-number"),
    ],
)
def test_question_with_other_fields_is_an_error(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with pytest.raises(MessageError, match="not a well-formed question"):
        question_from_bytes(msgspec.msgpack.encode(change(msgspec.msgpack.decode(lloyd().to_bytes()))))


def test_question_in_another_encoding_of_the_same_values_is_an_error() -> None:
    plain = msgspec.msgpack.decode(lloyd().to_bytes())
    turned = {name: plain[name] for name in ("options", "arrays", "name")}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(turned)) == plain
    with pytest.raises(MessageError, match="canonical"):
        question_from_bytes(msgspec.msgpack.encode(turned))


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(MessageError):
        question_from_bytes(data)


def test_numpy_scalars_among_the_options_travel_as_numbers() -> None:
    ranges, centers = Ranges([0.0], [1.0], 4), np.zeros((1, 1))
    one = WeightedCentroids(ranges=ranges, centers=centers, local_iter=np.int64(2), local_tol=np.float64(0.5))
    other = WeightedCentroids(ranges=ranges, centers=centers, local_iter=2, local_tol=0.5)
    assert one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda r: LloydSums(ranges=r, centers=np.zeros((2, 3))), "need 2 columns", id="columns"),
        pytest.param(lambda r: LloydSums(ranges=r, centers=np.zeros((0, 2))), "need 2 columns", id="none"),
        pytest.param(lambda r: LloydSums(ranges=r, centers=np.full((1, 2), np.inf)), "finite", id="infinite"),
        pytest.param(lambda r: Inertia(ranges=r, centers=np.full((1, 2), np.nan)), "finite", id="nan"),
        pytest.param(
            lambda r: WeightedCentroids(ranges=r, centers=np.zeros((1, 2)), local_iter=0),
            "local_iter=0",
            id="no-steps",
        ),
        pytest.param(
            lambda r: WeightedCentroids(ranges=r, centers=np.zeros((1, 2)), local_iter=1, weights="mine"),
            "weights='mine' is not registered",
            id="unknown-weights",
        ),
        pytest.param(
            lambda r: FallbackCentroids(
                ranges=r, centers=np.zeros((1, 2)), local_iter=1, clusters=np.array([1.0])
            ),
            "indices below 1",
            id="unknown-cluster",
        ),
        pytest.param(
            lambda r: Contingency(ranges=r, centers=np.zeros((1, 2)), n_labels=0),
            "n_labels=0",
            id="no-labels",
        ),
        pytest.param(
            lambda r: CellSums(ranges=r, center=np.full(2, 9.0), normals=np.empty((0, 2)), per_axis=1),
            "within the ranges",
            id="cells-elsewhere",
        ),
        pytest.param(
            lambda r: CellSums(ranges=r, center=np.zeros(2), normals=np.empty((0, 2)), per_axis=0),
            "grid or lie between",
            id="no-cells",
        ),
        pytest.param(
            lambda r: CellSums(ranges=r, center=np.zeros(2), normals=np.empty((0, 2)), per_axis=2**20),
            "grid or lie between",
            id="too-many-cells",
        ),
        pytest.param(
            lambda r: ClusterDistances(ranges=r, centers=np.zeros((1, 2)), power=0.5), "power", id="root"
        ),
        pytest.param(
            lambda r: ClusterDistances(ranges=r, centers=np.zeros((1, 2)), power=9.0), "power", id="power"
        ),
        pytest.param(
            lambda r: ClusterSilhouettes(ranges=r, centers=np.zeros((1, 2))), "two centers", id="one-center"
        ),
        pytest.param(lambda r: LocalClusterCounts(ranges=r, most=1, seed=0), "most", id="most-one"),
        pytest.param(lambda r: LocalClusterCounts(ranges=r, most=2, seed=-1), "seed", id="local-seed"),
        pytest.param(
            lambda r: CentredMoments(ranges=r, center=np.array([2.0, 0.0])), "within the ranges", id="outside"
        ),
        *(
            pytest.param(
                lambda r, word=word, value=value: MiniBatchMovements(
                    ranges=r, centers=np.zeros((1, 2)), **{word: value}
                ),
                f"{word}={value}",
                id=f"{word}-{value}",
            )
            for word, value in [
                ("epochs", 0),
                ("epochs", 10**6),
                ("batch_size", 0),
                ("client_learning_rate", 0.0),
                ("client_learning_rate", 1.5),
                ("client_learning_rate", float("nan")),
            ]
        ),
        pytest.param(
            lambda r: KMeansCentroids(n_clusters=1, seed=-1),
            "seed",
            id="bad-seed",
        ),
    ],
)
def test_question_that_cannot_be_asked_is_an_error(make: Callable[[Ranges], Question], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(Ranges([0.0, 0.0], [1.0, 1.0], 4))


# --- a client's data ---


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        pytest.param(np.empty((2, 0)), None, "needs rows and columns", id="no-columns"),
        pytest.param(np.zeros(3), None, "needs rows and columns", id="one-axis"),
        pytest.param([[np.nan]], None, "NaN or infinity", id="nan"),
        pytest.param([[1.0], [2.0]], np.array([1]), "1,\\) labels do not fit 2 rows", id="labels"),
    ],
)
def test_data_that_cannot_be_used_is_an_error(rows: Any, labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ClientData(rows, labels)


def test_data_is_clipped_to_the_ranges_and_moved_rows_are_counted() -> None:
    data = ClientData(np.array([[0.5, 0.5], [2.0, -1.0], [0.0, 1.5]]), np.array([7, 8, 9]))
    clipped, moved = data.within(Ranges([0.0, 0.0], [1.0, 1.0], 4))
    assert moved == 2
    np.testing.assert_array_equal(clipped.features, [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]])
    assert clipped.labels is not None and clipped.labels.tolist() == [7, 8, 9]
    assert data.within(Ranges([-1.0, -1.0], [2.0, 2.0], 4)) == (data, 0)


def test_data_moves_into_a_domain_with_its_labels() -> None:
    data = ClientData(np.array([[0.5, 0.5], [3.0, 4.0]]), np.array([7, 8]))
    inside = data.inside(Ball(1.0))
    np.testing.assert_allclose(inside.features, [[0.5, 0.5], [0.6, 0.8]])
    assert inside.labels is not None and inside.labels.tolist() == [7, 8]
    assert inside.inside(Ball(1.0)) is inside
    assert inside.features.tobytes() == Ball(1.0).clip(data.features).tobytes()


def test_lloyd_sums_by_hand() -> None:
    data = ClientData(np.array([[0.0, 0.0], [2.0, 0.0], [9.0, 1.0]]))
    question = LloydSums(
        ranges=Ranges([0.0, 0.0], [9.0, 9.0], 4), centers=np.array([[1.0, 0], [8, 0], [50, 0]])
    )
    answer: Statistics = question.answer(data, np.random.default_rng(0))
    assert answer["count"].tolist() == [2.0, 1.0, 0.0]
    assert answer["sum"].tolist() == [[2.0, 0.0], [9.0, 1.0], [0.0, 0.0]]
