"""The grid of encrypted sums: statistics as integers in the slots of ciphertexts.

Each entry has a quantisation step, a power of two fixed by the entry's range and the size of the cohort: no
total of the cohort overflows its slot. An entry whose step in one slot would be coarser than its resolution
is cut into limbs, over as many slots as it needs. The grid appends the number of rows and entries that were
clipped, and one who-slot for each member of the cohort, which is 1 in the client's own.

Property: decode(sum of encode(x_i)) == sum of round(x_i / step) * step, for any part of the cohort.

Noise and limbs. Clients see the total of each limb, which tells more than the value that all limbs stand
for: also how often low limbs carried into high ones, which depends on single answers. If each client's
noise is wide compared with everything below the highest limb, the lower limbs are uniform given the total
and reveal nothing (docs/protocols/ckks.md); `grid_of` enforces that. If the server adds the noise, answers
have none of their own, and an entry may have only one limb.

The parameters of encrypted sums, and what one slot of a ciphertext can hold for a cohort of n clients.

All sums use one ring of degree 8192 (4096 real slots) with two primes of 55 bits, one of which SEAL
reserves for itself. These are 110 bits in all; the Homomorphic Encryption Standard allows 218 for 128-bit
security with a ternary key (Albrecht et al. 2018, table 1), and TenSEAL refuses more. With 55 bits the top
byte of each word is zero and compresses away: a ciphertext has about 123.5 kB, 30 bytes a slot.

Slots hold integers. The scale is the smallest power of two at which neighbouring integers are at least 32
standard deviations apart, for the noise of n added ciphertexts. A total then rounds to the right integer;
a value further than a quarter of a step (8 standard deviations) from any integer is not a sum of n
ciphertexts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, hypot, log2, sqrt

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import question_from_bytes
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Mechanism
from privfed.errors import ArgumentError, IntegrityError
from privfed.privacy.accounting import LEAST_SIGMA
from privfed.privacy.noised import Noised
from privfed.protocols.crypto.fixed_point import steps

RING = 8192
SLOTS = RING // 2
PRIME_BITS = 55

NOISE = 3.2 * sqrt(RING / 2)
"""Standard deviation of one fresh ciphertext's noise in a slot, before the scale is divided out.

SEAL draws each of the 8192 coefficients with standard deviation 3.2; a real slot is the real part of
a combination of all of them with factors of size one.
"""

DITHER = 3.0 * sqrt(RING)
"""Standard deviation, in the same unit, of the dither on each ciphertext of a sum that the server noises.

Independent Gaussians in all real slots are independent Gaussians in all coefficients; these have a
standard deviation of 3 (the constant coefficient has 4.2).
"""

NOISE_MARGIN = 32
"""Standard deviations of a total's noise between neighbouring integers."""

MAX_CLIENTS = 1 << 16


@dataclass(frozen=True)
class Capacity:
    """Computes what a slot can hold when `n_clients` ciphertexts are added.

    Args:
        n_clients: most ciphertexts in a sum, 1 to 65,536.
        dithered: whether each ciphertext is dithered.

    Raises:
        ArgumentError: `n_clients` is out of that range.
    """

    n_clients: int
    dithered: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_clients <= MAX_CLIENTS:
            raise ArgumentError(
                f"an encrypted sum is for 1 to {MAX_CLIENTS} clients, got {self.n_clients}; "
                "ask fewer a round."
            )

    @property
    def scale_bits(self) -> int:
        """Bits of the scale: 2^scale_bits >= 32 * noise * sqrt(n), with noise and dither of a ciphertext."""
        noise = hypot(NOISE, DITHER) if self.dithered else NOISE
        return ceil(log2(NOISE_MARGIN * noise * sqrt(self.n_clients)))

    @property
    def total_bits(self) -> int:
        """Bits of a slot's total: |total| <= 2^total_bits, half of what the prime can hold."""
        return PRIME_BITS - 2 - self.scale_bits

    @property
    def limb_bits(self) -> int:
        """Bits of a limb of one client's answer: the sum of n limbs is at most 2^total_bits."""
        return floor(self.total_bits - log2(self.n_clients))


Slots = npt.NDArray[np.int64]

MAX_LIMBS = 6

_ONE_SLOT = (
    '; under noise="server" a total must fit one slot, as limbs of exact answers would tell of them. '
    'protocol="group-masked" has room for more'
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Holds a decoded total.

    Args:
        vector: the statistics, float64 of shape (spec.size,).
        clipped: rows and entries that were clipped.
        places: whose answers are in it, as places in the cohort, ascending.
    """

    vector: FloatArray
    clipped: int
    places: tuple[int, ...]


class SlotGrid:
    """Encodes and decodes the answers to one question, for a cohort of `n_clients` clients.

    Args:
        spec: layout, ranges and resolutions of one client's answer.
        n_clients: size of the cohort.
        reach: how far the server's noise can move each value, float64 of shape (spec.size,); None if the
            server adds none. The noise counts as one more ciphertext in the sum.

    Attributes:
        capacity: what a slot can hold.
        step: quantisation steps, powers of two, float64 of shape (spec.size,).
        limbs: number of slots of each entry, int64 of shape (spec.size,).
        entries: number of slots of the statistics; those that the grid appends follow.
        size: number of slots of an answer.

    Raises:
        ArgumentError: a total would not fit, or all limbs are coarser than an entry's resolution.
    """

    def __init__(self, spec: StatisticsSpec, n_clients: int, reach: FloatArray | None = None) -> None:
        by_server = reach is not None
        self.capacity = Capacity(n_clients + by_server, dithered=by_server)
        most_limbs = 1 if by_server else MAX_LIMBS
        with np.errstate(over="ignore"):
            largest = n_clients * np.maximum(np.abs(spec.low), np.abs(spec.high))
            largest = largest if reach is None else largest + reach
        self.limbs = np.ones(spec.size, dtype=np.int64)
        self.step = np.where(largest > 0, self._steps(largest, 1), spec.resolution)
        for n_limbs in range(2, most_limbs + 1):
            coarse = self.step > spec.resolution
            if not coarse.any():
                break
            self.limbs[coarse] = n_limbs
            self.step[coarse] = self._steps(largest[coarse], n_limbs)
        if (self.step > spec.resolution).any():
            entry = int(np.argmax(self.step > spec.resolution))
            raise ArgumentError(
                f"an encrypted sum over {n_clients} clients needs more than {self._bits(most_limbs)} bits "
                f"for entry {entry} (largest total {largest[entry]:.3g}, resolution "
                f"{spec.resolution[entry]:.3g}); declare a smaller domain or max_rows, or ask fewer "
                f"clients a round{_ONE_SLOT if by_server else ''}.",
                parameters=["max_rows"],
            )
        self.entries = int(self.limbs.sum())
        self.size = self.entries + 1 + n_clients

    def _bits(self, n_limbs: int) -> int:
        # Low limbs are unsigned and leave room for the sum of n of them; the highest limb has a whole slot.
        return self.capacity.total_bits + (n_limbs - 1) * self.capacity.limb_bits

    def _steps(self, largest: FloatArray, n_limbs: int) -> FloatArray:
        # One bit is left over: it takes the rounding of n answers.
        return steps(largest, self._bits(n_limbs) - 1)

    def encode(self, vector: FloatArray, clipped: int, place: int) -> Slots:
        """Return the slots of a client's answer.

        Args:
            vector: the statistics inside their ranges, float64 of shape (spec.size,).
            clipped: rows and entries that were clipped.
            place: the client's place in the cohort.

        Returns:
            int64 of shape (size,).
        """
        slots = np.zeros(self.size, dtype=np.int64)
        limb_bits, start = self.capacity.limb_bits, 0
        rest = np.rint(vector / self.step)
        left = self.limbs
        while rest.size:
            # Division by a power of two, floor and the difference are exact in float64.
            above = np.floor(np.ldexp(rest, -limb_bits))
            limb = np.where(left > 1, rest - np.ldexp(above, limb_bits), rest)
            slots[start : start + limb.size] = limb.astype(np.int64)
            start += limb.size
            rest, left = above[left > 1], left[left > 1] - 1
        slots[start] = min(clipped, (1 << limb_bits) - 1)
        slots[start + 1 + place] = 1
        return slots

    def decode(self, totals: Slots) -> Decoded:
        """Decode a total of slots, int64 of shape (size,).

        Raises:
            IntegrityError: a who-slot is neither 0 nor 1, or the number clipped is negative.
        """
        who, clipped = totals[self.entries + 1 :], int(totals[self.entries])
        if clipped < 0 or not np.isin(who, (0, 1)).all():
            raise IntegrityError(
                "an opened sum does not hold each client once at most, though its check words are right. A "
                "client wrote a wrong entry; a coordinator that no client helps cannot do this. Which client "
                "it was cannot be told. The fit ends; begin a new one without clients that you do not trust."
            )
        return Decoded(self._values(totals), clipped, tuple(np.flatnonzero(who).tolist()))

    def _values(self, totals: Slots) -> FloatArray:
        lowest = totals[: len(self.limbs)]
        values = lowest.astype(np.float64)
        several = self.limbs > 1
        if several.any():
            # Python integers are exact: a value of several limbs is rounded to float64 only once.
            exact, start = lowest.astype(object), len(self.limbs)
            for level in range(1, int(self.limbs.max())):
                holders = np.flatnonzero(self.limbs > level)
                above = totals[start : start + len(holders)].astype(object)
                exact[holders] += above << (level * self.capacity.limb_bits)
                start += len(holders)
            values[several] = exact[several].astype(np.float64)
        scaled: FloatArray = values * self.step
        return scaled


@lru_cache(maxsize=32)
def grid_of(question: bytes, n_clients: int) -> SlotGrid:
    """Return the grid of an encoded question for a cohort of `n_clients` clients.

    Raises:
        ArgumentError: a total would not fit, or its limbs would reveal more than the total.
    """
    asked = question_from_bytes(question)
    if not isinstance(asked, Noised):
        return SlotGrid(asked.spec, n_clients)
    grid = SlotGrid(asked.spec, n_clients, asked.noise_reach if asked.by_server else None)
    # A client's noise must hide what lies below the highest limb (see the module docstring).
    if asked.mechanism != Mechanism.GAUSSIAN and (grid.limbs > 1).any():
        raise ArgumentError(
            f"there is no proof that the limbs of an encrypted sum under {asked.mechanism} noise reveal no "
            'more than the total; use mechanism="gaussian", or protocol="group-masked".'
        )
    below = np.ldexp(grid.step / asked.spec.resolution, (grid.limbs - 1) * grid.capacity.limb_bits)
    needed = np.where(grid.limbs > 1, LEAST_SIGMA * below, 0.0)
    if (asked.shares < needed).any():
        entry = int(np.argmax(needed / asked.shares))
        raise ArgumentError(
            f"a client's noise in entry {entry} has a standard deviation of {asked.shares[entry]:.3g} steps, "
            f"but its limbs in an encrypted sum need {needed[entry]:.3g}: they would reveal more than the "
            'total. Declare a smaller max_rows, claim a smaller epsilon, or use protocol="group-masked".',
            parameters=["max_rows"],
        )
    return grid
