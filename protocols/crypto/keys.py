"""Identities, key agreement and key derivation of masked sums.

X25519 (RFC 7748), ML-KEM-768 (FIPS 203), Ed25519 (RFC 8032), HKDF-SHA256 (RFC 5869), AES-256-GCM.
Every derivation hashes a tag and everything that the key is bound to, in fields of fixed length or prefixed
with their length.

The agreed key of two clients, and all that is derived from it, is the same on both sides. Where one process
simulates both, the second takes what the first computed; every byte that is sent stays the same. A value is
kept under everything that it depends on, so that parties that were told different things share nothing.
"""

from __future__ import annotations

import hmac
import secrets
import struct
from collections.abc import Callable, Hashable, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from privfed.core.stored.encoding import bound as bound
from privfed.core.stored.encoding import digest as digest
from privfed.errors import ArgumentError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
RECEIPT_BYTES = 16
SIGNATURE_BYTES = 64
ENCAPSULATION_BYTES, CIPHERTEXT_BYTES, SEED_BYTES = 1184, 1088, 64
"""Sizes of ML-KEM-768: a public encapsulation key, a ciphertext, and the seed of a secret key."""

SERVER = 0xFFFFFFFF
"""The coordinator's number where a party is named in four bytes."""


_ORDER_8 = 325606250916557431795983626356110631294008115727848805560023387167927233504
_OTHER_OF_ORDER_8 = 39382357235489614581723060781553021112529911719440698176882885853963445705823
_PRIME = 2**255 - 19
_SMALL_ORDER = frozenset({0, 1, _ORDER_8, _OTHER_OF_ORDER_8, _PRIME - 1, _PRIME, _PRIME + 1})
"""All encodings of the points of small order on the curve and its twist, without the top bit."""


class CryptographyError(Exception):
    """Signals an invalid signature, tag or key; callers turn it into an error that names the sender."""


@lru_cache(maxsize=256)
def bound_prefix(tag: str, *parts: bytes | int) -> bytes:
    """Return `bound` of values that all clients of a sum share. They must not be secret: they are cached."""
    return bound(tag, *parts)


def with_numbers(prefix: bytes, *numbers: int) -> bytes:
    """Append numbers in [0, 2^64), of eight bytes each, to a prefix.

    Raises:
        ArgumentError: a number is out of its bounds.
    """
    try:
        return prefix + struct.pack(f">{len(numbers)}Q", *numbers)
    except struct.error:
        raise ArgumentError(f"numbers must be whole and lie in [0, 2^64), got {numbers}.") from None


def expand(key: bytes, info: bytes) -> bytes:
    """Return 32 bytes derived from a uniform key (HKDF-Expand)."""
    return HKDFExpand(SHA256(), KEY_BYTES, info).derive(key)


def combine_secrets(agreed: bytes, encapsulated: bytes, info: bytes) -> bytes:
    """Return 32 bytes that stay secret while either an X25519 result or an ML-KEM-768 secret does (HKDF).

    `info` binds the parties, their public keys (through the session) and the ciphertext.
    """
    return HKDF(SHA256(), KEY_BYTES, None, info).derive(agreed + encapsulated)


def new_seed() -> bytes:
    """Return the seed of a fresh ML-KEM-768 key pair, from the operating system's generator."""
    return secrets.token_bytes(SEED_BYTES)


def encapsulation_key(seed: bytes | MLKEM768PrivateKey) -> bytes:
    """Return the public ML-KEM-768 key of a seed, or of a secret key."""
    return grown(seed).public_key().public_bytes_raw()


def encapsulate(public: bytes) -> tuple[bytes, bytes]:
    """Return a fresh shared secret, and the ciphertext that brings it to the owner of a public key.

    Raises:
        CryptographyError: the public key is malformed.
    """
    try:
        return MLKEM768PublicKey.from_public_bytes(public).encapsulate()
    except ValueError:
        raise CryptographyError("unusable encapsulation key") from None


def grown(seed: bytes | MLKEM768PrivateKey) -> MLKEM768PrivateKey:
    """Return a secret ML-KEM-768 key as an object; making one of its seed costs more than what it is for."""
    return MLKEM768PrivateKey.from_seed_bytes(seed) if isinstance(seed, bytes) else seed


def decapsulate(seed: bytes | MLKEM768PrivateKey, ciphertext: bytes) -> bytes:
    """Return the shared secret in a ciphertext; of one that was altered, another secret.

    Raises:
        CryptographyError: the ciphertext has another length.
    """
    try:
        return grown(seed).decapsulate(ciphertext)
    except ValueError:
        raise CryptographyError("unusable ciphertext") from None


def check_encapsulation_key(public: bytes) -> None:
    """Check that secrets can be encapsulated to a public key.

    Raises:
        CryptographyError: it is malformed.
    """
    try:
        MLKEM768PublicKey.from_public_bytes(public)
    except ValueError:
        raise CryptographyError("unusable encapsulation key") from None


def mac(key: bytes, info: bytes) -> bytes:
    """Return a receipt: HMAC-SHA256, cut to 16 bytes."""
    return hmac.digest(key, info, "sha256")[:RECEIPT_BYTES]


equal: Callable[[bytes, bytes], bool] = hmac.compare_digest
"""Compares in constant time."""


def new_secret() -> bytes:
    """Return 32 bytes from the operating system's generator."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(secret: bytes) -> bytes:
    """Return the X25519 public key of a secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes | X25519PrivateKey, public: bytes) -> bytes:
    """Return the X25519 shared secret of a secret key, as bytes or parsed, and a public key.

    Raises:
        CryptographyError: the public key is malformed, or of small order (an all-zero shared secret).
    """
    try:
        return parsed(secret).exchange(_parsed_public(public))
    except ValueError:
        raise CryptographyError("unusable public key") from None


_parsed_public = lru_cache(maxsize=1024)(X25519PublicKey.from_public_bytes)


def parsed(secret: bytes | X25519PrivateKey) -> X25519PrivateKey:
    """Return a secret X25519 key as an object; parsing one from bytes costs as much as a key agreement."""
    return X25519PrivateKey.from_private_bytes(secret) if isinstance(secret, bytes) else secret


def check_public_key(public: bytes) -> None:
    """Check that a key agreement with a public key works for any secret.

    Raises:
        CryptographyError: it is malformed, or of small order.
    """
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") % 2**255 in _SMALL_ORDER:
        raise CryptographyError("unusable public key")


def seal(key: bytes, plaintext: bytes | memoryview, associated: bytes) -> bytes:
    """Encrypt and authenticate; the result is a random nonce followed by the ciphertext."""
    return bytes(sealed(key, plaintext, associated))


def sealed(key: bytes, plaintext: bytes | memoryview, associated: bytes) -> memoryview:
    """Return what `seal` does, of long texts, which are not copied."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    box = np.empty(NONCE_BYTES + len(plaintext) + TAG_BYTES, dtype=np.uint8).data
    box[:NONCE_BYTES] = nonce
    AESGCM(key).encrypt_into(nonce, plaintext, associated, box[NONCE_BYTES:])
    return box


def unseal(key: bytes, sealed: bytes | memoryview, associated: bytes) -> bytes:
    """Decrypt and authenticate what `seal` made.

    Raises:
        CryptographyError: the key or the associated data differ, or the bytes were altered.
    """
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise CryptographyError("shorter than a nonce and a tag")
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag:
        raise CryptographyError("does not authenticate") from None


@dataclass(frozen=True, slots=True)
class Identity:
    """Holds a party's long-term Ed25519 key. Its representation never shows the secret.

    Args:
        secret: secret key, 32 bytes.
    """

    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Identity:
        """Return a fresh identity from the operating system's generator."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        """Return a signature, 64 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(message)


def verify(public: bytes, signature: bytes, message: bytes) -> None:
    """Check a signature.

    Raises:
        CryptographyError: the signature is not the key's over this message.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise CryptographyError("signature does not hold") from None


def holds(public: bytes, signature: bytes, message: bytes) -> bool:
    """Say whether a signature is a key's over a message."""
    try:
        verify(public, signature, message)
    except CryptographyError:
        return False
    return True


Value = TypeVar("Value")
Kept = MutableMapping[Hashable, Any]

MOST_KEPT = 1 << 18
"""Most values that wait for their second reader."""


class Shared:
    """Keeps what one of two parties computed until the other takes it; on machines of their own, nothing."""

    def kept(self, *of: Hashable) -> Kept:
        """Return the values that were computed and not yet taken.

        Args:
            of: what all of them depend on: their kind, the session, the sum.
        """
        return {}


class InOneProcess(Shared):
    """Parties of one simulation. A value is kept until the second of two parties has taken it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Kept] = {}

    def kept(self, *of: Hashable) -> Kept:
        """Return what the first of two parties left for the second."""
        if of not in self._kept:
            # Of clients that were lost nobody takes their values: in the end all are computed anew.
            full = sum(map(len, self._kept.values())) >= MOST_KEPT
            self._kept = {} if full else {key: left for key, left in self._kept.items() if left}
            self._kept[of] = {}
        return self._kept[of]


def once(kept: Kept, values: Hashable, compute: Callable[[], Value]) -> Value:
    """Take what the other party computed from these values, else compute it and leave it for the other."""
    if values in kept:
        return cast(Value, kept.pop(values))
    found = kept[values] = compute()
    return found


APART = Shared()
