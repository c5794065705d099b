"""Keys that two parties agree on by X25519 and ML-KEM-768 together: secret while either of the two holds.

    K_ij = HKDF(X25519(c_i, C_j) | what the one encapsulated to the other; session, min, max, H(ciphertext))

One of two clients encapsulates, and the coordinator says which; its ciphertext goes through the coordinator,
with a MAC under K_ij that the other checks before any use. Without that MAC the coordinator could give both
ends ciphertexts of its own, have them talk under keys that differ, and open both sides once X25519 falls. The
session hashes the signed keys of all. Between a client and the coordinator the client encapsulates. Whatever
else is sealed for somebody, as totals that a node passes on, is sealed the same way (`seal_to`).

The coordinator keeps who encapsulates to whom, and what waits for whom (`Pairing`). It relays signed keys
and ciphertexts, and learns none of the keys that they give.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import (
    APART,
    CIPHERTEXT_BYTES,
    KEY_BYTES,
    RECEIPT_BYTES,
    Shared,
    agree,
    bound,
    combine_secrets,
    decapsulate,
    digest,
    encapsulate,
    encapsulation_key,
    equal,
    expand,
    grown,
    new_secret,
    new_seed,
    once,
    parsed,
    public_key,
    seal,
    unseal,
)
from privfed.protocols.setup.advertising import hash_of
from privfed.protocols.setup.setup_messages import Capsule, Listed, Offered, Slot, part


class Hidden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a client's state whose repr shows no secret."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class Keyring(Hidden, frozen=True):
    """Holds what a client needs to agree on keys with other clients of the list.

    Args:
        listed: public X25519 keys of all clients by position, zeros for those not on the list.
        hashes: hashes of their ML-KEM-768 keys, likewise.
        signers: their Ed25519 keys of the fit, likewise.
        secret: secret X25519 key of the fit while keys with any client may be agreed on; else empty.
        halves: the X25519 results with those that no key is agreed with yet, where `secret` is empty.
        seed: seed of the client's ML-KEM-768 key, until a key is agreed on with everyone; then empty.
        sent: by position, what this client encapsulated last: asked again, it sends the same.
    """

    listed: bytes = b""
    hashes: bytes = b""
    signers: bytes = b""
    secret: bytes = b""
    halves: dict[int, bytes] = {}
    seed: bytes = b""
    sent: dict[int, Capsule] = {}


@lru_cache(maxsize=2)
def _by_position(listed: tuple[Listed, ...], n: int) -> tuple[bytes, bytes, bytes]:
    by_client, nothing = {one.client: (one.key, one.encapsulation, one.signing) for one in listed}, bytes(32)
    chosen = [by_client.get(client, (nothing,) * 3) for client in range(n)]
    keys, hashes, signers = map(b"".join, zip(*chosen, strict=True))
    return keys, hashes, signers


def keyring(
    secret: bytes,
    seed: bytes,
    me: int,
    listed: tuple[Listed, ...],
    n: int,
    session: bytes,
    *,
    whole: bool,
    shared: Shared = APART,
) -> Keyring:
    """Return what a client keeps of its fresh keys once it has the list.

    Args:
        secret: secret X25519 key of the fit.
        seed: seed of the client's ML-KEM-768 key.
        me: the client's position.
        listed: the clients of the list.
        n: how many clients the agreement has.
        session: the fit's session.
        whole: whether keys are agreed on with everyone at the set-up, so that the secret key can go now.
        shared: in a simulation, what it would compute as others do.
    """
    ring = Keyring(*_by_position(listed, n), secret, seed=seed)
    if not whole:
        return ring
    own = parsed(secret)
    halves = {
        one.client: _agreed(ring, own, me, one.client, session, shared) for one in listed if one.client != me
    }
    return msgspec.structs.replace(ring, secret=b"", halves=halves)


def _agreed(
    ring: Keyring, own: X25519PrivateKey, me: int, other: int, session: bytes, shared: Shared
) -> bytes:
    """Return the X25519 result with another client.

    Raises:
        CryptographyError: its key is of small order.
    """
    theirs = part(ring.listed, other, KEY_BYTES)
    ends = tuple(sorted(((me, part(ring.listed, me, KEY_BYTES)), (other, theirs))))
    return once(shared.kept("half", session), ends, partial(agree, own, theirs))


def agreed_on(
    ring: Keyring,
    session: bytes,
    me: int,
    known: Container[int],
    offered: Sequence[Offered],
    capsules: Sequence[Capsule],
    shared: Shared = APART,
) -> tuple[Keyring, dict[int, bytes], tuple[Capsule, ...]]:
    """Agree on keys with clients of the list that this one has none with yet.

    A capsule whose MAC is wrong gives no key, as if its sender took no part. The first that is right counts.

    Args:
        ring: what the client keeps.
        session: the fit's session.
        me: the client's position.
        known: clients that a key is agreed on with.
        offered: ML-KEM-768 keys of those that it encapsulates to.
        capsules: what others encapsulated to it.
        shared: in a simulation, what others left.

    Returns:
        What it keeps then, the new keys by position, and what it encapsulated.

    Raises:
        PolicyError: an offered key is not the listed one.
    """
    if not (offered or capsules or ring.sent):
        return ring, {}, ()
    own = parsed(ring.secret) if ring.secret else None
    kept, keys = shared.kept("capsule", session), dict[int, bytes]()

    def half(other: int) -> bytes | None:
        if own is None:
            return ring.halves.get(other)
        if other == me or not any(part(ring.listed, other, KEY_BYTES)):
            return None
        return _agreed(ring, own, me, other, session, shared)

    def of(sender: int, holder: int, ciphertext: bytes) -> tuple[int, bytes, int, bytes, bytes, bytes]:
        ends = [(j, part(ring.listed, j, KEY_BYTES)) for j in (sender, holder)]
        return *ends[0], *ends[1], part(ring.hashes, holder, KEY_BYTES), ciphertext

    opening = grown(ring.seed) if ring.seed and any(one.client not in known for one in capsules) else None
    for one in capsules:
        j = one.client
        agreed = None if j in known or j in keys else half(j)
        if agreed is None or opening is None:
            continue
        left = kept.pop(of(j, me, one.ciphertext), None)
        key, tag = left or _keys(agreed, decapsulate(opening, one.ciphertext), session, j, me, one.ciphertext)
        if equal(tag, one.tag):
            keys[j] = key
    sent = dict[int, Capsule]()
    for offer in offered:
        j = offer.client
        if not equal(hash_of(offer.key), part(ring.hashes, j, KEY_BYTES)):
            raise PolicyError("roster:key")
        if j in ring.sent:
            sent[j] = ring.sent[j]
            continue
        agreed = None if j in known or j in keys else half(j)
        if agreed is None:
            continue
        secret, ciphertext = encapsulate(offer.key)
        key, tag = _keys(agreed, secret, session, me, j, ciphertext)
        kept[of(me, j, ciphertext)] = key, tag
        keys[j], sent[j] = key, Capsule(j, ciphertext, tag)
    halves = {j: one for j, one in ring.halves.items() if j not in keys}
    seed = ring.seed if ring.secret or halves else b""
    return msgspec.structs.replace(ring, halves=halves, seed=seed, sent=sent), keys, tuple(sent.values())


def _keys(
    agreed: bytes, encapsulated: bytes, session: bytes, sender: int, holder: int, ciphertext: bytes
) -> tuple[bytes, bytes]:
    """Return K_ij, and the MAC that goes with the ciphertext."""
    low, high = sorted((sender, holder))
    hashed = digest("ciphertext", ciphertext)
    key = combine_secrets(agreed, encapsulated, bound("pair", session, low, high, hashed))
    return key, expand(key, bound("capsule", session, sender, holder, hashed))[:RECEIPT_BYTES]


def key_to(secret: bytes, reader: bytes, *about: str | bytes | int) -> tuple[bytes, bytes]:
    """Return a key for a reader, and the ciphertext that brings it there.

    Args:
        secret: secret X25519 key of the one who encapsulates.
        reader: the reader's public keys, of X25519 and ML-KEM-768.
        about: a tag and all that the key is bound to besides these and the ciphertext.

    Raises:
        CryptographyError: the reader's keys are unusable.
    """
    encapsulated, ciphertext = encapsulate(reader[KEY_BYTES:])
    return _hybrid(agree(secret, reader[:KEY_BYTES]), encapsulated, reader, ciphertext, about), ciphertext


def key_from(
    secret: bytes,
    seed: bytes | MLKEM768PrivateKey,
    public: bytes,
    reader: bytes,
    ciphertext: bytes,
    *about: str | bytes | int,
) -> bytes:
    """Return the same key at the reader, from its secret keys and the public key of the other.

    Raises:
        CryptographyError: a key or the ciphertext is unusable.
    """
    return _hybrid(agree(secret, public), decapsulate(seed, ciphertext), reader, ciphertext, about)


def _hybrid(
    agreed: bytes, encapsulated: bytes, reader: bytes, ciphertext: bytes, about: tuple[Any, ...]
) -> bytes:
    bound_to = *about, reader[:KEY_BYTES], hash_of(reader[KEY_BYTES:]), digest("ciphertext", ciphertext)
    return combine_secrets(agreed, encapsulated, bound(*bound_to))


def new_reader() -> tuple[bytes, bytes]:
    """Return the secret keys of a reader, and the public ones to which others seal."""
    secret, seed = new_secret(), new_seed()
    return secret + seed, public_key(secret) + encapsulation_key(seed)


def seal_to(reader: bytes, plaintext: bytes, *about: str | bytes | int) -> bytes:
    """Seal for a reader: secret while X25519 or ML-KEM-768 holds. It proves no sender.

    Args:
        reader: the public keys of `new_reader`.
        plaintext: what is sealed.
        about: a tag and all that it is bound to.

    Returns:
        A fresh public key, a ciphertext that brings the key, and what was sealed under it.
    """
    secret = new_secret()
    own = public_key(secret)
    key, ciphertext = key_to(secret, reader, *about, own)
    return own + ciphertext + seal(key, plaintext, b"")


def unseal_from(secret: bytes, box: bytes, *about: str | bytes | int) -> bytes:
    """Open what `seal_to` made for the secret keys of `new_reader`; raises `CryptographyError`."""
    (x25519, seed), (own, rest) = ((one[:KEY_BYTES], one[KEY_BYTES:]) for one in (secret, box))
    reader = public_key(x25519) + encapsulation_key(seed)
    key = key_from(x25519, seed, own, reader, rest[:CIPHERTEXT_BYTES], *about, own)
    return unseal(key, rest[CIPHERTEXT_BYTES:], b"")


Ahead = tuple[tuple[Slot, ...], tuple[Offered, ...], tuple[Capsule, ...]]
"""What a request brings for sums to come: which, keys to encapsulate to, and what others encapsulated."""


def encapsulates(one: int, other: int) -> bool:
    """Say whether the first of two clients encapsulates: each does to about half of the others."""
    return (one < other) == ((one + other) % 2 == 0)


class Pairing:
    """Keeps which pairs of clients are to agree on keys, and brings each what it needs for that.

    Args:
        keys: by position, the ML-KEM-768 keys of the listed clients.
    """

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        self._keys = keys
        self._wanted: dict[int, set[int]] = {client: set() for client in keys}
        self._made_by: dict[int, dict[int, int]] = {client: {} for client in keys}
        self._waiting: dict[int, dict[int, Capsule]] = {client: {} for client in keys}
        self._sent: dict[int, tuple[int, ...]] = {}

    def want(self, client: int, others: Iterable[int], *, alone: bool = False) -> None:
        """Have a client agree on a key with each of `others` that is listed; a pair agrees once.

        Args:
            client: position of the client.
            others: positions of the others.
            alone: whether it encapsulates to all with whom no key was wanted before.
        """
        wanted = self._wanted[client]
        for j in others:
            if j in self._keys and j != client and j not in wanted:
                maker = client if alone or encapsulates(client, j) else j
                for one, other in ((client, j), (j, client)):
                    self._wanted[one].add(other)
                    self._made_by[one][other] = maker

    def offered(self, client: int) -> tuple[Offered, ...]:
        """Return the keys of those that a client is to encapsulate to, or has, with the ciphertext lost."""
        lacking = sorted(self._made_by[client].items())
        return tuple([Offered(j, self._keys[j]) for j, maker in lacking if maker == client])

    def awaited(self, client: int) -> frozenset[int]:
        """Return clients whose capsules for this one have not come."""
        return frozenset(j for j, maker in self._made_by[client].items() if j == maker)

    def capsules(self, client: int) -> tuple[Capsule, ...]:
        """Return what others encapsulated to a client, until it has answered."""
        waiting = self._waiting[client]
        self._sent[client] = tuple(waiting)
        return tuple(waiting.values())

    def heard(self, client: int) -> None:
        """Note that a client answered the request that brought it what waited."""
        for sender in self._sent.pop(client, ()):
            self._waiting[client].pop(sender, None)

    def take(self, client: int, capsules: tuple[Capsule, ...], name: str, stage: str) -> None:
        """Keep what a client encapsulated.

        Raises:
            MessageError: it was not asked for it.
        """
        if any(one.client not in self._wanted[client] for one in capsules):
            raise MessageError("a capsule that was not asked for", sender=name, stage=stage)
        for one in capsules:
            if self._made_by[client].get(one.client) == client:
                del self._made_by[client][one.client], self._made_by[one.client][client]
                self._waiting[one.client][client] = Capsule(client, one.ciphertext, one.tag)
