"""What a question says that it costs holds, whatever its options; beyond the ceiling nothing is allocated."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, replace
from types import FrameType

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.algorithms.minibatch import MiniBatchMovements
from privfed.algorithms.private.clients import LocalMovements
from privfed.algorithms.starts import KMeansCentroids
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.declaration import CostError, Effort
from privfed.core.asking.question import ClientData, Question, QuestionMessage, cost_of, question_from_bytes
from privfed.core.asking.statistics import Entry, StatisticsSpec
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, BoundsError, MessageError, PolicyError
from privfed.questions.bounded.bounded_sums import GridSums
from privfed.questions.cells import CellSums
from privfed.questions.histograms import FeatureHistograms
from privfed.questions.lloyd import LloydSums
from privfed.questions.local_points import PointSums
from privfed.questions.nested_cells import NestedCells
from privfed.questions.slots import Slots
from tests.core.question_examples import EXAMPLES
from tests.default_run import examples
from tests.raised import forbidden_by
from tests.seeded import seeded
from tests.some import some

FACTOR = 16
"""So many times its cost an answer takes at most, and each row besides so many copies of itself."""

FIXED = 1 << 18
"""Bytes that any answer takes: objects of Python, and what modules keep."""

NUMBERS = [1, 2, 3, 16, 40, 1000, 1 << 17, 1 << 20, 1 << 40, (1 << 62) - 1]
N_ROWS = 60
HARMLESS = ("seed", "rows", "round", "rows_per_client")


@contextmanager
def counted_work() -> Iterator[list[int]]:
    """Count the numbers in arrays that privfed's functions are given: each is read once at least."""
    found = [0]

    def seen(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and "privfed" in frame.f_code.co_filename:
            given = frame.f_code.co_varnames[: frame.f_code.co_argcount]
            arrays = (frame.f_locals.get(name) for name in given)
            found[0] += 1 + sum(one.size for one in arrays if isinstance(one, np.ndarray))

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        yield found
    finally:
        sys.setprofile(before)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Measure the most bytes that are held beside those before."""
    found = [0]
    tracemalloc.start()
    try:
        yield found
        found[0] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def changed(question: Question, rng: np.random.Generator) -> bytes:
    """Return a question whose whole numbers are others, or some of them."""
    message = msgspec.msgpack.decode(question.to_bytes(), type=QuestionMessage)
    options = {
        name: NUMBERS[rng.integers(len(NUMBERS))]
        if type(value) is int and not name.endswith(HARMLESS) and rng.random() < 0.7
        else value
        for name, value in message.options.items()
    }
    return msgspec.msgpack.encode(msgspec.structs.replace(message, options=options))


def keeps_to_its_cost(data: bytes, rows: np.ndarray) -> bool:
    """Check memory and work of an answer; say whether the question could be asked."""
    with peak_memory() as decoding:
        try:
            question = question_from_bytes(data)
        except (MessageError, PolicyError) as error:
            assert isinstance(error, MessageError) or str(error) == "agreement:size"
            question = None
    if question is None:
        assert decoding[0] < 64 * len(data) + FIXED
        return False
    cost, n, d = cost_of(question), len(rows), rows.shape[1]
    assert decoding[0] <= 8 * FACTOR * cost.numbers + FIXED
    if max(cost.numbers, cost.work + n * cost.row_work) > 1 << 24:
        # It would take long; that cost grows with options as work does is seen at smaller ones.
        return True
    labels, most = np.arange(n) % 3, 8 * FACTOR * (cost.numbers + n * (cost.row_numbers + d)) + FIXED
    # Threads that other tests left behind take memory too: what an answer itself takes, it takes each time.
    for _ in range(3):
        with peak_memory() as memory, counted_work() as work, suppress(ValueError):
            # A model of another length than its training's is an error, after as much work.
            question.answer(ClientData(rows, labels), seeded(0))
        if memory[0] <= most:
            break
    assert memory[0] <= most
    assert work[0] <= FACTOR * (cost.work + n * cost.row_work)
    return True


def _by_dp_sgd(ranges: Ranges, centers: np.ndarray) -> Question:
    """Return a round in which clients train by DP-SGD."""
    example = EXAMPLES["AveragedUpdates"](ranges, centers)
    training = replace(  # type: ignore[type-var]
        example.training,
        noise_multiplier=1.0,
        sample_rate=0.5,
        rows_per_client=9,
        trainings=1,
        batch_size=None,
    )
    return replace(example, training=training, models=example.models[:1])


ASKED = {**EXAMPLES, "AveragedUpdates-dp-sgd": _by_dp_sgd}


@pytest.mark.parametrize("name", ASKED)
@settings(max_examples=examples(8))
@given(seed=st.integers(0, 2**32 - 1))
@pytest.mark.few(20)
def test_memory_and_work_follow_the_declared_cost(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, k = int(rng.choice([1, 2, 5])), int(rng.choice([1, 3, 30]))
    example = ASKED[name](Ranges(-np.ones(d), np.ones(d), N_ROWS), rng.uniform(-1.0, 1.0, (k, d)))
    rows = rng.uniform(-1.0, 1.0, (N_ROWS, d))
    example.answer(ClientData(rows, np.arange(N_ROWS) % 3), seeded(0))  # Kernels are compiled once.
    keeps_to_its_cost(changed(example, rng), rows)


def _wide(n_features: int) -> Ranges:
    return Ranges(np.zeros(n_features), np.ones(n_features), 9)


BEYOND: dict[str, Callable[[], Question]] = {
    "local steps": lambda: WeightedCentroids(
        ranges=_wide(99), centers=np.zeros((999, 99)), local_iter=100_000
    ),
    "epochs": lambda: MiniBatchMovements(ranges=_wide(99), centers=np.zeros((999, 99)), epochs=10**5),
    "centers": lambda: LloydSums(ranges=_wide(1), centers=np.zeros(((1 << 16) + 1, 1))),
    "own clusters": lambda: PointSums(
        ranges=_wide(1), points=KMeansCentroids(n_clusters=1 << 40, seed=0), centers=np.zeros((1, 1))
    ),
    "slots": lambda: Slots(
        ranges=_wide(9), inner=LloydSums(ranges=_wide(9), centers=np.zeros((9999, 9))), slots=1 << 16
    ),
    "directions": lambda: NestedCells(ranges=_wide(1 << 14), sides=0, planes=16),
    "features": lambda: FeatureHistograms(ranges=_wide(1 << 20), n_bins=1),
    "cells": lambda: NestedCells(ranges=_wide(3), sides=1 << 10, planes=0),
    "classes": lambda: replace(
        _by_dp_sgd(_wide(2), np.zeros((1, 2))),  # type: ignore[type-var]
        training=replace(_by_dp_sgd(_wide(2), np.zeros((1, 2))).training, n_classes=1 << 40),  # type: ignore[attr-defined]
    ),
}


@pytest.mark.parametrize("what", BEYOND)
def test_what_costs_too_much_is_refused_before_anything_is_made(what: str) -> None:
    data = BEYOND[what]().to_bytes()
    with peak_memory() as memory, forbidden_by("agreement:size"):
        question_from_bytes(data)
    assert memory[0] < 8 * len(data) + FIXED


def test_a_question_pays_for_those_in_it_and_for_its_options() -> None:
    steps = [WeightedCentroids(ranges=_wide(3), centers=np.zeros((7, 3)), local_iter=n) for n in (1, 100)]
    few, many = map(cost_of, steps)
    assert many.row_work == 100 * few.row_work and many.row_numbers == few.row_numbers
    moved = cost_of(LocalMovements(ranges=_wide(3), radius=1.0, steps=steps[1]))
    assert moved.row_work > many.row_work and moved.numbers > many.numbers


def test_a_layout_takes_no_memory_before_it_is_read() -> None:
    with peak_memory() as memory:
        spec = StatisticsSpec(Entry("sum", (1 << 20, 9), -np.ones(9), 1.0, 1.0))
        assert spec.size == 9 << 20
    assert memory[0] < FIXED
    assert spec.low.shape == (9 << 20,) and (spec.low == -1.0).all()


def test_parts_of_cells_do_not_overflow_and_huge_grids_are_not_raised_to_powers() -> None:
    # 64^16 is a multiple of 2^64: as whole numbers these cells were one cell.
    cuts = np.r_[1.0, np.full(2**16 - 1, 64.0)]
    with pytest.raises(BoundsError) as found:
        GridSums(ranges=_wide(16), radius=1.0, per_axis=2, cuts=cuts)
    assert found.value.parameter == "n_cells"
    with pytest.raises(ArgumentError, match="a grid or lie between"):
        CellSums(
            ranges=_wide(1 << 20), center=np.zeros(1 << 20), normals=np.zeros((0, 1 << 20)), per_axis=1 << 62
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Unchecked(LloydSums):
    """A question of one's own that checks no option."""

    turns: float

    def effort(self, n_features: int) -> Effort:
        return Effort(turns=self.turns)  # type: ignore[arg-type]


@pytest.mark.parametrize("turns", [np.nan, -1.0, np.inf, -np.inf])
def test_options_that_nobody_checks_make_nothing_cheaper(turns: float) -> None:
    own = Unchecked(ranges=_wide(1), centers=np.zeros((2, 1)), turns=turns)
    for question in (own, Slots(ranges=_wide(1), inner=own, slots=1 << 10)):
        with pytest.raises(CostError):
            cost_of(question)


@pytest.mark.parametrize("name", ASKED)
def test_whole_numbers_of_many_digits_are_no_cheap_way_to_much_memory(name: str) -> None:
    """A fraction that is written as a whole number was raised to a round's power: 2^(2^31) took hours."""
    example = ASKED[name](Ranges(-np.ones(2), np.ones(2), N_ROWS), np.eye(2))
    message = msgspec.msgpack.decode(example.to_bytes(), type=QuestionMessage)
    fractions = [option for option, value in message.options.items() if type(value) is float]
    free = {option: 1 << 24 for option, value in message.options.items() if option.endswith("round")}
    written = [
        msgspec.structs.replace(message, options=message.options | free | {one: 2}) for one in fractions
    ]
    encoded = [msgspec.msgpack.encode(one) for one in written]
    with peak_memory() as memory:
        for data in encoded:
            with suppress(MessageError, PolicyError):
                question_from_bytes(data)
    assert memory[0] < 16 * len(example.to_bytes()) + 2 * FIXED


FREE = ("seed", "rows", "rows_per_client", "rounds", "round", "structure", "min_cluster_size", "before")
FREE += ("batch_size", "trainings")
"""Whole numbers that multiply nothing: a larger batch takes fewer steps, and a client pays for trainings."""


@pytest.mark.parametrize("name", sorted({*ASKED} - {"PointCount"}))  # Its `most` clips a count.
def test_every_whole_number_that_is_not_free_raises_the_cost(name: str) -> None:
    example = ASKED[name](Ranges(-np.ones(2), np.ones(2), N_ROWS), np.eye(2))
    message = msgspec.msgpack.decode(example.to_bytes(), type=QuestionMessage)
    for option, value in some(message.options.items()):
        if type(value) is not int or value == 0 or option.endswith(FREE):
            continue
        raised = msgspec.structs.replace(message, options={**message.options, option: 4 * value})
        try:
            found = cost_of(question_from_bytes(msgspec.msgpack.encode(raised)))
        except MessageError:
            continue
        assert astuple(found) > astuple(cost_of(example)), option
        assert all(a >= b for a, b in zip(astuple(found), astuple(cost_of(example)), strict=True)), option
