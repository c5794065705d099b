"""The result of a clustering run."""

from __future__ import annotations

from dataclasses import dataclass

from privfed.core.values.domain import FloatArray


@dataclass(frozen=True, slots=True)
class ClusteringOutcome:
    """The result of a clustering run.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        history: centers of the kept restart: the start, then one entry a round.
        inertia: pooled sum of squared distances to the nearest center; None where it was not asked for.
        n_rows: number of rows of all clients; noised under differential privacy.
        converged: whether a stopping rule ended the kept restart; False where max_iter ended it first. None
            where the number of rounds was fixed, by `tol=0` or under differential privacy.
        score: value by which restarts are compared; the smallest is kept.
    """

    centers: FloatArray
    history: tuple[FloatArray, ...]
    inertia: float | None
    n_rows: int
    converged: bool | None
    score: float
