"""Identities and lists of parties in files: secret ones are their owner's alone, public ones are checked."""

import os
from pathlib import Path

import msgspec
import pytest

from privfed.core.agreed.agreement import Registry
from privfed.core.stored.files import write_new
from privfed.errors import ArgumentError, FormatError
from privfed.nodes.identity import (
    IDENTITY,
    PARTIES,
    SIGNED_KEY,
    SIGNED_KEYS,
    OwnIdentity,
    Parties,
    SignedKey,
    read_identity,
    read_parties,
    read_signed_key,
    write_identity,
)
from privfed.protocols.crypto.keys import Identity
from tests.owners import assert_the_owners, umask


def signed_key(name: str) -> SignedKey:
    return SignedKey.of(name, Identity.generate())


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_an_identity_comes_back_and_is_its_owners_alone(tmp_path: Path, mask: int) -> None:
    own = OwnIdentity.generate("clinic a")
    with umask(mask):
        write_identity(tmp_path / "party", own)
    assert read_identity(tmp_path / "party") == own
    assert_the_owners(tmp_path / "party", {IDENTITY, SIGNED_KEY})
    assert read_signed_key(tmp_path / "party" / SIGNED_KEY) == own.signed_key


def test_an_identity_is_never_replaced(tmp_path: Path) -> None:
    first = OwnIdentity.generate("a")
    write_identity(tmp_path / "party", first)
    with pytest.raises(ArgumentError, match="never replaced"):
        write_identity(tmp_path / "party", OwnIdentity.generate("a"))
    assert read_identity(tmp_path / "party") == first


def test_an_identity_that_others_may_read_is_refused(tmp_path: Path) -> None:
    write_identity(tmp_path / "party", OwnIdentity.generate("a"))
    (tmp_path / "party" / IDENTITY).chmod(0o640)
    with pytest.raises(ArgumentError, match=r"mode 640.*new identity"):
        read_identity(tmp_path / "party")


def test_no_text_shows_a_secret(tmp_path: Path) -> None:
    own = OwnIdentity.generate("a")
    write_identity(tmp_path / "party", own)
    shown = f"{own!r} {own} {own.key!r} {own.signed_key!r}"
    assert repr(own.key.secret)[2:-1] not in shown and own.key.secret.hex() not in shown
    path = tmp_path / "party" / IDENTITY
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArgumentError) as caught:
        read_identity(tmp_path / "party")
    assert repr(own.key.secret)[2:-1] not in str(caught.value) and caught.value.__cause__ is None


def test_a_missing_identity_and_one_of_another_version_say_so(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="privfed keys new"):
        read_identity(tmp_path)
    name, _, body = msgspec.msgpack.decode(SIGNED_KEYS.to_bytes(signed_key("a")))
    write_new(tmp_path / SIGNED_KEY, msgspec.msgpack.encode((name, 9, body)))
    with pytest.raises(FormatError, match="format 9"):
        read_signed_key(tmp_path / SIGNED_KEY)


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\x1b[2J"])
def test_names_are_ones_that_print(name: str) -> None:
    with pytest.raises(ArgumentError, match="printable"):
        OwnIdentity.generate(name)


def test_a_public_key_needs_the_signature_of_its_own_key(tmp_path: Path) -> None:
    mine, other = signed_key("a"), signed_key("b")
    for forged in (
        SignedKey("b", mine.public, mine.signature),
        SignedKey("a", other.public, mine.signature),
        SignedKey("a", b"", mine.signature),
    ):
        (tmp_path / SIGNED_KEY).write_bytes(SIGNED_KEYS.to_bytes(forged))
        with pytest.raises(ArgumentError, match="its own key"):
            read_signed_key(tmp_path / SIGNED_KEY)


def test_a_list_comes_back_with_keys_by_position(tmp_path: Path) -> None:
    server, signed_keys = signed_key("server"), [signed_key(name) for name in "cab"]
    parties = Parties.of(server, signed_keys)
    write_new(tmp_path / "parties", PARTIES.to_bytes(parties))
    assert read_parties(tmp_path / "parties") == parties == Parties.of(server, reversed(signed_keys))
    assert parties.registry(("c", "a")) == Registry(
        (signed_keys[0].public, signed_keys[1].public), server.public
    )
    with pytest.raises(ArgumentError, match="no public key of 'd'"):
        parties.registry(("a", "d"))


def test_parties_share_neither_name_nor_key(tmp_path: Path) -> None:
    server, key = signed_key("server"), Identity.generate()
    for signed_keys in (
        [signed_key("a"), signed_key("a")],
        [SignedKey.of("a", key), SignedKey.of("b", key)],
        [signed_key("server")],
    ):
        with pytest.raises(ArgumentError, match="share one"):
            Parties.of(server, signed_keys)
    with pytest.raises(ArgumentError, match="public keys of its clients"):
        Parties.of(server, [])
    swapped = Parties(server, (signed_key("b"), signed_key("a")))
    write_new(tmp_path / "parties", PARTIES.to_bytes(swapped))
    with pytest.raises(ArgumentError, match="ordered by name"):
        read_parties(tmp_path / "parties")


def test_fingerprints_are_sixty_digits_that_change_with_each_name_key_and_role() -> None:
    server, a, b = signed_key("s"), signed_key("a"), signed_key("b")
    shown = [
        Parties.of(server, [a, b]).fingerprint,
        Parties.of(server, [a]).fingerprint,
        Parties.of(b, [a, server]).fingerprint,
        Parties.of(server, [a, signed_key("b")]).fingerprint,
        a.fingerprint,
        b.fingerprint,
    ]
    assert len(set(shown)) == len(shown)
    for one in shown:
        groups = one.split(" ")
        assert len(groups) == 12 and all(len(group) == 5 and group.isdigit() for group in groups)
    assert Parties.of(server, [b, a]).fingerprint == shown[0]


def test_a_file_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_identity(tmp_path / "party", OwnIdentity.generate("a"))
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(ArgumentError, match="read by others"):
        read_identity(tmp_path / "party")
