"""A party's data sets, each exact, grouped or private for its life, and their groups of rows.

Property (`tests/party/test_datasets.py`): groups are in the journal before anything is answered from them,
and a client answers from those in the journal alone. Killed between any two steps, none are lost or made
twice.
"""

from __future__ import annotations

import msgspec
import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ERRORS, ClientData
from privfed.core.roles.engine import ErrorLog, PythonLog, note
from privfed.errors import DataError, PolicyError, StateError
from privfed.party.answerer import check_columns
from privfed.party.database import Database
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
        with self._database.transaction() as database:
            query = "SELECT protection FROM data_sets WHERE name = ?"
            known = database.execute(query, (self._name,)).fetchone()
            if known is None:
                database.execute(
                    "INSERT INTO data_sets (name, protection) VALUES (?, ?)", (self._name, protection)
                )
            elif known[0] != protection:
                raise PolicyError(f"journal:{known[0]}")

    def answering(self, rows: OwnRows, configuration: Configuration) -> ClientData:
        """Return what questions see of a data set in use: the rows, or the means of their groups.

        Where groups were to be made and could not be, that is nothing, and never the rows.

        Raises:
            ArgumentError: these have other columns than was agreed.
        """
        with self._database.transaction() as database:
            query = "SELECT protection FROM data_sets WHERE name = ?"
            (protection,) = database.execute(query, (self._name,)).fetchone()
            groups = self._groups()
        if groups is not None:
            seen = groups.expanded(rows.columns)
            if groups.in_units and rows.scaled is not None:
                seen = ClientData(rows.scaled(seen.features), seen.labels, grouped=True)
        elif protection == GROUPED:
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

    def go_on(self, m: int) -> None:
        """Unite groups, where their size has grown since the fit began."""
        groups = self._groups()
        if groups is not None and m > groups.m:
            self._save(groups.updated(None, m))

    def _groups(self) -> Groups | None:
        with self._database.transaction() as database:
            query = "SELECT groups FROM data_sets WHERE name = ?"
            found = database.execute(query, (self._name,)).fetchone()
        return None if found is None or found[0] is None else self._read(found[0])

    def _ids_elsewhere(self) -> frozenset[str]:
        """Return all ids that were ever in a group of another data set."""
        with self._database.transaction() as database:
            query = "SELECT groups FROM data_sets WHERE name != ? AND groups IS NOT NULL"
            others = database.execute(query, (self._name,)).fetchall()
        return frozenset(one for (groups,) in others for one in self._read(groups).known)

    def _read(self, kept: bytes) -> Groups:
        try:
            return GROUPS.from_bytes(kept)
        except (ValueError, msgspec.MsgspecError) as error:
            raise StateError(f"the groups of a data set in the journal: {error}") from None

    def _save(self, groups: Groups) -> None:
        with self._database.transaction() as database:
            statement = "UPDATE data_sets SET groups = ? WHERE name = ?"
            database.execute(statement, (GROUPS.to_bytes(groups), self._name))
