"""The grid of encrypted sums: exact sums of rounded answers, in slots that no total leaves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.asking.statistics import Entry, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError, IntegrityError
from privfed.protocols.ckks.grid import (
    MAX_CLIENTS,
    MAX_LIMBS,
    NOISE,
    NOISE_MARGIN,
    PRIME_BITS,
    Capacity,
    SlotGrid,
    Slots,
    grid_of,
)
from tests.protocols.federations import vectors
from tests.raised import parameter_refused

ENDS = st.one_of(
    st.floats(-1e30, 1e30).map(lambda end: end if abs(end) > 1e-20 else 0.0),
    st.integers(-30, 30).map(float),
    st.builds(lambda e, sign: sign * 2.0**e, st.integers(-40, 110), st.sampled_from([-1.0, 1.0])),
)


def spec(low: list[float], high: list[float], resolution: list[float]) -> StatisticsSpec:
    return StatisticsSpec(Entry("x", (len(low),), low, high, resolution))


@st.composite
def grids(draw: st.DrawFn) -> tuple[StatisticsSpec, int, SlotGrid]:
    """Draw ranges, the size of a cohort, and resolutions of one to four limbs."""
    n = draw(st.integers(1, 200))
    ends = draw(st.lists(st.tuples(ENDS, ENDS).map(sorted), min_size=1, max_size=5))
    resolution = [
        max(2.0**-200, n * max(abs(low), abs(high)) * 2.0 ** -draw(st.integers(1, 110))) for low, high in ends
    ]
    one = spec([low for low, _ in ends], [high for _, high in ends], resolution)
    return one, n, SlotGrid(one, n)


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[StatisticsSpec, SlotGrid, dict[int, FloatArray]]:
    """Draw a grid, and answers of some of a cohort, by place."""
    one, n, grid = draw(grids())
    answers = {}
    for place in draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=6)):
        weight = np.array([draw(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))) for _ in one.low])
        inside = np.clip(one.low * (1 - weight) + one.high * weight, one.low, one.high)
        # Values of a few steps reach the carry between limbs.
        few = np.array([draw(st.integers(-3, 3)) for _ in one.low]) * grid.step
        near_zero = draw(st.booleans()) & (few >= one.low) & (few <= one.high)
        answers[place] = np.where(near_zero, few, inside)
    return one, grid, answers


def added(grid: SlotGrid, answers: dict[int, FloatArray], clipped: int = 0) -> Slots:
    total = np.zeros(grid.size, dtype=np.int64)
    for place, answer in answers.items():
        total += grid.encode(answer, clipped, place)
    return total


@given(cohorts())
def test_decoding_the_sum_of_encodings_gives_the_sum_of_rounded_answers(
    cohort: tuple[StatisticsSpec, SlotGrid, dict[int, FloatArray]],
) -> None:
    _, grid, answers = cohort
    decoded = grid.decode(added(grid, answers, clipped=2))
    expected = [
        float(sum(round(Fraction(float(x)) / Fraction(float(step))) for x in column) * Fraction(float(step)))
        for column, step in zip(zip(*answers.values(), strict=True), grid.step, strict=True)
    ]
    np.testing.assert_array_equal(decoded.vector, expected)
    assert decoded.clipped == 2 * len(answers)
    assert decoded.places == tuple(sorted(answers))


@given(grids(), st.booleans())
def test_a_whole_cohort_at_the_ends_of_the_ranges_stays_inside_the_slots(
    drawn: tuple[StatisticsSpec, int, SlotGrid], low: bool
) -> None:
    one, n, grid = drawn
    ends = one.low if low else one.high
    total = added(grid, dict.fromkeys(range(n), ends), clipped=1 << 62)
    assert np.abs(total).max() <= 1 << grid.capacity.total_bits
    decoded = grid.decode(total)
    assert np.all(np.abs(decoded.vector - n * ends) <= n * grid.step / 2 + 1e-15 * np.abs(n * ends))
    assert decoded.places == tuple(range(n))


@pytest.mark.parametrize("n", range(2, 40))
def test_the_rounding_of_many_answers_stays_inside_a_slot_too(n: int) -> None:
    # The ranges fill a slot up to one step; n answers that are rounded up would leave it.
    one = spec([0.0], [(2.0 ** Capacity(n).total_bits - 1) / n], [4.0])
    total = added(SlotGrid(one, n), dict.fromkeys(range(n), one.high))
    assert total[0] <= 1 << Capacity(n).total_bits


@given(grids())
def test_the_step_is_a_power_of_two_and_at_most_the_resolution(
    drawn: tuple[StatisticsSpec, int, SlotGrid],
) -> None:
    one, _, grid = drawn
    assert (grid.step <= one.resolution).all()
    used = np.maximum(np.abs(one.low), np.abs(one.high)) > 0
    assert (np.frexp(grid.step[used])[0] == 0.5).all()


@given(grids())
def test_no_entry_takes_more_limbs_than_it_needs(drawn: tuple[StatisticsSpec, int, SlotGrid]) -> None:
    one, n, grid = drawn
    largest = n * np.maximum(np.abs(one.low), np.abs(one.high))
    several = grid.limbs > 1
    one_less = grid.capacity.total_bits + (grid.limbs - 2) * grid.capacity.limb_bits
    # With one limb less, a step of the resolution would leave fewer than two bits to spare.
    assert (largest / one.resolution > np.ldexp(1.0, one_less - 2))[several].all()


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 1000, 10_000, MAX_CLIENTS])
def test_steps_are_far_enough_apart_for_the_noise_and_totals_far_enough_from_the_modulus(n: int) -> None:
    capacity = Capacity(n)
    assert 2.0**capacity.scale_bits >= NOISE_MARGIN * NOISE * np.sqrt(n)
    assert 2.0 ** (capacity.scale_bits - 1) < NOISE_MARGIN * NOISE * np.sqrt(n)
    assert capacity.total_bits + capacity.scale_bits < PRIME_BITS - 1
    assert n * 2**capacity.limb_bits <= 2**capacity.total_bits
    # A limb of a check word has 16 bits.
    assert capacity.limb_bits >= 16


def test_counts_come_out_as_exact_integers() -> None:
    one = StatisticsSpec(Entry("count", (3,), 0.0, 1e6, 2.0**-30))
    grid = SlotGrid(one, 100)
    answers = {i: np.array([i, 10.0**6, 999_983.0 - i]) for i in range(100)}
    np.testing.assert_array_equal(grid.decode(added(grid, answers)).vector, sum(answers.values()))


@pytest.mark.parametrize("wrong", [2, -1, 7])
def test_a_who_slot_that_is_neither_0_nor_1_is_an_error(wrong: int) -> None:
    grid = SlotGrid(vectors().spec, 4)
    total = added(grid, {0: np.ones(3), 2: np.ones(3)})
    total[-3] = wrong
    with pytest.raises(IntegrityError, match="each client once at most"):
        grid.decode(total)


def test_a_negative_number_of_clipped_entries_is_an_error() -> None:
    grid = SlotGrid(vectors().spec, 4)
    total = added(grid, {0: np.ones(3)})
    total[-5] = -1
    with pytest.raises(IntegrityError):
        grid.decode(total)


def test_a_range_beyond_all_limbs_is_an_error_that_says_what_helps() -> None:
    assert MAX_LIMBS == 6
    with pytest.raises(ArgumentError, match=r"over 10 clients needs more than 208 bits for entry 1 ") as e:
        SlotGrid(spec([0.0, -1e30], [1.0, 1e30], [0.1, 1e-40]), 10)
    assert "largest total 1e+31, resolution 1e-40" in str(e.value)
    assert "declare a smaller domain or max_rows" in str(e.value)


def test_a_total_beyond_float64_is_an_error() -> None:
    with parameter_refused("max_rows"):
        SlotGrid(spec([-1e308], [1e308], [1e300]), 10)


@pytest.mark.parametrize("n", [0, -3, MAX_CLIENTS + 1])
def test_more_clients_than_the_noise_allows_are_an_error(n: int) -> None:
    with pytest.raises(ArgumentError, match=f"for 1 to {MAX_CLIENTS} clients, got {n}"):
        Capacity(n)


def test_an_entry_without_a_range_takes_one_slot() -> None:
    grid = SlotGrid(spec([0.0], [0.0], [1e-300]), 100)
    assert grid.limbs.tolist() == [1]
    assert grid.decode(added(grid, {3: np.zeros(1)})).vector.tolist() == [0.0]


def test_both_sides_find_the_same_grid_from_the_bytes_of_a_question() -> None:
    question = vectors(4, resolution=2.0**-50)
    grid, again = grid_of(question.to_bytes(), 7), SlotGrid(question.spec, 7)
    assert (grid.size, grid.limbs.tolist()) == (again.size, again.limbs.tolist())
    np.testing.assert_array_equal(grid.step, again.step)
