"""The files in which people configure a deployment: a node's own settings, and the coordinator's federation.

`node.toml` lies with the node's identity. It says which rows the node answers from, and its policy.
`federation.toml` lies in a folder of `privfed flower add`. With it the coordinator's process finds the nodes.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData, own_names
from privfed.core.names import ALGORITHMS, PLACES
from privfed.core.values.domain import Ball, Box, Domain, FloatArray
from privfed.core.values.numbers import check_whole
from privfed.data.conversion import MOST_CLASSES
from privfed.data.own import OwnFile
from privfed.data.table import LEAVE_OUT, Missing, missing_rule
from privfed.errors import ArgumentError, DataError
from privfed.nodes.identity import read_parties
from privfed.party.groups import RawTable
from privfed.tables.described_clients import DescribedFile
from privfed.tables.schema import Schema, parse, schema_text, to_value

SETTINGS, PARTIES_FILE, APPROVED = "node.toml", "parties", "approved"
"""In a node's folder beside its identity: settings, everybody's signed public keys, approved agreements."""

TEXT, TEXTS, NUMBER, SWITCH, TABLE = "a text", "a list of texts", "a number", "true or false", "a table"
_IS: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str) and value != "",
    TEXTS: lambda value: (
        isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)
    ),
    NUMBER: lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    SWITCH: lambda value: isinstance(value, bool),
    TABLE: lambda value: isinstance(value, dict),
    "": lambda value: True,
}
"""Type of a value in a file, as errors name it -> whether a value has it; the empty one is checked later."""

_NODE = {
    **dict.fromkeys(("data", "data_set", "labels", "id", "separator", "schema"), TEXT),
    **dict.fromkeys(("columns", "times", "modules"), TEXTS),
    **{"tells": SWITCH, "policy": TABLE, "domain": "", "missing": "", "classes": ""},
}
_FEDERATION = {
    "columns": TEXTS,
    "superlink": TEXT,
    **dict.fromkeys(("timeout", "wait"), NUMBER),
}


def _read(path: Path, command: str, types: Mapping[str, str], needed: Collection[str]) -> dict[str, Any]:
    """Return the table of a file, with known keys and values of their types.

    Args:
        path: of the file.
        command: that writes it.
        types: of its values, by name.
        needed: names that must be there.

    Raises:
        ArgumentError: the file is missing, a key is not known, or a value has another type.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ArgumentError(f"{path} is missing or no TOML; make it with: {command}") from None
    _check_keys(path, table, types)
    for name in types:
        if (name in table or name in needed) and not _IS[types[name]](table.get(name)):
            raise ArgumentError(f"{path}: {name} must be {types[name]}, got {table.get(name)!r}.")
    return table


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What a node's owner decides, and nobody else.

    Args:
        folder: the party's folder.
        data: table with the node's rows; a relative path starts in the folder.
        data_set: the party's own name of these rows, for its journal.
        columns: feature columns, in the agreed order; None for all of the table.
        labels: column with each row's class, whole numbers from 0, for what trains models; None for none.
        id: column with whose each row is, which is no feature. Groups of rows (`policy.group_size`) then have
            so many ids, and follow the table. None for a table that is never read again once it is grouped.
        classes: number of classes that labels tell apart; rows with other labels have none. None for any.
        times: the two columns that say in which rounds a row is there, the last two that are agreed; None
            where none may be used so.
        missing: what becomes of rows without a number in some column: "leave-out", or a public number that
            takes its place, row by row and in silence. None leaves them out, and `report` asks its owner.
        separator: between the fields of a CSV file; None to find it.
        schema: what the columns mean (docs/tables.md), in place of `columns`, `separator` and `missing`.
        tells: whether it passes totals that only clients open on to the process that drives the run.
        domain: the declared domain, where that is a ball; a box is in the agreement.
        modules: modules of this machine that register own algorithms, questions or sums.
        policy: what it answers, whatever the others agree on: what its owner approved, and nothing else.
    """

    folder: Path
    data: Path
    data_set: str
    columns: tuple[str, ...] | None = None
    labels: str | None = None
    id: str | None = None
    classes: int | None = None
    times: tuple[str, ...] | None = None
    missing: Missing | None = None
    separator: str | None = None
    schema: Schema | None = None
    tells: bool = False
    domain: Domain | None = None
    modules: tuple[str, ...] = ()
    policy: ClientPolicy = field(default_factory=ClientPolicy.closed)

    @classmethod
    def read(cls, folder: Path) -> NodeSettings:
        """Return the settings in a node's folder.

        Raises:
            ArgumentError: they are missing, or a key or value is not known.
        """
        path = folder / SETTINGS
        table = _read(path, "privfed flower join", _NODE, ("data", "data_set"))
        plain = ("data_set", "labels", "id", "separator", "tells")
        options: dict[str, Any] = {name: table[name] for name in plain if name in table}
        options |= {name: tuple(table[name]) for name in ("columns", "times", "modules") if name in table}
        if "schema" in table:
            options["schema"] = _schema(path, table)
        if "domain" in table:
            options["domain"] = _domain(path, table["domain"])
        options |= _rules(path, table)
        return cls(folder=folder, data=folder / table["data"], policy=_policy(path, table), **options)

    @property
    def table(self) -> OwnFile:
        """Where the node's rows lie, and how they are read."""
        options: dict[str, Any] = {} if self.schema is None else {"schema": self.schema}
        return (OwnFile if self.schema is None else DescribedFile)(
            path=self.data,
            columns=self.columns,
            label=self.labels,
            id=self.id,
            n_classes=self.classes,
            separator=self.separator,
            missing=LEAVE_OUT if self.missing is None else self.missing,
            **options,
        )

    def raw(self, agreed: Sequence[str] | None = None, gaps: Sequence[float] | FloatArray = ()) -> RawTable:
        """Return the node's rows, whatever they are, under differential privacy or not.

        Args:
            agreed: names of the columns that all parties agreed on; None where they have none.
            gaps: numbers that stand for missing values of the last columns, one a column.

        Raises:
            DataError: there is no such table, or it has other columns; no row is the cause.
        """
        found = self.table.read(agreed, gaps)
        names = found.columns if self.table.named else ()
        return RawTable(found.features, found.labels, found.ids, names)

    def rows(self, agreed: Sequence[str] | None = None) -> ClientData:
        """Return the node's rows as they are; arguments and errors are those of `raw`."""
        return replace(self.raw(agreed).exact(), classes=self.classes)

    def declared(self, configuration: Configuration) -> ClientData:
        """Return what the owner says that rows may be used for in a fit, as a client without rows."""
        labels = None if self.labels is None else np.empty(0, dtype=np.int64)
        n_features, own = configuration.n_features, self.columns or ()
        if not self.table.named:
            own = own or tuple(f"x{i}" for i in range(n_features))
        agreed = (configuration.columns or own)[-2:]
        # Arrays have all their columns, in their order.
        times = self.times is not None and self.times in (agreed, *[own[-2:]] * (not self.table.named))
        grouped = self.policy.group_size > 1 and configuration.privacy is None
        nothing = np.empty((0, n_features))
        return ClientData(nothing, labels, grouped=grouped, classes=self.classes, times=times)

    def report(self) -> list[str]:
        """Return what the node's rows are, and how they fit its copies of agreements: for its owner alone.

        Raises:
            ColumnsError: a copy of an agreement has other columns.
            DataError: there is no such table, no row of it is used, or nothing is declared of rows without a
                number or a class.
        """
        self.table.check()
        found = self.table.read()
        problems = found.problems()
        if not len(found.features):
            raise DataError(f"no row of {self.data} is used: {'; '.join(problems) or 'it has none'}.")
        if problems and self.missing is None and self.schema is None:
            raise DataError(
                f"{self.data}: {'; '.join(problems)}. Declare what becomes of such rows with "
                'missing="leave-out", or missing= and a public number; a running node would leave them out.'
            )
        agreed = [one.configuration for one in self.copies()]
        for one in agreed:
            self.table.read(one.columns)
        domains = [self.domain_of(one) for one in agreed] or [self.domain]
        counted = list(dict.fromkeys(line for domain in domains for line in found.report(domain)))
        return [*counted, *self._approvals()]

    def _approvals(self) -> list[str]:
        """Return in options what the owner approves.

        Raises:
            ArgumentError: something that is approved is no algorithm, and no question of a metric.
        """
        policy, path = self.policy, self.folder / SETTINGS
        self.register()
        for name in sorted(policy.algorithms or ()):
            if name not in ALGORITHMS and name not in {*PLACES, *own_names()}:
                raise ArgumentError(
                    f"{path}: no algorithm is called {name!r}; known are {', '.join(ALGORITHMS.names())}."
                )
        if not policy.algorithms:
            return [f"it answers nothing: name what may run on these rows as algorithms in {path}."]
        rows = "single rows" if policy.group_size == 1 else f"means of groups of {policy.group_size} rows"
        spent = "" if policy.max_epsilon is None else f", with epsilon {policy.max_epsilon:g} over all fits"
        fits = "any number of" if policy.max_fits is None else f"at most {policy.max_fits}"
        changes = "any" if policy.max_losses is None else f"{policy.max_losses}"
        return [
            f"it answers {', '.join(sorted(policy.algorithms))}, from {rows}{spent}, in {fits} fits with "
            f"{changes} losses or changes of clients, over "
            f"{', '.join(sorted(policy.protocols or ['any sum']))}."
        ]

    def register(self) -> None:
        """Import the modules that register what this node runs besides privfed's own."""
        for name in self.modules:
            import_module(name)

    def domain_of(self, configuration: Configuration) -> Domain | None:
        """Return the domain that the node declares: its own, or the agreed box."""
        return configuration.domain if self.domain is None else self.domain

    def approves(self, agreement: Agreement) -> bool:
        """Say whether an agreement is one of the owner's own copies, in all but its nonce.

        Without a folder of copies, everything within the policy is approved.
        """
        if not (self.folder / APPROVED).is_dir():
            return True
        wanted = _without_nonce(agreement)
        return any(_without_nonce(one) == wanted for one in self.copies())

    def copies(self) -> Iterator[Agreement]:
        """Yield the agreements of which the owner keeps copies."""
        for one in sorted((self.folder / APPROVED).glob("*")):
            yield Agreement.from_bytes(one.read_bytes())


def _without_nonce(agreement: Agreement) -> bytes:
    configuration = msgspec.structs.replace(agreement.configuration, nonce=b"")
    return Agreement(configuration, agreement.registry, agreement.part).digest


def _check_keys(path: Path, table: Mapping[str, Any], known: Collection[str]) -> None:
    if unknown := sorted(set(table) - set(known)):
        raise ArgumentError(f"{path}: {unknown[0]!r} is not known; known are {', '.join(known)}.")


def _rules(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    """Return what the table says of rows without a number, and of labels."""
    options: dict[str, Any] = {}
    if len(named := table.get("times", ("", ""))) != 2:
        raise ArgumentError(f"{path}: times must name two columns, got {named!r}.")
    for name in ("labels", "id"):
        if table.get(name) in table.get("columns", ()):
            raise ArgumentError(f"{path}: {name} must be none of the feature columns, got {table[name]!r}.")
    if "id" in table and table["id"] == table.get("labels"):
        raise ArgumentError(f"{path}: labels and id must be two columns, got {table['id']!r} for both.")
    try:
        if "missing" in table:
            options["missing"] = missing_rule(table["missing"], error=False)
        if "classes" in table:
            check_whole("classes", table["classes"], 2, MOST_CLASSES)
            options["classes"] = table["classes"]
    except ArgumentError as error:
        raise ArgumentError(f"{path}: {error}") from None
    return options


def _schema(path: Path, table: dict[str, Any]) -> Schema:
    """Return the schema that settings name; a relative path starts in their folder."""
    if both := [name for name in ("columns", "separator", "missing") if name in table]:
        raise ArgumentError(f"{path}: the schema says what {both[0]} would; leave it out.")
    place = path.parent / table["schema"]
    return parse(schema_text(place), str(place))


def _policy(path: Path, table: dict[str, Any]) -> ClientPolicy:
    given = table.get("policy", {})
    known = tuple(one.name for one in fields(ClientPolicy) if one.name != "domain")
    _check_keys(path, given, known)
    options: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value for name, value in given.items()
    }
    listed = path.parent / PARTIES_FILE
    parties = len(read_parties(listed).clients) if listed.exists() else 0
    return ClientPolicy.closed(parties, **options)


def _domain(path: Path, given: Any) -> Domain:
    domains: dict[str, Any] = {"box": Box, "ball": Ball}
    try:
        options = dict(given)
        return domains[options.pop("kind")](**options)  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(
            f'{path}: domain must be kind = "box" with low and high, or kind = "ball" with center and '
            f"radius ({error})."
        ) from None


FILE, HOME = "federation.toml", "flwr"
"""In the folder: the file, and what Flower keeps for itself."""


@dataclass(frozen=True, kw_only=True)
class FederationFile:
    """A federation over Flower, as its coordinator keeps it.

    Args:
        folder: where the file lies.
        columns: names of the columns, the same for all.
        superlink: address of Flower's SuperLink, host:port.
        timeout: seconds that a node has for one reply; messages live as long.
        wait: seconds to wait for nodes when a fit begins.
    """

    folder: Path
    columns: tuple[str, ...]
    superlink: str = "127.0.0.1:8000"
    timeout: float = 120.0
    wait: float = 120.0

    @classmethod
    def read(cls, folder: Path) -> FederationFile:
        """Return what is in a folder.

        Raises:
            ArgumentError: the file is missing, or a key or value is not known.
        """
        table = _read(folder / FILE, "privfed flower add", _FEDERATION, ("columns",))
        # Flower's commands run in a folder of their own.
        return cls(folder=folder.absolute(), **table | {"columns": tuple(table["columns"])})

    @property
    def coordinator(self) -> Path:
        """Folder of the coordinator's identity."""
        return self.folder / "coordinator"

    @property
    def parties(self) -> Path:
        """List of everybody's signed public keys."""
        return self.folder / PARTIES_FILE

    def text(self) -> str:
        """Return the file's text."""
        return (
            f"columns = {to_value(self.columns)}  # the same for all, in this order\n"
            f"superlink = {to_value(self.superlink)}\n"
            f"timeout = {self.timeout:g}  # seconds for one reply; messages live as long\n"
            f"wait = {self.wait:g}  # seconds to wait for nodes when a fit begins\n"
        )
