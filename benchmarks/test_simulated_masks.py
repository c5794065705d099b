"""A simulated masked sum of few entries: what it costs, and what sharing between clients saves.

CPU seconds of one thread; `make bench` runs it. Rounds where simulated clients take from each other what
both would compute alternate with rounds where each computes it; beside them the key agreements alone, which
nothing can save. It prints, writes `simulated_masks.json`, and asserts nothing about time.
PRIVFED_BENCH_CLIENTS names further numbers of clients; above 200, one fit is measured, of shared rounds only.
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
from privfed.protocols.crypto.keys import agree, new_secret, parsed, public_key
from privfed.protocols.crypto.shared import APART, InOneProcess, Shared
from privfed.protocols.masked import masked
from privfed.protocols.setup.sizes import sizes

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("ignore:.*did not converge")]

KEPT = Path(__file__).with_name("simulated_masks.json")
ROUNDS = 8
CLIENTS = [100, *map(int, os.environ.get("PRIVFED_BENCH_CLIENTS", "").split())]


def rounds(patch: pytest.MonkeyPatch, shared: type[InOneProcess] | None, clients: int) -> list[float]:
    """Return the CPU seconds of each round of a masked fit, the set-up with the first."""
    taken: list[float] = []
    whole = Federation.ask

    def timed(self: Federation, ask: object) -> object:
        start = time.process_time()
        total = whole(self, ask)  # type: ignore[arg-type]
        taken.append(time.process_time() - start)
        return total

    made = InOneProcess if shared is not None else lambda: APART
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
        inner.setattr(masked, "InOneProcess", made)
        model = DWFKMeans(5, init=0.9 * centers, protocol="masked", **words)
        model.fit(rows, groups=np.repeat(np.arange(clients), 20))
    return taken


def agreements(clients: int, each: int) -> float:
    """Return the CPU seconds of one key agreement for each pair of neighbours."""
    own, public = parsed(new_secret()), public_key(new_secret())
    start = time.process_time()
    for _ in range(1000):
        agree(own, public)
    return (time.process_time() - start) / 1000 * clients * each / 2


@pytest.mark.parametrize("clients", CLIENTS)
def test_a_simulated_round(monkeypatch: pytest.MonkeyPatch, clients: int) -> None:
    found: dict[str, list[float]] = {"shared": [], "apart": [], "first": [], "agreements": []}
    kinds: dict[str, type[Shared] | None] = {"shared": InOneProcess, "apart": None}
    terms = masked.Masked().terms(clients, clients, 100)
    with threadpool_limits(1):
        for _ in range(3 if clients <= 200 else 1):
            for name, kind in kinds.items():
                if clients > 200 and kind is None:
                    continue
                taken = rounds(monkeypatch, kind, clients)  # type: ignore[arg-type]
                found[name] += taken[2:]
                if kind is not None:
                    found["first"].append(taken[0])
                found["agreements"].append(agreements(clients, sizes(clients, terms).neighbours))
    medians = {name: round(float(np.median(one)), 3) for name, one in found.items() if one}
    medians["processes_waiting"] = round(os.getloadavg()[0], 1)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    KEPT.write_text(json.dumps(known | {f"{clients} clients": medians}, indent=2) + "\n")
    print(f"\n{clients} clients, CPU seconds of a round: {medians}")
