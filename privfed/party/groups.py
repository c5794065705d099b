"""A data set's groups of rows: a client's rows enter what leaves only as the means of groups.

A unit is the mean of an id's rows of one class, which counts once; without ids, a row. What holds, for one
client: rows enter what leaves only through the sequence of its group tables (mean, size, class). Except by
uniting, groups are made in disjoint batches, each group with at least `m` units that were in no group before.
So every combination of group sums with a non-zero coefficient has at least `m` units that share one non-zero
coefficient: those that were new in its latest group. `m` is the smallest that was ever used (`Groups.least`).

No claim is made for a person at two clients or under two ids. A class discloses.
No inference is bounded: alike rows, few or binary columns, outliers, known members of a group.

Properties (`tests/party/test_groups.py`): the combinations above, over drawn histories; the order of rows
moves no bit; and two tables with one sequence of group tables give the same bytes of all that a client sends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Self
from unicodedata import category, normalize

import msgspec
import numpy as np

from privfed.core.asking.question import ClientData
from privfed.core.stored.encoding import Array, Codec
from privfed.core.values.domain import FloatArray
from privfed.errors import ColumnsError, DataError
from privfed.numerics.microaggregation import (
    IntArray,
    canonical_order,
    group_means,
    microaggregated,
    nearest_with_room,
)

BATCH = 4
"""New ids wait until there are `BATCH` times m: m - 1 planted ones among m would surely show the last."""

MOST = 3
"""A group always has fewer than `MOST` times m ids."""

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, eq=False)
class RawTable:
    """A client's rows as they are, before anything is done to them.

    Args:
        features: float64 of shape (n_rows, n_features), finite.
        classes: int64 of shape (n_rows,); None without labels.
        ids: whose each row is, compared as `as_ids` does; None for a table that is never read again.
        columns: names of the columns; empty where they have none.
        whole: whether it could be read; what could not has no rows here.
    """

    features: FloatArray
    classes: IntArray | None = None
    ids: Sequence[str] | None = None
    columns: tuple[str, ...] = ()
    whole: bool = True

    def exact(self) -> ClientData:
        """Return the rows as they are."""
        return ClientData(self.features, self.classes, users=self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class OwnRows:
    """How a party reads its own rows, which it does only where its groups do not stand for them.

    Args:
        read: reads the table with some columns; None for those that are answered from.
        columns: those that are answered from, in the agreed order; None for all.
        n_classes: how many classes the rows' labels tell apart, as their owner says; None for any number.
        times: whether the last two columns may be used as times of rows: the owner says so.
        units: reads the same before a schema scales it, for groups; None where nothing scales.
        scaled: maps rows or means with the columns that are answered from to the schema's scale.
    """

    read: Callable[[tuple[str, ...] | None], RawTable]
    columns: tuple[str, ...] | None = None
    n_classes: int | None = None
    times: bool = False
    units: Callable[[tuple[str, ...] | None], RawTable] | None = None
    scaled: Callable[[FloatArray], FloatArray] | None = None

    @classmethod
    def of(cls, data: ClientData) -> OwnRows:
        """Return how rows are read that are there."""
        table = RawTable(data.features, data.labels, data.users)
        return cls(lambda columns: table, n_classes=data.classes, times=data.times)


def as_ids(values: Iterable[Any]) -> tuple[str, ...]:
    """Return ids as text that no format of a file changes; "" for a missing one. Each depends on no other.

    3, 3.0, "03", " 3 " and "3e0" are the same id, and so are "p-7" and "P-7": numbers are compared as
    float64, other ids without regard to case, width of characters, spaces and characters that show nothing.
    Bytes are compared as the text that they encode.
    """
    return tuple(map(_as_id, values))


def _as_id(value: Any) -> str:
    if value is None or value != value:
        return ""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = " ".join((text.lower() if text.isascii() else _folded(text)).split())
    if not _NUMBER.fullmatch(text) or not isfinite(number := float(text)):
        return text
    return str(int(number)) if number.is_integer() else repr(number)


def _folded(text: str) -> str:
    """Return text as all its spellings have it; folded characters may compose anew, as in upper case."""
    shown = "".join(one for one in normalize("NFKC", text) if category(one) != "Cf")
    return normalize("NFKC", normalize("NFKC", shown).casefold())


class Groups(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The groups of one data set, for its life. A value: `updated` returns the next one.

    Args:
        m: fewest ids of a group.
        least: the `m` of the first groups, the smallest ever used.
        by_ids: whether the table has ids; without, it is frozen when it is first grouped.
        columns: names of the columns; empty where they have none.
        means: mean of each group, of shape (n_groups, n_features), in the order of class, mean and size.
        rows: number of rows of each group; with ids as many as these.
        ids: number of ids of each group; without ids, of rows.
        classes: class of each group; None without labels.
        members: ids of each group, sorted; empty without ids.
        known: all ids that were ever in a group, sorted.
        in_units: whether means are of rows before a schema scaled them, so that its scale may change.
    """

    m: int
    least: int
    by_ids: bool
    columns: tuple[str, ...]
    means: Array
    rows: tuple[int, ...]
    ids: tuple[int, ...]
    classes: tuple[int, ...] | None
    members: tuple[tuple[str, ...], ...]
    known: tuple[str, ...]
    in_units: bool = False

    def __repr__(self) -> str:
        return f"Groups(m={self.m}, {len(self.rows)} groups)"

    @classmethod
    def begun(cls, table: RawTable, m: int, elsewhere: Collection[str] = ()) -> Self:
        """Return the first groups of a data set, from its whole table: the only partition without ids.

        Args:
            table: all rows, before box, clipping, scaling, choice of columns and filters.
            m: fewest ids of a group. Of a class with fewer there are no groups.
            elsewhere: ids of other data sets, whose rows are left out.
        """
        units = _Units.of(table).without(elsewhere)
        groups = units.merged(units.cut(m, m))
        return cls._from_units(
            groups, table.classes is not None, table.ids is not None, table.columns, m, m, ()
        )

    def updated(self, table: RawTable | None, m: int, elsewhere: Collection[str] = ()) -> Self:
        """Return the groups after a change of the table.

        Rows of an id in a group are not read. An id that is gone takes its group along, and the group's
        others wait for `m` that were never in one. New ones wait for 4 `m` (of a class). Rests wait.

        Args:
            table: all rows; None where they cannot be read. Without ids it is not read.
            m: fewest ids of a group: more than before unites groups, fewer change nothing.
            elsewhere: ids of other data sets, whose rows are left out.

        Raises:
            DataError: the table has lost its ids or labels, or has other columns.
        """
        if not self.by_ids:
            table = None
        if table is not None:
            self._check(table)
        groups, m, known = self._units(), max(m, self.m), set(self.known)
        units = None if table is None else _Units.of(table)
        if units is not None:
            present = {one for member in units.members for one in member}
            groups = groups.only(
                np.array([present.issuperset(members) for members in groups.members], dtype=np.bool_)
            )
        if m > self.m:
            groups = groups.united(m)
        if units is not None:
            groups = groups.joined(_batch(units.without([*elsewhere, *groups.all_members]), known, m))
            known.update(groups.all_members)
        after = self._from_units(
            groups, self.classes is not None, self.by_ids, self.columns, m, self.least, known
        )
        return msgspec.structs.replace(after, in_units=self.in_units)

    def expanded(self, columns: Sequence[str] | None = None) -> ClientData:
        """Return the only table that questions see: each group's mean, once for each of its ids (or rows).

        Args:
            columns: some of the table's columns, in the order that is needed; None for all.

        Raises:
            ColumnsError: the groups were made without one of them.
        """
        means = self.means.to_numpy()
        if columns is not None and self.columns:
            if lacking := [name for name in columns if name not in self.columns]:
                raise ColumnsError(
                    f"the rows were grouped without the column {lacking[0]!r}; take those they had, "
                    "or a new data set."
                )
            means = means[:, [self.columns.index(name) for name in columns]]
        classes = None if self.classes is None else np.array(self.classes, dtype=np.int64)
        labels = None if classes is None else np.repeat(classes, self.rows)
        return ClientData(np.repeat(means, self.rows, axis=0), labels, grouped=True)

    def mapped(self, means: FloatArray) -> Self:
        """Return the same groups with other means: of the same rows after an affine map of each column."""
        return msgspec.structs.replace(self, means=Array.from_numpy(means), columns=())

    def _check(self, table: RawTable) -> None:
        if table.ids is None:
            raise DataError("the rows of this data set had ids: name the column again, or a new data set.")
        if (table.classes is None) != (self.classes is None):
            raise DataError("this data set began with labels or without: name their column as before.")
        if (table.columns, table.features.shape[1]) != (self.columns, self.means.shape[1]):
            raise DataError("this data set began with other columns: name these, or a new data set.")
        # The same rows under other ids would be grouped a second time.
        if self.known and len(table.ids) and not {*self.known}.intersection(as_ids(table.ids)):
            raise DataError(
                "no id of this table was in a group of this data set: write the ids as before; rows of other "
                "people are a data set of their own."
            )

    def _units(self) -> _Units:
        members = self.members if self.by_ids else [()] * len(self.rows)
        classes = [0] * len(self.rows) if self.classes is None else self.classes
        rows, ids, kinds = (np.array(one, dtype=np.int64) for one in (self.rows, self.ids, classes))
        return _Units(self.means.to_numpy(), rows, ids, kinds, members)

    @classmethod
    def _from_units(
        cls,
        groups: _Units,
        labelled: bool,
        by_ids: bool,
        columns: tuple[str, ...],
        m: int,
        least: int,
        known: Collection[str],
    ) -> Self:
        # In the order of class, mean and size: no other order of rows may move a bit.
        sorted_ = groups.only(
            canonical_order(groups.classes.astype(np.float64), groups.points, groups.rows.astype(np.float64))
        )
        return cls(
            m=m,
            least=least,
            by_ids=by_ids,
            columns=columns,
            means=Array.from_numpy(sorted_.points),
            rows=tuple(sorted_.rows.tolist()),
            ids=tuple(sorted_.ids.tolist()),
            classes=tuple(sorted_.classes.tolist()) if labelled else None,
            members=tuple(sorted_.members) if by_ids else (),
            known=tuple(sorted({*known, *sorted_.all_members})),
        )


GROUPS: Codec[Groups] = Codec(Groups, "groups of rows", 1)


def _batch(units: _Units, known: Collection[str], m: int) -> _Units:
    """Return groups of ids that are in none: each of `m` new ones, and of others as far as there is room."""
    new = np.array([member[0] not in known for member in units.members], dtype=np.bool_)
    fresh, former = units.only(new), units.only(~new)
    labels = fresh.cut(m, BATCH * m)
    return fresh.joined(former).merged(
        np.concatenate([labels, fresh.merged(labels).places_for(former, MOST * m - 1)])
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Units:
    """Units, or groups of them: mean, numbers of rows and ids, class and ids of each."""

    points: FloatArray
    rows: IntArray
    ids: IntArray
    classes: IntArray
    members: Sequence[tuple[str, ...]]

    @classmethod
    def of(cls, table: RawTable) -> _Units:
        """Return the units of a table: an id's rows of one class; without ids, each row."""
        n_rows = len(table.features)
        ones = np.ones(n_rows, dtype=np.int64)
        classes = np.zeros(n_rows, dtype=np.int64) if table.classes is None else table.classes
        rows = cls(table.features, ones, ones, classes, [()] * n_rows)
        if table.ids is None:
            return rows
        names, owner = np.unique(np.array(as_ids(table.ids), dtype=object), return_inverse=True)
        found, unit = np.unique(
            np.unique(classes, return_inverse=True)[1] * len(names) + owner, return_inverse=True
        )
        members = [(names[one % len(names)],) for one in found.tolist()]
        units = rows.merged(unit)
        # Each id counts once, however many rows it has. A row without an id is nobody's.
        return cls(units.points, units.rows**0, units.rows**0, units.classes, members).without([""])

    @property
    def all_members(self) -> set[str]:
        """All ids."""
        return {one for members in self.members for one in members}

    def only(self, chosen: Any) -> _Units:
        """Return some of them, by numbers or a mask."""
        numbers = np.arange(len(self.rows))[chosen]
        members = [self.members[i] for i in numbers.tolist()]
        return _Units(
            self.points[numbers], self.rows[numbers], self.ids[numbers], self.classes[numbers], members
        )

    def without(self, ids: Collection[str]) -> _Units:
        """Return those that none of some ids is in."""
        left_out = set(ids)
        return self.only(np.array([left_out.isdisjoint(one) for one in self.members], dtype=np.bool_))

    def joined(self, others: _Units) -> _Units:
        """Return both, these first."""
        return _Units(
            np.concatenate([self.points, others.points]),
            np.concatenate([self.rows, others.rows]),
            np.concatenate([self.ids, others.ids]),
            np.concatenate([self.classes, others.classes]),
            [*self.members, *others.members],
        )

    def merged(self, labels: IntArray) -> _Units:
        """Return one for each label, the mean over rows; what has the label -1 is left out."""
        order = canonical_order(self.points, self.rows.astype(np.float64))
        order = order[labels[order] >= 0]
        order = order[labels[order].argsort(kind="stable")]
        ends = np.bincount(labels[order]).cumsum()
        starts = np.concatenate([[0], ends])[:-1].astype(np.int64)
        points = group_means(self.points, self.rows, order, ends)
        if not len(ends):
            return self.only(ends)
        rows, ids = (np.add.reduceat(one[order], starts) for one in (self.rows, self.ids))
        members: list[tuple[str, ...]] = [()] * len(ends)
        if any(self.members):
            parts = [order[start:end].tolist() for start, end in zip(starts, ends, strict=True)]
            members = [tuple(sorted({one for i in part for one in self.members[i]})) for part in parts]
        return _Units(points, rows, ids, self.classes[order[starts]], members)

    def cut(self, m: int, fewest: int) -> IntArray:
        """Return a label for each: groups of alike ones with at least `m` ids, in classes of `fewest`."""
        labels, made = np.full(len(self.rows), -1, dtype=np.int64), 0
        for kind in np.unique(self.classes):
            own = np.flatnonzero(self.classes == kind)
            if self.ids[own].sum() < fewest:
                continue
            order, ends = microaggregated(self.points[own], m, ids=self.ids[own], rows=self.rows[own])
            labels[own[order]] = made + np.repeat(np.arange(len(ends)), np.diff(np.concatenate([[0], ends])))
            made += len(ends)
        return labels

    def united(self, m: int) -> _Units:
        """Return groups of at least `m` ids: small ones unite, else join the nearest, else are left out."""
        small = self.ids < m
        large, labels = self.only(~small), np.full(len(self.rows), -1, dtype=np.int64)
        labels[~small] = np.arange(len(large.rows))
        among = self.only(small)
        found = among.cut(m, m)
        alone = found < 0
        found[~alone] += len(large.rows)
        found[alone] = large.places_for(among.only(alone), MOST * m - 1)
        labels[small] = found
        return self.merged(labels)

    def places_for(self, others: _Units, most: int) -> IntArray:
        """Return the nearest group of the same class for each of some others; -1 where none has room."""
        found = np.full(len(others.rows), -1, dtype=np.int64)
        order = canonical_order(others.points, others.rows.astype(np.float64))
        for kind in np.unique(others.classes):
            groups = np.flatnonzero(self.classes == kind)
            own = order[others.classes[order] == kind]
            if len(groups):
                chosen = nearest_with_room(
                    others.points[own], others.ids[own], self.points[groups], most - self.ids[groups]
                )
                found[own] = np.where(chosen < 0, -1, groups[chosen])
        return found
