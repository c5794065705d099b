"""Exact rejection sampling on the integers, whole arrays at a time: proposals, and their acceptance.

A proposal is a block b, with probability 2^-(b+1) (the ones before the first zero of fair bits), an offset
o uniform on [0, w) for a power of two w, and a fair sign: b w + o, or -(b w + o) - 1. So each integer is
proposed in exactly one way. It is accepted with a probability p that floats know within 2^-42
(`Proposals`). p is compared with a uniform U in [0, 1), whose first 53 bits are u. Where |u - p| > 2^-40 in
floats, these decide as real numbers would. Elsewhere, for one proposal in 2^39, rational bounds of p and
further bits of U decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]
Number = TypeVar("Number", bound=np.generic)

_MARGIN = 2.0**-40
_BLOCK = 1 << 15
_PART = 1 << 12
"""Proposals that are computed at a time, so that they stay in the processor's cache."""
_MOST_TRIES = 8
_ONE, _ELEVEN = np.uint64(1), np.uint64(11)


class RandomBits(Protocol):
    """A source of independent fair bits."""

    def words(self, size: int) -> Words:
        """Return `size` words of 64 fresh bits, uint64 of shape (size,)."""


Bounds = Iterator[tuple[Fraction, Fraction]]
"""Unending iterator of rational lower and upper bounds of one probability, each pair closer than the last."""


class Proposals(Protocol):
    """Proposal and acceptance of values, for n distributions on the integers, or one for all places."""

    @property
    def shift(self) -> Integers:
        """log2 of the width of each one's blocks, at most 51; shape (n,) or (1,)."""

    def chance(self, places: Integers, value: Integers, block: Counts) -> FloatArray:
        """Return the probability of accepting each proposal, within 2^-42; float64 of `value`'s shape."""

    def bounds(self, place: int, value: int, block: int) -> Bounds:
        """Yield bounds of the same probability for one proposal."""


def draw(
    proposals_of: Callable[[FloatArray], Proposals], parameters: FloatArray, size: int, source: RandomBits
) -> Integers:
    """Return draws of a distribution, int64 of shape (size,).

    Args:
        proposals_of: from parameters to proposals.
        parameters: of each draw, or one of all; float64 of shape (size,) or (1,).
        size: number of draws.
        source: of random bits.
    """
    drawn = np.empty(size, dtype=np.int64)
    shared = proposals_of(parameters) if parameters.size == 1 else None
    for start in range(0, size, _BLOCK):
        block = slice(start, min(start + _BLOCK, size))
        proposals = proposals_of(parameters[block]) if shared is None else shared
        drawn[block] = _draw(proposals, block.stop - start, source)
    return drawn


def _draw(proposals: Proposals, size: int, source: RandomBits) -> Integers:
    drawn, waiting = np.empty(size, dtype=np.int64), np.ones(size, dtype=np.bool_)
    pending = np.arange(size)
    while pending.size:
        # The last few get several proposals at once, since calling numpy then costs more than arithmetic.
        places = np.tile(pending, min(_MOST_TRIES, max(1, _BLOCK // (8 * pending.size))))
        kept, values = propose(proposals, places, source)
        # Where several proposals for one place are accepted, which one is kept is independent of the values.
        found = places.take(kept)
        drawn[found] = values
        waiting[found] = False
        pending = pending.take(np.flatnonzero(waiting.take(pending)))
    return drawn


def at(values: npt.NDArray[Number], places: Integers) -> npt.NDArray[Number]:
    """Return the values of places, or the one of all."""
    return values if values.size == 1 else values[places]


def propose(proposals: Proposals, places: Integers, source: RandomBits) -> tuple[Integers, Integers]:
    """Make one proposal for each place; return the indices of those accepted, and their values."""
    words, kept, values = source.words(3 * places.size).reshape(3, -1), [places[:0]], [places[:0]]
    for start in range(0, places.size, _PART):
        part = slice(start, start + _PART)
        value, accepted = _decided(proposals, places[part], words[:, part], source)
        kept.append(np.flatnonzero(accepted))
        values.append(value.take(kept[-1]))
        kept[-1] += start
    return np.concatenate(kept), np.concatenate(values)


def _decided(
    proposals: Proposals, places: Integers, words: Words, source: RandomBits
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return the proposals for places, and which are accepted."""
    (offsets, runs, uniforms), shift = words, at(proposals.shift, places)
    block, signed = _ones(runs, source), offsets.view(np.int64)
    value = block.astype(np.int64)
    value <<= shift
    value += signed & ((1 << shift) - 1)
    # The top bit is the sign; offsets have at most 51. In two's complement x ^ -1 is -x - 1.
    value ^= signed >> 63
    # Both int64 and float64 hold these 53 bits; uint64 would convert to float64 far more slowly.
    gap = (uniforms >> _ELEVEN).view(np.int64) * -(2.0**-53)
    gap += proposals.chance(places, value, block)
    accepted = gap > 0
    if np.abs(gap).min() <= _MARGIN:
        for i in np.flatnonzero(np.abs(gap) <= _MARGIN).tolist():
            bounds = proposals.bounds(int(places[i]), int(value[i]), int(block[i]))
            accepted[i] = _accepts(bounds, int(uniforms[i]), source)
    return value, accepted


def _ones(words: Words, source: RandomBits) -> Counts:
    """Count the ones before the first zero bit, int32 of the words' shape; a word of 64 ones is continued."""
    ones = np.bitwise_count(words & ~(words + _ONE)).astype(np.int32)
    if ones.max(initial=0) == 64:
        full = ones == 64
        ones[full] += _ones(source.words(int(full.sum())), source)
    return ones


def _accepts(bounds: Bounds, uniform: int, source: RandomBits) -> bool:
    """Decide exactly whether U, which starts with the 64 bits of `uniform`, is below the bounded value."""
    bits = 64
    while True:
        low, high = next(bounds)
        if Fraction(uniform + 1, 2**bits) <= low:
            return True
        if Fraction(uniform, 2**bits) >= high:
            return False
        uniform, bits = (uniform << 64) + int(source.words(1)[0]), bits + 64


def exp_bounds(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds below and above exp(-exponent), relatively about 10^-digits apart."""
    context = Context(prec=digits + 5, Emin=MIN_EMIN, Emax=MAX_EMAX)
    # Decimal's division and exp are correctly rounded: each is within one unit of the last digit.
    rounded = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    # The unary minus would round to the precision of the thread's own context.
    near = Fraction(context.exp(rounded.copy_negate()))
    slack = near * (exponent + 1) * Fraction(4, 10 ** (digits + 4))
    return near - slack, near + slack
