"""The vectors of docs/protocols/vectors.json: what another implementation must come to, from the same keys.

`python -m tests.protocols.setup.test_vectors` draws new ones and writes the file.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    seal,
    unseal,
)
from privfed.protocols.crypto.keystream import keystream
from privfed.protocols.masked.bindings import (
    BOTH_RECEIPTS,
    block_prefix,
    block_secrets,
    box_binding,
    commitment,
    lock_key,
    pair_of,
    pair_prefix,
    pair_streams,
    ratcheted,
    receipt_from,
    recovery_pad,
    self_stream,
)
from privfed.protocols.masked.client_state import Pair
from privfed.protocols.setup import hybrid
from privfed.protocols.setup.advertising import hash_of, signed, signing_of
from privfed.protocols.setup.setup_messages import Listed, _session

FILE = Path(__file__).parents[3] / "docs" / "protocols" / "vectors.json"


def set_up(given: dict[str, Any]) -> dict[str, Any]:
    """Return what follows from the given keys and ciphertexts of a set-up of two clients."""
    agreement, fit = bytes.fromhex(given["agreement"]), bytes.fromhex(given["fit"])
    x25519, seeds = ({who: bytes.fromhex(one) for who, one in given[name].items()} for name in ("c", "w"))
    keys = {who: public_key(one) for who, one in x25519.items()}
    offered = {who: encapsulation_key(one) for who, one in seeds.items()}
    counter = bytes.fromhex(given["journal counter of 0"])
    counters = (counter, b"")
    signing = [signing_of(x25519[str(i)], fit).public for i in (0, 1)]
    listed = tuple(
        Listed(i, keys[str(i)], hash_of(offered[str(i)]), signing[i], b"", one)
        for i, one in enumerate(counters)
    )
    session = _session(agreement, fit, listed)
    to_1, to_s = bytes.fromhex(given["ciphertext 0 to 1"]), bytes.fromhex(given["ciphertext 0 to S"])
    agreed = agree(x25519["0"], keys["1"])
    assert agreed == agree(x25519["1"], keys["0"])
    pair, tag = hybrid._keys(agreed, decapsulate(seeds["1"], to_1), session, 0, 1, to_1)
    reader = keys["S"] + offered["S"]
    channel = hybrid.key_from(x25519["S"], seeds["S"], keys["0"], reader, to_s, "channel", session, 0)
    derived = pair_of(pair, session)
    return {
        "C": {who: one.hex() for who, one in keys.items()},
        "H(E)": {who: hash_of(one).hex() for who, one in offered.items()},
        "V": {str(i): one.hex() for i, one in enumerate(signing)},
        "signed by 0": signed(0, fit, agreement, keys["0"], hash_of(offered["0"]), signing[0], counter).hex(),
        "session": session.hex(),
        "X25519": agreed.hex(),
        "encapsulated": decapsulate(seeds["1"], to_1).hex(),
        "K_01": pair.hex(),
        "MAC of the capsule": tag.hex(),
        "first chain key": derived.chain.hex(),
        "invitations": derived.invitation.hex(),
        "K_0S": channel.hex(),
        "down": expand(channel, bound("down", session, 0)).hex(),
        "up": expand(channel, bound("up", session, 0)).hex(),
    }


def block(given: dict[str, Any]) -> dict[str, Any]:
    """Return what clients 0 and 1 derive for two blocks, and the data of a box."""
    session, cohort, chain = (bytes.fromhex(given[name]) for name in ("session", "H(Q)", "first chain key"))
    count, t, made = given["count"], given["t"], {}
    for number in (1, 2):
        prefix = block_prefix(session, number, count, t, cohort)
        pair = ratcheted(Pair(chain, 1, b""), number)
        derived = block_secrets(pair.chain, prefix, 0, 1, count)
        pieces = [derived[i : i + KEY_BYTES].hex() for i in range(0, len(derived), KEY_BYTES)]
        made[f"block {number}"] = {
            "chain key": pair.chain.hex(),
            "box 0 to 1": pieces[0],
            "box 1 to 0": pieces[1],
            "seeds": pieces[2:],
        }
    data = box_binding(session, 1, count, 0, 1, t, given["abscissa"], cohort)
    sealed, key = bytes.fromhex(given["box"]), bytes.fromhex(made["block 1"]["box 0 to 1"])
    return made | {"data of the box": data.hex(), "in the box": unseal(key, sealed, data).hex()}


def mask(given: dict[str, Any]) -> dict[str, Any]:
    """Return the masks of client 0 in a sum, of few words and of many, and the receipts."""
    session, header, own, seed = (bytes.fromhex(given[name]) for name in ("session", "H", "b", "seed"))
    made: dict[str, Any] = {}
    for size in given["words"]:
        (stream,) = pair_streams(seed, pair_prefix(header), 0, (1,), size)
        alone = self_stream(own, session, given["number"], 0, header, size)
        made |= {
            "receipt 0 to 1": stream[receipt_from(0, 1)].hex(),
            "receipt 1 to 0": stream[receipt_from(1, 0)].hex(),
            f"mask of both, {size} words": stream[BOTH_RECEIPTS:].hex(),
            f"own mask, {size} words": alone.hex(),
        }
    made["first words under the key"] = keystream(stream[BOTH_RECEIPTS:], 4).astype("<u8").tobytes().hex()
    return made


def recovery(given: dict[str, Any]) -> dict[str, Any]:
    """Return R and the commitments of client 0 for a number, and the lock of its answer."""
    session, number = bytes.fromhex(given["session"]), given["number"]
    own, lost, answer, header = (bytes.fromhex(given[name]) for name in ("b", "e", "a", "H"))
    seeds = np.frombuffer(bytes.fromhex("".join(given["seeds"])), dtype=np.uint8).reshape(-1, KEY_BYTES)
    pad = recovery_pad(lost, session, number, 0, len(seeds))
    return {
        "R": (seeds ^ pad).tobytes().hex(),
        "commitment to b": commitment("self", own, session, number, 0).hex(),
        "commitment to e": commitment("recovery", lost, session, number, 0).hex(),
        "lock": lock_key(answer, session, number, 0, header).hex(),
    }


FOLLOWS = {"set-up": set_up, "block": block, "mask": mask, "R": recovery}


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
    signers = vectors["follows"]["V"]
    hashes, counters = vectors["follows"]["H(E)"], (bytes.fromhex(given["journal counter of 0"]), b"")
    parts = [
        part
        for i in range(2)
        for part in (i, *(bytes.fromhex(one[str(i)]) for one in (public, hashes, signers)), counters[i])
    ]
    session = hashed("session", bytes.fromhex(given["agreement"]), bytes.fromhex(given["fit"]), *parts)
    assert session == read["session"]
    both, of_text = read["X25519"] + read["encapsulated"], hashed("ciphertext", ciphertext)
    assert hkdf(both, "pair", session, 0, 1, of_text) == read["K_01"]


def framed(tag: str, *parts: bytes | int) -> bytes:
    return tag.encode().ljust(16, b"\0") + b"".join(map(field, parts))


def shake(data: bytes, size: int) -> bytes:
    return hashlib.shake_256(data).digest(size)


def read(name: str) -> dict[str, Any]:
    """Return a part of the file, what is given and what follows, with bytes for hexadecimal strings."""
    both = json.loads(FILE.read_text())[name]
    return {key: unhexed(one) for key, one in (both["given"] | both["follows"]).items()}


def unhexed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unhexed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [unhexed(one) for one in value]
    return bytes.fromhex(value) if isinstance(value, str) else value


def test_blocks_follow_from_hashes_alone() -> None:
    one = read("block")
    session, cohort, chain, count, t = (one[k] for k in ("session", "H(Q)", "first chain key", "count", "t"))
    for number in (1, 2):
        made = one[f"block {number}"]
        assert made["chain key"] == chain
        data = framed("block", session, number, count, t, cohort, 0, 1) + chain
        assert shake(data, 64 + 32 * count) == made["box 0 to 1"] + made["box 1 to 0"] + b"".join(
            made["seeds"]
        )
        chain = hashed("ratchet", chain)
    where = (session, 1, count, t, cohort, 0, 1, one["abscissa"])
    assert framed("box data", *where) == one["data of the box"]
    assert len(one["in the box"]) == 96 * count


def test_masks_follow_from_hashes_alone() -> None:
    one = read("mask")
    few, many = one["words"]
    data = framed("pair mask", one["H"], 0, 1) + one["seed"]
    receipts = one["receipt 0 to 1"] + one["receipt 1 to 0"]
    assert shake(data, 32 + 8 * few) == receipts + one[f"mask of both, {few} words"]
    assert shake(data, 64) == receipts + one[f"mask of both, {many} words"]
    own = framed("self mask", one["session"], one["number"], one["H"], 0) + one["b"]
    assert shake(own, 8 * few) == one[f"own mask, {few} words"]
    assert shake(own, 32) == one[f"own mask, {many} words"]


def test_recovery_follows_from_hashes_alone() -> None:
    one = read("R")
    session, number, seeds = one["session"], one["number"], b"".join(one["seeds"])
    pad = shake(framed("recovery", session, number, 0) + one["e"], len(seeds))
    assert bytes(x ^ y for x, y in zip(seeds, pad, strict=True)) == one["R"]
    assert hashed("commit self", session, number, 0, one["b"]) == one["commitment to b"]
    assert hashed("commit recovery", session, number, 0, one["e"]) == one["commitment to e"]


@pytest.mark.parametrize("name", FOLLOWS)
def test_this_implementation_comes_to_what_the_vectors_say(name: str) -> None:
    vectors = json.loads(FILE.read_text())[name]
    assert FOLLOWS[name](vectors["given"]) == vectors["follows"]


def drawn() -> dict[str, dict[str, Any]]:
    """Return fresh keys, ciphertexts and secrets, by the part of the file."""
    seeds = {who: new_seed() for who in "01S"}
    first = {
        "agreement": new_secret().hex(),
        "fit": new_secret().hex(),
        "journal counter of 0": ((7).to_bytes(8, "big") + bytes(KEY_BYTES)).hex(),
        "c": {who: new_secret().hex() for who in "01S"},
        "w": {who: one.hex() for who, one in seeds.items()},
        "ciphertext 0 to 1": encapsulate(encapsulation_key(seeds["1"]))[1].hex(),
        "ciphertext 0 to S": encapsulate(encapsulation_key(seeds["S"]))[1].hex(),
    }
    made, cohort, count = set_up(first), new_secret(), 8
    session, chain = bytes.fromhex(made["session"]), bytes.fromhex(made["first chain key"])
    derived = block_secrets(chain, block_prefix(session, 1, count, 2, cohort), 0, 1, count)
    data, plain = box_binding(session, 1, count, 0, 1, 2, 3, cohort), bytes(range(256)) * 3
    of_block = {
        "session": made["session"],
        "first chain key": made["first chain key"],
        "H(Q)": cohort.hex(),
        "count": count,
        "t": 2,
        "abscissa": 3,
        "box": seal(derived[:KEY_BYTES], plain, data).hex(),
    }
    of_sum = {name: new_secret().hex() for name in ("H", "b")} | {"session": made["session"], "number": 1}
    return {
        "set-up": first,
        "block": of_block,
        "mask": of_sum | {"seed": derived[64:96].hex(), "words": [4, 300]},
        "R": of_sum
        | {"e": new_secret().hex(), "a": new_secret().hex()}
        | {"seeds": [derived[64:96].hex(), new_secret().hex()]},
    }


if __name__ == "__main__":
    chosen = drawn()
    made = {name: {"given": given, "follows": FOLLOWS[name](given)} for name, given in chosen.items()}
    FILE.write_text(json.dumps(made, indent=2) + "\n")
