"""Identity files of parties, the signed public keys that they exchange, and the list that they compare.

Each is signed with its own secret key, so that nobody registers a key that it does not hold. They travel by
any way: parties trust them once they have compared fingerprints by voice. Sixty digits are about 199 bits.
Nobody finds a second key with the same ones, nor two lists of its own making that share theirs.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.agreed.agreement import PUBLIC_KEY_BYTES, Registry
from privfed.core.stored.encoding import Codec, bound, digest
from privfed.core.stored.files import make_folder, write_new
from privfed.core.values.numbers import Items
from privfed.errors import ArgumentError, FormatError
from privfed.protocols.crypto.keys import KEY_BYTES, CryptographyError, Identity, verify

IDENTITY, SIGNED_KEY = "identity", "public"
"""Names of the two files in a party's folder; the second is for everybody."""

JOURNAL_ID_BYTES = 16
_GROUPS, _DIGITS = 12, 5


def fingerprint(what: bytes) -> str:
    """Return sixty digits in groups of five, to be compared by voice.

    Args:
        what: a digest of 32 bytes.
    """
    digits = str(int.from_bytes(what, "big") % 10 ** (_GROUPS * _DIGITS)).zfill(_GROUPS * _DIGITS)
    return " ".join(digits[i : i + _DIGITS] for i in range(0, len(digits), _DIGITS))


def _check_name(name: str) -> None:
    if not name or name != name.strip() or not name.isprintable():
        raise ArgumentError(f"a party needs a name of printable characters, got {name!r}.")


class SignedKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a party shows everybody: its name and public key, signed with that key.

    Args:
        name: as configurations name the party.
        public: its Ed25519 public key.
        signature: over both.
    """

    name: str
    public: bytes
    signature: bytes

    @classmethod
    def of(cls, name: str, identity: Identity) -> SignedKey:
        """Return the signed public key of an identity.

        Raises:
            ArgumentError: the name is empty, or has characters that do not print.
        """
        _check_name(name)
        return cls(name, identity.public, identity.sign(bound("card", name.encode(), identity.public)))

    def check(self) -> None:
        """Check a signed public key that came from elsewhere.

        Raises:
            ArgumentError: its name or key cannot be one, or its signature is not its key's.
        """
        _check_name(self.name)
        try:
            if len(self.public) != PUBLIC_KEY_BYTES:
                raise CryptographyError("a key of another length")
            verify(self.public, self.signature, bound("card", self.name.encode(), self.public))
        except CryptographyError:
            raise ArgumentError(
                f"the public key of {self.name!r} is not signed with its own key; ask {self.name!r} for a "
                "new one."
            ) from None

    @property
    def fingerprint(self) -> str:
        """Sixty digits of the name and the key."""
        return fingerprint(digest("card", self.name.encode(), self.public))


SIGNED_KEYS: Codec[SignedKey] = Codec(SignedKey, "signed public key of a party", 1)


class Parties(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists the signed public keys of all parties. Each party has the same list before anything is agreed on.

    Args:
        server: the coordinator's.
        clients: the clients', ordered by name, so that lists of the same keys are the same.
    """

    server: SignedKey
    clients: Items[SignedKey]

    @classmethod
    def of(cls, server: SignedKey, clients: Iterable[SignedKey]) -> Parties:
        """Return the list of these signed public keys.

        Raises:
            ArgumentError: a signed public key does not hold, or two parties share a name or a key.
        """
        parties = cls(server, tuple(sorted(clients, key=lambda one: one.name)))
        parties.check()
        return parties

    def check(self) -> None:
        """Check a list that came from elsewhere; raises as `of`, and for clients in another order."""
        signed_keys = (self.server, *self.clients)
        for one in signed_keys:
            one.check()
        names = [one.name for one in self.clients]
        if not names or names != sorted(names):
            raise ArgumentError("a list of parties needs the public keys of its clients, ordered by name.")
        n_names, n_keys = len({one.name for one in signed_keys}), len({one.public for one in signed_keys})
        if min(n_names, n_keys) < len(signed_keys):
            raise ArgumentError("each party needs a name and a key of its own; two of these share one.")

    @property
    def fingerprint(self) -> str:
        """Sixty digits of all names and keys, and of which one is the coordinator's."""
        parts = [part for one in (self.server, *self.clients) for part in (one.name.encode(), one.public)]
        return fingerprint(digest("parties", *parts))

    def registry(self, names: Iterable[str]) -> Registry:
        """Return the keys of a configuration's clients, by position.

        Args:
            names: the configuration's clients.

        Raises:
            ArgumentError: one of them has no signed public key here.
        """
        keys = {one.name: one.public for one in self.clients}
        wanted = tuple(names)
        if missing := [name for name in wanted if name not in keys]:
            raise ArgumentError(
                f"no public key of {missing[0]!r} in this list of {len(keys)} clients; make a list with it, "
                "and compare its fingerprint anew."
            )
        return Registry(tuple(keys[name] for name in wanted), self.server.public)


PARTIES: Codec[Parties] = Codec(Parties, "list of parties", 1)


class _StoredIdentity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An identity in its file."""

    name: str
    secret: bytes
    journal: bytes


_IDENTITIES: Codec[_StoredIdentity] = Codec(_StoredIdentity, "identity of a party", 1)


@dataclass(frozen=True, slots=True)
class OwnIdentity:
    """A party's own identity, and which journal belongs to it.

    Args:
        name: of the party.
        key: its secret key.
        journal: id of the one journal that this identity answers with.
    """

    name: str
    key: Identity
    journal: bytes = field(repr=False)

    @property
    def user_key(self) -> bytes:
        """The key by which it chooses among rows of a user (`privfed.party.answerer`), 32 bytes."""
        return hashlib.blake2b(digest_size=32, key=self.key.secret, person=b"privfed user key").digest()

    @property
    def signed_key(self) -> SignedKey:
        """What it shows everybody."""
        return SignedKey.of(self.name, self.key)

    @classmethod
    def generate(cls, name: str) -> OwnIdentity:
        """Return a fresh identity from the operating system's generator.

        Raises:
            ArgumentError: the name is empty, or has characters that do not print.
        """
        _check_name(name)
        return cls(name, Identity.generate(), secrets.token_bytes(JOURNAL_ID_BYTES))


def write_identity(folder: Path, own: OwnIdentity) -> None:
    """Write an identity and its signed public key into a folder that only the owner may enter, durably.

    Raises:
        ArgumentError: the folder holds an identity already, which is never replaced.
    """
    make_folder(folder)
    stored = _StoredIdentity(own.name, own.key.secret, own.journal)
    write_new(folder / SIGNED_KEY, SIGNED_KEYS.to_bytes(own.signed_key))
    # Last, so that a folder with an identity is whole.
    write_new(folder / IDENTITY, _IDENTITIES.to_bytes(stored))


def read_identity(folder: Path) -> OwnIdentity:
    """Return the identity of a party's folder.

    Raises:
        ArgumentError: there is none, others may read it, or it is damaged. Nothing in it is quoted.
        FormatError: it is of another version.
    """
    path = folder / IDENTITY
    stored = _IDENTITIES.from_bytes(_read_secret(path))
    if len(stored.secret) != KEY_BYTES or len(stored.journal) != JOURNAL_ID_BYTES:
        raise ArgumentError(f"{path} is damaged; take the copy that was made of the whole folder.")
    _check_name(stored.name)
    return OwnIdentity(stored.name, Identity(stored.secret), stored.journal)


def _read_secret(path: Path) -> bytes:
    try:
        # What is checked is what is read: the open file, whatever becomes of its name.
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ArgumentError(
                    f"{path} may be read by others (mode {stat.S_IMODE(found.st_mode):o}), so that its key "
                    "may be known: make a new identity, or close it with chmod 600 if nobody else was here."
                )
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise ArgumentError(f"{path} is missing; make an identity with: privfed keys new") from None


def read_checked(codec: Codec[Any], path: Path, whence: str = "it comes from another party") -> Any:
    """Return what came from elsewhere, checked.

    Args:
        codec: how it is stored.
        path: of the file.
        whence: what writes it.

    Raises:
        ArgumentError: it is missing, damaged, or not signed with its own key.
        FormatError: it is of another version.
    """
    try:
        found = codec.from_bytes(path.read_bytes())
        found.check()
    except OSError:
        raise ArgumentError(f"{path} is missing; {whence}.") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
    return found


read_signed_key: Callable[[Path], SignedKey] = partial(read_checked, SIGNED_KEYS)
"""Return a signed public key that someone sent; raises as `read_checked`."""

read_parties: Callable[[Path], Parties] = partial(read_checked, PARTIES)
"""Return a list of parties; raises as `read_checked`, and `Parties.of`."""
