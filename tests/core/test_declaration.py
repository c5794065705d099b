"""What questions declare is true, and what is declared is what a client's policy goes by."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pytest

from privfed.algorithms.mixtures import AtComponents
from privfed.algorithms.private.clients import ClientShares, LocalMovements
from privfed.algorithms.weightings import name_of
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.question import AdditiveOver, ClientData, Question, parts_of
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import Ranges
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import Round
from privfed.errors import PrivacyError
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_metrics import BoundedInertia
from privfed.questions.histograms import FeatureHistograms
from privfed.questions.lloyd import Inertia
from privfed.tables.beside import Beside
from tests.core.question_examples import EXAMPLES
from tests.seeded import seeded
from tests.some import some

RANGES = Ranges([-3.0, -3.0], [9.0, 9.0], 64)
CENTERS = np.array([[0.0, 0.0], [4.0, 0.5], [8.0, 8.0]])
ROWS = np.concatenate(
    [
        np.random.default_rng(0).normal(mean, 0.3, (size, 2))
        for mean, size in (([0.0, 0.0], 20), ([4.0, 0.0], 15), ([8.0, 7.5], 3))
    ]
)
CLIENT = ClientData(ROWS, np.repeat([0, 1, 2], [20, 15, 3]))


def answered(question: Question, client: ClientData, seed: int = 0) -> Statistics:
    return question.answer(client, seeded(seed))


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_a_question_declares_is_true(name: str) -> None:
    question = EXAMPLES[name](RANGES, CENTERS)
    declared, answer = question.declaration, answered(question, CLIENT)
    assert declared is not None
    for one in declared.row_counts:
        assert (answer[one] >= 0).all() and answer[one].sum() <= len(ROWS) * (1 + 1e-9)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_centers_that_a_question_names_are_declared(name: str) -> None:
    question = EXAMPLES[name](RANGES, CENTERS)
    declared = [part.declaration for part in parts_of(question)]
    named = {id(center) for one in declared if one for center in one.centers}
    for part in some(parts_of(question)):
        held = [getattr(part, one.name) for one in fields(part)]
        tables = [one for one in held if isinstance(one, np.ndarray) and one.ndim == 2]
        # Tables are centers, or the normals of cells, which are counted.
        in_cells = part.declaration is not None and part.declaration.n_cells > 0
        # Models, and updates of them, lie in another space than rows.
        of_models = isinstance(part, Round | Regrouping)
        # Edges of bins are numbers of single features.
        edges = isinstance(part, FeatureHistograms | Beside)
        # Covariances of components are widths, about their means.
        tables = [one for one in tables if not (isinstance(part, AtComponents) and one is part.covariances)]
        assert in_cells or of_models or edges or {id(one) for one in tables} <= named


@dataclass(frozen=True, kw_only=True, eq=False)
class Undeclared(Question):
    """Ask for the number of rows, and declare nothing."""

    additive_over = AdditiveOver.RECORDS

    @property
    def spec(self) -> StatisticsSpec:
        return StatisticsSpec(Entry("n", (1,), 0.0, 64.0, 1.0))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        return [Statistics(n=[client.n_rows]) for client in clients]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_question_has_a_bounded_form_or_names_the_alternative(name: str) -> None:
    question = EXAMPLES[name](RANGES, CENTERS)
    try:
        bounded = question.bounded(reach=9.0)
    except PrivacyError as error:
        assert question.alternative in str(error) and "no proven bound for one record" in str(error)
        return
    assert isinstance(bounded, RecordBounded)
    if bounded is not question:
        assert isinstance(bounded, type(question)) and bounded.ranges is question.ranges
        names = {entry.name for entry in question.spec.entries}
        assert {entry.name for entry in bounded.spec.entries} == set(bounded.bounds) == names


def test_a_subclass_has_no_bounded_form_that_it_did_not_declare() -> None:
    @dataclass(frozen=True, kw_only=True, eq=False)
    class Mine(Inertia):
        """Another index."""

    with pytest.raises(PrivacyError, match="Mine has no proven bound"):
        Mine(ranges=RANGES, centers=CENTERS).bounded()
    assert isinstance(Inertia(ranges=RANGES, centers=CENTERS).bounded(), BoundedInertia)


def test_what_clients_answer_once_as_a_whole_has_a_limit_for_each_entry() -> None:
    limited = [EXAMPLES[name](RANGES, CENTERS) for name in EXAMPLES]
    limited = [one for one in limited if one.client_limits is not None]
    assert {type(one).__name__ for one in limited} == {"ClientSizes", "LocalClusterCounts"}
    for question in limited:
        answer = answered(question, CLIENT)
        assert question.client_limits is not None
        for name, limit in question.client_limits.items():
            assert np.linalg.norm(answer[name]) <= limit


@dataclass(frozen=True, kw_only=True, eq=False)
class Fails(Undeclared):
    """Fails, warns, or answers in another layout for clients of few rows."""

    how: str = "error"

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        if min(client.n_rows for client in clients) < 10:
            if self.how == "error":
                raise ZeroDivisionError
            if self.how == "warning":
                warnings.warn("few rows", stacklevel=1)
            if self.how == "layout":
                return [Statistics(n=[1.0, 2.0])]
        return super().answer_all(clients, generators)


@pytest.mark.parametrize("how", ["error", "warning", "layout"])
def test_a_question_that_does_not_say_whether_it_can_fail_does_not_show_it_under_noise(how: str) -> None:
    inner = Fails(ranges=RANGES, how=how)
    sigma, limits = np.array([20.0]), np.array([64.0])
    noised = Noised(ranges=RANGES, inner=inner, sigma=sigma, limits=limits)
    rngs = [seeded(seed) for seed in range(2)]
    few, many = noised.answer_all([ClientData(ROWS[:5]), CLIENT], rngs)
    expected = 5.0 if how == "warning" else 0.0
    assert abs(few["n"][0] - expected) < 1e-2 and abs(many["n"][0] - len(ROWS)) < 1e-2


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_question_of_the_product_can_fail_but_for_a_users_function(name: str) -> None:
    declared = EXAMPLES[name](RANGES, CENTERS).declaration
    assert declared is not None and not declared.can_fail
    function = name_of(lambda update: update.counts)
    steps = WeightedCentroids(ranges=RANGES, centers=CENTERS, local_iter=2, weights=function)
    moved = LocalMovements(ranges=RANGES, radius=1.0, steps=steps)
    for question in (steps, moved, ClientShares(ranges=RANGES, inner=moved, rows=2.0)):
        assert question.declaration is not None and question.declaration.can_fail
