"""Statements follow from questions; honest answers meet them, and no total of honest answers is refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from privfed.algorithms.fuzzy import FuzzySums, WeightedFuzzyCentroids
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Entry, StatisticsSpec, Within
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.protocols.masked.statements import PRECISION, ProvenGrid
from privfed.protocols.valid.statement import StatementError
from privfed.questions.cluster_spread import ClusterProfiles
from privfed.questions.fuzzy_spread import FuzzySpread
from privfed.questions.histograms import FeatureHistograms
from privfed.questions.lloyd import Inertia, LloydSums
from privfed.questions.moments import CentredMoments, CentredProducts
from privfed.testing.sum_runs import ANY_DATA
from tests.algorithms.mixtures.test_mixtures import COVARIANCES
from tests.algorithms.mixtures.test_mixtures import question as mixture

N, D = 4, 3
BOXES = [(-1.0, 1.0), (0.0, 0.3), (1 / 3, 4 / 3), (1e3 / 7, 1e3 / 7 + 1), (-3e4, -2e4), (1e9, 1e9 + 1e7 / 3)]
KINDS = ("faces", "low", "high", "any")


def asked(ranges: Ranges, rng: np.random.Generator) -> Iterator[Question]:
    """Yield questions about rows in ranges."""
    centers = np.clip(rng.uniform(ranges.low, ranges.high, (3, D)), ranges.low, ranges.high)
    words: dict[str, Any] = {"ranges": ranges, "centers": centers}
    yield LloydSums(**words)
    yield Inertia(**words)
    yield ClusterProfiles(**words)
    yield FuzzySums(**words, m=2.0)
    yield WeightedFuzzyCentroids(**words, m=1.5, local_iter=2)
    yield WeightedCentroids(**words, local_iter=2)
    yield CentredMoments(ranges=ranges, center=centers[0])
    yield CentredProducts(ranges=ranges, center=centers[0])
    yield FeatureHistograms(ranges=ranges, n_bins=8)
    yield FuzzySpread(**words, m=2.0)


def rows_of(kind: str, ranges: Ranges, n: int, rng: np.random.Generator) -> FloatArray:
    """Return rows, of which some kinds lie on faces of the box."""
    inside = np.clip(rng.uniform(ranges.low, ranges.high, (n, D)), ranges.low, ranges.high)
    ends = np.where(rng.random((n, D)) < 0.5, ranges.low, ranges.high)
    return {
        "faces": ends,
        "low": np.broadcast_to(ranges.low, (n, D)).copy(),
        "high": np.broadcast_to(ranges.high, (n, D)).copy(),
        "any": inside,
    }[kind]


def moved(spec: StatisticsSpec, grid: ProvenGrid) -> FloatArray:
    """Return by how much an answer differs at most from what is proven of it."""
    found, steps = [], dict(zip([one.name for one in spec.entries], [0.0] * len(spec.entries), strict=True))
    start = 0
    for entry in spec.entries:
        unit = grid.step[start : (start := start + np.prod(entry.shape, dtype=int))]
        steps[entry.name] = float(unit.max(initial=0.0))
        # Half a step, and where it is moved back into the statement as far as its rounded weight moved it.
        found.append(2.5 * unit)
    for place, entry in enumerate(spec.entries):
        if entry.within is not None:
            ends = np.maximum(*(np.abs(np.broadcast_to(one, entry.shape)) for one in entry.within[1:]))
            found[place] = found[place] + ends.ravel() * steps[entry.within.weights]
    return np.concatenate(found)


def checked(repeats: int, seed: int) -> int:
    """Check answers and totals of honest clients; return how many totals there were."""
    rng, totals = np.random.default_rng(seed), 0
    for (low, high), most, kind, _ in product(BOXES, (1, 40, 500), KINDS, range(repeats)):
        ranges = Ranges(np.full(D, low), np.full(D, high), most)
        clients = [ClientData(rows_of(kind, ranges, int(rng.integers(1, most + 1)), rng)) for _ in range(N)]
        for question in asked(ranges, rng):
            grid = ProvenGrid(question, N)
            answers = question.answer_all(clients, [rng] * N)
            words = [grid.encode(question.spec.clip(one.vector)[0], 0) for one in answers]
            total = np.sum(words, axis=0, dtype=np.uint64)
            for one in words:
                assert grid.statement.holds(one[:-2].view(np.int64)), (type(question), low, kind)
            vector, clipped, contributors = grid.decode(total)
            assert (clipped, contributors) == (0, N)
            assert impossible(question, question.spec.unflatten(vector), N) is None
            exact = np.sum([one.vector for one in answers], axis=0)
            assert (np.abs(vector - exact) <= N * moved(question.spec, grid) + 1e-12 * np.abs(exact)).all()
            totals += 1
    return totals


def test_no_honest_answer_leaves_its_statement_and_no_honest_total_is_refused() -> None:
    assert checked(1, 0) == 720


@pytest.mark.slow
def test_thousands_of_honest_totals() -> None:
    assert checked(4, 1) == 2880


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.parametrize("box", BOXES[:4])
def test_answers_of_mixtures_meet_their_statement(kind: str, box: tuple[float, float]) -> None:
    ranges, rng = Ranges(np.full(D, box[0]), np.full(D, box[1]), 60), np.random.default_rng(2)
    asked = mixture(ranges, rng.uniform(*box, (3, D)), kind)
    grid = ProvenGrid(asked, N)
    assert len(grid.statement.forms.low) == 3 * D * 2 + 1
    for rows in KINDS:
        one = asked.of_rows(rows_of(rows, ranges, 60, rng))
        assert grid.statement.holds(grid.encode(asked.spec.clip(one.vector)[0], 0)[:-2].view(np.int64))


def far(width: float, rows: int = 100) -> Question:
    return LloydSums(ranges=Ranges(np.array([1e9]), np.array([1e9 + width]), rows), centers=np.array([[1e9]]))


def test_a_statement_that_could_wrap_is_refused_with_what_helps() -> None:
    for question in (far(1.0), far(1e6, 1 << 20)):
        with pytest.raises(StatementError) as caught:
            ProvenGrid(question, 20)
        assert isinstance(caught.value, ArgumentError) and caught.value.code == "wraps"
        assert "max_rows" in str(caught.value) and "domain" in str(caught.value)
    assert ProvenGrid(far(1e6), 20).statement.size == 2
    with pytest.raises(StatementError):
        ProvenGrid(far(1e6), 1 << 23)


@pytest.mark.parametrize("box", BOXES)
def test_a_mean_lies_in_the_box_and_rows_are_no_more_than_agreed(box: tuple[float, float]) -> None:
    ranges = Ranges(np.full(D, box[0]), np.full(D, box[1]), 70)
    question = LloydSums(ranges=ranges, centers=np.full((2, D), box[0]))
    grid, width = ProvenGrid(question, N), box[1] - box[0]
    # Which one is the largest sum for a count, and the smallest, by the statement alone.
    for count in (0.0, 1.0, 35.0, 70.0):
        digits = grid.encode(np.array([count, 0.0, *([count * box[0]] * D), *([0.0] * D)]), 0)[:-2].view(
            np.int64
        )
        for place, sign in product(range(2, 2 + D), (-1, 1)):
            reach = [0, 1 << 61]
            while reach[1] - reach[0] > 1:
                middle = sum(reach) // 2
                moved = digits.copy()
                moved[place] += sign * middle
                reach[not grid.statement.holds(moved)] = middle
            end = (digits[place] + sign * reach[0]) * grid.step[place]
            allowed = count * (box[1] if sign > 0 else box[0])
            slack = count * width * PRECISION * 2**5 + 3 * grid.step[place]
            assert abs(end - allowed) <= slack
    whole = np.zeros(len(digits), dtype=np.int64)
    for rows in (70, 71, 128):
        whole[:2] = round(rows / 2 / grid.step[0])
        whole[2:] = np.round(whole[0] * box[0] * grid.step[0] / grid.step[2:])
        assert grid.statement.holds(whole) == (rows == 70)


def test_a_statement_holds_of_all_rows_and_of_some_answers_that_no_rows_give() -> None:
    """The page says that a variance may be negative: fifty rows at the edge of the box have squares of 50."""
    question = ClusterProfiles(ranges=Ranges(np.array([-1.0]), np.array([1.0]), 50), centers=np.zeros((1, 1)))
    grid = ProvenGrid(question, 5)
    for square, holds in ((50.0, True), (0.0, True), (-1.0, False)):
        whole = grid.encode(np.array([50.0, 50.0, 0.0]), 0)[:-2].view(np.int64)
        whole[2] = square / grid.step[2]
        assert grid.statement.holds(whole) == holds


def test_answers_with_one_total_open_the_same_words_and_pads_alone_differ() -> None:
    """Nothing opens but totals: of several words a number each word's total would tell of single answers."""
    ranges, middle = Ranges(np.array([0.0]), np.array([1.0]), 100), np.array([0.5])
    unit = ProvenGrid(CentredMoments(ranges=ranges, center=middle), 20).step[1]
    for shift in (0.0, unit / 2, 2.0**-20, 0.1):
        question, totals = CentredMoments(ranges=ranges, center=middle + shift), []
        grid = ProvenGrid(question, 20)
        assert grid.size == question.spec.size + 2 and grid.statement.size == question.spec.size
        for sizes in ((4, 4), (3, 5), (8, 0)):
            answers = [question.of_rows(np.full((n, 1), 0.25)) for n in sizes]
            whole = [np.rint(one.vector / grid.step).astype(np.int64) for one in answers]
            words = [grid.encode(question.spec.clip(one.vector)[0], 0).view(np.int64) for one in answers]
            # A word is its number, linearly: no digit of it, and no carry.
            np.testing.assert_array_equal(np.stack(words)[:, :-2], whole)
            totals.append(sum(one.vector for one in answers))
            found = grid.decode(np.sum(words, axis=0).view(np.uint64))[0]
            assert (np.abs(found - totals[-1]) <= 2 * grid.step).all()


@pytest.mark.parametrize("n_clients", [2, 20, 1000])
def test_one_word_a_number_is_as_fine_as_floats_of_its_largest_value(n_clients: int) -> None:
    for most, question_of in product((1, 100, 1 << 20), (CentredMoments, CentredProducts)):
        ranges = Ranges(np.full(D, -3.0), np.full(D, 1e6), most)
        spec = (question := question_of(ranges=ranges, center=np.zeros(D))).spec
        grid, largest = ProvenGrid(question, n_clients), np.maximum(np.abs(spec.low), np.abs(spec.high))
        finest = 2.0 ** -(59 - (n_clients - 1).bit_length())
        assert (grid.step <= np.maximum(spec.resolution, largest * finest)).all()
        # Words of all clients stay below a quarter of the prime.
        whole = np.maximum(*map(np.abs, (grid.statement.low, grid.statement.high)))
        assert (whole.astype(float) * n_clients < 2.0**62).all()


class Own(Question):
    """A question of one's own."""

    def __init__(self, *entries: Entry) -> None:
        object.__setattr__(self, "ranges", ANY_DATA)
        object.__setattr__(self, "entries", entries)

    @property
    def spec(self) -> StatisticsSpec:
        """The entries that a test gave."""
        return StatisticsSpec(*self.entries)


def test_a_question_of_ones_own_has_its_entries_ranges() -> None:
    grid = ProvenGrid(Own(Entry("a", (3,), [-1.0, 0.0, 2.0], [1.0, 0.0, 2.0**68], 2.0**-10)), 10)
    # The widest number is coarser than it asked for, by as much as a word lacks.
    assert grid.statement.size == 3 and grid.step[2] == 2.0**13 and grid.statement.high[2] == 1 << 55
    assert grid.statement.low[0] == -1024 and grid.statement.high[0] == 1024
    assert grid.statement.low[1] == grid.statement.high[1] == 0
    vector = np.array([-0.5, 0.0, 2.0**67 + 2.0**30])
    np.testing.assert_array_equal(grid.decode(grid.encode(vector, 3))[0], vector)
    assert grid.decode(grid.encode(vector, 3))[1:] == (3, 1)


@pytest.mark.parametrize(
    "entries",
    [
        (Entry("w", (1,), -1.0, 1.0, 0.5), Entry("s", (1,), -9.0, 9.0, 0.5, Within("w", -1.0, 1.0))),
        (Entry("w", (1,), 1.0, 2.0, 0.5), Entry("s", (1,), 5.0, 9.0, 2.0**-20, Within("w", -1.0, 1.0))),
        (Entry("w", (1,), 0.0, 2.0**80, 0.5), Entry("s", (1,), 0.0, 9.0, 0.5, Within("w", 0.0, 1.0))),
        # Of heavy answers, or of light ones, none would meet its statement: a refusal would tell which.
        (Entry("w", (1,), 0.0, 100.0, 0.5), Entry("s", (1,), 0.0, 9.0, 2.0**-20, Within("w", 0.5, 1.0))),
        (Entry("w", (1,), 0.0, 100.0, 0.5), Entry("s", (1,), 50.0, 100.0, 2.0**-20, Within("w", 0.5, 1.0))),
        (
            Entry("w", (1,), 0.0, 9.0, 0.5),
            Entry("s", (1,), 0.0, 9.0, 2.0**-20, Within("v", 0.0, 1.0)),
            Entry("v", (1,), 0.0, 9.0, 2.0**-20, Within("w", 0.0, 1.0)),
        ),
    ],
    ids=[
        "weights below zero", "contradiction", "weights of many bits", "heavy", "light", "weights after it",
    ],
)  # fmt: skip
def test_what_no_statement_can_say_is_refused(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(StatementError):
        ProvenGrid(Own(*entries), 5)
