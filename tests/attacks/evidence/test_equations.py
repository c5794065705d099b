"""What adds up over rows, and in which cells, follows from a question's declaration and its answers."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import pytest

from privfed import DWFKMeans, FederatedFuzzyCMeans
from privfed.algorithms.minibatch import MiniBatchMovements
from privfed.attacks.evidence.cells import evidence_of
from privfed.attacks.evidence.equations import asked, counted_in, equations_of, summed
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import Ranges
from privfed.questions.cluster_spread import ClusterProfiles
from privfed.questions.lloyd import LloydSums, sums_entry
from tests.attacks.figures import real
from tests.some import some

ROWS = np.concatenate(real("iris", 0))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Halves(Question):
    """A user's own question: rows on either side of zero in the first column, under names of its own."""

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

    @property
    def declaration(self) -> Declaration:
        return Declaration(("heads",), n_cells=2)

    @cached_property
    def spec(self) -> StatisticsSpec:
        count = Entry("heads", (2,), 0.0, self.ranges.rows, 1.0)
        return StatisticsSpec(sums_entry("weights", 2, self.ranges), count)

    def answer_all(self, clients, generators):
        sides = [np.eye(2)[(one.features[:, 0] > 0).astype(int)].reshape(-1, 2) for one in clients]
        return [
            Statistics(weights=side.T @ one.features, heads=side.sum(axis=0))
            for side, one in zip(sides, clients, strict=True)
        ]


def views():
    for model in (
        DWFKMeans(4, local_iter=1, protocol="plain", random_state=0, max_iter=2, tol=0),
        DWFKMeans(4, local_iter=3, protocol="plain", random_state=0, max_iter=2, tol=0, init="nested"),
        FederatedFuzzyCMeans(3, protocol="plain", random_state=0, max_iter=2, tol=0),
    ):
        yield model.fit(np.array_split(ROWS, 5)).transcript_.view("server")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_sum_that_is_read_is_that_of_its_rows_answers():
    kinds = set()
    for view in views():
        for one in equations_of(view):
            kinds.add(type(one.question).__name__)
            each = one.of_units([ClientData(row[None]) for row in ROWS])
            total = next(shown.values for shown in one.shown if not shown.own)
            np.testing.assert_allclose(each.sum(axis=0), total, rtol=1e-7, atol=1e-7)
    assert {"FeatureRanges", "LloydSums", "NestedCells", "WeightedCentroids"} <= kinds


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_cells_are_those_that_a_question_counts_rows_in():
    asked_about = [asked(one) for view in views() for one in view.sums]
    counted = [(question, found) for question in asked_about if (found := counted_in(question)) is not None]
    for question, found in some(counted):
        answer = question.answer(ClientData(ROWS).within(question.ranges)[0], np.random.default_rng(0))
        inside = np.clip(ROWS, question.ranges.low, question.ranges.high)
        counts = np.bincount(found.cells.place(inside), minlength=found.cells.n_cells)
        np.testing.assert_array_equal(answer[found.count].ravel(), counts)


def test_a_question_of_ones_own_is_read_without_its_name():
    ranges = Ranges([-4.0] * 4, [4.0] * 4, 1000)
    question = Halves(ranges=ranges)
    found = counted_in(question)
    assert (found.count, found.sum, found.cells.n_cells) == ("heads", "weights", 2)
    total = question.answer(ClientData(ROWS), np.random.default_rng(0))
    view = View("server", (), ("a",), (SumView(0, "own", question, (0,), (0,), total, {}, {}),), {})
    (one,) = evidence_of(view, None).observations
    np.testing.assert_array_equal(one.cells.place(ROWS), (ROWS[:, 0] > 0).astype(int))
    np.testing.assert_allclose(one.sums.sum(axis=0), ROWS.sum(axis=0), atol=1e-9)


def test_centers_whose_rows_are_not_counted_by_the_nearest_have_no_such_cells():
    question = LloydSums(ranges=Ranges([-4.0] * 4, [4.0] * 4, 1000), centers=ROWS[:3])
    nearest = counted_in(question).cells
    assert nearest.centers is question.centers
    assert summed(question) == ("count", "sum")


@pytest.mark.parametrize(
    "kind, options",
    [
        (ClusterProfiles, {}),
        (MiniBatchMovements, {}),
        (MiniBatchMovements, {"client_learning_rate": 0.25}),
    ],
)
def test_how_far_rows_lie_from_their_centers_tells_what_lloyds_sums_tell(kind, options):
    ranges, centers = Ranges([-4.0] * 4, [4.0] * 4, 1000), ROWS[:3]
    shown = []
    for question in (
        LloydSums(ranges=ranges, centers=centers),
        kind(ranges=ranges, centers=centers, **options),
    ):
        total = question.answer(ClientData(ROWS), np.random.default_rng(0))
        view = View("server", (), ("a",), (SumView(0, "own", question, (0,), (0,), total, {}, {}),), {})
        (one,) = evidence_of(view, None).observations
        np.testing.assert_array_equal(one.cells.centers, centers)
        shown.append(one)
    np.testing.assert_array_equal(shown[1].counts, shown[0].counts)
    np.testing.assert_allclose(shown[1].sums, shown[0].sums, atol=1e-9)


@pytest.mark.parametrize("options", [{"epochs": 2}, {"batch_size": 20}])
def test_movements_over_several_steps_are_no_sums_over_rows(options):
    question = MiniBatchMovements(ranges=Ranges([-4.0] * 4, [4.0] * 4, 1000), centers=ROWS[:3], **options)
    assert summed(question) == ()
