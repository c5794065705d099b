"""All rows of a journal are sealed: whatever is changed is an error where a fit begins or goes on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.core.stored.encoding import encode
from privfed.errors import StateError
from privfed.party.database import SEALED
from privfed.party.identity import read_identity
from privfed.party.journal import FILE, Journal
from privfed.party.state import Memories
from privfed.protocols.setup.setup_messages import AdvertiseRequest
from tests.party.elsewhere import Elsewhere
from tests.party.journals import agreement, client, new_party, question, request
from tests.party.test_peers import Parties
from tests.some import some
from tests.undeclared import ANYTHING


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A party's folder whose journal has a row in every table: fits over nodes, of which one has ended."""
    folder = tmp_path_factory.mktemp("whole")
    rows = [np.random.default_rng(i).normal(size=(12, 2)) for i in range(3)]
    engine = Elsewhere(folder, rows, ClientPolicy())
    for seed in range(2):
        DWFKMeans(2, protocol="masked-verified", engine=engine, random_state=seed, max_iter=2).fit()
    journal = engine.party(0).journal
    journal.end(1)
    fit = journal.begin(agreement(engine.party(0).own), 0, "rows", ANYTHING)
    with closing(sqlite3.connect(folder / "c0" / FILE)) as database:
        missing = {one for one in SEALED if not database.execute(f"SELECT COUNT(*) FROM {one}").fetchone()[0]}
    assert not missing
    with fit.together():
        fit.memory.save(Memories(3, {"model": b"m"}))
    return folder / "c0"


def columns(folder: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(folder / FILE)) as database:
        tables = [one for (one,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for _, name, *_ in database.execute(f"PRAGMA table_info({table})").fetchall():
                yield table, name


def changed(whole: Path, tmp_path: Path, *statements: str) -> Path:
    """Return a copy of a party's folder whose owner changed its journal, triggers taken out and put back."""
    folder = Path(shutil.copytree(whole, tmp_path / "copy"))
    with closing(sqlite3.connect(folder / FILE)) as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            assert database.execute(statement).rowcount, statement
        for _, sql in triggers:
            database.execute(sql)
        database.commit()
    return folder


def begun(folder: Path, seed: int = 9) -> Any:
    own = read_identity(folder)
    return Journal(folder, own).begin(agreement(own, seed), 0, "rows", ANYTHING)


def test_an_unchanged_journal_goes_on(whole: Path, tmp_path: Path) -> None:
    folder = changed(whole, tmp_path)
    assert begun(folder).number == begun(folder).number == 4


@pytest.mark.slow
def test_any_value_of_any_row_that_is_changed_is_noticed(whole: Path, tmp_path: Path) -> None:
    places = list(columns(whole))
    assert {table for table, _ in some(places)} >= {*SEALED, "entries", "sealed"}
    for table, column in places:
        for rows in ("", " WHERE rowid = (SELECT MAX(rowid) FROM fits)" if table == "fits" else ""):
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            value = (
                f"CASE typeof({column}) WHEN 'integer' THEN {column} + 1000 WHEN 'real' THEN {column} + 1 "
            )
            value += f"WHEN 'null' THEN 1 ELSE CAST({column} || 'x' AS BLOB) END"
            folder = changed(whole, tmp_path, f"UPDATE {table} SET {column} = {value}{rows}")
            with pytest.raises(StateError, match=r"make a new identity|another identity"):
                begun(folder)


@pytest.mark.parametrize("table", [*SEALED, "entries", "sealed"])
def test_rows_that_are_taken_away_or_added_are_noticed(table: str, whole: Path, tmp_path: Path) -> None:
    key = SEALED.get(table, {"entries": "counter"}.get(table, "row"))
    folder = changed(whole, tmp_path, f"DELETE FROM {table} WHERE {key} = (SELECT MAX({key}) FROM {table})")
    with pytest.raises(StateError, match=r"make a new identity|another identity"):
        begun(folder)
    shutil.rmtree(tmp_path / "copy")
    names = [name for where, name in columns(whole) if where == table]
    fresh = {
        key: f"{key} + 1000",
        "agreement": "x'01'",
        "name": "name || 'x'",
        "cells": "x'01'",
        "sum": "99",
        "counter": "counter + 1000",
    }
    values = ", ".join(fresh.get(name, name) for name in names)
    folder = changed(
        whole, tmp_path, f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} LIMIT 1"
    )
    with pytest.raises(StateError, match=r"make a new identity|another identity"):
        begun(folder)


def test_a_fit_that_goes_on_checks_all_rows_and_the_entries_since_it_began(
    whole: Path, tmp_path: Path
) -> None:
    folder = changed(whole, tmp_path, "UPDATE fits SET losses = losses - 1 + 1, spent = 0.5 WHERE number = 1")
    with pytest.raises(StateError, match="rows of fits are not what was written"):
        begun(folder, seed=0)
    shutil.rmtree(tmp_path / "copy")
    last = "UPDATE entries SET at = '' WHERE counter = (SELECT MAX(counter) FROM entries)"
    folder = changed(whole, tmp_path, last)
    with pytest.raises(StateError, match=r"entry \d+ is not what was written"):
        begun(folder, seed=0)


def test_triggers_that_were_taken_out_are_noticed(whole: Path, tmp_path: Path) -> None:
    folder = changed(whole, tmp_path)
    with closing(sqlite3.connect(folder / FILE)) as database:
        database.execute("DROP TRIGGER fits_go_on")
    with pytest.raises(StateError, match="tables or triggers"):
        begun(folder)


def test_messages_that_change_nothing_leave_no_trace(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path / "party")
    one = client(journal, agreement(own))
    one.handle(request(1, 0))
    before = journal.head
    for data in some([b"", b"x" * 40, request(1, 0), request(0, 0), request(2, 0, b"no question")]):
        for _ in range(20):
            one.handle(data)
    assert journal.head == before
    one.handle(request(2, 1, question(1.0).to_bytes()))
    assert journal.head.counter == before.counter + 2


def test_bad_messages_of_a_set_up_leave_no_trace(tmp_path: Path) -> None:
    parties = Parties(tmp_path)
    agreed = parties.agreement(0)
    (one, *_) = parties.clients(agreed)
    journal = Journal(tmp_path / "a", read_identity(tmp_path / "a"))
    before = journal.head
    for number in range(300):
        one.handle(encode(AdvertiseRequest(number.to_bytes(32, "big"), agreed.digest, bytes(64))))
        one.handle(bytes(number))
    assert journal.head == before
    parties.fit(1)
    assert journal.head.counter > before.counter
