"""The folders of a federation over Flower: the coordinator's with its app, and a node's with its card."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_ssh_private_key

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.stored.files import make_folder, replaced
from privfed.data.table import Missing
from privfed.deploy.certificates import NODE_KEY, write_node_key
from privfed.deploy.kits import CARD, CARDS, Card
from privfed.engines.flower.settings import APP, PARTIES_FILE, SETTINGS, FederationFile, NodeSettings, quoted
from privfed.engines.flower.settings import FILE as FEDERATION
from privfed.errors import ArgumentError
from privfed.party.identity import OwnIdentity, read_identity, write_identity, write_new
from privfed.party.journal import Journal
from privfed.version import __version__

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
# without algorithms all of them, over plain sums all, models that are trained without differential privacy.
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
    named = "" if columns is None else f"columns = [{', '.join(map(quoted, columns))}]\n"
    tell = f"tells = {str(tells).lower()}  # tell totals that only clients open to the coordinator's process"
    own = f"modules = [{', '.join(map(quoted, modules))}]  # register what runs besides privfed's own\n"
    rows = "" if labels is None else f"labels = {quoted(labels)}  # each row's class, from 0\n"
    rows += "" if id is None else f"id = {quoted(id)}  # whose each row is\n"
    rows += "" if classes is None else f"classes = {classes}  # rows with other labels have none\n"
    rows += f"times = [{', '.join(map(quoted, times))}]  # first round, and first without\n" if times else ""
    rows += "" if schema is None else f"schema = {quoted(SCHEMA)}  # what the columns mean\n"
    rule = quoted(missing) if isinstance(missing, str) else missing
    rows += "" if missing is None else f"missing = {rule}  # what becomes of rows without a number\n"
    lines = {"columns": named, "rows": rows, "modules": own if modules else "", "tells": tell}
    ClientPolicy.closed(**approved or {})
    policy = "\n".join(f"{name} = {_written(value)}" for name, value in (approved or {}).items())
    text = _NODE.format(data=quoted(data), data_set=quoted(data_set), policy=policy, **lines)
    if schema is not None:
        with replaced(folder / SCHEMA) as path:
            path.write_text(schema, encoding="utf-8")
    write_new(folder / SETTINGS, text.encode())


def _written(value: object) -> str:
    """Return a value of a policy as TOML."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Collection):
        return f"[{', '.join(map(_written, sorted(value)))}]"
    return str(value).lower()


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
    with replaced(folder / CARD) as path:
        path.write_bytes(CARDS.to_bytes(card))
    return folder / CARD
