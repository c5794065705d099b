"""The ceilings of `test_ceilings`, for every field of every sealed message of every sum, both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from privfed.core.stored.encoding import Message, Refusal, decode, encode
from privfed.engines.in_process import Fault
from privfed.errors import MessageError
from privfed.protocols import CKKS, GroupMasked, Masked
from privfed.protocols.client_opened import scheme
from privfed.protocols.client_opened.group_client import GroupClient
from privfed.protocols.masked import masked_messages
from privfed.protocols.masked.masked_messages import Agreed as Encapsulated
from privfed.protocols.masked.masked_messages import (
    BoxKey,
    CollectRequest,
    LeadRequest,
    LeafRequest,
    Prepared,
    PrepareRequest,
    Proof,
    ProvenRequest,
    ProvenUpload,
    ProveRequest,
    Unmasking,
    UnmaskRequest,
    Upload,
    VerifiedRequest,
)
from privfed.protocols.setup.ceilings import MOST_SLOTS, Ceiling
from privfed.protocols.setup.setup_messages import Capsule, Channel, Envelope, Joining, Offered, Slot
from privfed.protocols.setup.simulated import MAX_BEHIND
from privfed.protocols.slotted import ForGroup, Slotted
from tests.protocols.federations import Sums
from tests.protocols.tapes import QUESTION
from tests.protocols.test_ceilings import filled, longest_of, within, work

__all__ = ["work"]

N, CLIENT = 5, 1
MASKED_DOWN = PrepareRequest | LeafRequest | UnmaskRequest
DOWN: dict[str, Any] = {
    "masked": MASKED_DOWN | CollectRequest,
    "masked-verified": PrepareRequest | LeafRequest | LeadRequest | UnmaskRequest | VerifiedRequest,
    "masked-proven": MASKED_DOWN | ProvenRequest | ProveRequest,
    "group": scheme.OpenRequest | scheme.Invited,
}
MASKED_UP = Encapsulated | Prepared | BoxKey | Unmasking
UP: dict[str, Any] = {
    "masked": MASKED_UP | Upload,
    "masked-verified": MASKED_UP | Upload,
    "masked-proven": MASKED_UP | ProvenUpload | Proof,
    "group": scheme.Joined | scheme.Confirmed | scheme.Contribution,
}
SUMS: dict[str, Callable[[], Any]] = {
    "masked": lambda: Masked(losses=9),
    "masked-verified": lambda: Masked(losses=9, verified=True),
    "masked-proven": lambda: Masked(losses=9, proofs=True),
    "slotted": lambda: Slotted(Masked(losses=9), contributors=3),
    "group-masked": lambda: GroupMasked(losses=9),
    "ckks": lambda: CKKS(losses=9),
}


@dataclass(frozen=True)
class Passed:
    """A sealed request that a client got, what is in it, its state before, and its reply."""

    run: Sums
    state: Any
    kind: str
    wrapped: bool
    envelope: Envelope
    message: Any
    reply: bytes

    @property
    def channel(self) -> Channel:
        return channel_of(self.state, self.wrapped)

    def sealed(self, message: Message) -> bytes:
        data = self.channel.down.seal(self.envelope.number, self.envelope.stage, message)  # type: ignore[arg-type]
        return encode(ForGroup(data)) if self.wrapped else data


def channel_of(state: Any, wrapped: bool) -> Channel:
    inner = (state.group if wrapped else state.inner) if hasattr(state, "inner") else state
    keys = inner.group if isinstance(inner, scheme.State) else inner.keys
    return Channel(keys.channel, keys.session, CLIENT)


def taped(name: str) -> Iterator[Passed]:
    """Yield what passed between the coordinator and one client, of all kinds that the sum has."""
    run, held = Sums(SUMS[name](), N), list[tuple[Any, bytes]]()

    def before(exchange: Any, client: int, request: bytes) -> bytes:
        if client == CLIENT:
            held.append((run.stores[client].load(), request))
        return request

    replies = list[bytes]()
    run.engine.change_request = before
    run.engine.change_replies = lambda exchange, all_of: (
        replies.extend(one for i, one in all_of if i == CLIENT),
        all_of,
    )[1]
    for turn in range(3):
        run.ask(
            QUESTION, 0, (0,), *[Fault(3, "collect", "lost-reply")] * (turn == 1 and name[:6] == "masked")
        )
    for (state, request), reply in zip(held, replies, strict=True):
        wrapped = False
        try:
            request, wrapped = decode(request, ForGroup, sender="", stage="").data, True
            reply = decode(reply, ForGroup, sender="", stage="").data
        except MessageError:
            pass
        try:
            envelope = decode(request, Envelope, sender="", stage="")
        except MessageError:
            continue
        kind = "group" if wrapped or run.protocol.recipient == "clients" else name
        kind = "masked" if kind == "slotted" else kind
        message = channel_of(state, wrapped).down.open(envelope, DOWN[kind])
        yield Passed(run, state, kind, wrapped, envelope, message, reply)


TAPES = {name: list(taped(name)) for name in SUMS}


def cases() -> Iterator[tuple[str, Passed, str]]:
    seen = set[tuple[str, str, str]]()
    for name, tape in TAPES.items():
        for one in tape:
            ceiling = ceiling_of(one)
            for inner in (one.message, getattr(one.message, "collect", None)):
                for field in ceiling.most.keys() & getattr(inner, "__struct_fields__", ()):
                    key = name, type(inner).__name__, field
                    if key not in seen:
                        seen.add(key)
                        yield " ".join(key), one, field


def ceiling_of(one: Passed) -> Ceiling:
    return Ceiling.of(one.run.configuration)


def longest(one: Passed, field: str, length: int) -> Any:
    """Return a value of a field as a lying coordinator gives work by it."""
    if field == "upcoming":
        return tuple(Slot(1 << 20, 0) for _ in range(length))
    if field == "keys":
        return tuple(Offered(j % N, bytes(1184)) for j in range(length))
    if field == "capsules":
        return tuple(Capsule(j % N, bytes(1088), bytes(16)) for j in range(length))
    if field == "invitations":
        return (masked_messages.Invitation(0, bytes(60)),) * length
    if field == "preparations":
        return (masked_messages.Preparation(1, 0, b"", b"", b"", b"", bytes(64)),) * length
    if field == "history":
        return (masked_messages.SumEntry(bytes(32), 1, 0, 0, b"\xf8", b"\xf8"),) * length
    if field == "totals" and one.kind == "group":
        return tuple(scheme.Sealed(j + 1, j, bytes(N), bytes(64)) for j in range(length))
    if field in ("totals", "earlier"):
        total = masked_messages.OpenedSum(1, 0, 0, bytes(N), bytes(N), bytes(8), bytes(24))
        return (total if field == "totals" else masked_messages.EarlierSum(bytes(32), total),) * length
    inner = getattr(one.message, "collect", one.message)
    return filled(getattr(one.message if hasattr(one.message, field) else inner, field), length)


def changed(message: Any, field: str, value: Any) -> Any:
    if field in message.__struct_fields__:
        return msgspec.structs.replace(message, **{field: value})
    return msgspec.structs.replace(message, collect=changed(message.collect, field, value))


def code_in(one: Passed, reply: bytes) -> str:
    if one.wrapped:
        reply = decode(reply, ForGroup, sender="", stage="").data
    message = decode(reply, Refusal | Envelope, sender="", stage="")
    if isinstance(message, Envelope):
        message = one.channel.up.open(message, Refusal | UP[one.kind], "")
    return getattr(message, "code", "")


CASES = sorted(cases(), key=lambda one: one[0])


@pytest.mark.parametrize(("one", "field"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_the_longest_value_of_every_field_down_costs_no_more_than_its_ceiling(
    one: Passed, field: str, work: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = list[int](), GroupClient._open
    monkeypatch.setattr(GroupClient, "_open", lambda *given: (opened.append(1), real(*given))[1])
    ceiling, side, length = ceiling_of(one), one.run.sides[CLIENT], longest_of(ceiling_of(one), field)
    answerer = one.run.answerer(CLIENT)
    _, reply = side.step(
        one.state, one.sealed(changed(one.message, field, longest(one, field, length))), answerer
    )
    assert within(work, ceiling, N, ceiling.skipped + MOST_SLOTS) and len(opened) <= MAX_BEHIND
    # An answer is as long as its question asks.
    answered = max(len(each.reply) for each in TAPES_OF[id(one.run)])
    assert len(reply) <= ceiling.bytes_of(Prepared | Unmasking) + answered
    if length == ceiling.most[field][0]:
        work.clear()
        beyond = one.sealed(changed(one.message, field, longest(one, field, length + 1)))
        after, reply = side.step(one.state, beyond, answerer)
        assert not work and after == one.state and code_in(one, reply) == "message"


TAPES_OF = {id(tape[0].run): tape for tape in TAPES.values()}


@pytest.mark.parametrize("name", SUMS)
def test_a_longer_field_of_any_reply_is_refused_by_the_coordinator(name: str) -> None:
    seen = set[str]()
    for one in TAPES[name]:
        envelope, ceiling = decode(one.reply, Envelope | Joining, sender="", stage=""), ceiling_of(one)
        if isinstance(envelope, Joining):
            continue
        message = one.channel.up.open(envelope, UP[one.kind] | Refusal, "")
        for field in ceiling.most.keys() & set(message.__struct_fields__):
            length = ceiling.most[field][0]
            if length > 1 << 20:
                continue
            seen.add(f"{type(message).__name__}.{field}")
            longer = longest(replace(one, message=message), field, length + 1)
            sealed = one.channel.up.seal(
                envelope.number, envelope.stage, msgspec.structs.replace(message, **{field: longer})
            )
            box = decode(sealed, Envelope, sender="", stage="")
            with pytest.raises(MessageError):
                ceiling.unsealed(one.channel.up, box, UP[one.kind] | Refusal, "")
    assert seen or name == "ckks"


def test_messages_of_every_kind_were_drawn() -> None:
    kinds = {type(one.message).__name__ for tape in TAPES.values() for one in tape}
    assert kinds == {
        "PrepareRequest",
        "CollectRequest",
        "VerifiedRequest",
        "ProvenRequest",
        "ProveRequest",
        "UnmaskRequest",
        "OpenRequest",
        "Invited",
    }


@pytest.mark.parametrize("field", ["sealed_box", "leaves", "signature"])
def test_what_shows_a_client_leaves_costs_no_more_either(field: str, work: Counter[str]) -> None:
    """It changes no state, so that it may come again and again: one signature and one box for its bytes."""
    one = next(one for one in TAPES["masked"] if isinstance(one.message, CollectRequest))
    side, ceiling, block = one.run.sides[CLIENT], ceiling_of(one), max(one.state.keys.blocks)
    request = LeafRequest(block, 0, bytes(ceiling.most["sealed_box"][0]), bytes(32 * (N - 1)), bytes(64))
    length = ceiling.most[field][0]
    for longer in (0, 1):
        shown = replace(one, envelope=Envelope(1, "prepare", one.envelope.box), message=request)
        value = filled(getattr(request, field), length + longer)
        after, reply = side.step(
            one.state, shown.sealed(changed(request, field, value)), one.run.answerer(CLIENT)
        )
        assert after == one.state and work["unsealed"] + work["verified"] <= 2
        assert code_in(shown, reply) == ("error", "message")[longer]
