"""The folders of a federation over Flower: the coordinator's, and a node's with its card.

What hospitals and their coordinator send each other: a node's card to be added, and the kit to run with.

A card (`ward3.pub`) holds a party's signed public key, its key for the SuperLink and its columns' names. A
kit (`fed.kit`) holds the list of parties, the SuperLink's address, and the authority of its certificate. Each
is signed with its writer's key, and travels by any way: what counts is that all read the list's same digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from privfed.core.stored.encoding import Codec
from privfed.core.stored.files import make_folder, rewrite, write_new
from privfed.core.values.numbers import Items, Number
from privfed.data.table import Missing
from privfed.errors import ArgumentError
from privfed.nodes.deploy.certificates import NODE_KEY, write_node_key
from privfed.nodes.flower.node_messages import Signed
from privfed.nodes.flower.settings import FILE as FEDERATION
from privfed.nodes.flower.settings import SETTINGS, FederationFile, NodeSettings
from privfed.nodes.identity import (
    OwnIdentity,
    Parties,
    SignedKey,
    read_checked,
    read_identity,
    write_identity,
)
from privfed.nodes.journal import Journal
from privfed.protocols.crypto.keys import CryptographyError
from privfed.tables.schema import to_value

CARD, KIT = "card", "kit"
"""In a node's folder: what it sends to its coordinator, and the kit that its owner approved."""


def check_writer(found: Signed, writer: SignedKey) -> None:
    """Check that a party signed what it wrote for others; raises `ArgumentError`."""
    try:
        found.check_by(writer.public)
    except CryptographyError:
        raise ArgumentError(
            f"the {type(found).__name__.lower()} of {writer.name!r} is not signed with its own key; {_ASK}"
        ) from None


class Card(Signed, frozen=True, kw_only=True):
    """What a hospital sends to the coordinator, signed with its key.

    Args:
        party: its name and public key, signed.
        node: its key for the SuperLink, ECDSA in OpenSSH's form.
        columns: names of its feature columns; empty where its table does not name them.
    """

    party: SignedKey
    node: bytes
    columns: Items[str]

    def check(self) -> None:
        """Check a card that came from elsewhere; raises `ArgumentError`."""
        self.party.check()
        check_writer(self, self.party)
        try:
            known = isinstance(load_ssh_public_key(self.node), ec.EllipticCurvePublicKey)
        except (ValueError, UnsupportedAlgorithm):
            known = False
        if not known:
            raise ArgumentError(f"the card of {self.party.name!r} has no key for the SuperLink; {_ASK}")


class Kit(Signed, frozen=True, kw_only=True):
    """What a coordinator sends to every hospital, signed with its key.

    Args:
        number: of the kit, one more for each that the coordinator made.
        parties: everybody's signed public keys; its digits are compared by voice.
        columns: names of the columns, the same for all, in the agreed order.
        address: of the SuperLink, host:port.
        authority: certificate of who signed the SuperLink's, PEM.
    """

    number: Number
    parties: Parties
    columns: Items[str]
    address: str
    authority: bytes

    def check(self) -> None:
        """Check a kit that came from elsewhere; raises `ArgumentError`."""
        self.parties.check()
        check_writer(self, self.parties.server)
        host, _, port = self.address.rpartition(":")
        try:
            if not host or not 0 < int(port) < 1 << 16:
                raise ValueError
            x509.load_pem_x509_certificate(self.authority)
        except ValueError:
            raise ArgumentError(
                f"the kit of {self.parties.server.name!r} has no address or certificate to use; {_ASK}"
            ) from None


_ASK = "its writer makes another one and sends it anew."

CARDS: Codec[Card] = Codec(Card, "card of a node", 3)
KITS: Codec[Kit] = Codec(Kit, "kit of a federation", 3)


read_card: Callable[[Path], Card] = partial(read_checked, CARDS, whence="privfed flower join writes one")
"""Return a card that a hospital sent; raises `ArgumentError`, and `FormatError` for another version."""

read_kit: Callable[[Path], Kit] = partial(
    read_checked, KITS, whence="the coordinator's privfed flower add writes one"
)
"""Return a kit that a coordinator sent; raises `ArgumentError`, and `FormatError` for another version."""

SCHEMA = "schema.toml"
"""In a node's folder: its copy of the schema of its table."""

_NODE = """\
# What this node's owner decides, and nobody else. Its identity and journal lie beside this file.
{lines}
# What this node answers, whatever the others agree on. What is not named here is refused (docs/party.md):
# without algorithms all of them, plain sums, cohorts that differ, models trained without a privacy claim,
# noise of the server.
[policy]
{policy}
"""


def write_federation(folder: Path, columns: Sequence[str], **settings: Any) -> FederationFile:
    """Write a federation's file into a folder.

    Args:
        folder: to make.
        columns: names of the columns, the same for all.
        **settings: other fields of `FederationFile`.

    Raises:
        ArgumentError: the folder holds one already.
    """
    file = FederationFile(folder=folder, columns=tuple(columns), **settings)
    make_folder(folder)
    write_new(folder / FEDERATION, file.text().encode())
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
    if (folder / SETTINGS).exists():
        # Before the schema is: a node that runs would read its table by another one.
        raise ArgumentError(
            f"{folder / SETTINGS} is there already and is never replaced. Edit it, or put another schema in "
            f"the place of {folder / SCHEMA}; a new folder is another party, which knows of no fit before."
        )
    lines = (
        ("data", data, "table with this node's rows"),
        ("data_set", data_set, "your own name of these rows, for the journal"),
        ("columns", columns, "features, in the agreed order"),
        ("labels", labels, "each row's class, from 0"),
        ("id", id, "whose each row is"),
        ("classes", classes, "rows with other labels have none"),
        ("times", tuple(times) or None, "first round, and first without"),
        ("schema", None if schema is None else SCHEMA, "what the columns mean"),
        ("missing", missing, "what becomes of rows without a number"),
        ("modules", tuple(modules) or None, "register what runs besides privfed's own"),
        ("tells", tells, "tell totals that only clients open to the coordinator's process"),
    )
    ClientPolicy.closed(**approved or {})
    text = _NODE.format(
        lines="\n".join(f"{name} = {to_value(one)}  # {why}" for name, one, why in lines if one is not None),
        policy="\n".join(f"{name} = {to_value(value)}" for name, value in (approved or {}).items()),
    )
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
    card = Card(party=own.signed_key, node=node, columns=table.read().columns if table.named else ())
    rewrite(folder / CARD, CARDS.to_bytes(card.signed(own.key)))
    return folder / CARD
