"""Cells on a Dask cluster: the same results as here, through killed workers and a lost scheduler."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from distributed import LocalCluster

from privfed.errors import ArgumentError, PrivFedError
from privfed.experiments import cluster as module
from privfed.experiments.cluster import on_cluster
from privfed.experiments.planning import Plan
from privfed.experiments.running import DIED, Job, Store, missing, run
from tests.experiments.small import results, silent


def echoed(text: str) -> bytes:
    return text.encode()


def ending(text: str) -> bytes:
    os._exit(1)


@contextmanager
def here(threads: int = 1) -> Iterator[str]:
    """Start a scheduler with a worker in this process."""
    words = {"processes": False, "protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(
        n_workers=1, threads_per_worker=threads, worker_dashboard_address=None, **words
    ) as made:
        yield made.scheduler_address


def test_cells_on_a_cluster_are_those_of_one_process(small: Plan, finished: Path, tmp_path: Path) -> None:
    store, told = Store(tmp_path), list[bool]()
    with here() as address:
        run(small, store, missing(small, store)[:2], address, lambda done, of, job, well: told.append(well))
    found = results(tmp_path)
    assert told == [True, True] and found and found.items() <= results(finished).items()
    assert len(missing(small, store)) == 6


def test_a_worker_must_be_as_the_study_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        here(threads=2) as address,
        pytest.raises(ArgumentError, match="2 threads; start it with --nthreads 1"),
    ):
        on_cluster(address, echoed, [("a",)], lambda place, found: None)
    # The study's version is read here, the worker's where it runs.
    told = module._on_worker
    monkeypatch.setattr(module, "_on_worker", lambda version, *rest: told("0.0.1", *rest))
    with here() as address, pytest.raises(ArgumentError, match=r"install 0\.0\.1 there"):
        on_cluster(address, echoed, [("a",)], lambda place, found: None)


def test_no_scheduler_is_an_error_that_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT", 0.5)
    with pytest.raises(ArgumentError, match="start them with: dask scheduler"):
        on_cluster("tcp://127.0.0.1:9", echoed, [("a",)], lambda place, found: None)


class Processes:
    """A scheduler and workers as processes of their own, as on machines of their own."""

    def __init__(self, stack: ExitStack) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._stack, self.address = stack, f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port))

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        quiet = subprocess.DEVNULL
        process = self._stack.enter_context(subprocess.Popen(command, stdout=quiet, stderr=quiet))
        self._stack.callback(process.kill)
        return process

    def worker(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a worker."""
        return self._start("worker", self.address, "--nthreads", "1", *words)


@pytest.fixture
def cluster() -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes(stack)


@pytest.mark.slow
def test_a_call_that_ends_its_workers_is_found_and_the_others_are_made(cluster: Processes) -> None:
    """Without a process that starts workers again, each of four is gone for good."""
    for _ in range(5):
        cluster.worker("--no-nanny")
    found: dict[int, bytes | None] = {}
    on_cluster(cluster.address, ending, [("a",)], found.__setitem__)
    on_cluster(cluster.address, echoed, [("b",), ("c",)], lambda place, one: found.update({place + 1: one}))
    assert found == {0: None, 1: b"b", 2: b"c"}


@pytest.mark.slow
def test_a_killed_worker_costs_its_cell_and_a_lost_scheduler_the_rest(
    small: Plan, finished: Path, tmp_path: Path
) -> None:
    store, stack = Store(tmp_path), ExitStack()
    with stack:
        cluster = Processes(stack)
        first = cluster.worker("--no-nanny")
        done = threading.Event()

        def disturb(act: Callable[[], object], at: int) -> Callable[[int, int, Job, bool], None]:
            def watch(finished: int, of: int, job: Job, well: bool) -> None:
                if finished == at:
                    act()
                    done.set()

            return watch

        def replace() -> None:
            first.kill()
            cluster.worker("--no-nanny")

        run(small, store, missing(small, store)[:4], cluster.address, disturb(replace, 1))
        assert done.is_set() and len(missing(small, store)) == 4
        with pytest.raises(PrivFedError, match=r"is gone\. What was done is kept"):
            run(small, store, missing(small, store), cluster.address, disturb(cluster.scheduler.kill, 1))
    left = len(missing(small, store))
    assert 0 < left < 4
    run(small, store, missing(small, store), 1, silent)
    assert results(tmp_path) == results(finished)
    assert not any(error == DIED for *_, error in results(tmp_path).values())
