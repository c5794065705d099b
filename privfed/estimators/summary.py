"""A summary of the clients' rows: counts, means, deviations, ranges and histograms, from sums.

Reveals: what the sums show (`privfed.questions.moments`, `privfed.questions.histograms`), and to everyone the
fitted numbers. No row leaves its client.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from privfed.algorithms.summary import FeatureSummary, Histograms
from privfed.core.stored.messages import Array
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError
from privfed.estimators.common.claimed import Claimed
from privfed.estimators.common.gathering import clients_of
from privfed.estimators.common.whole_program import whole_program
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.estimators.parameters.shared import Surroundings
from privfed.federation.builder import protocol_of
from privfed.federation.claim import claim_of
from privfed.privacy.privacy import Privacy
from privfed.questions.histograms import MOST_BINS, check_edges
from privfed.questions.moments import Moments

NAME = "FederatedSummary"
"""What agreements call the summary."""


@parameters
class FederatedSummary(Surroundings, Claimed):
    """Counts the rows of all clients, and finds each feature's mean, deviation, range and histogram.

    Means and deviations are those of the pooled rows, from two sums (three if features hardly vary); under
    differential privacy from several noised ones. Histograms are one sum more, for which differential privacy
    keeps half of the budget.

    Attributes:
        n_samples_seen_: number of rows of all clients.
        mean_: mean of each feature, float64 of shape (n_features,).
        std_: standard deviation of each feature, of the population.
        data_min_, data_max_: ends of each feature's range: those of the declared domain, else edges of
            public bins, which exceed the smallest and largest values by at most a sixteenth with up to three
            features, and by up to a whole power of two with many. No client's smallest or largest value is
            found.
        edges_: with `bins`: edges of each feature's bins, a list of arrays of shape (n_bins_j + 1,).
        histograms_: with `bins`: rows in each bin, a list of float64 arrays of shape (n_bins_j,), as
            `numpy.histogram` counts them.
        below_, above_: with `bins`: rows below each feature's first edge, and above its last.
        noise_std_: with `bins`: standard deviation of the noise in a count of rows; 0 without `privacy`.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be opened.
    """

    bins: int | Sequence[Any] | None = parameter(
        default=None,
        text="histograms of the features: None for none; a number of bins of equal width between the ends of "
        "each feature's range; edges for all features; or a list of edges for each. At most 64 bins.",
        kw_only=False,
    )
    privacy: Privacy | None = parameter(
        default=None, text="None, or a `privfed.Privacy`: then all numbers are noised."
    )

    def fit(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Summarize the rows of all clients.

        Args:
            X: a list of tables of shape (n_i, n_features), one for each client; or one table. None for an
                engine whose clients already have their rows.
            y: ignored.
            groups: the client of each row, if `X` is one table.
            client_names: names of all clients; needed with `groups` under differential privacy, as in
                `DWFKMeans`.

        Returns:
            The fitted summary.
        """
        clients = clients_of(self, X, groups, None, client_names)
        self.n_features_in_ = clients.n_features
        algorithm = summary_of(self.bins, clients.n_features)
        agreed = {"algorithm": NAME, "histograms": algorithm.counts}
        self.federation_ = whole_program(self, clients, algorithm, agreed)
        moments, histograms = self.federation_.run(algorithm)
        self._keep(moments)
        self._keep_histograms(histograms)
        if self.privacy is not None:
            self.privacy.check_delta(moments.n_rows, len(self.federation_.setting.clients))
        return self

    def _keep(self, moments: Moments) -> None:
        self.n_samples_seen_ = moments.n_rows
        self.mean_, self.std_ = np.array(moments.mean), np.sqrt(moments.var)
        self.data_min_, self.data_max_ = np.array(moments.ranges.low), np.array(moments.ranges.high)
        self.transcript_ = self.federation_.transcript
        self.transcript_.ended({"mean": Array.of(self.mean_), "std": Array.of(self.std_)})
        self.privacy_claim_ = claim_of(self.federation_, protocol_of(self.protocol))

    def _keep_histograms(self, found: Histograms | None) -> None:
        for stale in ("edges_", "histograms_", "below_", "above_", "noise_std_"):
            self.__dict__.pop(stale, None)
        if found is None:
            return
        # Edges that repeat the last one are those that a feature with fewer bins does not have.
        n_bins = [int(np.searchsorted(own, own[-1])) for own in found.edges]
        self.edges_ = [own[: n + 1].copy() for own, n in zip(found.edges, n_bins, strict=True)]
        self.histograms_ = [own[1 : n + 1].copy() for own, n in zip(found.counts, n_bins, strict=True)]
        self.below_, self.above_ = found.counts[:, 0].copy(), found.counts[:, -1].copy()
        self.noise_std_ = found.noise_std


def summary_of(bins: Any, n_features: int) -> FeatureSummary:
    """Return the algorithm for what users give as `bins`.

    Raises:
        ArgumentError: it is no number of bins and no edges, or there are too many bins.
    """
    if bins is None:
        return FeatureSummary()
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        if not 1 <= bins <= MOST_BINS:
            raise ArgumentError(f"bins must lie in [1, {MOST_BINS}], got bins={bins}.")
        return FeatureSummary(n_bins=int(bins))
    edges = _table(bins, n_features)
    check_edges(edges, n_features)
    return FeatureSummary(edges=edges)


def _table(bins: Any, n_features: int) -> FloatArray:
    """Return edges as a table with a row for each feature, which repeats its last edge where it has fewer."""
    if isinstance(bins, str | bytes) or not isinstance(bins, Sequence | np.ndarray) or not len(bins):
        raise ArgumentError(
            f"bins must be None, a number, edges, or a list of edges for each feature, got {bins!r}."
        )
    shared = all(np.ndim(one) == 0 for one in bins)
    rows = [as_numbers("bins", bins)] * n_features if shared else [as_numbers("bins", one) for one in bins]
    if any(row.ndim != 1 or not row.size for row in rows):
        raise ArgumentError("bins must be edges, or a list of edges for each feature; one is empty.")
    most = max(len(row) for row in rows)
    return frozen_array(np.stack([np.append(row, np.full(most - len(row), row[-1])) for row in rows]))
