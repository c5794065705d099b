"""Parties remember where each other's journals stand: an older copy of one is refused by all others."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import privfed.protocols.setup.advertising as counters
from privfed.core.agreed.agreement import Agreement, JournalCounter, Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Exchange
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.errors import ArgumentError, NotEnoughClientsError, PolicyError, RefusedError
from privfed.party.client import Party
from privfed.party.identity import OwnIdentity, write_identity
from privfed.party.journal import AT_ONCE, Journal
from privfed.protocols import Masked
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.advertising import advertise_request, signed_roster
from privfed.protocols.setup.setup_messages import Advertisement, Envelope, Listed, RosterRequest
from tests.party.journals import SERVER, Asked, question
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

    def fit(self, nonce: int, change: Callable[[Exchange], Exchange] = lambda one: one) -> Total:
        """Set up a fit from the folders alone, and open one sum."""
        agreement = self.agreement(nonce)
        clients, session = self.clients(agreement), MaskedSession(agreement, SERVER)
        driven(session.open(), clients, change)
        total: Total = driven(session.sum(question(), 0, 0, (0,)), clients, change)
        return total


def driven(
    steps: Steps[Any], clients: Sequence[Asked], change: Callable[[Exchange], Exchange] = lambda one: one
) -> Any:
    try:
        exchange = change(next(steps))
        while True:
            replies = [(i, clients[i].handle(request)) for i, request in exchange.requests.items()]
            exchange = change(steps.send(replies))
    except StopIteration as finished:
        return finished.value


def test_fits_follow_each_other_and_all_journals_are_remembered(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    for nonce in range(2):
        assert parties.fit(nonce).contributors == (0, 1, 2, 3)
    journals = [Party(tmp_path / name).journal for name in NAMES]
    for me, journal in some(enumerate(journals)):
        # What was shown last is known, so that one further back is named.
        others = {public: JournalCounter(1, bytes(32)) for i, public in enumerate(parties.public) if i != me}
        assert journal.identity.meets(others, journal.head.counter) == min(others, key=list(others).index)


def test_an_older_copy_of_a_whole_folder_is_refused_by_all_others(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    parties.fit(0)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    parties.fit(1)
    shutil.rmtree(tmp_path / "b")
    shutil.copytree(tmp_path / "copy", tmp_path / "b")
    answered = [len(Party(tmp_path / name).journal.entries()) for name in "acd"]
    with pytest.raises(RefusedError, match="older copy of its journal") as caught:
        parties.fit(2)
    assert {code for name, code in caught.value.codes.items() if name != "b"} == {"journal:1"}
    for name, before in zip("acd", answered, strict=True):
        entries = Party(tmp_path / name).journal.entries()[before:]
        assert "sum" not in {one["kind"] for one in entries} and entries


def test_an_older_copy_that_stands_where_nobody_met_it_is_refused_too(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    parties.fit(0)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    parties.fit(1)
    parties.fit(2)
    last = Party(tmp_path / "b").journal.head.counter
    shutil.rmtree(tmp_path / "b")
    shutil.copytree(tmp_path / "copy", tmp_path / "b")
    # One entry more: its counter is none that another party has seen.
    parties.clients(parties.agreement(7))
    assert Party(tmp_path / "b").journal.head.counter < last
    with pytest.raises(RefusedError, match="older copy of its journal"):
        parties.fit(3)


def test_a_journal_that_went_on_otherwise_is_refused_too(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    journal, other = Party(tmp_path / "a").journal, parties.public[1]

    def meets(public: bytes, counter: JournalCounter) -> bytes | None:
        return journal.identity.meets({public: counter}, journal.head.counter)

    assert meets(other, JournalCounter(5, b"x" * 32)) is None
    assert meets(other, JournalCounter(5, b"x" * 32)) is None
    assert meets(other, JournalCounter(5, b"y" * 32)) == other
    # A journal that is not shown any more is missing.
    assert meets(other, JournalCounter()) == other
    assert meets(parties.public[2], JournalCounter()) is None
    assert meets(other, JournalCounter(6, b"y" * 32)) is None


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
        assert journal.identity.meets({public: JournalCounter(1, bytes(32))}, journal.head.counter) == public


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


def test_an_older_copy_is_refused_although_set_ups_ran_at_once(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    shutil.copytree(tmp_path / "b", tmp_path / "copy")
    started = [begun(parties, nonce)[:2] for nonce in range(2)]
    for session, clients in reversed(started):
        driven(session.sum(question(), 0, 0, (0,)), clients)
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "copy").rename(tmp_path / "b")
    with pytest.raises(RefusedError, match="older copy of its journal"):
        parties.fit(2)


def test_a_set_up_that_waited_through_too_many_others_counts_the_lowest_that_is_known(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    journal, other = Party(tmp_path / "a").journal, parties.public[1]
    since = journal.head.counter
    journal.begin(parties.agreement(0), 0, "rows", ANYTHING)
    for counter in range(10, 10 + 2 * AT_ONCE):
        assert (
            journal.identity.meets({other: JournalCounter(counter, bytes(32))}, journal.head.counter) is None
        )
    lowest = 10 + AT_ONCE
    assert journal.identity.meets({other: JournalCounter(lowest - 1, bytes(32))}, since) == other
    assert journal.identity.meets({other: JournalCounter(lowest, bytes(32))}, since) is None
    assert journal.identity.meets({other: JournalCounter(lowest, bytes(32))}, journal.head.counter) == other


def test_a_coordinator_cannot_show_another_counter(tmp_path: Path) -> None:
    def forged(one: Listed) -> Listed:
        return msgspec.structs.replace(one, journal_counter=(99).to_bytes(8, "big") + bytes(32))

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
    with pytest.raises(PolicyError, match="policy:min_clients"):
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
    wrong = b"short" if counter is None else counter.to_bytes(8, "big") + bytes(32)
    monkeypatch.setattr(counters, "shown", lambda one: wrong if one.public == evil else shown(one))
    total = parties.fit(1)
    assert total.contributors == (0, 2, 3)
    assert dict(total.rejected) == {1: "no counter of a journal"}
    monkeypatch.undo()
    assert parties.fit(2).contributors == (0, 1, 2, 3)


def test_clients_refuse_such_a_counter_in_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the coordinator lets through: as a code, and not as an error of the journal's disk."""
    parties = Parties(tmp_path)
    shown, evil = counters.shown, parties.public[1]
    wrong = (2**63).to_bytes(8, "big") + bytes(32)
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
