"""Federations whose parties are all on this machine, and the same fits in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from privfed import Box, Privacy
from privfed.core.agreed.configuration import SLOTTED
from privfed.core.agreed.policy import HIDING
from privfed.core.names import ALGORITHMS, PLACES
from privfed.core.record.records import Summed
from privfed.nodes.deploy.local import make_local

N = 4
DOMAIN = Box(-12.0, 12.0, max_rows=100)
WORDS: dict[str, Any] = {"local_iter": 2, "max_iter": 3, "tol": 0, "random_state": 3}
CLAIM = Privacy(epsilon=2.0, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove")


OPEN: dict[str, Any] = {
    "algorithms": (*ALGORITHMS.names(), *PLACES),
    "protocols": sorted(f"{slots}{name}" for name in (*HIDING, "plain") for slots in ("", SLOTTED)),
    "group_size": 1,
    "fixed_cohorts": False,
    "models": True,
    "max_fits": 1000,
    "max_losses": 1000,
}
"""Nodes that answer everything, from single rows, as clients simulated in one process do."""


def rows(n: int = N) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(rng.choice([-4.0, 4.0], (20 + 5 * i, 2)), 1.0).clip(-11, 11) for i in range(n)]


def labels(n: int = N) -> list[np.ndarray]:
    """Return classes of the rows; every other client has them the other way round."""
    return [(own.sum(axis=1) > 0).astype(np.int64) ^ (i % 2) for i, own in enumerate(rows(n))]


def federation(folder: Path, n: int = N, *, labelled: bool = False, **words: Any) -> Path:
    """Make a federation of n nodes, named by their position."""
    tables = {f"c{i}": table for i, table in enumerate(rows(n))}
    classes = dict(zip(tables, labels(n), strict=True)) if labelled else None
    words = {"timeout": 5.0, "wait": 0.0, "approved": OPEN, **words}
    make_local(folder, tables, ["x0", "x1"], classes, **words)
    return folder


def here(model: Any, n: int = N, **words: Any) -> Any:
    """Fit in this process, with the same names of clients."""
    return model.fit(rows(n), client_names=[f"c{i}" for i in range(n)], **words)


def assert_same(over: Any, own: Any) -> None:
    """Assert that two fits have the same centroids and totals, to the last bit."""
    np.testing.assert_array_equal(over.cluster_centers_, own.cluster_centers_)
    totals = [[one.statistics for one in fit.transcript_.of(Summed)] for fit in (over, own)]
    assert len(totals[0]) > 2 and totals[0] == totals[1]
