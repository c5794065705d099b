"""A federation whose parties are all on this machine: for simulations, trials and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privfed.core.names import ALGORITHMS
from privfed.core.values.domain import FloatArray
from privfed.data.table import LabelArray
from privfed.errors import ArgumentError
from privfed.nodes.deploy.adding import add, approve
from privfed.nodes.deploy.certificates import CERTIFICATES, certify
from privfed.nodes.deploy.folders import new_party, write_card, write_federation, write_node
from privfed.nodes.flower.network import Heard
from privfed.nodes.flower.node import answered
from privfed.nodes.flower.settings import FederationFile

NODES = "nodes"
"""In its folder: those of the nodes."""


def make_local(
    folder: Path,
    rows: Mapping[str, FloatArray],
    columns: Sequence[str],
    labels: Mapping[str, LabelArray] | None = None,
    classes: int | None = None,
    approved: Mapping[str, Any] | None = None,
    ids: Mapping[str, Sequence[Any]] | None = None,
    modules: Sequence[str] = (),
    **settings: Any,
) -> FederationFile:
    """Make a federation whose parties are all on this machine: for simulations, trials and tests.

    Args:
        folder: to make.
        rows: name of each client -> its rows.
        columns: names of the columns.
        labels: name of each client -> its rows' classes, integers from 0; None for none.
        classes: how many classes there are; None for as many as the labels of all clients tell apart.
        approved: what each node's owner approves; None for every algorithm that is registered here.
        ids: name of each client -> whose each of its rows is, as text; None where each stands for itself.
        modules: modules of this machine that register what the nodes run besides privfed's own.
        **settings: fields of `FederationFile`.

    Raises:
        ArgumentError: a client's name, which may come from a table, cannot be that of a folder.
    """
    for name in rows:
        if name in ("", ".", "..") or any(one in name for one in "/\\\0"):
            raise ArgumentError(
                f"each client gets a folder of its name, which {name!r} cannot be; rename it."
            )
    certify(folder / CERTIFICATES, ["127.0.0.1", "localhost"])
    new_party(write_federation(folder, columns, **settings).coordinator, "coordinator")
    told = [int(one.max(initial=0)) + 1 for one in (labels or {}).values()]
    more: dict[str, Any] = {} if labels is None else {"labels": "y", "classes": classes or max(2, *told)}
    more |= {} if ids is None else {"id": "id"}
    allowed, cards = {"algorithms": ALGORITHMS.names()} if approved is None else approved, []
    for name, table in rows.items():
        own = folder / NODES / name
        new_party(own, name)
        arrays: dict[str, Any] = {"X": table} if labels is None else {"X": table, "y": labels[name]}
        if ids is not None:
            arrays["id"] = np.array(["" if one is None else str(one) for one in ids[name]], dtype=np.str_)
        np.savez(own / "rows.npz", **arrays)
        write_node(own, "rows.npz", "rows", modules=modules, tells=True, approved=allowed, **more)
        cards.append(write_card(own))
    kit = add(folder, cards, columns=columns).kit
    for name in rows:
        approve(folder / NODES / name, kit)
    return FederationFile.read(folder)


def nodes_of(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the nodes that are on this machine, by name."""
    return tuple(sorted(one for one in (folder / NODES).glob("*") if one.is_dir()))


class LocalNodes:
    """The nodes of a federation that are all on this machine, asked in this process, one after another.

    Same messages, folders and journals as in a deployment; what is missing is the network, and with it TLS,
    authenticated nodes and time limits.

    Args:
        file: of the federation.

    Raises:
        ArgumentError: none of its nodes is on this machine.
    """

    def __init__(self, file: FederationFile) -> None:
        self._folders = dict(enumerate(nodes_of(file.folder)))
        if not self._folders:
            raise ArgumentError(
                f"{file.folder} has no nodes on this machine to simulate: privfed flower local makes some."
            )

    def nodes(self) -> tuple[int, ...]:
        """Return all nodes."""
        return tuple(self._folders)

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        """Send each node its message, and return all replies."""
        return Heard({node: answered(self._folders[node], data) for node, data in messages.items()})

    def close(self) -> None:
        """Do nothing: no process was started."""
