"""What a clustering run ends with, and how restarts are compared."""

from __future__ import annotations

from dataclasses import dataclass

from privfed.core.domain import FloatArray


@dataclass(frozen=True, slots=True)
class ClusteringOutcome:
    """What a clustering run ends with.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        history: centers of the kept restart; the start, then one entry a round.
        inertia: pooled sum of squared distances to the nearest center; None where it was not asked for.
        n_rows: rows of all clients in the score; noised under differential privacy.
        converged: whether a stop rule ended the kept restart; False where max_iter did before. None where no
            rule was to: rounds were fixed, by `tol=0` or under differential privacy.
        score: what the restarts were compared by.
    """

    centers: FloatArray
    history: tuple[FloatArray, ...]
    inertia: float | None
    n_rows: int
    converged: bool | None
    score: float
