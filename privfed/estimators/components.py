"""Principal components of all clients' rows, from sums of products.

Reveals: what the sums show (`privfed.questions.moments`), and to everyone the fitted numbers. Rows are
transformed where they are and never sent.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError, PrivacyError
from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.fitting import rows_of
from privfed.estimators.moments import FromSums
from privfed.estimators.saving import (
    ClassNamePrefixFeaturesOutMixin,
    SavedNumbers,
    TransformerMixin,
    check_fitted,
)
from privfed.federation.clients import Clients
from privfed.federation.passed import on_each
from privfed.privacy.claim import Privacy
from privfed.questions.moments import Covariances, FeatureProducts


@parameters
class FederatedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FromSums, SavedNumbers):
    """Finds the principal components of all clients' rows.

    The fitted numbers are those of scikit-learn's PCA on the pooled rows, from two sums (three if features
    hardly vary). The sum of products has n_features * (n_features + 1) / 2 numbers. Components of nearly
    equal variance are determined as little as there. Columns of unlike scales are scaled before
    (`FederatedScaler`).

    There is no proven bound for the sum of products, so that `privacy` is an error.

    Attributes:
        mean_: mean of each feature, float64 of shape (n_features,).
        components_: the components, each of length 1, float64 of shape `(n_components_, n_features)`.
            Of each, the number of the largest magnitude is positive.
        explained_variance_: variance of the rows along each component, float64 of shape `(n_components_,)`.
        explained_variance_ratio_: its share of the variance of all features together.
        singular_values_: singular values of the pooled centered rows.
        noise_variance_: mean variance of the components that are left out.
        n_components_: number of components.
        n_samples_seen_, n_samples_: number of rows of all clients.
        data_min_, data_max_: ends of each feature's range: the declared domain's, else edges of public bins.
    """

    _agreed_name: ClassVar[str] = "FederatedPCA"
    fitted_numbers: ClassVar[tuple[str, ...]] = (
        *("mean_", "components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"),
        *("noise_variance_", "n_components_", "n_samples_", "n_samples_seen_", "data_min_", "data_max_"),
    )

    n_components: int | float | None = parameter(
        default=None,
        text="number of components; None for as many as there are; a number in (0, 1) for the fewest with "
        "more than this share of the variance.",
        kw_only=False,
    )
    privacy: Privacy | None = parameter(default=None, text="None; there is no private form.")

    def _find(self, clients: Clients) -> None:
        _check(self.n_components, clients.n_features)
        if self.privacy is not None:
            raise PrivacyError(
                "FederatedPCA has no bound for differential privacy; leave privacy= out, name the columns to "
                "keep from public knowledge, or cluster with DPKMeans, which needs no components.",
                parameters=["privacy"],
            )
        found: Covariances = self._run(clients, FeatureProducts())
        n, d = found.n_rows, len(found.mean)
        if n < 2:
            raise ArgumentError("principal components need at least two rows, and the clients hold one.")
        values, vectors = np.linalg.eigh(found.scatter / (n - 1))
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        largest = vectors[np.arange(d), np.abs(vectors).argmax(axis=1)]
        vectors = vectors * np.where(largest < 0.0, -1.0, 1.0)[:, None]
        whole = float(values.sum())
        ratio = values / whole if whole > 0.0 else np.zeros(d)
        kept = _number(self.n_components, ratio, min(n, d))
        self.n_samples_ = self.n_samples_seen_ = n
        self.data_min_, self.data_max_ = np.array(found.ranges.low), np.array(found.ranges.high)
        self.n_components_, self.mean_, self.components_ = kept, np.array(found.mean), vectors[:kept].copy()
        self.explained_variance_, self.explained_variance_ratio_ = values[:kept].copy(), ratio[:kept].copy()
        self.singular_values_ = np.sqrt((n - 1) * self.explained_variance_)
        self.noise_variance_ = float(values[kept : min(n, d)].mean()) if kept < min(n, d) else 0.0
        self._end(mean=self.mean_, components=self.components_)

    @property
    def _n_features_out(self) -> int:
        """Number of columns of transformed rows, which scikit-learn names."""
        return self.n_components_

    def transform(self, X: Any) -> Any:
        """Return rows along the components, float64 of shape `(n, n_components_)`.

        Args:
            X: rows of shape (n, n_features); of clients a list or a dict, and the same is returned.
        """
        check_fitted(self, "components_")
        return on_each(X, self._along)

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return rows in the n_features features of rows along the components, `(n, n_components_)`."""
        check_fitted(self, "components_")
        rows = as_numbers("X", X)
        if rows.ndim != 2 or rows.shape[1] != self.n_components_:
            raise ArgumentError(f"X must have {self.n_components_} columns, got shape {rows.shape}.")
        return np.asarray(rows @ self.components_ + self.mean_)

    def _along(self, X: Any) -> FloatArray:
        return np.asarray((rows_of(self, X) - self.mean_) @ self.components_.T)


def _check(n_components: Any, n_features: int) -> None:
    """Check the number of components that is asked for.

    Raises:
        ArgumentError: it is none of what the parameter's text says.
    """
    known = n_components is None
    if isinstance(n_components, Integral) and not isinstance(n_components, bool):
        known = 1 <= int(n_components) <= n_features
    elif isinstance(n_components, Real) and not isinstance(n_components, bool):
        known = 0.0 < float(n_components) < 1.0
    if not known:
        raise ArgumentError(
            f"n_components must be None, a whole number in [1, {n_features}], or a share in (0, 1), got "
            f"n_components={n_components!r}.",
            parameters=["n_components"],
        )


def _number(n_components: Any, ratio: FloatArray, most: int) -> int:
    """Return the number of components, at most as many as rows and features allow."""
    if n_components is None:
        return most
    if isinstance(n_components, Integral):
        return min(int(n_components), most)
    return min(int(np.searchsorted(np.cumsum(ratio), float(n_components), side="right")) + 1, most)
