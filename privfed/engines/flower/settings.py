"""A node's own settings: which rows it answers from, and what it insists on. They lie with its identity."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ball, Box, Domain
from privfed.data import ClientTables, load_clients
from privfed.data.table import LabelArray
from privfed.errors import ArgumentError, DataError

SETTINGS, PARTIES_FILE, APPROVED = "node.toml", "parties", "approved"
"""Files of a node's folder beside its identity: its settings, everybody's cards, agreements it approved."""

PARTY, PARTITION = "party", "partition-id"
"""Keys of what Flower knows of a node: its party's folder; in a simulation, which of the folders it is."""

KNOWN = ("data", "data_set", "columns", "labels", "separator", "tells", "domain", "modules", "policy")


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What a node's owner decides, and nobody else.

    Args:
        folder: the party's folder.
        data: table with the node's rows; a relative path starts in the folder.
        data_set: the party's own name of these rows, for its journal.
        columns: feature columns, in the agreed order; None for all of the table.
        labels: column with each row's class, whole numbers from 0, for what trains models; None for none.
        separator: between the fields of a CSV file; None to find it.
        tells: whether it tells the process that drives the run totals that only clients open.
        domain: the declared domain, where that is a ball; a box is in the agreement.
        modules: modules of this machine that register own algorithms, questions or sums.
        policy: what it answers, whatever the others agree on.
    """

    folder: Path
    data: Path
    data_set: str
    columns: tuple[str, ...] | None = None
    labels: str | None = None
    separator: str | None = None
    tells: bool = False
    domain: Domain | None = None
    modules: tuple[str, ...] = ()
    policy: ClientPolicy = field(default_factory=ClientPolicy)

    @classmethod
    def read(cls, folder: Path) -> NodeSettings:
        """Return the settings in a node's folder.

        Raises:
            ArgumentError: they are missing, or a key or value is not known.
        """
        path = folder / SETTINGS
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
            raise ArgumentError(f"{path} is missing or no TOML; make it with: privfed flower join") from None
        _check_keys(path, table, KNOWN)
        for name in ("data", "data_set", "labels"):
            if name == "labels" and name not in table:
                continue
            if not isinstance(table.get(name), str) or not table[name]:
                raise ArgumentError(f"{path}: {name} must be a text, got {table.get(name)!r}.")
        words: dict[str, Any] = {
            name: table[name] for name in ("data_set", "labels", "separator", "tells") if name in table
        }
        words |= {name: _texts(path, name, table[name]) for name in ("columns", "modules") if name in table}
        if not isinstance(words.get("tells", False), bool):
            raise ArgumentError(f"{path}: tells must be true or false, got {words['tells']!r}.")
        if "domain" in table:
            words["domain"] = _domain(path, table["domain"])
        return cls(folder=folder, data=folder / table["data"], policy=_policy(path, table), **words)

    def rows(self, *, private: bool = False) -> ClientData:
        """Return the node's rows; raises `DataError` or `ArgumentError`, which quote no value.

        Args:
            private: whether differential privacy is claimed, under which there may be none.
        """
        tables = load_clients(
            self.data, columns=self.columns, label=self.labels, separator=self.separator, private=private
        )
        if len(tables.arrays) != 1:
            raise ArgumentError(f"{self.data} has {len(tables.arrays)} clients; a node's table is its own.")
        return ClientData(tables.arrays[0], None if self.labels is None else self._classes(tables))

    def _classes(self, tables: ClientTables) -> LabelArray:
        """Return the labels as they are written, which are codes that all clients agreed on.

        Raises:
            DataError: some are no whole numbers, or out of range; the message quotes none.
        """
        names = tables.label_names or ()
        if not all(re.fullmatch("[0-9]{1,9}", one) for one in names):
            raise DataError(
                f"{self.data}: the labels {self.labels!r} must be whole numbers from 0 to {10**9 - 1}, the "
                "same class by the same number for all clients; encode them, and leave no row without one."
            )
        codes = np.array([int(one) for one in names], dtype=np.int64)
        return codes[tables.labels[0]] if tables.labels else np.zeros(0, dtype=np.int64)

    def register(self) -> None:
        """Import the modules that register what this node runs besides privfed's own."""
        for name in self.modules:
            import_module(name)

    def domain_of(self, configuration: Configuration) -> Domain | None:
        """Return the domain that the node declares: its own, or the agreed box."""
        agreed = configuration
        if self.domain is not None or agreed.low is None or agreed.high is None:
            return self.domain
        return Box(agreed.low.to_numpy(), agreed.high.to_numpy(), agreed.max_rows)

    def approves(self, agreement: Agreement) -> bool:
        """Say whether an agreement is one of the owner's own copies, in all but its nonce.

        Without a folder of copies, everything within the policy is approved.
        """
        folder = self.folder / APPROVED
        if not folder.is_dir():
            return True
        copies = (Agreement.from_bytes(one.read_bytes()) for one in sorted(folder.iterdir()))
        wanted = _without_nonce(agreement)
        return any(_without_nonce(one) == wanted for one in copies)


def _without_nonce(agreement: Agreement) -> bytes:
    configuration = msgspec.structs.replace(agreement.configuration, nonce=b"")
    return Agreement(configuration, agreement.registry, agreement.part).digest


def _check_keys(path: Path, table: dict[str, Any], known: tuple[str, ...]) -> None:
    if unknown := sorted(set(table) - set(known)):
        raise ArgumentError(f"{path}: {unknown[0]!r} is not known; known are {', '.join(known)}.")


def _texts(path: Path, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise ArgumentError(f"{path}: {name} must be a list of texts, got {value!r}.")
    return tuple(value)


def _policy(path: Path, table: dict[str, Any]) -> ClientPolicy:
    given = table.get("policy", {})
    known = tuple(one.name for one in fields(ClientPolicy) if one.name != "domain")
    if not isinstance(given, dict):
        raise ArgumentError(f"{path}: policy must be a table, got {given!r}.")
    _check_keys(path, given, known)
    words: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value for name, value in given.items()
    }
    return ClientPolicy(**words)


def _domain(path: Path, given: Any) -> Domain:
    kinds: dict[str, Any] = {"box": Box, "ball": Ball}
    try:
        words = dict(given)
        return kinds[words.pop("kind")](**words)  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f'{path}: domain must be kind = "box" with low and high, or kind = "ball" with center and '
            f"radius ({error})."
        ) from None
