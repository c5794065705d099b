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

from privfed.core.agreed.agreement import Agreement, Registry, Standing
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Client, Exchange
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.messages import Refusal, decode, encode
from privfed.errors import ArgumentError, NotEnoughClientsError, PolicyError, RefusedError
from privfed.party.identity import OwnIdentity, write_identity
from privfed.party.joining import Party
from privfed.party.journal import Journal
from privfed.party.peers import AT_ONCE
from privfed.protocols import Masked
from privfed.protocols.masked.session import MaskedSession
from privfed.protocols.setup.advertising import advertise_request, signed_roster
from privfed.protocols.setup.messages import Advertisement, Envelope, Listed, RosterRequest, Slot
from tests.party.journals import SERVER, question
from tests.some import some
from tests.undeclared import ANYTHING

N = 4
NAMES = tuple("abcd")


class Parties:
    """Clients on machines of their own: each has a folder, and nothing else of it outlives a fit."""

    def __init__(self, folder: Path, policy: ClientPolicy = ANYTHING) -> None:
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
            terms=Masked().terms(N, N, 20),
            nonce=bytes([nonce]),
        )
        return Agreement(configuration, Registry(self.public, SERVER.public))

    def clients(self, agreement: Agreement) -> list[Client]:
        rows = ClientData(np.random.default_rng(0).normal(size=(9, 2)))
        return [
            Party(self.folder / name).join(agreement, Masked(), rows, data_set="rows", policy=self.policy)
            for name in NAMES
        ]

    def fit(self, nonce: int, change: Callable[[Exchange], Exchange] = lambda one: one) -> Total:
        """Set up a fit from the folders alone, and open one sum."""
        agreement = self.agreement(nonce)
        clients, session = self.clients(agreement), MaskedSession(agreement, SERVER)
        driven(session.open(), clients, change)
        total: Total = driven(session.sum(question(), 0, 0, (0,)), clients, change)
        return total


def driven(
    steps: Steps[Any], clients: Sequence[Client], change: Callable[[Exchange], Exchange] = lambda one: one
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
        others = {public: Standing(1, bytes(32)) for i, public in enumerate(parties.public) if i != me}
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


def test_a_journal_that_went_on_otherwise_is_refused_too(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    journal, other = Party(tmp_path / "a").journal, parties.public[1]

    def meets(public: bytes, standing: Standing) -> bytes | None:
        return journal.identity.meets({public: standing}, journal.head.counter)

    assert meets(other, Standing(5, b"x" * 32)) is None
    assert meets(other, Standing(5, b"x" * 32)) is None
    assert meets(other, Standing(5, b"y" * 32)) == other
    # A journal that is not shown any more is missing.
    assert meets(other, Standing()) == other
    assert meets(parties.public[2], Standing()) is None
    assert meets(other, Standing(6, b"y" * 32)) is None


def begun(parties: Parties, nonce: int) -> tuple[MaskedSession, list[Client], Any]:
    """Take a set-up to its list, which is not sent yet."""
    agreement = parties.agreement(nonce)
    clients, session = parties.clients(agreement), MaskedSession(agreement, SERVER)
    driven(session.open(), clients)
    return session, clients, agreement


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.few(3)
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
        assert journal.identity.meets({public: Standing(1, bytes(32))}, journal.head.counter) == public


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
        assert journal.identity.meets({other: Standing(counter, bytes(32))}, journal.head.counter) is None
    lowest = 10 + AT_ONCE
    assert journal.identity.meets({other: Standing(lowest - 1, bytes(32))}, since) == other
    assert journal.identity.meets({other: Standing(lowest, bytes(32))}, since) is None
    assert journal.identity.meets({other: Standing(lowest, bytes(32))}, journal.head.counter) == other


def test_a_coordinator_cannot_show_another_standing(tmp_path: Path) -> None:
    def forged(one: Listed) -> Listed:
        return msgspec.structs.replace(one, standing=(99).to_bytes(8, "big") + bytes(32))

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
    with pytest.raises(RefusedError, match="lost more often in the fits") as caught:
        driven(session.sum(question(), 2, 0, (0,)), clients)
    assert set(caught.value.codes.values()) == {"policy:max_losses"}
    (line,) = Party(tmp_path / "a").journal.fits
    kinds = [one["kind"] for one in Party(tmp_path / "a").journal.entries()[len(before) :]]
    # The sum was answered; what would have opened it, with the client that is back, was not given.
    assert (line.losses, kinds) == (1, ["sum", "state"])


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
    stale = signed_roster(SERVER, agreement, b"f" * 32, b"k" * 32, session._roster().clients)
    assert decode_any(clients[0].handle(encode(stale))) == Refusal("roster:signature")
    pushed = msgspec.structs.replace(session._roster(), upcoming=tuple(Slot(r, 0) for r in range(90, 97)))
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
