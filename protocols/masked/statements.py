"""What a client proves of its answer: the statement that a question's specification declares, on a grid.

The grid of proven sums has the coarsest steps that the specification accepts, since every bit of an answer
costs a proof. Each number is one word, whose sums stay below half of the field's prime, so that a total
modulo the prime is the total. A number that would take more bits has coarser steps, as fine as a word allows:
over 1,000 clients 2^-50 of its largest value. Several words a number would open the total of each.

The statement says that each number lies in its range, that counts of rows add up to at most the rows of a
client, and that a value S with a weight C lies between the weight times its ends (`Within`), in whole numbers

    lower C - 1 <= S <= upper C + 1        upper = high s_C / s_S rounded up

with s the steps; s_S is so fine that an end lies outside the declared one by at most `PRECISION`. Honest
answers leave these bounds by rounding only; `encode` moves them back, so that nobody who answers by it is
ever named.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.possible_totals import bounded_by
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.asking.statistics import Entry
from privfed.core.values.domain import FloatArray
from privfed.protocols.crypto.fixed_point import MAX_CLIPPED, Grid, Layout, Words, grid_of
from privfed.protocols.masked.verification import CHECK_WORDS
from privfed.protocols.valid.proof import PAD_WORDS, functionals
from privfed.protocols.valid.statement import UNBOUNDED, Forms, Statement, StatementError

Ints = npt.NDArray[np.int64]

PROVEN = "masked-proven"
"""The name of masked sums whose clients prove their answers."""

MOST_BITS = 62
"""Below 2 to this power lie sums of a number over a cohort, and of a form's terms: a quarter of the prime."""

FEWEST_BITS = 40
"""Bits of a number that a cohort leaves room for at least."""

MOST_NUMBERS = 1 << 15
"""Most numbers of an answer that is proven: a proof takes some 100 times the memory of the answer."""

PRECISION, COARSER = 2.0**-10, 5
"""Most by which a proven end of a row's range lies outside the declared one, in widths of the range; and how
many bits more where it would not fit into the field otherwise."""


def _refused(entry: str, why: str) -> StatementError:
    return StatementError(
        "wraps",
        f"answers to entry {entry!r} are not proven: {why}. Declare a domain that lies nearer to zero for "
        "its width (shift the features by public numbers) or a smaller max_rows, or take protocol='masked'.",
    )


class ProvenGrid(Layout):
    """Encodes and decodes answers of which a statement is proven.

    The words are the numbers; then the number clipped, and a 1.

    Args:
        question: what is asked.
        n_clients: most clients in a sum.
        rows: the client's own bound on its rows; None for that of the question's ranges, which fix the steps.

    Attributes:
        step: of each number, a power of two, float64 of shape (spec.size,).
        statement: of one client's numbers.

    Raises:
        StatementError: a form could wrap in the field, or would hold too coarsely.
    """

    def __init__(self, question: Question, n_clients: int, rows: int | None = None) -> None:
        spec, places, start = question.spec, dict[str, Ints](), 0
        for entry in spec.entries:
            places[entry.name] = np.arange(start, start := start + prod(entry.shape)).reshape(entry.shape)
        self._most = MOST_BITS - max(n_clients - 1, 0).bit_length()
        largest, exponent = np.maximum(np.abs(spec.low), np.abs(spec.high)), np.frexp(spec.resolution)[1] - 1
        # Two bits are left for forms of a number and its weight.
        exponent = np.maximum(exponent, np.frexp(largest)[1] - (self._most - 2))
        self.step: FloatArray = np.ldexp(1.0, exponent)
        self._ends = [np.floor(spec.low / self.step), np.ceil(spec.high / self.step)]
        if self._most < FEWEST_BITS or spec.size > MOST_NUMBERS or not np.isfinite(self._ends).all():
            raise _refused(
                spec.entries[0].name, f"{spec.size} numbers of {n_clients} clients take too many bits"
            )
        self._pairs = [
            (entry.name, *self._pair(entry, places[entry.name].ravel(), places[entry.within.weights]))
            for entry in spec.entries
            if entry.within is not None
        ]
        if rows is not None:
            question = bounded_by(question, rows)
            least, most = np.floor(question.spec.low / self.step), np.ceil(question.spec.high / self.step)
            self._ends = [np.maximum(self._ends[0], least), np.minimum(self._ends[1], most)]
        low, high = (end.astype(np.int64) for end in self._ends)
        forms, starts, stops = list[tuple[Ints, Ints]](), list[int](), list[int]()
        for at, (name, values, weights, lower_end, upper_end) in enumerate(self._pairs):
            # The weights' range and the ends imply the range, but for rounding: then it costs nothing.
            implied, least_top = np.sort([lower_end * low[weights], lower_end * high[weights]], axis=0) - 1
            near = 2 + PRECISION * (high[values] - low[values])
            low[values] = np.where(implied >= low[values] - near, implied, low[values])
            most_low, beyond = np.sort([upper_end * low[weights], upper_end * high[weights]], axis=0) + 1
            high[values] = np.where(beyond <= high[values] + near, beyond, high[values])
            # Whatever the weight is, some number meets both: else a client's refusal would tell of its rows.
            if ((least_top > high[values]) | (most_low < low[values])).any() or any(
                np.isin(weights, one[1]).any() for one in self._pairs[at:]
            ):
                raise _refused(name, "its range and that of its weights, or theirs, contradict each other")
            for end, ends in ((lower_end, (-1, UNBOUNDED)), (upper_end, (-UNBOUNDED, 1))):
                both = np.stack([values, weights], axis=1), np.stack([np.ones_like(end), -end], axis=1)
                forms += zip(*both, strict=True)
                starts, stops = starts + [ends[0]] * len(end), stops + [ends[1]] * len(end)
        declared = question.declaration
        self._counts = list[tuple[Ints, int]]()
        for name in () if declared is None else declared.row_counts:
            own = places[name].ravel()
            if (
                np.ptp(self.step[own]) > 0.0
                or (self._ends[0][own] < 0).any()
                or any((one[3][np.isin(one[1], own)] > 0).any() for one in self._pairs)
            ):
                raise _refused(name, "it counts rows by unequal steps, below zero, or above other weights")
            held = int(np.ceil(question.ranges.rows * (1.0 + 2.0**-30) / self.step[own[0]])) + len(own)
            self._counts.append((own, held))
            forms.append((own, np.ones_like(own)))
            starts, stops = [*starts, 0], [*stops, held]
        self.statement = Statement(n_clients, low, high, _forms(forms, starts, stops))
        super().__init__(len(low) + 2, 0)

    def _pair(self, entry: Entry, values: Ints, weights: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return values and weights with the whole ends between them, after making the values' steps fine."""
        assert entry.within is not None
        if weights.shape == entry.shape[: weights.ndim]:
            weights = weights.reshape(weights.shape + (1,) * (len(entry.shape) - weights.ndim))
        weights = np.broadcast_to(weights, entry.shape).ravel()
        low, high = (np.broadcast_to(one, entry.shape).ravel() for one in entry.within[1:])
        size = np.maximum(np.abs(low), np.abs(high))
        width = np.where(high > low, high - low, np.where(size > 0.0, size, 1.0))
        heaviest = self._ends[1][weights]
        if (self._ends[0][weights] < 0).any() or (heaviest < 1).any():
            raise _refused(entry.name, "its weights may be negative, or are all zero")
        ratio = self.step[weights] / self.step[values]
        # Bits by which steps become finer: the fewest for whole ends, else as many as fit.
        # By exponents, not logarithms, whose last bit may be another on another machine.
        finest = max(0, 1 - int(np.frexp(ratio * width * PRECISION)[1].min()))
        whole = [
            m for m in range(finest) if not any((np.ldexp(e * ratio, m) % 1.0).any() for e in (low, high))
        ]
        largest = np.maximum(*(np.abs(end[values]) for end in self._ends)) + size * ratio * heaviest + 2.0
        room = self._most - int(np.frexp(largest.max())[1])
        finer = min([*whole[:1], finest, max(room, finest - COARSER)])
        if finer > room:
            raise _refused(entry.name, "a form of it could wrap in the field of the proof")
        if (PRECISION * width * heaviest * np.ldexp(ratio, finer) < 1.0).any():
            raise _refused(entry.name, "its steps are too coarse for its range")
        self.step[values] = np.ldexp(self.step[values], -finer)
        for end in self._ends:
            end[values] = np.ldexp(end[values], finer)
        ratio = np.ldexp(ratio, finer)
        return values, weights, np.floor(low * ratio).astype(np.int64), np.ceil(high * ratio).astype(np.int64)

    def encode(self, vector: FloatArray, clipped: int) -> Words:
        """Return a client's answer, inside its ranges, as words of shape (size,) that meet the statement."""
        digits = np.clip(np.rint(vector / self.step), *self._ends).astype(np.int64)
        for own, most in self._counts:
            # Only rounding makes shares of rows add up to more than the rows.
            while (excess := int(digits[own].sum()) - most) > 0:
                largest = own[digits[own].argmax()]
                digits[largest] -= min(excess, int(digits[largest]))
        words: Words = np.empty(self.size, dtype=np.uint64)
        digits = np.clip(digits, self.statement.low, self.statement.high)
        for _, values, weights, lower, upper in self._pairs:
            low = np.maximum(lower * digits[weights] - 1, self.statement.low[values])
            high = np.minimum(upper * digits[weights] + 1, self.statement.high[values])
            digits[values] = np.clip(digits[values], low, high)
        words[:-2] = digits.view(np.uint64)
        words[-2:] = min(clipped, MAX_CLIPPED), 1
        return words

    def decode(self, words: Words) -> tuple[FloatArray, int, int]:
        """Return a total as float64 of shape (spec.size,), the number clipped, and how many contributed."""
        digits = words[: self.size].view(np.int64)
        return digits[:-2] * self.step, int(digits[-2]), int(digits[-1])


def _forms(forms: list[tuple[Ints, Ints]], low: list[int], high: list[int]) -> Forms:
    """Return forms, of which each has its digits and their coefficients."""
    numbers = np.repeat(np.arange(len(forms)), [len(digits) for digits, _ in forms])
    nothing = np.empty((2, 0), dtype=np.int64)
    digits, coefficients = np.concatenate([nothing, *map(np.stack, forms)], axis=1)
    return Forms(numbers, digits, coefficients, np.array(low, dtype=np.int64), np.array(high, dtype=np.int64))


def words_of(
    question: bytes, n_clients: int, agreed: Configuration, client: int | None = None
) -> tuple[Grid | ProvenGrid, Layout]:
    """Return how the answers of a masked sum become words, and the layout with all that comes after them.

    Args:
        question: encoded.
        n_clients: clients of the cohort.
        agreed: the configuration, which says whether answers are proven or totals are verified.
        client: whose answers these are, of which a bound on its own rows is proven; None for totals.
    """
    if agreed.protocol != PROVEN:
        grid = grid_of(question, n_clients, agreed.terms.slotted > 0)
        return grid, grid.checked(CHECK_WORDS if agreed.terms.verified else 0)
    rows = agreed.rows_of(() if client is None else (client,))
    proven = proven_grid_of(question, n_clients, *rows)
    # Totals of a pad stay below 2^192, so that all pads are one number.
    return proven, Layout(proven.size, 0, PAD_WORDS * functionals(n_clients))


@lru_cache(maxsize=16)
def proven_grid_of(question: bytes, n_clients: int, rows: int | None = None) -> ProvenGrid:
    """Return the grid and statement of an encoded question for cohorts of at most `n_clients` clients."""
    return ProvenGrid(question_from_bytes(question), n_clients, rows)
