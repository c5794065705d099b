"""Checked data of the clients of one fit: rows of finite numbers with the same columns.

Trust: these objects hold raw rows, so that they stay where the rows are (a client's machine, or the machine
that simulates the clients). Errors of this module quote names of clients and columns, and counts, but never a
value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.errors import DataError

LabelArray = npt.NDArray[np.int64]


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in order of first occurrence."""
    return [name for name, count in Counter(names).items() if count > 1]


def check_finite(features: FloatArray, columns: Sequence[str], owner: str) -> None:
    """Refuse missing and infinite values.

    Args:
        features: float64 of shape (n_rows, n_columns).
        columns: names of the columns.
        owner: the owner of the rows, as named in the message.

    Raises:
        DataError: a value is NaN or infinite; the message names the first such column and the count in it.
    """
    counts = np.count_nonzero(~np.isfinite(features), axis=0)
    if not counts.any():
        return
    first = int(np.argmax(counts > 0))
    others = int(np.count_nonzero(counts)) - 1
    elsewhere = f" (and more in {others} other columns)" if others else ""
    raise DataError(
        f"{owner} has {counts[first]} missing or infinite values in column {columns[first]!r}{elsewhere}; "
        "fill them in or remove those rows before loading."
    )


@dataclass(frozen=True, slots=True, eq=False)
class ClientTable:
    """Rows of one client.

    Args:
        name: name of the client; not empty.
        features: float64 of shape (n_rows, n_columns); kept as a read-only copy. `ClientTables`, which knows
            the columns' names, checks that its values are finite.
        labels: int64 of shape (n_rows,), codes of the rows' true labels; None without labels.

    Raises:
        DataError: no name, no columns, not two-dimensional, not numeric, or another number of labels than
            rows.
    """

    name: str
    features: FloatArray
    labels: LabelArray | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise DataError("a client has an empty name; give each client a name.")
        self._check_features()
        object.__setattr__(self, "features", frozen_array(self.features))
        if self.labels is not None:
            self._check_labels(np.asarray(self.labels))
            labels = np.array(self.labels, dtype=np.int64)
            labels.setflags(write=False)
            object.__setattr__(self, "labels", labels)

    def _check_features(self) -> None:
        features = np.asarray(self.features)
        if features.ndim != 2 or features.dtype.kind not in "biuf":
            raise DataError(
                f"client {self.name!r} has features of shape {features.shape} and type {features.dtype}; "
                "give a numeric array of shape (n_rows, n_columns)."
            )
        if features.shape[1] == 0:
            raise DataError(f"client {self.name!r} has no feature columns; give it at least one.")

    def _check_labels(self, labels: npt.NDArray[np.generic]) -> None:
        if labels.shape != (len(self.features),) or labels.dtype.kind not in "iu":
            raise DataError(
                f"client {self.name!r} has labels of shape {labels.shape} and type {labels.dtype}; "
                f"give one integer code for each of its {len(self.features)} rows."
            )


@dataclass(frozen=True, slots=True, eq=False)
class ClientTables:
    """Rows of all clients of a fit, in the order that fixes the clients' positions.

    Args:
        tables: one table a client; names differ.
        columns: names of the feature columns, the same for every client.
        label_names: original values of the labels; a label code is a position in it. None without labels, or
            where only the codes are known.
        private: whether the rows are for runs under differential privacy, where a client may hold none.

    Raises:
        DataError: no client, a client without rows, two clients or two columns of the same name, a client
            with another number of columns, a missing or infinite value, labels at some clients only, or a
            code without a name.
    """

    tables: tuple[ClientTable, ...]
    columns: tuple[str, ...]
    label_names: tuple[str, ...] | None = None
    private: bool = False

    def __post_init__(self) -> None:
        for field in ("tables", "columns"):
            object.__setattr__(self, field, tuple(getattr(self, field)))
        self._check_names()
        for table in self.tables:
            self._check_columns(table)
        self._check_labels()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clients."""
        return tuple(table.name for table in self.tables)

    @property
    def arrays(self) -> list[FloatArray]:
        """Features of each client, read-only float64 of shape (n_rows of the client, n_columns)."""
        return [table.features for table in self.tables]

    @property
    def labels(self) -> list[LabelArray] | None:
        """Label codes of each client, read-only int64 of shape (n_rows,); None without labels."""
        known = [table.labels for table in self.tables if table.labels is not None]
        return known or None

    def _check_names(self) -> None:
        if not self.tables:
            raise DataError("there are no clients; give at least one.")
        if names := repeated(self.names):
            raise DataError(
                f"two clients are called {names[0]!r}; rename one, each client needs its own name."
            )
        if columns := repeated(self.columns):
            raise DataError(
                f"two columns are called {columns[0]!r}; rename one, each column needs its own name."
            )

    def _check_columns(self, table: ClientTable) -> None:
        if table.features.shape[1] != len(self.columns):
            raise DataError(
                f"client {table.name!r} has {table.features.shape[1]} columns, expected {len(self.columns)}; "
                "give every client the same columns."
            )
        if not (self.private or len(table.features)):
            raise DataError(f"client {table.name!r} has no rows; leave it out or give it data.")
        check_finite(table.features, self.columns, f"client {table.name!r}")

    def _check_labels(self) -> None:
        without = [table.name for table in self.tables if table.labels is None]
        if without and len(without) < len(self.tables):
            raise DataError(
                f"client {without[0]!r} has no labels, but others have; "
                "give labels to every client or to none."
            )
        if self.label_names is None:
            return
        object.__setattr__(self, "label_names", tuple(self.label_names))
        if without:
            raise DataError(
                "label_names are given, but no client has labels; give labels or leave label_names out."
            )
        for table in self.tables:
            self._check_codes(table, len(self.label_names))

    def _check_codes(self, table: ClientTable, n_names: int) -> None:
        if table.labels is not None and ((table.labels < 0) | (table.labels >= n_names)).any():
            raise DataError(
                f"client {table.name!r} has label codes outside [0, {n_names}); "
                "a code must be a position in label_names."
            )
