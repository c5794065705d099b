"""A party's data sets, each exact, grouped or private for its life, and their groups of rows.

Property (`tests/nodes/test_datasets.py`): groups are in the journal before anything is answered from them,
and a client answers from those in the journal alone. Killed between any two steps, none are lost or made
twice.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ERRORS, ClientData
from privfed.core.roles.engine import ErrorLog, PythonLog, note
from privfed.errors import ArgumentError, DataError, PolicyError, StateError
from privfed.nodes.database import Database
from privfed.party.answerer import check_columns
from privfed.party.groups import BATCH, GROUPS, Groups, OwnRows, RawTable, as_ids

EXACT, GROUPED, PRIVATE = "exact", "grouped", "private"


def protection_of(policy: ClientPolicy, configuration: Configuration) -> str:
    """Return how a fit protects the rows of a data set: not at all, by groups, or by noise."""
    if configuration.privacy is not None:
        return PRIVATE
    return EXACT if policy.group_size == 1 else GROUPED


class DataSet:
    """One data set of a party's journal.

    Args:
        database: the journal's file.
        name: the party's own name of the rows.
    """

    def __init__(self, database: Database, name: str) -> None:
        self._database, self._name = database, name

    def used(self, protection: str) -> None:
        """Enter that a fit uses it, before anything is answered.

        Raises:
            PolicyError: it is protected otherwise, for life; the text is the code of the refusal.
        """
        self._database.rows(
            "INSERT OR IGNORE INTO data_sets (name, protection) VALUES (?, ?)", self._name, protection
        )
        if (known := self._protection) != protection:
            raise PolicyError(f"journal:{known}")

    def answering(self, rows: OwnRows, configuration: Configuration) -> ClientData:
        """Return what questions see of a data set in use: the rows, or the means of their groups.

        Where groups were to be made and could not be, that is nothing, and never the rows.

        Raises:
            ArgumentError: these have other columns than was agreed.
        """
        groups = self._groups()
        if groups is not None:
            seen = groups.expanded(rows.columns)
            if groups.in_units and rows.scaled is not None:
                seen = ClientData(rows.scaled(seen.features), seen.labels, grouped=True)
        elif self._protection == GROUPED:
            seen = ClientData(np.empty((0, configuration.n_features)), grouped=True)
        else:
            seen = rows.read(None).exact()
        check_columns(seen, configuration)
        return seen

    def begin(self, rows: OwnRows, m: int, log: ErrorLog | None) -> None:
        """Make the groups, or bring them up to date, where a fit begins.

        A table that cannot be read changes nothing of groups that there are, and makes none: its owner's log
        says why, and a later fit makes them.

        Raises:
            DataError: there are no groups, and there is no such table, or it lacks a column.
        """
        kept = PythonLog() if log is None else log
        with self._database.transaction():
            groups, elsewhere = self._groups(), self._ids_elsewhere()
            # Those of older journals are of scaled rows.
            in_units = groups is None or groups.in_units
            read = rows.units if in_units and rows.units is not None else rows.read
            table: RawTable | None = None
            try:
                if groups is None or groups.by_ids:
                    found = read(None if groups is None else groups.columns or None)
                    table = found if found.whole else None
                if left_out := len(elsewhere.intersection(as_ids((table and table.ids) or ()))):
                    note(kept, DataError(f"{left_out} ids are those of another data set; they are left out."))
                if groups is not None:
                    groups = groups.updated(table, m, elsewhere)
                elif table is not None:
                    groups = Groups.begun(table, m, elsewhere)
            except ERRORS as error:
                owns = isinstance(error, DataError | OSError)
                if isinstance(error, KeyboardInterrupt) or (groups is None and owns):
                    raise
                note(kept, error)
                groups = None if groups is None else groups.updated(None, m)
            if groups is not None:
                self._save(msgspec.structs.replace(groups, in_units=in_units))

    def prepare(self, rows: OwnRows, m: int) -> None:
        """Make the groups before a first fit does, which lacks the time for many rows; raises as `begin`."""
        with self._database.transaction():
            if self._groups() is None and self._protection in (None, GROUPED):
                self.used(GROUPED)
                self.begin(rows, m, None)

    def report(self, table: RawTable, m: int) -> str:
        """Return in words how many ids of a table are in groups once a fit begins: for its owner alone.

        Raises:
            DataError: the table is of another kind than the one that was grouped.
        """
        groups, elsewhere = self._groups(), self._ids_elsewhere()
        if groups is not None and not groups.by_ids:
            return f"{sum(groups.ids)} rows are in {len(groups.ids)} groups for good; no other is read"
        then = Groups.begun(table, m, elsewhere) if groups is None else groups.updated(table, m, elsewhere)
        if table.ids is None:
            return (
                f"{sum(then.ids)} of {len(table.features)} rows will be in {len(then.ids)} groups, for good"
            )
        ids = {*as_ids(table.ids)} - {""}
        inside = ids.intersection(one for members in then.members for one in members)
        return (
            f"{len(inside)} of {len(ids)} ids will be in {len(then.ids)} groups, {len(ids - inside)} wait: "
            f"new ids for {BATCH * then.m} of a class"
        )

    def kept(self, groups: bool) -> dict[str, Any]:
        """Return how the data set is protected for life, in which cells it was counted, and its groups.

        Args:
            groups: whether the groups themselves are in it, which are means of rows, and ids.
        """
        made, query = self._groups(), "SELECT lower(hex(cells)) FROM starts WHERE data_set = ?"
        return {
            "protection": self._protection,
            "group_size": None if made is None else made.m,
            "cells": [one for (one,) in self._database.rows(query, self._name)],
            "groups": GROUPS.to_bytes(made) if groups and made is not None else None,
        }

    def take(self, protection: str, cells: Sequence[str], groups: str | None, **others: Any) -> None:
        """Take over what `kept` returned of a data set; raises `ArgumentError` where groups are missing."""
        if protection == GROUPED and groups is None:
            raise ArgumentError(
                f"the record has no groups of {self._name!r}, and rows that are grouped anew are cut "
                "otherwise: take one of privfed journal export --with-groups, or a data set of other rows."
            )
        values = (self._name, protection, None if groups is None else b64decode(groups))
        self._database.rows("INSERT INTO data_sets (name, protection, groups) VALUES (?, ?, ?)", *values)
        for one in cells:
            statement = "INSERT INTO starts (data_set, cells) VALUES (?, ?)"
            self._database.rows(statement, self._name, bytes.fromhex(one))

    def go_on(self, m: int) -> None:
        """Unite groups, where their size has grown since the fit began."""
        groups = self._groups()
        if groups is not None and m > groups.m:
            self._save(groups.updated(None, m))

    def _groups(self) -> Groups | None:
        found = self._database.rows(
            "SELECT groups FROM data_sets WHERE name = ? AND groups IS NOT NULL", self._name
        )
        return self._read(found[0][0]) if found else None

    @property
    def _protection(self) -> str | None:
        found = self._database.rows("SELECT protection FROM data_sets WHERE name = ?", self._name)
        return found[0][0] if found else None

    def _ids_elsewhere(self) -> frozenset[str]:
        """Return all ids that were ever in a group of another data set."""
        query = "SELECT groups FROM data_sets WHERE name != ? AND groups IS NOT NULL"
        others = self._database.rows(query, self._name)
        return frozenset(one for (groups,) in others for one in self._read(groups).known)

    def _read(self, kept: bytes) -> Groups:
        try:
            return GROUPS.from_bytes(kept)
        except (ValueError, msgspec.MsgspecError) as error:
            raise StateError(f"the groups of a data set in the journal: {error}") from None

    def _save(self, groups: Groups) -> None:
        statement = "UPDATE data_sets SET groups = ? WHERE name = ?"
        self._database.rows(statement, GROUPS.to_bytes(groups), self._name)
