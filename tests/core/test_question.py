"""Questions: a contract that every registered one keeps, and their encoding.

The questions of all modules are tested here together, so that a new one cannot be forgotten.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privfed.algorithms
import privfed.metrics
import privfed.privacy
from privfed.algorithms.minibatch import MiniBatchMovements
from privfed.algorithms.private.clients import LocalMovements
from privfed.algorithms.starts import KMeansCentroids
from privfed.algorithms.wf_kmeans import FallbackCentroids, WeightedCentroids
from privfed.core.asking.question import (
    _REGISTRY,
    AdditiveOver,
    ClientData,
    Position,
    Question,
    question_from_bytes,
    unknown_name,
)
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import Asked, question_of
from privfed.core.values.domain import Ball, Ranges
from privfed.errors import ArgumentError, DataError, MessageError, RunFolderError
from privfed.privacy.bounds import RecordBounded
from privfed.questions.cells import CellSums
from privfed.questions.cluster_spread import ClusterDistances, ClusterSilhouettes
from privfed.questions.lloyd import Contingency, Inertia, LloydSums
from privfed.questions.local_cluster_counts import LocalClusterCounts
from privfed.questions.moments import CentredMoments
from privfed.testing import BoundedQuestionContract, QuestionContract
from privfed.testing.sum_runs import Vectors
from tests.core.question_examples import EXAMPLES, RECORD_WISE

for package in (privfed.algorithms, privfed.metrics, privfed.privacy):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")

QUESTIONS = {
    name: kind
    for name, kind in _REGISTRY.items()
    # That of privfed.testing asks for what a test gives the clients.
    if name != Vectors.__name__
    and issubclass(kind, Question)
    and kind.__module__.startswith("privfed.")
    and "testing" not in kind.__module__
}


def test_every_question_of_the_package_is_tested_here() -> None:
    assert {name.partition("-")[0] for name in EXAMPLES} == set(QUESTIONS)


def test_only_single_steps_add_up_over_records() -> None:
    additive = {name for name, kind in QUESTIONS.items() if kind.additive_over is AdditiveOver.RECORDS}
    assert additive == RECORD_WISE


UNIT = Ranges([0.0, 0.0], [1.0, 1.0], 9)
BOUNDED = [name for name, make in EXAMPLES.items() if isinstance(make(UNIT, np.eye(2)), RecordBounded)]


class TestEveryPlainQuestion(QuestionContract):
    n_cohorts = 4

    @pytest.fixture(autouse=True, params=[name for name in EXAMPLES if name not in BOUNDED])
    def _example(self, request: pytest.FixtureRequest) -> None:
        self.example = EXAMPLES[request.param]

    def make(self, ranges: Ranges, centers: np.ndarray) -> Question:
        return self.example(ranges, centers)


class TestEveryBoundedQuestion(BoundedQuestionContract):
    n_cohorts = 4

    @pytest.fixture(autouse=True, params=BOUNDED)
    def _example(self, request: pytest.FixtureRequest) -> None:
        self.example = EXAMPLES[request.param]

    def make(self, ranges: Ranges, centers: np.ndarray) -> Question:
        return self.example(ranges, centers)


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
    turned = {name: plain[name] for name in ("position", "options", "arrays", "name")}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(turned)) == plain
    with pytest.raises(MessageError, match="canonical"):
        question_from_bytes(msgspec.msgpack.encode(turned))


def test_what_is_asked_is_what_arrays_hold_now_and_where_it_stands() -> None:
    ranges, centers = Ranges([0.0], [1.0], 4), np.zeros((1, 1))
    asked = LloydSums(ranges=ranges, centers=centers)
    before = asked.to_bytes()
    centers[:] = 0.5
    assert asked.to_bytes() != before
    read = question_from_bytes(before)
    assert read.to_bytes() == before == read.at(Position()).at(None).to_bytes()
    assert question_from_bytes(read.at(Position()).to_bytes()).position == Position()


def test_questions_in_questions_without_end_are_an_error() -> None:
    ranges = Ranges([0.0], [1.0], 4)
    one = LocalMovements(ranges=ranges, radius=1.0, steps=LloydSums(ranges=ranges, centers=np.zeros((1, 1))))
    plain = msgspec.msgpack.decode(one.to_bytes())
    for kind in ("options", "arrays"):
        own = {name: value for name, value in plain[kind].items() if not name.startswith("steps.")}
        own |= {"steps": "LocalMovements"} if kind == "options" else {}
        plain[kind] = {"steps." * depth + name: value for depth in range(1000) for name, value in own.items()}
    with pytest.raises(MessageError, match="not a well-formed question"):
        question_from_bytes(msgspec.msgpack.encode(plain))


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
            lambda r: ClusterSilhouettes(ranges=r, centers=np.zeros((1, 2))), "n_centers", id="one-center"
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


def test_a_question_that_nobody_defined_here_is_told_from_damage() -> None:
    """What a transcript holds of an algorithm of one's own is named, not called damaged."""
    known = Inertia(ranges=Ranges(np.zeros(2), np.ones(2), 8), centers=np.zeros((1, 2))).to_bytes()
    other = known.replace(b"Inertia", b"Imertia")
    assert (unknown_name(known), unknown_name(other), unknown_name(b"\xc1")) == (None, "Imertia", None)
    with pytest.raises(RunFolderError, match="sum 3 asked 'Imertia', which this privfed does not know"):
        question_of(Asked(index=3, question=other, cohort=0, clients=(0,), purpose=""))
    dear = LloydSums(ranges=Ranges([0.0], [1.0], 8), centers=np.zeros(((1 << 16) + 1, 1))).to_bytes()
    with pytest.raises(RunFolderError, match="the question of sum 3 is damaged"):
        question_of(Asked(index=3, question=dear, cohort=0, clients=(0,), purpose=""))
