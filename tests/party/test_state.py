"""A client's state survives, is nobody else's to read, and is used by one process at a time."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from privfed.core.roles.engine import Client
from privfed.core.stored.encoding import Refusal, encode
from privfed.engines import FileStore, MemoryStore
from privfed.errors import StateError


def store_of(path: Path) -> FileStore:
    return FileStore(path, lambda state: str(state).encode(), int)


def test_file_store_round_trips(tmp_path: Path) -> None:
    with store_of(tmp_path / "client.state").transaction() as transaction:
        assert transaction.load() is None
        transaction.save(7)
        assert transaction.load() == 7
    with store_of(tmp_path / "client.state").transaction() as transaction:
        assert transaction.load() == 7


def test_memory_store_round_trips() -> None:
    store = MemoryStore()
    with store.transaction() as transaction:
        assert transaction.load() is None
        transaction.save({"sums": 3})
    assert store.load() == {"sums": 3}


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_only_the_owner_may_read_the_files(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with store_of(tmp_path / "client.state").transaction() as transaction:
            transaction.save(1)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"client.state": 0o600, "client.state.lock": 0o600}


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    store = store_of(tmp_path / "client.state")
    for state in (1, 22, 3):
        with store.transaction() as transaction:
            transaction.save(state)
    assert (tmp_path / "client.state").read_bytes() == b"3"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["client.state", "client.state.lock"]


def test_remains_of_a_crash_during_a_save_are_overwritten(tmp_path: Path) -> None:
    (tmp_path / "client.state.new").write_bytes(b"123456789")
    store = store_of(tmp_path / "client.state")
    with store.transaction() as transaction:
        transaction.save(1)
    assert store.load() == 1


def test_clients_beside_each_other_do_not_share_a_lock(tmp_path: Path) -> None:
    with (
        store_of(tmp_path / "client.1").transaction(),
        store_of(tmp_path / "client.2").transaction() as second,
    ):
        second.save(2)
    assert store_of(tmp_path / "client.1").load() is None


def test_failed_write_leaves_the_state_before(tmp_path: Path) -> None:
    def encode(state: int) -> bytes:
        if state == 2:
            raise RuntimeError("disk")
        return str(state).encode()

    store = FileStore(tmp_path / "client.state", encode, int)
    with store.transaction() as transaction:
        transaction.save(1)
    with pytest.raises(RuntimeError), store.transaction() as transaction:
        transaction.save(2)
    assert store.load() == 1


def locked(path: Path) -> bool:
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_lock_is_held_during_a_transaction_and_let_go_after_an_error(tmp_path: Path) -> None:
    path = tmp_path / "client.state"
    with store_of(path).transaction():
        assert locked(path)
    assert not locked(path)
    with pytest.raises(ValueError, match="broken"), store_of(path).transaction():
        raise ValueError("broken")
    assert not locked(path)


COUNT = """
import sys, time
from pathlib import Path
from privfed.engines import FileStore

store = FileStore(Path(sys.argv[1]), lambda state: str(state).encode(), int)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(25):
    with store.transaction() as transaction:
        state = transaction.load() or 0
        time.sleep(0.001)
        transaction.save(state + 1)
"""


def test_two_processes_exclude_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COUNT, str(tmp_path / "client.state")]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert store_of(tmp_path / "client.state").load() == 50


class Counting:
    """A client's side that counts its requests and fails where it is told to."""

    def initial(self) -> int:
        return 0

    def step(self, state: int, request: bytes, answerer: object) -> tuple[int, bytes]:
        if request == b"fail":
            raise RuntimeError("failed")
        return state + 1, str(state + 1).encode()


def test_client_stores_its_state_before_it_replies(tmp_path: Path) -> None:
    def client() -> Client:
        # On another machine every message may meet a new process.
        return Client(Counting(), store_of(tmp_path / "client.state"), lambda question, index: (None, 0))  # type: ignore[arg-type,return-value]

    assert client().handle(b"a") == b"1"
    assert client().handle(b"b") == b"2"
    assert client().handle(b"fail") == encode(Refusal("error"))
    assert client().handle(b"c") == b"3"


def test_damaged_state_is_an_error_that_names_the_file_and_nothing_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "client.state"
    path.write_bytes(b"secret")
    with pytest.raises(StateError, match="damaged") as caught, store_of(path).transaction() as stored:
        stored.load()
    assert str(path) in str(caught.value) and "secret" not in str(caught.value)
    with pytest.raises(StateError):
        Client(Counting(), store_of(path), lambda question, index: (None, 0)).handle(b"a")  # type: ignore[arg-type,return-value]
    assert path.read_bytes() == b"secret"
