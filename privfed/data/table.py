"""Checked data of the clients of one fit, the rules for missing values, and the order of clients.

Trust: these objects hold raw rows. They stay where the rows are: on a client's machine, or on the machine
that simulates the clients. Errors of this module quote names of clients and columns, and counts, but never a
value.

A rule says what becomes of a row without a number in some column. It is public and looks at one row at a
time. Under differential privacy the rule is declared before anybody looks at the rows: an error, or a mean in
a missing value's place, would depend on other rows.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.origin import Origin
from privfed.errors import ArgumentError, DataError, warn

LabelArray = npt.NDArray[np.int64]


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, in order of first occurrence."""
    return [name for name, count in Counter(names).items() if count > 1]


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names for a message, not all of very many."""
    shown = ", ".join(map(repr, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def same_but_for_spelling(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return pairs of names that differ in blanks, upper and lower case, or forms of a letter only."""
    seen, pairs = dict[str, str](), list[tuple[str, str]]()
    for name in names:
        key = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        if key in seen and seen[key] != name:
            pairs.append((seen[key], name))
        seen.setdefault(key, name)
    return pairs


def check_spelling(names: Sequence[str], path: object) -> None:
    """Refuse clients that may be one, and whose rows would be those of two.

    Args:
        names: of the clients that were found.
        path: where, for the message.

    Raises:
        DataError: two names differ in spelling only.
    """
    if pairs := same_but_for_spelling(names):
        raise DataError(
            f"clients {pairs[0][0]!r} and {pairs[0][1]!r} of {path} differ in spelling only; "
            "rename one, or name both with clients= if they are two."
        )


def check_finite(features: FloatArray, columns: Sequence[str], owner: str, remedy: str = "") -> None:
    """Refuse missing and infinite values.

    Args:
        features: float64 of shape (n_rows, n_columns).
        columns: names of the columns.
        owner: the owner of the rows, as named in the message.
        remedy: what else helps, for the message.

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
        f"fill them in or remove those rows before loading{remedy}."
    )


@dataclass(frozen=True, slots=True, eq=False)
class ClientTable:
    """Rows of one client.

    Args:
        name: name of the client; not empty.
        features: float64 of shape (n_rows, n_columns); kept as a read-only copy. NaN where there is no value.
        labels: int64 of shape (n_rows,), codes of the rows' true labels; None without labels.
        ids: whose each row is, one text a row, never a feature; None where each row stands for itself.

    Raises:
        DataError: no name, no columns, not two-dimensional, not numeric, or another number of labels or ids
            than rows.
    """

    name: str
    features: FloatArray
    labels: LabelArray | None = None
    ids: tuple[str, ...] | None = None

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
        if self.ids is not None and len(self.ids) != len(self.features):
            raise DataError(
                f"client {self.name!r} has {len(self.ids)} ids for {len(self.features)} rows; give one a row."
            )

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
        unlabelled: whether rows may have no label, which is the code `NO_LABEL`.
        blocks: positions of columns that are one column of the table together, such as the categories of a
            ward: a fit scales them alike. No block for a column of its own.
        leaves_out: whether a rule leaves rows out for what they hold, so that their number depends on it.
        changed: column -> rows that are left out, filled or clipped for what they hold there; under "" those
            that are left out in all. Empty under differential privacy.
        listed: where the list of clients comes from: exact where those were taken that have rows.
        prepared: where the numbers come from by which rows were scaled or filled, such as means of all rows.

    Attributes:
        kept: what is kept of the rows for the life of this object, such as their groups
            (`privfed.federation.simulation`). It never leaves this process, and no copy has it.

    Raises:
        DataError: there is no client, or a client has no rows or another number of columns. Two clients or
            two columns have the same name. Only some clients have labels, or a code has no name.
    """

    tables: tuple[ClientTable, ...]
    columns: tuple[str, ...]
    label_names: tuple[str, ...] | None = None
    private: bool = False
    unlabelled: bool = False
    blocks: tuple[tuple[int, ...], ...] = ()
    leaves_out: bool = False
    changed: Mapping[str, int] = field(default_factory=dict)
    listed: Origin = Origin.DECLARED
    prepared: Origin = Origin.DECLARED
    kept: dict[str, object] = field(default_factory=dict, repr=False, init=False)

    def __post_init__(self) -> None:
        for name in ("tables", "columns"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
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
        return [table.labels for table in self.tables if table.labels is not None] or None

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
        least, n_names = NO_LABEL if self.unlabelled else 0, len(self.label_names)
        for table in self.tables:
            if table.labels is not None and ((table.labels < least) | (table.labels >= n_names)).any():
                raise DataError(
                    f"client {table.name!r} has label codes outside [0, {n_names}); "
                    "a code must be a position in label_names."
                )


ERROR: Final = "error"
LEAVE_OUT: Final = "leave-out"

KEEP: Final = "keep"

Missing = Literal["error", "leave-out", "keep"] | float
"""An error; leave such rows out; or the public number in the place of each missing value, NaN to keep it."""

DECLARE = 'or leave such rows out with missing="leave-out", or give missing= a public number to put in'
"""End of errors about missing values."""

NO_LABEL = -1
"""Code of a row without a label, or whose label is no class: it counts in nothing that asks for labels."""


def missing_rule(value: Any, *, error: bool = True) -> Missing:
    """Return a rule as it was written: "error", "leave-out", a number, or a text of a number; NaN for "keep".

    Args:
        value: what was written.
        error: whether the rule may be an error, or "keep", which leaves gaps to a `FederatedImputer`.

    Raises:
        ArgumentError: it is none of them, or a number that is not finite.
    """
    if value == LEAVE_OUT:
        return LEAVE_OUT
    if value in (ERROR, KEEP) and error:
        return ERROR if value == ERROR else math.nan
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        names = '"error", "leave-out", "keep"' if error else '"leave-out"'
        raise ArgumentError(
            f"missing must be {names} or a finite number, got missing={value!r}.", parameters=["missing"]
        )
    return number


def marked(rows: FloatArray, gaps: Sequence[float] | FloatArray) -> FloatArray:
    """Return rows with a number of `gaps` in place of each NaN of the last columns, one a column.

    Rows with fewer columns than that stay as narrow as they are, for whoever checks how many there are.
    """
    marks = np.append(np.full(rows.shape[1], np.nan), gaps)[len(gaps) :]
    return np.where(np.isnan(rows), marks, rows)


def filled(features: FloatArray, rule: Missing) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return rows after a rule, and which of them are kept.

    Property: what becomes of a row depends on that row and the rule alone.

    Args:
        features: float64 of shape (n_rows, n_columns); missing values are NaN or infinite.
        rule: `ERROR` changes nothing.

    Returns:
        The rows, of the same shape, and bool of shape (n_rows,).
    """
    present = np.isfinite(features)
    if rule == LEAVE_OUT:
        return features, np.asarray(present.all(axis=1), dtype=np.bool_)
    return (features if rule == ERROR else np.where(present, features, rule)), np.ones(
        len(features), dtype=np.bool_
    )


def warn_of_many(n_clients: int, n_rows: int) -> None:
    """Warn where a column makes as many clients as a tenth of the rows: it may be another column.

    Args:
        n_clients: that were found in the column.
        n_rows: of all of them.

    Warns:
        UserWarning: there are more than twenty, with fewer than ten rows each on average.
    """
    if n_clients > max(20, n_rows / 10):
        warn(
            f"groups= makes {n_clients:,} clients of {n_rows:,} rows. If that is a column of numbers or ids, "
            "name the column with the clients instead. Each client is asked by itself, which takes time."
        )


_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_DIGITS = re.compile(r"([0-9]+)")

NaturalKey = tuple[int, float, tuple[tuple[int, str], ...], str]


def natural_key(text: str) -> NaturalKey:
    """Return the key that sorts texts naturally: numbers by value, then texts, digits in them by value.

    `client2` comes before `client10`, and `-1` before `0`. The order of clients fixes their positions in a
    fit, so it must not depend on the file system or on which row of a table comes first.

    Property: the keys of two different texts differ, so that the order never depends on the order of arrival.
    """
    if _NUMBER.fullmatch(text):
        return (0, float(text), (), text)
    # Runs of digits are compared by length, without leading zeros, and then as text: this is the order of
    # their values, without converting runs that may be thousands of digits long.
    chunks = (
        chunk.lstrip("0") if position % 2 else chunk for position, chunk in enumerate(_DIGITS.split(text))
    )
    return (
        1,
        0.0,
        tuple((len(chunk) * (position % 2), chunk) for position, chunk in enumerate(chunks)),
        text,
    )
