"""A server that asks clients for keys of boxes: no box between two honest clients is ever opened to it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from privfed.core.stored.encoding import Refusal, decode
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import KEY_BYTES, Identity
from privfed.protocols.masked.bindings import key_hash, leaf
from privfed.protocols.masked.client_state import box_bytes
from privfed.protocols.masked.masked_messages import BoxKey, LeafRequest, Preparation
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Channel, Envelope, Slot, part
from tests.protocols.federations import Sums
from tests.protocols.tapes import QUESTION, resigned
from tests.some import some

N, VICTIM, COLLUDER = 7, 0, 6
SIZE = box_bytes(BLOCK)


class Asking:
    """A federation in which client 0 has prepared block 2 and no box of it has come; all were prepared."""

    def __init__(self) -> None:
        self.run = Sums(Masked(losses=9), N)
        for _ in range(BLOCK):
            self.run.ask(QUESTION)
        self.session: Any = self.run.session
        self.state = self.run.state(VICTIM)
        self.made: dict[int, Preparation] = self.session._announced.coming[2].preparations
        assert set(self.made) == set(range(N)) and set(self.state.keys.blocks) == {2}

    def column(self, sender: int) -> int:
        """Return the place of client 0 among a sender's neighbours."""
        return [j for j in range(N) if j != sender].index(VICTIM)

    def box(self, sender: int, one: Preparation | None = None) -> bytes:
        return part((one or self.made[sender]).boxes, self.column(sender), SIZE)

    def leaves(self, sender: int, one: Preparation | None = None) -> bytes:
        made, others = one or self.made[sender], [j for j in range(N) if j != sender]
        return b"".join(
            leaf(j, place + 1, part(made.boxes, place, SIZE), part(made.key_hashes, place, KEY_BYTES))
            for place, j in enumerate(others)
        )

    def request(self, sender: int, /, **fields: Any) -> LeafRequest:
        one = self.made[sender]
        made = LeafRequest(one.block, sender, self.box(sender), self.leaves(sender), one.signature)
        return msgspec.structs.replace(made, **fields)

    def reply(self, request: LeafRequest, number: int = BLOCK + 1) -> Any:
        """Return what client 0 answers, which changes no state."""
        keys = self.state.keys
        channel = Channel(keys.channel, keys.session, VICTIM)
        side, answerer = self.run.sides[VICTIM], self.run.answerer(VICTIM)
        after, reply = side.step(self.state, channel.down.seal(number, "prepare", request), answerer)
        assert after == self.state
        return channel.up.open(decode(reply, Envelope, sender="", stage=""), BoxKey | Refusal, "")


@pytest.fixture(scope="module")
def asking() -> Asking:
    return Asking()


@pytest.mark.parametrize("sender", range(1, N))
def test_of_an_honest_box_nothing_is_revealed_whatever_the_server_shows(asking: Asking, sender: int) -> None:
    other = 1 + sender % (N - 1)
    spoiled = bytes([asking.box(sender)[0] ^ 1]) + asking.box(sender)[1:]
    honest, server = asking.request(sender), Identity.generate()
    stolen = asking.run.sides[sender]._identity  # type: ignore[attr-defined]
    named = key_hash(part(asking.state.keys.blocks[2].opening, sender - 1, KEY_BYTES))
    # A leaf for a spoiled box with the hash of the very key: only its sender's key of the fit signs it.
    column = asking.column(sender)
    wrong = leaf(VICTIM, column + 1, spoiled, named)
    leaves = honest.leaves[: 32 * column] + wrong + honest.leaves[32 * (column + 1) :]
    maker = asking.run.sides[VICTIM]._maker(asking.state.keys, Slot(2, 0))  # type: ignore[attr-defined]
    signed = [one.sign(maker._signed(sender, leaves)) for one in (server, stolen)]
    shown = {
        "as it is": honest,
        "another box": asking.request(sender, sealed_box=spoiled),
        "the box of another": asking.request(sender, sealed_box=asking.box(other)),
        "as that of another": asking.request(sender, sender=other),
        "no box": asking.request(sender, sealed_box=b""),
        "no leaves": asking.request(sender, leaves=b""),
        "other leaves": asking.request(sender, leaves=leaves, sealed_box=spoiled),
        "signed by the server": asking.request(
            sender, leaves=leaves, sealed_box=spoiled, signature=signed[0]
        ),
        "signed by a stolen identity": asking.request(
            sender, leaves=leaves, sealed_box=spoiled, signature=signed[1]
        ),
        "of the block before": asking.request(sender, block=1),
        "of a later block": asking.request(sender, block=3),
        "of itself": asking.request(sender, sender=VICTIM),
        "of nobody": asking.request(sender, sender=99),
    }
    replies = {what: asking.reply(one) for what, one in shown.items()}
    assert all(isinstance(one, Refusal) for one in replies.values()), replies
    assert replies["as it is"].code == "leaf:opens" and replies["another box"].code == f"leaf:{sender}"


def test_boxes_of_another_block_that_its_sender_signed_reveal_nothing() -> None:
    """A holder that revealed the key of a box that does not open gave the next block's shares away."""
    asking = Asking()
    old = asking.made
    for _ in range(BLOCK):
        asking.run.ask(QUESTION)
    asking.state = asking.run.state(VICTIM)
    asking.made = asking.session._announced.coming[3].preparations
    for sender in some(range(1, N)):
        for block in (2, 3):
            one = old[sender]
            request = LeafRequest(
                block, sender, asking.box(sender, one), asking.leaves(sender, one), one.signature
            )
            assert isinstance(asking.reply(request), Refusal)


def test_a_colluder_learns_the_key_of_its_own_box_and_no_other(asking: Asking) -> None:
    """It has that key anyway: it sealed the box."""
    one, keys = asking.made[COLLUDER], asking.state.keys
    boxes = bytearray(one.boxes)
    boxes[asking.column(COLLUDER) * SIZE] ^= 1
    lied = resigned(asking.run, COLLUDER, msgspec.structs.replace(one, boxes=bytes(boxes)))
    request = LeafRequest(
        2, COLLUDER, asking.box(COLLUDER, lied), asking.leaves(COLLUDER, lied), lied.signature
    )
    reply = asking.reply(request)
    assert isinstance(reply, BoxKey)
    assert reply.key == part(keys.blocks[2].opening, COLLUDER - 1, KEY_BYTES)
    assert key_hash(reply.key) == part(one.key_hashes, asking.column(COLLUDER), KEY_BYTES)


def test_once_a_box_was_opened_its_key_is_gone() -> None:
    asking = Asking()
    asking.run.ask(QUESTION)
    asking.state = asking.run.state(VICTIM)
    assert not any(asking.state.keys.blocks[2].opening)
    for sender in some(range(1, N)):
        assert asking.reply(asking.request(sender), BLOCK + 2).code == f"leaf:{sender}"
