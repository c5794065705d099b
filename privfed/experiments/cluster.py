"""Makes calls on the workers of a Dask cluster, in the version of privfed that is here.

Where a worker dies, Dask tries its call on another one; a call that ended several workers has no result. Dask
pickles what scheduler and workers say: whoever reaches them runs code on all of these machines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from typing import Any

from threadpoolctl import threadpool_limits

from privfed.errors import ArgumentError, PrivFedError
from privfed.version import __version__

_CONNECT, _WORKERS = 10.0, 30.0
"""Seconds until the scheduler answers, and until it has a worker."""


def on_cluster(
    address: str,
    work: Callable[..., bytes],
    calls: Sequence[tuple[Any, ...]],
    keep: Callable[[int, bytes | None], None],
) -> None:
    """Make calls on a cluster's workers, and keep the result of each when it is there.

    Args:
        address: of the scheduler, such as tcp://10.0.0.5:8786.
        work: a function of a module, which all workers have in the same version.
        calls: its arguments, call by call.
        keep: is called with each call's place and result; None where the call ended the workers that made it.

    Raises:
        ArgumentError: there is no Dask here, no scheduler, it has no worker, or one is not as it must be.
        PrivFedError: the scheduler was lost. What was kept is kept.
    """
    # Imported here and below, as few studies run on a cluster.
    try:
        from distributed import Client
    except ImportError:
        raise ArgumentError("--scheduler needs Dask: pip install 'privfed[dask]'.") from None

    # It prints its own traceback of a lost scheduler.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=_CONNECT, set_as_default=False)
        client.wait_for_workers(1, timeout=_WORKERS)
    except (OSError, TimeoutError, ValueError) as error:
        raise ArgumentError(
            f"no Dask scheduler with a worker answers at {address} ({error}); start them with: dask "
            f"scheduler, and: dask worker {address} --nthreads 1."
        ) from None
    try:
        # The same call again is made again: nothing is taken from an earlier study.
        executor = client.get_executor(pure=False)
        left = {executor.submit(_on_worker, __version__, work, *one): i for i, one in enumerate(calls)}
        while left:
            for future in wait(left, return_when=FIRST_COMPLETED).done:
                keep(left.pop(future), _result(future, address))
    finally:
        # Leaving takes the calls back that are not done.
        client.close(timeout=_CONNECT)


def _result(future: Any, address: str) -> bytes | None:
    from distributed import KilledWorker

    try:
        found: bytes = future.result()
    except KilledWorker:
        return None
    except CancelledError:
        raise PrivFedError(
            f"the Dask scheduler at {address} is gone. What was done is kept: start it and its workers "
            "again, and the same command continues."
        ) from None
    return found


def _on_worker(version: str, work: Callable[..., bytes], *arguments: Any) -> bytes:
    """Make a call, where the worker is as it must be."""
    from distributed import get_worker

    worker, threads = get_worker().name, get_worker().state.nthreads
    if version != __version__:
        raise ArgumentError(f"worker {worker} has privfed {__version__}; install {version} there.")
    if threads != 1:
        # A call that ends its process would take others with it, and their times would be mixed up.
        raise ArgumentError(f"worker {worker} has {threads} threads; start it with --nthreads 1.")
    # Sums repeat to the bit.
    with threadpool_limits(1):
        return work(*arguments)
