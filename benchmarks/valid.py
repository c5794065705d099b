"""What proofs of answers cost, beside the masked sum without them: processor time and bytes of a Lloyd sum.

    python -m benchmarks.valid [clients ...]

10 and 100 clients by default, 300, 3,000 and 10,000 entries (k centroids of nine columns, 100 rows a client,
box [-1, 1]), one thread, no network. The table of many clients takes long: 1,000 at 300 entries 3 minutes.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from benchmarks.test_group_cost import Watch
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import Ranges
from privfed.protocols import Masked
from privfed.protocols.masked.statements import ProvenGrid
from privfed.questions.lloyd import LloydSums
from privfed.testing import sum_runs
from tests.protocols.federations import Sums

D, ROWS = 9, 100


def asked(entries: int) -> LloydSums:
    """Return a question of so many entries, or one centroid's fewer."""
    rng = np.random.default_rng(0)
    ranges = Ranges(np.full(D, -1.0), np.full(D, 1.0), ROWS)
    return LloydSums(ranges=ranges, centers=rng.uniform(-1.0, 1.0, (max(1, entries // (D + 1)), D)))


def measured(n: int, question: Any, proofs: bool, sums: int) -> tuple[float, float, float, float]:
    """Return milliseconds of a client, of the coordinator for one, and bytes of a client down and up."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sum_runs, "Configuration", lambda **words: Configuration(**{**words, "n_features": D}))
        run = Sums(Masked(proofs=proofs), n)
    k = len(question.centers)
    for client in range(n):
        rng = np.random.default_rng(client)
        rows, own = rng.uniform(-1.0, 1.0, (ROWS, D)), rng.integers(0, k, ROWS)
        total = np.zeros((k, D))
        np.add.at(total, own, rows)
        run.values[client] = Statistics(count=np.bincount(own, minlength=k), sum=total).vector
    run.federation._carrier = watch = Watch(run.clients)
    run.open(question)
    traffic, clients, rest = run.federation.traffic, [], []
    down, up = sum(traffic.down.values()), sum(traffic.up.values())
    for _ in range(sums):
        watch.whole = 0.0
        start = time.process_time()
        run.open(question)
        whole = time.process_time() - start
        clients.append(watch.whole / n)
        rest.append((whole - watch.whole) / n)
    per = n * sums
    sent = (sum(traffic.down.values()) - down) / per, (sum(traffic.up.values()) - up) / per
    return statistics.fmean(clients) * 1e3, statistics.fmean(rest) * 1e3, *sent


def main(clients: list[int]) -> None:
    """Print a table."""
    print("| clients | entries | bits | proofs | client, ms | server, ms a client | kB down | kB up |")
    print("|---|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for n in clients:
            for entries in (300, 3_000, 10_000) if n < 100 else (300,):
                question = asked(entries)
                stated = ProvenGrid(question, n).statement
                ranges = np.concatenate(
                    [(stated.high - stated.low)[~stated.implied], stated.forms.high - stated.forms.low]
                )
                bits = int(np.ceil(np.log2(ranges + 1.0)).sum())
                for proofs in (False, True):
                    own, server, down, up = measured(n, question, proofs, 3 if n < 1000 else 1)
                    said = (
                        f"{bits if proofs else '-'} | {'yes' if proofs else 'no'} | {own:.1f} | {server:.1f}"
                    )
                    size = question.spec.size
                    print(f"| {n} | {size} | {said} | {down / 1e3:.1f} | {up / 1e3:.1f} |", flush=True)


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [10, 100])
