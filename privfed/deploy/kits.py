"""What hospitals and their coordinator send each other: a node's card to be added, and the kit to run with.

A card (`ward3.pub`) holds a party's signed public key, its key for the SuperLink and its columns' names. A
kit (`fed.kit`) holds the list of parties, the SuperLink's address, and the authority of its certificate. Each
is signed with its writer's key, and travels by any way: what counts is that all read the list's same digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from privfed.core.stored.encoding import Codec, bound
from privfed.core.values.numbers import Items, Number
from privfed.errors import ArgumentError, FormatError
from privfed.party.identity import OwnIdentity, Parties, SignedKey
from privfed.protocols.crypto.keys import CryptographyError, verify

CARD, KIT = "card", "kit"
"""In a node's folder: what it sends to its coordinator, and the kit that its owner approved."""


class Card(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a hospital sends to the coordinator, signed with its key.

    Args:
        party: its name and public key, signed.
        node: its key for the SuperLink, ECDSA in OpenSSH's form.
        columns: names of its feature columns; empty where its table does not name them.
        signature: over all of it.
    """

    party: SignedKey
    node: bytes
    columns: Items[str]
    signature: bytes

    @classmethod
    def of(cls, own: OwnIdentity, node: bytes, columns: Sequence[str]) -> Card:
        """Return the card of an identity.

        Args:
            own: its identity.
            node: public key for the SuperLink.
            columns: names of its feature columns.
        """
        party, names = own.signed_key, tuple(columns)
        return cls(party, node, names, own.key.sign(_card(party, node, names)))

    def check(self) -> None:
        """Check a card that came from elsewhere; raises `ArgumentError`."""
        self.party.check()
        _verify(self.party, self.signature, _card(self.party, self.node, self.columns), "card")
        try:
            known = isinstance(load_ssh_public_key(self.node), ec.EllipticCurvePublicKey)
        except (ValueError, UnsupportedAlgorithm):
            known = False
        if not known:
            raise ArgumentError(f"the card of {self.party.name!r} has no key for the SuperLink; {_ASK}")


class Kit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a coordinator sends to every hospital, signed with its key.

    Args:
        number: of the kit, one more for each that the coordinator made.
        parties: everybody's signed public keys; its digits are compared by voice.
        columns: names of the columns, the same for all, in the agreed order.
        address: of the SuperLink, host:port.
        authority: certificate of who signed the SuperLink's, PEM; empty on one machine, without TLS.
        signature: over all of it.
    """

    number: Number
    parties: Parties
    columns: Items[str]
    address: str
    authority: bytes
    signature: bytes

    @classmethod
    def of(
        cls,
        own: OwnIdentity,
        parties: Parties,
        columns: Sequence[str],
        *,
        number: int,
        address: str,
        authority: bytes,
    ) -> Kit:
        """Return the kit of a coordinator; arguments are the fields."""
        signature = own.key.sign(_kit(number, parties, columns, address, authority))
        return cls(number, parties, tuple(columns), address, authority, signature)

    def check(self) -> None:
        """Check a kit that came from elsewhere; raises `ArgumentError`."""
        self.parties.check()
        about = _kit(self.number, self.parties, self.columns, self.address, self.authority)
        _verify(self.parties.server, self.signature, about, "kit")
        host, _, port = self.address.rpartition(":")
        try:
            if not host or not 0 < int(port) < 1 << 16:
                raise ValueError
            if self.authority:
                x509.load_pem_x509_certificate(self.authority)
        except ValueError:
            raise ArgumentError(
                f"the kit of {self.parties.server.name!r} has no address or certificate to use; {_ASK}"
            ) from None

    def same_but_number(self, other: Kit) -> bool:
        """Say whether another kit says the same."""
        told = [msgspec.structs.replace(one, number=0, signature=b"") for one in (self, other)]
        return told[0] == told[1]


_ASK = "its writer makes another one and sends it anew."


def _card(party: SignedKey, node: bytes, columns: Sequence[str]) -> bytes:
    names = [name.encode() for name in columns]
    return bound("node card", party.name.encode(), party.public, node, len(names), *names)


def _kit(number: int, parties: Parties, columns: Sequence[str], address: str, authority: bytes) -> bytes:
    # The list's digits stand for all names and keys in it, and say which is the coordinator's.
    names = [name.encode() for name in columns]
    about = (number, parties.fingerprint.encode(), address.encode(), authority)
    return bound("node kit", *about, len(names), *names)


def _verify(writer: SignedKey, signature: bytes, about: bytes, what: str) -> None:
    try:
        verify(writer.public, signature, about)
    except CryptographyError:
        raise ArgumentError(f"the {what} of {writer.name!r} is not signed with its own key; {_ASK}") from None


CARDS: Codec[Card] = Codec(Card, "card of a node", 1)
KITS: Codec[Kit] = Codec(Kit, "kit of a federation", 1)


def read_card(path: Path) -> Card:
    """Return a card that a hospital sent; raises `ArgumentError`, and `FormatError` for another version."""
    found: Card = _read(CARDS, path, "privfed flower join writes one")
    return found


def read_kit(path: Path) -> Kit:
    """Return a kit that a coordinator sent; raises `ArgumentError`, and `FormatError` for another version."""
    found: Kit = _read(KITS, path, "the coordinator's privfed flower add writes one")
    return found


def _read(codec: Codec[Any], path: Path, whence: str) -> Any:
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
