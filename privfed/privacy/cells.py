"""Exact discrete Gaussian noise of one wide sigma, most of it looked up in a table.

Sigma is at least 2^20 steps, and w = 2^k the power of two for which sigma / w is in [32, 64). Cell c holds
the integers x with c w <= y < (c + 1) w, where y is x, or -x - 1 of a negative x. Let t = x^2 / (2
sigma^2), and P(x) = H exp(-t) for a constant H.

1. Propose. A uniform number of 14 bits chooses one of T = 2^14 entries. Cell c has n_c of them, and the
   rest has e. An entry of a cell proposes a uniform y of the cell, with a fair sign, and is accepted
   always. So it gives each x of the cell with probability n_c h, h = 1 / (2 T w). n_c is P((c + 1) w),
   rounded down: at most P(x), since |x| <= (c + 1) w.
2. The rest makes up for P(x) - n_c. It proposes as `privfed.privacy.rejection` says, with blocks of W = 64
   w, and accepts with probability p = (P(x) - n_c) 2^b / M, M = e / 128. So x comes out of it with
   probability (e / T) 2^-(b+1) / (2 W) p = h (P(x) - n_c), and of both with h P(x): the discrete Gaussian.
3. A rejected proposal begins anew. More proposals are made than draws: those accepted behind the last draw
   take the rejected ones' places, in their order. Which places these are does not depend on values.

H is the largest of a list for which p <= 1. In a cell that holds if P(c w) - n_c <= M 2^-b, which is
checked for 40 blocks. Beyond them P falls by more than half from block to block, as W > sigma. Rounded down
and checked is with 2^-30 to spare for rounding. At least 93 % of proposals are of cells.

Float error of p. Let e = 2^-53. The computed P is P (1 + d), |d| <= (6.2 t + 9.2) e, as in the sampler.
Difference and quotient round once more each. As W > sigma, 2^b exp(-t) <= exp(0.694 s - s^2 / 2) for s =
|x| / sigma: below 1.28, and times t below 1.13. With H / M < 64, which a test checks, |computed - p| < (64
(6.2 * 1.13 + 9.2 * 1.28) + 2) e < 2^-42, as the comparison with U takes it.

Time: as in the sampler; the entry of the table that is read follows from the draw.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.privacy.rejection import Bounds, Counts, Integers, RandomBits, exp_bounds, propose

LEAST_WIDE, LEAST_DRAWS = 2.0**20, 1 << 10
"""Sigma from which on there are cells, and number of draws from which on a table is worth making."""

_BITS, _INNER = 14, 6
"""log2 of the number of entries, and of cells in a block."""

_MANY = 1 << 15
_PART = 1 << 13
"""Words that are drawn at a time, and those that stay in the processor's cache with what is looked up."""

_REST = -1


class Cells(NamedTuple):
    """The table of one sigma."""

    sigma: float
    width: int
    """log2 of the width w of a cell."""
    table: Integers
    """Least y of each entry's cell, -1 for the rest; shape (T,)."""
    counts: FloatArray
    """n_c of each cell, then one zero."""
    height: float
    """The constant H."""
    rest: int
    """The number e of entries of the rest."""

    @property
    def shift(self) -> Integers:
        """log2 of the width W of a block, of the rest."""
        return np.array([self.width + _INNER])

    def chance(self, places: Integers, value: Integers, block: Counts) -> FloatArray:
        """Return p of each proposal of the rest, within 2^-42."""
        exponent = np.square(value.astype(np.float64))
        exponent *= -1.0 / (2.0 * self.sigma * self.sigma)
        found = np.exp(exponent, out=exponent)
        found *= self.height
        found -= self.counts.take((value ^ (value >> 63)) >> self.width, mode="clip")
        return np.asarray(np.ldexp(found, block + 7) / self.rest)

    def bounds(self, place: int, value: int, block: int) -> Bounds:
        """Yield bounds of p for one proposal of the rest."""
        exponent = Fraction(value) ** 2 / (2 * Fraction(self.sigma) ** 2)
        cell = min((value ^ (value >> 63)) >> self.width, len(self.counts) - 1)
        factor, below = Fraction(2**block * 128, self.rest), Fraction(float(self.counts[cell]))
        for digits in count(40, 20):
            low, high = exp_bounds(exponent, digits)
            yield (
                factor * (Fraction(self.height) * low - below),
                factor * (Fraction(self.height) * high - below),
            )


def draw_wide(sigma: float, size: int, source: RandomBits) -> Integers:
    """Return draws of the discrete Gaussian of a sigma from `LEAST_WIDE` on, int64 of shape (size,)."""
    cells = cells_of(sigma)
    # At most 5.5 % are rejected: hardly ever does the surplus not reach.
    drawn, rest = _looked_up(cells, size + size // 16 + 64, source)
    kept, values = propose(cells, rest, source)
    drawn[rest[kept]] = values
    rejected = np.delete(rest, kept)
    places = rejected[rejected < size]
    surplus = np.delete(drawn[size:], rejected[rejected >= size] - size)
    n_missing = max(0, len(places) - len(surplus))
    further = draw_wide(sigma, n_missing, source) if n_missing else surplus[:0]
    drawn[places] = np.concatenate([surplus, further])[: len(places)]
    return drawn[:size]


@lru_cache(maxsize=32)
def cells_of(sigma: float) -> Cells:
    """Return the table of a sigma."""
    width = math.frexp(sigma)[1] - 1 - 5
    cell, size = np.arange(40 << _INNER), 1 << _BITS
    least, most = (np.exp(-np.square((cell + far) / math.ldexp(sigma, -width)) / 2.0) for far in (1, 0))
    lost, area = 1.0 - 2.0**-30, math.sqrt(math.pi / 2.0) * math.ldexp(sigma, -width)
    heights = (np.arange(1.0, 0.5, -0.0025) * size / area).tolist()
    tried = ((one, np.floor(one * least * lost)) for one in heights)
    # In each cell at most M 2^-b.
    height, counts, rest = next(
        (height, counts, size - int(counts.sum()))
        for height, counts in tried
        if (np.ldexp(height * most - counts, (cell >> _INNER) + 7) <= (size - counts.sum()) * lost).all()
    )
    used, table = counts[counts > 0], np.full(size, _REST)
    table[: size - rest] = np.repeat(cell[: len(used)] << width, used.astype(np.int64))
    return Cells(sigma, width, table, np.append(used, 0.0), height, rest)


def _looked_up(cells: Cells, size: int, source: RandomBits) -> tuple[Integers, Integers]:
    """Return draws of cells, and where entries of the rest stand in their place."""
    drawn, rest = np.empty(size, dtype=np.int64), list[Integers]()
    for start in range(0, size, _MANY):
        words = source.words(min(_MANY, size - start)).view(np.int64)
        for first in range(0, len(words), _PART):
            own = words[first : first + _PART]
            found = drawn[start + first : start + first + len(own)]
            entry = own >> cells.width
            entry &= (1 << _BITS) - 1
            cells.table.take(entry, out=found, mode="clip")
            rest.append(np.flatnonzero(found < 0) + (start + first))
            found += own & ((1 << cells.width) - 1)
            # The top bit is the sign. In two's complement x ^ -1 is -x - 1.
            found ^= own >> 63
    return drawn, np.concatenate(rest)
