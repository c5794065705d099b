"""Parties remember where each other's journals stand: an older copy of one is left out; the others go on."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import privfed.protocols.setup.advertising as counters
from privfed import DWFKMeans
from privfed.core.agreed.agreement import Agreement, JournalCounter, Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Exchange
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.errors import (
    ArgumentError,
    MessageError,
    NotEnoughClientsError,
    ProtocolError,
    RefusedError,
)
from privfed.nodes import journal as journal_module
from privfed.nodes.identity import OwnIdentity, write_identity
from privfed.nodes.journal import Journal
from privfed.nodes.party import Party
from privfed.protocols import CKKS, GroupMasked, Masked
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.advertising import advertise_request, signed_roster
from privfed.protocols.setup.parties import STALE
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    Envelope,
    Listed,
    RosterRequest,
    WentBack,
)
from privfed.protocols.slotted import Slotted
from tests.default_run import slow
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import SERVER, Asked, new_party, question
from tests.raised import forbidden_by
from tests.some import some
from tests.undeclared import ANYTHING

N = 4
NAMES = tuple("abcd")


LOSING = replace(ANYTHING, max_losses=9)


class Parties:
    """Clients on machines of their own: each has a folder, and nothing else of it outlives a fit."""

    def __init__(self, folder: Path, policy: ClientPolicy = LOSING) -> None:
        self.folder, self.policy = folder, policy
        for name in NAMES:
            own = OwnIdentity.generate(name)
            Journal.create(folder / name, own)
            write_identity(folder / name, own)
        self.public = tuple(Party(folder / name).own.key.public for name in NAMES)

    def agreement(self, nonce: int) -> Agreement:
        configuration = Configuration(
            protocol="masked",
            algorithm="",
            clients=NAMES,
            n_features=2,
            terms=Masked(losses=9).terms(N, N, 20),
            nonce=bytes([nonce]),
        )
        return Agreement(configuration, Registry(self.public, SERVER.public))

    def clients(self, agreement: Agreement) -> list[Asked]:
        rows = ClientData(np.random.default_rng(0).normal(size=(9, 2)))
        words: Any = {"data_set": "rows", "policy": self.policy}
        return [
            Asked(Party(self.folder / name).join(agreement, Masked(), rows, **words), agreement, i)
            for i, name in enumerate(NAMES)
        ]

    def fit(
        self,
        nonce: int,
        change: Callable[[Exchange], Exchange] = lambda one: one,
        replied: Callable[[list[Any]], list[Any]] = lambda replies: replies,
    ) -> Total:
        """Set up a fit from the folders alone, and open one sum."""
        agreement = self.agreement(nonce)
        clients, session = self.clients(agreement), MaskedSession(agreement, SERVER)
        driven(session.open(), clients, change)
        total: Total = driven(session.sum(question(), 0, 0, (0,)), clients, change, replied)
        return total


def driven(
    steps: Steps[Any],
    clients: Sequence[Asked],
    change: Callable[[Exchange], Exchange] = lambda one: one,
    replied: Callable[[list[Any]], list[Any]] = lambda replies: replies,
) -> Any:
    try:
        exchange = change(next(steps))
        while True:
            replies = [(i, clients[i].handle(request)) for i, request in exchange.requests.items()]
            exchange = change(steps.send(replied(replies)))
    except StopIteration as finished:
        return finished.value


def restored(folder: Path, name: str = "b", copy: str = "copy") -> None:
    """Put an older copy of a party's folder in its place."""
    shutil.rmtree(folder / name)
    shutil.copytree(folder / copy, folder / name)


def test_fits_follow_each_other_and_all_journals_are_remembered(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    for nonce in range(2):
        total = parties.fit(nonce)
        assert total.contributors == (0, 1, 2, 3) and not total.rejected
    journals = [Party(tmp_path / name).journal for name in NAMES]
    for me, journal in some(enumerate(journals)):
        # What was shown last is known, so that whoever is further back is named.
        others = {
            one: (JournalCounter(1, bytes(32), 1 << 61), b"")
            for i, one in enumerate(parties.public)
            if i != me
        }
        assert journal.identity.meets(others).keys() == others.keys()


@pytest.mark.parametrize("later", [0, 1, 2])
def test_an_older_copy_of_a_whole_folder_is_left_out_for_good_and_the_others_go_on(
    later: int, tmp_path: Path
) -> None:
    """Whatever it does between two fits, and also once its counter is higher again."""
    parties = Parties(tmp_path)
    parties.fit(0)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    for nonce in range(1 + later):
        parties.fit(1 + nonce)
    last = Party(tmp_path / "b").journal.head.counter
    restored(tmp_path)
    for nonce in range(3):
        total = parties.fit(5 + nonce)
        assert total.contributors == (0, 2, 3)
        assert total.dropped == {1: "advertise"} and total.rejected == {1: STALE}
        while nonce == 1 and Party(tmp_path / "b").journal.head.counter <= last:
            # It gives other fits what it may, until it stands above all that was met of it.
            Party(tmp_path / "b").journal._database.enter(0, "rows")
    # It is in no total any more, so that these fits show no differences of single answers.
    for name in "acd":
        assert Party(tmp_path / name).journal.usage("rows").losses == 0


def test_one_peer_that_met_older_copies_is_enough_and_a_fit_ends_that_says_why(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    parties.fit(0)
    for name in "bcd":
        shutil.copytree(tmp_path / name, tmp_path / f"copy of {name}")
    parties.fit(1)
    for name in "bcd":
        restored(tmp_path, name, f"copy of {name}")
    # One party met all of them, and these lack what it knows: after two no three are left.
    with pytest.raises(NotEnoughClientsError) as caught:
        parties.fit(2)
    assert sum(STALE in note for note in caught.value.__notes__) == 2


@pytest.mark.parametrize(
    "protocol",
    [
        Masked(),
        *map(slow, (Masked(verified=True), GroupMasked(), CKKS(), Slotted(Masked(), contributors=3))),
    ],
    ids=lambda one: str(one.name),
)
def test_over_every_sum_an_older_copy_is_left_out_and_the_fit_goes_on(protocol: Any, tmp_path: Path) -> None:
    engine = Elsewhere(tmp_path, [np.random.default_rng(i).normal(size=(12, 2)) for i in range(6)])

    def fitted(seed: int) -> list[Total]:
        model = DWFKMeans(2, protocol=protocol, engine=engine, random_state=seed, max_iter=2, tol=0).fit()
        return [total for _, total in model.transcript_.totals()]

    assert {one.contributors for one in fitted(0)} == {tuple(range(6))}
    shutil.copytree(tmp_path / "c4", tmp_path / "copy")
    fitted(1)
    restored(tmp_path, "c4")
    for seed in (2, 3, 4):
        totals = fitted(seed)
        assert {one.contributors for one in totals} == {(0, 1, 2, 3, 5)}
        assert {dict(one.rejected).get(4) for one in totals} == {STALE}


def told(parties: Parties, lie: Callable[[WentBack], Any]) -> Callable[[list[Any]], list[Any]]:
    """Have clients change what they show of a journal."""

    def change(replies: list[Any]) -> list[Any]:
        changed = []
        for client, data in replies:
            with suppress(MessageError):
                data = encode(lie(decode(data, WentBack, sender="", stage="")))
            changed.append((client, data))
        return changed

    return change


def swapped(shown: WentBack) -> WentBack:
    """Say the same of another client."""
    return msgspec.structs.replace(shown, client=2)


def altered(shown: WentBack) -> WentBack:
    """Raise the counter in one statement."""
    one, other = shown.statements
    counter = (1 << 40).to_bytes(8, "big") + one.entry.journal_counter[8:]
    return msgspec.structs.replace(
        shown,
        statements=(
            msgspec.structs.replace(one, entry=msgspec.structs.replace(one.entry, journal_counter=counter)),
            other,
        ),
    )


@pytest.mark.parametrize(
    "lie",
    [
        swapped,
        altered,
        lambda shown: msgspec.structs.replace(shown, client=9),
        lambda shown: msgspec.structs.replace(shown, client=2**32 - 1),
        lambda shown: msgspec.structs.replace(shown, statements=shown.statements[:1] * 2),
        lambda shown: msgspec.structs.replace(shown, statements=shown.statements[1:] * 2),
        lambda shown: Refusal("journal:1"),
        lambda shown: Refusal("journal:2"),
    ],
)
def test_a_journal_is_out_on_two_statements_of_its_own_alone(
    lie: Callable[[WentBack], Any], tmp_path: Path
) -> None:
    parties = Parties(tmp_path)
    parties.fit(0)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    parties.fit(1)
    restored(tmp_path)
    with pytest.raises(ProtocolError) as caught:
        parties.fit(2, replied=told(parties, lie))
    assert not hasattr(caught.value, "__notes__")


def test_an_older_copy_that_stands_where_nobody_met_it_is_left_out_too(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    parties.fit(0)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    parties.fit(1)
    parties.fit(2)
    last = Party(tmp_path / "b").journal.head.counter
    restored(tmp_path)
    # One entry more: its counter is none that another party has seen.
    parties.clients(parties.agreement(7))
    assert Party(tmp_path / "b").journal.head.counter < last
    assert parties.fit(3).rejected == {1: STALE}


def test_a_journal_that_went_on_otherwise_is_named_too(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    journal, (_, one, other, third) = Party(tmp_path / "a").journal, parties.public

    def meets(public: bytes, *counter: Any) -> set[bytes]:
        return set(journal.identity.meets({public: (JournalCounter(*counter), b"signed")}))

    assert meets(one, 5, b"x" * 32, 50) == set()
    assert meets(one, 5, b"x" * 32, 60) == set()
    # Set-ups may run at once: what was shown before comes after.
    assert meets(one, 4, b"w" * 32, 40) == set()
    assert meets(one, 7, b"z" * 32, 70) == set()
    assert meets(one, 5, b"x" * 32, 60) == set()
    assert meets(one, 7, b"y" * 32, 70) == {one}
    # For good.
    assert meets(one, 8, b"z" * 32, 80) == {one} == meets(other)
    assert meets(other, 3, b"a" * 32, 30) == {one}
    # A journal that is not shown any more is missing.
    assert meets(other) == {one, other}
    assert meets(third, 9, b"a" * 32, 90) == {one, other}
    # The higher counter at the earlier time is that of an older copy, too.
    assert meets(third, 10, b"b" * 32, 80) == {one, other, third}


def test_a_party_shows_its_journal_at_times_that_ascend_whatever_its_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one whose clock was put back would seem to have gone back."""
    own, _ = new_party(tmp_path)
    shown = []
    for clock in (5 << 58, 4 << 58, 3 << 58):
        monkeypatch.setattr(journal_module, "time_ns", lambda clock=clock: clock)
        shown.append(Journal(tmp_path, own).identity.journal_counter())
    assert all(one.at < other.at and one.counter <= other.counter for one, other in pairwise(shown))
    assert not any(one.contradicts(other) for one in shown for other in shown)


def begun(parties: Parties, nonce: int) -> tuple[MaskedSession, list[Asked], Any]:
    """Take a set-up to its list, which is not sent yet."""
    agreement = parties.agreement(nonce)
    clients, session = parties.clients(agreement), MaskedSession(agreement, SERVER)
    driven(session.open(), clients)
    return session, clients, agreement


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.few(1)
def test_set_ups_of_the_same_parties_at_once_do_not_refuse_each_other(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """The lists of set-ups that began one after the other come in any order."""
    parties = Parties(tmp_path)
    parties.fit(9)
    started = [begun(parties, nonce) for nonce in range(3)]
    for place in order:
        session, clients, _ = started[place]
        assert driven(session.sum(question(), 0, 0, (0,)), clients).contributors == (0, 1, 2, 3)
    # Whoever stands further back is still noticed, at the next set-up of all.
    journal = Party(tmp_path / "a").journal
    for public in some(parties.public[1:]):
        older = JournalCounter(1, bytes(32), 1 << 61)
        assert public in journal.identity.meets({public: (older, b"")})


def test_two_fits_whose_set_ups_overlap_step_by_step_both_end(tmp_path: Path) -> None:
    """Each client hears the two lists in another order, while the fits go on."""
    parties = Parties(tmp_path)
    fits = [begun(parties, nonce)[:2] for nonce in range(2)]
    steps = [session.sum(question(), 0, 0, (0,)) for session, _ in fits]
    exchanges = [next(one) for one in steps]
    replies: list[list[tuple[int, bytes]]] = [[], []]
    for client in range(N):
        for fit in (0, 1) if client % 2 else (1, 0):
            replies[fit].append((client, fits[fit][1][client].handle(exchanges[fit].requests[client])))
    for fit in (0, 1):
        exchange = steps[fit].send(replies[fit])
        with pytest.raises(StopIteration) as ended:
            while True:
                heard = [(i, fits[fit][1][i].handle(data)) for i, data in exchange.requests.items()]
                exchange = steps[fit].send(heard)
        assert ended.value.value.contributors == (0, 1, 2, 3)


def test_an_older_copy_is_left_out_although_set_ups_ran_at_once(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    started = [begun(parties, nonce)[:2] for nonce in range(2)]
    for session, clients in reversed(started):
        driven(session.sum(question(), 0, 0, (0,)), clients)
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "copy").rename(tmp_path / "b")
    assert parties.fit(2).rejected == {1: STALE}


def test_a_coordinator_cannot_show_another_counter(tmp_path: Path) -> None:
    def forged(one: Listed) -> Listed:
        return msgspec.structs.replace(one, journal_counter=(99).to_bytes(8, "big") + bytes(40))

    def change(exchange: Exchange) -> Exchange:
        requests = {i: lied(data) for i, data in exchange.requests.items()}
        return Exchange(exchange.stage, exchange.number, requests)

    def lied(data: bytes) -> bytes:
        try:
            message = decode(data, RosterRequest, sender="", stage="")
        except Exception:
            return data
        return encode(msgspec.structs.replace(message, clients=tuple(map(forged, message.clients))))

    with pytest.raises(RefusedError) as caught:
        Parties(tmp_path).fit(0, change)
    assert set(caught.value.codes.values()) == {"roster:signature"}


def test_more_losses_than_a_policy_allows_over_all_fits_are_a_refusal(tmp_path: Path) -> None:
    """The reply says so, and nothing of the request is kept, neither an answer nor a count."""
    parties = Parties(tmp_path, policy=replace(ANYTHING, max_losses=1))
    agreement = parties.agreement(0)
    clients, session = parties.clients(agreement), MaskedSession(agreement, SERVER)
    driven(session.open(), clients)
    driven(session.sum(question(), 0, 0, (0,)), clients)
    dead = silent(3, "collect")
    assert driven(session.sum(question(), 1, 0, (0,)), clients, dead).contributors == (0, 1, 2)
    before = Party(tmp_path / "a").journal.entries()
    with pytest.raises(RefusedError, match="lost or left out more often") as caught:
        driven(session.sum(question(), 2, 0, (0,)), clients, silent(2, "collect"))
    assert set(caught.value.codes.values()) == {"policy:max_losses"}
    (line,) = Party(tmp_path / "a").journal.fits
    kinds = [one["kind"] for one in Party(tmp_path / "a").journal.entries()[len(before) :]]
    # The sum was answered; what would have opened it, with another set of clients, was not given.
    assert (line.losses, kinds) == (1, ["sum", "rows"])


def silent(client: int, stage: str) -> Callable[[Exchange], Exchange]:
    """Return a change after which a client is not asked in a stage."""

    def change(exchange: Exchange) -> Exchange:
        asked = {i: one for i, one in exchange.requests.items() if (i, exchange.stage) != (client, stage)}
        return Exchange(exchange.stage, exchange.number, asked)

    return change


def test_an_agreement_of_others_and_another_sum_are_errors(tmp_path: Path) -> None:
    parties = Parties(tmp_path / "one")
    stranger = Party(_new(tmp_path / "stranger"))
    words: dict[str, Any] = {"data_set": "rows", "policy": ANYTHING}
    rows = ClientData(np.zeros((2, 2)))
    with pytest.raises(ArgumentError, match="not of 'x': none of its 4 keys"):
        stranger.join(parties.agreement(0), Masked(), rows, **words)
    with pytest.raises(ArgumentError, match="for 'masked' sums, got protocol='masked-verified'"):
        Party(tmp_path / "one" / "a").join(parties.agreement(0), Masked(verified=True), rows, **words)
    with forbidden_by("policy:min_clients"):
        policy = replace(ANYTHING, min_clients=9)
        Party(tmp_path / "one" / "a").join(parties.agreement(0), Masked(), rows, data_set="r", policy=policy)


@pytest.mark.parametrize("counter", [2**62 + 1, 2**63, 2**64 - 1, None])
@pytest.mark.few(2)
def test_a_counter_that_no_journal_comes_to_is_left_out_by_name(
    counter: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One signed public key, signed by its own key, made all other clients answer `error` at each set-up."""
    parties = Parties(tmp_path)
    parties.fit(0)
    shown, evil = counters.shown, parties.public[1]
    wrong = b"short" if counter is None else counter.to_bytes(8, "big") + bytes(40)
    monkeypatch.setattr(counters, "shown", lambda one: wrong if one.public == evil else shown(one))
    total = parties.fit(1)
    assert total.contributors == (0, 2, 3)
    assert dict(total.rejected) == {1: "roster:counter"}
    monkeypatch.undo()
    assert parties.fit(2).contributors == (0, 1, 2, 3)


def test_clients_refuse_such_a_counter_in_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the coordinator lets through: as a code, and not as an error of the journal's disk."""
    parties = Parties(tmp_path)
    shown, evil = counters.shown, parties.public[1]
    wrong = bytes(8) + (2**63).to_bytes(8, "big") + bytes(32)
    monkeypatch.setattr(counters, "shown", lambda one: wrong if one.public == evil else shown(one))

    def lax(agreement: Agreement, client: int, name: str, data: bytes, fit: bytes) -> Advertisement:
        return decode(data, Advertisement, sender=name, stage="advertise")

    monkeypatch.setattr(counters, "read_advertisement", lax)
    with pytest.raises(RefusedError) as caught:
        parties.fit(0)
    assert set(caught.value.codes.values()) == {"roster:counter"}


def _new(folder: Path) -> Path:
    own = OwnIdentity.generate("x")
    Journal.create(folder, own)
    write_identity(folder, own)
    return folder


def test_a_fit_goes_on_until_a_list_with_this_clients_new_key_is_joined(tmp_path: Path) -> None:
    """An old request that the coordinator signed, and a list over other keys, close nothing."""
    parties = Parties(tmp_path)
    agreement = parties.agreement(0)
    clients, session = parties.clients(agreement), MaskedSession(agreement, SERVER)
    driven(session.open(), clients)
    driven(session.sum(question(), 0, 0, (0,)), clients)
    delayed = encode(advertise_request(agreement, SERVER, b"f" * 32))
    for client in clients:
        assert "key" in str(decode_any(client.handle(delayed)))
    roster = session._roster
    stale = signed_roster(SERVER, agreement, b"f" * 32, b"k" * 32, roster.encapsulation, roster.clients)
    assert decode_any(clients[0].handle(encode(stale))) == Refusal("roster:signature")
    pushed = msgspec.structs.replace(roster, key=b"k" * 32)
    assert decode_any(clients[0].handle(encode(pushed))) == Refusal("roster:signature")
    total = driven(session.sum(question(), 0, 0, (0,)), clients)
    assert total.contributors == (0, 1, 2, 3)
    # One over the keys that were asked for last begins the next.
    again = MaskedSession(agreement, SERVER)
    driven(again.open(), clients)
    assert driven(again.sum(question(), 0, 0, (0,)), clients).contributors == (0, 1, 2, 3)
    with pytest.raises(NotEnoughClientsError):
        driven(session.sum(question(), 0, 0, (0,)), clients)


def decode_any(data: bytes) -> Any:
    return decode(data, Advertisement | Refusal | Envelope, sender="", stage="")
