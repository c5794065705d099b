"""Bindings that cannot be confused, and boxes that open for what they were sealed for alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import privfed.protocols.masked as masking
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import (
    CryptographyError,
    bound,
    bound_prefix,
    digest,
    equal,
    mac,
    new_secret,
    seal,
    unseal,
    with_numbers,
)
from privfed.protocols.masked.bindings import (
    block_prefix,
    block_secrets,
    box_binding,
    commitment,
    lock_binding,
    lock_key,
    pair_of,
    pair_streams,
    ratcheted,
    receipt_from,
    recovery_pad,
    self_stream,
    sending,
)
from privfed.protocols.setup.rules import cohort_digest, sum_header
from privfed.protocols.setup.setup_messages import Listed, session_of
from tests.protocols.federations import Sums

h = bytes.fromhex


TAGS = st.text("abcdefgh ", min_size=1, max_size=16)
PARTS = st.one_of(st.integers(0, 2**64 - 1), st.binary(max_size=20))


@given(TAGS, st.lists(PARTS, max_size=5), TAGS, st.data())
def test_bound_is_injective_over_parts_of_the_same_kinds(
    tag: str, parts: list[int | bytes], other_tag: str, data: st.DataObject
) -> None:
    kinds = [st.integers(0, 2**64 - 1) if isinstance(part, int) else st.binary(max_size=20) for part in parts]
    # Most parts stay the same, so that differences are small and lengths move about.
    other = [data.draw(st.one_of(st.just(part), kind)) for part, kind in zip(parts, kinds, strict=True)]
    assert (bound(tag, *parts) == bound(other_tag, *other)) == ((tag, parts) == (other_tag, other))


@given(st.lists(st.binary(max_size=12), max_size=4), st.lists(st.binary(max_size=12), max_size=4))
def test_bytes_cannot_move_from_one_part_to_the_next(one: list[bytes], other: list[bytes]) -> None:
    assert (bound("t", *one) == bound("t", *other)) == (one == other)
    assert (digest("t", *one) == digest("t", *other)) == (one == other)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=5), st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_numbers_cannot_be_confused(one: list[int], other: list[int]) -> None:
    assert (bound("t", *one) == bound("t", *other)) == (one == other)


@given(TAGS, st.lists(PARTS, max_size=3), st.lists(st.integers(0, 2**64 - 1), max_size=3))
def test_a_prefix_with_numbers_is_the_same_as_binding_all_at_once(
    tag: str, parts: list[int | bytes], numbers: list[int]
) -> None:
    assert with_numbers(bound_prefix(tag, *parts), *numbers) == bound(tag, *parts, *numbers)


def test_every_tag_fits_its_field() -> None:
    # A longer tag would run into its first part.
    sources = "".join(path.read_text() for path in Path(masking.__path__[0]).parent.rglob("*.py"))
    tags = re.findall(r'(?:bound|bound_prefix|digest)\(\s*"([^"]+)"', sources)
    assert len(set(tags)) >= 15
    assert max(len(tag) for tag in tags) <= 16


SECRETS = [bytes([i]) * 32 for i in range(1, 9)]
HEADER, SESSION = SECRETS[2], SECRETS[3]


def one_stream(seed: bytes, prefix: bytes, me: int, other: int, size: int) -> bytes:
    """Return the stream of two clients."""
    return pair_streams(seed, prefix, me, (other,), size)[0]


@pytest.mark.parametrize(
    ("binding", "arguments"),
    [
        pytest.param(self_stream, [SECRETS[0], SESSION, 3, 1, HEADER, 4], id="self-mask"),
        pytest.param(one_stream, [SECRETS[0], HEADER, 1, 2, 4], id="pair-mask"),
        pytest.param(block_prefix, [SESSION, 3, 8, 5, HEADER], id="block"),
        pytest.param(block_secrets, [SECRETS[0], SESSION, 1, 2, 8], id="pair-of-a-block"),
        pytest.param(lambda *of: recovery_pad(*of).tobytes(), [SECRETS[0], SESSION, 3, 1, 4], id="recovery"),
        pytest.param(commitment, ["self", SECRETS[0], SESSION, 3, 1], id="commitment"),
        pytest.param(lock_binding, [HEADER, 1, b"\0\1"], id="lock"),
        pytest.param(lock_key, [SECRETS[0], SESSION, 3, 1, HEADER], id="lock-key"),
        pytest.param(box_binding, [SESSION, 3, 8, 1, 2, 5, 6, HEADER], id="box"),
        pytest.param(sum_header, [SESSION, 3, 4, b"question", HEADER, b"\1\1"], id="header"),
        pytest.param(cohort_digest, [1, (0, 2, 3)], id="cohort"),
    ],
)
def test_what_is_bound_depends_on_every_argument(
    binding: Callable[..., bytes], arguments: list[object]
) -> None:
    others: dict[type, object] = {int: 9, tuple: (7, 8), str: "recovery"}
    results = {binding(*arguments)}
    for place, one in enumerate(arguments):
        other = others.get(type(one), b"another")
        if one in SECRETS:
            other = SECRETS[7]
        results.add(binding(*arguments[:place], other, *arguments[place + 1 :]))
    assert len(results) == len(arguments) + 1
    assert binding(*arguments) in results


def test_keys_and_receipts_of_two_clients_have_a_direction() -> None:
    # Whoever sends, the place is the same from both sides, and another one for the way back.
    for one, other in ((1, 2), (2, 1)):
        assert sending(one, other) != sending(other, one)
        assert receipt_from(one, other) != receipt_from(other, one)
    derived = block_secrets(SECRETS[0], block_prefix(SESSION, 1, 8, 5, HEADER), 1, 2, 8)
    pieces = [derived[i : i + 32] for i in range(0, len(derived), 32)]
    assert len(set(pieces)) == len(pieces) == 2 + 8


def test_a_chain_goes_forward_only_and_all_of_its_keys_differ() -> None:
    pair = pair_of(SECRETS[0], SESSION)
    chains = [ratcheted(pair, block) for block in range(1, 40)]
    assert len({one.chain for one in chains} | {pair.invitation}) == 40
    for block, one in enumerate(chains, start=1):
        assert one.block == block and ratcheted(one, block) == one
        assert ratcheted(one, 40) == ratcheted(pair, 40)
        # What lies behind it stays behind it.
        assert all(ratcheted(one, earlier).chain == one.chain for earlier in range(1, block))
    assert pair_of(SECRETS[1], SESSION) != pair != pair_of(SECRETS[0], SECRETS[1])


def test_sessions_differ_by_agreement_fit_and_list() -> None:
    run, other = Sums(Masked(), 3), Sums(Masked(), 3)
    agreements = [one.session._agreement for one in (run, other)]  # type: ignore[attr-defined]
    lists = [
        tuple(Listed(i, key, hashed, key, bytes(64)) for i, (key, hashed) in enumerate(keys))
        for keys in (
            [(one, one) for one in SECRETS[:3]],
            [(one, one) for one in SECRETS[1:4]],
            [(one, one) for one in SECRETS[:2]],
            [(one, SECRETS[5]) for one in SECRETS[:3]],
        )
    ]
    fits = (SECRETS[6], SECRETS[7])
    sessions = {session_of(*given) for given in itertools.product(agreements, fits, lists)}
    assert len(sessions) == 16


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_beyond_eight_bytes_is_never_cut(number: int) -> None:
    with pytest.raises(OverflowError):
        bound("t", number)


def test_receipts_differ_by_key_and_by_what_they_say() -> None:
    keys, said = (bytes(32), b"\1" * 32), (b"", b"a", b"ab")
    receipts = {mac(key, info) for key, info in itertools.product(keys, said)}
    assert len(receipts) == 6 and {len(one) for one in receipts} == {16}
    assert equal(mac(keys[0], b"a"), mac(keys[0], b"a"))


# --- boxes ---


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100), st.binary(max_size=40))
def test_unsealing_gives_what_was_sealed(key: bytes, plain: bytes, associated: bytes) -> None:
    sealed = seal(key, plain, associated)
    assert unseal(key, sealed, associated) == plain
    assert len(sealed) == len(plain) + 28
    assert seal(key, plain, associated) != sealed


def test_every_altered_bit_of_a_box_is_noticed() -> None:
    key, plain, associated = new_secret(), b"shares", b"who and for whom"
    sealed = seal(key, plain, associated)
    for bit in range(8 * len(sealed)):
        altered = bytearray(sealed)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CryptographyError):
            unseal(key, bytes(altered), associated)
    for end in range(len(sealed)):
        with pytest.raises(CryptographyError):
            unseal(key, sealed[:end], associated)
    for data in (b"", b"who and for whoM", b"who and for whom\0"):
        with pytest.raises(CryptographyError):
            unseal(key, sealed, data)
    with pytest.raises(CryptographyError):
        unseal(new_secret(), sealed, associated)
    with pytest.raises(CryptographyError):
        unseal(key, sealed + b"\0", associated)
