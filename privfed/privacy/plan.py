"""What a fit under differential privacy is planned to be like."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """The noise that `DPKMeans` will have, for clusters of equal size: a forecast, not a bound.

    Args:
        size_noise: standard deviation of the noise in the size of a cluster, in rows.
        mean_noise: standard deviation of the noise in a coordinate of the mean of a cluster.
        rounds: number of rounds.
        cost_ratio: cost of the centers over the cost without privacy; None where clusters do not stand out,
            which no formula forecasts.
        least_epsilon: least epsilon, at the same delta, at which they stand out; inf where none of at most
            128 is enough.
    """

    size_noise: float
    mean_noise: float
    rounds: int
    cost_ratio: float | None
    least_epsilon: float

    def __str__(self) -> str:
        """Return it in words."""
        ratio = (
            "not known: clusters do not stand out" if self.cost_ratio is None else f"{self.cost_ratio:.4g}"
        )
        least = f"{self.least_epsilon:.3g}" if math.isfinite(self.least_epsilon) else "none below 128"
        return (
            f"noise (sd) of a cluster's size: {self.size_noise:.3g} rows\n"
            f"noise (sd) of a coordinate of its mean: {self.mean_noise:.3g}, after {self.rounds} rounds\n"
            f"expected cost, over that without privacy: {ratio}\n"
            f"least epsilon at which the clusters stand out: {least}"
        )
