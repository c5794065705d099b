"""The keys that two clients share for a fit; above `FULL_GRAPH` clients derived when first needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privfed.protocols.crypto.keys import KEY_BYTES, agree, bound, expand, extract, parsed
from privfed.protocols.crypto.shared import APART, Shared, once
from privfed.protocols.masked.state import Fit, Pair
from privfed.protocols.setup.bindings import part
from privfed.protocols.setup.messages import Listed


def with_pairs(keys: Fit, me: int, clients: Sequence[int], shared: Shared = APART) -> Fit:
    """Agree on keys with those of `clients` who take part and have no key with client `me` yet."""
    new = [j for j in clients if j not in keys.pairs and any(part(keys.listed, j, KEY_BYTES))]
    if not new:
        return keys
    own, mine = parsed(keys.secret), part(keys.listed, me, KEY_BYTES)
    pairs, held = {}, shared.held("pair", keys.session)
    for j in new:
        public = part(keys.listed, j, KEY_BYTES)
        agreed = partial(pair_of, own, me, j, public, keys.session)
        ends = (me, mine, j, public) if me < j else (j, public, me, mine)
        pairs[j] = once(held, ends, agreed)
    return msgspec.structs.replace(keys, pairs=keys.pairs | pairs)


def pair_of(key: bytes | X25519PrivateKey, me: int, other: int, public: bytes, session: bytes) -> Pair:
    """Return the keys that client `me` shares with another, from its secret key and the public one."""
    low, high = sorted((me, other))
    base = extract(agree(key, public), bound("pair", session, low, high))
    return Pair(expand(base, bound("boxes", session)), expand(base, bound("receipts", session)))


@lru_cache(maxsize=2)
def public_keys(listed: tuple[Listed, ...], n: int) -> bytes:
    """Return the public keys of a list, by position: 32 bytes for each of n clients, zeros for the others."""
    keys = {one.client: one.key for one in listed}
    return b"".join([keys.get(client, bytes(KEY_BYTES)) for client in range(n)])
