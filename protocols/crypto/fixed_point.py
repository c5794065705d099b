"""The fixed-point grid of masked sums: statistics as integers modulo 2^64 or 2^128.

Each entry has a quantisation step, a power of two fixed by the entry's range and the size of the cohort: no
sum of the cohort's answers can overflow. An entry whose step on 64 bits would be coarser than its resolution
takes two 64-bit limbs. In slots one client at most answers an entry, nothing is added up, and an entry takes
32 bits where its resolution allows. The grid appends two entries: the number of rows and entries that were
clipped, and a 1 from each contributor. The total of the latter shows whether all masks cancelled.

Property: decode(sum of encode(x_i)) == sum of round(x_i / step) * step, for at most `n_clients` answers, of
which in slots at most one is not zero in an entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import question_from_bytes
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised
from privfed.questions.slots import Slots

Words = npt.NDArray[np.uint64]

HALF_BITS, NARROW_BITS, WIDE_BITS = 30, 62, 126
MAX_CLIPPED = 1 << 32
_LIMB = 2.0**64
_BLOCK = 1 << 14
_HALF, _SHIFT = np.uint64(2**32 - 1), np.uint64(32)


class Layout:
    """Says how words are laid out: halves, narrow words, both limbs of wide entries, then check words.

    Adding needs nothing else, so the party that adds need not know what it adds.

    Args:
        n_narrow: words that are sums modulo 2^64.
        n_wide: entries of two words each, sums modulo 2^128.
        n_check: words that are together one sum modulo 2^64 to that power, lowest first; usually 0.
        n_paired: words that are two sums modulo 2^32 each; 0 but in slots.
    """

    def __init__(self, n_narrow: int, n_wide: int, n_check: int = 0, n_paired: int = 0) -> None:
        self.n_narrow, self.n_wide, self.n_check, self.n_paired = n_narrow, n_wide, n_check, n_paired
        self.n_front = n_paired + n_narrow
        """Words before those whose sums carry."""
        self.size = self.n_front + 2 * n_wide + n_check
        self._limbs = slice(self.n_front, self.n_front + 2 * n_wide)

    def front(self, most: int) -> Iterator[tuple[slice, type[np.unsignedinteger]]]:
        """Yield parts of at most so many words each, and the type whose sums their numbers are."""
        ends = ((0, self.n_paired, np.uint32), (self.n_paired, self.n_front, np.uint64))
        for begin, end, kind in ends:
            for start in range(begin, end, most):
                yield slice(start, min(start + most, end)), kind

    def add(self, total: Words, words: Words, sign: int = 1) -> None:
        """Add words to a total in place, modulo 2^64 or 2^32, or with carries where an entry has several.

        Args:
            total: uint64 of shape (size,).
            words: likewise.
            sign: -1 subtracts them.
        """
        for part, kind in self.front(self.size):
            add_numbers(total[part], words[part], kind, sign)
        self.add_rest(total, words[self.n_front :], sign)

    def sum(self, rows: Words) -> Words:
        """Return the sum of many rows of words, uint64 of shape (n, size), as one row."""
        total: Words = rows.sum(axis=0, dtype=np.uint64)
        if self.n_paired:
            pairs = np.ascontiguousarray(rows[:, : self.n_paired]).view(np.uint32)
            total[: self.n_paired] = pairs.sum(axis=0, dtype=np.uint32).view(np.uint64)
        if self.n_wide:
            low, high = np.split(total[self._limbs], 2)
            halves = rows[:, self.n_front : self.n_front + self.n_wide]
            below = (halves & _HALF).sum(axis=0, dtype=np.uint64)
            above = (halves >> _SHIFT).sum(axis=0, dtype=np.uint64)
            high += (above + (below >> _SHIFT)) >> _SHIFT
            low[:] = below + (above << _SHIFT)
        if self.n_check:
            moved = sum(to_integer(row) for row in rows[:, -self.n_check :])
            total[-self.n_check :] = to_words(moved, self.n_check)
        return total

    def add_rest(self, total: Words, rest: Words, sign: int = 1) -> None:
        """Add, or with sign -1 subtract, what comes after the front."""
        if self.n_wide:
            # Slices: `numpy.split` takes longer than the carries of a short mask.
            n, start = self.n_wide, self.n_front
            low, high, below = total[start : start + n], total[start + n : start + 2 * n], rest[:n]
            if sign > 0:
                low += below
                high += rest[n : 2 * n] + (low < below)
            else:
                high -= rest[n : 2 * n] + (low < below)
                low -= below
        if self.n_check:
            moved = to_integer(total[-self.n_check :]) + sign * to_integer(rest[-self.n_check :])
            total[-self.n_check :] = to_words(moved, self.n_check)


def add_numbers(total: Words, words: Words, kind: type[np.unsignedinteger], sign: int) -> None:
    """Add words to a total in place, or with sign -1 subtract them: numbers of a type, each for itself."""
    # Both in the machine's byte order, so that the same halves meet.
    numbers, others = total.view(kind), words.astype(np.uint64, copy=False).view(kind)
    (np.add if sign > 0 else np.subtract)(numbers, others, out=numbers)


def to_integer(words: Words) -> int:
    """Return the integer whose 64-bit digits are `words`, lowest first."""
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


def to_words(integer: int, n_words: int) -> Words:
    """Return the lowest 64-bit digits of an integer, lowest first."""
    data = (integer % (1 << 64 * n_words)).to_bytes(8 * n_words, "little")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


class Grid(Layout):
    """Encodes and decodes the answers to one question, for cohorts of at most `n_clients` clients.

    The words of an answer are its paired entries, its narrow entries, and the two that the grid appends. Then
    come the low limbs and the high limbs of its wide entries. Of the paired entries the first half lie in the
    low bits of their words, the others in the high bits.

    Args:
        spec: layout, ranges and resolutions of one client's answer.
        n_clients: most clients in a sum.
        reach: how far noise that the server adds to the sum can move each value at most.
        slotted: whether at most one client of a sum answers each entry by anything but zero.

    Raises:
        ArgumentError: even on two limbs the step of an entry is coarser than its resolution.
    """

    def __init__(
        self, spec: StatisticsSpec, n_clients: int, reach: FloatArray | float = 0.0, *, slotted: bool = False
    ) -> None:
        resolution, largest = spec.resolution, np.maximum(np.abs(spec.low), np.abs(spec.high))
        with np.errstate(over="ignore"):
            largest *= 1 if slotted else n_clients
            largest += reach
        step = np.where(largest > 0, steps(largest, NARROW_BITS), resolution)
        self.is_wide = step > resolution
        if self.is_wide.any():
            step[self.is_wide] = steps(largest[self.is_wide], WIDE_BITS)
        if (step > resolution).any():
            entry = int(np.argmax(step > resolution))
            raise ArgumentError(
                f"a sum over {n_clients} clients needs more than 126 bits for entry {entry} "
                f"(largest {largest[entry]:.3g}, resolution {resolution[entry]:.3g}); declare a smaller "
                "domain or max_rows.",
                parameters=["max_rows"],
            )
        is_paired = np.zeros(spec.size, dtype=np.bool_)
        if slotted:
            coarse = steps(largest, HALF_BITS)
            is_paired = (largest > 0) & (coarse <= resolution)
            step[is_paired] = coarse[is_paired]
        paired, wide = np.flatnonzero(is_paired), np.flatnonzero(self.is_wide)
        n_paired = (len(paired) + 1) // 2
        self._low, self._high = _Same.of(paired[:n_paired], step), _Same.of(paired[n_paired:], step)
        self._narrow = _Same.of(np.flatnonzero(~(self.is_wide | is_paired)), step)
        self._wide = _Same.of(wide, step)
        super().__init__(spec.size - len(paired) - len(wide) + 2, len(wide), n_paired=n_paired)

    @property
    def step(self) -> FloatArray:
        """Step of each entry, float64 of shape (spec.size,)."""
        step = np.empty(len(self.is_wide))
        for same in (self._low, self._high, self._narrow, self._wide):
            step[same.places] = same.steps
        return step

    def checked(self, n_check: int) -> Layout:
        """Return the layout of the grid's words followed by check words."""
        return Layout(self.n_narrow, self.n_wide, n_check, self.n_paired)

    def encode(self, vector: FloatArray, clipped: int) -> Words:
        """Return a client's answer, already inside its ranges, as words of shape (size,)."""
        words = np.zeros(self.size, dtype=np.uint64)
        pairs, narrow = words[: self.n_paired], words[self.n_paired : self.n_front - 2]
        # All slots but one are empty, which one is drawn anew in each sum.
        for block, whole in self._rounded(vector, self._low, skips=True):
            pairs[block] = whole & _HALF
        for block, whole in self._rounded(vector, self._high, skips=True):
            pairs[block] |= whole << _SHIFT
        for block, whole in self._rounded(vector, self._narrow):
            narrow[block] = whole
        words[self.n_front - 2 : self.n_front] = min(clipped, MAX_CLIPPED), 1
        if self.n_wide:
            scaled = np.rint(vector[self._wide.places] / self._wide.steps)
            # By magnitude, so that both limbs are exact; then negated where need be: -x = ~x + 1.
            magnitude, negative = np.abs(scaled), scaled < 0
            high = np.floor(magnitude / _LIMB)
            low = (magnitude - high * _LIMB).astype(np.uint64)
            words[self.n_front : -self.n_wide] = np.where(negative, ~low + np.uint64(1), low)
            above = high.astype(np.uint64)
            words[-self.n_wide :] = np.where(negative, ~above + (low == 0), above)
        return words

    @staticmethod
    def _rounded(vector: FloatArray, same: _Same, *, skips: bool = False) -> Iterator[tuple[slice, Words]]:
        """Yield blocks of entries as whole numbers of steps; all of them, so that time tells of no answer.

        Args:
            vector: the answer.
            same: which entries.
            skips: leaves out blocks that are zero.
        """
        values = vector[same.places]
        for start in range(0, len(values), _BLOCK):
            # A block at a time: temporary arrays would cost more than the arithmetic.
            block = slice(start, min(start + _BLOCK, len(values)))
            if not skips or values[block].any():
                yield block, np.rint(values[block] / same.steps[block]).astype(np.int64).view(np.uint64)

    def decode(self, words: Words) -> tuple[FloatArray, int, int]:
        """Return a total as float64 of shape (spec.size,), the number clipped, and how many contributed."""
        values, signed = np.empty(len(self.is_wide)), words.view(np.int64)
        pairs = signed[: self.n_paired]
        found = [(self._low, pairs << 32 >> 32), (self._high, pairs[: len(self._high.steps)] >> 32)]
        found.append((self._narrow, signed[self.n_paired : self.n_front - 2]))
        if self.n_wide:
            low, high = words[self.n_front : -self.n_wide], signed[-self.n_wide :]
            # Python integers are exact; float64 arithmetic on the limbs would round twice.
            both = zip(high.tolist(), low.tolist(), strict=True)
            found.append((self._wide, np.array([float((above << 64) + below) for above, below in both])))
        for same, whole in found:
            values[same.places] = whole * same.steps
        return values, int(signed[self.n_front - 2]), int(signed[self.n_front - 1])


class _Same(NamedTuple):
    """Where entries of one kind of word are, and their steps, of which equal ones take no memory."""

    places: slice | npt.NDArray[np.intp]
    steps: FloatArray

    @classmethod
    def of(cls, chosen: npt.NDArray[np.intp], step: FloatArray) -> _Same:
        """Return ascending places, as a slice where none is missing between them, so that it is a view."""
        steps = step[chosen]
        if not len(chosen):
            return cls(slice(0, 0), steps)
        first, last = int(chosen[0]), int(chosen[-1])
        if (steps == steps[0]).all():
            steps = np.broadcast_to(steps[0], steps.shape)
        return cls(slice(first, last + 1) if last - first < len(chosen) else chosen, steps)


def steps(largest: FloatArray, bits: int) -> FloatArray:
    """Return a step for each largest value: a power of two, of which fewer than 2^bits make up the value."""
    # frexp gives largest = m * 2^e with m < 1, so that largest / 2^(e - bits) < 2^bits. A step is kept a
    # normal float64; where the largest sum overflows float64, the step is infinite.
    exponents = np.maximum(np.frexp(largest)[1] - bits, np.finfo(np.float64).minexp)
    steps: FloatArray = np.where(np.isfinite(largest), np.ldexp(1.0, exponents), np.inf)
    return steps


@lru_cache(maxsize=2)
def grid_of(question: bytes, n_clients: int, in_slots: bool = False) -> Grid:
    """Return the grid of an encoded question for cohorts of at most `n_clients` clients.

    Args:
        question: encoded.
        n_clients: most clients in a sum.
        in_slots: whether clients answer questions with slots each in a slot of its own.
    """
    asked = question_from_bytes(question)
    if isinstance(asked, Noised):
        # Noise is in every slot.
        return Grid(asked.spec, n_clients, asked.noise_reach)
    return _grid(asked.spec, n_clients, slotted=in_slots and isinstance(asked, Slots))


_grid = lru_cache(maxsize=2)(Grid)
"""Questions of many rounds have one grid."""
