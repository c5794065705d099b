"""The fixed-point grid of masked sums: statistics as integers modulo 2^64 or 2^128.

Each entry has a quantisation step, a power of two fixed by the entry's range and the size of the cohort: no
sum of the cohort's answers can overflow. An entry whose step on 64 bits would be coarser than its resolution
takes two 64-bit limbs. The grid appends two entries: the number of rows and entries that were clipped, and a
1 from each contributor. The total of the latter shows whether all masks cancelled.

Property: decode(sum of encode(x_i)) == sum of round(x_i / step) * step, for at most `n_clients` answers.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import question_from_bytes
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised

Words = npt.NDArray[np.uint64]

NARROW_BITS, WIDE_BITS = 62, 126
MAX_CLIPPED = 1 << 32
_LIMB = 2.0**64
_BLOCK = 1 << 14
_HALF, _HALF_BITS = np.uint64(2**32 - 1), np.uint64(32)


class Layout:
    """Says how words are laid out: narrow ones, low and high limbs of wide entries, then check words.

    Adding needs nothing else, so the party that adds need not know what it adds.

    Args:
        n_narrow: words that are sums modulo 2^64.
        n_wide: entries of two words each, sums modulo 2^128.
        n_check: words that are together one sum modulo 2^64 to that power, lowest first; usually 0.
    """

    def __init__(self, n_narrow: int, n_wide: int, n_check: int = 0) -> None:
        self.n_narrow, self.n_wide, self.n_check = n_narrow, n_wide, n_check
        self.size = n_narrow + 2 * n_wide + n_check
        self._limbs = slice(n_narrow, n_narrow + 2 * n_wide)

    def add(self, total: Words, words: Words, sign: int = 1) -> None:
        """Add words to a total in place, modulo 2^64, or with carries where an entry has several.

        Args:
            total: uint64 of shape (size,).
            words: likewise.
            sign: -1 subtracts them.
        """
        narrow = total[: self.n_narrow]
        (np.add if sign > 0 else np.subtract)(narrow, words[: self.n_narrow], out=narrow)
        self.add_rest(total, words[self.n_narrow :], sign)

    def subtract(self, total: Words, words: Words) -> None:
        """Subtract words from a total in place."""
        self.add(total, words, -1)

    def sum(self, rows: Words) -> Words:
        """Return the sum of many rows of words, uint64 of shape (n, size), as one row."""
        total: Words = rows.sum(axis=0, dtype=np.uint64)
        if self.n_wide:
            low, high = np.split(total[self._limbs], 2)
            halves = rows[:, self.n_narrow : self.n_narrow + self.n_wide]
            below = (halves & _HALF).sum(axis=0, dtype=np.uint64)
            above = (halves >> _HALF_BITS).sum(axis=0, dtype=np.uint64)
            high += (above + (below >> _HALF_BITS)) >> _HALF_BITS
            low[:] = below + (above << _HALF_BITS)
        if self.n_check:
            moved = sum(to_integer(row) for row in rows[:, -self.n_check :])
            total[-self.n_check :] = to_words(moved, self.n_check)
        return total

    def add_rest(self, total: Words, rest: Words, sign: int = 1) -> None:
        """Add, or with sign -1 subtract, what comes after the narrow words."""
        if self.n_wide:
            low, high = np.split(total[self._limbs], 2)
            below, above = np.split(rest[: 2 * self.n_wide], 2)
            if sign > 0:
                low += below
                high += above + (low < below)
            else:
                high -= above + (low < below)
                low -= below
        if self.n_check:
            moved = to_integer(total[-self.n_check :]) + sign * to_integer(rest[-self.n_check :])
            total[-self.n_check :] = to_words(moved, self.n_check)


def to_integer(words: Words) -> int:
    """Return the integer whose 64-bit digits are `words`, lowest first."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def to_words(integer: int, n_words: int) -> Words:
    """Return the lowest 64-bit digits of an integer, lowest first."""
    data = (integer % (1 << 64 * n_words)).to_bytes(8 * n_words, "little")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


class Grid(Layout):
    """Encodes and decodes the answers to one question, for cohorts of at most `n_clients` clients.

    The words of an answer are its narrow entries, the two entries that the grid appends, then the low
    limbs and the high limbs of its wide entries.

    Args:
        spec: layout, ranges and resolutions of one client's answer.
        n_clients: most clients in a sum.
        reach: how far noise that the server adds to the sum can move each value at most.

    Raises:
        ArgumentError: even on two limbs the step of an entry is coarser than its resolution.
    """

    def __init__(self, spec: StatisticsSpec, n_clients: int, reach: FloatArray | float = 0.0) -> None:
        resolution, largest = spec.resolution, np.maximum(np.abs(spec.low), np.abs(spec.high))
        with np.errstate(over="ignore"):
            largest *= n_clients
            largest += reach
        self.step = np.where(largest > 0, steps(largest, NARROW_BITS), resolution)
        self.is_wide = self.step > resolution
        if self.is_wide.any():
            self.step[self.is_wide] = steps(largest[self.is_wide], WIDE_BITS)
        if (self.step > resolution).any():
            entry = int(np.argmax(self.step > resolution))
            raise ArgumentError(
                f"a sum over {n_clients} clients needs more than 126 bits for entry {entry} "
                f"(largest {largest[entry]:.3g}, resolution {resolution[entry]:.3g}); declare a smaller "
                "domain or max_rows.",
                parameters=["max_rows"],
            )
        n_wide = int(self.is_wide.sum())
        super().__init__(spec.size - n_wide + 2, n_wide)

    def checked(self, n_check: int) -> Layout:
        """Return the layout of the grid's words followed by check words."""
        return Layout(self.n_narrow, self.n_wide, n_check)

    def encode(self, vector: FloatArray, clipped: int) -> Words:
        """Return a client's answer, already inside its ranges, as words of shape (size,)."""
        words = np.empty(self.size, dtype=np.uint64)
        words[self.n_narrow - 2 : self.n_narrow] = min(clipped, MAX_CLIPPED), 1
        narrow = words[: self.n_narrow - 2].view(np.int64)
        if not self.n_wide:
            for start in range(0, len(vector), _BLOCK):
                # A block at a time: temporary arrays would cost more than the arithmetic.
                part = slice(start, start + _BLOCK)
                narrow[part] = np.rint(vector[part] / self.step[part])
        else:
            scaled = vector / self.step
            np.rint(scaled, out=scaled)
            narrow[:] = scaled[~self.is_wide]
            # By magnitude, so that both limbs are exact; then negated where need be: -x = ~x + 1.
            magnitude, negative = np.abs(scaled[self.is_wide]), scaled[self.is_wide] < 0
            high = np.floor(magnitude / _LIMB)
            low = (magnitude - high * _LIMB).astype(np.uint64)
            words[self.n_narrow : -self.n_wide] = np.where(negative, ~low + np.uint64(1), low)
            above = high.astype(np.uint64)
            words[-self.n_wide :] = np.where(negative, ~above + (low == 0), above)
        return words

    def decode(self, words: Words) -> tuple[FloatArray, int, int]:
        """Return a total as float64 of shape (spec.size,), the number clipped, and how many contributed."""
        scaled = np.empty(len(self.step))
        signed = words.view(np.int64)
        scaled[~self.is_wide] = signed[: self.n_narrow - 2]
        if self.n_wide:
            low, high = words[self.n_narrow : -self.n_wide], signed[-self.n_wide :]
            # Python integers are exact; float64 arithmetic on the limbs would round twice.
            scaled[self.is_wide] = [
                float((above << 64) + below) for above, below in zip(high.tolist(), low.tolist(), strict=True)
            ]
        values: FloatArray = scaled * self.step
        return values, int(signed[self.n_narrow - 2]), int(signed[self.n_narrow - 1])


def steps(largest: FloatArray, bits: int) -> FloatArray:
    """Return a step for each largest value: a power of two, of which fewer than 2^bits make up the value."""
    # frexp gives largest = m * 2^e with m < 1, so that largest / 2^(e - bits) < 2^bits. A step is kept a
    # normal float64; where the largest sum overflows float64, the step is infinite.
    exponents = np.maximum(np.frexp(largest)[1] - bits, np.finfo(np.float64).minexp)
    steps: FloatArray = np.where(np.isfinite(largest), np.ldexp(1.0, exponents), np.inf)
    return steps


@lru_cache(maxsize=2)
def grid_of(question: bytes, n_clients: int) -> Grid:
    """Return the grid of an encoded question for cohorts of at most `n_clients` clients."""
    asked = question_from_bytes(question)
    return Grid(asked.spec, n_clients, asked.reach if isinstance(asked, Noised) else 0.0)
