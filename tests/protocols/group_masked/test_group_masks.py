"""Masks and check words of a group: what the server, alone or with a client, sees of them and can do.

Each attack is carried out twice: against ours, and against a copy with its guard taken out.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privfed.core.stored.encoding import decode, encode
from privfed.engines.in_process import Fault
from privfed.errors import IntegrityError
from privfed.protocols.client_opened.scheme import Group, SumAttempt
from privfed.protocols.crypto.fixed_point import Layout, Words
from privfed.protocols.crypto.keys import bound, expand, new_secret
from privfed.protocols.crypto.keystream import _combination, check_of, keystream
from privfed.protocols.group_masked import group_masked as masks
from privfed.protocols.group_masked.group_masked import MaskedWords, MaskScheme
from tests.protocols.federations import Vectors, seeded, vectors, wide_vectors
from tests.protocols.groups import QUESTION, Played, encoded, with_words, words_of

KEY = bytes(range(32))


# --- check words ---


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), min_size=1, max_size=20))
def test_a_combination_is_exact_for_words_of_every_size(pairs: list[tuple[int, int]]) -> None:
    coefficients = np.array([r for r, _ in pairs], dtype=np.uint64)
    words = np.array([w for _, w in pairs], dtype=np.uint64)
    signed = [w - (w >> 63 << 64) for _, w in pairs]
    assert _combination(coefficients, words, signed=False) == sum(r * w for r, w in pairs)
    expected = sum(r * w for (r, _), w in zip(pairs, signed, strict=True))
    assert _combination(coefficients, words, signed=True) == expected


def test_a_combination_of_more_than_one_block_is_exact() -> None:
    words = np.full((1 << 14) + 3, 2**64 - 1, dtype=np.uint64)
    assert _combination(words, words, signed=False) == len(words) * (2**64 - 1) ** 2


@given(st.lists(st.integers(-(2**120), 2**120), min_size=2, max_size=5), st.data())
def test_checks_of_answers_add_up_to_the_check_of_their_sum(values: list[int], data: st.DataObject) -> None:
    layout = Layout(2, 1)
    narrow = st.integers(-(2**60), 2**60)
    total, checks = np.zeros(4, dtype=np.uint64), 0
    for wide in values:
        entries = [data.draw(narrow), data.draw(narrow), wide, wide >> 64]
        words = np.array([one % 2**64 for one in entries], dtype=np.uint64)
        layout.add(total, words)
        checks += check_of(words, layout, KEY)
    assert checks % 2**192 == check_of(total, layout, KEY)


def weak_check(words: Words, key: bytes) -> tuple[int, int]:
    """Return two check words modulo 2^64: what a first design had."""
    with np.errstate(over="ignore"):
        rows = keystream(key, 2 * len(words)).reshape(2, -1) * words
    return int(rows[0].sum()), int(rows[1].sum())


def test_a_high_bit_that_the_server_adds_is_always_seen() -> None:
    # An entry of 62 bits, moved by 2^62: two check words modulo 2^64 miss one in sixteen.
    words, layout = np.zeros(6, dtype=np.uint64), Layout(6, 0)
    moved = words.copy()
    moved[3] = 2**62
    keys = [new_secret() for _ in range(2000)]
    missed = sum(weak_check(words, key) == weak_check(moved, key) for key in keys)
    assert 60 < missed < 200
    assert not any(check_of(words, layout, key) == check_of(moved, layout, key) for key in keys)


CHANGES = [*range(5), "check", "length", "wide", "nothing"]


def changed(body: bytes, change: int | str) -> bytes:
    """Return a sealed total with one change."""
    sealed: MaskedWords = decode(body, MaskedWords, sender="", stage="")
    if isinstance(change, int):
        words = sealed.to_numpy()
        words[change : change + 1] += np.uint64(2**62)
        return with_words(body, words)
    others = {
        "check": MaskedWords(sealed.n_wide, sealed.words, bytes(24)),
        "length": MaskedWords(sealed.n_wide, memoryview(bytes(sealed.words) + bytes(8)), sealed.check),
        "wide": MaskedWords(sealed.n_wide + 1, sealed.words, sealed.check),
    }
    return encode(others[change]) if change in others else b""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("question", [QUESTION, wide_vectors(6)], ids=["narrow", "wide"])
def test_a_total_that_was_changed_anywhere_is_not_opened(question: Vectors, change: int | str) -> None:
    played = Played(n=4)
    played.announce(1, question)
    sealed = played.sealed(2, 1, played.collect(2, 1), bytes(4))
    attempt, scheme = played.attempt(1, 2, 1), MaskScheme()
    scheme.open(played.group(1), attempt, sealed.body)
    with pytest.raises(IntegrityError, match="not the sum"):
        scheme.open(played.group(1), attempt, changed(sealed.body, change))


# --- what an upload and a sum show ---


def p_value(words: Words) -> float:
    """Return the p-value of the bytes of words under uniformity."""
    octets = np.bincount(np.ascontiguousarray(words).view(np.uint8), minlength=256)
    return float(stats.chisquare(octets).pvalue)


MANY = vectors(2000, 0.0, 1.0, 2.0**-20)


def test_uploads_and_sums_are_uniform_to_the_server() -> None:
    with seeded(5):
        played = Played(n=4)
        played.announce(1, MANY)
        played.run.values = dict.fromkeys(range(4), np.zeros(2000))
        replies = played.collect(2, 1)
        total = played.sealed(2, 1, replies, bytes(4))
    for body in [*(one.body for one in replies.values()), total.body]:
        assert p_value(words_of(body)) > 1e-6


def test_a_server_with_one_client_sees_nothing_but_the_total_of_the_others() -> None:
    with seeded(6):
        played = Played(n=5)
        played.announce(1, MANY)
        attempt, group = played.attempt(4, 2, 1), played.group(4)
        replies = played.collect(2, 1)
    # What the colluder knows: the group mask, and its own masks with each other.
    about, size = bound("pair mask", attempt.header), words_of(replies[0].body).size
    known = {j: keystream(expand(group.pairs[j], about), size) for j in range(4)}
    left = {j: words_of(replies[j].body) - known[j] for j in range(4)}
    left[0] = left[0] - keystream(masks._group_key(group, attempt), left[0].size)
    for size in (1, 2, 3):
        for some in itertools.combinations(range(4), size):
            assert p_value(np.sum([left[j] for j in some], axis=0)) > 1e-6, some
    others = np.sum([encoded(played, j, MANY) for j in range(4)], axis=0)
    np.testing.assert_array_equal(np.sum(list(left.values()), axis=0), others)


def group_mask_alone(group: Group, attempt: SumAttempt) -> list[tuple[bytes, int]]:
    """Return the masks of a sum without pairs: one stream that all clients know."""
    return [(masks._group_key(group, attempt), 1)]


@pytest.mark.parametrize("guarded", [True, False])
def test_one_clients_keys_open_no_upload(monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    played = Played(n=5)
    if not guarded:
        monkeypatch.setattr(masks, "_masks", group_mask_alone)
    played.announce(1)
    attempt, group = played.attempt(4, 2, 1), played.group(4)
    replies = played.collect(2, 1)
    stream = keystream(masks._group_key(group, attempt), words_of(replies[0].body).size)
    opened = [bool((words_of(replies[j].body) - stream == encoded(played, j)).all()) for j in range(4)]
    assert opened == [not guarded] * 4


def test_a_stream_that_is_used_twice_shows_the_difference_of_two_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Ours first; then the guard is taken out: streams that are not bound to the header of the sum.
    honest = masks._masks

    def unbound(group: Group, attempt: SumAttempt) -> list[tuple[bytes, int]]:
        return honest(group, replace(attempt, header=bytes(32)))

    for guarded in (True, False):
        played = Played(n=5)
        if not guarded:
            monkeypatch.setattr(masks, "_masks", unbound)
        uploads, answers = [], []
        for index, changed_request in ((1, {}), (2, {"totals": ()})):
            played.announce(index)
            uploads.append(words_of(played.collect(index + 1, index, **changed_request)[3].body))
            answers.append(encoded(played, 3))
        assert bool((uploads[1] - uploads[0] == answers[1] - answers[0]).all()) is not guarded


def test_no_stream_is_used_twice_in_sums_that_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[tuple[int, bytes]] = []
    honest = masks._masks

    def watched(group: Group, attempt: SumAttempt) -> list[tuple[bytes, int]]:
        used.extend((attempt.me, key) for key, _ in honest(group, attempt))
        return honest(group, attempt)

    monkeypatch.setattr(masks, "_masks", watched)
    played = Played(n=8, sums=2)
    lost = [(3, "drop"), (5, "garbage"), (0, "late")]
    for client, kind in lost:
        total = played.run.ask(QUESTION, 0, (0,), Fault(client, "collect", kind))  # type: ignore[arg-type]
        assert client not in total.contributors
    assert len(used) == len(set(used))
    # A pair's stream is used by its two clients, and the group's once a sum.
    assert set(Counter(key for _, key in used).values()) == {1, 2}
