"""What proofs of answers cost, beside the masked sum without them: processor time and bytes of a Lloyd sum.

    python -m benchmarks.valid [clients ...]

10, 100 and 1,000 clients by default, 300, 3,000 and 10,000 entries (k centroids of nine columns, 100 rows a
client, box [-1, 1]), one thread, no network. Where all clients together would take more than `MOST` seconds,
a few make proofs, which the coordinator checks as often as there are clients; the masked sum is whole.
"""

from __future__ import annotations

import itertools
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
from privfed.protocols.valid.proof import commit, functionals, new_sigma, prove, sigma_hash_of, verify
from privfed.questions.lloyd import LloydSums
from privfed.testing import sum_runs
from tests.protocols.federations import Sums

D, ROWS = 9, 100
FEW, MOST = 5, 300_000
"""Clients that make proofs where clients times entries are more."""


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


def alone(n: int, question: Any) -> tuple[float, float, float]:
    """Return milliseconds of a proof and of checking one of n, and bytes up; a few clients make them."""
    stated, sigma, rng = ProvenGrid(question, n).statement, new_sigma(), np.random.default_rng(0)
    hashed, made, starts = sigma_hash_of(sigma), [], [time.process_time()]
    for client in range(FEW + 1):
        # Any digits in their ranges whose counts are few: their proof takes as long as that of an answer.
        digits = np.clip(rng.integers(0, 2, stated.size), stated.low, stated.high)
        digits[len(question.centers) :] = 0
        context = bytes([client])
        committed = commit(stated, digits, context, hashed)
        proof = prove(stated, digits, committed.key, context, sigma)
        made.append((committed.root, context, sigma, proof))
        starts.append(time.process_time())
    start = time.process_time()
    for client in range(n):
        verify(stated, *made[1 + client % FEW])
    checked = (time.process_time() - start) / n
    return (starts[-1] - starts[1]) / FEW * 1e3, checked * 1e3, len(made[0][-1]) + 32.0


def main(clients: list[int]) -> None:
    """Print a table."""
    print("| clients | entries | bits | proofs | client, ms | server, ms a client | kB down | kB up |")
    print("|---|---|---|---|---|---|---|---|")
    with threadpool_limits(1):
        for n, entries in itertools.product(clients, (300, 3_000, 10_000)):
            question = asked(entries)
            stated = ProvenGrid(question, n).statement
            ranges = np.concatenate(
                [(stated.high - stated.low)[~stated.implied], stated.forms.high - stated.forms.low]
            )
            bits = int(np.ceil(np.log2(ranges + 1.0)).sum())
            plain = measured(n, question, False, 3 if n < 1000 else 1)
            shown(n, question, "- | no", plain)
            if n * entries <= MOST:
                shown(n, question, f"{bits} | yes", measured(n, question, True, 3 if n < 100 else 1))
            else:
                own, checked, size = alone(n, question)
                words = 24 * functionals(n)
                whole = plain[0] + own, plain[1] + checked, plain[2] + 70, plain[3] + size + words
                shown(n, question, f"{bits} | yes, {FEW} clients", whole)


def shown(n: int, question: Any, said: str, found: tuple[float, float, float, float]) -> None:
    """Print a line."""
    own, server, down, up = found
    size = question.spec.size
    print(
        f"| {n} | {size} | {said} | {own:.1f} | {server:.1f} | {down / 1e3:.1f} | {up / 1e3:.1f} |",
        flush=True,
    )


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]] or [10, 100, 1_000])
