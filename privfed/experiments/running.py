"""Runs the cells of a plan that are not stored yet, and stores each when it is done.

They run in worker processes of this machine, or on the workers of a Dask cluster
(`privfed.experiments.cluster`). Workers compute; what is kept of it is with this process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from privfed.core.stored.files import Format, locked, make_folder, open_file
from privfed.errors import PrivFedError, RunFolderError
from privfed.experiments.cells import Setup
from privfed.experiments.cluster import on_cluster
from privfed.experiments.measuring import Part, measure
from privfed.experiments.planning import Plan

FILE = "cells.sqlite"
CELLS = Format(name=FILE, version=2, again="name another folder with --out")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS parts (
    cell TEXT NOT NULL, part TEXT NOT NULL, content TEXT NOT NULL,
    result TEXT NOT NULL, timing TEXT NOT NULL, error TEXT NOT NULL,
    PRIMARY KEY (cell, part)
);
CREATE TABLE IF NOT EXISTS asked (cell TEXT PRIMARY KEY, times INTEGER NOT NULL);
"""

DIED = "the process of this cell died; it may have run out of memory"


@dataclass(frozen=True)
class Job:
    """Names one cell, and its parts that are not stored."""

    setup: Setup
    seed: int
    parts: tuple[str, ...]

    @property
    def cell(self) -> str:
        """Id of the cell."""
        return self.setup.cell(self.seed)


Watcher = Callable[[int, int, Job, bool], None]
"""Called after each cell: cells done, cells in all, the cell, whether all of its parts have values."""


def missing(plan: Plan, store: Store, retry: bool = False) -> list[Job]:
    """Return the cells of a plan with parts that are not stored, seed by seed.

    Args:
        plan: the plan.
        store: where results are kept.
        retry: treat parts that failed as missing.
    """
    known = {key for key, has_values in store.done().items() if has_values or not retry}
    jobs = [
        Job(setup, seed, tuple(part for part in setup.parts() if (setup.cell(seed), part) not in known))
        for seed in plan.seeds
        for setup in plan.setups
    ]
    return [job for job in jobs if job.parts]


def run(plan: Plan, store: Store, jobs: Sequence[Job], workers: int | str, watch: Watcher) -> None:
    """Run cells and store each when it is done.

    Args:
        plan: the plan of the cells.
        store: where results are kept.
        jobs: the cells to run.
        workers: number of processes here, or address of a Dask scheduler whose workers reach its folder.
        watch: called after each cell.

    Raises:
        ArgumentError: there is no such scheduler, or a worker is not as it must be.
        PrivFedError: processes do not start, or the scheduler was lost; finished cells are stored.
    """
    finished = 0

    def keep(job: Job, parts: dict[str, Part]) -> None:
        nonlocal finished
        finished += 1
        store.keep(job.cell, job.setup.stored(job.seed), parts, job.setup.asked(job.parts))
        watch(finished, len(jobs), job, not any(part.error for part in parts.values()))

    if isinstance(workers, str):
        if jobs:
            _distributed(jobs, plan.folder, workers, keep)
        return
    suspects = list(jobs)
    while suspects:
        left = _pooled(suspects, plan.folder, min(workers, len(suspects)), keep)
        if left is None:
            return
        suspects = _alone(left, plan.folder, keep)


def _pooled(
    jobs: Sequence[Job], folder: Path, n_processes: int, keep: Callable[[Job, dict[str, Part]], None]
) -> tuple[list[Job], list[Job]] | None:
    """Run cells; if a process dies, return the cells that may have caused it, and those not begun."""
    waiting = list(reversed(jobs))
    running: dict[Future[bytes], Job] = {}
    with _pool(n_processes) as pool:
        while waiting or running:
            try:
                while waiting and len(running) < n_processes:
                    running[pool.submit(_work, *_call(waiting[-1], folder))] = waiting[-1]
                    waiting.pop()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    keep(running[future], _PARTS.decode(future.result()))
                    del running[future]
            except BrokenProcessPool:
                return list(running.values()), list(reversed(waiting))
    return None


def _alone(
    left: tuple[list[Job], list[Job]], folder: Path, keep: Callable[[Job, dict[str, Part]], None]
) -> list[Job]:
    """Run suspects one by one, each in a process of its own; return what is left to do."""
    suspects, waiting = left
    for job in suspects:
        if _pooled([job], folder, 1, keep) is not None:
            _check_start()
            keep(job, _died(job))
    return waiting


def _distributed(
    jobs: Sequence[Job], folder: Path, address: str, keep: Callable[[Job, dict[str, Part]], None]
) -> None:
    """Run cells on the workers of a Dask cluster."""

    def kept(place: int, found: bytes | None) -> None:
        keep(jobs[place], _died(jobs[place]) if found is None else _PARTS.decode(found))

    on_cluster(address, _work, [_call(job, folder.absolute()) for job in jobs], kept)


_PARTS = msgspec.json.Decoder(dict[str, Part])


def _call(job: Job, folder: Path) -> tuple[bytes, int, tuple[str, ...], str]:
    """Return what a worker gets of a cell."""
    return msgspec.json.encode(job.setup), job.seed, job.parts, str(folder)


def _died(job: Job) -> dict[str, Part]:
    return {part: Part(values={}, timing={}, error=DIED) for part in job.parts}


def _check_start() -> None:
    """Check that another process starts, so that the cell must have ended its own.

    Raises:
        PrivFedError: no process starts.
    """
    try:
        with _pool(1) as pool:
            pool.submit(int).result()
    except BrokenProcessPool:
        raise PrivFedError("worker processes do not start: see the error that they printed.") from None


class _Pool(ProcessPoolExecutor):
    """Executes jobs in processes, which are killed at once if the block is left by an error or Ctrl-C."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            for process in list((self._processes or {}).values()):
                process.kill()
        self.shutdown(wait=True, cancel_futures=True)


def _pool(n_processes: int) -> _Pool:
    return _Pool(n_processes, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """Prepare a worker: one thread, so that sums repeat to the bit; Ctrl-C is left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A parent that was killed cannot end its workers, which would then wait for work forever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(setup: bytes, seed: int, parts: tuple[str, ...], folder: str) -> bytes:
    return msgspec.json.encode(measure(msgspec.json.decode(setup, type=Setup), seed, parts, Path(folder)))


def _remedy(error: sqlite3.DatabaseError) -> str:
    # An error that does not come from SQLite itself has no code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    if code == sqlite3.SQLITE_FULL:
        return "free some space on its disk; the cells in it are kept, and the same command continues"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "restore it, or start anew in another folder"
    return "see whether its disk can be written to; the cells in it are kept, and the same command continues"


class Store:
    """Holds the results in a study's folder.

    Args:
        folder: folder of the study; created if it does not exist.

    Raises:
        RunFolderError: the file there is damaged, or written by a newer privfed.
    """

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self.path = folder / FILE
        # Created with our mode first, as SQLite gives its auxiliary files the mode of the database.
        open_file(self.path, "ab").close()
        with self._open() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version:  # SQLite's own 0 is of a file that was just created.
                CELLS.check(version, self.path)
            database.executescript(_SCHEMA)
            database.execute(f"PRAGMA user_version = {CELLS.version}")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self.path, timeout=60.0)
            try:
                with database:
                    yield database
            finally:
                database.close()
        except sqlite3.DatabaseError as error:
            raise RunFolderError(f"{self.path} cannot be used ({error}); {_remedy(error)}.") from None

    def alone(self) -> AbstractContextManager[None]:
        """Return what holds the folder's lock, so that two processes never run the same cells.

        Raises:
            RunFolderError: another process holds it.
        """
        return locked(self.path.with_name(".lock"))

    def keep(self, cell: str, content: Mapping[str, object], parts: Mapping[str, Part], asked: int) -> None:
        """Store parts of a cell, durably, and that its rows were asked again.

        Args:
            cell: id of the cell.
            content: values that the id is a hash of, and what its data are read from.
            parts: name -> what was measured.
            asked: number of times that the rows were asked for it.
        """
        text = msgspec.json.encode(content, order="deterministic").decode()
        rows = [
            (
                cell,
                name,
                text,
                msgspec.json.encode(part.values, order="deterministic").decode(),
                msgspec.json.encode(part.timing, order="deterministic").decode(),
                part.error,
            )
            for name, part in parts.items()
        ]
        with self._open() as database:
            database.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?, ?, ?)", rows)
            database.execute(
                "INSERT INTO asked VALUES (?, ?) "
                "ON CONFLICT (cell) DO UPDATE SET times = times + excluded.times",
                (cell, asked),
            )

    def done(self) -> dict[tuple[str, str], bool]:
        """Return for all that is stored: (cell, part) -> whether it has values rather than an error."""
        with self._open() as database:
            rows = database.execute("SELECT cell, part, error FROM parts").fetchall()
        return {(cell, part): not error for cell, part, error in rows}

    def asked(self) -> list[tuple[dict[str, Any], int]]:
        """Return all cells that were ever measured here, and how often the rows of each were asked."""
        with self._open() as database:
            rows = database.execute(
                "SELECT MIN(content), times FROM parts JOIN asked USING (cell) GROUP BY cell"
            ).fetchall()
        return [(msgspec.json.decode(content), times) for content, times in rows]

    def read(self, cells: Iterable[str]) -> dict[str, dict[str, Part]]:
        """Return what is stored for some cells: cell -> part -> what was measured."""
        wanted, found = set(cells), dict[str, dict[str, Part]]()
        with self._open() as database:
            rows = database.execute("SELECT cell, part, result, timing, error FROM parts").fetchall()
        for cell, name, result, timing, error in rows:
            if cell in wanted:
                found.setdefault(cell, {})[name] = Part(
                    values=msgspec.json.decode(result), timing=msgspec.json.decode(timing), error=error
                )
        return found
