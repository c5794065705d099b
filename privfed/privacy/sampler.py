"""Exact discrete Gaussian noise on the integers, from random bits, whole arrays at a time.

`discrete_gaussian` draws x with probability proportional to exp(-x^2 / (2 sigma^2)), exactly: sigma is
the rational number that its float64 is, and no rounding decides a draw. Samplers that round a float
leave a support and tails that betray the noiseless value (Mironov 2012, doi 10.1145/2382196.2382264;
Jin et al. 2021, arXiv 2112.05307). The distribution is that of Canonne, Kamath and Steinke 2020 (arXiv
2004.00010, definition 1); the method is a rejection of its own:

1. Propose. Let w be the smallest power of two above 1.1775 sigma, at least 1. Draw a block b with
   probability 2^-(b+1) (the ones before the first zero of fair bits), an offset o uniform on [0, w)
   and a sign; x = b w + o with this sign. Minus zero is drawn again.
2. Accept with probability p = 2^b exp(-t), t = x^2 / (2 sigma^2). It is at most 1: |x| >= b w and
   w > sigma sqrt(2 ln 2) give t >= b^2 ln 2 >= b ln 2.
3. For that, compare p with a uniform U in [0, 1) of as many bits as it takes.

Float error of step 3. Let e = 2^-53, q the computed p and u the first 64 bits of U as a float. Rounding x,
squaring, rounding 1 / (2 sigma^2) and multiplying give t (1 + d) with |d| <= 6.1 e, which moves exp(-t)
by a factor within 1 +- 6.2 t e; numpy's exp is within 8 e (2 ulp at most), the factor 2^b is exact, so
|q - p| <= (6.2 t p + 8.1 p) e. As b <= sqrt(t / ln 2), t p <= t exp(sqrt(t ln 2) - t) < 0.93, so
|q - p| < 14 e < 2^-49; a result below float64's normal range is off by less still. And |u - U| <= 2^-54 +
2^-64. Where |u - q| > 2^-40, then, floats decide as real numbers do, with a factor of 500 to spare; elsewhere
(one proposal in 2^39) rational bounds of p and further bits of U decide.

Time: how many proposals a draw takes is independent of its value, as in any rejection sampler; but exp
and memory are not promised to take constant time.
"""

from __future__ import annotations

import os
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privfed.core.domain import FloatArray
from privfed.errors import ArgumentError

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

MOST_SIGMA = 2.0**50
"""Largest standard deviation, in steps: draws stay within int64."""

_MARGIN = 2.0**-40
_BLOCK = 1 << 14
_MOST_TRIES = 8
_START = bytes(16)
_ONE, _ALL_ONES = np.uint64(1), np.uint64(2**64 - 1)


class RandomBits(Protocol):
    """A source of independent fair bits."""

    def words(self, size: int) -> Words:
        """Return `size` words of 64 fresh bits, uint64 of shape (size,)."""


class SecureBits:
    """Bits of AES-256-CTR, under a key that the operating system's generator gives for each call.

    It holds no state: two processes that were forked apart, or two copies, never share a bit. Whoever
    cannot tell AES-256-CTR from random learns nothing from the bits: noise made of them is
    computationally, not absolutely, private.
    """

    def words(self, size: int) -> Words:
        """Return `size` words of 64 fresh bits, uint64 of shape (size,)."""
        stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(_START)).encryptor()
        return np.frombuffer(stream.update(bytes(8 * size)), dtype="<u8")


class RehearsalBits:
    """Bits of a simulation's generator: they repeat with its seed, and noise of them protects nobody.

    Args:
        generator: where the bits come from.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def words(self, size: int) -> Words:
        """Return the generator's next `size` words, uint64 of shape (size,)."""
        return self._generator.integers(0, 2**64, size=size, dtype=np.uint64)


def discrete_gaussian(sigma: FloatArray | float, size: int | tuple[int, ...], source: RandomBits) -> Integers:
    """Draw independent integers from discrete Gaussians with mean 0, exactly.

    The standard deviation of a draw is at most sigma, and equal to it within 1e-7 from sigma = 1 on.

    Args:
        sigma: parameter of each draw, in steps of the grid, in (0, 2^50]; broadcasts to `size`.
        size: shape of the result.
        source: `SecureBits()` for noise that is claimed.

    Returns:
        int64 of shape `size`; never clipped.

    Raises:
        ArgumentError: a sigma is not in (0, 2^50].
    """
    sigmas = np.broadcast_to(np.asarray(sigma, dtype=np.float64), size).ravel()
    if not ((sigmas > 0) & (sigmas <= MOST_SIGMA)).all():
        wrong = sigmas[~((sigmas > 0) & (sigmas <= MOST_SIGMA))][0]
        raise ArgumentError(
            f"sigma must lie in (0, 2^50] steps, got {wrong:g}; below it choose a finer step, above it a coarser."
        )
    blocks = [_draw(sigmas[start : start + _BLOCK], source) for start in range(0, sigmas.size, _BLOCK)]
    return np.concatenate([np.empty(0, dtype=np.int64), *blocks]).reshape(size)


def _draw(sigma: FloatArray, source: RandomBits) -> Integers:
    """Return one draw for each sigma, int64 of shape (n,)."""
    shift = np.maximum(np.frexp(1.1775 * sigma)[1], 0).astype(np.int64)
    drawn = np.empty(sigma.size, dtype=np.int64)
    pending = np.arange(sigma.size)
    while pending.size:
        # Several proposals at once for the last few: numpy's calls then cost more than the arithmetic.
        tries = min(_MOST_TRIES, max(1, _BLOCK // (8 * pending.size)))
        proposals, accepted = _propose(sigma[pending], shift[pending], tries, source)
        done = accepted.any(axis=0)
        first = accepted.argmax(axis=0)[done]
        drawn[pending[done]] = proposals[first, np.flatnonzero(done)]
        pending = pending[~done]
    return drawn


def _propose(
    sigma: FloatArray, shift: Integers, tries: int, source: RandomBits
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return proposals and whether each is accepted, both of shape (tries, n)."""
    places, blocks, uniforms = source.words(3 * tries * sigma.size).reshape(3, tries, sigma.size)
    block = _ones(blocks, source)
    # The top bit is the sign; offsets have at most 51 bits.
    size = (block << shift) + (places.view(np.int64) & ((1 << shift) - 1))
    negative = places.view(np.int64) < 0
    square = size.astype(np.float64) ** 2
    chance = np.ldexp(np.exp(-square * (1.0 / (2.0 * sigma * sigma))), block)
    gap = chance - uniforms * 2.0**-64
    accepted = gap > 0
    for row, column in np.argwhere(np.abs(gap) <= _MARGIN):
        accepted[row, column] = _accepts(
            int(size[row, column]), int(block[row, column]), float(sigma[column]), int(uniforms[row, column]), source
        )
    accepted &= ~(negative & (size == 0))
    return np.where(negative, -size, size), accepted


def _ones(words: Words, source: RandomBits) -> Integers:
    """Count the fair ones before the first zero, int64 of the words' shape; a full word is continued."""
    ones = np.bitwise_count(words & ~(words + _ONE)).astype(np.int64)
    full = words == _ALL_ONES
    if full.any():
        ones[full] += _ones(source.words(int(full.sum())), source)
    return ones


def _accepts(size: int, block: int, sigma: float, uniform: int, source: RandomBits) -> bool:
    """Decide exactly whether a U that starts with the 64 bits of `uniform` is below 2^block exp(-t)."""
    exponent = Fraction(size) ** 2 / (2 * Fraction(sigma) ** 2)
    bits, digits = 64, 40
    while True:
        low, high = (2**block * bound for bound in _exp_bounds(exponent, digits))
        if Fraction(uniform + 1, 2**bits) <= low:
            return True
        if Fraction(uniform, 2**bits) >= high:
            return False
        uniform, bits, digits = (uniform << 64) + int(source.words(1)[0]), bits + 64, digits + 20


def _exp_bounds(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Return rational bounds below and above exp(-exponent), relatively about 10^-digits apart."""
    context = Context(prec=digits + 5, Emin=MIN_EMIN, Emax=MAX_EMAX)
    # Decimal's division and exp are correctly rounded: each is within one unit of the last digit.
    rounded = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    near = Fraction(context.exp(-rounded))
    slack = near * (exponent + 1) * Fraction(4, 10 ** (digits + 4))
    return near - slack, near + slack
