"""Exact discrete Gaussian noise on the integers, from random bits, whole arrays at a time.

`discrete_gaussian` draws x with probability proportional to exp(-x^2 / (2 sigma^2)), exactly: sigma is
the rational number that its float64 represents, and no rounding affects a draw. Samplers that round floats
have a support and tails that reveal the noiseless value (Mironov 2012, doi 10.1145/2382196.2382264;
Jin et al. 2021, arXiv 2112.05307). The distribution is that of Canonne, Kamath and Steinke 2020 (arXiv
2004.00010, definition 1); the method is our own rejection sampler:

1. Propose (`privfed.privacy.rejection`), in blocks of w, the smallest power of two above 0.589 sigma, at
   least 1.
2. Accept with probability p = C 2^b exp(-t), t = x^2 / (2 sigma^2), for a constant C. The float C lies
   2^-20 below the largest that keeps p at most 1: |x| >= b w, and 2^b exp(-b^2 v^2 / 2), v = w / sigma,
   is largest for a b of 0, 1 or 2, as v^2 > 0.589^2 > 2 ln 2 / 5.
3. To do so, compare p with a uniform U in [0, 1), drawing as many bits of U as the comparison takes.

At least half of the proposals are accepted, a quarter where sigma is far below one step. Many draws of one
wide sigma take a table instead (`privfed.privacy.cells`), of the same distribution.

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
from fractions import Fraction
from itertools import count
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.cells import LEAST_DRAWS, LEAST_WIDE, draw_wide
from privfed.privacy.rejection import Bounds, Counts, Integers, RandomBits, Words, at, draw, exp_bounds

SMALLEST_SIGMA, MOST_SIGMA = 2.0**-50, 2.0**50
"""Between them squares and their inverses are normal numbers, and draws stay within int64, in steps."""

_START = bytes(16)


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
    n = int(np.prod(size))
    if sigmas.size == 1 and sigmas.flat[0] >= LEAST_WIDE and n >= LEAST_DRAWS:
        return draw_wide(float(sigmas.flat[0]), n, source).reshape(size)
    return draw(_blocks, sigmas.ravel(), n, source).reshape(size)


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
        exponent = np.square(value.astype(np.float64))
        exponent *= -at(self.rate, places)
        chance: FloatArray = np.ldexp(np.exp(exponent, out=exponent), block)
        chance *= at(self.scale, places)
        return chance

    def bounds(self, place: int, value: int, block: int) -> Bounds:
        """Yield ever closer bounds of p for one proposal."""
        here = place if self.sigma.size > 1 else 0
        exponent = Fraction(value) ** 2 / (2 * Fraction(float(self.sigma[here])) ** 2)
        factor = 2**block * Fraction(float(self.scale[here]))
        for digits in count(40, 20):
            low, high = exp_bounds(exponent, digits)
            yield factor * low, factor * high


def _blocks(sigma: FloatArray) -> _Blocks:
    shift = np.maximum(np.frexp(0.589 * sigma)[1], 0)
    half_square = np.square(np.ldexp(1.0, shift) / sigma) / 2.0
    most = np.maximum(1.0, np.maximum(2.0 * np.exp(-half_square), 4.0 * np.exp(-4.0 * half_square)))
    return _Blocks(sigma, shift.astype(np.int64), 1.0 / (2.0 * sigma * sigma), (1.0 - 2.0**-20) / most)
