"""The attack of Li and Micciancio (Eurocrypt 2021, ia.cr/2020/1533) on the decryptions of a CKKS key.

A decryption is m = c0 + c1 s modulo q with its noise. Who sees m as it is, and the ciphertext, solves for
the secret key s. TenSEAL shows real parts only, the slots of m(X) + m(1/X): two unknowns for each
pair of roots, and so two decryptions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tenseal.sealapi as seal

from privfed.core.values.domain import FloatArray
from privfed.protocols.ckks.grid import PRIME_BITS, RING

Residues = npt.NDArray[np.object_]
"""Python integers modulo the prime, shape (RING,): a polynomial at psi^(2t + 1), for each t."""

PRIME = int(seal.CoeffModulus.Create(RING, [PRIME_BITS, PRIME_BITS])[0].value())


def _root() -> int:
    """Return the smallest primitive root of order 2 * RING, which SEAL evaluates polynomials at."""
    for base in range(2, 100):
        psi = pow(base, (PRIME - 1) // (2 * RING), PRIME)
        if pow(psi, RING, PRIME) == PRIME - 1:
            break
    square = psi * psi % PRIME
    return min(psi * pow(square, t, PRIME) % PRIME for t in range(RING))


PSI = _root()
_BITS = RING.bit_length() - 1
_REVERSED = np.array([int(f"{i:0{_BITS}b}"[::-1], 2) for i in range(RING)])


def words(polynomial: Any, start: int = 0) -> Residues:
    """Return a polynomial that SEAL holds, one word for each root, in the order of t."""
    stored = np.array([polynomial[start + i] for i in range(RING)], dtype=object)
    return stored[_REVERSED]


def evaluate(coefficients: Residues) -> Residues:
    """Return a polynomial's values at psi^(2t + 1), for each t."""
    powers = np.array([pow(PSI, j, PRIME) for j in range(RING)], dtype=object)
    return _transform(coefficients * powers % PRIME, PSI * PSI % PRIME)


def _transform(values: Residues, root: int) -> Residues:
    if len(values) == 1:
        return values
    even, odd = (_transform(values[start::2], root * root % PRIME) for start in (0, 1))
    twiddles = np.array([pow(root, t, PRIME) for t in range(len(even))], dtype=object)
    odd = odd * twiddles % PRIME
    return np.concatenate([(even + odd) % PRIME, (even - odd) % PRIME])


def doubled_real_part(slots: FloatArray, scale: float) -> Residues:
    """Return m(X) + m(1/X) at all roots, from the real parts of the slots of m."""
    # Slot k is the value at exp(i pi 3^k / RING), its conjugate the value at the inverse.
    exponents = np.array([pow(3, k, 2 * RING) for k in range(RING // 2)])
    values = np.zeros(2 * RING)
    values[exponents] = values[2 * RING - exponents] = 2 * scale * slots
    spectrum = np.fft.fft(values[1::2]) * np.exp(-1j * np.pi * np.arange(RING) / RING)
    coefficients = np.rint(spectrum.real / RING).astype(np.int64)
    return evaluate(coefficients.astype(object) % PRIME)


def recover_key(first: tuple[Any, FloatArray], second: tuple[Any, FloatArray], scale: float) -> Residues:
    """Return the secret key at all roots, from two ciphertexts of one key and what they decrypt to.

    Args:
        first: a ciphertext as SEAL holds it, and its real slots, float64 of shape (4096,).
        second: another.
        scale: of both.
    """
    knowns, own, mirrored = [], [], []
    for ciphertext, slots in (first, second):
        c0, c1 = words(ciphertext), words(ciphertext, RING)
        # Evaluation at psi^-(2t + 1) is that at place RING - 1 - t.
        knowns.append((doubled_real_part(slots, scale) - c0 - c0[::-1]) % PRIME)
        own.append(c1)
        mirrored.append(c1[::-1])
    determinant = (own[0] * mirrored[1] - own[1] * mirrored[0]) % PRIME
    inverse = np.array([pow(one, -1, PRIME) for one in determinant], dtype=object)
    key: Residues = (knowns[0] * mirrored[1] - knowns[1] * mirrored[0]) % PRIME * inverse % PRIME
    return key
