"""What two clients derive for a block and for each of its numbers, by what it is bound to; and R."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.errors import MessageError
from privfed.protocols.crypto.fixed_point import Layout
from privfed.protocols.crypto.keys import KEY_BYTES, Identity, new_secret, seal
from privfed.protocols.crypto.keystream import SHORT, Masker, keystream, mask_bytes
from privfed.protocols.masked import checks
from privfed.protocols.masked.bindings import masking, pair_of, recovery_pad
from privfed.protocols.masked.blocks import BlockMaker
from privfed.protocols.masked.client_state import RECOVERY, SECRET_BYTES, Block, Fit, Pair, Pending, box_bytes
from privfed.protocols.masked.masked_messages import Preparation
from privfed.protocols.setup.graph import Neighbours
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Slot, part
from privfed.protocols.setup.simulated import fresh_agreement
from tests.raised import forbidden_by
from tests.some import some

COUNT = 3
BOUND = {
    "session": b"other",
    "slot": Slot(2, 0),
    "numbers": range(1, COUNT + 2),
    "threshold": 2,
    "cohort": b"other",
}


def maker(me: int, **changed: Any) -> BlockMaker:
    """Return what prepares the first block of one of two clients, with some of its bindings changed."""
    one = {
        "session": b"s",
        "slot": Slot(1, 0),
        "numbers": range(1, COUNT + 1),
        "threshold": 1,
        "cohort": b"cohort",
        "neighbours": Neighbours((1 - me, 7), np.array([1 - me, 2]), (1, 1)),
    } | changed
    return BlockMaker(me=me, **one)


def prepared(pair: Pair, me: int, **changed: Any) -> tuple[BlockMaker, Block, Preparation]:
    """Return a prepared block; the second neighbour, 7, never joined."""
    making = maker(me, **changed)
    moved, block = making.made({1 - me: pair}, Identity.generate())
    assert set(moved) == {1 - me} and moved[1 - me].block == making.slot.block + 1
    assert block.sent is not None
    return making, block, block.sent


def test_a_box_brings_the_shares_of_all_numbers_once() -> None:
    pair = pair_of(new_secret(), b"s")
    (_, mine, sent), (theirs, other, _) = prepared(pair, 0), prepared(pair, 1)
    size = box_bytes(COUNT)
    assert len(sent.boxes) == 2 * size and not any(sent.boxes[size:])
    opened = theirs.opened(other, (0,), sent.boxes[:size])
    for r in range(1, COUNT + 1):
        # With a threshold of one a share is the secret.
        assert part(opened.shares[r], 0, SECRET_BYTES) == mine.own[r]
    assert opened.opened == b"\1\0" and not any(opened.opening)
    # It may come again; then nothing of it counts any more.
    assert theirs.opened(opened, (0,), bytes(size)) is opened
    # Nobody has a key with the client that never joined: not even one of zeros.
    with forbidden_by("box:7"):
        theirs.opened(other, (1,), sent.boxes[size:])


def test_nobody_seals_a_box_for_a_neighbour_without_a_key() -> None:
    """Zeros stand where there is no key with a neighbour, and everybody knows zeros."""
    making, block, _ = prepared(pair_of(new_secret(), b"s"), 0)
    shares = bytes(SECRET_BYTES * COUNT)
    box = seal(bytes(KEY_BYTES), shares, making._binding(7, making.me, making.neighbours.held[1]))
    assert len(box) == box_bytes(COUNT)
    with forbidden_by("box:7"):
        making.opened(block, (1,), box)


@pytest.mark.parametrize("what", [*BOUND, "bytes", "K"])
def test_a_box_opens_only_as_it_was_sealed(what: str) -> None:
    pair = pair_of(new_secret(), b"s")
    other_pair = pair_of(new_secret(), b"s") if what == "K" else pair
    changed = {what: BOUND[what]} if what in BOUND else {}
    _, _, sent = prepared(other_pair, 0, **changed)
    theirs, block, _ = prepared(pair, 1)
    box = bytearray(sent.boxes[: box_bytes(COUNT)])
    box[-1] ^= what == "bytes"
    with forbidden_by("box:0"):
        theirs.opened(block, (0,), bytes(box))


@pytest.mark.parametrize("what", [*BOUND, "K"])
def test_seeds_of_two_clients_differ_in_all_that_they_are_bound_to(what: str) -> None:
    pair = pair_of(new_secret(), b"s")
    _, one, _ = prepared(pair, 0)
    _, same, _ = prepared(pair, 1)
    other_pair = pair_of(new_secret(), b"s") if what == "K" else pair
    _, other, _ = prepared(other_pair, 1, **({what: BOUND[what]} if what in BOUND else {}))
    seeds = [part(block.seeds[r], 0, 32) for block in (one, other) for r in block.seeds]
    assert one.seeds == same.seeds
    # Of a longer block the bytes would be the same ones, were the length not bound.
    assert len(set(seeds)) == len(seeds)


def test_recovery_gives_the_seeds_of_one_number_to_whoever_has_its_e() -> None:
    pair = pair_of(new_secret(), b"s")
    _, block, sent = prepared(pair, 0)
    rows = np.frombuffer(sent.recovery, dtype=np.uint8).reshape(COUNT, 2, 32)
    for place, r in some(enumerate(block.own)):
        for with_e in some(block.own):
            secret = part(block.own[with_e], RECOVERY, 32)
            seeds = (rows[place] ^ recovery_pad(secret, b"s", r, 0, 2)).tobytes()
            assert (seeds == block.seeds[r]) == (r == with_e)


def test_receipts_hold_for_one_header_and_way_only() -> None:
    seed = new_secret()
    where = (b"s", 1)
    one = masking(*where, 0, b"h", new_secret(), (1,), seed, 4)
    other = masking(*where, 1, b"h", new_secret(), (0,), seed, 4)
    assert one.masks[1] == other.masks[1] and one.adds == (True, True) and other.adds == (True, False)

    def good(made: bytes, expected: bytes) -> bool:
        pending = Pending(1, b"h", 0, (0,), b"", b"", expected)
        return checks.check_receipts(pending, (0,), made) == (0,)

    assert good(one.made, other.expected) and good(other.made, one.expected)
    # Reflected, of another header, of another seed, none.
    assert not good(other.made, other.expected)
    assert not good(masking(*where, 0, b"other", new_secret(), (1,), seed, 4).made, other.expected)
    assert not good(masking(*where, 0, b"h", new_secret(), (1,), new_secret(), 4).made, other.expected)
    assert not good(bytes(16), other.expected)
    assert seed.hex() not in repr(one) and repr(one.masks) not in repr(one)


def test_blocks_are_prepared_in_their_order_and_once() -> None:
    block = prepared(pair_of(new_secret(), b"s"), 0)[1]
    keys = Fit(b"s", b"", {}, blocks={5: block}, prepared=5)
    for ahead in (6, 9, 26):
        checks.check_slot(keys, Slot(ahead, 0), 20)
    checks.check_slot(keys, Slot(5, 0), 20)
    for slot in (Slot(4, 0), Slot(0, 0), Slot(27, 0), Slot(5, 1)):
        with pytest.raises(MessageError, match="upcoming"):
            checks.check_slot(keys, slot, 20)
    # What was passed over before counts, and blocks in a row pass over none.
    passed = msgspec.structs.replace(keys, skipped=20)
    checks.check_slot(passed, Slot(6, 0), 20)
    with pytest.raises(MessageError, match="upcoming"):
        checks.check_slot(passed, Slot(7, 0), 20)
    # Once the coordinator has shown that it has a preparation, nobody needs it again.
    later = msgspec.structs.replace(keys, blocks={5: block.after(1)})
    with pytest.raises(MessageError, match="upcoming"):
        checks.check_slot(later, Slot(5, 0), 20)
    assert set(block.after(1).own) == {2, 3}


def test_each_number_is_in_one_block() -> None:
    for rule, size in ((CohortRule(), BLOCK), (CohortRule(kind="sampled", size=3), 1)):
        agreed = Configuration(
            protocol="masked", algorithm="", clients=("a", "b", "c"), n_features=1, cohorts=rule
        )
        rules = fresh_agreement(agreed, range(3))[0]
        assert rules.block_size == size
        for number in range(1, 50):
            assert [b for b in range(1, 60) if number in rules.numbers(b)] == [rules.block_of(number)]
        assert rules.block_of(0) == 0


@pytest.mark.parametrize(
    "layout",
    [
        Layout(7, 0),
        Layout(0, 5),
        Layout(SHORT - 2, 1),
        Layout(SHORT, 1),
        Layout(9, 2, 3),
        Layout(2, 1, 0, 5),
        Layout(2, 1, 0, SHORT),
    ],
)
@pytest.mark.parametrize("signs", [[], [True], [False], [True, False, True, True, False]])
def test_masks_are_added_at_once_as_one_after_the_other(layout: Layout, signs: list[bool]) -> None:
    size = layout.size
    masks = [np.random.default_rng(i).bytes(mask_bytes(size)) for i in range(len(signs))]
    adds = np.array(signs, dtype=np.bool_)
    total = np.full(size, 2**64 - 1, dtype=np.uint64)
    expected = total.copy()
    Masker(layout).apply(total, masks, adds)
    for mask, one in zip(masks, signs, strict=True):
        words = keystream(mask, size) if size > SHORT else np.frombuffer(mask, dtype="<u8")
        layout.add(expected, words, 1 if one else -1)
    assert total.tolist() == expected.tolist()
    Masker(layout).apply(total, masks, ~adds)
    assert (total == 2**64 - 1).all()
