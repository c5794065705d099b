"""Rows are compared with a run's totals before anything is scored against them."""

from dataclasses import dataclass

import numpy as np
import pytest

import privfed.extend as px
from privfed import (
    Box,
    DPKMeans,
    DWFKMeans,
    FederatedFuzzyCMeans,
    FederatedMiniBatchKMeans,
    Privacy,
)
from privfed.attacks import Differencing, Prior
from privfed.attacks.audits import audit_run
from privfed.attacks.audits.truth import unlike
from privfed.attacks.evidence.equations import equations_of
from privfed.errors import DataError
from privfed.questions.lloyd import LloydSums
from tests.attacks.populations import mixture


def fitted(model):
    rows = mixture(0, n_clients=4, n_rows=30).clients
    model.fit(np.concatenate(rows), groups=np.repeat(list("abcd"), 30), client_names=list("abcd"))
    return model.federation_.transcript, rows


@pytest.mark.parametrize(
    "model",
    [
        DWFKMeans(3, local_iter=1, random_state=0),
        DWFKMeans(3, local_iter=1, init="nested", protocol="masked", random_state=0),
        DWFKMeans(3, protocol="ckks", random_state=0),
        FederatedMiniBatchKMeans(3, batch_size=20, random_state=0, max_iter=5),
        FederatedFuzzyCMeans(3, random_state=0, max_iter=3),
    ],
    ids=lambda model: f"{type(model).__name__} over {model.protocol}",
)
def test_the_rows_of_a_run_give_its_totals_and_rows_with_one_changed_do_not(model):
    transcript, rows = fitted(model)
    assert unlike(transcript, rows) is None
    changed = [own.copy() for own in rows]
    changed[2][7, 0] += 0.5
    assert unlike(transcript, changed) is not None


@pytest.mark.parametrize("epsilon", [None, 40.0])
@pytest.mark.filterwarnings("ignore:epsilon=40")
def test_rows_of_another_client_are_not_its_own_where_the_record_has_its_answers(epsilon):
    """Their totals are the same: attacks on single answers would be scored against others' rows."""
    privacy = epsilon and Privacy(
        epsilon=epsilon, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25, 25, max_rows=99)
    )
    model = DWFKMeans(3, local_iter=1, max_iter=3, tol=0, protocol="plain", privacy=privacy, random_state=0)
    transcript, rows = fitted(model)
    assert unlike(transcript, rows) is None
    assert unlike(transcript, [rows[1], rows[0], *rows[2:]]) is not None


@px.register
@dataclass(frozen=True, kw_only=True, eq=False)
class OfClasses(LloydSums):
    """Ask for counts and sums of the rows of each class: another program's question, which needs labels."""

    @property
    def declaration(self):
        return px.Declaration(("count",), (self.centers,), classes=len(self.centers))

    def answer_all(self, clients, generators):
        marks = [np.eye(len(self.centers))[one.labels] for one in clients]
        return [
            px.Statistics(count=own.sum(axis=0), sum=own.T @ one.features)
            for own, one in zip(marks, clients, strict=True)
        ]


@px.register
@dataclass(frozen=True, kw_only=True, eq=False)
class OfUndeclaredClasses(OfClasses):
    """The same, without a word of it: clients without labels fail, or answer zeros."""

    fails: bool = True

    @property
    def declaration(self):
        return px.Declaration(("count",), (self.centers,))

    def answer_all(self, clients, generators):
        if not self.fails and clients[0].labels is None:
            zeros = px.Statistics(count=np.zeros(len(self.centers)), sum=np.zeros_like(self.centers))
            return [zeros] * len(clients)
        return super().answer_all(clients, generators)


@px.register_algorithm
class MeansOfClasses(px.RoundsAlgorithm):
    """The mean of each class."""

    inertia = False
    asks: str = px.parameter(default="declared", text="which question.")

    def ask(self, ranges, centers):
        if self.asks == "declared":
            return OfClasses(ranges=ranges, centers=centers)
        return OfUndeclaredClasses(ranges=ranges, centers=centers, fails=self.asks == "fails")

    def move(self, question, total):
        return total["sum"] / np.maximum(total["count"], 1.0)[:, None]


class ClassMeans(px.RoundsClusterer):
    """The mean of each class."""

    algorithm = MeansOfClasses


@pytest.mark.parametrize("asks", ["declared", "fails", "answers zeros"])
def test_sums_of_another_program_that_need_labels_are_not_compared(asks):
    rows = mixture(0, n_clients=4, n_rows=30).clients
    labels = [np.arange(30) % 3] * 4
    transcript = ClassMeans(3, asks=asks, random_state=0).fit(rows, labels).transcript_
    assert unlike(transcript, rows) is None
    assert unlike(transcript, [own + 0.5 for own in rows]) is not None
    # No attack asks them of a row, whose label it does not know.
    view = transcript.view("server")
    assert any(isinstance(one.question, OfClasses) for one in view.sums)
    assert not any(isinstance(one.question, OfClasses) for one in equations_of(view))
    Differencing(client=0).run(view, Prior(), np.random.default_rng(0))


def test_noised_totals_are_not_audited_against_other_rows():
    """Differences that are too large would be taken for enough noise."""
    privacy = Privacy(
        epsilon=10.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25, 25, max_rows=99)
    )
    transcript, rows = fitted(DPKMeans(3, privacy=privacy))
    assert unlike(transcript, rows) is None
    assert audit_run(transcript, rows, confidence=1 - 1e-9).verdict == "not refuted"
    others = [own[:5] + 9.0 for own in rows]
    assert unlike(transcript, others) == "its noised sums"
    with pytest.raises(DataError, match="nothing was audited"):
        audit_run(transcript, others)
