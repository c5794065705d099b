"""Loads clients from tables that a schema describes, and says centers in the schema's units.

A party's own table that a schema describes, read row by row: no row makes the reading fail.
"""

from __future__ import annotations

import datetime
import math
import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from privfed.core.values.domain import FloatArray
from privfed.core.values.origin import Origin, joined
from privfed.data.conversion import check_classes
from privfed.data.loading import Source, clients_of
from privfed.data.own import OwnFile, ReadRows
from privfed.data.table import ERROR, LEAVE_OUT, ClientTables, Missing, marked, natural_key
from privfed.data.table_files import AnyArray, files_of, is_folder, stem
from privfed.errors import ArgumentError, PrivacyError
from privfed.tables.described_tables import read_described
from privfed.tables.schema import CATEGORY, DATE, WEIGHT, Schema


def load_described(
    path: str | os.PathLike[str],
    schema: Schema,
    *,
    group: str | None = None,
    label: str | None = None,
    id: str | None = None,
    clients: Sequence[str] | None = None,
    private: bool = False,
    classes: Sequence[str] | None = None,
    gaps: Collection[str] = (),
) -> ClientTables:
    """Load the rows of all clients as a schema describes them; otherwise as `load_clients` does.

    Args:
        path: a table, or a folder with one for each client.
        schema: what the columns mean.
        group: column with the client of each row; not for folders.
        label: column of true labels.
        id: column with whose each row is.
        clients: names of all clients, in the order to be used; None for those that are found.
        private: whether differential privacy will be claimed; no row may then cause an error.
        classes: values of the labels, as in `load_clients`.
        gaps: columns in which a missing value is NaN, whatever becomes of it otherwise.

    Raises:
        ArgumentError: one of these columns is a feature, or a folder has a group.
        DataError: a file lacks a column, or holds what the schema does not allow; or the names of two
            clients differ in spelling only.
        PrivacyError: with `private`, a row could cause an error, or clients or classes are not declared.
    """
    path = Path(path)
    check_classes(classes, private=private and label is not None)
    if private:
        schema.check_private()
        if group is not None and clients is None:
            raise PrivacyError("under differential privacy the clients are declared: name all with clients=.")
    roles = [one for one in (group, label, id) if one is not None]
    for name in roles:
        if name in schema.columns and schema.columns[name].is_feature:
            raise ArgumentError(f"column {name!r} is a feature in the schema; give it kind id or label.")
    folder = is_folder(path)
    if folder and group is not None:
        raise ArgumentError(f"group={group!r} cannot be used with the folder {path}; leave it out.")
    rule: Missing = math.nan if gaps else LEAVE_OUT if private else ERROR
    names = schema.features
    sources, changed = [], Counter[str]()
    for file in sorted(files_of(path), key=lambda one: natural_key(stem(one))) if folder else [path]:
        read = read_described(file, schema, private=private, also=roles, gaps=gaps).checked()
        frame = pl.DataFrame(
            {name: read.features[:, place] for place, name in enumerate(names)}
        ).with_columns(read.frame.select(list(dict.fromkeys(roles))))
        own = frame.filter(pl.Series(read.kept))
        changed.update(read.changed | {"": int(np.count_nonzero(~read.kept))})
        sources.append(Source(stem(file), str(file), own, label, group, id))
    # A row without an id is left out, too; which client a row is of is no part of it.
    left_out = private and (id is not None or leaves_out(schema, gaps))
    options: dict[str, Any] = {"private": private, "blocks": schema.blocks, "leaves_out": left_out}
    options["changed"] = changed
    return clients_of(sources, names, rule, path, clients, classes, **options)


def leaves_out(schema: Schema, gaps: Collection[str] = ()) -> bool:
    """Say whether rows that cause no error are left out where a column, none of `gaps`, has no value."""
    return any(
        own.is_feature and own.missing in (ERROR, LEAVE_OUT) and name not in gaps
        for name, own in schema.columns.items()
    )


def units_of(schema: Schema) -> tuple[FloatArray, FloatArray]:
    """Return what makes values in columns' units of features: value = shift + feature * factor.

    Args:
        schema: what the columns mean.

    Returns:
        Shifts and factors, each float64 of shape (n_features,). A value is a number in its unit, a date's
        days since its origin, of a category its share, and of an ordinal its position.
    """
    found = [
        ((0.0, 1.0 / own.weight) if own.kind == CATEGORY else schema.scaling(own)) for own in schema.meanings
    ]
    shift, factor = np.array(found, dtype=np.float64).T
    return shift, factor


def in_units(schema: Schema, centers: FloatArray) -> dict[str, AnyArray]:
    """Return centers as people read them.

    Args:
        schema: what the columns mean.
        centers: float64 of shape (n_clusters, n_features).

    Returns:
        Name with its unit -> values of shape (n_clusters,): numbers in the unit, dates as YYYY-MM-DD, of
        each category its share, and of an ordinal the mean position.
    """
    found = dict[str, AnyArray]()
    for name, own, one in zip(schema.features, schema.meanings, centers.T, strict=True):
        shift, spread = schema.scaling(own)
        values = one / own.weight if own.kind == CATEGORY else shift + one * spread
        found[name if own.kind == CATEGORY else own.titled(name)] = (
            np.array([(own.origin + datetime.timedelta(round(day))).isoformat() for day in values.tolist()])
            if own.kind == DATE
            else values
        )
    return found


def unscaled(schema: Schema) -> Schema:
    """Return a schema that reads the same rows before it scales them, with the usual weight of categories."""
    columns = {
        name: msgspec.structs.replace(own, shift=0.0, spread=1.0, weight=WEIGHT)
        for name, own in schema.columns.items()
    }
    return msgspec.structs.replace(schema, scale="none", columns=columns)


def scaled(schema: Schema, names: Sequence[str], rows: FloatArray) -> FloatArray:
    """Return rows, or means of rows, that were read by `unscaled`, in a schema's scale.

    Args:
        schema: what the columns mean.
        names: of the rows' columns, some of the schema's features.
        rows: float64 of shape (n_rows, n_names); what the scale makes too large becomes the largest number.
    """
    every = [
        (0.0, 1.0, own.weight / WEIGHT) if own.kind == CATEGORY else (*schema.scaling(own), 1.0)
        for own in schema.meanings
    ]
    shift, spread, weight = np.array([every[schema.features.index(name)] for name in names]).T
    most = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        return np.asarray(np.clip((rows - shift) / spread * weight, -most, most))


@dataclass(frozen=True, kw_only=True)
class DescribedFile(OwnFile):
    """Where a party's rows lie, and what their columns mean, in place of columns, separator and a rule.

    Args:
        schema: of its columns; the features are its.
    """

    schema: Schema

    @property
    def leaves_out(self) -> bool:
        """Whether rows are left out for what they hold: where the schema says so, or without an id."""
        return leaves_out(self.schema) or self.id is not None

    @property
    def origin(self) -> Origin:
        """Where the numbers and names of the schema come from."""
        return joined(*(one.provenance for one in self.schema.columns.values()))

    def read(self, agreed: Sequence[str] | None = None, gaps: Sequence[float] | FloatArray = ()) -> ReadRows:
        """Read the rows, as `OwnFile` does; what the schema does not read is missing."""
        roles, names = [one for one in (self.label, self.id) if one is not None], self.schema.features
        if agreed is not None:
            self._compare(names, agreed)
        columns = [name for name, places in self.schema.places.items() for _ in places]
        beside = (agreed or names)[len(agreed or names) - len(gaps) :]
        own = {columns[names.index(one)] for one in beside}
        found = read_described(self.path, self.schema, private=True, also=roles, gaps=own)
        # A row that the schema leaves out has no number, so that the one rule leaves it out.
        table = found.features[:, [names.index(name) for name in agreed or names]]
        table = np.where(found.kept[:, None], marked(table, gaps), np.nan)
        labels, ids = self._labels_and_ids(found.frame)
        return ReadRows(
            tuple(agreed or names), table, labels, LEAVE_OUT, ids, tuple(map(str, found.findings))
        )

    def check(self) -> None:
        """Check what the rows hold, for their owner alone.

        Raises:
            DataError: a row holds what the schema does not allow; a running node would leave it out.
        """
        read_described(self.path, self.schema).checked()
