"""Exact Skellam noise on the integers, from random bits, whole arrays at a time.

`skellam` draws the difference of two independent Poisson variables of mean mu / 2 each: x has probability
P(x) = exp(-mu) I_x(mu) and variance mu, and a sum of independent draws is Skellam with the sum of their
variances, exactly. Agarwal, Kairouz and Liu 2021 (arXiv 2110.04995) proposed it as noise. mu is the rational
number that its float64 represents, at least 2^20 (a standard deviation of 1024 steps; below, choose a finer
grid or the discrete Gaussian) and at most 2^100. No rounding affects a draw.

The method is that of `privfed.privacy.rejection`, with the sampler's blocks for sigma = sqrt(mu) and
p = C 2^b P(x) / P(0). Let s = |x| / sigma, q = (x / mu)^2 = s^2 / mu and v = w / sigma in (0.589, 1.178]. The
float C is 1 - 2^-16 over the largest 2^b exp(-b^2 v^2 / 2), for a b of 0, 1 or 2. P falls from 0 on and is
log-concave, as a convolution of Poisson probabilities: so p is largest at |x| = b w, and 2^b P(b w) falls
from b = 2 on if it does from 2 to 3. By the formula below, ln P(x) / P(0) is within 2^-19 of -s^2 / 2 up to
s = 2 v, and 2 P(3 w) < P(2 w) as 5 v^2 / 2 > 0.86 > ln 2: so p <= 1.

P(x). Shift the path of I_x(mu) = int exp(mu cos z) cos(x z) dz / 2 pi to the saddle, z = a + i asinh(x / mu)
with a in [-pi, pi]. With r^2 = x^2 + mu^2 and c = x / r,

    I_x(mu) = exp(r - x asinh(x / mu)) / pi * int_0^pi exp(-r (1 - cos a)) cos(x (a - sin a)) da.

Let u = 2 sin(a / 2). Then 1 - cos a = u^2 / 2, and J = da / du = 1 + u^2 / 8 + 3 u^4 / 128 + ... and
A = a - sin a = u^3 / 6 + u^5 / 80 + ... have positive coefficients only. So for u <= 1 the remainder of each
series is at most its value at 1 times its first power of u. With y = r c A the integrand is
exp(-r u^2 / 2) J cos y. Keep of J, J y^2 / 2 and J y^4 / 24 the terms in u^0, u^2, u^4; r^2 u^6, r^2 u^8; and
r^4 u^12. The remainders are at most 0.0063 u^6, 0.00125 r^2 u^10, 0.00002 r^4 u^14 and, of the cosine,
J y^6 / 720 < 5.7e-8 r^6 u^18. Integrals of powers are moments of N(0, 1 / r), and so

    I_x(mu) = exp(r - x asinh(x / mu)) / sqrt(2 pi r) * (D + e),
    D = 1 + (3 - 5 c^2) / (24 r) + (81 - 462 c^2 + 385 c^4) / (1152 r^2),

Debye's first terms (DLMF 10.41.3), and |e| <= (0.10 + 1.19 + 2.71 + 1.97) / r^3 < 6 / r^3 for all x; the part
of the integral beyond u = 1 is below exp(-r / 3). This gives P(x) / P(0) within a relative 13 / mu^3.

Float formula. Expanding in q and 1 / mu,

    ln P(x) / P(0) = -(x^2 / 2 mu) (1 + 1 / (2 mu) + 13 / (24 mu^2) - q (1 / 12 + 1 / (4 mu)) + q^2 / 40) + f,

|f| <= (s^8 / 179 + s^6 / 12 + s^4 / 2 + s^2 / 2 + 13) / mu^3 for q < 1; the bracket is above 0.9 for all q.
With b <= s / 0.589, p <= exp(1.18 s - 0.45 s^2), so that p |f| < 120 / mu^3 < 2^-53; for q >= 1 both p and
its formula are below 2^-1000. In floats, with e = 2^-53, the exponent t has a relative error below 12 e, exp
one of 8 e, C and the product add 2 e: (12 t + 10) p e < 60 e, as t p < 4. So |computed - p| < 2^-46: where
the sampler lets floats decide (U at least 2^-40 from p), they decide as real numbers would. Elsewhere bounds
from D and 13 / mu^3 decide, in rational numbers. Where these do not, further bits of U and closer bounds do:
for one proposal in 2^55 at mu = 2^20, in 2^115 at 2^40. The bounds come from the recurrence I_{j+1} / I_j = 1
/ (2 (j + 1) / mu + I_{j+2} / I_{j+1}) from a large j down, with outward rounding.

Time: as in the sampler; deciding a close case takes milliseconds, and is rarer than one proposal in 2^38.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from itertools import count
from typing import NamedTuple

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.rejection import Bounds, Counts, Integers, RandomBits, draw

LEAST_VARIANCE, MOST_VARIANCE = 2.0**20, 2.0**100
"""Least and largest variance of a draw, in steps squared."""

_DIGITS = 130


def skellam(variance: FloatArray | float, size: int | tuple[int, ...], source: RandomBits) -> Integers:
    """Draw independent integers from symmetric Skellam distributions, exactly.

    Property: the sum of draws with variances v and w is distributed as one draw with variance v + w.

    Args:
        variance: of each draw, in steps squared of the grid, in [2^20, 2^100]; broadcasts to `size`.
        size: shape of the result.
        source: `SecureBits()` for noise that is claimed.

    Returns:
        int64 of shape `size`; never clipped.

    Raises:
        ArgumentError: a variance is not in [2^20, 2^100].
    """
    variances = np.broadcast_to(np.asarray(variance, dtype=np.float64), size).ravel()
    inside = (variances >= LEAST_VARIANCE) & (variances <= MOST_VARIANCE)
    if not inside.all():
        raise ArgumentError(
            f"variances of Skellam noise must lie in [2^20, 2^100] steps squared, got "
            f"{variances[~inside][0]:g}. "
            'Choose a finer step for the grid, or mechanism="gaussian".'
        )
    return draw(_blocks, variances, variances.size, source).reshape(size)


class _Blocks(NamedTuple):
    """Proposal and acceptance of values for each variance; arrays of shape (n,)."""

    variance: FloatArray
    shift: Integers
    terms: FloatArray
    """Coefficients of x^2, x^4 and x^6 in ln P(x) / P(0), shape (3, n)."""
    scale: FloatArray
    """The constant C."""

    def chance(self, places: Integers, value: Integers, block: Counts) -> FloatArray:
        """Return p of each proposal within 2^-46."""
        square = np.square(value.astype(np.float64))
        first, second, third = (term[places] for term in self.terms)
        third *= square
        third += second
        third *= square
        third += first
        third *= square
        chance: FloatArray = np.ldexp(np.exp(third, out=third), block)
        chance *= self.scale[places]
        return chance

    def bounds(self, place: int, value: int, block: int) -> Bounds:
        """Yield bounds of p for one proposal."""
        size, variance = abs(value), float(self.variance[place])
        factor = 2**block * Fraction(float(self.scale[place]))
        yield _scaled(factor, _expansion(size, variance))
        for digits in count(40, 20):
            yield _scaled(factor, _recurrence(size, variance, digits))


def _blocks(variance: FloatArray) -> _Blocks:
    sigma, inverse = np.sqrt(variance), 1.0 / variance
    shift = np.frexp(0.589 * sigma)[1].astype(np.int64)
    half_square = np.square(np.ldexp(1.0, shift)) * inverse / 2.0
    most = np.maximum(1.0, np.maximum(2.0 * np.exp(-half_square), 4.0 * np.exp(-4.0 * half_square)))
    terms = np.stack(
        [
            -0.5 * inverse * (1.0 + inverse * (1.0 / 2.0 + inverse * (13.0 / 24.0))),
            0.5 * inverse**3 * (1.0 / 12.0 + inverse / 4.0),
            -(inverse**5) / 80.0,
        ]
    )
    return _Blocks(variance, shift, terms, (1.0 - 2.0**-16) / most)


def _scaled(factor: Fraction, bounds: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    return factor * bounds[0], factor * bounds[1]


def _expansion(x: int, variance: float) -> tuple[Fraction, Fraction]:
    """Return bounds of P(x) / P(0) by Debye's expansion, relatively 26 / mu^3 apart."""
    with localcontext(Context(prec=_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX)):
        mu = Decimal(variance)
        r = (mu * mu + x * x).sqrt()
        # r - mu - x asinh(x / mu), without cancellation; x < 2^63 costs 19 of the digits.
        exponent = x * x / (r + mu) - x * ((x + r) / mu).ln()
        near = Fraction((exponent - (r / mu).ln() / 2).exp() * _debye(x, r) / _debye(0, mu))
    slack = near * (13 / Fraction(variance) ** 3 + Fraction(1, 10 ** (_DIGITS - 30)))
    return near - slack, near + slack


def _debye(x: int, r: Decimal) -> Decimal:
    """Return D of the module docstring."""
    square = (x / r) ** 2
    return 1 + (3 - 5 * square) / (24 * r) + (81 - square * (462 - 385 * square)) / (1152 * r * r)


def _recurrence(x: int, variance: float, digits: int) -> tuple[Fraction, Fraction]:
    """Return bounds of P(x) / P(0), relatively about 10^-digits apart, from ratios of Bessel functions.

    This takes x + sqrt(2.4 digits mu) + digits steps: a minute at a variance of 2^40, more than a year at
    2^80, where only one proposal in 2^235 needs it.
    """
    down, up = (
        Context(prec=digits + 20, rounding=way, Emin=MIN_EMIN, Emax=MAX_EMAX)
        for way in (ROUND_FLOOR, ROUND_CEILING)
    )
    one, mu = Decimal(1), Decimal(variance)
    # Bounds of I_{j+1} / I_j; the initial uncertainty shrinks with the squared product of the ratios.
    low, high, least, most = Decimal(0), one, one, one
    for j in range(x + math.isqrt(int(2.4 * digits * variance)) + digits, -1, -1):
        twice = Decimal(2 * (j + 1))
        low, high = (
            down.divide(one, up.add(up.divide(twice, mu), high)),
            min(one, up.divide(one, down.add(down.divide(twice, mu), low))),
        )
        if j < x:
            least, most = down.multiply(least, low), up.multiply(most, high)
    return Fraction(least), Fraction(most)
