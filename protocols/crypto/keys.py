"""Identities, key agreement and key derivation of masked sums.

X25519 (RFC 7748), Ed25519 (RFC 8032), HKDF-SHA256 (RFC 5869), AES-256-GCM. Every derivation names
its tag and all that it is bound to, in fields of fixed length or with their length before them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from privfed.errors import ArgumentError

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
RECEIPT_BYTES = 16
SERVER = 0xFFFFFFFF
"""The coordinator's number where a party is named in four bytes."""


_ORDER_8 = 325606250916557431795983626356110631294008115727848805560023387167927233504
_OTHER_OF_ORDER_8 = 39382357235489614581723060781553021112529911719440698176882885853963445705823
_PRIME = 2**255 - 19
_SMALL_ORDER = frozenset({0, 1, _ORDER_8, _OTHER_OF_ORDER_8, _PRIME - 1, _PRIME, _PRIME + 1})
"""The points of small order on the curve and its twist, all their encodings, without the top bit."""


class CryptographyError(Exception):
    """A signature, tag or key does not hold; callers turn it into an error that names the sender."""


def bound(tag: str, *parts: bytes | int) -> bytes:
    """Return one unambiguous byte string for a tag and what it is bound to.

    Numbers take eight bytes; byte strings have their length before them.
    """
    pieces = [tag.encode().ljust(16, b"\0")]
    for part in parts:
        if isinstance(part, int):
            pieces.append(part.to_bytes(8, "big"))
        else:
            pieces += [len(part).to_bytes(8, "big"), part]
    return b"".join(pieces)


@lru_cache(maxsize=256)
def bound_prefix(tag: str, *parts: bytes | int) -> bytes:
    """Return `bound` of what is the same for all clients of a sum; nothing secret goes in here."""
    return bound(tag, *parts)


def with_numbers(prefix: bytes, *numbers: int) -> bytes:
    """Return a prefix with numbers of eight bytes after it."""
    return prefix + struct.pack(f">{len(numbers)}Q", *numbers)


def digest(tag: str, *parts: bytes | int) -> bytes:
    """Return SHA-256 of a tag and its parts, 32 bytes."""
    return hashlib.sha256(bound(tag, *parts)).digest()


def expand(key: bytes, info: bytes) -> bytes:
    """Return 32 bytes derived from a uniform key (HKDF-Expand)."""
    return HKDFExpand(SHA256(), KEY_BYTES, info).derive(key)


def extract(shared: bytes, info: bytes) -> bytes:
    """Return 32 bytes derived from an X25519 result (HKDF)."""
    return HKDF(SHA256(), KEY_BYTES, None, info).derive(shared)


def mac(key: bytes, info: bytes) -> bytes:
    """Return a receipt: HMAC-SHA256, cut to 16 bytes."""
    return hmac.digest(key, info, "sha256")[:RECEIPT_BYTES]


def equal(a: bytes, b: bytes) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(a, b)


def new_secret() -> bytes:
    """Return 32 bytes of the operating system's generator."""
    return secrets.token_bytes(KEY_BYTES)


def public_key(secret: bytes) -> bytes:
    """Return the X25519 public key of a secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes | X25519PrivateKey, public: bytes) -> bytes:
    """Return the X25519 result of a secret, as bytes or parsed, and a public key.

    Raises:
        CryptographyError: the public key is malformed, or of small order (an all-zero result).
    """
    try:
        return parsed(secret).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise CryptographyError("unusable public key") from None


def parsed(secret: bytes | X25519PrivateKey) -> X25519PrivateKey:
    """Return a secret X25519 key ready for use; parsing costs as much as an agreement."""
    return X25519PrivateKey.from_private_bytes(secret) if isinstance(secret, bytes) else secret


def check_public_key(public: bytes) -> None:
    """Check that a public key gives an agreement with any secret.

    Raises:
        CryptographyError: it is malformed, or of small order.
    """
    if len(public) != KEY_BYTES or int.from_bytes(public, "little") % 2**255 in _SMALL_ORDER:
        raise CryptographyError("unusable public key")


def seal(key: bytes, plaintext: bytes | memoryview, associated: bytes) -> bytes:
    """Encrypt and authenticate; a random nonce goes before the ciphertext."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plaintext, associated)


def unseal(key: bytes, sealed: bytes | memoryview, associated: bytes) -> bytes:
    """Decrypt and check what `seal` made.

    Raises:
        CryptographyError: another key, other associated data, or altered bytes.
    """
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise CryptographyError("shorter than a nonce and a tag")
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag:
        raise CryptographyError("does not authenticate") from None


@dataclass(frozen=True, slots=True)
class Identity:
    """A party's long-term Ed25519 key. The secret is never shown.

    Args:
        secret: 32 bytes.
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
        CryptographyError: it does not hold.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise CryptographyError("signature does not hold") from None


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is who: the public identities that the parties exchanged before the fit.

    Whoever writes the registry decides who takes part; parties compare its digest among themselves.

    Args:
        clients: public key of each client, by position.
        server: public key of the coordinator.
    """

    clients: tuple[bytes, ...]
    server: bytes

    def __post_init__(self) -> None:
        if any(len(key) != KEY_BYTES for key in (*self.clients, self.server)):
            raise ArgumentError("a registry needs Ed25519 public keys of 32 bytes.")
        if len(set(self.clients)) != len(self.clients):
            raise ArgumentError("a registry names each client's key once.")

    def digest(self) -> bytes:
        """Return SHA-256 of the registry, 32 bytes."""
        return digest("registry", self.server, *self.clients)
