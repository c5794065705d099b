"""The rows of a study's data sets, their partition into clients, and public rows for attackers.

benchmarks/data has the cost of published private clusterings on "blobs", "g2", "big" and "digits".
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from privfed.core.names import Registry
from privfed.core.values.domain import Box, FloatArray
from privfed.data import ClientTable, ClientTables, load_clients, partition
from privfed.errors import ArgumentError, DataError
from privfed.estimators.scaling import Scaling
from privfed.experiments.study import Data, Partition
from privfed.tables import load_described, read_schema

IntArray = npt.NDArray[np.int64]
Rows = tuple[FloatArray, IntArray | None]


@dataclass(frozen=True, eq=False)
class Table:
    """Holds the rows of a data set.

    Args:
        rows: float64 of shape (n_rows, n_features), scaled and clipped as the study says.
        labels: int64 codes of shape (n_rows,), or None.
        owners: position of each row's client, shape (n_rows,), if the file says it; else None.
        digest: hash of all these, in 16 hexadecimal digits.
    """

    rows: FloatArray
    labels: IntArray | None
    owners: IntArray | None
    digest: str


@dataclass(frozen=True, eq=False)
class Scene:
    """Holds one data set as one seed splits it.

    Args:
        clients: rows of each client, by position.
        labels: labels of these rows, or None.
        public: rows that no client has, (n, n_features); None if none are held back.
        public_labels: labels of these, or None.
        domain: declared domain, or None.
        joining: rows that join the first client, one before each further fit, (n, n_features).
    """

    clients: list[FloatArray]
    labels: list[IntArray] | None
    public: FloatArray | None
    domain: Box | None
    public_labels: IntArray | None = None
    joining: FloatArray | None = None

    def grown(self, number: int) -> Scene:
        """Return the same clients when so many of the joining rows have joined."""
        if self.joining is None:
            return self
        return replace(
            self, clients=[np.concatenate([self.clients[0], self.joining[:number]]), *self.clients[1:]]
        )

    def tables(self, labelled: bool = False) -> ClientTables:
        """Return the clients, who keep their groups of rows: within classes if they use the labels."""
        labels = self.labels if labelled and self.labels is not None else [None] * len(self.clients)
        own = (ClientTable(str(i), rows, labels[i]) for i, rows in enumerate(self.clients))
        return ClientTables(tuple(own), tuple(f"x{i}" for i in range(self.clients[0].shape[1])))

    def scaled(self, scaling: Scaling) -> Scene:
        """Return the same rows as a fit with `scale=` saw them; centers, scores and attacks are of these."""
        return replace(
            self,
            clients=[scaling.scaled(own) for own in self.clients],
            public=None if self.public is None else scaling.scaled(self.public),
            domain=scaling.domain(self.domain, self.clients[0].shape[1]),
        )

    @property
    def pooled(self) -> FloatArray:
        """The clients' rows in one table, for scoring only."""
        return np.concatenate(self.clients)


def blobs(data: Data) -> Rows:
    """Return the generated set "blobs"."""
    rng = np.random.default_rng(7)
    centers = np.array([(-0.6, -0.6), (0.6, -0.55), (0.0, 0.05), (-0.55, 0.6), (0.6, 0.6)])
    labels = rng.integers(0, 5, 10_000)
    return np.clip(centers[labels] + 0.2 * rng.standard_normal((10_000, 2)), -1, 1), labels


def g2(data: Data) -> Rows:
    """Return the generated set "g2"."""
    rng = np.random.default_rng(11)
    rows = np.concatenate([mean + 40 * rng.standard_normal((1024, 16)) for mean in (500, 600)])
    low, high = rows.min(axis=0), rows.max(axis=0)
    return 2 * (rows - low) / (high - low) - 1, np.repeat([0, 1], 1024)


def big(data: Data) -> Rows:
    """Return the generated set "big"."""
    rng = np.random.default_rng(13)
    centers = rng.uniform(-0.8, 0.8, (16, 8))
    labels = rng.choice(16, 100_000, p=rng.dirichlet(np.full(16, 5.0)))
    return np.clip(centers[labels] + 0.15 * rng.standard_normal((100_000, 8)), -1, 1), labels


def mixture(data: Data) -> Rows:
    """Return Gaussians of standard deviation 1, their means uniform in [-10, 10]."""
    rng = np.random.default_rng(data.seed)
    means = rng.uniform(-10, 10, (data.components, data.features))
    labels = rng.integers(data.components, size=data.rows)
    return means[labels] + rng.standard_normal((data.rows, data.features)), labels


def _loaded(load: Callable[..., Any]) -> Callable[[Data], Rows]:
    """Return the data set that a function of scikit-learn loads."""
    return lambda data: load(return_X_y=True)


breast_cancer, digits = _loaded(load_breast_cancer), _loaded(load_digits)
iris, wine = _loaded(load_iris), _loaded(load_wine)

DATA_SETS: Registry[Callable[[Data], Rows]] = Registry(
    "source",
    "privfed.data_sets",
    {
        name: f"{__name__}:{name}"
        for name in ("big", "blobs", "breast_cancer", "digits", "g2", "iris", "mixture", "wine")
    },
)
"""Data sets by name: functions of a study's `Data` to rows and labels. Packages add theirs by entry points of
`privfed.data_sets`."""


@lru_cache(maxsize=8)
def _read(
    source: str, group: str | None, label: str | None, columns: tuple[str, ...], schema: str | None
) -> tuple[FloatArray, IntArray | None, IntArray]:
    if schema is not None:
        tables = load_described(source, read_schema(schema), group=group, label=label)
    else:
        tables = load_clients(source, group=group, label=label, columns=columns or None)
    owners = np.repeat(np.arange(len(tables.names)), [len(rows) for rows in tables.arrays])
    labels = None if label is None or tables.labels is None else np.concatenate(tables.labels)
    return np.concatenate(tables.arrays), labels, owners


def load_table(data: Data, folder: Path) -> Table:
    """Load a data set.

    Args:
        data: the data set to load.
        folder: folder that relative paths start from.

    Raises:
        ArgumentError: neither a known set nor a file has this name.
        DataError: the file cannot be used.
    """
    owners = None
    if data.source in DATA_SETS or not (folder / data.source).exists():
        rows, labels = _made(data)
    else:
        schema = None if data.schema is None else str(folder / data.schema)
        rows, labels, owners = _read(str(folder / data.source), data.group, data.label, data.columns, schema)
    rows = _scaled(np.asarray(rows, dtype=np.float64), data)
    labels = None if labels is None else np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return Table(rows, labels, owners, _digest(rows, labels, owners))


def source_of(data: Data, folder: Path) -> str:
    """Return what a data set is read from: two of one source are of the same rows, however they are scaled.

    Args:
        data: the data set.
        folder: folder that relative paths start from.
    """
    path = folder / data.source
    if data.source not in DATA_SETS and path.exists():
        return str(path.resolve())
    drawn = (data.rows, data.features, data.components, data.seed)
    return f"mixture {drawn}" if data.source == "mixture" else data.source


def _made(data: Data) -> Rows:
    try:
        made = DATA_SETS.resolve(data.source)
    except ArgumentError:
        if ":" in data.source:
            raise
        known = ", ".join(sorted(DATA_SETS))
        raise ArgumentError(
            f"source must be one of {known}, or a path; there is no {data.source!r}."
        ) from None
    return made(data)


def _scaled(rows: FloatArray, data: Data) -> FloatArray:
    rows = (rows - data.center) / data.unit
    if data.standardise:
        deviation = rows.std(axis=0)
        rows = (rows - rows.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    return rows if data.low is None else np.clip(rows, data.low, data.high)


def _digest(*arrays: npt.NDArray[np.generic] | None) -> str:
    pieces = (
        b"none"
        if array is None
        else f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        for array in arrays
    )
    return hashlib.sha256(b"".join(pieces)).hexdigest()[:16]


def public_and_own(data: Data, n_rows: int, seed: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the indices of the public rows, and those of the rows that clients have, ascending."""
    order = np.random.default_rng([seed, 0]).permutation(n_rows)
    cut = round(data.public * n_rows)
    return order[:cut], np.sort(order[cut:])


def split(data: Data, table: Table, how: Partition, seed: int, joining: int = 0) -> Scene:
    """Hold back public rows and split the others into clients.

    Args:
        data: the data set.
        table: its rows.
        how: how they are split.
        seed: seed of the public rows and of the split.
        joining: how many of the rows that are held back are not public, as they join later.

    Raises:
        ArgumentError: the partition is unknown or impossible, or too few rows are held back.
        DataError: the partition is "given", but there is no group column.
    """
    held_back, kept = public_and_own(data, len(table.rows), seed)
    if joining >= max(len(held_back), 1):
        raise ArgumentError(
            f"row_joins takes {joining} of the {len(held_back)} rows that are held back: hold more back with "
            "public = ... in [[data]]."
        )
    later, held_back = held_back[:joining], held_back[joining:]
    public = table.rows[held_back] if len(held_back) else None
    rows, labels = table.rows[kept], None if table.labels is None else table.labels[kept]
    owners = None if table.owners is None else table.owners[kept]
    parts = _parts(how, rows, labels, owners, np.random.default_rng([seed, 1]))
    domain = None if data.low is None or data.high is None else Box(data.low, data.high)
    return Scene(
        [rows[own] for own in parts],
        None if labels is None else [labels[own] for own in parts],
        public,
        domain,
        None if public is None or table.labels is None else table.labels[held_back],
        table.rows[later] if joining else None,
    )


def _parts(
    how: Partition,
    rows: FloatArray,
    labels: IntArray | None,
    owners: IntArray | None,
    rng: np.random.Generator,
) -> list[npt.NDArray[np.intp]]:
    if how.kind == "given":
        if owners is None or how.clients:
            raise DataError("kind 'given' is for files with a group column, and takes no clients.")
        # A client whose rows are all public has none left and does not take part.
        return [np.flatnonzero(owners == client) for client in np.unique(owners)]
    options = {name: value for name, value in (("alpha", how.alpha), ("beta", how.beta)) if value is not None}
    return partition(rows, how.clients, how.kind, rng, y=labels, **options)
