"""The set-up of a group: who is let in, who draws the secret, and what the coordinator may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.errors import ArgumentError, IntegrityError
from privfed.protocols import CKKS, GroupMasked
from privfed.protocols.client_opened import group_client
from privfed.protocols.client_opened import relay as relay_module
from privfed.protocols.client_opened.client_opened import GroupSession
from privfed.protocols.client_opened.group_client import GroupSetup
from privfed.protocols.client_opened.scheme import Confirmed, Group, Invited, Joined, needed
from privfed.protocols.crypto.keys import Identity, encapsulation_key, new_secret, new_seed, public_key
from privfed.protocols.setup.advertising import advertise_request, listed, signed_roster
from privfed.protocols.setup.hybrid import Keyring
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    AdvertiseRequest,
    Channel,
    Envelope,
    Joining,
    Listed,
)
from tests.protocols.federations import Sums
from tests.protocols.groups import QUESTION, Played

N = 5


def started(**options: Any) -> tuple[Sums, AdvertiseRequest, tuple[Listed, ...]]:
    """Return a federation whose clients have advertised for a fit, and their list."""
    run = Sums(GroupMasked(**options), N)
    request = asking(run)
    entries = []
    for i in range(N):
        one = decode(run.clients[i].handle(encode(request)), Advertisement, sender="", stage="")
        entries.append(listed(i, one))
    return run, request, tuple(entries)


def asking(run: Sums) -> AdvertiseRequest:
    """Return a request of the coordinator's that begins another fit."""
    relay = run.session.relay  # type: ignore[attr-defined]
    return advertise_request(relay._agreement, relay._identity, new_secret())


def roster(run: Sums, request: AdvertiseRequest, listed: tuple[Listed, ...], **changed: Any) -> bytes:
    relay = run.session.relay  # type: ignore[attr-defined]
    keys = public_key(new_secret()), encapsulation_key(new_seed())
    message = signed_roster(relay._identity, relay._agreement, request.fit, *keys, listed)
    return encode(msgspec.structs.replace(message, **changed))


def code(run: Sums, client: int, request: bytes) -> str:
    reply = decode(
        run.clients[client].handle(request), Refusal | Joining | Advertisement, sender="", stage=""
    )
    return reply.code if isinstance(reply, Refusal) else ""


def forged(listed: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """Return the list with a key of the coordinator's in the place of client 3's."""
    false = Identity.generate()
    key = public_key(new_secret())
    return (*listed[:3], Listed(3, key, key, key, false.sign(b"?")), *listed[4:])


LISTS: dict[str, tuple[str, Callable[[tuple[Listed, ...]], tuple[Listed, ...]]]] = {
    "in another order": ("roster:clients", lambda listed: listed[::-1]),
    "one twice": ("roster:clients", lambda listed: (*listed[:-1], listed[-2])),
    "with more than there are": ("message", lambda listed: (*listed, listed[-1])),
    "without this client": ("roster:self", lambda listed: (listed[0], *listed[2:])),
    "with an exchanged key": ("roster:signature", forged),
    "with one's key under another's name": (
        "roster:signature",
        lambda listed: (*listed[:3], msgspec.structs.replace(listed[4], client=3)),
    ),
}


@pytest.mark.parametrize(("refusal", "change"), LISTS.values(), ids=LISTS.keys())
def test_a_client_refuses_a_list(refusal: str, change: Callable[..., tuple[Listed, ...]]) -> None:
    run, request, entries = started()
    assert code(run, 1, roster(run, request, change(entries))) == refusal
    assert code(run, 1, roster(run, request, entries)) == ""


def test_a_client_refuses_a_list_that_the_coordinator_did_not_sign() -> None:
    run, request, entries = started()
    assert code(run, 1, roster(run, request, entries, signature=bytes(64))) == "roster:signature"


def test_a_second_list_under_the_same_key_is_refused() -> None:
    run, request, entries = started()
    assert code(run, 1, roster(run, request, entries)) == ""
    assert code(run, 1, roster(run, request, entries[:4])) == "message"


def test_another_agreement_is_refused_and_a_request_that_comes_again_gets_the_same_key() -> None:
    run, request, entries = started()
    other = msgspec.structs.replace(request, agreement=bytes(32))
    assert code(run, 1, encode(other)) == "agreement"
    again = decode(run.clients[1].handle(encode(request)), Advertisement, sender="", stage="")
    assert again.key == entries[1].key
    assert code(run, 1, roster(run, request, entries)) == ""
    assert code(run, 1, encode(request)) == "message"


def test_nobody_but_the_coordinator_begins_a_fit_and_an_old_request_begins_none() -> None:
    # Whoever could send three unsigned messages closed a group's fit, and its agreement, for good.
    run, request, entries = started()
    assert code(run, 1, roster(run, request, entries)) == ""
    before = run.state(1)
    for forged in (
        msgspec.structs.replace(request, fit=new_secret()),
        msgspec.structs.replace(request, fit=new_secret(), signature=Identity.generate().sign(b"?")),
    ):
        assert code(run, 1, encode(forged)) == "setup:signature"
    assert run.state(1) == before
    assert isinstance(read(run, asking(run)), Advertisement)
    # The first fit is closed now; its request, heard on the line, closes nothing.
    before = run.state(1)
    assert code(run, 1, encode(request)) == "setup:again"
    assert run.state(1) == before


def read(run: Sums, request: AdvertiseRequest) -> Advertisement:
    reply = run.clients[1].handle(encode(request))
    advertised: Advertisement = decode(reply, Advertisement, sender="", stage="")
    return advertised


@pytest.fixture
def lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the lowest on the list lead: what is asserted does not depend on whom the session draws."""
    for module in (group_client, relay_module):
        monkeypatch.setattr(module, "leader_of", lambda session, clients: min(clients))


def test_a_client_that_the_session_draws_leads_and_all_others_get_its_secret() -> None:
    leaders = set()
    for _ in range(12):
        played = Played(n=N)
        groups = [played.group(i) for i in range(N)]
        assert len({group.secret for group in groups}) == 1 and len(groups[0].secret) == 32
        (leader,) = {group.leader for group in groups}
        leaders.add(leader)
    assert len(leaders) > 1


@pytest.mark.parametrize("protocol", [GroupMasked(losses=9), CKKS(losses=9)], ids=["group-masked", "ckks"])
@pytest.mark.parametrize("n", [6, 10])
@pytest.mark.parametrize("keeps", [0, 2])
def test_a_leader_that_seals_garbage_takes_one_other_with_it_and_its_secret_is_never_used(
    protocol: Any, n: int, keeps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, liars = GroupSetup._lead, list[int]()

    def lying(self: GroupSetup, group: Group) -> tuple[Group, bytes]:
        group, boxes = honest(self, group)
        if not liars:
            liars.append(self._me)
            size = len(boxes) // (n - 1)
            boxes = boxes[: keeps * size] + bytes(len(boxes) - keeps * size)
        return group, boxes

    monkeypatch.setattr(GroupSetup, "_lead", lying)
    run = Sums(protocol, n)
    for _ in range(2):
        total = run.ask(QUESTION)
        run.assert_exact(total, QUESTION)
        out = set(range(n)) - set(total.contributors)
        assert len(out) == 2 and set(liars) < out and set(total.dropped.values()) == {"invite"}
    assert len({run.state(i).group.secret for i in total.contributors}) == 1


@pytest.mark.parametrize("protocol", [GroupMasked(losses=9), CKKS(losses=9)], ids=["group-masked", "ckks"])
@pytest.mark.parametrize("lie", [lambda one: Refusal("invitation"), lambda one: Confirmed(bytes(32))])
def test_a_client_that_says_it_got_no_secret_takes_the_leader_with_it_and_nobody_else(
    protocol: Any, lie: Callable[[Any], Any]
) -> None:
    run, leaders = Sums(protocol, 8), list[int]()

    def change(exchange: Any, replies: Any) -> Any:
        if exchange.stage != "invite" or 5 not in exchange.requests:
            return replies
        group = run.state(5).group
        leaders.append(group.leader)
        sealed = Channel(group.channel, group.session, 5).up.seal(0, "collect", lie(None))
        return [(i, sealed if i == 5 else one) for i, one in replies]

    run.engine.change_replies = change
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    out = set(range(8)) - set(total.contributors)
    # Where it leads itself, it has nobody to accuse but itself: another may come along.
    assert 5 in out and len(out) <= 2 and leaders[0] in out
    assert set(total.rejected) == out


def joined(run: Sums, client: int, reply: bytes) -> Joined:
    """Return what is in a client's answer to the list."""
    group, joining = run.state(client).group, decode(reply, Joining, sender="", stage="")
    envelope = decode(joining.envelope, Envelope, sender="", stage="")
    inside: Joined = Channel(group.channel, group.session, client).up.open(envelope, Joined, "")
    return inside


def test_only_the_leader_sends_boxes_and_keys_are_erased(lowest: None) -> None:
    played = Played(n=N, sums=0)
    run = played.run
    run.federation._drive(played.relay.open(), 0)
    replies = dict(run.engine.log[-2][1])
    sent = {i: joined(run, i, reply) for i, reply in replies.items()}
    assert [len(one.boxes) for one in sent.values()] == [4 * 60, 0, 0, 0, 0]
    # The leader encapsulates to everybody; each pair of the others once.
    assert len(sent[0].capsules) == 4 and sum(len(one.capsules) for one in sent.values()) == N * (N - 1) / 2
    assert all((run.state(i).key, run.state(i).seed) == (b"", b"") for i in range(N))
    # Before the first question all have the secret, and nothing is left that agrees on keys.
    assert len({run.state(i).group.secret for i in range(N)}) == 1
    assert all(run.state(i).group.ring == Keyring() for i in range(1, N))
    assert not run.state(0).group.ring.seed


CHANGES: dict[str, Callable[[dict[int, bytes]], bytes]] = {
    "another client's": lambda boxes: boxes[2],
    "altered": lambda boxes: boxes[1][:-1] + bytes([boxes[1][-1] ^ 1]),
    "cut short": lambda boxes: boxes[1][:20],
}


def waiting(played: Played) -> None:
    """Set a group up as far as clients wait for their invitations."""
    steps = played.relay.open()
    exchange = next(steps)
    while exchange.stage != "invite":
        exchange = steps.send(played.run.engine.exchange(exchange, None))


def invite(played: Played, client: int, box: bytes) -> str:
    """Send a client a box; return the code of its refusal."""
    channel, capsules = played.relay._channels[client], played.relay._pairing.capsules(client)
    data = played.run.clients[client].handle(channel.down.seal(0, "collect", Invited(box, capsules)))
    sealed = decode(data, Envelope, sender="", stage="")
    reply = channel.up.open(sealed, Confirmed | Refusal, "client")
    return reply.code if isinstance(reply, Refusal) else ""


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_client_refuses_an_invitation(change: Callable[[dict[int, bytes]], bytes], lowest: None) -> None:
    played = Played(n=N, sums=0)
    waiting(played)
    boxes = dict(played.relay._boxes)
    assert invite(played, 1, change(boxes)) == "invitation"
    played.announce(0)
    assert played.code(1, 1, played.request(1, 0, totals=())) == "message"
    assert invite(played, 1, boxes[1]) == ""
    assert played.code(1, 1, played.request(1, 0, totals=())) == ""
    # Once it has confirmed a secret no other comes.
    assert invite(played, 1, boxes[1]) == "message"


def test_an_invitation_of_another_set_up_is_refused(lowest: None) -> None:
    one, other = Played(n=N, sums=0), Played(n=N, sums=0)
    for played in (one, other):
        waiting(played)
    assert invite(one, 1, other.relay._boxes[1]) == "invitation"


def test_a_leader_that_sends_different_secrets_opens_nothing() -> None:
    played = Played(n=N, sums=0)
    played.run.federation._drive(played.relay.open(), 0)
    state = played.run.state(0)
    with played.run.stores[0].transaction() as transaction:
        group = msgspec.structs.replace(state.group, secret=new_secret())
        transaction.save(msgspec.structs.replace(state, group=group))
    played.run.federation._opened = True
    with pytest.raises(IntegrityError, match="clinic-"):
        played.run.ask(QUESTION)
    assert not played.run.transcript.totals()


def test_boxes_of_another_length_cost_the_leader_its_place(lowest: None) -> None:
    def led_with(run: Sums, boxes: bytes) -> Callable[[Any, Any], Any]:
        def change(exchange: Any, replies: Any) -> Any:
            if exchange.stage != "prepare" or 0 not in exchange.requests:
                return replies
            inside = joined(run, 0, replies[0][1])
            ciphertext = decode(replies[0][1], Joining, sender="", stage="").ciphertext
            group = run.state(0).group
            channel = Channel(group.channel, group.session, 0)
            sealed = channel.up.seal(0, "prepare", msgspec.structs.replace(inside, boxes=boxes))
            return [(0, encode(Joining(ciphertext, sealed))), *replies[1:]]

        return change

    # Five boxes of one byte have the right length of the whole: nobody can open them.
    run = Sums(GroupMasked(colluders=0), 6)
    run.engine.change_replies = led_with(run, b"12345")
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == (2, 3, 4, 5) and set(total.rejected) == {0, 1}
    run = Sums(GroupMasked(), 6)
    run.engine.change_replies = led_with(run, b"1234567")
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.dropped == {0: "prepare"} and total.rejected == {0: "boxes of another length"}


def test_a_total_before_any_client_has_the_secret_is_an_error() -> None:
    played, other = Played(n=N, sums=0), Played(n=N)
    assert isinstance(played.run.session, GroupSession)
    with pytest.raises(IntegrityError, match="before any client"):
        played.standing.open(other.relay._totals[0])


# --- the numbers ---


@pytest.mark.parametrize(
    ("n", "options", "expected"),
    [
        (3, {}, (1, 2, 3)),
        (5, {}, (1, 3, 4)),
        (10, {}, (2, 5, 7)),
        (10, {"colluders": 4, "honest": 2}, (4, 2, 6)),
    ],
)
def test_terms(n: int, options: dict[str, int], expected: tuple[int, int, int]) -> None:
    terms = GroupMasked(**options).terms(n, n, 10)
    assert (terms.colluders, terms.honest, needed(n, terms)) == expected
    assert terms.repeats == 3 and terms.min_clients == n


def test_a_larger_cohort_is_taken_to_hold_the_same_share_of_colluders() -> None:
    terms = GroupMasked(colluders=2, honest=3).terms(60, 10, 10)
    assert needed(10, terms) == 5 and needed(60, terms) == 15


@pytest.mark.parametrize(
    ("clients", "smallest", "options", "match"),
    [
        (2, 2, {}, "at least 3"),
        (201, 201, {}, "at most 200 clients, got 201"),
        (5, 5, {"colluders": 4}, "do not fit"),
        (5, 5, {"repeats": -1}, "repeats must be a whole number in"),
    ],
)
def test_terms_out_of_bounds_say_what_could_be(
    clients: int, smallest: int, options: dict[str, int], match: str
) -> None:
    with pytest.raises(ArgumentError, match=match):
        GroupMasked(**options).terms(clients, smallest, 10)
