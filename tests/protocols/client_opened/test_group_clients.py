"""What a client of a group refuses: each check of it, played against by a coordinator that lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.roles.engine import Client
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.engines.in_process import Fault
from privfed.errors import IntegrityError, NotEnoughClientsError, RefusedError, RepeatsSpentError
from privfed.party.state import FileStore
from privfed.protocols import GroupMasked
from privfed.protocols.client_opened.client_opened import GroupSession
from privfed.protocols.client_opened.scheme import CODEC, Contribution, Sealed, State, tag_of
from privfed.protocols.setup.setup_messages import Envelope
from tests.protocols.federations import Sums, vectors, wide_vectors
from tests.protocols.groups import QUESTION, Played, encoded, with_words, words_of
from tests.raised import refused_with

# Each changes one thing in what an honest coordinator of five clients would send client 1 for its second
# sum: number 2, index 1, the total of the first.
Change = Callable[[Played], tuple[int, dict[str, object]]]


def total(played: Played, **changed: object) -> Sealed:
    return msgspec.structs.replace(played.relay._totals[-1], **changed)


REFUSED: dict[str, tuple[str, Change]] = {
    "a number that does not rise": ("message", lambda p: (1, {})),
    "a list of lost clients of another length": ("message", lambda p: (2, {"lost": bytes(4)})),
    "a list of lost clients that is none": ("message", lambda p: (2, {"lost": b"\2" + bytes(4)})),
    "too few clients that are left": ("members:few", lambda p: (2, {"lost": bytes([1, 0, 1, 0, 0])})),
    "a sum that the algorithm has not come to": ("message", lambda p: (2, {"index": 2})),
    "a sum that is open": ("message", lambda p: (2, {"index": 0})),
    "a total of a sum to come": ("message", lambda p: (2, {"totals": (total(p, number=2),)})),
    "a total under another number": ("total", lambda p: (3, {"totals": (total(p, number=2),)})),
    "a total of another sum": ("total", lambda p: (2, {"totals": (total(p, index=1),)})),
    "a total with others lost": ("total", lambda p: (2, {"totals": (total(p, lost=b"\0\0\0\0\1"),)})),
    "a total that is no message": ("total", lambda p: (2, {"totals": (total(p, body=b"?"),)})),
    "an altered total": (
        "total",
        lambda p: (2, {"totals": (total(p, body=with_words(total(p).body, words_of(total(p).body) + 1)),)}),
    ),
}


@pytest.mark.parametrize(("code", "change"), REFUSED.values(), ids=REFUSED.keys())
def test_a_client_refuses(code: str, change: Change) -> None:
    played = Played()
    played.announce(1)
    number, changed = change(played)
    before = played.run.state(1)
    honest = played.request(2, 1)
    assert played.code(1, number, msgspec.structs.replace(honest, **changed)) == code
    after = played.run.state(1)
    if code == "total":
        assert after.group is None and not after.key
        assert played.code(1, 2, honest) == "message"
    else:
        # A total that came with the request and holds stays open; nothing else is new.
        kept = {name: getattr(after.group, name) for name in ("head", "opened", "pending")}
        assert after == msgspec.structs.replace(before, group=msgspec.structs.replace(before.group, **kept))
        assert played.code(1, 2, honest) == ""


def test_no_other_total_of_a_sum_is_chained_after_a_refusal() -> None:
    # The replay has heard the first: with another head it would ask another question than its chain says.
    played = Played(n=9)
    played.announce(1)
    lost = bytes([0] * 8 + [1])
    first = played.sealed(2, 1, played.collect(2, 1), bytes(9))
    second = played.sealed(3, 1, played.collect(3, 1, totals=(), lost=lost), lost)
    played.announce(2)
    assert played.code(1, 4, played.request(4, 5, totals=(first,), lost=lost)) == "message"
    head = played.group(1).head
    assert played.group(1).opened == 1
    told = {i: played.ask(i, 4, played.request(4, 2, totals=(second,), lost=lost)) for i in (1, 2)}
    assert played.group(1).head == head != played.group(2).head
    assert told[1].tag != told[2].tag  # type: ignore[union-attr]


def test_a_total_that_comes_again_is_chained_once() -> None:
    once, twice = Played(), Played()
    for played, totals in ((once, 1), (twice, 2)):
        played.announce(1)
        reply = played.ask(1, 2, played.request(2, 1, totals=(total(played),) * totals))
        other = played.ask(2, 2, played.request(2, 1))
        assert isinstance(reply, Contribution) and isinstance(other, Contribution)
        assert reply.tag == other.tag


def test_an_answered_request_gets_the_same_reply_and_no_second_answer() -> None:
    played = Played()
    played.announce(1)
    channel = played.relay._channels[1]
    request = channel.down.seal(2, "collect", played.request(2, 1))
    first = played.run.clients[1].handle(request)
    played.run.values[1] = played.run.values[1] / 2
    assert played.run.clients[1].handle(request) == first
    # The same sum under the same number, but another message: no second stream of this number.
    assert played.code(1, 2, played.request(2, 1)) == "message"


def test_a_lost_client_is_never_back() -> None:
    played = Played()
    played.announce(1)
    assert played.code(1, 2, played.request(2, 1, lost=bytes([0, 0, 0, 0, 1]))) == ""
    assert played.code(1, 3, played.request(3, 1, totals=())) == "message"
    assert played.code(1, 3, played.request(3, 1, totals=(), lost=bytes([0, 0, 0, 0, 1]))) == ""


def test_a_client_that_is_named_lost_listens_and_gives_nothing() -> None:
    played = Played()
    played.announce(1)
    reply = played.ask(1, 2, played.request(2, 1, lost=bytes([0, 1, 0, 0, 0])))
    assert isinstance(reply, Contribution) and reply.body == b""


def test_a_sum_is_asked_again_at_most_as_often_as_agreed() -> None:
    # Whoever reads two totals of one sum, over clients that differ by one, reads that one's answer.
    played = Played(n=9, repeats=2)
    played.announce(1)
    totals = played.relay._totals[-1:]
    for number in (2, 3, 4):
        lost = bytes(i < number - 2 for i in range(9))
        assert played.code(8, number, played.request(number, 1, lost=lost, totals=tuple(totals))) == ""
        totals = []
    lost = bytes(i < 3 for i in range(9))
    assert played.code(8, 5, played.request(5, 1, lost=lost, totals=())) == "policy:repeats"
    # Nor are the repeats back with another sum.
    played.announce(2)
    assert played.code(8, 5, played.request(5, 2, lost=lost, totals=())) == "policy:repeats"


def test_clients_named_lost_between_two_sums_count_as_repeats() -> None:
    # Two sums of nearly the same question, with and without a client, tell of it like a repeat.
    played = Played(n=9, sums=1, repeats=1)
    lost, known = [bytes(9), bytes([1] + [0] * 8), bytes([1, 1] + [0] * 7)], played.relay._totals[-1]
    for step, story in enumerate(lost[:2]):
        number = step + 2
        played.announce(number - 1)
        replies = played.collect(number, number - 1, lost=story, totals=(known,))
        contributed = {i: one for i, one in replies.items() if one.body}
        assert len(contributed) == 9 - step
        known = played.sealed(number, number - 1, contributed, story)
    played.announce(3)
    request = played.request(4, 3, lost=lost[2], totals=(known,))
    assert played.code(8, 4, request) == "policy:repeats"
    assert played.code(8, 4, msgspec.structs.replace(request, lost=lost[1])) == ""


def in_flight(run: Sums) -> list[Fault]:
    """Leave a sum whose total the clients never hear."""
    return []


def others_take_part(run: Sums) -> list[Fault]:
    """Let the clients hear all totals; one of them misses the next set-up."""
    run.federation.close()
    return [Fault(0, "advertise")]


def wrong_total(run: Sums) -> list[Fault]:
    """Send a wrong total, so that the clients erase their keys."""
    assert isinstance(run.session, GroupSession)
    totals = run.session.relay._totals
    totals[-1] = msgspec.structs.replace(totals[-1], body=b"?")
    with pytest.raises(IntegrityError):
        run.federation.close()
    return []


@pytest.mark.parametrize("between", [in_flight, others_take_part, wrong_total])
def test_a_new_set_up_gives_no_new_repeats(between: Callable[[Sums], list[Fault]]) -> None:
    # Else a server would ask each sum again, of other clients, once a set-up.
    run = Sums(GroupMasked(losses=9, repeats=1), 9)
    run.ask(QUESTION)
    faults = between(run)
    run.federation._opened = False
    run.ask(QUESTION, 0, (0,), *faults)
    between(run)
    run.federation._opened = False
    with refused_with("policy:repeats"):
        run.ask(QUESTION)


def test_a_new_set_up_after_all_totals_were_heard_costs_no_repeat() -> None:
    run = Sums(GroupMasked(losses=9, repeats=0), 9)
    for _ in range(3):
        run.assert_exact(run.ask(QUESTION), QUESTION)
        run.federation.close()
        run.federation._opened = False


def test_totals_with_and_without_a_client_show_it_to_the_server_with_a_colluder() -> None:
    # Why repeats are few: here the colluder opens both totals.
    played = Played(n=6)
    played.announce(1)
    lost = bytes([0, 0, 0, 0, 0, 1])
    circles = [played.attempt(1, 2, 1), played.attempt(1, 3, 1, lost)]
    first = played.sealed(2, 1, played.collect(2, 1), bytes(6))
    second = played.sealed(3, 1, played.collect(3, 1, totals=(), lost=lost), lost)
    group, scheme = played.group(1), played.relay._scheme
    both = [scheme.open(group, c, s.body).integers for c, s in zip(circles, (first, second), strict=True)]
    difference = np.frombuffer(both[0], dtype="<u8") - np.frombuffer(both[1], dtype="<u8")
    np.testing.assert_array_equal(difference, encoded(played, 5))


def test_different_stories_about_who_is_lost_open_nothing() -> None:
    played = Played(n=7)
    played.announce(1)
    stories = [bytes(7), bytes([0] * 6 + [1])]
    replies = {i: played.ask(i, 2, played.request(2, 1, lost=stories[i % 2])) for i in range(6)}
    contributions = {i: one for i, one in replies.items() if isinstance(one, Contribution) and one.body}
    assert set(contributions) == set(range(6))
    for chosen in (contributions, {i: one for i, one in contributions.items() if i % 2 == 0}):
        for lost in stories:
            sealed = played.sealed(2, 1, chosen, lost)
            with pytest.raises(IntegrityError, match="not the sum"):
                played.relay._scheme.open(played.group(1), played.attempt(1, 2, 1, lost), sealed.body)


def test_an_upload_of_another_sum_in_a_total_opens_nothing() -> None:
    played = Played(n=5)
    played.announce(1)
    old = played.collect(2, 1)
    played.announce(2)
    new = played.collect(3, 2, totals=())
    for mixed in ({**new, 2: old[2]}, {**new, 2: new[3]}, {i: new[i] for i in range(4)}, old):
        sealed = played.sealed(3, 2, mixed, bytes(5))
        with pytest.raises(IntegrityError, match="not the sum"):
            played.relay._scheme.open(played.group(1), played.attempt(1, 3, 2), sealed.body)


def test_messages_of_another_set_up_are_refused() -> None:
    one, other = Played(), Played()
    one.announce(1)
    foreign = other.relay._channels[1].down.seal(2, "collect", one.request(2, 1))
    refusal = decode(one.run.clients[1].handle(foreign), Envelope | Refusal, sender="", stage="")
    channel = one.relay._channels[1]
    assert channel.up.open(refusal, Refusal, "") == Refusal("message")
    assert one.code(1, 2, one.request(2, 1, totals=tuple(other.relay._totals))) == "total"


def test_what_is_no_request_is_refused_before_and_after_the_set_up() -> None:
    played = Played(sums=0)
    for data in (b"", b"?", encode(Envelope(1, "collect", b"?" * 40))):
        reply = decode(played.run.clients[1].handle(data), Refusal, sender="", stage="")
        assert reply.code == "message"


def test_tags_show_nothing_to_who_has_not_the_secret() -> None:
    # A hash in their place would be a dictionary: the server could try totals until one fits.
    head, secret = bytes(32), bytes(range(32))
    assert tag_of(secret, 1, head) == tag_of(secret, 1, head)
    assert len({tag_of(secret, 1, head), tag_of(bytes(32), 1, head), tag_of(secret, 2, head)}) == 3


# --- policies and numbers ---


def test_a_client_answers_no_more_sums_than_agreed() -> None:
    run = Sums(GroupMasked(losses=9, repeats=1), 5, max_sums=3)
    for _ in range(4):
        run.ask(QUESTION)
    with refused_with("policy:max_sums"):
        run.ask(QUESTION)


def test_a_new_set_up_does_not_start_the_count_of_sums_anew() -> None:
    run = Sums(GroupMasked(losses=9, repeats=0), 5, max_sums=3)
    for _ in range(3):
        run.ask(QUESTION)
    run.federation.close()
    run.federation._opened = False
    with refused_with("policy:max_sums"):
        run.ask(QUESTION)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (ClientPolicy(min_honest=4), "policy:min_honest"),
        (ClientPolicy(min_clients=6), "policy:min_clients"),
        (ClientPolicy(min_colluders=2), "policy:min_colluders"),
        (ClientPolicy(max_sums=10), "policy:max_sums"),
        (ClientPolicy(questions=frozenset({"Others"})), "policy:question"),
    ],
)
def test_a_client_keeps_to_its_policy(policy: ClientPolicy, code: str) -> None:
    with pytest.raises(RefusedError, match=code):
        Sums(GroupMasked(losses=9), 5, policy=policy).ask(QUESTION)


def test_the_run_goes_on_without_one_client_whose_policy_refuses() -> None:
    policies = {2: ClientPolicy(questions=frozenset({"Others"}))}
    run = Sums(GroupMasked(losses=9), 6, policies=policies)
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert total.contributors == (0, 1, 3, 4, 5)


# --- losses ---


def test_repeats_are_used_up_and_the_error_says_so() -> None:
    run = Sums(GroupMasked(losses=9, repeats=2), 12)
    for client in (3, 5):
        total = run.ask(QUESTION, 0, (0,), Fault(client, "collect"))
        assert client not in total.contributors
    with pytest.raises(RepeatsSpentError, match=r"clinic-7.*all 2 repeats") as error:
        run.ask(QUESTION, 0, (0,), Fault(7, "collect"))
    assert error.value.missing == ("clinic-7",) and error.value.repeats == 2


def test_with_too_few_left_nothing_is_opened() -> None:
    run = Sums(GroupMasked(losses=9), 5)
    with pytest.raises(NotEnoughClientsError) as error:
        run.ask(QUESTION, 0, (0,), Fault(1, "collect"), Fault(2, "collect"))
    assert (error.value.left, error.value.needed, error.value.missing) == (3, 4, ("clinic-1", "clinic-2"))


# --- state on disk ---


class Process(Client):
    """A client of which every message meets a new process: all that it knows, it read from disk."""

    def __init__(self, run: Sums, client: int, folder: Path) -> None:
        self._run, self._number, self._path = run, client, folder / f"client-{client}"

    def handle(self, request: bytes) -> bytes:
        store = FileStore(self._path, CODEC.to_bytes, CODEC.from_bytes)
        return Client(self._run.sides[self._number], store, self._run.answerer(self._number)).handle(request)


def test_a_run_over_files_opens_the_same_sums(tmp_path: Path) -> None:
    run = Sums(GroupMasked(losses=9), 6, ((0, 1, 2, 3), (2, 3, 4, 5)))
    for i in range(6):
        run.clients[i] = Process(run, i, tmp_path)
    for label, question in enumerate([QUESTION, wide_vectors(), vectors(30), QUESTION]):
        total = run.ask(question, label % 3, (0,))
        run.assert_exact(total, question, label % 3)
    run.federation.close()
    for i in range(6):
        state = CODEC.from_bytes((tmp_path / f"client-{i}").read_bytes())
        assert state.group is not None and state.group.opened == 3
        assert (tmp_path / f"client-{i}").stat().st_mode & 0o077 == 0


def test_no_secret_is_shown() -> None:
    played = Played()
    state: State = played.run.state(1)
    assert repr(state) == "State(...)" and repr(state.group) == "Group(...)"
