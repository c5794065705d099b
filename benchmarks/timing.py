"""Timing of what the compiled kernel does: CPU time of one thread, the kernel compiled before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from privfed.numerics.kernels.dispatch import CHOICE, load


@contextmanager
def compiled(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Load the compiled kernel before anything is timed, and use one thread."""
    patch.setattr(CHOICE, "_loaded", True)
    patch.setattr(CHOICE, "_compiled", load())
    with threadpool_limits(1):
        yield


def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the median CPU seconds of several runs."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return float(np.median(taken))
