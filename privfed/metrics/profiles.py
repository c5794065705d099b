"""What clusters are: the size of each, and the mean and spread of each column in it, from one sum.

Reveals: what `privfed.questions.cluster_spread` says of `ClusterProfiles` and `ClusterClients`. The profile
of a cluster of few rows is nearly these rows: ask groups of rows (`ClientPolicy.group_size`) where clusters
may be small.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.core.values.shown import as_table
from privfed.metrics.asked import AskedMetric
from privfed.metrics.functions import checked_centers, measured
from privfed.questions.cluster_spread import ClusterClients, ClusterProfiles, moments_of


@dataclass(frozen=True)
class Profiles:
    """Sizes, means and spreads of clusters, and of all rows.

    Args:
        sizes: rows nearest to each center, float64 of shape (n_clusters,).
        means: mean of each column, float64 of shape (n_clusters, n_features); NaN without rows.
        stds: standard deviation of each column, likewise.
        mean: mean of each column over all rows, float64 of shape (n_features,).
        std: its standard deviation, likewise.
        clients: how many clients have rows in each cluster (`clients_per_cluster`), float64 of shape
            (n_clusters,); None where nobody was asked.
    """

    sizes: FloatArray
    means: FloatArray
    stds: FloatArray
    mean: FloatArray
    std: FloatArray
    clients: FloatArray | None = None

    _repr_html_ = as_table(
        lambda self: [
            ("cluster", "rows", *(f"column {place}, mean and deviation" for place in range(len(self.mean)))),
            *(
                (
                    name,
                    f"{size:.6g}",
                    *(f"{mean:.4g} ± {std:.3g}" for mean, std in zip(means, stds, strict=True)),
                )
                for name, size, means, stds in zip(
                    [*range(len(self.sizes)), "all"],
                    [*self.sizes, self.sizes.sum()],
                    [*self.means, self.mean],
                    [*self.stds, self.std],
                    strict=True,
                )
            ),
        ]
    )

    @property
    def apart(self) -> FloatArray:
        """How far a mean lies from that of all rows, in their standard deviations, (n_clusters, n_features).

        It is 0 for a column that does not vary.
        """
        varies = self.std > 0.0
        apart: FloatArray = np.where(varies, (self.means - self.mean) / np.where(varies, self.std, 1.0), 0.0)
        return apart

    def mapped(self, shift: FloatArray, scale: FloatArray) -> Profiles:
        """Return the profiles of rows `row * scale + shift`, such as those before rows were scaled."""
        means, mean = self.means * scale + shift, self.mean * scale + shift
        stds, std = self.stds * np.abs(scale), self.std * np.abs(scale)
        return Profiles(self.sizes, means, stds, mean, std, self.clients)

    def to_dict(self) -> dict[str, Any]:
        """Return them as JSON types; what is of no rows is None."""
        return {name: plain(value.tolist()) for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Profiles:
        """Read what `to_dict` wrote."""
        return cls(**{name: np.array(value, dtype=np.float64) for name, value in plain.items()})


def plain(value: Any) -> Any:
    """Return numbers, or lists of them, as JSON has them: what is not finite is None."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value if np.isfinite(value) else None


def profiles(clients: Any, centers: Any, **options: Any) -> Profiles:
    """Return size, means and spreads of the rows nearest to each center.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation. Centers of a fit with `scale=`
            are those of scaled rows: `Profiles.mapped` gives the columns' units.
        centers: (n_clusters, n_features).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.

    Raises:
        PrivacyError: the federation has a guarantee of differential privacy. `intervals()` of a private fit
            has sizes and means, for no budget.
    """
    checked = checked_centers(centers)
    total = measured(clients, None, None, options, AskedMetric.about(ClusterProfiles, checked), "profile")
    means, variances, mean, whole = moments_of(total, checked)
    empty = np.where((total["count"] > 0.0)[:, None], 0.0, np.nan)
    return Profiles(total["count"], means + empty, np.sqrt(variances) + empty, mean, np.sqrt(whole))


def clients_per_cluster(clients: Any, centers: Any, **options: Any) -> FloatArray:
    """Return how many clients have rows nearest to each center, float64 of shape (n_clusters,).

    A large cluster of one client alone may be a group of its own, or a client that measures in another unit.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        centers: (n_clusters, n_features).
        **options: as for `profiles`.

    Raises:
        PrivacyError: the federation has a guarantee of differential privacy.
    """
    asked = AskedMetric.about(ClusterClients, checked_centers(centers))
    return measured(clients, None, None, options, asked, "profile")["clients"]
