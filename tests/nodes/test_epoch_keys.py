"""What a fit must forget is sealed under keys beside the journal, and a key that was used is overwritten."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from privfed import ClientPolicy
from privfed.errors import PolicyError, StateError
from privfed.nodes.database import KEYS, PAGE, Database
from privfed.nodes.identity import OwnIdentity
from privfed.nodes.journal import FILE, Journal
from privfed.nodes.journalled import SECRET, JournalledFit, JournalStore
from tests.nodes.journals import agreement, new_party
from tests.party.killing import KILLED, SURVIVED, killed_at
from tests.undeclared import ANYTHING

OLD, NEW = (bytes([one]) * 6400 for one in (7, 9))


class Raw:
    def to_bytes(self, value: bytes) -> bytes:
        return value

    from_bytes = to_bytes


def opened(folder: Path, own: OwnIdentity) -> JournalledFit:
    return Journal(folder, own).begin(agreement(own), 0, "rows", ANYTHING)


def save(fit: JournalledFit, column: Any, value: bytes) -> None:
    with JournalStore(fit, column, Raw()).transaction() as stored:
        stored.save(value)


def load(folder: Path, own: OwnIdentity, column: Any) -> Any:
    with JournalStore(opened(folder, own), column, Raw()).transaction() as stored:
        return stored.load()


def keys_in(folder: Path) -> set[bytes]:
    """Return the keys that lie beside a journal."""
    data = (folder / KEYS).read_bytes()
    found = {data[place : place + 32] for place in range(0, len(data), PAGE)}
    return found - {bytes(32)}


@pytest.mark.parametrize("column", SECRET)
def test_the_database_holds_no_value_in_clear_and_each_key_seals_one(column: str, tmp_path: Path) -> None:
    own, _ = new_party(tmp_path)
    fit, seen = opened(tmp_path, own), set[bytes]()
    for value in (OLD, NEW, OLD, NEW):
        with fit.together():
            save(fit, column, value)
            for file in tmp_path.iterdir():
                assert value[:32] not in file.read_bytes()
        assert load(tmp_path, own, column) == value
        assert value[:32] not in (tmp_path / FILE).read_bytes()
        now = keys_in(tmp_path)
        assert len(now) == 1 and not now & seen
        seen |= now
    fit.end()
    assert not keys_in(tmp_path)


def test_a_copy_of_the_database_that_was_made_before_opens_nothing_with_later_keys(tmp_path: Path) -> None:
    own, _ = new_party(tmp_path)
    fit = opened(tmp_path, own)
    save(fit, "state", OLD)
    shutil.copy(tmp_path / FILE, tmp_path / "copy")
    save(fit, "state", NEW)
    shutil.copy(tmp_path / "copy", tmp_path / FILE)
    with pytest.raises(StateError, match="other keys"):
        load(tmp_path, own, "state")
    (tmp_path / KEYS).unlink()
    with pytest.raises(StateError, match="other keys"):
        load(tmp_path, own, "state")


def test_values_of_fits_and_columns_have_keys_of_their_own(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    fits = [journal.begin(agreement(own, seed), 0, "rows", ANYTHING) for seed in range(3)]
    for place, (fit, column) in enumerate(itertools.product(fits, SECRET)):
        save(fit, column, bytes([place]) * 40)
    assert len(keys_in(tmp_path)) == 12
    fits[1].end()
    assert len(keys_in(tmp_path)) == 8
    for place, (fit, column) in enumerate(itertools.product(fits, SECRET)):
        if fit is not fits[1]:
            with JournalStore(fit, column, Raw()).transaction() as stored:  # type: ignore[arg-type]
                assert stored.load() == bytes([place]) * 40


def refused(fit: JournalledFit, column: Any, value: bytes) -> None:
    with pytest.raises(PolicyError), JournalStore(fit, column, Raw()).transaction() as stored:
        stored.save(value)
        raise PolicyError("policy:losses")


@pytest.mark.parametrize("times", [0, 1, 2])
def test_what_is_taken_back_stands_under_its_old_key(times: int, tmp_path: Path) -> None:
    """Also where the same transaction had kept a value before, or keeps one after."""
    own, _ = new_party(tmp_path)
    fit = opened(tmp_path, own)
    save(fit, "state", OLD)
    with fit.together():
        for turn in range(times):
            save(fit, "state", bytes([turn]) * 50)
        refused(fit, "state", NEW)
    assert load(tmp_path, own, "state") == (bytes([times - 1]) * 50 if times else OLD)
    with fit.together():
        refused(fit, "state", NEW)
        save(fit, "state", b"after")
        save(fit, "memory", b"first")
    assert load(tmp_path, own, "state") == b"after" and load(tmp_path, own, "memory") == b"first"
    with pytest.raises(ZeroDivisionError), fit.together():
        save(fit, "state", NEW)
        _ = 1 // 0
    assert load(tmp_path, own, "state") == b"after"
    save(fit, "state", NEW)
    assert load(tmp_path, own, "state") == NEW and len(keys_in(tmp_path)) == 2


def dying(fit: JournalledFit, before: Callable[[], None], after: Callable[[], None]) -> bytes:
    """Save a value, and call something before and after each time that keys are written."""
    put = Database._put

    def written(self: Database, keys: Any) -> None:
        before()
        put(self, keys)
        after()

    Database._put = written  # type: ignore[method-assign]
    save(fit, "state", NEW)
    return b"saved"


@pytest.mark.parametrize("step", range(4))
def test_killed_around_the_commit_either_value_opens_and_the_next_write_leaves_one_key(
    step: int, tmp_path: Path
) -> None:
    """Before and after the new key, and before and after the old one is overwritten."""
    own, _ = new_party(tmp_path)
    save(opened(tmp_path, own), "state", OLD)
    turn = itertools.count()

    def die_at(place: int) -> None:
        if next(turn) == place:
            os._exit(9)

    child = os.fork()
    if not child:
        dying(opened(tmp_path, own), partial(die_at, step), partial(die_at, step))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert load(tmp_path, own, "state") == (OLD if step < 2 else NEW)
    assert len(keys_in(tmp_path)) == (1 if step in (0, 3) else 2)
    save(opened(tmp_path, own), "state", b"next")
    assert load(tmp_path, own, "state") == b"next" and len(keys_in(tmp_path)) == 1


def test_killed_before_any_statement_a_state_is_never_lost(tmp_path: Path) -> None:
    codes = []
    for step in itertools.count(0, 3):
        folder = tmp_path / str(step)
        own, _ = new_party(folder)
        save(opened(folder, own), "state", OLD)
        code, _ = killed_at(step, lambda folder=folder, own=own: saved(folder, own))
        assert load(folder, own, "state") in (OLD, NEW)
        codes.append(code)
        if code == SURVIVED:
            break
    assert codes == [KILLED] * (len(codes) - 1) + [SURVIVED] and len(codes) > 5
    assert load(folder, own, "state") == NEW


def saved(folder: Path, own: OwnIdentity) -> bytes:
    save(opened(folder, own), "state", NEW)
    return b"saved"


def test_nothing_is_written_beside_a_transaction_that_keeps_no_secret(tmp_path: Path) -> None:
    own, journal = new_party(tmp_path)
    journal.begin(agreement(own), 0, "rows", ClientPolicy()).lost(1)
    assert (tmp_path / KEYS).read_bytes() == b"" and (tmp_path / KEYS).stat().st_mode & 0o077 == 0
