"""The named attacks with keys that are not a client's, and with old messages, in two halves each.

| attack | guard that is taken out in the second half |
|---|---|
| invented neighbours | `check_roster`: signatures of the registry |
| number asked twice | `check_number` |
| preparation of an old block | block in the box's key and data, and the chain |
| preparation of an old fit | fresh keys and session |
| whole requests again | the number, the session and the kept reply |
| more sums than agreed | `check_number`; the count is kept from one set-up to the next |

The last test shows what is not promised: the difference of two totals.
"""

from __future__ import annotations

import numpy as np
import pytest

from privfed.protocols.crypto.keys import new_secret
from privfed.protocols.masked.masked_client import MaskedClient
from privfed.protocols.setup import advertising
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Slot
from tests.protocols.hostile import weaker
from tests.protocols.hostile.attack import (
    ALL,
    OTHERS,
    OVERLAPPING,
    VICTIM,
    N,
    calls,
    collected,
    opened,
)
from tests.protocols.hostile.loot import Loot
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.weaker import ForgetsAnswers, KeepsKeys
from tests.protocols.hostile.world import World, terms_of

# --- who is who ---


def invented() -> tuple[HostileServer, str]:
    """Make up all clients but one."""
    server = HostileServer(World(N, corrupted=OTHERS, impostors=OTHERS))
    fit_id = new_secret()
    fit = server.fit_of(fit_id, [server.advertise(i, fit_id) for i in server.everyone])
    with pytest.MonkeyPatch.context() as patch:
        weaker.without_signatures(patch)
        assert {server.join(fit, i) for i in OTHERS} == {""}
    advertising._check_listed.cache_clear()
    refused = server.join(fit, VICTIM, [(1, 0)])
    server.prepare(fit, 1, 0, OTHERS)
    if not refused:
        server.collect(fit, VICTIM, 1)
    return server, refused


def test_neighbours_that_the_server_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refused = invented()
    assert refused == "roster:signature"
    assert opened(server) == set()

    weaker.without_signatures(monkeypatch)
    server, refused = invented()
    assert opened(server) == {frozenset({VICTIM})}


# --- replays ---


def number_twice() -> tuple[HostileServer, list[str]]:
    server, fit = collected(World(N))
    assert server.unmask_all(fit, 1, calls(ALL, ())) == []
    refusals = server.collect_all(fit, 1, OTHERS, question=1)
    server.unmask_all(fit, 1, calls(OTHERS, {VICTIM}))
    return server, refusals


def test_number_that_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refusals = number_twice()
    assert refusals == ["message"] * (N - 1)
    assert opened(server) == {ALL}

    weaker.with_numbers_again(monkeypatch)
    server, _ = number_twice()
    assert frozenset({VICTIM}) in opened(server)


def old_preparation(side: type, *, other_fit: bool) -> tuple[HostileServer, list[str]]:
    """After a fair sum, ask the others again with the victim's old preparation, and call it dead."""
    server, fit = collected(World(N, side=side))
    assert server.unmask_all(fit, 1, calls(ALL, ())) == []
    number = 1 if other_fit else 1 + BLOCK
    later = server.open([(1, 0)]) if other_fit else fit
    server.prepare(later, number)
    swap = {VICTIM: server.prepared(fit, VICTIM, 1)}
    refusals = server.collect_all(later, number, OTHERS, swap=swap)
    server.unmask_all(later, number, calls(OTHERS, {VICTIM}))
    return server, refusals


def test_preparation_of_an_old_block(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refusals = old_preparation(MaskedClient, other_fit=False)
    assert refusals == [f"box:{VICTIM}"] * (N - 1)
    assert opened(server) == {ALL}

    weaker.without_number(monkeypatch)
    server, refusals = old_preparation(MaskedClient, other_fit=False)
    assert refusals == []
    assert frozenset({VICTIM}) in opened(server)


def test_preparation_of_an_old_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refusals = old_preparation(MaskedClient, other_fit=True)
    assert refusals == [f"box:{VICTIM}"] * (N - 1)
    assert opened(server) == {ALL}

    # Even under the same keys and in the same session another ciphertext gives another K_ij.
    weaker.without_session(monkeypatch)
    assert old_preparation(KeepsKeys, other_fit=True)[1] == [f"box:{VICTIM}"] * (N - 1)

    weaker.with_ciphertexts_again(monkeypatch)
    server, refusals = old_preparation(KeepsKeys, other_fit=True)
    assert refusals == []
    assert frozenset({VICTIM}) in opened(server)


@pytest.mark.parametrize("other_fit", [False, True])
def test_whole_requests_that_are_replayed(other_fit: bool) -> None:
    """Only the very last request is answered again, and byte for byte as before."""
    world = World(N)
    server, fit = collected(world)
    server.unmask_all(fit, 1, calls(ALL, ()))
    replies = [(i, request, world.ask(i, request)) for i, request in fit.requests[-N:]]
    if other_fit:
        server.open([(1, 0)])
    else:
        assert all(world.ask(i, request) == reply for i, request, reply in replies)
        server.prepare(fit, 2)
    for i, request in fit.requests[: -N if other_fit else -2 * N]:
        reply = world.ask(i, request)
        assert b"Refusal" in reply or len(reply) < 200
    assert opened(server) == {ALL}


def three_sums(side: type) -> HostileServer:
    """Ask two sums in one set-up and a third after another, of clients that agreed to two."""
    server = HostileServer(World(N, terms=terms_of(N, max_sums=2), side=side))
    fit = server.open([(1, 0), (2, 0), (3, 0)])
    for number in (1, 2, 3):
        server.collect_all(fit, number, ALL)
        server.unmask_all(fit, number, calls(ALL, ()))
    fit = server.open([(1, 0)])
    server.collect_all(fit, 1, ALL)
    server.unmask_all(fit, 1, calls(ALL, ()))
    return server


def test_more_sums_than_were_agreed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    server = three_sums(MaskedClient)
    assert server.refusals == ["policy:max_sums"] * 2 * N
    assert len(Loot(server).opened()) == 2

    assert len(Loot(three_sums(ForgetsAnswers)).opened()) == 3
    weaker.without_max_sums(monkeypatch)
    assert len(Loot(three_sums(MaskedClient)).opened()) == 4


# --- refusals that other guards stand behind ---


def test_only_a_prepared_cohort_and_a_list_with_oneself_is_answered() -> None:
    server = HostileServer(World(11, rule=OVERLAPPING))
    fit = server.open([(1, 1)])
    server.prepare(fit, 1, 2, range(6, 11))
    of_first = fit.preparations[1, 1, VICTIM]
    fit.preparations[1, 2, VICTIM] = of_first
    assert server.collect(fit, VICTIM, 1, cohort=2) == "message"
    assert server.collect(fit, VICTIM, 1, cohort=1, prepared=range(5)) == "prepared:list"
    assert server.collect(fit, 0, 1, cohort=1, prepared=range(5)) == ""


def test_only_the_last_sum_is_unmasked() -> None:
    server, fit = collected(World(N))
    told = server.upload_of(fit, 0, 1)
    assert told is not None
    told.number = 2  # the server names another number in the second exchange
    assert server.unmask(fit, 0, 2) == "message"
    told.number = 1
    server.prepare(fit, 2)
    assert server.collect(fit, 1, 2) == ""
    assert server.unmask(fit, 1, 1) == "message"
    # A block that is passed by four later ones is closed, in flight or not.
    for block in range(1, 6):
        server.prepare(fit, 1 + BLOCK * block, clients=[0])
    for told.number in range(1, BLOCK + 1):
        assert server.unmask(fit, 0, told.number) == "message"


# --- what is not promised ---


def test_two_sums_of_one_question_that_differ_by_a_client_differ_by_that_client() -> None:
    """Totals are seen, and the promise is about each sum for itself: SECURITY.md says so."""
    server, fit = collected(World(N))
    server.unmask_all(fit, 1, calls(ALL, ()))
    server.prepare(fit, 2)
    server.collect_all(fit, 2, OTHERS)
    server.unmask_all(fit, 2, calls(OTHERS, {VICTIM}))
    one, other = Loot(server).opened()
    victim = server.upload_of(fit, VICTIM, 1)
    assert victim is not None
    np.testing.assert_array_equal(one.words - other.words, victim.truth)


@pytest.mark.parametrize("last", [4, 5, 6, 9])
def test_a_sum_that_a_later_block_closed_keeps_no_secrets_and_counts_as_a_loss(last: int) -> None:
    """A client holds blocks of four at most: where a fifth is prepared, what was pending opens no more."""
    world = World(6, terms=terms_of(6, losses=3))
    server = HostileServer(world)
    fit = server.open([(1, 0)])
    assert server.collect_all(fit, 1, server.everyone) == []
    before = world.stores[0].load().keys
    shares, answer = before.pending.shares, before.pending.answer
    for first in range(2, last + 1, 4):
        slots = tuple(Slot(block, 0) for block in range(first, min(first + 4, last + 1)))
        assert server.ask_to_prepare(fit, 0, slots) == ""
    after = world.stores[0].load()
    stored = world.sides[0].codec.to_bytes(after)
    closed = after.keys.last > 1
    assert closed == (last > 4)
    held = {shares[at : at + 32] for at in range(0, len(shares), 32)} | {answer}
    assert any(one in stored for one in held) != closed
    # What opened of the sum without this client comes with the history of the next one.
    assert after.keys.losses == before.losses
    assert (server.unmask(fit, 0, 1) == "message") == closed
