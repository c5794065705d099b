"""Estimators that need no clusters: scaling of features, and a summary of the clients' rows, from sums.

Reveals: what the sums show (`privfed.questions.ranges`, `privfed.questions.histograms`), and to everyone the
fitted numbers. Rows are transformed where they are and never sent.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from privfed.algorithms.quartiles import PrivateQuartiles
from privfed.algorithms.summary import FeatureSummary, Histograms, PrivateMoments, warn_of_variances
from privfed.core.roles.conversation import Algorithm
from privfed.core.stored.encoding import Array
from privfed.core.values.domain import Box, Domain, FloatArray, frozen_array
from privfed.core.values.numbers import as_numbers, check_whole
from privfed.core.values.origin import Origin, carrying, joined, origin_of, origin_under, released
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.fitting import check_declared, check_order, clients_of, rows_of
from privfed.estimators.mixins import OneToOneFeatureMixin, TransformerMixin
from privfed.estimators.parameters import Surroundings
from privfed.estimators.saving import Claimed, SavedNumbers, check_fitted
from privfed.federation.clients import Clients
from privfed.federation.opening import claim_of, open_federation
from privfed.federation.passed import on_each
from privfed.federation.request import FederationRequest, as_agreed, protocol_of, seed_of_fit
from privfed.federation.simulation import mapped_tables
from privfed.privacy.claim import Privacy
from privfed.questions.histograms import MOST_BINS, check_edges
from privfed.questions.moments import FeatureMoments, Moments, check_between


class FromSums(Surroundings, Claimed):
    """Finds numbers of the features of all clients by a program of its own, for estimators without clusters.

    Attributes:
        n_samples_seen_: number of rows of all clients.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be completed.
    """

    _agreed_name: ClassVar[str]
    """What agreements call the estimator."""
    _resumes: bool = False

    def fit(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Find the numbers of the features of all clients.

        Args:
            X: a list of tables of shape (n_i, n_features), one for each client; or one table. None for an
                engine whose clients already have their rows.
            y: ignored.
            groups: the client of each row, if `X` is one table.
            client_names: names of all clients; needed with `groups` under differential privacy, as in
                `DWFKMeans`.

        Returns:
            The fitted estimator.
        """
        check_declared(self)
        self._resumes = False
        self._find(clients_of(self, X, groups, None, client_names))
        return self

    def resume(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Finish the run in `run_dir` with the same clients: recorded totals are replayed, the rest is asked.

        Raises:
            RunFolderError: `run_dir` holds no readable run.
            ResumeError: the run there has other clients or parameters.
        """
        check_declared(self)
        self._resumes = True
        self._find(as_agreed(clients_of(self, X, groups, None, client_names), self.run_dir))
        return self

    @abstractmethod
    def _find(self, clients: Clients) -> None:
        """Find the numbers, and set the fitted attributes."""

    def _run(self, clients: Clients, algorithm: Algorithm[Any], **agreed: Any) -> Any:
        """Run an algorithm where and how the parameters say, and return its result.

        Args:
            clients: those who take part.
            algorithm: what is run.
            **agreed: the rest of the agreement's description, as JSON types.
        """
        self.n_features_in_ = clients.n_features
        self.federation_ = open_federation(
            FederationRequest(
                clients=clients,
                description=json.dumps({"algorithm": self._agreed_name, **agreed}),
                max_sums=algorithm.max_sums,
                protocol=self.protocol,
                algorithm=algorithm,
                seed=seed_of_fit(self.random_state, self.privacy, self.run_dir, self._resumes),
                domain=self.domain,
                privacy=self.privacy,
                engine=self.engine,
                policy=self.policy,
                run_dir=self.run_dir,
                resume=self._resumes,
            )
        )
        return self.federation_.run(algorithm)

    def _keep(self, moments: Moments) -> None:
        """Set what both estimators have of the moments."""
        self.n_samples_seen_ = moments.n_rows
        self.data_min_, self.data_max_ = np.array(moments.ranges.low), np.array(moments.ranges.high)
        self._forget("mean_error_", "var_error_", "rows_error_")
        if moments.mean_error is not None and moments.var_error is not None:
            self.mean_error_, self.var_error_ = moments.mean_error, moments.var_error
            self.rows_error_ = moments.rows_error
            warn_of_variances(
                moments.var, moments.var_error, self.federation_.transcript.configuration.columns
            )

    def _end(self, **results: FloatArray) -> None:
        """End the transcript with some of the fitted numbers, and set the claim."""
        self.transcript_ = self.federation_.transcript
        if not self.federation_.finished:
            self.transcript_.ended({name: Array.from_numpy(values) for name, values in results.items()})
        self.privacy_claim_ = claim_of(self.federation_, protocol_of(self.protocol))
        self._keep_origins(() if self.federation_.setting.domain is None else ("data_min_", "data_max_"))
        if self.privacy is not None:
            self.privacy.check_delta(self.n_samples_seen_, len(self.federation_.setting.clients))

    def _keep_origins(self, declared: Sequence[str]) -> None:
        """Let the fitted arrays carry where they come from: from rows, but for those of a declared domain."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and value.dtype == np.float64:
                vars(self)[name] = released(
                    value, Origin.DECLARED if name in declared else origin_under(self.privacy_spent_)
                )

    def _forget(self, *names: str) -> None:
        """Remove attributes of an earlier fit that this one may not have."""
        for name in names:
            self.__dict__.pop(name, None)


@parameters
class FederatedScaler(OneToOneFeatureMixin, TransformerMixin, FromSums, SavedNumbers):
    """Scales each feature to mean 0 and variance 1, to its range, or by its quartiles, over all clients.

    With `scaling="standard"` the fitted numbers are those of scikit-learn's StandardScaler on the pooled
    rows, from two sums (three if features hardly vary). With "range", one sum finds each feature's range,
    which is mapped to [0, 1]. It is exactly that of the declared domain. Without a domain its ends are bin
    edges, at most twice as wide as the rows; columns for which they may be wider are asked about once more.
    With "robust" one sum more counts rows in 64 bins between these ends. Quartiles are interpolated within a
    bin: none is further from that of the rows than the bin is wide.

    Attributes:
        mean_: "standard": mean of each feature, float64 of shape (n_features,).
        var_: "standard" and "robust": population variance of each feature.
        scale_: "standard": what features are divided by, the root of `var_`, 1 for constant features;
            "range": what they are multiplied by, as in scikit-learn's MinMaxScaler; "robust": the
            interquartile range that they are divided by, 1 for constant features.
        center_, width_: "robust": median of each feature, and the width of its bins.
        mean_error_, var_error_: with `privacy`: standard deviation of the noise in each mean and variance. Of
            rows far from the others those are clipped that are too few to be seen above the noise, as in long
            tails. What that changes is not in it: means of log-normal columns were off by 25 times as much.
        rows_error_: with these, the same of `n_samples_seen_`.
        data_min_, data_max_, data_range_: low and high end of each feature's range, and its width.
        min_: "range": what is added to the scaled features.
    """

    _agreed_name: ClassVar[str] = "FederatedScaler"
    fitted_numbers: ClassVar[tuple[str, ...]] = (
        *("mean_", "var_", "scale_", "center_", "width_", "min_"),
        *("mean_error_", "var_error_", "rows_error_"),
        *("data_min_", "data_max_", "data_range_", "n_samples_seen_"),
    )

    scaling: Literal["standard", "range", "robust"] = parameter(
        default="standard", text='"standard", "range" or "robust".', kw_only=False
    )
    privacy: Privacy | None = parameter(
        default=None,
        text='None, or a `privfed.Privacy`, which adds noise to the numbers; "range" scales to its domain.',
    )

    def _find(self, clients: Clients) -> None:
        self._forget("mean_", "var_", "min_", "center_", "width_")
        robust, standard = self.scaling == "robust", self.scaling == "standard"
        algorithm: Any
        if self.privacy is None:
            algorithm = FeatureSummary(n_bins=MOST_BINS) if robust else FeatureMoments(standard)
        else:
            algorithm = PrivateQuartiles() if robust else PrivateMoments(standard)
        found = self._run(clients, algorithm, scaling=self.scaling)
        moments: Moments = found[0] if robust else found
        self._keep(moments)
        self.data_range_ = self.data_max_ - self.data_min_
        if robust:
            quartiles = found[2].quantiles((0.25, 0.5, 0.75))
            self.var_, self.width_ = np.array(moments.var), np.diff(found[2].edges, axis=1).max(axis=1)
            self.center_, between = quartiles[:, 1].copy(), quartiles[:, 2] - quartiles[:, 0]
            self.scale_ = np.where(moments.constant | (between <= 0.0), 1.0, between)
        elif standard:
            self.mean_, self.var_ = np.array(moments.mean), np.array(moments.var)
            self.scale_ = np.where(moments.constant, 1.0, np.sqrt(np.where(moments.constant, 1.0, self.var_)))
        else:
            self.scale_ = 1.0 / self.data_range_
            self.min_ = -self.data_min_ * self.scale_
        self._end(**({"center": self.center_} if robust else {}), scale=self.scale_)

    def _keep_origins(self, declared: Sequence[str]) -> None:
        of_range = ("data_range_", "scale_", "min_") if declared and self.scaling == "range" else ()
        super()._keep_origins((*declared, *of_range))

    def shift_and_scale(self) -> tuple[FloatArray, FloatArray]:
        """Return what is subtracted of each feature, and what the rest is divided by, each (n_features,)."""
        self._rows(np.zeros((1, self.n_features_in_)))
        if self.scaling == "range":
            return deepcopy(self.data_min_), deepcopy(self.data_range_)
        return deepcopy(self.mean_ if self.scaling == "standard" else self.center_), deepcopy(self.scale_)

    def transform(self, X: Any) -> Any:
        """Return scaled rows, float64 of the shape of `X`; of clients a list, a dict, or `ClientTables`."""
        return self._each(X, self._scaled)

    def inverse_transform(self, X: Any) -> Any:
        """Return rows as they were before scaling, in the form of `X` as `transform` does."""
        return self._each(X, lambda rows: rows * self.shift_and_scale()[1] + self.shift_and_scale()[0])

    def transform_domain(self, domain: Domain | None = None) -> Box:
        """Return the domain of scaled rows, which a fit of them declares; of a ball, that of a box around it.

        It follows from what was declared and from the fitted numbers, which are released; under differential
        privacy they are noised, and no row is looked at again.

        Args:
            domain: of the rows before scaling. None for the one that this scaler was fitted with.

        Raises:
            ArgumentError: there is none.
        """
        declared = domain or (self.domain if self.privacy is None else self.privacy.domain)
        if declared is None:
            raise ArgumentError("nothing was declared of the rows: pass domain=Box(...), their ranges.")
        self._rows(np.zeros((1, self.n_features_in_)))
        origin = joined(declared.origin, *map(origin_of, self.shift_and_scale()))
        low, high = (
            released(self._scaled(end[None])[0], origin) for end in declared.bounds(self.n_features_in_)
        )
        return Box(low, high, max_rows=declared.max_rows)

    def _each(self, X: Any, mapped: Callable[[FloatArray], FloatArray]) -> Any:
        """Return mapped rows; clients that keep groups of them keep the same, whose means are mapped."""
        if isinstance(X, ClientTables):
            check_order(X.columns, vars(self).get("feature_names_in_", X.columns))
            for one in X.arrays:
                self._rows(one)
            return mapped_tables(X, mapped, joined(*map(origin_of, self.shift_and_scale())))
        return on_each(X, lambda one: carrying(mapped(self._rows(one)), one, *self.shift_and_scale()))

    def _scaled(self, rows: FloatArray) -> FloatArray:
        shift, scale = self.shift_and_scale()
        return np.asarray((rows - shift) / scale)

    def _rows(self, X: Any) -> FloatArray:
        check_fitted(self, "scale_")
        return rows_of(self, X)


@parameters
class FederatedSummary(FromSums):
    """Counts the rows of all clients, and finds each feature's mean, deviation, range and histogram.

    Means and deviations are those of the pooled rows, from two sums (three if features hardly vary); under
    differential privacy from several noised ones. Histograms are one sum more, for which differential privacy
    keeps half of the budget. `between` is one sum more (`privfed.questions.moments`).

    Attributes:
        mean_: mean of each feature, float64 of shape (n_features,).
        std_: standard deviation of each feature, of the population.
        mean_error_, var_error_: with `privacy`: standard deviation of the noise in each mean, and in each
            variance, the square of `std_`; without clipping, as in `FederatedScaler`.
        rows_error_: with `privacy`: standard deviation of the noise in `n_samples_seen_`.
        data_min_, data_max_: ends of each feature's range: those of the declared domain, else edges of public
            bins, at most twice as wide as the rows. No client's smallest or largest value is found.
        between_: with `between`: the variance of the clients' own means, every client alike, as a share of
            the variance of all rows; at most 1. float64 of shape (n_features,).
        edges_: with `bins`: edges of each feature's bins, a list of arrays of shape (n_bins_j + 1,).
        histograms_: with `bins`: rows in each bin, a list of float64 arrays of shape (n_bins_j,), as
            `numpy.histogram` counts them.
        below_, above_: with `bins`: rows below each feature's first edge, and above its last.
        noise_std_: with `bins`: standard deviation of the noise in a count of rows; 0 without `privacy`.
    """

    _agreed_name: ClassVar[str] = "FederatedSummary"

    bins: int | Sequence[Any] | None = parameter(
        default=None,
        text="histograms of the features: None for none; a number of bins of equal width between the ends of "
        "each feature's range. Or edges for all features, or a list of them for each. At most 64 bins.",
        kw_only=False,
    )
    between: bool = parameter(
        default=False,
        text="whether to ask how much of each feature's variance lies between the clients' own means: near 1 "
        "where a site measures in another unit. At least four clients; not with `privacy`.",
    )
    privacy: Privacy | None = parameter(
        default=None, text="None, or a `privfed.Privacy`, which adds noise to all numbers."
    )

    def _find(self, clients: Clients) -> None:
        if self.between and self.privacy is not None:
            raise PrivacyError(
                "between asks for the spread of the clients' own means, which has no bound for differential "
                "privacy. Leave it out, and have each site compare its own rows with mean_ and std_."
            )
        if self.between:
            check_between(len(clients.names))
        algorithm = replace(_summary_of(self.bins, clients.n_features), between=bool(self.between))
        moments, between, histograms = self._run(
            clients, algorithm, histograms=algorithm.counts, between=algorithm.between
        )
        self._forget("between_")
        if between is not None:
            self.between_ = np.array(between)
        self.mean_, self.std_ = np.array(moments.mean), np.sqrt(moments.var)
        self._keep(moments)
        self._keep_histograms(histograms)
        self._end(mean=self.mean_, std=self.std_)

    def _keep_histograms(self, found: Histograms | None) -> None:
        self._forget("edges_", "histograms_", "below_", "above_", "noise_std_")
        if found is None:
            return
        # Edges that repeat the last one are those that a feature with fewer bins does not have.
        n_bins = [int(np.searchsorted(own, own[-1])) for own in found.edges]
        self.edges_ = [own[: n + 1].copy() for own, n in zip(found.edges, n_bins, strict=True)]
        self.histograms_ = [own[1 : n + 1].copy() for own, n in zip(found.counts, n_bins, strict=True)]
        self.below_, self.above_ = found.counts[:, 0].copy(), found.counts[:, -1].copy()
        self.noise_std_ = found.noise_std


def _summary_of(bins: Any, n_features: int) -> FeatureSummary:
    """Return the algorithm for what users give as `bins`; a feature with fewer edges repeats its last one.

    Raises:
        ArgumentError: it is no number of bins and no edges, or there are too many bins.
    """
    if bins is None:
        return FeatureSummary()
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        check_whole("bins", bins, 1, MOST_BINS)
        return FeatureSummary(n_bins=int(bins))
    if isinstance(bins, str | bytes) or not isinstance(bins, Sequence | np.ndarray) or not len(bins):
        raise ArgumentError(
            f"bins must be None, a number, edges, or a list of edges for each feature, got {bins!r}.",
            parameters=["bins"],
        )
    shared = all(np.ndim(one) == 0 for one in bins)
    rows = [as_numbers("bins", bins)] * n_features if shared else [as_numbers("bins", one) for one in bins]
    if any(row.ndim != 1 or not row.size for row in rows):
        raise ArgumentError(
            "bins must be edges, or a list of edges for each feature; one is empty.", parameters=["bins"]
        )
    most = max(len(row) for row in rows)
    edges = frozen_array(np.stack([np.append(row, np.full(most - len(row), row[-1])) for row in rows]))
    check_edges(edges, n_features)
    return FeatureSummary(edges=edges)
