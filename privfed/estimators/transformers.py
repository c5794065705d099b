"""Transformers of rows by numbers that sums have found: principal components, and means for missing values.

**Principal components (`FederatedPCA`)**, from sums of products. Reveals: what the sums show
(`privfed.questions.moments`), and to everyone the fitted numbers. Rows are transformed where they are and
never sent.

**Means in the place of missing values (`FederatedImputer`)**, over all clients. Each client puts a public
number in the place of a gap, and beside each column a column that is 1 where there is a value.
`FederatedSummary` finds the means of both, from which the mean of the values there follows:
`(mean - (1 - known) * filler) / known`. So gaps are asked for as everything else is, and paid like it.
Reveals: what `FederatedSummary` reveals of these columns, among it the number of gaps of each column over all
clients; under differential privacy with noise. Rows are filled where they are and never sent.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self, cast

import numpy as np
from sklearn.utils.validation import validate_data

from privfed.algorithms.summary import PrivateMoments
from privfed.core.values.domain import Box, FloatArray
from privfed.core.values.numbers import as_numbers
from privfed.core.values.origin import Origin, carrying, origin_of, origin_under, released
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError, DataError, warn
from privfed.estimators.declaring import parameter, parameters
from privfed.estimators.fitting import check_declared, check_order, rows_of
from privfed.estimators.mixins import ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from privfed.estimators.moments import FederatedSummary, FromSums
from privfed.estimators.parameters import Surroundings
from privfed.estimators.saving import SavedNumbers, check_fitted
from privfed.federation.clients import Clients
from privfed.federation.passed import as_passed, check_given, is_client_list, on_each
from privfed.federation.request import check_kinds
from privfed.federation.simulation import mapped_tables
from privfed.privacy.claim import Privacy
from privfed.privacy.derived import derived
from privfed.questions.moments import FeatureProducts


@parameters
class FederatedPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, FromSums, SavedNumbers):
    """Finds the principal components of all clients' rows.

    The fitted numbers are those of scikit-learn's PCA on the pooled rows, from two sums (three if features
    hardly vary). The sum of products has n_features * (n_features + 1) / 2 numbers. Components of nearly
    equal variance are determined as little as there. Columns of unlike scales are scaled before
    (`FederatedScaler`).

    With `privacy` noise is added to the sum of products of offsets, which are clipped to a length that
    earlier sums of the same run find (Analyze Gauss: Dwork, Talwar, Thakurta and Zhang, STOC 2014). All else
    is computed from what was released. Components are those of clipped rows: their variances are smaller, and
    where rows lie evenly on both sides along each component, directions are the same. A warning counts
    components that may be noise.

    Attributes:
        mean_: mean of each feature, float64 of shape (n_features,).
        components_: the components, each of length 1, float64 of shape `(n_components_, n_features)`.
            Of each, the number of the largest magnitude is positive.
        explained_variance_: variance of the rows along each component, float64 of shape `(n_components_,)`.
        explained_variance_ratio_: its share of the variance of all features together.
        singular_values_: singular values of the pooled centered rows.
        noise_variance_: mean variance of the components that are left out.
        n_components_: number of components.
        spectral_error_: with `privacy`: about the largest variance that noise alone gives a component.
        n_samples_seen_, n_samples_: number of rows of all clients.
        data_min_, data_max_: ends of each feature's range: the declared domain's, else edges of public bins.
    """

    _agreed_name: ClassVar[str] = "FederatedPCA"
    fitted_numbers: ClassVar[tuple[str, ...]] = (
        *("mean_", "components_", "explained_variance_", "explained_variance_ratio_", "singular_values_"),
        *("noise_variance_", "n_components_", "n_samples_", "n_samples_seen_", "data_min_", "data_max_"),
        "spectral_error_",
    )

    n_components: int | float | None = parameter(
        default=None,
        text="number of components; None for as many as there are; a number in (0, 1) for the fewest with "
        "more than this share of the variance.",
        kw_only=False,
    )
    privacy: Privacy | None = parameter(
        default=None, text="None, or a `privfed.Privacy`: components are then those of noised products."
    )

    def _find(self, clients: Clients) -> None:
        known = self.n_components is None
        if isinstance(self.n_components, Integral) and not isinstance(self.n_components, bool):
            known = 1 <= int(self.n_components) <= clients.n_features
        elif isinstance(self.n_components, Real) and not isinstance(self.n_components, bool):
            known = 0.0 < float(self.n_components) < 1.0
        if not known:
            raise ArgumentError(
                f"n_components must be None, a whole number in [1, {clients.n_features}], or a share in "
                f"(0, 1), got n_components={self.n_components!r}.",
                parameters=["n_components"],
            )
        asked = FeatureProducts() if self.privacy is None else PrivateMoments(products=True)
        found = self._run(clients, asked)
        n, d = max(found.n_rows, 1 + (self.privacy is not None)), len(found.mean)
        if n < 2:
            raise ArgumentError("principal components need at least two rows, and the clients hold one.")
        scatter = found.scatter if self.privacy is None else n * found.products
        values, vectors = np.linalg.eigh(scatter / (n - 1))
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1].T
        largest = vectors[np.arange(d), np.abs(vectors).argmax(axis=1)]
        vectors, whole = vectors * np.where(largest < 0.0, -1.0, 1.0)[:, None], float(values.sum())
        ratio = values / whole if whole > 0.0 else np.zeros(d)
        kept = _number(self.n_components, ratio, min(n, d))
        self.n_samples_ = self.n_samples_seen_ = n
        self.data_min_, self.data_max_ = np.array(found.ranges.low), np.array(found.ranges.high)
        self.n_components_, self.mean_, self.components_ = kept, np.array(found.mean), vectors[:kept].copy()
        self.explained_variance_, self.explained_variance_ratio_ = values[:kept].copy(), ratio[:kept].copy()
        self.singular_values_ = np.sqrt((n - 1) * self.explained_variance_)
        self.noise_variance_ = float(values[kept : min(n, d)].mean()) if kept < min(n, d) else 0.0
        self._forget("spectral_error_")
        if self.privacy is not None:
            # The norm of a symmetric matrix of noise, whose diagonal has these deviations.
            self.spectral_error_ = float(np.sqrt(2.0 * found.var_error.sum() * found.var_error.max()))
            if few := int((self.explained_variance_ < self.spectral_error_).sum()):
                warn(
                    f"{few} of {kept} components have a variance that noise alone may give "
                    f"({self.spectral_error_:.3g}): take fewer, claim a larger epsilon, or narrow the domain."
                )
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
        return on_each(
            X,
            lambda one: carrying(
                (rows_of(self, one) - self.mean_) @ self.components_.T, one, self.components_
            ),
        )

    def inverse_transform(self, X: Any) -> FloatArray:
        """Return rows in the n_features features of rows along the components, `(n, n_components_)`."""
        check_fitted(self, "components_")
        rows = as_numbers("X", X)
        if rows.ndim != 2 or rows.shape[1] != self.n_components_:
            raise ArgumentError(f"X must have {self.n_components_} columns, got shape {rows.shape}.")
        return carrying(rows @ self.components_ + self.mean_, X, self.components_)


def _number(n_components: Any, ratio: FloatArray, most: int) -> int:
    """Return the number of components, at most as many as rows and features allow."""
    if n_components is None or isinstance(n_components, Integral):
        return min(int(most if n_components is None else n_components), most)
    return min(int(np.searchsorted(np.cumsum(ratio), float(n_components), side="right")) + 1, most)


@parameters
class FederatedImputer(OneToOneFeatureMixin, TransformerMixin, Surroundings, SavedNumbers):
    """Puts each column's mean over all clients in the place of missing values (NaN).

    Without privacy it is scikit-learn's `SimpleImputer` on the pooled rows, from two sums (three if columns
    hardly vary). With it, means and shares are noised, and means lie in the declared domain, so that filled
    rows lie in it as well.

    Attributes:
        statistics_: mean of each column's values, float64 of shape (n_features,).
        known_: share of all rows that have a value, of each column, in [0, 1].
        n_samples_seen_: number of rows of all clients.

    Raises:
        ArgumentError: the domain is a ball; or the clients' rows lie elsewhere.
        DataError: no client has a value in some column; or a table holds no numbers.
    """

    fitted_numbers: ClassVar[tuple[str, ...]] = ("statistics_", "known_", "n_samples_seen_")

    def fit(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Find the means of all clients' values.

        Args:
            X: tables of shape (n_i, n_features), NaN where there is no value: a dict or list with one a
                client, `privfed.data.ClientTables` (`load_clients(missing="keep")`), or one table.
            y: ignored.
            groups: the client of each row, or the name of its column, if `X` is one table.
            client_names: names of all clients, as in `FederatedScaler`.

        Returns:
            The fitted estimator.
        """
        return self._find(False, X, groups, client_names)

    def resume(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Finish the run in `run_dir` with the same clients, as `FederatedScaler.resume` does."""
        return self._find(True, X, groups, client_names)

    def _find(self, resume: bool, X: Any, groups: Any, names: Iterable[Any] | None) -> Self:
        check_declared(self)
        given = self.get_params(deep=False)
        check_kinds(given)
        if X is None:
            raise ArgumentError("X is missing: rows elsewhere have a schema, which fills them (missing=).")
        held, X = (X, X.arrays) if isinstance(X, ClientTables) else (None, X)
        X, groups, _, names = as_passed(X, groups, None, names)
        check_given(X)
        several = is_client_list(X)
        least = 0 if self.privacy is not None else 1
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
        tables = [_numbers(one) for one in X] if several else [self._one(X, True, least)]
        width = tables[0].shape[1]
        if several and (columns := getattr(held or X[0], "columns", None)) is not None:
            self.feature_names_in_ = np.asarray(list(map(str, columns)), dtype=object)
        declared = self.domain if self.privacy is None else self.privacy.domain
        if declared is not None and not isinstance(declared, Box):
            raise ArgumentError(
                f"missing values are filled in a Box, and the domain is a {declared.kind}; declare a Box.",
                parameters=["domain"],
            )
        box = None if declared is None else np.stack(declared.bounds(width))
        filler = np.zeros(width) if box is None else box.mean(axis=0)
        asked: Any = [
            carrying(_put(_marked(own), filler), one)
            for own, one in zip(tables, X if several else [X], strict=True)
        ]
        if held is not None:
            asked = mapped_tables(_marks(held), partial(_put, values=filler), Origin.DECLARED)
        if declared is not None and box is not None:
            low, high = np.hstack([box, np.repeat([[0.0], [1.0]], width, axis=1)])
            wide = Box(low, high, max_rows=declared.max_rows)
            given["domain"] = wide if self.privacy is None else self.domain
            if self.privacy is not None:
                given["privacy"] = derived(self.privacy, domain=wide)
        summary = FederatedSummary(**given)
        asked = asked if several else asked[0]
        with warnings.catch_warnings():
            # Marks of values that are nearly all there vary little; nothing is scaled by variances here.
            warnings.filterwarnings("ignore", "the variances of", UserWarning)
            (summary.resume if resume else summary.fit)(asked, groups=groups, client_names=names)
        mean, known = summary.mean_[:width], summary.mean_[width:]
        rows = summary.n_samples_seen_
        if self.privacy is None and (empty := np.flatnonzero(known * rows < 0.5)).size:
            name = vars(self).get("feature_names_in_", range(width))[int(empty[0])]
            raise DataError(f"no client has a value in column {name}; leave the column out.")
        # Noise may leave a share of nothing, or more than all.
        known = np.clip(known, 1.0 / rows, 1.0)
        means = (mean - (1.0 - known) * filler) / known
        means = means if box is None else np.clip(means, *box)
        self.statistics_ = released(means, origin_under(summary.privacy_spent_))
        self.known_ = released(known, self.statistics_.origin)
        self.n_samples_seen_, self.n_features_in_ = rows, width
        self.transcript_, self.federation_ = summary.transcript_, summary.federation_
        self.privacy_claim_ = summary.privacy_claim_
        return self

    def transform(self, X: Any) -> Any:
        """Return filled rows, float64 of the shape of `X`; of clients a list, a dict, or `ClientTables`.

        Raises:
            DataError: `X` has other columns.
        """
        if isinstance(X, ClientTables):
            check_fitted(self, "statistics_")
            check_order(X.columns, vars(self).get("feature_names_in_", X.columns))
            filling = partial(_put, values=np.asarray(self.statistics_), stop=len(X.columns))
            return mapped_tables(_marks(X), filling, origin_of(self.statistics_), X)
        return on_each(X, self._filled)

    def _filled(self, table: Any) -> FloatArray:
        check_fitted(self, "statistics_")
        names = vars(self).get("feature_names_in_")
        columns = list(map(str, getattr(table, "columns", ())))
        if names is not None and columns and set(names) <= set(columns):
            table = table[list(names)]
        elif names is not None and columns:
            raise DataError(f"X has columns {', '.join(columns)}; it was fitted on {', '.join(names)}.")
        rows = self._one(table, False, 1)
        return carrying(np.where(np.isnan(rows), self.statistics_, rows), table, self.statistics_)

    def _one(self, table: Any, reset: bool, least: int) -> FloatArray:
        options: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            return np.asarray(validate_data(self, table, reset=reset, ensure_min_samples=least, **options))

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: values may be missing."""
        tags: Any = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        return tags


def _marked(rows: FloatArray) -> FloatArray:
    """Return rows with 0 in gaps, and beside each column one that is 1 where there is a value."""
    return np.hstack([np.where(gap := np.isnan(rows), 0.0, rows), ~gap])


def _put(marked: FloatArray, values: FloatArray, stop: int | None = None) -> FloatArray:
    """Return marked rows with other values in gaps: an affine map, which maps means of rows to means."""
    found, width = marked.copy(), len(values)
    found[:, :width] += (1.0 - marked[:, width:]) * values
    return found[:, :stop]


def _marks(tables: ClientTables) -> ClientTables:
    """Return clients with marked rows, always the same, so that they keep one set of groups."""
    if "marked" not in tables.kept:
        columns = (*tables.columns, *(f"{i} is there" for i in range(len(tables.columns))))
        own = [replace(one, features=_marked(one.features)) for one in tables.tables]
        tables.kept["marked"] = replace(tables, tables=tuple(own), columns=columns, blocks=())
    return cast(ClientTables, tables.kept["marked"])


def _numbers(table: Any) -> FloatArray:
    """Return a table as float64 of shape (n_rows, n_features), NaN where there is no value."""
    try:
        rows = np.asarray(table, dtype=np.float64)
    except (ValueError, TypeError):
        raise DataError("all values of X must be numbers or NaN; a schema reads other tables.") from None
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(f"X needs tables with rows and columns, got shape {rows.shape}.")
    return rows
