"""The parameters of encrypted sums, and what one slot of a ciphertext can hold for a cohort of n clients.

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
