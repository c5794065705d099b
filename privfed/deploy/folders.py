"""The folders of a federation over Flower: the coordinator's with its thin app, and a node's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privfed import __version__
from privfed.core.stored.files import make_folder
from privfed.core.values.domain import FloatArray
from privfed.data.table import LabelArray
from privfed.deploy.certificates import AUTHORITY, CERTIFICATES, write_certificates, write_node_key
from privfed.engines.flower.federation_file import APP, FederationFile, quoted
from privfed.engines.flower.federation_file import FILE as FEDERATION
from privfed.engines.flower.settings import PARTIES_FILE, SETTINGS
from privfed.errors import ArgumentError
from privfed.party.identity import CARD, PARTIES, OwnIdentity, Parties, read_card, write_identity, write_new
from privfed.party.journal import Journal

NODES, COORDINATOR = "nodes", "coordinator"
"""In the folder of a federation whose parties are all on this machine."""

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
serverapp = "privfed.engines.flower.server_app:app"
clientapp = "privfed.engines.flower.client_app:app"

[tool.flwr.app.config]
relay = ""  # Path of the driving process's socket; it fills this in.
"""

_NODE = """\
# What this node's owner decides, and nobody else. Its identity and journal lie beside this file.
data = {data}  # table with this node's rows
data_set = {data_set}  # your own name of these rows, for the journal
{columns}{labels}{modules}{tells}
# What this node answers, whatever the others agree on (docs/party.md):
[policy]
{protocols}
# min_clients = 3
# max_fits = 10
"""

_HIDING = """\
# Not plain, over which the coordinator reads this node's answers.
{}protocols = ["masked", "masked-verified", "group-masked", "ckks"]"""


def write_app(folder: Path, columns: Sequence[str], **words: Any) -> FederationFile:
    """Write a federation's file and its thin Flower app into a folder.

    Args:
        folder: to make.
        columns: names of the columns, the same for all.
        **words: other words of `FederationFile`, with paths relative to the folder.

    Raises:
        ArgumentError: the folder holds one already.
    """
    usual: dict[str, Any] = {"coordinator": Path(COORDINATOR), "parties": Path(PARTIES_FILE)}
    file = FederationFile(folder=folder, columns=tuple(columns), **{**usual, **words})
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
    modules: Sequence[str] = (),
    tells: bool = False,
    plain: bool = False,
) -> None:
    """Write a node's settings beside its identity; raises `ArgumentError` where there are some already.

    Args:
        folder: of its identity.
        data: path of its table.
        data_set: its own name of the rows.
        columns: feature columns in the agreed order; None for all of the table.
        labels: column of classes, whole numbers that mean the same at all clients; None for none.
        modules: modules of this machine that register what it runs besides privfed's own.
        tells: whether it tells totals that only clients open to the process that drives the run.
        plain: whether it also takes part in plain sums, whose coordinator reads every answer.
    """
    named = "" if columns is None else f"columns = [{', '.join(map(quoted, columns))}]\n"
    told = f"tells = {str(tells).lower()}  # tell totals that only clients open to the coordinator's process"
    own = f"modules = [{', '.join(map(quoted, modules))}]  # register what runs besides privfed's own\n"
    classes = "" if labels is None else f"labels = {quoted(labels)}  # each row's class, from 0\n"
    words = {"columns": named, "labels": classes, "modules": own if modules else "", "tells": told}
    sums = _HIDING.format("# " if plain else "")
    text = _NODE.format(data=quoted(data), data_set=quoted(data_set), protocols=sums, **words)
    write_new(folder / SETTINGS, text.encode())


def make_local(
    folder: Path,
    rows: Mapping[str, FloatArray],
    columns: Sequence[str],
    labels: Mapping[str, LabelArray] | None = None,
    **words: Any,
) -> FederationFile:
    """Make a federation whose parties are all on this machine: for simulations, trials and tests.

    Args:
        folder: to make.
        rows: name of each client -> its rows.
        columns: names of the columns.
        labels: name of each client -> its rows' classes, integers from 0; None for none.
        **words: of `FederationFile`.

    Raises:
        ArgumentError: a client's name, which may come from a table, cannot be that of a folder.
    """
    for name in rows:
        if name in ("", ".", "..") or any(one in name for one in "/\\\0"):
            raise ArgumentError(
                f"each client gets a folder of its name, which {name!r} cannot be; rename it."
            )
    write_certificates(folder / CERTIFICATES, ["127.0.0.1", "localhost"])
    root = Path(CERTIFICATES) / AUTHORITY
    file = write_app(folder, columns, root_certificates=root, **words)
    new_party(folder / COORDINATOR, "coordinator")
    for name, table in rows.items():
        own = folder / NODES / name
        new_party(own, name)
        write_node_key(own)
        arrays: dict[str, Any] = {"X": table} if labels is None else {"X": table, "y": labels[name]}
        np.savez(own / "rows.npz", **arrays)
        write_node(own, "rows.npz", "rows", labels=None if labels is None else "y", tells=True, plain=True)
    cards = [read_card(folder / NODES / name / CARD) for name in rows]
    parties = PARTIES.to_bytes(Parties.of(read_card(folder / COORDINATOR / CARD), cards))
    write_new(folder / PARTIES_FILE, parties)
    for name in rows:
        write_new(folder / NODES / name / PARTIES_FILE, parties)
    return file


def nodes_of(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the nodes that are on this machine, by name."""
    return tuple(sorted(one for one in (folder / NODES).glob("*") if one.is_dir()))
