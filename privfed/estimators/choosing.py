"""How a number of clusters is chosen: indices, rules, the clients' own numbers, and the result.

`privfed.estimators.selection` fits the candidates.

The rule of thumb for the range of candidates is of Stallmann and Wilbik, On a Framework for Federated Cluster
Analysis, 2022, section 2.2.3. The range goes from the smallest number that a client finds on its own to the
smallest plus the largest. There the clients name their numbers; here only the histogram of all clients leaves
the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from privfed import metrics
from privfed.core.names import Registry
from privfed.core.values.domain import FloatArray
from privfed.core.values.shown import as_table
from privfed.errors import ArgumentError, DataError, PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.metrics.asked import AskedMetric
from privfed.metrics.functions import fuzzy_davies_bouldin, measured
from privfed.privacy.claim import Privacy, PrivacySpent, noised_fields, noised_mark
from privfed.questions.local_cluster_counts import LocalClusterCounts

Rule = Literal["minimum", "maximum", "elbow"]

FEWEST_FOR_ELBOW = 3
"""Fewest candidates for an elbow, which lies between the first and the last one."""


def elbow_heights(candidates: Sequence[int], values: Sequence[float], *, rising: bool) -> FloatArray:
    """Return the difference curve of kneedle, float64 of shape (n_candidates,), NaN where a value is NaN.

    Satopaa, Albrecht, Irwin and Raghavan, Finding a "Kneedle" in a Haystack, 2011, section III. Both axes are
    normalised to [0, 1], and a falling curve is flipped. The elbow is where the curve lies highest above the
    diagonal. Unlike there, the curve is not smoothed, and of several elbows only the highest counts.

    Args:
        candidates: numbers of clusters, ascending.
        values: the index of each; NaN if it has none.
        rising: whether the index grows with the number of clusters; otherwise it falls.
    """
    x, y = np.asarray(candidates, dtype=np.float64), np.asarray(values, dtype=np.float64)
    known = np.isfinite(y)
    span = np.ptp(y[known])
    height = (y - y[known].min()) / (span if span > 0 else 1.0)
    return np.asarray((height if rising else 1.0 - height) - (x - x[known].min()) / np.ptp(x[known]))


def chosen(candidates: Sequence[int], values: Sequence[float], rule: Rule, *, rising: bool = False) -> int:
    """Return the number of clusters of the best value; among equals the smallest.

    With the rule "elbow", a curve that nowhere bends away from its chord gives the first candidate.

    Raises:
        ArgumentError: no value is known, or fewer than three are known for an elbow.
    """
    known = int(np.isfinite(np.asarray(values, dtype=np.float64)).sum())
    needed = FEWEST_FOR_ELBOW if rule == "elbow" else 1
    if known < needed:
        raise ArgumentError(
            f"the index has a value for {known} of {len(values)} numbers of clusters, rule={rule!r} needs "
            f"{needed}; try more of them, or another index."
        )
    if rule == "minimum":
        return candidates[int(np.nanargmin(values))]
    if rule == "maximum":
        return candidates[int(np.nanargmax(values))]
    return candidates[int(np.nanargmax(elbow_heights(candidates, values, rising=rising)))]


@dataclass(frozen=True, slots=True)
class Index:
    """Describes a named index and the rule by which it chooses.

    Args:
        value: returns the index of a fitted model.
        rule: how a number of clusters is chosen from its values.
        rising: whether it grows with the number of clusters, for the elbow.
    """

    value: Callable[[FederatedClusterer], float]
    rule: Rule
    rising: bool = False


def asked(function: Callable[..., float]) -> Callable[[FederatedClusterer], float]:
    """Turn an index of a federation and centers into an index of a fitted model."""
    return lambda model: function(model.federation_, model.cluster_centers_)


def _inertia(model: FederatedClusterer) -> float:
    if model.inertia_ is None:
        kind = ArgumentError if model.privacy is None else PrivacyError
        raise kind('inertia_ was not asked for: choose by "davies_bouldin", or a mixture by "bic".')
    return float(model.inertia_)


DAVIES_BOULDIN = Index(asked(metrics.davies_bouldin), "minimum")
FUZZY_DAVIES_BOULDIN = Index(
    lambda model: fuzzy_davies_bouldin(model.federation_, model.cluster_centers_, m=model.m), "minimum"
)
SIMPLIFIED_SILHOUETTE = Index(asked(metrics.simplified_silhouette), "maximum", rising=True)
CALINSKI_HARABASZ = Index(asked(metrics.calinski_harabasz), "maximum", rising=True)
# These two fall with every further cluster, so only an elbow can choose.
MEAN_DISTANCE = Index(asked(metrics.mean_distance), "elbow")
INERTIA = Index(_inertia, "elbow")
BIC = Index(lambda model: model.bic(), "minimum")

INDICES: Registry[Index] = Registry(
    "index",
    "privfed.indices",
    {
        "davies_bouldin": f"{__name__}:DAVIES_BOULDIN",
        "fuzzy_davies_bouldin": f"{__name__}:FUZZY_DAVIES_BOULDIN",
        "simplified_silhouette": f"{__name__}:SIMPLIFIED_SILHOUETTE",
        "calinski_harabasz": f"{__name__}:CALINSKI_HARABASZ",
        "mean_distance": f"{__name__}:MEAN_DISTANCE",
        "inertia": f"{__name__}:INERTIA",
        "bic": f"{__name__}:BIC",
    },
)
"""Indices that choose a number of clusters. Packages add theirs by entry points of `privfed.indices`."""


MOST = 10
"""Most clusters that a client looks for on its own."""


@dataclass(frozen=True, slots=True)
class LocalClusters:
    """Holds how many clusters the clients found on their own.

    Args:
        clients: entry i - 1 is how many clients found i clusters; the first also counts clients with too
            few distinct rows to tell.
    """

    clients: tuple[int, ...]

    @property
    def candidates(self) -> range:
        """Candidates by the rule of thumb: from the smallest local number to the smallest plus the largest.

        Raises:
            DataError: no client could tell.
        """
        found = [number for number, count in enumerate(self.clients, start=1) if count and number > 1]
        if not found:
            raise DataError(
                "no client has four distinct rows, so none can say how many clusters it has; "
                "pass the range of numbers of clusters."
            )
        return range(found[0], found[0] + found[-1] + 1)


def local_cluster_counts(
    clients: Any, *, most: int = MOST, seed: int = 0, privacy: Privacy | None = None, **options: Any
) -> LocalClusters:
    """Ask in one sum how many clusters each client finds on its own.

    It reveals to the recipient of the total how many clients find each number of clusters.

    Args:
        clients: list of tables of shape (n_i, n_features), or a federation.
        most: most clusters that a client looks for, in [2, 100].
        seed: seed of each client's own k-means.
        privacy: None, or a `privfed.Privacy` that is spent on this metric (for a list of tables only).
        **options: `protocol`, `domain`, `policy`, `random_state`, `groups`, `client_names`, if `clients` is
            not a federation.
    """
    metric = AskedMetric.of(LocalClusterCounts, most=most, seed=seed)
    total = measured(clients, None, privacy, options, metric, "local clusters")["clients"]
    return LocalClusters(tuple(np.rint(total).astype(int).tolist()))


SHARED = (
    "Candidates were judged on one noised coreset, and the chosen one alone was refined by rounds; sums and "
    "bytes are of the whole selection."
)
"""Note for the table of a private selection, which holds for all of its rows."""

NO_INTERVAL = (
    "The index has no interval: it is of the noised coreset, whose cells depend on the noise, and was not "
    "asked of rows. intervals() of the chosen model has sizes and means."
)
"""Why a private selection says nothing of the noise in its index."""


@dataclass(frozen=True, slots=True)
class SelectionRow:
    """Holds the results for one number of clusters.

    Args:
        n_clusters: the number.
        index: the index; NaN if it is undefined (fewer than two clusters have rows).
        inertia: pooled sum of squared distances to the nearest center.
        rounds: rounds of the fit.
        sums: number of sums for the fit and the index.
        bytes: bytes sent for these, to and from all clients together.
        converged: whether a stop rule ended the fit; None if its rounds were fixed.
        remedy: why it did not converge and what helps; empty if it did.
    """

    n_clusters: int
    index: float
    inertia: float | None
    rounds: int
    sums: int
    bytes: int
    converged: bool | None = None
    remedy: str = ""


FROM_TOTALS = ("rows", "n_clusters", "table.index", "centroids")
"""Results of a selection that come from totals alone, by their names in JSON."""


@dataclass(frozen=True, eq=False)
class SelectionResult:
    """Holds the chosen number of clusters, and the results for all candidates.

    Args:
        n_clusters: the chosen number.
        index: name of the index.
        rule: rule by which the number was chosen: "minimum", "maximum" or "elbow".
        table: one row for each candidate, ascending.
        models: the fitted estimators, in the order of the table.
        local: what the clients found on their own, if no range was passed.
    """

    n_clusters: int
    index: str
    rule: Rule
    table: tuple[SelectionRow, ...]
    models: tuple[FederatedClusterer, ...]
    local: LocalClusters | None = None

    _repr_html_ = as_table(
        lambda self: [
            (
                "K",
                f"{self.index}{noised_mark(self.privacy_claim)}",
                "inertia",
                "rounds",
                "sums",
                "bytes",
                "note",
            ),
            *(
                (
                    row.n_clusters,
                    f"{row.index:.6g}",
                    "" if row.inertia is None else f"{row.inertia:.6g}",
                    row.rounds,
                    row.sums,
                    f"{row.bytes:,}",
                    "chosen " * (row.n_clusters == self.n_clusters)
                    + "not converged" * (row.converged is False),
                )
                for row in self.table
            ),
        ]
    )

    @property
    def estimator(self) -> FederatedClusterer:
        """The estimator fitted with the chosen number of clusters."""
        return self.models[[row.n_clusters for row in self.table].index(self.n_clusters)]

    @property
    def privacy_claim(self) -> PrivacySpent | None:
        """The privacy claim for all fits and the choice together; None without differential privacy."""
        return self.models[0].privacy_claim_

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the models, as values that JSON can hold."""
        claim, rows = self.privacy_claim, [asdict(row) for row in self.table]
        for row in rows:
            row["index"] = row["index"] if np.isfinite(row["index"]) else None
        return {
            "n_clusters": self.n_clusters,
            "index": self.index,
            "rule": self.rule,
            "privacy": None if claim is None else claim.to_dict(),
            "noised": list(noised_fields(claim, *FROM_TOTALS)),
            "local_clusters": None if self.local is None else list(self.local.clients),
            "table": rows,
            "no_interval": None if claim is None else NO_INTERVAL,
        }

    def __str__(self) -> str:
        claim = self.privacy_claim
        name = f"{self.index}{noised_mark(claim)}"
        wide = max(22, len(name))
        lines = [f"{'K':>4} {name:>{wide}} {'inertia':>12} {'rounds':>7} {'sums':>6} {'bytes':>13}"]
        for row in self.table:
            inertia = "" if row.inertia is None else f"{row.inertia:.6g}"
            mark = " <" if row.n_clusters == self.n_clusters else ""
            mark += " (not converged)" if row.converged is False else ""
            lines.append(
                f"{row.n_clusters:>4} {row.index:>{wide}.6g} {inertia:>12} {row.rounds:>7} {row.sums:>6} "
                f"{row.bytes:>13,}{mark}"
            )
        notes = [] if claim is None else [SHARED, NO_INTERVAL, str(claim)]
        return "\n".join([*lines, f"{self.n_clusters} clusters: {self.rule} of {name}", *notes])
