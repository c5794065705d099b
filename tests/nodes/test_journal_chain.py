"""Entries of a journal are chained: one that was changed is an error where a fit begins."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.core.stored.encoding import digest, encode
from privfed.errors import StateError
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import FILE, Journal
from privfed.party.state import Memories
from privfed.protocols.setup.setup_messages import AdvertiseRequest
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import agreement, client, new_party, question, request
from tests.nodes.test_peers import Parties
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
    with fit.together():
        fit.store("memory").save(Memories(3, {"model": b"m"}))
    return folder / "c0"


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


@pytest.mark.parametrize("column", ["at", "fit", "kind", "content", "head"])
@pytest.mark.parametrize("which", ["MIN", "MAX"])
def test_an_entry_that_was_changed_is_noticed(column: str, which: str, whole: Path, tmp_path: Path) -> None:
    where = f"WHERE counter = (SELECT {which}(counter) FROM entries)"
    value = "zeroblob(32)" if column == "head" else f"{column} || 'x'"
    folder = changed(whole, tmp_path, f"UPDATE entries SET {column} = {value} {where}")
    for used in (begun, lambda folder: Journal(folder, read_identity(folder)).entries()):
        with pytest.raises(StateError, match="make a new identity"):
            used(folder)


def test_entries_that_are_taken_away_or_added_are_noticed(whole: Path, tmp_path: Path) -> None:
    first = changed(whole, tmp_path, "DELETE FROM entries WHERE counter = 2")
    with pytest.raises(StateError, match="entry 2 is not what was written"):
        begun(first)
    shutil.rmtree(first)
    added = "INSERT INTO entries SELECT counter + 1000, at, fit, kind, content, head FROM entries LIMIT 1"
    with pytest.raises(StateError, match="is not what was written"):
        begun(changed(whole, tmp_path, added))


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
        one.handle(encode(AdvertiseRequest(number.to_bytes(32, "big"), number, agreed.digest, bytes(64))))
        one.handle(bytes(number))
    assert journal.head == before
    parties.fit(1)
    assert journal.head.counter > before.counter


def test_a_head_that_peers_see_cannot_be_guessed_from_entries(whole: Path) -> None:
    """Whoever knows every entry, but not the identity's random id, cannot compute the head."""
    own = read_identity(whole)
    for begin, same in ((digest("journal", own.journal), True), (digest("journal"), False)):
        head = begin
        for one in Journal(whole, own).entries():
            content = json.dumps(one["content"], sort_keys=True)
            fields = (one["counter"], one["at"], one["fit"], one["kind"], content)
            head = digest("entry", head, msgspec.msgpack.encode(fields))
        assert (head == Journal(whole, own).head.head) == same
