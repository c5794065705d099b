"""Speed of one round compared with literal loops as in the authors' code, measured in the same run.

Prints ratios; asserts nothing about time. `make bench` runs it.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privfed import Box, DWFKMeans
from privfed.estimators.local_steps import FederatedMiniBatchKMeans
from tests.reference import dwf_reference, minibatch_reference
from tests.reference.paper_data import partition, synthetic

pytestmark = pytest.mark.benchmark


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median CPU seconds of several runs."""
    taken = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return float(np.median(taken))


def show(what: str, ours: float, literal: float, rounds: int) -> None:
    """Print one line of the table."""
    print(f"{what:48s} {1e3 * ours / rounds:8.2f} {1e3 * literal / rounds:8.2f} {literal / ours:7.1f}x")


def test_rounds_against_literal_loops() -> None:
    print(f"\n{'CPU ms a round, through plain sums':48s} {'ours':>8s} {'literal':>8s} {'ratio':>8s}")
    X, y = synthetic()
    rounds, words = 20, {"learning_rate": 0.01, "momentum": 0.8, "tol": 0.0}
    for kind in ("iid", "non-iid"):
        clients, _ = partition(X, y, kind, 0)
        start = X[:5]
        ours = seconds(
            lambda c=clients, s=start: DWFKMeans(
                5, init=s, max_iter=rounds, local_iter=5, protocol="plain", **words
            ).fit(c)
        )
        literal = seconds(
            lambda c=clients, s=start: dwf_reference.fit(c, s, local_iter=5, max_iter=rounds, **words)
        )
        show(f"DWF, 100 clients, 10,100 x 2, {kind}", ours, literal, rounds)
    rng = np.random.default_rng(1)
    few = [rng.normal(1 + i % 5, 0.2, size=(10, 1)).clip(0, 6) for i in range(50)]
    centers = rng.uniform(0, 6, size=(5, 1))
    for epochs in (1, 5):
        ours = seconds(
            lambda e=epochs: FederatedMiniBatchKMeans(
                5,
                init=centers,
                epochs=e,
                max_iter=50,
                reassign_after=None,
                domain=Box(0, 6, max_rows=10),
                protocol="plain",
            ).fit(few)
        )
        literal = seconds(lambda e=epochs: minibatch_reference.fit(few, centers, rounds=50, epochs=e))
        show(f"mini-batch, 50 clients of 10 rows, E={epochs}", ours, literal, 50)
