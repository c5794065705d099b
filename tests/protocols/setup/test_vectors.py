"""The vectors of docs/protocols/vectors.json: what another implementation must come to, from the same keys.

`python -m tests.protocols.setup.test_vectors` draws new ones and writes the file.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    agree,
    bound,
    decapsulate,
    encapsulate,
    encapsulation_key,
    expand,
    new_secret,
    new_seed,
    public_key,
)
from privfed.protocols.masked.bindings import pair_of
from privfed.protocols.setup import hybrid
from privfed.protocols.setup.bindings import _session
from privfed.protocols.setup.journal_counter import hash_of, signed
from privfed.protocols.setup.messages import Listed, RosterRequest

FILE = Path(__file__).parents[3] / "docs" / "protocols" / "vectors.json"


def set_up(given: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the given keys and ciphertexts of a set-up of two clients."""
    agreement, fit = bytes.fromhex(given["agreement"]), bytes.fromhex(given["fit"])
    x25519, seeds = ({who: bytes.fromhex(one) for who, one in given[name].items()} for name in ("c", "e"))
    keys = {who: public_key(one) for who, one in x25519.items()}
    offered = {who: encapsulation_key(one) for who, one in seeds.items()}
    counter = bytes.fromhex(given["journal counter of 0"])
    counters = (counter, b"")
    listed = tuple(
        Listed(i, keys[str(i)], hash_of(offered[str(i)]), b"", one) for i, one in enumerate(counters)
    )
    session = _session(agreement, fit, listed)
    to_1, to_s = bytes.fromhex(given["ciphertext 0 to 1"]), bytes.fromhex(given["ciphertext 0 to S"])
    agreed = agree(x25519["0"], keys["1"])
    assert agreed == agree(x25519["1"], keys["0"])
    pair, tag = hybrid._keys(agreed, decapsulate(seeds["1"], to_1), session, 0, 1, to_1)
    roster = RosterRequest(listed, keys["S"], offered["S"], b"")
    where = (x25519["S"], seeds["S"], keys["0"], roster, session, 0)
    channel = hybrid.channel_from(*where, to_s)
    derived = pair_of(pair, session)
    return {
        "C": {who: one.hex() for who, one in keys.items()},
        "H(E)": {who: hash_of(one).hex() for who, one in offered.items()},
        "signed by 0": signed(0, fit, agreement, keys["0"], hash_of(offered["0"]), counter).hex(),
        "session": session.hex(),
        "X25519": agreed.hex(),
        "encapsulated": decapsulate(seeds["1"], to_1).hex(),
        "K_01": pair.hex(),
        "MAC of the capsule": tag.hex(),
        "boxes": derived.box.hex(),
        "receipts": derived.receipt.hex(),
        "K_0S": channel.hex(),
        "down": expand(channel, bound("down", session, 0)).hex(),
        "up": expand(channel, bound("up", session, 0)).hex(),
    }


def field(part: bytes | int) -> bytes:
    """Return a number in eight bytes, or bytes with their length before them."""
    return part.to_bytes(8, "big") if isinstance(part, int) else len(part).to_bytes(8, "big") + part


def hashed(tag: str, *parts: bytes | int) -> bytes:
    return hashlib.sha256(tag.encode().ljust(16, b"\0") + b"".join(map(field, parts))).digest()


def hkdf(secret: bytes, tag: str, *parts: bytes | int) -> bytes:
    key = hmac.digest(bytes(32), secret, "sha256")
    info = tag.encode().ljust(16, b"\0") + b"".join(map(field, parts))
    return hmac.digest(key, info + b"\1", "sha256")


def test_the_vectors_follow_from_hashes_alone() -> None:
    """As another implementation would come to them, with X25519 and ML-KEM-768 done."""
    vectors = json.loads(FILE.read_text())["set-up"]
    given, follows = vectors["given"], {k: v for k, v in vectors["follows"].items() if isinstance(v, str)}
    read = {name: bytes.fromhex(one) for name, one in follows.items()}
    public, ciphertext = vectors["follows"]["C"], bytes.fromhex(given["ciphertext 0 to 1"])
    hashes, counters = vectors["follows"]["H(E)"], (bytes.fromhex(given["journal counter of 0"]), b"")
    parts = [
        part
        for i in range(2)
        for part in (i, bytes.fromhex(public[str(i)]), bytes.fromhex(hashes[str(i)]), counters[i])
    ]
    session = hashed("session", bytes.fromhex(given["agreement"]), bytes.fromhex(given["fit"]), *parts)
    assert session == read["session"]
    both, of_text = read["X25519"] + read["encapsulated"], hashed("ciphertext", ciphertext)
    assert hkdf(both, "pair", session, 0, 1, of_text) == read["K_01"]


def test_a_set_up_comes_to_what_the_vectors_say() -> None:
    vectors = json.loads(FILE.read_text())["set-up"]
    assert set_up(vectors["given"]) == vectors["follows"]


def drawn() -> dict[str, Any]:
    """Return fresh keys and ciphertexts."""
    seeds = {who: new_seed() for who in "01S"}
    return {
        "agreement": new_secret().hex(),
        "fit": new_secret().hex(),
        "journal counter of 0": ((7).to_bytes(8, "big") + bytes(KEY_BYTES)).hex(),
        "c": {who: new_secret().hex() for who in "01S"},
        "e": {who: one.hex() for who, one in seeds.items()},
        "ciphertext 0 to 1": encapsulate(encapsulation_key(seeds["1"]))[1].hex(),
        "ciphertext 0 to S": encapsulate(encapsulation_key(seeds["S"]))[1].hex(),
    }


if __name__ == "__main__":
    given = drawn()
    FILE.write_text(json.dumps({"set-up": {"given": given, "follows": set_up(given)}}, indent=2) + "\n")
