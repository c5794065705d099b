"""The fixed-point grid: sums come out as if each answer had been rounded to the grid, and never wrap."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.core.asking.statistics import Entry, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.protocols.crypto.fixed_point import _BLOCK as BLOCK
from privfed.protocols.crypto.fixed_point import MAX_CLIPPED, Grid, Words, grid_of
from privfed.questions.slots import Slots
from tests.default_run import examples
from tests.protocols.federations import vectors, wide_vectors

ENDS = st.one_of(
    st.floats(-1e30, 1e30),
    st.integers(-30, 30).map(float),
    st.builds(lambda e, sign: sign * 2.0**e, st.integers(-40, 110), st.sampled_from([-1.0, 1.0])),
)


def spec(low: list[float], high: list[float], resolution: list[float]) -> StatisticsSpec:
    return StatisticsSpec(Entry("x", (len(low),), low, high, resolution))


@st.composite
def grids(draw: st.DrawFn, words: str = "either") -> tuple[StatisticsSpec, int, Grid]:
    """Draw ranges, the size of a cohort, and resolutions that one or two limbs can keep."""
    n = draw(st.integers(1, 200))
    ends = draw(st.lists(st.tuples(ENDS, ENDS).map(sorted), min_size=1, max_size=5))
    bits = {"narrow": (1, 50), "wide": (64, 110), "either": (1, 110)}[words]
    resolution = [
        max(2.0**-200, n * max(abs(low), abs(high)) * 2.0 ** -draw(st.integers(*bits))) for low, high in ends
    ]
    one = spec([low for low, _ in ends], [high for _, high in ends], resolution)
    return one, n, Grid(one, n)


@st.composite
def cohorts(draw: st.DrawFn, words: str = "either") -> tuple[Grid, StatisticsSpec, list[FloatArray]]:
    """Draw a grid, and answers of a cohort within its size."""
    one, n, grid = draw(grids(words))
    members = draw(st.integers(1, min(n, 6)))
    answers = []
    for _ in range(members):
        weight = np.array([draw(st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))) for _ in one.low])
        inside = np.clip(one.low * (1 - weight) + one.high * weight, one.low, one.high)
        # Values of a few steps reach the carry between the two limbs.
        few = np.array([draw(st.integers(-3, 3)) for _ in one.low]) * grid.step
        near_zero = draw(st.booleans()) & (few >= one.low) & (few <= one.high)
        answers.append(np.where(near_zero, few, inside))
    return grid, one, answers


def added(grid: Grid, answers: list[FloatArray], clipped: int = 0) -> Words:
    total = np.zeros(grid.size, dtype=np.uint64)
    for answer in answers:
        grid.add(total, grid.encode(answer, clipped))
    return total


def exact(grid: Grid, answers: list[FloatArray]) -> list[float]:
    """Return the sum of the rounded answers by fractions, rounded to float64 once, at the end."""
    return [
        float(sum(round(Fraction(float(x)) / Fraction(float(step))) for x in column) * Fraction(float(step)))
        for column, step in zip(zip(*answers, strict=True), grid.step, strict=True)
    ]


@given(cohorts())
def test_decoding_the_sum_of_encodings_gives_the_sum_of_rounded_answers(
    cohort: tuple[Grid, StatisticsSpec, list[FloatArray]],
) -> None:
    grid, _, answers = cohort
    values, clipped, contributors = grid.decode(added(grid, answers))
    np.testing.assert_array_equal(values, exact(grid, answers))
    assert (clipped, contributors) == (0, len(answers))


@given(cohorts("wide"))
def test_the_law_holds_on_two_limbs(cohort: tuple[Grid, StatisticsSpec, list[FloatArray]]) -> None:
    grid, one, answers = cohort
    largest = np.maximum(np.abs(one.low), np.abs(one.high))
    # `grids` asks for no resolution finer than 2^-200: entries near zero need no second limb for it.
    assert (largest[grid.is_wide] > 0).all()
    assert grid.is_wide[largest > 1e-20].all()
    np.testing.assert_array_equal(grid.decode(added(grid, answers))[0], exact(grid, answers))


@given(grids(), st.booleans())
def test_a_whole_cohort_at_the_ends_of_the_ranges_does_not_wrap(
    drawn: tuple[StatisticsSpec, int, Grid], low: bool
) -> None:
    one, n, grid = drawn
    ends = one.low if low else one.high
    values, _, contributors = grid.decode(added(grid, [ends] * n))
    # Each answer is at most half a step from its rounding; the result is rounded to float64 once.
    np.testing.assert_allclose(values, n * ends, rtol=1e-15, atol=float(n * grid.step.max()))
    assert np.all(np.abs(values - n * ends) <= n * grid.step / 2 + 1e-15 * np.abs(n * ends))
    assert contributors == n


@given(grids())
def test_the_step_is_a_power_of_two_and_at_most_the_resolution(
    drawn: tuple[StatisticsSpec, int, Grid],
) -> None:
    one, _, grid = drawn
    assert (grid.step <= one.resolution).all()
    used = np.maximum(np.abs(one.low), np.abs(one.high)) > 0
    assert (np.frexp(grid.step[used])[0] == 0.5).all()


@given(grids("narrow"))
def test_one_limb_is_used_where_it_is_fine_enough(drawn: tuple[StatisticsSpec, int, Grid]) -> None:
    one, _, grid = drawn
    assert grid.n_wide == 0
    assert grid.size == one.size + 2


@given(cohorts(), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_subtracting_takes_back_what_was_added(
    cohort: tuple[Grid, StatisticsSpec, list[FloatArray]], clipped: int, random: object
) -> None:
    grid, _, answers = cohort
    rng = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    start = rng.integers(0, 2**64, grid.size, dtype=np.uint64)
    words = [grid.encode(answer, clipped) for answer in answers]
    words += [rng.integers(0, 2**64, grid.size, dtype=np.uint64) for _ in range(3)]
    total = start.copy()
    for one in words:
        grid.add(total, one)
    for one in reversed(words):
        grid.add(total, one, -1)
    np.testing.assert_array_equal(total, start)


@given(st.lists(st.lists(st.integers(0, 2**128 - 1), min_size=3, max_size=3), min_size=1, max_size=5))
@settings(max_examples=examples(50))
def test_wide_entries_add_and_subtract_modulo_2_to_the_128(numbers: list[list[int]]) -> None:
    grid = Grid(spec([-(2.0**100)] * 3, [2.0**100] * 3, [1.0] * 3), 3)
    assert grid.n_wide == 3

    def words(values: list[int]) -> Words:
        low, high = [v % 2**64 for v in values], [v >> 64 for v in values]
        return np.array([0, 0, *low, *high], dtype=np.uint64)

    total, expected = words([0, 0, 0]), [0, 0, 0]
    for place, values in enumerate(numbers):
        grid.add(total, words(values), -1 if place % 2 else 1)
        sign = -1 if place % 2 else 1
        expected = [(e + sign * v) % 2**128 for e, v in zip(expected, values, strict=True)]
    np.testing.assert_array_equal(total, words(expected))


@pytest.mark.parametrize("steps", [-1, -5, -(2**40) - 1, -(2**63), -(2**64), -(2**70), 1, 5, 2**64, 2**70])
def test_small_and_negative_values_of_a_wide_entry_are_exact(steps: int) -> None:
    grid = Grid(spec([-(2.0**90)], [2.0**90], [2.0**-30]), 3)
    assert grid.n_wide == 1
    value = np.array([float(steps) * grid.step[0]])
    assert grid.decode(added(grid, [value]))[0].tolist() == value.tolist()
    assert grid.decode(added(grid, [value, -value]))[0].tolist() == [0.0]


def test_entries_of_both_kinds_keep_their_places() -> None:
    question = wide_vectors(6)
    grid = Grid(question.spec, 5)
    assert grid.is_wide.tolist() == [False, True] * 3
    answer = np.array([1.0, -(2.0**79), 2.0, 2.0**78, -3.0, 5.0])
    values, clipped, contributors = grid.decode(added(grid, [answer, answer], clipped=3))
    np.testing.assert_array_equal(values, 2 * answer)
    assert (clipped, contributors) == (6, 2)


def test_clipped_counts_add_and_are_capped_so_that_they_cannot_wrap() -> None:
    grid = Grid(vectors().spec, 200)
    zeros = np.zeros(3)
    total = np.zeros(grid.size, dtype=np.uint64)
    for count in (0, 3, 10**15):
        grid.add(total, grid.encode(zeros, count))
    assert grid.decode(total)[1] == 3 + MAX_CLIPPED


def test_an_entry_without_a_range_takes_no_bits() -> None:
    grid = Grid(spec([0.0], [0.0], [1e-300]), 100)
    assert grid.n_wide == 0
    assert grid.decode(added(grid, [np.zeros(1)] * 2))[0].tolist() == [0.0]


@pytest.mark.parametrize("n", [1, 3, 200])
@pytest.mark.parametrize("high", [1e-320, 5e-324, 1e-300])
def test_the_smallest_ranges_keep_a_step(high: float, n: int) -> None:
    grid = Grid(spec([-high], [high], [1.0]), n)
    assert grid.step[0] > 0
    values, _, _ = grid.decode(added(grid, [np.array([high])] * n))
    assert abs(values[0] - n * high) <= n * grid.step[0]


@pytest.mark.parametrize("slotted", [False, True])
@pytest.mark.parametrize("doublings", [0, 10, 20])
def test_answers_that_are_all_rounded_up_at_the_end_of_their_range_do_not_wrap(
    doublings: int, slotted: bool
) -> None:
    """A sum just below a power of two is rounded to it, and takes a bit more than the sum did."""
    high = float(np.nextafter(2.0**-doublings, 0.0))
    grid = Grid(spec([-high], [high], [2.0**-29 * high]), 1 << doublings, slotted=slotted)
    assert grid.n_paired == slotted
    for end in (high, -high):
        words = grid.encode(np.array([end]), 0)
        for _ in range(0 if slotted else doublings):
            grid.add(words, words.copy())
        found = float(grid.decode(words)[0][0])
        assert found == pytest.approx(end if slotted else end * 2.0**doublings)


@pytest.mark.parametrize("sign", [1, -1])
def test_noise_of_the_server_does_not_wrap_a_sum_either(sign: int) -> None:
    n, high, reach = 3, 1.0, 1e6
    grid = Grid(spec([-high], [high], [1e-9]), n, reach)
    words = added(grid, [np.array([sign * high])] * n)
    words[:1] += np.array([round(sign * reach / grid.step[0])]).view(np.uint64)
    assert not grid.is_wide.any()
    assert grid.decode(words)[0][0] == pytest.approx(sign * (n * high + reach), rel=1e-12)


# --- slots: of the answers to an entry at most one is not zero ---


@st.composite
def in_slots(draw: st.DrawFn) -> tuple[StatisticsSpec, Grid, list[FloatArray]]:
    """Draw a grid of slots, and answers each entry of which one client gives."""
    n, size = draw(st.integers(1, 200)), draw(st.integers(1, 9))
    high = [draw(st.sampled_from([0.0, 1e-6, 1.0, 10.0, 2.0**20])) for _ in range(size)]
    relative = [2.0 ** -draw(st.sampled_from([20, 29, 30, 50, 80])) for _ in range(size)]
    resolution = [max(2.0 * top, 1e-9) * share for top, share in zip(high, relative, strict=True)]
    one = spec([-top for top in high], high, resolution)
    answers = [np.zeros(size) for _ in range(min(n, 4))]
    for place, top in enumerate(high):
        answers[draw(st.integers(0, len(answers) - 1))][place] = top * draw(st.sampled_from([-1, 1, 0.3]))
    return one, Grid(one, n, slotted=True), answers


@given(in_slots())
def test_what_one_client_answers_in_an_entry_comes_out_rounded_to_a_step_within_the_resolution(
    drawn: tuple[StatisticsSpec, Grid, list[FloatArray]],
) -> None:
    one, grid, answers = drawn
    values, _, contributors = grid.decode(added(grid, answers))
    np.testing.assert_array_equal(values, exact(grid, answers))
    assert contributors == len(answers) and (grid.step <= one.resolution).all()


@pytest.mark.parametrize("size", [1, 2, 5, 2**15 + 3])
@pytest.mark.parametrize("high", [1.0, 10.0, np.nextafter(16.0, 0.0)])
def test_an_entry_of_a_slot_takes_32_bits_where_its_resolution_allows(size: int, high: float) -> None:
    ends = [high] * size
    one = spec([-top for top in ends], ends, [2.0 * top * 2.0**-30 for top in ends])
    grid = Grid(one, 20, slotted=True)
    assert grid.size == (size + 1) // 2 + 2 and Grid(one, 20).size == size + 2
    # The widest numbers of either sign, beside each other in one word.
    answer = np.where(np.arange(size) % 3 == 0, -high, high)
    words = grid.encode(answer, 7)
    np.testing.assert_array_equal(grid.decode(words)[0], np.rint(answer / grid.step) * grid.step)
    # Another number in the same word carries nothing into it.
    grid.add(words, grid.encode(-answer, 0))
    assert grid.decode(words)[0].tolist() == [0.0] * size and grid.decode(words)[1:] == (7, 2)


def test_an_answer_is_encoded_in_the_same_steps_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without rows answers zeros, and whole blocks of them took less time."""
    size, rint, steps = 3 * BLOCK + 5, np.rint, list[int]()

    def counted(values: FloatArray) -> FloatArray:
        steps.append(len(values))
        return np.asarray(rint(values))

    monkeypatch.setattr(np, "rint", counted)
    grid = Grid(StatisticsSpec(Entry("x", (size,), -1.0, 1.0, 2.0**-30)), 3)
    for answer in (np.zeros(size), np.linspace(-1.0, 1.0, size), np.eye(1, size)[0]):
        steps.clear()
        grid.encode(answer, 0)
        assert steps == [BLOCK, BLOCK, BLOCK, 5]


def test_who_offers_no_slots_leaves_room_for_the_sum() -> None:
    inner = vectors(4)
    data = Slots(ranges=inner.ranges, inner=inner, slots=3).to_bytes()
    assert grid_of(data, 3).n_paired == 0 == grid_of(inner.to_bytes(), 3, True).n_paired


def test_a_range_that_two_limbs_cannot_resolve_is_an_error_that_says_what_helps() -> None:
    with pytest.raises(
        ArgumentError, match=r"sum over 10 clients needs more than 126 bits for entry 1 "
    ) as e:
        Grid(spec([0.0, -1e30], [1.0, 1e30], [0.1, 1e-10]), 10)
    assert "largest 1e+31, resolution 1e-10" in str(e.value)
    assert "declare a smaller domain or max_rows" in str(e.value)


def test_a_sum_beyond_float64_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="more than 126 bits"):
        Grid(spec([-1e308], [1e308], [1e300]), 10)


def test_both_sides_find_the_same_grid_from_the_bytes_of_a_question() -> None:
    question = wide_vectors()
    grid, again = grid_of(question.to_bytes(), 7), Grid(question.spec, 7)
    assert (grid.size, grid.n_narrow, grid.n_wide) == (again.size, again.n_narrow, again.n_wide)
    np.testing.assert_array_equal(grid.step, again.step)
