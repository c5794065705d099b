"""Two totals over sets of clients that differ by one show its answer: every way to get them is counted.

A lying coordinator over clients with journals asks for the same sum of different clients: again under a new
number, after a new set-up, in the next round, in a fit whose list leaves a client out, and in a fit that was
agreed without it or with cohorts without it. By default one client of a few is told apart, in all fits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from privfed import ClientPolicy, DWFKMeans
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.core.asking.question import ClientData, Question
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Exchange, Replies
from privfed.core.roles.secure_sum import Steps
from privfed.errors import ArgumentError, PolicyError, PrivFedError, ProtocolError, RefusedError
from privfed.nodes.journalled import JournalledFit
from privfed.nodes.party import Party
from privfed.nodes.signed import SignedSide
from privfed.party.program import ProgramState
from privfed.protocols import CKKS, GroupMasked, Masked
from privfed.protocols.client_opened.scheme import CODEC, Group, State, closed
from privfed.protocols.plain import PlainClient
from privfed.protocols.setup.losses import Losses
from privfed.protocols.slotted import Slotted
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import SERVER, Asked, agreement, new_party, question
from tests.nodes.test_peers import NAMES, Parties, driven, silent
from tests.raised import forbidden_by
from tests.undeclared import ANYTHING

N = len(NAMES)
LOOSE = {"losses": 99}


def told_apart(totals: Sequence[Total]) -> set[int]:
    """Return the clients whose answer is the difference of two totals."""
    sets = [frozenset(one.contributors) for one in totals]
    differences = [one - other for one in sets for other in sets if other < one]
    return {client for one in differences if len(one) == 1 for client in one}


class Stop(Exception):
    """The coordinator has what it came for."""


def raw_rows() -> list[np.ndarray]:
    rows = load_wine().data
    scaled = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    order = np.random.default_rng(0).permutation(len(scaled))
    return [scaled[one] for one in np.array_split(order, 5)]


def asked_again(folder: Path, protocol: Masked, policy: ClientPolicy) -> tuple[list[Total], list[np.ndarray]]:
    """Ask the start sum of a fit over nodes again and again, each time with another client 'lost'."""
    rows = raw_rows()
    engine, totals = Elsewhere(folder, rows, policy), list[Total]()
    victims: list[int] = []
    engine.silent = lambda exchange, client: exchange.stage == "collect" and client in victims

    def lying(session: Any) -> None:
        own = session.sum

        def sums(asked: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
            if index == 0:
                return (yield from own(asked, index, cohort, upcoming))
            if session._delivery is not None:
                # Nobody is told what was opened, so that all still wait for this sum.
                session._delivery.opened = lambda *total: None
            for victim in (None, *range(len(rows))):
                victims[:] = [] if victim is None else [victim]
                try:
                    totals.append((yield from own(asked, index, cohort, upcoming)))
                except ProtocolError:
                    break
            raise Stop

        session.sum = sums

    engine.lies = lying
    with pytest.raises(Stop):
        DWFKMeans(10, protocol=protocol, engine=engine, random_state=0).fit()
    return totals, rows


def linked_rows(totals: Sequence[Total], rows: Sequence[np.ndarray]) -> int:
    """Return how many rows a coordinator tells with their owner, from cells of one row in a difference."""
    found = 0
    whole = totals[0]
    for other in totals[1:]:
        (victim,) = set(whole.contributors) - set(other.contributors)
        count = np.rint(whole.statistics["count"] - other.statistics["count"])
        sums = (whole.statistics["sum"] - other.statistics["sum"])[count == 1]
        near = np.abs(rows[victim][:, None] - sums[None]).max(axis=2).min(axis=1) < 1e-4
        found += int(near.sum())
    return found


@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.few(1)
def test_a_start_sum_that_is_asked_again_tells_no_client_apart(verified: bool, tmp_path: Path) -> None:
    totals, rows = asked_again(tmp_path / "by default", Masked(verified=verified), ClientPolicy())
    assert len(totals) == 1 and told_apart(totals) == set()
    # What it is that the bounds stop: all five, and most of their rows with them.
    policy = ClientPolicy(max_losses=99)
    totals, rows = asked_again(tmp_path / "loose", Masked(verified=verified, losses=99), policy)
    assert told_apart(totals) == {0, 1, 2, 3, 4}
    assert linked_rows(totals, rows) > 70


class Attack:
    """Clients on machines of their own that take any question, and a coordinator that asks the same one.

    Args:
        folder: for the parties.
        loose: whether clients were told to allow 99 losses, in a fit and over all.
        slotted: whether the sums may have slots.
    """

    def __init__(self, folder: Path, loose: bool, slotted: bool = False) -> None:
        masked = Masked(**LOOSE if loose else {})
        self.protocol = Slotted(masked, contributors=3) if slotted else masked
        policy = replace(ANYTHING, max_losses=99) if loose else ANYTHING
        self.parties, self.totals = Parties(folder, policy), list[Total]()
        self.kept = list[bytes]()

    def agreement(self, nonce: int, names: Sequence[str] = NAMES, **words: Any) -> Agreement:
        n = len(names)
        terms = self.protocol.terms(n, n, 20)
        known: dict[str, Any] = {
            "protocol": self.protocol.name,
            "algorithm": "",
            "n_features": 2,
            "terms": terms,
        }
        configuration = Configuration(**{**known, "clients": tuple(names), "nonce": bytes([nonce]), **words})
        keys = tuple(self.parties.public[NAMES.index(name)] for name in names)
        return Agreement(configuration, Registry(keys, SERVER.public))

    def clients(self, agreement: Agreement) -> list[Asked]:
        rows, folder = ClientData(np.random.default_rng(0).normal(size=(9, 2))), self.parties.folder
        words: dict[str, Any] = {"data_set": "rows", "policy": self.parties.policy}
        names = agreement.configuration.clients
        return [
            Asked(Party(folder / name).join(agreement, self.protocol, rows, **words), agreement, i)
            for i, name in enumerate(names)
        ]

    def keep(self, names: Sequence[str], total: Total) -> None:
        """Keep a total, with its contributors as positions among all parties."""
        there = tuple(NAMES.index(names[i]) for i in total.contributors)
        self.totals.append(replace(total, contributors=there))

    def ways(self) -> dict[str, Callable[[], Iterator[Callable[[], None]]]]:
        """Return how to get totals over other clients: each is a number of tries."""
        return {
            "the next round": self.rounds,
            "a new set-up": self.set_ups,
            "a fit whose list leaves one out": self.fits,
            "an agreement without one": self.agreements,
            "cohorts without one": self.cohorts,
        }

    def rounds(self) -> Iterator[Callable[[], None]]:
        agreed = self.agreement(0)
        clients, session = self.clients(agreed), self.protocol.coordinator(agreed, SERVER)
        driven(session.open(), clients)
        for index, victim in enumerate((None, *range(N))):
            change = (lambda one: one) if victim is None else silent(victim, "collect")
            yield lambda index=index, change=change: self.keep(
                NAMES, driven(session.sum(question(), index, 0, (0,)), clients, change)
            )

    def set_ups(self) -> Iterator[Callable[[], None]]:
        agreed = self.agreement(0)
        clients = self.clients(agreed)
        for index, victim in enumerate((None, *range(N))):
            yield lambda index=index, victim=victim: self.one(agreed, clients, victim, index)

    def fits(self) -> Iterator[Callable[[], None]]:
        for nonce, victim in enumerate((None, *range(N))):
            agreed = self.agreement(nonce)
            yield lambda agreed=agreed, victim=victim: self.one(agreed, self.clients(agreed), victim, 0)

    def agreements(self) -> Iterator[Callable[[], None]]:
        for nonce, victim in enumerate((None, *NAMES)):
            agreed = self.agreement(nonce, [name for name in NAMES if name != victim])
            yield lambda agreed=agreed: self.one(agreed, self.clients(agreed), None, 0)

    def cohorts(self) -> Iterator[Callable[[], None]]:
        for nonce, victim in enumerate((None, *range(N))):
            rule = CohortRule(kind="schedule", rounds=(tuple(i for i in range(N) if i != victim),))
            terms = self.protocol.terms(N, N - (victim is not None), 20)
            agreed = self.agreement(nonce, cohorts=rule, terms=terms)
            yield lambda agreed=agreed: self.one(agreed, self.clients(agreed), None, 0, cohort=1)

    def one(
        self, agreed: Agreement, clients: list[Asked], victim: int | None, index: int, cohort: int = 0
    ) -> None:
        """Set up, leaving a client out, and open one sum."""
        change = (lambda one: one) if victim is None else silent(victim, "advertise")
        session = self.protocol.coordinator(agreed, SERVER)
        # Without the history of earlier sums, whoever missed one shares no mask with the others.
        session.recall(self.kept, 0)  # type: ignore[attr-defined]
        driven(session.open(), clients, change)
        names = agreed.configuration.clients
        self.keep(names, driven(session.sum(question(), index, cohort, (cohort,)), clients, change))
        self.kept += session.relayed()  # type: ignore[attr-defined]


def carried_out(attack: Attack, way: str) -> set[int]:
    for one in attack.ways()[way]():
        try:
            one()
        except (PolicyError, ProtocolError):
            continue
    return told_apart(attack.totals)


WAYS = (
    "the next round",
    "a new set-up",
    "a fit whose list leaves one out",
    "an agreement without one",
    "cohorts without one",
)


@pytest.mark.few(2)
@pytest.mark.parametrize(("way", "slotted"), [(way, slotted) for way in WAYS for slotted in (False, True)])
def test_over_all_fits_one_client_of_a_few_is_told_apart_and_no_more(
    way: str, slotted: bool, tmp_path: Path
) -> None:
    assert len(carried_out(Attack(tmp_path / "by default", False, slotted), way)) <= 1
    assert len(carried_out(Attack(tmp_path / "loose", True, slotted), way)) >= 3


def test_a_sum_whose_state_counts_no_losses_cannot_bound_them(tmp_path: Path) -> None:
    """Else its parties' journals would not count over fits."""
    agreed = Attack(tmp_path, loose=False).agreement(0)
    assert agreed.configuration.terms.losses == 1
    with pytest.raises(ArgumentError, match="PlainClient does not count them"):
        SignedSide(PlainClient(agreed.configuration, ClientPolicy()), agreed, 0)


def test_ways_add_up(tmp_path: Path) -> None:
    """One client is told apart over all ways together."""
    attack = Attack(tmp_path, loose=False)
    made = attack.agreement
    attack.agreement = lambda nonce, *words, **known: made(nonce + 20 * used[0], *words, **known)  # type: ignore[method-assign]
    used = [0]
    for way in WAYS:
        used[0] += 1
        carried_out(attack, way)
    assert len(told_apart(attack.totals)) <= 1


class Counting(Elsewhere):
    """Loses the reply of some clients, and knows who answered in each exchange.

    Attributes:
        lost: clients whose replies are lost in the exchanges to come, one each.
        answered: who answered, in each exchange in which somebody did.
    """

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.lost: list[int] = []
        self.answered: list[frozenset[int]] = []

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        before = self.sums()
        replies = super().exchange(exchange, timeout)
        after = self.sums()
        if answered := frozenset(i for i, n in enumerate(after) if n > before[i]):
            self.answered.append(answered)
            if len(self.answered) > 1 and self.lost:
                victim = self.lost.pop(0)
                return [(i, data) for i, data in replies if i != victim]
        return replies

    def sums(self) -> list[int]:
        return [self.party(i).journal.usage("rows").sums for i in range(len(self._rows))]


@pytest.mark.parametrize(("words", "most"), [({}, 2), ({"losses": 9, "repeats": 9}, 3)])
def test_clients_that_open_answer_one_sum_over_two_sets_at_most(
    words: dict[str, int], most: int, tmp_path: Path
) -> None:
    """The coordinator and a colluder could open each attempt at a sum, whose uploads all came."""
    rows = [np.random.default_rng(i).normal(size=(12, 2)) for i in range(6)]
    loose = ClientPolicy(max_losses=99) if words else ClientPolicy()
    engine = Counting(tmp_path, rows, loose)
    engine.lost = [5, 4, 3, 2]
    with pytest.raises(PrivFedError):
        DWFKMeans(2, protocol=GroupMasked(**words), engine=engine, random_state=0, max_iter=2).fit()
    assert len(set(engine.answered[1:])) == most


def test_over_fits_clients_that_open_totals_count_those_that_they_opened(tmp_path: Path) -> None:
    """A total over ciphertexts says who is in it only once it is open, when a refusal comes too late."""
    rows = [np.random.default_rng(i).normal(size=(12, 2)) for i in range(5)]
    engine, told = Elsewhere(tmp_path, rows), list[Total]()
    for victim in (None, *range(5)):
        engine.silent = lambda exchange, client: exchange.number == 3 and client == victim  # noqa: B023
        engine.told = {}
        with suppress(PrivFedError):
            DWFKMeans(2, protocol=CKKS(), engine=engine, random_state=0, max_iter=1, tol=0).fit()
        told += engine.told.values()
    assert len({one.contributors for one in told}) == 3
    assert {engine.party(i).journal.usage("rows").losses for i in range(5)} == {2}
    with forbidden_by("policy:max_losses"):
        DWFKMeans(2, protocol=CKKS(), engine=engine, random_state=0).fit()


def test_no_other_process_finds_neither_a_state_nor_its_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that began a fit in between found too few losses."""
    own, journal = new_party(tmp_path)
    agreed = agreement(own)
    fit = journal.begin(agreed, 0, "rows", ClientPolicy(max_losses=1))
    count, locked = JournalledFit.lost, list[str]()

    def lost(self: JournalledFit, clients: int, most: int | None = None) -> None:
        with closing(sqlite3.connect(tmp_path / "journal.sqlite", timeout=0.0)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                locked.append(str(error))
        count(self, clients, most)

    monkeypatch.setattr(JournalledFit, "lost", lost)
    group = Group(
        session=b"", leader=0, channel=b"", pairs={}, head=b"", losses=Losses(sets=((1,), (2,), ())), shown=2
    )
    store = fit.store("state", CODEC)
    with pytest.raises(PolicyError, match="policy:max_losses"), store.transaction() as transaction:
        transaction.save(State(fit=b"kept"))
        # Stores of one fit share their transactions: an inner one that ended well is taken back, too.
        with fit.store("program").transaction() as inner:
            inner.save(ProgramState(index=3))
        transaction.save(State(group=group))
    assert set(locked) == {"database is locked"}
    assert (store.load(), fit.store("program").load()) == (None, None)
    assert journal.usage("rows").losses == 2
    assert [one["kind"] for one in journal.entries()][-2:] == ["lost", "rows"]


def test_a_fit_that_an_invalid_total_ends_keeps_what_the_one_before_it_showed() -> None:
    group = Group(
        session=b"", leader=0, channel=b"", pairs={}, head=b"", losses=Losses(sets=((1,), (2,), ())), shown=2
    )
    ended = closed(State(group=group))
    assert ended.group is None
    assert (ended.losses_so_far, ended.losses_shown) == (2, 2)


def test_a_refusal_names_the_losses(tmp_path: Path) -> None:
    attack = Attack(tmp_path, loose=False)
    tries = list(attack.rounds())
    tries[0]()
    tries[1]()
    with pytest.raises(RefusedError, match=r"\(losses=1\)") as caught:
        tries[2]()
    assert set(caught.value.codes.values()) == {"policy:losses"}


def test_a_client_that_is_lost_and_stays_away_ends_no_fit(tmp_path: Path) -> None:
    """One loss is allowed: a hospital that goes down in a fit."""
    rows = [np.random.default_rng(i).normal(size=(12, 2)) for i in range(5)]
    for number, protocol in enumerate((Masked(), Masked(verified=True), GroupMasked())):
        engine = Elsewhere(tmp_path / str(number), rows)
        engine.silent = lambda exchange, client: client == 3 and exchange.number > 2
        model = DWFKMeans(2, protocol=protocol, engine=engine, random_state=0, max_iter=3, tol=0).fit()
        assert model.n_iter_ == 3
        assert engine.party(0).journal.usage("rows").losses == 1
