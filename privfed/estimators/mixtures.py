"""FederatedGaussianMixture: clusters of any size and elongated shape, as components of a mixture.

Reveals: what the protocol's totals show (see "Reveals" of `privfed.algorithms.mixtures`), and to everyone the
components, with the log-likelihood of all rows. Probabilities of rows are computed where the rows are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from privfed.algorithms.mixtures import GaussianMixture, MixtureLikelihood
from privfed.algorithms.private.mixtures import MOST_ROUNDS, PrivateMixture
from privfed.algorithms.rounds import ClusteringOutcome, State
from privfed.core.record.records import question_of
from privfed.core.roles.conversation import Algorithm
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.core.values.guarantee import Noise, Unit
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.base import FederatedClusterer
from privfed.estimators.declaring import parameters
from privfed.estimators.fitting import check_declared
from privfed.estimators.judging import Finding
from privfed.estimators.parameters import Mixture
from privfed.estimators.private import check_noised
from privfed.estimators.saving import Arrays
from privfed.federation.clients import Clients
from privfed.federation.driver import Watcher

SURE = 2.0
"""Least weight of a component that is not mostly noise, in standard deviations of its noise."""


@parameters
class FederatedGaussianMixture(Mixture, FederatedClusterer):
    """Gaussian mixture of all clients' rows, by expectation maximisation over secure sums.

    From the same start it takes the steps of scikit-learn's `GaussianMixture` on the pooled rows, where
    these have variance 1 in each column. Columns of categories (`nominal`) follow categorical distributions.

    Attributes:
        weights_: shares of the components, float64 of shape (n_clusters,).
        means_: their means, (n_clusters, n_features), also as `cluster_centers_`; of a category its share.
        covariances_: of the columns that are no categories: (n_clusters, n, n) full, (n, n) tied,
            (n_clusters, n) diag.
        lower_bound_: mean log-likelihood of a row before the last round, by which `tol` ends a run; None
            under differential privacy.
        history_: means of the kept restart in each round, the start first; `states_` has all arrays.
    """

    def make_algorithm(self, n_features: int, seed: int) -> Algorithm[ClusteringOutcome]:
        """Check the parameters and return the algorithm.

        Raises:
            ArgumentError: a parameter is out of its bounds.
            PrivacyError: the guarantee is for clients, or by noise of the server; or there are categories.
        """
        check_declared(self)
        if self.privacy is not None:
            check_noised(self.get_params(deep=False))
            if self.nominal or self.privacy.noise == Noise.SERVER or not Unit(self.privacy.unit).of_rows:
                raise PrivacyError(
                    "a noised mixture is of numbers, protects records or users, and takes no noise of the "
                    "server: leave nominal out, or use DPKMeans.",
                    parameters=["nominal", "privacy"],
                )
            return self._made(PrivateMixture, n_features, seed, max_iter=min(self.max_iter, MOST_ROUNDS))
        return self._made(GaussianMixture, n_features, seed, units=self._units(n_features))

    def fit_clients(self, clients: Clients, *, resume: bool = False, watch: Watcher | None = None) -> Self:
        """Fit named clients, as all estimators do; columns of one nominal variable are scaled together."""
        blocks = clients.blocks if self.nominal is None else tuple(map(tuple, self.nominal))
        return super().fit_clients(replace(clients, blocks=blocks), resume=resume, watch=watch)

    def _units(self, n_features: int) -> FloatArray | None:
        """Return 0 for each column, and for a category the value of rows that have it, as they are scaled."""
        if self.nominal is None:
            return None
        columns = [column for block in self.nominal for column in block]
        if sorted({*columns}) != sorted(columns) or not {*columns} <= {*range(n_features)}:
            raise ArgumentError(
                f"nominal lists columns below {n_features}, each once, got {self.nominal!r}.",
                parameters=["nominal"],
            )
        units = np.zeros(n_features)
        units[columns] = 1.0 if self.scaling_ is None else 1.0 / np.array(self.scaling_.scale)[columns]
        return frozen_array(units)

    def _mixture(self) -> MixtureLikelihood:
        """Return the components, which are functions of scaled rows."""
        d, state = self.n_features_in_, self.states_[-1]
        algorithm = self._made(GaussianMixture, d, 0, init=None, units=self._units(d))
        return MixtureLikelihood(**asdict(algorithm.ask(Ranges(np.zeros(d), np.ones(d), 1), **state)))

    def _moved(self, after: State, before: State) -> float:
        return abs(float((after["bound"] - before["bound"])[0]))

    def _take(self, states: Sequence[State]) -> None:
        super()._take(states)
        self.weights_, self.means_ = states[-1]["weights"].copy(), self.cluster_centers_
        self.covariances_ = states[-1]["covariances"].copy()
        self.lower_bound_ = None if self.privacy is not None else float(states[-1]["bound"][0])

    @property
    def log_likelihood_(self) -> float:
        """Sum of the log-likelihoods of all rows.

        Raises:
            PrivacyError: it was not asked for, under differential privacy.
        """
        if self.privacy is not None:
            raise PrivacyError("no likelihood was asked for under a claim: pass rows, as in bic(X).")
        return -self._score * (self.n_rows_ or 0)

    def _restore(self, arrays: Arrays, facts: dict[str, Any]) -> None:
        super()._restore(arrays, facts)
        self._mixture()  # Components that are none are refused.

    def _assigned(self, rows: FloatArray) -> npt.NDArray[np.int32]:
        # A row beyond 1e150 has no density, and is of component 0, as of cluster 0 in k-means.
        with np.errstate(over="ignore", invalid="ignore"):
            found, _ = self._mixture().expected_of(rows)
        return np.asarray(found.argmax(axis=1), dtype=np.int32)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each component for each row of a table, (n_rows, n_clusters)."""
        return self._mixture().expected_of(self._rows(X))[0]

    def score_samples(self, X: Any) -> FloatArray:
        """Return the log-likelihood of each row of a table, (n_rows,)."""
        return self._mixture().expected_of(self._rows(X))[1]

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of a table's rows."""
        return float(self.score_samples(X).mean())

    def _criterion(self, X: Any, each: float | None) -> float:
        likely = self.log_likelihood_ if X is None else float(self.score_samples(X).sum())
        rows = self.n_rows_ if X is None else len(self._rows(X))
        assert rows is not None
        return -2.0 * likely + self._n_parameters * (np.log(rows) if each is None else each)

    @property
    def _n_parameters(self) -> int:
        blocks = self.nominal or ()
        k, n = self.n_clusters, self.n_features_in_ - sum(map(len, blocks))
        pairs = n * (n + 1) // 2
        shapes = {"full": k * pairs, "tied": pairs, "diag": k * n}[self.covariance_type]
        return int(k - 1 + k * n + shapes + k * sum(len(block) - 1 for block in blocks))

    def bic(self, X: Any = None) -> float:
        """Return the Bayesian information criterion of a table, or of the fit's rows; smaller is better."""
        return self._criterion(X, None)

    def aic(self, X: Any = None) -> float:
        """Return Akaike's information criterion of a table, or of the rows of the fit."""
        return self._criterion(X, 2.0)

    def sample(  # type: ignore[override]  # Nothing of a mixture is noised, and so uncertain.
        self, n_samples: int = 1, random_state: Any = None
    ) -> tuple[FloatArray, npt.NDArray[np.int32]]:
        """Draw rows from the mixture, in the columns' units, with the component of each.

        Args:
            n_samples: number of rows.
            random_state: seed, or a generator.
        """
        rng, own = np.random.default_rng(random_state), self._mixture()
        labels = rng.choice(self.n_clusters, size=n_samples, p=self.weights_).astype(np.int32)
        rows, numbers = np.zeros((n_samples, self.n_features_in_)), own.units == 0.0
        for k in np.unique(labels):
            drawn = labels == k
            found = rng.multivariate_normal(self.means_[k, numbers], own.matrices[k], size=int(drawn.sum()))
            rows[np.ix_(drawn, numbers)] = found
            for block in map(list, self.nominal or ()):
                shares = np.maximum(self.means_[k, block] / own.units[block], 0.0)
                chosen = rng.choice(block, size=int(drawn.sum()), p=shares / shares.sum())
                rows[np.flatnonzero(drawn), chosen] = own.units[chosen]
        return (rows if self.scaling_ is None else self.scaling_.original(rows)), labels

    def _findings(self) -> Iterator[Finding]:
        """Yield what is wrong with single components: no weight, or no spread."""
        least, remedy = 1.0, "take fewer clusters, or more restarts (n_init=)."
        if self.privacy is not None:
            record, total = self.transcript_.totals()[-1]
            noised: Any = question_of(record)
            least = SURE * noised.noise_std(len(total.contributors))["weight"]
            remedy = "they are mostly noise. Claim a larger epsilon, or take fewer clusters."
        few = np.flatnonzero(self.weights_ * (self.n_rows_ or 0) < least).tolist()
        if few:
            named = ", ".join(map(str, few[:9]))
            text = f"components {named} hold less than {math.ceil(least)} rows: {remedy}"
            yield Finding("empty", text, clusters=tuple(few))
        own = self._mixture()
        between = np.square((own.centers - own.origin)[:, own.numbers])
        pooled = own.weights @ (own.matrices.diagonal(axis1=1, axis2=2) + between)
        spreads = np.linalg.eigvalsh(own.matrices / np.sqrt(pooled[:, None] * pooled))
        thin = np.flatnonzero(spreads.min(axis=1, initial=np.inf) <= 4.0 * self.reg_covar).tolist()
        if thin:
            yield Finding(
                "singular",
                f"components {', '.join(map(str, thin[:9]))} have no spread in some direction, "
                'and their likelihood says little: take fewer clusters, covariance_type="diag" or "tied", or '
                "a larger reg_covar.",
                clusters=tuple(thin),
            )
