"""Every message has a ceiling in bytes and work, which holds before anything is computed from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from privfed.core.stored.encoding import MAX_MESSAGE_BYTES, Message, Refusal, decode, encode
from privfed.errors import MessageError
from privfed.protocols import CKKS, GroupMasked, Masked
from privfed.protocols.client_opened import scheme
from privfed.protocols.masked import bindings, blocks, masked_messages
from privfed.protocols.masked.masked_messages import (
    Prepared,
    PrepareRequest,
    Unmasking,
)
from privfed.protocols.setup import advertising, hybrid, setup_messages
from privfed.protocols.setup.ceilings import MOST_SLOTS, MOST_STEPS, Ceiling
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    AdvertiseRequest,
    Capsule,
    Channel,
    Envelope,
    Offered,
    RosterRequest,
    Slot,
)
from tests.protocols.federations import Sums, vectors
from tests.protocols.tapes import N, Passed, Taped, is_sealed, opened, sealed, taped

MESSAGES = [
    one
    for module in (setup_messages, masked_messages, scheme)
    for one in vars(module).values()
    if isinstance(one, type) and issubclass(one, Message) and one.__module__ == module.__name__
]
INSIDE = {
    "Listed",
    "Slot",
    "Statement",
    "Offered",
    "Capsule",
    "Invitation",
    "OpenedSum",
    "EarlierSum",
    "Sealed",
    "SumEntry",
}
"""What only stands inside other messages, or in a coordinator's own record."""


def largest(kind: inspect.Type, name: str, most: dict[str, tuple[int, int]]) -> int:
    """Return how many bytes a type takes at most where its fields are as long as their bounds."""
    if isinstance(kind, inspect.StructType):
        return 64 + sum(largest(one.type, one.name, most) for one in kind.fields)
    if isinstance(kind, inspect.UnionType):
        return max(largest(one, name, most) for one in kind.types)
    if isinstance(kind, inspect.VarTupleType):
        return 5 + most[name][0] * largest(kind.item_type, name, most)
    if isinstance(kind, inspect.BytesType | inspect.MemoryViewType):
        return 5 + (most[name][0] if kind.max_length is None else kind.max_length)
    return 9 if isinstance(kind, inspect.IntType | inspect.BoolType) else 64


@pytest.mark.parametrize("n", [3, 5, 100, 10_000])
@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_the_size_of_a_kind_is_what_its_longest_fields_take(kind: type[Message], n: int) -> None:
    """A field without a bound of its own and without an entry would be a KeyError here."""
    ceiling = Ceiling(n, 100, 8)
    needed = largest(inspect.type_info(kind), "", ceiling.most)
    if kind.__name__ not in INSIDE | {"Relayed", "KeptEntry", "KeptOut"}:
        assert min(needed, MAX_MESSAGE_BYTES) <= ceiling.bytes_of(kind)


def test_what_is_agreed_bounds_the_blocks_that_are_passed_over() -> None:
    assert [Ceiling(9, most, 8).skipped for most in (1, 8, 300)] == [18, 32, 616]
    assert Ceiling(9, 1 << 20, 8).skipped == MOST_STEPS // 8


COUNTED = {
    "steps": (bindings, "sha256"),
    "agreed": (hybrid, "agree"),
    "encapsulated": (hybrid, "encapsulate"),
    "decapsulated": (hybrid, "decapsulate"),
    "verified": (advertising, "holds"),
    "sealed": (blocks, "seal"),
    "unsealed": (blocks, "unseal"),
}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the steps of chains, key agreements, signatures and boxes from here on."""
    found = Counter[str]()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **words: Any) -> Any:
            found[name] += 1
            return function(*args, **words)

        return call

    for name, (module, attribute) in COUNTED.items():
        monkeypatch.setattr(module, attribute, counted(name, getattr(module, attribute)))
    return found


def within(work: Counter[str], ceiling: Ceiling, n: int, steps: int) -> bool:
    """Say whether the work is what the table of `privfed.protocols.setup.ceilings` allows one request."""
    d = n - 1
    most = {
        "steps": d * steps,
        "agreed": n,
        "encapsulated": n,
        "decapsulated": n,
        "verified": n + 1,
        "sealed": MOST_SLOTS * d,
        "unsealed": d,
    }
    return all(work[name] <= one for name, one in most.items())


def filled(value: Any, length: int) -> Any:
    """Return bytes or entries like a field's, of a length."""
    if isinstance(value, bytes | memoryview):
        return type(value)(bytes(value[:length]).ljust(length, b"\1"))
    return (value * (length // max(1, len(value)) + 1))[:length]


def entries(name: str, length: int, message: Any) -> Any:
    """Return the longest value of a field that a lying coordinator can give work to."""
    if name == "upcoming":
        return tuple(Slot(1 << 20, 0) for _ in range(length))
    if name == "keys":
        return tuple(Offered(j % N, bytes(1184)) for j in range(length))
    if name == "capsules":
        return tuple(Capsule(j % N, bytes(1088), bytes(16)) for j in range(length))
    if name in ("totals", "earlier"):
        total = masked_messages.OpenedSum(1, 0, 0, bytes(N), bytes(N), bytes(8), bytes(24))
        return (total if name == "totals" else masked_messages.EarlierSum(bytes(32), total),) * length
    if name == "history":
        return (masked_messages.SumEntry(bytes(32), 1, 0, 0, b"\xf8", b"\xf8"),) * length
    return filled(getattr(message, name), length)


def longest_of(ceiling: Ceiling, name: str) -> int:
    """Return the longest that a field is drawn; what may fill a message, at a mebibyte."""
    return min(ceiling.most[name][0], 1 << 20)


TAPE = taped()[0]
VERIFIED = taped(verified=True)[0]


def cases() -> Iterator[tuple[str, Taped, Passed, str]]:
    seen = set[tuple[str, str, bool]]()
    for run in (TAPE, VERIFIED):
        ceiling = Ceiling.of(run.configuration)
        for one in run.tape:
            if one.state is None or one.state.keys is None or not is_sealed(one):
                continue
            try:
                message = opened_in(run, one)[1]
            except MessageError:
                continue
            inner = getattr(message, "collect", message)
            for part in {id(message): message, id(inner): inner}.values():
                for name in ceiling.most.keys() & part.__struct_fields__:
                    key = type(part).__name__, name, run is VERIFIED
                    if key not in seen:
                        seen.add(key)
                        yield f"{'verified ' * (run is VERIFIED)}{key[0]}.{name}", run, one, name


def opened_in(run: Taped, one: Passed) -> tuple[Envelope, Any]:
    if run is TAPE:
        return opened(one.state, one.client, one.request)  # type: ignore[arg-type]
    envelope = decode(one.request, Envelope, sender="", stage="")
    assert one.state is not None and one.state.keys is not None
    channel = Channel(one.state.keys.channel, one.state.keys.session, one.client)
    kinds = (
        masked_messages.PrepareRequest
        | masked_messages.UnmaskRequest
        | masked_messages.VerifiedRequest
        | masked_messages.LeadRequest
    )
    return envelope, channel.down.open(envelope, kinds)


CASES = sorted(cases(), key=lambda one: one[0])


def changed(message: Any, name: str, length: int) -> Any:
    inner = getattr(message, "collect", message)
    if name in inner.__struct_fields__ and inner is not message:
        return msgspec.structs.replace(message, collect=changed(inner, name, length))
    return msgspec.structs.replace(message, **{name: entries(name, length, message)})


@pytest.mark.parametrize(
    ("run", "one", "name"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_the_longest_value_of_every_field_costs_no_more_than_its_ceiling(
    run: Taped, one: Passed, name: str, work: Counter[str]
) -> None:
    ceiling, side = Ceiling.of(run.configuration), run.sides[one.client]
    envelope, message = opened_in(run, one)
    length = longest_of(ceiling, name)
    assert one.state is not None
    request = sealed(one.state, one.client, envelope.number, envelope.stage, changed(message, name, length))
    _, reply = side.step(one.state, request, run.answerer(one.client))
    assert within(work, ceiling, N, ceiling.skipped + MOST_SLOTS)
    assert len(reply) <= ceiling.bytes_of(Prepared | Unmasking)
    if length < ceiling.most[name][0]:
        return
    work.clear()
    beyond = sealed(
        one.state, one.client, envelope.number, envelope.stage, changed(message, name, length + 1)
    )
    after, reply = side.step(one.state, beyond, run.answerer(one.client))
    assert not work and after == one.state
    assert code_in(one, reply) == "message"


def code_in(one: Passed, reply: bytes) -> str:
    message = decode(reply, Refusal | Envelope, sender="", stage="")
    if isinstance(message, Refusal):
        return message.code
    assert one.state is not None and one.state.keys is not None
    channel = Channel(one.state.keys.channel, one.state.keys.session, one.client)
    found: Refusal = channel.up.open(message, Refusal, "")
    return found.code


def test_all_fields_of_requests_were_drawn() -> None:
    names = {case[0] for case in CASES}
    assert {"PrepareRequest.upcoming", "CollectRequest.boxes", "UnmaskRequest.receipts"} <= names
    assert {"verified VerifiedRequest.totals", "verified VerifiedRequest.earlier"} <= names
    assert {"verified CollectRequest.upcoming", "verified CollectRequest.question"} <= names


def test_a_longer_message_is_refused_before_it_is_decrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    one = next(one for one in TAPE.tape if one.state and one.state.keys and is_sealed(one, "unmask"))
    ceiling = Ceiling.of(TAPE.configuration)
    most = ceiling.bytes_of(masked_messages.UnmaskRequest)
    last = one.after.keys.last  # type: ignore[union-attr]
    request = encode(Envelope(last, "unmask", memoryview(bytes(most + 1))))
    with monkeypatch.context() as patch:
        patch.setattr(setup_messages, "unseal", lambda *args: pytest.fail("was decrypted"))
        state, reply = TAPE.sides[one.client].step(one.state, request, TAPE.answerer(one.client))
    assert state == one.state and code_in(one, reply) == "message"


def test_chains_go_on_by_what_is_agreed_in_a_whole_fit(work: Counter[str]) -> None:
    """However a coordinator spreads the blocks that it passes over, and however often it asks."""
    run = Sums(Masked(losses=9), 6, max_sums=20)
    run.ask()
    ceiling, state = Ceiling.of(run.configuration), run.state(0)
    assert ceiling.skipped == 56
    work.clear()
    prepared = 0
    for turn in range(200):
        first = state.keys.prepared + 1 + turn % 7
        slots = tuple(Slot(first + 2 * place, 0) for place in range(MOST_SLOTS))
        request = Channel(state.keys.channel, state.keys.session, 0).down.seal(
            1, "prepare", PrepareRequest(slots)
        )
        after, _ = run.sides[0].step(state, request, run.answerer(0))
        prepared += MOST_SLOTS * (after != state)
        state = after
    passed = state.keys.prepared - prepared
    assert prepared and state.keys.skipped <= ceiling.skipped
    assert passed <= ceiling.skipped + 1
    assert work["steps"] <= 5 * (ceiling.skipped + prepared + MOST_SLOTS * 200)
    # A fit of blocks in a row goes on.
    request = Channel(state.keys.channel, state.keys.session, 0).down.seal(
        1, "prepare", PrepareRequest((Slot(state.keys.prepared + 1, 0),))
    )
    after, _ = run.sides[0].step(state, request, run.answerer(0))
    assert after.keys.prepared == state.keys.prepared + 1


@pytest.mark.parametrize("protocol", [Masked(), GroupMasked(), CKKS()], ids=lambda one: one.name)
def test_lists_and_set_ups_beyond_what_was_agreed_cost_nothing(protocol: Any, work: Counter[str]) -> None:
    seen: dict[str, bytes] = {}
    run = Sums(protocol, 5)

    def keep(exchange: Any, client: int, request: bytes) -> bytes:
        if client == 1:
            seen.setdefault(exchange.stage, request)
        return request

    run.engine.change_request = keep
    run.ask(vectors())
    asked, roster = list(seen.values())[:2]
    side = run.sides[1]
    state, _ = side.step(side.initial(), asked, run.answerer(1))
    work.clear()
    message = decode(roster, RosterRequest, sender="", stage="")
    clients, key = message.clients, Offered(2, bytes(1184))
    beyond = [
        msgspec.structs.replace(message, clients=(*clients, clients[-1])),
        msgspec.structs.replace(message, keys=(key,) * 6),
        msgspec.structs.replace(message, signature=bytes(65)),
    ]
    for one in beyond:
        after, reply = side.step(state, encode(one), run.answerer(1))
        assert after == state and decode(reply, Refusal, sender="", stage="").code == "message"
    first = decode(asked, AdvertiseRequest, sender="", stage="")
    after, reply = side.step(
        state, encode(msgspec.structs.replace(first, signature=bytes(65))), run.answerer(1)
    )
    assert after == state and decode(reply, Refusal, sender="", stage="").code == "message"
    assert not work


def test_the_state_does_not_grow_with_set_ups() -> None:
    """Only the number of the last fit that was begun is kept, and no lower one is begun again."""
    run = Sums(Masked(), 4)
    run.ask()
    agreement, identity = run.session._agreement, run.session._identity  # type: ignore[attr-defined]
    side, state, sizes = run.sides[0], run.state(0), set[int]()
    requests = [
        encode(advertising.advertise_request(agreement, identity, bytes([i]) * 32)) for i in range(50)
    ]
    for request in requests:
        state, reply = side.step(state, request, run.answerer(0))
        assert isinstance(decode(reply, Advertisement, sender="", stage=""), Advertisement)
        sizes.add(len(side.codec.to_bytes(state)))
    assert len(sizes) == 1
    for request in requests[:-1]:
        after, reply = side.step(state, request, run.answerer(0))
        assert after == state and decode(reply, Refusal, sender="", stage="").code == "setup:again"
    again, _ = side.step(state, requests[-1], run.answerer(0))
    assert again.begun == state.begun
