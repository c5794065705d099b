"""The parameters of encrypted sums, and what one slot of a ciphertext holds for a cohort of n clients.

One ring for all: degree 8192 (4096 real slots), one prime of 55 bits and one of SEAL's own, 110 bits
in all, where the Homomorphic Encryption Standard allows 218 for 128-bit security with a ternary key
(Albrecht et al. 2018, table 1); TenSEAL refuses more. At 55 bits the top byte of each word is zero,
which its compression takes away: a ciphertext has about 123.5 kB, 30 bytes a slot.

Slots hold integers. The scale is the smallest power of two at which they are 32 standard deviations
of the noise of n added ciphertexts apart: a total is then rounded to the right integer, and one
further than a quarter of a step from any (8 standard deviations) was not made by encryption.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, hypot, log2, sqrt

from privfed.errors import ArgumentError

RING = 8192
SLOTS = RING // 2
PRIME_BITS = 55

NOISE = 3.2 * sqrt(RING / 2)
"""Standard deviation of one fresh ciphertext's noise in a slot, before the scale is divided out.

SEAL draws each of the 8192 coefficients with standard deviation 3.2; a real slot is the real part of
a combination of all of them with factors of size one.
"""

DITHER = 3.0 * sqrt(RING)
"""Standard deviation, likewise, of what each addend of a sum with the server's noise is dithered by.

Independent Gaussians in all real slots are independent Gaussians in all coefficients; these have a
standard deviation of 3 (the constant one of 4.2).
"""

NOISE_MARGIN = 32
"""Standard deviations of a total's noise in one step."""

MAX_CLIENTS = 1 << 16


@dataclass(frozen=True)
class Capacity:
    """What a slot can hold when `n_clients` ciphertexts are added.

    Args:
        n_clients: most ciphertexts in a sum, 1 to 65,536.
        dithered: whether each is dithered.

    Raises:
        ArgumentError: more clients than the parameters were made for.
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
        """Bits of the scale: 2^scale_bits >= 32 * NOISE * sqrt(n), with the dither in NOISE."""
        noise = hypot(NOISE, DITHER) if self.dithered else NOISE
        return ceil(log2(NOISE_MARGIN * noise * sqrt(self.n_clients)))

    @property
    def total_bits(self) -> int:
        """Bits of a slot's total: |total| <= 2^total_bits, half of what the prime would hold."""
        return PRIME_BITS - 2 - self.scale_bits

    @property
    def limb_bits(self) -> int:
        """Bits of a limb of one client's answer: n limbs add to at most 2^total_bits."""
        return floor(self.total_bits - log2(self.n_clients))
