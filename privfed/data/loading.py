"""Loading clients from files: a table with a group column, a folder with one file a client, or arrays.

Simulations load all clients at once; a party of a real federation loads its own file as one client. Error
messages name files, clients and columns and give counts, but never quote a value.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from privfed.core.values.origin import Origin
from privfed.data.conversion import (
    FEATURES,
    any_numbers,
    array_frame,
    check_classes,
    classes_of,
    codes,
    feature_array,
    rows_frame,
    sorted_names,
    text_column,
)
from privfed.data.own import frame_by_rows
from privfed.data.table import (
    DECLARE,
    ERROR,
    LEAVE_OUT,
    ClientTable,
    ClientTables,
    Missing,
    check_finite,
    check_spelling,
    filled,
    listed,
    missing_rule,
    natural_key,
    repeated,
    warn_of_many,
)
from privfed.data.table_files import (
    AnyArray,
    are_rows,
    files_of,
    is_folder,
    read_arrays,
    read_frame,
    stem,
    suffix,
)
from privfed.errors import ArgumentError, DataError, PrivacyError

PathLike = str | os.PathLike[str]

# Names of the arrays in an .npz file of rows, unless the caller names others.
_LABEL, _GROUP = "y", "client"


@dataclass(frozen=True, slots=True)
class Source:
    """Rows of one client, or of several clients with a group column.

    Args:
        name: name of the client where there is no group column.
        origin: how messages name the rows.
        frame: the rows.
        label: column of the labels, or None.
        group: column with the client of each row, or None.
        id: column with whose each row is, or None.
        by_rows: whether no row may cause an error: what is no number is missing.
    """

    name: str
    origin: str
    frame: pl.DataFrame
    label: str | None
    group: str | None = None
    id: str | None = None
    by_rows: bool = False

    def require(self, names: Sequence[str]) -> None:
        """Check that all names are columns."""
        for name in names:
            if name not in self.frame.columns:
                raise DataError(
                    f"{self.origin} has no column {name!r}; its columns are {listed(self.frame.columns)}."
                )

    def texts(self, name: str | None, role: str, missing: Missing) -> pl.Series | None:
        """Return the column of that name as text; None for no name."""
        if name is None:
            return None
        return text_column(self.frame[name], self.origin, role, missing=missing != ERROR)

    def unlabelled(self) -> Source:
        """Return the same rows without labels, which arrays have by default."""
        return replace(self, label=None, frame=self.frame.drop([self.label] if self.label else []))

    def features(self, drop: Sequence[str] = ()) -> list[str]:
        """Return the names of all columns but the label's, the group's, the ids' and those to `drop`."""
        names = [one for one in self.frame.columns if one not in (self.label, self.group, self.id, *drop)]
        if not names:
            raise DataError(
                f"{self.origin} has no feature columns; its columns are {listed(self.frame.columns)}."
            )
        if "" in names:
            raise DataError(
                f"{self.origin} has a column without a name (an index that was saved along?); "
                "name it, or choose columns with columns=."
            )
        return names


def load_clients(
    path: PathLike,
    *,
    group: str | None = None,
    label: str | None = None,
    id: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    separator: str | None = None,
    clients: Sequence[str] | None = None,
    private: bool = False,
    missing: Missing | None = None,
    classes: Sequence[str] | None = None,
) -> ClientTables:
    """Load the rows of all clients from a file or a folder.

    Formats are CSV and TSV (UTF-8 with a header line, also compressed by gzip), Parquet, .xlsx, and .npz
    without pickles. A folder holds one file a client, which is named after the client. A single file is
    split into clients by its column `group`; without one it is one client, named after the file. An .npz
    file holds an array X of rows, and optionally y (labels) and `client` (the group); its columns are called
    x0, x1, ... . Without an X, it holds one array of rows a client, under the client's name. Clients are
    sorted by name in natural order.

    Args:
        path: the file or folder.
        group: column (in an .npz file: array, by default "client") with the client of each row; not for
            folders.
        label: column (in an .npz file: array, by default "y") of true labels of any type; it is never a
            feature.
        id: column (in an .npz file: array) with whose each row is, of any type; it is never a feature. All
            rows of an id are in one group of rows (`ClientPolicy.group_size`).
        columns: names of the feature columns, in the order to be used; None for all but these three, in the
            order of the first client. Columns of other clients are matched by name.
        drop: names of columns that are no features, each a column of some client; not with `columns`.
        separator: character between the fields of a CSV file; None to find , ; tab or | in the header line.
        clients: names of all clients, in the order to be used; those that are not found get no rows. None
            for the clients that are found.
        private: whether differential privacy will be claimed. A client may then hold no rows, and with a
            group column `clients` is required, since the list of the clients found depends on rows. Each
            line is then read by itself, as at a party, and none causes an error: what is no number is
            missing. A row without a label has the code -1. A row that says no id, no client, or a client
            that `clients` does not name is left out, and nothing says so: whoever reads a run would learn
            of it.
        missing: what becomes of a row without a number in some feature column: "error"; "leave-out"; "keep",
            for a `FederatedImputer`; or the public number that takes the place of each missing or infinite
            value. None for "error", and with `private`, where an error would tell of a row, for "leave-out".
        classes: values of the labels as text, in the order of their codes; others have the code -1. None for
            those that are found. `private` with `label` needs them: codes would depend on rows.

    Returns:
        The clients. Labels are codes into `label_names`: `classes`, or the sorted values of all clients
        together.

    Raises:
        ArgumentError: `columns` is empty, repeats itself or names the group, label or id, or two of these are
            one column. Each client has its own file or array, and `group` is passed. `separator` is not one
            character, or `missing` is none of its values.
        DataError: a file is missing, empty, unreadable or of an unknown format. A column is unknown,
            repeated, not numeric or not the same for all clients. A value is missing or infinite. Some
            clients have no labels, a client has no rows, or one is not named by `clients`. Without `clients`
            the names of two differ in spelling only.
        PrivacyError: with `private`, clients or classes would have to be found in a column, or `missing` is
            "error".
    """
    check_path(path)
    check_choice(columns, group=group, label=label, id=id)
    check_classes(classes, private=private and label is not None)
    missing = missing_rule((LEAVE_OUT if private else ERROR) if missing is None else missing)
    if private and missing == ERROR:
        raise PrivacyError(
            'under differential privacy an error would tell of a row: declare missing="leave-out", or '
            "missing= and a public number.",
            parameters=["missing"],
        )
    sources = _sources(Path(path), group, label, id, separator, private)
    if private and label is None and classes is None:
        sources = [source.unlabelled() for source in sources]
    for source in sources:
        # Checked first: for a misspelt group, the error would otherwise be about a feature column of text.
        source.require([name for name in (source.group, source.label, source.id) if name is not None])
    if private and clients is None and any(source.group is not None for source in sources):
        raise PrivacyError(
            f"under differential privacy the clients of {path} must be declared: a list of those that have "
            "rows would show whose only row is in it. Name all of them with clients=."
        )
    if drop and columns is not None:
        raise ArgumentError("columns names what to keep; leave out drop.", parameters=["columns", "drop"])
    for name in drop:
        if not any(name in source.frame.columns for source in sources):
            raise DataError(f"{path} has no column {name!r} to drop; correct its name.")
    names = _common_columns(sources, columns, drop)
    left_out = missing != ERROR and (isinstance(missing, str) or id is not None)
    options: dict[str, Any] = {"private": private, "leaves_out": left_out}
    return clients_of(sources, names, missing, path, clients, classes, **options)


def clients_of(
    sources: Sequence[Source],
    names: Sequence[str],
    missing: Missing,
    path: PathLike,
    clients: Sequence[str] | None,
    classes: Sequence[str] | None,
    **options: Any,
) -> ClientTables:
    """Return the clients of `sources`, which all have the feature columns `names`.

    The other arguments are as of `load_clients`, and `options` those of `ClientTables`.

    Raises:
        DataError: `clients` does not name one, or without it two names differ in spelling only.
    """
    labels = [text for one in sources if (text := one.texts(one.label, "label", missing)) is not None]
    label_names, unlabelled = classes_of(labels, classes), missing != ERROR or bool(classes)
    changed = Counter(options.pop("changed", {}))
    tables = [
        table for source in sources for table in _tables_of(source, names, label_names, missing, changed)
    ]
    if clients is not None:
        # Under differential privacy an error about what a column holds would tell of a row.
        found = [one for one in sources if one.group is None] if options["private"] else tables
        if unnamed := len({one.name for one in found} - set(clients)):
            raise DataError(
                f"{path} has rows of {unnamed} clients that clients= does not name; name them there, or name "
                "the column of the clients with group=."
            )
        tables = _declared_tables(tables, clients, len(names), labelled=label_names is not None)
    else:
        check_spelling([one.name for one in tables], path)
        if any(one.group is not None for one in sources):
            options["listed"] = Origin.EXACT
            warn_of_many(len(tables), sum(len(one.features) for one in tables))
    for table in tables if missing == ERROR else ():
        check_finite(table.features, names, f"client {table.name!r}", f", {DECLARE}")
    options["changed"] = {} if options["private"] else dict(changed)
    return ClientTables(tuple(tables), tuple(names), label_names, unlabelled=unlabelled, **options)


def check_choice(columns: Sequence[str] | None, **roles: str | None) -> None:
    """Refuse feature columns that are none, named twice or in another role, and one column in two roles."""
    for (role, name), (other, another) in combinations(roles.items(), 2):
        if name is not None and name == another:
            raise ArgumentError(
                f"{role} and {other} must be two columns, got {name!r} for both.", parameters=[role, other]
            )
    if columns is None:
        return
    if isinstance(columns, str) or len(columns) == 0:
        raise ArgumentError(
            f"columns must be a list of one or more names, got columns={columns!r}.", parameters=["columns"]
        )
    if twice := repeated(columns):
        raise ArgumentError(
            f"columns names {twice[0]!r} twice; name each column once.", parameters=["columns"]
        )
    for role, name in roles.items():
        if name in columns:
            raise ArgumentError(
                f"columns names {name!r}, which is the {role}; a {role} column is no feature.",
                parameters=["columns"],
            )


def check_path(path: Any) -> None:
    """Refuse what is no path."""
    if not isinstance(path, str | os.PathLike):
        raise ArgumentError(f"path must be that of a file or a folder, got {type(path).__name__}.")


def _sources(
    path: Path,
    group: str | None,
    label: str | None,
    id: str | None,
    separator: str | None,
    private: bool,
) -> list[Source]:
    if is_folder(path):
        _refuse_group(group, f"the folder {path}: each of its files is one client")
        files = sorted(files_of(path), key=lambda file: natural_key(stem(file)))
        return [_source(file, f"client {stem(file)!r}", label, "", id, separator, private) for file in files]
    arrays = read_arrays(path) if suffix(path) == ".npz" else None
    if arrays is None or FEATURES in arrays:
        return [_source(path, str(path), label, group, id, separator, private, arrays)]
    _refuse_group(group, f"{path}: without an array 'X' each of its arrays is one client")
    for role, given in (("label", label), ("id", id)):
        if given is not None:
            raise ArgumentError(f"{role}={given!r} cannot be used with {path}, which has no array 'X'.")
    frames = {name: array_frame(one, f"array {name!r} of {path}", private) for name, one in arrays.items()}
    return [Source(name, f"client {name!r}", frames[name], None) for name in sorted(frames, key=natural_key)]


def _refuse_group(group: str | None, where: str) -> None:
    if group is not None:
        raise ArgumentError(f"group={group!r} cannot be used with {where} already; leave it out.")


def _source(
    path: Path,
    origin: str,
    label: str | None,
    group: str | None,
    id: str | None,
    separator: str | None,
    private: bool,
    arrays: dict[str, AnyArray] | None = None,
) -> Source:
    """Read one file; with `private` each line of a text by itself, as a party does.

    Args:
        path: of the file.
        origin: how messages name its rows.
        label: column of the labels; in an .npz file by default the array "y".
        group: column of the clients; in an .npz file by default the array "client". Empty for one client.
        id: column of the ids.
        separator: between the fields of a CSV file.
        private: whether differential privacy will be claimed.
        arrays: those of an .npz file, where they were read already.
    """
    if suffix(path) != ".npz":
        frame = frame_by_rows(path, separator) if private else read_frame(path, separator)
        return Source(stem(path), origin, frame, label, group or None, id, private)
    arrays = read_arrays(path) if arrays is None else arrays
    # An array that is named for one use is not the default for another.
    if label is None and _LABEL in arrays and _LABEL not in (group, id):
        label = _LABEL
    if group is None and _GROUP in arrays and _GROUP not in (label, id):
        group = _GROUP
    return Source(
        stem(path), origin, rows_frame(path, arrays, (label, group, id), private), label, group or None, id
    )


def _common_columns(
    sources: Sequence[Source], columns: Sequence[str] | None, drop: Sequence[str] = ()
) -> list[str]:
    """Return the feature columns, which every source has."""
    if columns is not None:
        for source in sources:
            source.require(columns)
        return list(columns)
    first = sources[0].features(drop)
    for source in sources[1:]:
        if difference := set(first) ^ set(source.features(drop)):
            raise DataError(
                f"{sources[0].origin} and {source.origin} have different columns: only one of them has "
                f"{listed(sorted(difference, key=natural_key))}; "
                "rename them, drop them with drop=, or choose common ones with columns=."
            )
    return first


def _tables_of(
    source: Source,
    columns: Sequence[str],
    label_names: Sequence[str] | None,
    missing: Missing,
    changed: Counter[str],
) -> list[ClientTable]:
    """Make the tables of the clients of one source, and count the rows that are changed (`ClientTables`)."""
    if missing != ERROR:
        source = replace(source, frame=source.frame.filter(are_rows(source.frame)))
    if source.by_rows:
        read = [any_numbers(source.frame[name], source.origin) for name in columns]
        numbers = np.stack(read, axis=1).reshape(source.frame.height, len(columns))
    else:
        numbers = feature_array(source.frame, columns, source.origin)
    features, kept = filled(numbers, missing)
    changed.update(dict(zip(columns, np.count_nonzero(~np.isfinite(numbers), axis=0).tolist(), strict=True)))
    texts = source.texts(source.label, "label", missing)
    clients = source.texts(source.group, "group", missing)
    labels = None if texts is None or label_names is None else codes(texts, label_names)
    names = [] if clients is None else sorted_names([clients])
    texts = source.texts(source.id, "id", missing)
    kept &= True if texts is None else texts.is_not_null().to_numpy()
    ids = None if texts is None else np.array(texts.to_list(), dtype=object)
    members = np.zeros(len(kept), dtype=np.int64) if clients is None else codes(clients, names)
    kept &= members >= 0
    changed[""] += int(np.count_nonzero(~kept))
    features, members, labels = features[kept], members[kept], None if labels is None else labels[kept]
    ids = None if ids is None else ids[kept]
    if clients is None:
        return [ClientTable(source.name, features, labels, None if ids is None else tuple(ids))]
    if not names:
        return []
    # The sort is stable, so that a client's rows keep the order of the file.
    order = np.argsort(members, kind="stable")
    starts = np.searchsorted(np.sort(members), range(1, len(names)))
    return [
        ClientTable(
            name,
            features[rows],
            labels if labels is None else labels[rows],
            ids if ids is None else tuple(ids[rows]),
        )
        for name, rows in zip(names, np.split(order, starts), strict=True)
    ]


def _declared_tables(
    tables: Sequence[ClientTable], clients: Sequence[str], width: int, labelled: bool
) -> list[ClientTable]:
    """Return a table for each declared client, in that order; those that were not found have no rows."""
    found = {table.name: table for table in tables}
    labels = np.empty(0, dtype=np.int64) if labelled else None
    ids = () if any(one.ids is not None for one in tables) else None
    return [found.get(name) or ClientTable(name, np.empty((0, width)), labels, ids) for name in clients]
