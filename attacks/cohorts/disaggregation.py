"""Recovers each client's statistics from totals over changing, overlapping cohorts.

The total of round t is sum_i P_ti s_i(C_t), where P says who took part. If clients' statistics do not change
(converged or frozen centroids), this is a linear system, solved exactly once P has full column rank. While
centroids move, each client's statistics are modelled as a smooth function of them: a Gaussian process with
the same kernel for all clients, whose response to the centroids is fitted to the totals.
docs/attacks/disaggregation.md has equations and figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prior
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.report import Cells
from privfed.attacks.base.results import Counts
from privfed.attacks.evidence.equations import Counted, counted_in
from privfed.attacks.evidence.pooling import separable
from privfed.core.asking.question import Question
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.privacy.noised import Noised

RESPONSES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Variance of the response to the centroids, relative to that of the statistics themselves."""

LENGTHS = (0.3, 1.0, 3.0, 10.0)
"""Distance over which a response changes, relative to the root mean square movement of the centroids."""

NOISES = (1e-10, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
"""Variance of the remaining noise, relative to that of the statistics."""


class Disaggregation(PassiveAttack[Counts]):
    """Separates totals over changing cohorts into the clients' own counts and sums.

    Counts above a half say which clients hold rows of a cluster.
    """

    name: ClassVar[str] = "disaggregation"
    paper: ClassVar[str] = "Lam et al., arXiv:2106.06089 (static); own (with the centroid response)"
    adversary: ClassVar[str] = "passive server"
    view: ClassVar[str] = "totals of many rounds, and who took part in each"
    prior: ClassVar[str] = "none"
    defence: ClassVar[str] = "fixed cohorts; differential privacy; noise of the size of the statistics"

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Totals of counts in cells around centers, and of the sums beside them."""
        what, totals = "exact totals of counts in cells around centers", Shows.TOTALS
        return (Reads(what=what, shown=totals, use=lambda one: _counted(one) is not None, noised=False),)

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Counts:
        rounds = _rounds(view)
        totals = rounds.totals
        # The baseline is a client's equal share of the totals, averaged over the rounds.
        mean = (totals / rounds.took_part.sum(axis=1)[:, None]).mean(axis=0)
        estimates = disaggregated(rounds.took_part, totals, rounds.centers)
        n_clusters = rounds.centers.shape[1]
        clients = np.flatnonzero(rounds.took_part.any(axis=0))
        cells = Cells.around(rounds.centers[-1])

        def parts(table: FloatArray) -> tuple[FloatArray, FloatArray]:
            whole = table[clients].reshape(len(clients), n_clusters, -1)
            return whole[:, :, 0], whole[:, :, 1:]

        counts, sums = parts(estimates)
        guessed, guessed_sums = parts(np.tile(mean, (len(view.clients), 1)))
        return Counts(
            attack=self.name,
            queries=len(totals),
            counts=np.maximum(counts, 0.0),
            sums=sums if sums.size else None,
            cells=[cells] * len(clients),
            clients=clients.tolist(),
            without_access=guessed,
            sums_without_access=guessed_sums if sums.size else None,
            bound=float(np.mean(separable(rounds.took_part)[clients])),
            bound_of="what linear equations alone determine, of clients whose statistics do not change",
        )


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Holds the totals of rounds with counts in cells around centers, of as many cells as the last one.

    Args:
        took_part: 1 for clients that took part, else 0, float64 of shape (n_rounds, n_clients).
        totals: counts and, if shown, sums side by side, (n_rounds, n_clusters * (1 + n_features)).
        centers: the centers asked about, (n_rounds, n_clusters, n_features).
    """

    took_part: FloatArray
    totals: FloatArray
    centers: FloatArray


def _counted(question: Question | None) -> Counted | None:
    """Return how a question counts rows in several cells around centers; None if it does not, exactly."""
    found = None if question is None or isinstance(question, Noised) else counted_in(question)
    several = found is not None and found.cells.centers is not None and found.cells.n_cells > 1
    return found if several else None


def _rounds(view: View) -> _Rounds:
    found = []
    for one in view.sums:
        if one.total is None or (counted := _counted(one.question)) is None:
            continue
        inside, n_cells = np.zeros(len(view.clients)), counted.cells.n_cells
        inside[list(one.contributors or one.cohort)] = 1.0
        parts = [one.total[counted.count].reshape(n_cells, -1)]
        parts += [counted.sums(one.total)] if counted.sum else []
        found.append((inside, np.hstack(parts).ravel(), np.asarray(counted.cells.centers)))
    last = found[-1]
    kept = [one for one in found if one[1].shape == last[1].shape and one[2].shape == last[2].shape]
    return _Rounds(*(np.stack(part) for part in zip(*kept, strict=True)))


def disaggregated(took_part: FloatArray, totals: FloatArray, centers: FloatArray) -> FloatArray:
    """Return each client's statistics at the last round's centroids.

    Args:
        took_part: who took part, float64 of shape (n_rounds, n_clients).
        totals: float64 of shape (n_rounds, n_statistics).
        centers: float64 of shape (n_rounds, n_clusters, n_features).

    Returns:
        float64 of shape (n_clients, n_statistics).
    """
    flat = centers.reshape(len(centers), -1)
    moved = flat - flat[-1]
    size = float(np.sqrt(np.square(moved).sum(axis=1).mean()))
    together = took_part @ took_part.T
    if size <= 1e-12 * max(1.0, float(np.abs(flat).max())):
        return np.asarray(np.linalg.lstsq(took_part, totals, rcond=1e-10)[0])
    # The mean over clients is subtracted first; the process models how clients differ from it.
    n_inside = took_part.sum(axis=1)[:, None]
    mean = (totals / n_inside).mean(axis=0)
    rest = totals - n_inside * mean
    distances = np.square(moved[:, None] - moved[None]).sum(axis=2) / size**2
    _, weights, response, length = max(_candidates(together, distances, rest), key=lambda one: one[0])
    now = 1.0 + response * np.exp(-distances[-1] / (2 * length**2))
    return np.asarray(mean + took_part.T @ (now[:, None] * weights))


def _candidates(
    together: FloatArray, distances: FloatArray, rest: FloatArray
) -> list[tuple[float, FloatArray, float, float]]:
    """Return log evidence, dual weights, response and length of each kernel.

    The kernel between rounds is (clients in both) * (1 + response * exp(-distance / (2 length^2))). Its scale
    is the maximum-likelihood one, which has a closed form.
    """
    found = []
    n, m = rest.shape
    for response in RESPONSES:
        for length in LENGTHS if response else LENGTHS[:1]:
            kernel = together * (1.0 + response * np.exp(-distances / (2 * length**2)))
            for noise in NOISES:
                factor = cho_factor(kernel + noise * np.trace(kernel) / n * np.eye(n), lower=True)
                weights = cho_solve(factor, rest)
                # Each statistic has its own scale.
                scale = np.maximum((rest * weights).sum(axis=0) / n, np.finfo(np.float64).tiny)
                evidence = -0.5 * n * np.log(scale).sum() - m * np.log(np.diag(factor[0])).sum()
                found.append((float(evidence), weights, response, length))
    return found
