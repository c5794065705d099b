"""Agreement of clusters with labels, from one summed contingency table.

Labels stay with the clients. Reveals to whoever opens the total: how many rows of each label are in
each cluster, over the whole cohort; no client's own counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from privfed.core.asking.question import ClientData, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.kernels.dispatch import assign
from privfed.questions.lloyd import AtCenters


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Contingency(AtCenters):
    """Ask how many rows of each label lie in each cluster.

    Statistics: `table` (n_labels, n_clusters). A client without labels contributes zeros.

    Args:
        n_labels: number of label codes, which are 0 to n_labels - 1; rows with other codes are not counted.
    """

    row_counts: ClassVar[tuple[str, ...]] = ("table",)
    n_labels: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.n_labels <= 1 << 20:
            raise ArgumentError(f"n_labels must lie in [1, 2**20], got n_labels={self.n_labels}.")

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Counts of at most the rows of a client."""
        return StatisticsSpec(
            Entry("table", (self.n_labels, len(self.centers)), 0.0, self.ranges.rows, 2.0**-30)
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [Statistics(table=self._table(client)) for client in clients]

    def _table(self, client: ClientData) -> FloatArray:
        table = np.zeros((self.n_labels, len(self.centers)))
        if client.labels is not None:
            known = (client.labels >= 0) & (client.labels < self.n_labels)
            np.add.at(table, (client.labels[known], assign(client.features[known], self.centers)), 1.0)
        return table


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of clusters with labels.

    Args:
        accuracy: share of rows whose label is the most frequent one in their cluster; several clusters may
            have the same most frequent label (section 3.3 of Holzer et al. 2023).
        homogeneity: 1 when each cluster holds one label only.
        completeness: 1 when each label lies in one cluster only.
        v_measure: harmonic mean of homogeneity and completeness (Rosenberg and Hirschberg 2007).
        adjusted_rand_index: Rand index corrected for chance (Hubert and Arabie 1985).
    """

    accuracy: float
    homogeneity: float
    completeness: float
    v_measure: float
    adjusted_rand_index: float


def agreement(table: FloatArray) -> Agreement:
    """Return the agreement scores of a contingency table, float64 of shape (n_labels, n_clusters).

    Raises:
        ArgumentError: the table holds no rows.
    """
    # Imported here since it takes long, and few runs need it.
    from sklearn.metrics import adjusted_rand_score, homogeneity_completeness_v_measure

    counts = np.rint(table).astype(np.int64)
    if counts.sum() <= 0:
        raise ArgumentError(
            "the contingency table is empty: no client has labels; pass labels to fit or load."
        )
    labels, clusters = np.nonzero(counts)
    true = np.repeat(labels, counts[labels, clusters])
    found = np.repeat(clusters, counts[labels, clusters])
    homogeneity, completeness, v_measure = homogeneity_completeness_v_measure(true, found)
    return Agreement(
        accuracy=float(counts.max(axis=0).sum() / counts.sum()),
        homogeneity=float(homogeneity),
        completeness=float(completeness),
        v_measure=float(v_measure),
        adjusted_rand_index=float(adjusted_rand_score(true, found)),
    )
