"""Ciphertexts: vectors of integers that clients encrypt and decrypt, and the server adds without a key.

This is the only module that calls TenSEAL. The key is symmetric: every client holds it, the server holds
only the parameters. A fresh ciphertext has a sixth of the noise of one under a public key, and takes half
the time.

TenSEAL's raw decryption of CKKS leaks the key: its last bits are the ciphertext's noise, and noise and
ciphertext together determine the key (Li and Micciancio 2021, ia.cr/2020/1533). `Key.decrypt` therefore
rounds to integers, which the noise does not change, and the raw decryption never leaves it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import tenseal

from privfed.core.values.domain import FloatArray
from privfed.errors import IntegrityError
from privfed.privacy.sampler import SecureBits, discrete_gaussian
from privfed.protocols.ckks.grid import DITHER, PRIME_BITS, RING, SLOTS, Capacity, Slots
from privfed.protocols.crypto.keys import CryptographyError

PADDED_BYTES = 123_904
"""Bytes of a ciphertext of 4096 slots, and of a key, when they are sent.

TenSEAL compresses them to about 123,530 and 123,590 bytes, with a standard deviation of 19; padding makes
the lengths of messages the same in every run.
"""

_FINE = 20
"""Fractional bits of a dither, below the integers that coefficients are rounded to."""

FARTHEST = 0.25
"""Largest distance of a decrypted total from an integer."""

Ciphertexts = tuple[bytes, ...]
"""A vector of slots under encryption: one ciphertext for each 4096 slots."""


def chunks(size: int) -> int:
    """Return how many ciphertexts a vector of `size` slots needs."""
    return -(-size // SLOTS)


class Key:
    """Holds the key that the clients share for one fit. Its repr hides it, and the server never has it."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __repr__(self) -> str:
        return "Key(...)"

    @classmethod
    def generate(cls) -> Key:
        """Return a fresh key; SEAL seeds its generator from the operating system."""
        return cls(_new_context())

    def to_bytes(self) -> bytes:
        """Encode parameters and secret key in PADDED_BYTES bytes, without Galois and relinearisation keys."""
        return _padded(_serialized(self._context, secret=True))

    @classmethod
    def from_bytes(cls, data: bytes) -> Key:
        """Decode a key.

        Raises:
            CryptographyError: `data` is malformed, has no secret key or has other keys, or its parameters
                are not the agreed ones.
        """
        context = _parsed(tenseal.context_from, data)
        if not context.is_private() or context.has_galois_keys() or context.has_relin_keys():
            raise CryptographyError("not a secret key alone")
        if _serialized(context, secret=False) != parameters():
            raise CryptographyError("a key of other parameters")
        return cls(context)

    def encrypt(self, slots: Slots, capacity: Capacity) -> Ciphertexts:
        """Encrypt integers, int64 of shape (size,), at the scale that fits a cohort."""
        scale = 2.0**capacity.scale_bits
        vectors = [tenseal.ckks_vector(self._context, row, scale=scale) for row in _rows(slots, capacity)]
        return tuple(_padded(vector.serialize()) for vector in vectors)

    def decrypt(self, ciphertexts: Ciphertexts, capacity: Capacity, size: int) -> Slots:
        """Decrypt a total and round it to integers, int64 of shape (size,).

        Raises:
            CryptographyError: the ciphertexts are malformed, or of other parameters.
            IntegrityError: a value is further than a quarter from an integer, or exceeds a slot: the key is
                another, or this is not a sum of at most `capacity.n_clients` ciphertexts.
        """
        if len(ciphertexts) != chunks(size):
            raise CryptographyError(f"{len(ciphertexts)} ciphertexts for {size} slots")
        vectors = _read(self._context, ciphertexts, 2.0**capacity.scale_bits)
        opened = np.concatenate([np.asarray(vector.decrypt()) for vector in vectors])[:size]
        rounded = np.rint(opened)
        near = np.abs(opened - rounded) <= FARTHEST
        if not (near & (np.abs(rounded) <= 2.0**capacity.total_bits)).all():
            raise IntegrityError(
                "an opened sum lies off the grid: it was encrypted under another key, or it is not a sum of "
                f"at most {capacity.n_clients} ciphertexts. The fit ends and its key is erased."
            )
        slots: Slots = rounded.astype(np.int64)
        return slots


class CipherSum:
    """Adds ciphertexts as they arrive, without a key and in the memory of one answer.

    The first answer fixes the number of ciphertexts and their scale.
    """

    def __init__(self) -> None:
        self._total: list[Any] = []

    def add(self, ciphertexts: Ciphertexts) -> None:
        """Add one answer.

        Raises:
            CryptographyError: the answer is malformed, of other parameters, or unlike the first; then it
                is not added.
        """
        if not ciphertexts or len(self._total) not in (0, len(ciphertexts)):
            raise CryptographyError(f"{len(ciphertexts)} ciphertexts to add to {len(self._total)}")
        scale = self._total[0].ciphertext()[0].scale if self._total else None
        vectors = _read(_public_context(), ciphertexts, scale)
        for total, vector in zip(self._total, vectors, strict=False):
            total += vector
        self._total = self._total or vectors

    def total(self) -> Ciphertexts:
        """Return the total; without ciphertexts if nothing was added."""
        return tuple(_padded(vector.serialize()) for vector in self._total)


def with_noise(ciphertexts: Ciphertexts, noise: Slots, capacity: Capacity) -> Ciphertexts:
    """Add integers, int64 of shape (size,), to an encrypted total, without a key.

    Raises:
        CryptographyError: the total does not have that size and scale.
    """
    if len(ciphertexts) != chunks(len(noise)):
        raise CryptographyError(f"{len(ciphertexts)} ciphertexts for {len(noise)} slots")
    vectors = _read(_public_context(), ciphertexts, 2.0**capacity.scale_bits)
    rows = _rows(noise, capacity).tolist()
    return tuple(_padded((vector + row).serialize()) for vector, row in zip(vectors, rows, strict=True))


def _rows(slots: Slots, capacity: Capacity) -> FloatArray:
    """Return slots as rows of 4096, dithered where the capacity says so.

    Encoding rounds each coefficient of a plaintext, and the rounding error depends on the plaintext: a
    client that decrypts a total could test guesses of single answers against it. Gaussian noise of standard
    deviation 3, added to each coefficient before rounding, makes the distribution of the encoded sum depend
    on the sum of the plaintexts only (docs/protocols/ckks.md).
    """
    rows = np.zeros((chunks(len(slots)), SLOTS))
    rows.flat[: len(slots)] = slots
    if capacity.dithered:
        unit = 2.0 ** -(capacity.scale_bits + _FINE)
        rows += discrete_gaussian(DITHER * 2.0**_FINE, rows.shape, SecureBits()) * unit
    return rows


def _read(context: Any, ciphertexts: Ciphertexts, scale: float | None) -> list[Any]:
    """Parse ciphertexts of the context's parameters, all at `scale`, or at the first one's if it is None."""
    vectors = [_parsed(partial(tenseal.ckks_vector_from, context), one) for one in ciphertexts]
    for vector in vectors:
        parts = vector.ciphertext()
        if vector.shape != [SLOTS] or len(parts) != 1:
            raise CryptographyError(f"not one ciphertext of {SLOTS} slots")
        scale = parts[0].scale if scale is None else scale
        if parts[0].scale != scale:
            raise CryptographyError(f"a ciphertext at the scale {parts[0].scale:g}, not {scale:g}")
    return vectors


@lru_cache(maxsize=1)
def parameters() -> bytes:
    """Return the encoded parameters, which both sides know and which contain no key."""
    return _serialized(_new_context(), secret=False)


@lru_cache(maxsize=1)
def _public_context() -> Any:
    return tenseal.context_from(parameters())


def _new_context() -> Any:
    return tenseal.context(
        tenseal.SCHEME_TYPE.CKKS,
        RING,
        coeff_mod_bit_sizes=[PRIME_BITS, PRIME_BITS],
        encryption_type=tenseal.ENCRYPTION_TYPE.SYMMETRIC,
    )


def _serialized(context: Any, secret: bool) -> bytes:
    data: bytes = context.serialize(
        save_secret_key=secret, save_public_key=False, save_galois_keys=False, save_relin_keys=False
    )
    return data


def _padded(data: bytes) -> bytes:
    if len(data) >= PADDED_BYTES:
        raise CryptographyError(f"this TenSEAL makes {len(data)} bytes, and {PADDED_BYTES} are agreed on")
    return (data + b"\x80").ljust(PADDED_BYTES, b"\0")


def _parsed(parse: Callable[[bytes], Any], padded: bytes) -> Any:
    """Parse what `_padded` made, after checking its size."""
    data = padded.rstrip(b"\0")
    if len(padded) != PADDED_BYTES or not data.endswith(b"\x80"):
        raise CryptographyError(f"{len(padded)} bytes, not {PADDED_BYTES} with their padding")
    try:
        return parse(data[:-1])
    except (ValueError, RuntimeError):
        # The library's own message may quote the bytes that it read, so it is not passed on.
        raise CryptographyError("does not parse under these parameters") from None
