"""Ciphertexts and keys as TenSEAL writes them, and at the length at which they travel."""

from __future__ import annotations

from privfed.protocols.ckks.cipher import PADDED_BYTES


def padded(data: bytes) -> bytes:
    """Return what TenSEAL wrote at the length that travels; what is shorter than ours fits too."""
    return (data + b"\x80").ljust(PADDED_BYTES, b"\0")


def unpadded(data: bytes) -> bytes:
    """Return what TenSEAL wrote."""
    return data.rstrip(b"\0")[:-1]
