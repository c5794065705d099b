"""Unambiguous byte strings and their hashes: a tag, and all that it is bound to."""

from __future__ import annotations

import hashlib


def bound(tag: str, *parts: bytes | int) -> bytes:
    """Encode a tag and the values that it is bound to as one unambiguous byte string.

    Numbers take eight bytes; byte strings are prefixed with their length.
    """
    pieces = [tag.encode().ljust(16, b"\0")]
    for part in parts:
        if isinstance(part, int):
            pieces.append(part.to_bytes(8, "big"))
        else:
            pieces += [len(part).to_bytes(8, "big"), part]
    return b"".join(pieces)


def digest(tag: str, *parts: bytes | int) -> bytes:
    """Return SHA-256 of a tag and its parts, 32 bytes."""
    return hashlib.sha256(bound(tag, *parts)).digest()
