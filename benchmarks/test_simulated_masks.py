"""A simulated masked sum of few entries: what a round costs, and the set-up with the first one.

CPU seconds of one thread; `make bench` runs it. It prints, writes `simulated_masks.json`, and asserts nothing
about time. PRIVFED_BENCH_CLIENTS names further numbers of clients.
"""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from privfed import Box, DWFKMeans
from privfed.federation.driver import Federation

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("ignore:.*did not converge")]

KEPT = Path(__file__).with_name("simulated_masks.json")
ROUNDS = 16
CLIENTS = [100, *map(int, os.environ.get("PRIVFED_BENCH_CLIENTS", "").split())]


def rounds(patch: pytest.MonkeyPatch, clients: int) -> list[float]:
    """Return the CPU seconds of each round of a masked fit, the set-up with the first."""
    taken: list[float] = []
    whole = Federation.ask

    def timed(self: Federation, ask: object) -> object:
        start = time.process_time()
        total = whole(self, ask)  # type: ignore[arg-type]
        taken.append(time.process_time() - start)
        return total

    rng = np.random.default_rng(0)
    centers = rng.uniform(-1, 1, (5, 2))
    rows = np.clip(centers[rng.integers(0, 5, 20 * clients)] + rng.normal(0, 0.3, (20 * clients, 2)), -1, 1)
    words = {
        "init": 0.9 * centers,
        "learning_rate": 0.01,
        "tol": 0.0,
        "max_iter": ROUNDS,
        "domain": Box(-1, 1),
    }
    with patch.context() as inner:
        inner.setattr(Federation, "ask", timed)
        model = DWFKMeans(5, protocol="masked", **words)
        model.fit(rows, groups=np.repeat(np.arange(clients), 20))
    return taken


@pytest.mark.parametrize("clients", CLIENTS)
def test_a_simulated_round(monkeypatch: pytest.MonkeyPatch, clients: int) -> None:
    found: dict[str, list[float]] = {"round": [], "first": []}
    with threadpool_limits(1):
        for _ in range(3 if clients <= 200 else 1):
            taken = rounds(monkeypatch, clients)
            found["first"].append(taken[0])
            # A mean over whole blocks: the round that prepares the next one costs more than the others.
            found["round"].append(float(np.mean(taken[1:])))
    medians = {name: round(float(np.median(one)), 3) for name, one in found.items()}
    medians["processes_waiting"] = round(os.getloadavg()[0], 1)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.write_text(json.dumps(known | {f"{clients} clients": medians}, indent=2) + "\n")
    print(f"\n{clients} clients, CPU seconds of a round: {medians}")
