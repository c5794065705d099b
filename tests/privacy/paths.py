"""Worst-case neighbours through the whole path, thousands of independent pairs in one sum.

A grid over one feature has thousands of cells, and a record falls into one. Every other cell gets one
record whose offset reaches the clipping radius, the cells between get none: the noised totals of the former
are releases with a worst-case unit, those of the latter releases without it. They go the way that all
numbers go: client's answer, its share of the noise, its ledger, the secure sum, the opened total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.domain import Box, Ranges
from privfed.engines.in_process import Fault
from privfed.federation.clients import gather
from privfed.federation.driver import Federation
from privfed.federation.opening import open_federation
from privfed.federation.request import FederationRequest
from privfed.federation.simulation import Simulation
from privfed.privacy.claim import Privacy
from privfed.protocols import Masked, Plain
from privfed.questions.bounded.bounded_sums import GridSums
from tests.undeclared import ANYTHING

DELTA = 1e-6
MOST_ROWS = 1 << 20
REACH = 0.9
"""Clipping radius in half widths of a cell; the records' offsets are 0.95."""


@dataclass(frozen=True, kw_only=True)
class Path:
    """A path from clients to opened totals, with one budget for each run.

    Args:
        epsilon: claimed at `DELTA` for all rounds of a run together.
        masked: clients behind a masked sum; else one client, plain.
        clients: how many there are behind a masked sum.
        honest: fewest of them in an opened sum, whose noise is counted on; None for all.
        lost: positions of clients whose uploads never arrive.
        rounds: sums of a run, each with an equal share of the budget.
        replaced: the neighbour has the record at the cell's other end, rather than none.
        claimed: relation that the noise is sized for.
        secure: claimed noise; else it repeats with `seed`.
        mechanism: distribution of the noise.
        radius: clipping radius in half widths of a cell.
        weight: share of the budget of a round, times the rounds.
    """

    epsilon: float
    masked: bool = False
    clients: int = 4
    honest: int | None = None
    lost: Sequence[int] = ()
    rounds: int = 1
    replaced: bool = False
    claimed: Literal["add-remove", "replace-one"] = "add-remove"
    secure: bool = False
    mechanism: Literal["gaussian", "skellam"] = "gaussian"
    radius: float = REACH
    weight: float = 1.0

    def releases(self, pairs: int, seed: int, cells: int = 1 << 17) -> tuple[np.ndarray, np.ndarray]:
        """Return at least so many releases with the unit, and without: (n_pairs, 2 * rounds) each."""
        sides: list[list[np.ndarray]] = [[], []]
        n_cells = min(cells, 2 * pairs + 2)
        for run in range(-(-2 * pairs // (n_cells - 2))):
            for side, found in zip(sides, self._run(n_cells, seed + run), strict=True):
                side.append(found)
        return np.concatenate(sides[0]), np.concatenate(sides[1])

    def _run(self, n_cells: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        width = 2.0 / n_cells
        middles = -1.0 + (np.arange(n_cells) + 0.5) * width
        far, used = 0.95 * width / 2, n_cells - 2
        rows = middles[:used:2] + far
        if self.replaced:
            rows = np.concatenate([rows, middles[1:used:2] - far])
        # The last cell takes the row that every other client must hold.
        clients = [rows[:, None]] + [middles[-1:, None]] * (self.clients - 1 if self.masked else 0)
        federation = self.federation(clients, seed)
        question = GridSums(
            ranges=Ranges(np.array([-1.0]), np.array([1.0]), MOST_ROWS),
            radius=self.radius * width / 2,
            per_axis=n_cells,
        )
        share = self.weight / self.rounds / 2
        ask = Ask(question, weights={"count": share, "sum": share})
        totals = np.concatenate([scaled(federation.ask(ask)) for _ in range(self.rounds)], axis=1)
        return totals[:used:2], totals[1:used:2]

    def federation(self, rows: Sequence[np.ndarray], seed: int) -> Federation:
        """Return clients behind the path's secure sum, with a fresh budget."""
        protocol: SecureSum = (
            Masked(colluders=0, honest=self.honest or self.clients) if self.masked else Plain()
        )
        clients = gather(list(rows), None, None)
        privacy = Privacy(
            epsilon=self.epsilon,
            delta=DELTA,
            unit="record",
            domain=Box(-1.0, 1.0, max_rows=MOST_ROWS),
            neighbours=self.claimed,
            mechanism=self.mechanism,
            noise_seed=None if self.secure else seed,
        )
        faults = [Fault(client, "collect", "lost-reply") for client in self.lost]
        request = FederationRequest(
            clients=clients,
            description="audit",
            max_sums=self.rounds,
            protocol=protocol,
            seed=privacy.unseeded(seed),
            privacy=privacy,
            engine=Simulation(faults=faults),
            policy=ANYTHING,
        )
        return open_federation(request)


def scaled(total: Total) -> np.ndarray:
    """Return each cell's count and sum in standard deviations of the noise, (n_cells, 2)."""
    assert total.noise_std is not None
    parts = [total.statistics[name].reshape(-1, 1) / total.noise_std[name] for name in ("count", "sum")]
    return np.concatenate(parts, axis=1)
