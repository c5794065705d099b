"""Runs the cells of a plan that are not stored yet, in parallel worker processes.

What was stored always stays: a study that was stopped or killed continues with the missing cells. If a cell
kills its process (memory, a crash in a library), the suspects are run one by one to find it, it is recorded
with an error, and the study continues.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import msgspec
from threadpoolctl import threadpool_limits

from privfed.errors import PrivFedError
from privfed.experiments.running.measure import Part, measure
from privfed.experiments.running.planning import Plan
from privfed.experiments.running.store import Store
from privfed.experiments.study.cells import Setup

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
    done = store.done()
    jobs = []
    for seed in plan.seeds:
        for setup in plan.setups:
            known = {
                part
                for part in setup.parts()
                if (setup.cell(seed), part) in done and (done[setup.cell(seed), part] or not retry)
            }
            parts = tuple(part for part in setup.parts() if part not in known)
            if parts:
                jobs.append(Job(setup, seed, parts))
    return jobs


def run(plan: Plan, store: Store, jobs: Sequence[Job], n_processes: int, watch: Watcher) -> None:
    """Run cells and store each when it is done.

    Args:
        plan: the plan of the cells.
        store: where results are kept.
        jobs: the cells to run.
        n_processes: number of processes.
        watch: called after each cell.
    """
    finished = 0

    def keep(job: Job, parts: dict[str, Part]) -> None:
        nonlocal finished
        finished += 1
        store.keep(job.cell, job.setup.content | {"seed": job.seed}, parts)
        watch(finished, len(jobs), job, not any(part.error for part in parts.values()))

    suspects = list(jobs)
    while suspects:
        left = _pooled(suspects, plan.folder, min(n_processes, len(suspects)), keep)
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
                    job = waiting[-1]
                    running[pool.submit(_work, *_message(job, folder))] = job
                    waiting.pop()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    keep(running[future], msgspec.json.decode(future.result(), type=dict[str, Part]))
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
            keep(job, {part: Part(values={}, timing={}, error=DIED) for part in job.parts})
    return waiting


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


def _message(job: Job, folder: Path) -> tuple[bytes, int, tuple[str, ...], str]:
    return msgspec.json.encode(job.setup), job.seed, job.parts, str(folder)


def _work(setup: bytes, seed: int, parts: tuple[str, ...], folder: str) -> bytes:
    found = measure(msgspec.json.decode(setup, type=Setup), seed, parts, Path(folder))
    return msgspec.json.encode(found)
