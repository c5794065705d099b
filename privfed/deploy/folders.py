"""The folders of a federation over Flower: the coordinator's with its app, and a node's with its card.

What hospitals and their coordinator send each other: a node's card to be added, and the kit to run with.

A card (`ward3.pub`) holds a party's signed public key, its key for the SuperLink and its columns' names. A
kit (`fed.kit`) holds the list of parties, the SuperLink's address, and the authority of its certificate. Each
is signed with its writer's key, and travels by any way: what counts is that all read the list's same digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.stored.encoding import Codec, bound
from privfed.core.stored.files import make_folder, rewrite, write_new
from privfed.core.values.numbers import Items, Number
from privfed.data.schema import to_value
from privfed.data.table import Missing
from privfed.deploy.certificates import NODE_KEY, write_node_key
from privfed.engines.flower.settings import APP, PARTIES_FILE, SETTINGS, FederationFile, NodeSettings
from privfed.engines.flower.settings import FILE as FEDERATION
from privfed.errors import ArgumentError, FormatError
from privfed.party.identity import OwnIdentity, Parties, SignedKey, read_identity, write_identity
from privfed.party.journal import Journal
from privfed.protocols.crypto.keys import CryptographyError, verify
from privfed.version import __version__

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


SCHEMA = "schema.toml"
"""In a node's folder: its copy of the schema of its table."""

COORDINATOR = "coordinator"
"""In the folder of a federation: the coordinator's own."""

_APP = """\
# A thin app: all code is in the installed privfed, which every node has.
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "privfed-app"
version = "{version}"
description = "Federated clustering over secure sums"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "privfed"

[tool.flwr.app.components]
serverapp = "privfed.engines.flower.apps:server"
clientapp = "privfed.engines.flower.apps:client"
"""

_NODE = """\
# What this node's owner decides, and nobody else. Its identity and journal lie beside this file.
data = {data}  # table with this node's rows
data_set = {data_set}  # your own name of these rows, for the journal
{columns}{rows}{modules}{tells}
# What this node answers, whatever the others agree on. What is not named here is refused (docs/party.md):
# without algorithms all of them, plain sums, cohorts that differ, models trained without a privacy claim,
# noise of the server.
[policy]
{policy}
"""


def write_app(folder: Path, columns: Sequence[str], **settings: Any) -> FederationFile:
    """Write a federation's file and its thin Flower app into a folder.

    Args:
        folder: to make.
        columns: names of the columns, the same for all.
        **settings: other fields of `FederationFile`, with paths relative to the folder.

    Raises:
        ArgumentError: the folder holds one already.
    """
    usual: dict[str, Any] = {"coordinator": Path(COORDINATOR), "parties": Path(PARTIES_FILE)}
    file = FederationFile(folder=folder, columns=tuple(columns), **{**usual, **settings})
    make_folder(folder)
    make_folder(folder / APP)
    write_new(folder / FEDERATION, file.text().encode())
    write_new(folder / APP / "pyproject.toml", _APP.format(version=__version__).encode())
    return FederationFile.read(folder)


def new_party(folder: Path, name: str) -> OwnIdentity:
    """Make a party's identity with its journal, as `privfed keys new` does.

    Raises:
        ArgumentError: the folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ArgumentError(f"{folder} is not empty; name a new folder, one for each identity.")
    own = OwnIdentity.generate(name)
    Journal.create(folder, own)
    # Last: a folder with an identity has its journal.
    write_identity(folder, own)
    return own


def write_node(
    folder: Path,
    data: str,
    data_set: str,
    columns: Sequence[str] | None = None,
    *,
    labels: str | None = None,
    id: str | None = None,
    classes: int | None = None,
    times: Sequence[str] = (),
    missing: Missing | None = None,
    schema: str | None = None,
    modules: Sequence[str] = (),
    tells: bool = False,
    approved: Mapping[str, Any] | None = None,
) -> None:
    """Write a node's settings beside its identity.

    Args:
        folder: of its identity.
        data: path of its table.
        data_set: its own name of the rows.
        columns: feature columns in the agreed order; None for all of the table.
        labels: column of classes, whole numbers that mean the same at all clients; None for none.
        id: column with whose each row is; None where each stands for itself.
        classes: how many classes there are; None for any number.
        times: the two columns that say in which rounds a row is there; empty where none do.
        schema: text of a schema, which says what columns and rule would; None for none.
        missing: "leave-out", or the public number in place of a missing value; None to declare nothing.
        modules: modules of this machine that register what it runs besides privfed's own.
        tells: whether it tells totals that only clients open to the process that drives the run.
        approved: what its owner approves, as parameters of `ClientPolicy.closed`; None for nothing.

    Raises:
        ArgumentError: the folder has settings already, or what is approved is no policy.
    """
    named = "" if columns is None else f"columns = {to_value(tuple(columns))}\n"
    tell = f"tells = {str(tells).lower()}  # tell totals that only clients open to the coordinator's process"
    own = f"modules = {to_value(tuple(modules))}  # register what runs besides privfed's own\n"
    rows = "" if labels is None else f"labels = {to_value(labels)}  # each row's class, from 0\n"
    rows += "" if id is None else f"id = {to_value(id)}  # whose each row is\n"
    rows += "" if classes is None else f"classes = {classes}  # rows with other labels have none\n"
    rows += f"times = {to_value(tuple(times))}  # first round, and first without\n" if times else ""
    rows += "" if schema is None else f"schema = {to_value(SCHEMA)}  # what the columns mean\n"
    rows += (
        "" if missing is None else f"missing = {to_value(missing)}  # what becomes of rows without a number\n"
    )
    if (folder / SETTINGS).exists():
        # Before the schema is: a node that runs would read its table by another one.
        raise ArgumentError(
            f"{folder / SETTINGS} is there already and is never replaced. Edit it, or put another schema in "
            f"the place of {folder / SCHEMA}; a new folder is another party, which knows of no fit before."
        )
    lines = {"columns": named, "rows": rows, "modules": own if modules else "", "tells": tell}
    ClientPolicy.closed(**approved or {})
    policy = "\n".join(f"{name} = {to_value(value)}" for name, value in (approved or {}).items())
    text = _NODE.format(data=to_value(data), data_set=to_value(data_set), policy=policy, **lines)
    if schema is not None:
        rewrite(folder / SCHEMA, schema.encode())
    write_new(folder / SETTINGS, text.encode())


def write_card(folder: Path) -> Path:
    """Write a node's key for the SuperLink, where it has none, and its card; return the card's place.

    Args:
        folder: of a party with its settings.

    Raises:
        DataError: its table cannot be read.
    """
    own, table = read_identity(folder), NodeSettings.read(folder).table
    if (folder / NODE_KEY).exists():
        key = load_ssh_private_key((folder / NODE_KEY).read_bytes(), None).public_key()
        node = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    else:
        node = write_node_key(folder)
    card = Card.of(own, node, table.read().columns if table.named else ())
    rewrite(folder / CARD, CARDS.to_bytes(card))
    return folder / CARD
