"""What verified totals cost: bytes and processor time of a masked sum without and with them.

10, 100 and 1,000 clients, 300 entries (10 centroids of 29 columns) and 10,000, no network, one thread. Run by
`make bench`; it prints, and asserts nothing about time.
"""

from __future__ import annotations

import statistics
import time

import pytest
from threadpoolctl import threadpool_limits

from benchmarks.test_group_cost import Watch
from privfed.protocols import Masked
from privfed.protocols.setup.rules import BLOCK
from tests.protocols.federations import Sums, vectors

SUMS = BLOCK


def measured(n: int, entries: int, verified: bool) -> tuple[float, float, float, float]:
    """Return milliseconds of a client and of the coordinator, and bytes of a client down and up, a sum."""
    question = vectors(entries)
    run = Sums(Masked(verified=verified), n)
    run.draw(question)
    run.draw = lambda question: None  # type: ignore[method-assign]
    run.federation._carrier = watch = Watch(run.clients)
    for _ in range(2):
        run.ask(question)
    traffic, clients, rest = run.federation.traffic, [], []
    down, up = sum(traffic.down.values()), sum(traffic.up.values())
    for _ in range(SUMS):
        watch.whole = 0.0
        start = time.process_time()
        run.ask(question)
        whole = time.process_time() - start
        clients.append(watch.whole / n)
        rest.append(whole - watch.whole)
    per = n * SUMS
    sent = (sum(traffic.down.values()) - down) / per, (sum(traffic.up.values()) - up) / per
    # The mean, since one sum of a block prepares the next.
    return statistics.fmean(clients) * 1e3, statistics.fmean(rest) * 1e3, *sent


@pytest.mark.benchmark
@pytest.mark.parametrize("n", [10, 100, 1000])
@pytest.mark.parametrize("entries", [300, 10_000])
def test_cost_of_verified_totals(n: int, entries: int, capsys: pytest.CaptureFixture[str]) -> None:
    with threadpool_limits(1):
        found = {verified: measured(n, entries, verified) for verified in (False, True)}
    with capsys.disabled():
        for verified, (client, rest, down, up) in found.items():
            print(
                f"\n{n} clients, {entries} entries, verified={verified}: client {client:.2f} ms, "
                f"coordinator {rest:.0f} ms, {down:.0f} bytes down, {up:.0f} up"
            )
