"""Exact discrete Gaussian noise on the integers, from random bits, whole arrays at a time.

`discrete_gaussian` draws x with probability proportional to exp(-x^2 / (2 sigma^2)), exactly: sigma is
the rational number that its float64 represents, and no rounding affects a draw. Samplers that round floats
have a support and tails that reveal the noiseless value (Mironov 2012, doi 10.1145/2382196.2382264;
Jin et al. 2021, arXiv 2112.05307). The distribution is that of Canonne, Kamath and Steinke 2020 (arXiv
2004.00010, definition 1); the method is our own rejection sampler:

1. Propose. Let w be the smallest power of two above 0.589 sigma, at least 1. Draw a block b with
   probability 2^-(b+1) (the ones before the first zero of fair bits) and an offset o uniform on [0, w);
   let x be b w + o or, by a fair sign, -(b w + o) - 1, so that each integer is proposed in exactly one way.
2. Accept with probability p = C 2^b exp(-t), t = x^2 / (2 sigma^2), for a constant C. The float C lies
   2^-20 below the largest that keeps p at most 1: |x| >= b w, and 2^b exp(-b^2 v^2 / 2), v = w / sigma,
   is largest for a b of 0, 1 or 2, as v^2 > 0.589^2 > 2 ln 2 / 5.
3. To do so, compare p with a uniform U in [0, 1), drawing as many bits of U as the comparison takes.

At least half of the proposals are accepted, a quarter where sigma is far below one step.

Float error of step 3. Let e = 2^-53, q the computed p and u the first 53 bits of U, which a float holds.
Rounding x, squaring, rounding 1 / (2 sigma^2) and multiplying give t (1 + d) with |d| <= 6.1 e, which moves
exp(-t) by a factor within 1 +- 6.2 t e; numpy's exp is within 8 e (4 units in the last place); the factor 2^b
is exact; multiplying by C rounds once more. So |q - p| <= (6.2 t p + 9.2 p) e. As b <= sqrt(2 t) / v and
C <= 1, t p <= t exp(1.665 sqrt(t) - t) < 2.9, so |q - p| < 28 e < 2^-48 (below float64's normal range the
error is far smaller), and |u - U| <= 2^-53. So where |u - q| > 2^-40, floats decide as real numbers would,
with a factor of 240 to spare; elsewhere (one proposal in 2^39) rational bounds of p and further bits of U
decide. A test checks q against its bound.

Time: the number of proposals of a draw is independent of its value, as in any rejection sampler; but exp
and memory access are not guaranteed to take constant time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int32]
Number = TypeVar("Number", bound=np.generic)

SMALLEST_SIGMA, MOST_SIGMA = 2.0**-50, 2.0**50
"""Between them squares and their inverses are normal numbers, and draws stay within int64, in steps."""

_MARGIN = 2.0**-40
_BLOCK = 1 << 15
_PART = 1 << 12
"""Proposals that are computed at a time, so that they stay in the processor's cache."""
_MOST_TRIES = 8
_START = bytes(16)
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
        """log2 of the width of each one's blocks, at most 50; shape (n,) or (1,)."""

    def chance(self, places: Integers, value: Integers, block: Counts) -> FloatArray:
        """Return the probability of accepting each proposal, within 2^-46; float64 of `value`'s shape."""

    def bounds(self, place: int, value: int, block: int) -> Bounds:
        """Yield bounds of the same probability for one proposal."""


class SecureBits:
    """Bits of AES-256-CTR, under a fresh key from the operating system's generator for each call.

    It holds no state, so that forked processes or copies never share bits. Noise from it is computationally
    (not information-theoretically) private: the guarantee assumes that AES-256-CTR is pseudorandom.
    """

    def words(self, size: int) -> Words:
        """Return `size` words of 64 fresh bits, uint64 of shape (size,)."""
        buffer = bytearray(8 * size)
        Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(_START)).encryptor().update_into(buffer, buffer)
        return np.frombuffer(buffer, dtype="<u8")


class SeededBits:
    """Bits of a simulation's generator: they repeat with its seed, and noise from them protects nobody.

    Args:
        generator: where the bits come from.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def words(self, size: int) -> Words:
        """Return the generator's next `size` words, uint64 of shape (size,)."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)


class SeededGenerator(np.random.Generator):
    """The generator of a simulated client in a seeded run, whose noise repeats and protects nobody.

    Only the simulation of clients in one process makes these, where the signed terms say so
    (`privfed.engines.in_process.Pool`). A client on its own machine has no way to one.
    """


def noise_source(generator: np.random.Generator) -> RandomBits:
    """Return where a client's noise comes from: the operating system, except in a seeded run."""
    return SeededBits(generator) if isinstance(generator, SeededGenerator) else SecureBits()


def discrete_gaussian(sigma: FloatArray | float, size: int | tuple[int, ...], source: RandomBits) -> Integers:
    """Draw independent integers from discrete Gaussians with mean 0, exactly.

    The standard deviation of a draw is at most sigma, and equal to it within 1e-7 from sigma = 1 on.

    Args:
        sigma: parameter of each draw, in steps of the grid, in [2^-50, 2^50]; broadcasts to `size`.
        size: shape of the result.
        source: `SecureBits()` for noise that is claimed.

    Returns:
        int64 of shape `size`; never clipped.

    Raises:
        ArgumentError: a sigma is not in [2^-50, 2^50].
    """
    sigmas = np.atleast_1d(np.asarray(sigma, dtype=np.float64))
    if sigmas.size != 1:
        sigmas = np.broadcast_to(sigmas, size).ravel()
    inside = (sigmas >= SMALLEST_SIGMA) & (sigmas <= MOST_SIGMA)
    if not inside.all():
        raise ArgumentError(
            f"sigma must lie in [2^-50, 2^50] steps, got {sigmas[~inside][0]:g}. Choose another step for the "
            "grid."
        )
    return draw(_blocks, sigmas.ravel(), int(np.prod(size)), source).reshape(size)


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
    drawn = np.empty(size, dtype=np.int64)
    waiting = np.ones(size, dtype=np.bool_)
    pending = np.arange(size)
    while pending.size:
        # The last few get several proposals at once, since calling numpy then costs more than arithmetic.
        places = np.tile(pending, min(_MOST_TRIES, max(1, _BLOCK // (8 * pending.size))))
        kept, values = _propose(proposals, places, source)
        # Where several proposals for one place are accepted, which one is kept is independent of the values.
        found = places.take(kept)
        drawn[found] = values
        waiting[found] = False
        pending = pending.take(np.flatnonzero(waiting.take(pending)))
    return drawn


class _Blocks(NamedTuple):
    """Proposal and acceptance of values for each sigma, or for one; arrays of shape (n,) or (1,)."""

    sigma: FloatArray
    shift: Integers
    """log2 of the width w of a block."""
    rate: FloatArray
    """1 / (2 sigma^2), rounded."""
    scale: FloatArray
    """The constant C."""

    def chance(self, places: Integers, value: Integers, block: Counts) -> FloatArray:
        """Return p of each proposal within 2^-48."""
        return _chance(value, block, _at(self.rate, places), _at(self.scale, places))

    def bounds(self, place: int, value: int, block: int) -> Bounds:
        """Yield bounds of p for one proposal."""
        here = place if self.sigma.size > 1 else 0
        return _chance_bounds(value, block, float(self.sigma[here]), float(self.scale[here]))


def _blocks(sigma: FloatArray) -> _Blocks:
    shift = np.maximum(np.frexp(0.589 * sigma)[1], 0)
    half_square = np.square(np.ldexp(1.0, shift) / sigma) / 2.0
    most = np.maximum(1.0, np.maximum(2.0 * np.exp(-half_square), 4.0 * np.exp(-4.0 * half_square)))
    return _Blocks(sigma, shift.astype(np.int64), 1.0 / (2.0 * sigma * sigma), (1.0 - 2.0**-20) / most)


def _at(values: npt.NDArray[Number], places: Integers) -> npt.NDArray[Number]:
    """Return the values of places, or the one of all."""
    return values if values.size == 1 else values[places]


def _propose(proposals: Proposals, places: Integers, source: RandomBits) -> tuple[Integers, Integers]:
    """Make one proposal for each place; return the indices of those accepted, and their values."""
    words, kept, values = source.words(3 * places.size).reshape(3, -1), list[Integers](), list[Integers]()
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
    (offsets, runs, uniforms), shift = words, _at(proposals.shift, places)
    block, signed = _ones(runs, source), offsets.view(np.int64)
    value = block.astype(np.int64)
    value <<= shift
    value += signed & ((1 << shift) - 1)
    # The top bit is the sign; offsets have at most 50. In two's complement x ^ -1 is -x - 1.
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


def _chance(value: Integers, block: Counts, rate: FloatArray, scale: FloatArray) -> FloatArray:
    """Return p of each proposal within 2^-48, float64 of shape (n,)."""
    exponent = np.square(value.astype(np.float64))
    exponent *= -rate
    chance: FloatArray = np.ldexp(np.exp(exponent, out=exponent), block)
    chance *= scale
    return chance


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


def _chance_bounds(value: int, block: int, sigma: float, scale: float) -> Bounds:
    """Yield ever closer bounds of scale 2^block exp(-t)."""
    exponent, factor = Fraction(value) ** 2 / (2 * Fraction(sigma) ** 2), 2**block * Fraction(scale)
    for digits in count(40, 20):
        low, high = _exp_bounds(exponent, digits)
        yield factor * low, factor * high


def _exp_bounds(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds below and above exp(-exponent), relatively about 10^-digits apart."""
    context = Context(prec=digits + 5, Emin=MIN_EMIN, Emax=MAX_EMAX)
    # Decimal's division and exp are correctly rounded: each is within one unit of the last digit.
    rounded = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    # The unary minus would round to the precision of the thread's own context.
    near = Fraction(context.exp(rounded.copy_negate()))
    slack = near * (exponent + 1) * Fraction(4, 10 ** (digits + 4))
    return near - slack, near + slack
