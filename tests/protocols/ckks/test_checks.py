"""Check words: whatever linear thing a server does to answers, only a sum of whole ones passes."""

from __future__ import annotations

import secrets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.errors import IntegrityError
from privfed.protocols.ckks.ckks import CHECK_SLOTS, LIMB_BITS, LIMBS, WORDS, Checks
from privfed.protocols.ckks.grid import Capacity, Slots
from tests.some import some

N, SIZE = 5, 12
WHO = slice(SIZE - N, SIZE)
GROUP, HEADER = b"G" * 32, b"H" * 32
CHECKS = Checks(GROUP, HEADER, SIZE)


def answers(seed: int = 0, checks: Checks = CHECKS) -> list[Slots]:
    """Return each client's answer with its who-slot and check slots."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-(2**34), 2**34, (N, SIZE))
    values[:, WHO] = np.eye(N, dtype=np.int64)
    return [checks.extend(row) for row in values]


def assert_refused(total: Slots, checks: Checks = CHECKS) -> None:
    with pytest.raises(IntegrityError, match="check words"):
        checks.verify(total)


@given(st.sets(st.integers(0, N - 1)), st.integers(0, 2**32))
def test_the_sum_of_any_answers_passes_and_comes_back_without_its_check_slots(
    chosen: set[int], seed: int
) -> None:
    own = answers(seed)
    total = np.sum([own[i] for i in chosen], axis=0, dtype=np.int64) + np.zeros(len(own[0]), dtype=np.int64)
    np.testing.assert_array_equal(CHECKS.verify(total), total[:-CHECK_SLOTS])


@given(
    st.lists(st.integers(-3, 3), min_size=N, max_size=N),
    st.integers(0, SIZE - 1),
    st.integers(-(2**41), 2**41),
)
def test_an_offset_of_any_slot_is_noticed(factors: list[int], slot: int, offset: int) -> None:
    total = sum(factor * own for factor, own in zip(factors, answers(), strict=True))
    if offset:
        total[slot] += offset
        assert_refused(total)


@given(st.integers(0, CHECK_SLOTS - 1), st.integers(1, 2**LIMB_BITS - 1))
def test_an_offset_of_a_check_slot_is_noticed(slot: int, offset: int) -> None:
    total = sum(answers())
    total[SIZE + slot] += offset
    assert_refused(total)


@pytest.mark.parametrize("part", [slice(0, 4), slice(4, SIZE), slice(SIZE, None)])
def test_parts_of_another_sum_are_noticed(part: slice) -> None:
    own = answers()
    total, fewer = sum(own), sum(own[1:])
    total[part] = fewer[part]
    assert_refused(total)


def test_slots_of_other_clients_are_noticed() -> None:
    # A mixture: each slot is a sum of answers, but not all of the same clients.
    own = answers()
    total = sum(own[:3])
    total[2] = own[0][2] + own[1][2] + own[4][2]
    assert_refused(total)


def test_an_answer_to_another_header_or_group_is_noticed() -> None:
    for other in (Checks(GROUP, b"h" * 32, SIZE), Checks(b"g" * 32, HEADER, SIZE)):
        old = answers(checks=other)
        other.verify(sum(old))
        assert_refused(sum(old))
        assert_refused(sum(answers()[1:]) + old[0])


def test_a_check_slot_that_is_stretched_does_not_hide_a_change_of_the_total() -> None:
    # The limbs of a word are separate slots; what a server does to one cannot be made up for by another.
    own = answers()
    for limb in some(range(CHECK_SLOTS)):
        total = sum(own)
        total[0] += 1
        total[SIZE + limb] += own[2][SIZE + limb]
        assert_refused(total)


def test_every_multiple_of_an_answer_passes_so_that_the_who_slots_must_be_checked() -> None:
    own = answers()
    for factor in (0, 2, N, -1):
        slots = CHECKS.verify(factor * own[1])
        assert slots[WHO].tolist() == [0, factor, 0, 0, 0]


def test_each_word_alone_lets_a_multiple_of_a_large_power_of_two_pass_sometimes() -> None:
    # 2^v divides the offset: one word is passed with probability 2^(v - 64). Shown at v = 61: 1/8;
    # and why three words with totals below 2^41 are enough: 3 * (64 - 41) = 69 bits.
    rng = np.random.default_rng(7)
    passed = np.zeros(WORDS)
    trials = 800
    for _ in range(trials):
        checks = Checks(rng.bytes(32), HEADER, SIZE)
        total = sum(answers(checks=checks))
        total[0] += 2**61
        limbs = checks.extend(total[:SIZE])[SIZE:].reshape(WORDS, LIMBS)
        weights = 1 << np.arange(LIMBS, dtype=np.uint64) * np.uint64(LIMB_BITS)
        claimed = (total[SIZE:].reshape(WORDS, LIMBS).astype(np.uint64) * weights).sum(
            axis=1, dtype=np.uint64
        )
        passed += claimed == (limbs.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
    assert WORDS * (64 - Capacity(1).total_bits - 1) == 69
    # Five standard deviations of a binomial of 1/8.
    assert np.all(np.abs(passed / trials - 1 / 8) < 5 * np.sqrt(7 / 64 / trials))


def test_the_factors_are_those_of_a_stream_that_only_the_group_knows() -> None:
    own = answers()
    for _ in range(20):
        guessed = Checks(secrets.token_bytes(32), HEADER, SIZE)
        forged = guessed.extend(sum(own)[:-CHECK_SLOTS] + 1)
        assert_refused(forged)
