"""Studies that are stopped, killed and grown; cells that fail."""

import multiprocessing
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from privfed.errors import RunFolderError
from privfed.experiments.measuring import Part
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import parse_study
from privfed.experiments.running import DIED, Job, Store, missing, run
from tests.default_run import slow
from tests.experiments.small import SMALL, results, silent


@pytest.mark.timeout(1500)  # On a loaded machine every start takes long.
@pytest.mark.parametrize("kills", [slow(2), slow(10)])
def test_a_study_that_is_killed_and_resumed_ends_like_one_undisturbed(
    kills: int, finished: Path, tmp_path: Path
) -> None:
    """Killed without warning at random moments, also while it writes; its workers end with it.

    The undisturbed one ran in two processes, this one in one: cells do not depend on that either.
    """
    (tmp_path / "study.toml").write_text(SMALL)
    out = tmp_path / "out"
    words = ("tradeoff", str(tmp_path / "study.toml"), "--out", str(out), "--jobs", "1", "--quiet")
    command = [sys.executable, "-c", "from privfed.cli.main import main; main()", *words]
    rng, seen = random.Random(kills), list[int]()
    for _ in range(kills):
        before = _n_parts(out)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and _n_parts(out) <= before:
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 0.1))
            workers = _children(process.pid)
            process.send_signal(signal.SIGKILL)
        seen.append(_n_parts(out))
        _wait_for_the_end_of(workers)
    assert seen[0] < len(results(finished))
    subprocess.run(command, check=True, capture_output=True)
    assert results(out) == results(finished)


def _n_parts(folder: Path) -> int:
    try:
        return len(results(folder))
    except sqlite3.OperationalError:  # There is no table yet.
        return 0


def _states() -> dict[int, tuple[str, int]]:
    """Return process -> (state, parent) of all that run."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = path.read_text().rsplit(")", 1)[1].split()[:2]
            found[int(path.parent.name)] = (state, int(parent))
    return found


def _children(pid: int) -> set[int]:
    return {child for child, (_, parent) in _states().items() if parent == pid}


def _wait_for_the_end_of(workers: set[int]) -> None:
    for _ in range(600):
        if not any(pid in workers and state != "Z" for pid, (state, _) in _states().items()):
            return
        time.sleep(0.05)
    pytest.fail("workers outlived their parent")


def test_a_grown_study_runs_only_what_is_new(small: Plan, finished: Path) -> None:
    store = Store(finished)
    more = SMALL.replace("seeds = 2", "seeds = 3") + "\n[[attack]]\nkind = 'Membership'\nparty = 'observer'\n"
    grown = plan(parse_study(more, "study.toml"), Path())
    jobs = missing(grown, store)
    assert len(jobs) == 12
    old = [job for job in jobs if job.seed < 2]
    assert [len(job.parts) for job in old] == [1] * 8
    assert all(job.parts[0].startswith("attack:") for job in old)
    assert [len(job.parts) for job in jobs if job.seed == 2] == [3] * 4


def test_a_failing_cell_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    # Tomography needs something public to start from.
    text = SMALL.replace('"Membership"\nrounds = [1, 2]', '"Tomography"').replace("seeds = 2", "seeds = 1")
    text = text.replace("low = 0.0\nhigh = 8.0\npublic = 0.3\n", "")
    failing = plan(parse_study(text, "study.toml"), Path())
    store, told = Store(tmp_path), list[bool]()
    run(failing, store, missing(failing, store), 1, lambda done, of, job, well: told.append(well))
    assert told == [False] * 4
    assert [times for _, times in store.asked()] == [1] * 4  # What failed had asked, too.
    errors = {part: error for (_, part), (_, _, error) in results(tmp_path).items()}
    assert errors.pop("fit") == ""
    assert all("starts from public knowledge" in error for error in errors.values())
    assert missing(failing, store) == []
    assert len(missing(failing, store, retry=True)) == 4


@pytest.mark.slow
def test_a_cell_that_kills_its_process_is_found_and_recorded(small: Plan, tmp_path: Path) -> None:
    """The first two processes are killed: that of the first cell, and that of the same cell run alone."""
    store = Store(tmp_path)
    jobs = missing(small, store)[:2]
    killer = threading.Thread(target=_kill_processes, args=(2,))
    killer.start()
    run(small, store, jobs, 1, silent)
    killer.join()
    errors = {cell: error for (cell, _), (_, _, error) in results(tmp_path).items()}
    assert errors == {jobs[0].cell: DIED, jobs[1].cell: ""}


def _kill_processes(n: int) -> None:
    killed = set[int]()
    while len(killed) < n:
        for process in multiprocessing.active_children():
            if process.pid is not None and process.pid not in killed and len(killed) < n:
                killed.add(process.pid)
                process.kill()
        time.sleep(0.01)


def test_two_processes_never_run_one_study(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with (
        store.alone(),
        pytest.raises(RunFolderError, match="in use by another"),
        Store(tmp_path).alone(),
    ):
        pass


def test_a_job_knows_its_cell(small: Plan) -> None:
    assert Job(small.setups[0], 1, ("fit",)).cell == small.setups[0].cell(1)


def test_a_full_disk_keeps_what_is_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store, connect = Store(tmp_path), sqlite3.connect
    store.keep("a", {}, {"fit": Part(values={}, timing={})}, 1)

    def small(*words: object, **options: object) -> sqlite3.Connection:
        database = connect(*words, **options)
        database.execute("PRAGMA max_page_count = 4")
        return database

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", small)
        with pytest.raises(RunFolderError, match=r"full.*; free some space .* cells in it are kept"):
            store.keep("b", {}, {"fit": Part(values={"text": "x" * 100_000}, timing={})}, 1)
    assert store.done() == {("a", "fit"): True}
    store.keep("b", {}, {"fit": Part(values={}, timing={})}, 1)
    assert len(store.done()) == 2
