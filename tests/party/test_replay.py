"""A client's own run of the algorithm: it survives its process, and hears no two stories."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.algorithms.rounds import ClusteringOutcome
from privfed.core.roles.conversation import Setting, Total
from privfed.errors import ArgumentError, IntegrityError, MessageError
from privfed.party.program import Program, Stated
from privfed.party.replay import TOTALS, OpenedTotal, ProgramReplay, own_run, reads_totals
from privfed.party.state import FileStore, MemoryStore

ROWS = [np.random.default_rng(i).normal(4 * (i % 2), 1, (12, 2)) for i in range(4)]


def estimator() -> DWFKMeans:
    return DWFKMeans(2, max_iter=3, tol=0, protocol="plain")


def replay(folder: Path, tells: list[int] | None = None) -> ProgramReplay[ClusteringOutcome]:
    store = FileStore(folder / "totals", TOTALS.to_bytes, TOTALS.from_bytes)
    setting = Setting(tuple(map(str, range(4))), 2)

    def told(index: int, total: OpenedTotal) -> None:
        if tells is not None:
            tells.append(index)

    algorithm = estimator().make_algorithm(2, 0)
    placed = Stated(Program.of(algorithm, setting))
    return ProgramReplay(algorithm, setting, store, tells=told, placed=placed)


@pytest.fixture(scope="module")
def fitted() -> DWFKMeans:
    return estimator().fit(ROWS)


def totals(fitted: DWFKMeans) -> list[Total]:
    return [OpenedTotal.of(total).total() for _, total in fitted.transcript_.totals()]


def test_it_asks_what_the_run_asked_and_ends_where_it_ended(fitted: DWFKMeans, tmp_path: Path) -> None:
    heard: list[int] = []
    for index, (asked, total) in enumerate(fitted.transcript_.totals()):
        # Each message meets a new process.
        own = replay(tmp_path, heard)
        assert (own.ask(index).question, own.ask(index).cohort) == (asked.question, asked.cohort)
        own.tell(index, total)
    assert own.outcome is not None and heard == list(range(len(heard)))
    np.testing.assert_array_equal(own.outcome.centers, fitted.cluster_centers_)
    again = replay(tmp_path)
    assert again.outcome is not None
    with pytest.raises(MessageError):
        again.ask(len(heard))


def test_a_total_that_is_told_again_changes_nothing_and_another_ends_the_fit(
    fitted: DWFKMeans, tmp_path: Path
) -> None:
    own, told = replay(tmp_path), totals(fitted)
    own.tell(0, told[0])
    own = replay(tmp_path)
    own.tell(0, told[0])
    asked = own.ask(1)
    with pytest.raises(IntegrityError, match="another total of sum 0 was told before"):
        own.tell(0, told[1])
    assert own.ask(1) == asked


def test_a_total_that_a_failed_transaction_took_back_is_kept_when_it_is_told_again(
    fitted: DWFKMeans, tmp_path: Path
) -> None:
    own, told = replay(tmp_path), totals(fitted)
    own.tell(0, told[0])
    own.tell(1, told[1])
    before = (tmp_path / "totals").read_bytes()
    (tmp_path / "totals").write_bytes(TOTALS.to_bytes((OpenedTotal.of(told[0]),)))
    own.tell(0, told[0])
    assert len(TOTALS.from_bytes((tmp_path / "totals").read_bytes())) == 1
    own.tell(1, told[1])
    assert (tmp_path / "totals").read_bytes() == before


def test_a_total_or_a_question_out_of_order_is_refused(fitted: DWFKMeans, tmp_path: Path) -> None:
    own, told = replay(tmp_path), totals(fitted)
    with pytest.raises(MessageError):
        own.tell(1, told[1])
    for index in (-1, 1):
        with pytest.raises(MessageError):
            own.ask(index)


def test_a_clients_own_run_is_built_from_the_agreement_alone(fitted: DWFKMeans) -> None:
    agreed = fitted.transcript_.configuration
    own = own_run(agreed, MemoryStore())
    for index, (asked, total) in enumerate(fitted.transcript_.totals()):
        assert own.ask(index).question == asked.question and own.told == index
        own.tell(index, total)
    assert own.outcome is not None
    np.testing.assert_array_equal(own.outcome.centers, fitted.cluster_centers_)


def test_an_agreement_without_a_program_has_no_run(fitted: DWFKMeans) -> None:
    agreed = fitted.transcript_.configuration
    with pytest.raises(ArgumentError, match="the agreement names neither algorithm nor metrics"):
        own_run(msgspec.structs.replace(agreed, program=None), MemoryStore())


@pytest.mark.parametrize(
    ("recipient", "verified", "reads"),
    [("server", False, False), ("server", True, True), ("clients", False, True)],
)
def test_who_gets_totals_needs_a_run(fitted: DWFKMeans, recipient: str, verified: bool, reads: bool) -> None:
    agreed = fitted.transcript_.configuration
    terms = msgspec.structs.replace(agreed.terms, verified=verified)
    assert reads_totals(recipient, msgspec.structs.replace(agreed, terms=terms)) == reads
