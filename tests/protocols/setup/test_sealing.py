"""Whatever is sealed for somebody is sealed under X25519 and ML-KEM-768 together, by one function."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from privfed.protocols.crypto.keys import (
    CIPHERTEXT_BYTES,
    ENCAPSULATION_BYTES,
    KEY_BYTES,
    SEED_BYTES,
    CryptographyError,
    agree,
    combine_secrets,
    decapsulate,
    new_seed,
    unseal,
)
from privfed.protocols.setup.hybrid import new_reader, seal_to, unseal_from

ROOT = Path(__file__).parents[3]
SOURCES = [
    path
    for top in ("privfed", "protocols", "attacks")
    for path in (ROOT / top).rglob("*.py")
    if not path.is_relative_to(ROOT / "privfed/protocols")
    and not path.is_relative_to(ROOT / "privfed/attacks")
]
MAKERS = {"protocols/crypto/keys.py", "protocols/setup/hybrid.py"}
AGREED_BY = {"agree", "encapsulate", "decapsulate", "combine_secrets"}


def named(path: Path) -> set[str]:
    """Return what a module imports, calls on an object, or names of the keys' modules."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            ("cryptography", "privfed.pro")
        ):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found.add(node.func.attr)
        elif isinstance(node, ast.Attribute):
            found.add(f".{node.attr}")
    return found


def agrees(found: set[str]) -> bool:
    """Say whether a module has what makes keys of two parties, or seals for a public key.

    Whoever calls `exchange` of a key has the class of such keys, or takes it from the keys' module.
    """
    kinds = ("X25519", "X448", "MLKEM", "RSA", "ECDH", "DH", "HPKE", "rsa", "dh", "x25519", "x448", "mlkem")
    kinds = (*kinds, *(f".{kind}" for kind in kinds))
    return bool(found & AGREED_BY) or any(one.startswith(kinds) for one in found)


def test_key_agreements_are_used_in_one_module_alone() -> None:
    users = {path.relative_to(ROOT).as_posix() for path in SOURCES if agrees(named(path))}
    assert users == MAKERS


def test_every_agreed_secret_is_combined_with_an_encapsulated_one() -> None:
    """Functions that agree, encapsulate or open a ciphertext hand it to the one that combines both."""
    tree = ast.parse((ROOT / "protocols/setup/hybrid.py").read_text(encoding="utf-8"))
    of = {
        one.name: {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
        for one in tree.body
        if isinstance(one, ast.FunctionDef)
    }
    makes = {name for name, words in of.items() if words & {"agree", "encapsulate", "decapsulate"}}
    combined = {name for name, words in of.items() if "combine_secrets" in words}
    # The result of a pair is kept until its ciphertext comes, so that the secret key can go.
    assert makes == {"_agreed", "agreed_on", "key_to", "key_from"} and combined == {"_keys", "_hybrid"}
    assert "_keys" in of["agreed_on"] and all("_hybrid" in of[name] for name in ("key_to", "key_from"))
    assert [name for name, words in of.items() if "_agreed" in words] == ["keyring", "agreed_on"]


def test_the_reader_opens_what_was_sealed_for_it_alone() -> None:
    secret, reader = new_reader()
    assert len(reader) == KEY_BYTES + ENCAPSULATION_BYTES
    one, again = (seal_to(reader, b"a total", "tag", 3) for _ in range(2))
    assert one[:KEY_BYTES] != again[:KEY_BYTES]
    assert unseal_from(secret, one, "tag", 3) == unseal_from(secret, again, "tag", 3) == b"a total"
    stranger = new_reader()[0]
    strangers = [
        stranger,
        secret[:KEY_BYTES] + new_seed(),
        stranger[:KEY_BYTES] + secret[KEY_BYTES:],
    ]
    for stranger in strangers:
        with pytest.raises(CryptographyError):
            unseal_from(stranger, one, "tag", 3)
    for about in (("tag", 4), ("gat", 3), ("tag",)):
        with pytest.raises(CryptographyError):
            unseal_from(secret, one, *about)


def test_one_of_both_secrets_alone_opens_nothing() -> None:
    """Who breaks X25519 has the agreed secret, and who breaks ML-KEM-768 the encapsulated one."""
    secret, reader = new_reader()
    box = seal_to(reader, b"a total", "tag")
    own, sealed = box[:KEY_BYTES], box[KEY_BYTES + CIPHERTEXT_BYTES :]
    agreed = agree(secret[:KEY_BYTES], own)
    encapsulated = decapsulate(secret[KEY_BYTES:], box[KEY_BYTES : KEY_BYTES + CIPHERTEXT_BYTES])
    for known in (agreed, encapsulated, agreed + bytes(32), bytes(32) + encapsulated):
        for key in (known[:32], combine_secrets(known, b"", b"")):
            with pytest.raises(CryptographyError):
                unseal(key, sealed, b"")


SECRET, READER = new_reader()
BOX = seal_to(READER, b"a total", "tag")


@given(st.integers(0, len(BOX) - 1), st.integers(1, 255))
def test_an_altered_box_does_not_open(place: int, change: int) -> None:
    altered = bytearray(BOX)
    altered[place] ^= change
    with pytest.raises(CryptographyError):
        unseal_from(SECRET, bytes(altered), "tag")


@given(st.integers(0, len(BOX) - 1))
def test_a_cut_box_does_not_open(length: int) -> None:
    with pytest.raises(CryptographyError):
        unseal_from(SECRET, BOX[:length], "tag")


def test_unusable_readers_are_refused() -> None:
    assert len(SECRET) == KEY_BYTES + SEED_BYTES
    unusable = [
        b"",
        READER[:KEY_BYTES],
        READER[:-1],
        READER + b"\0",
        bytes(KEY_BYTES) + READER[KEY_BYTES:],
        READER[:KEY_BYTES] + b"\xff" * ENCAPSULATION_BYTES,
        MLKEM768PrivateKey.generate().public_key().public_bytes_raw(),
    ]
    for reader in unusable:
        with pytest.raises(CryptographyError):
            seal_to(reader, b"a total", "tag")
