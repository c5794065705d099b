"""Means in the place of missing values, over all clients, from sums.

Each client puts a public number in the place of a gap, and beside each column a column that is 1 where there
is a value. `FederatedSummary` finds the means of both, from which the mean of the values there follows:
`(mean - (1 - known) * filler) / known`. So gaps are asked for as everything else is, and paid like it.

Reveals: what `FederatedSummary` reveals of these columns, among it the number of gaps of each column over all
clients; under differential privacy with noise. Rows are filled where they are and never sent.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import validate_data

from privfed.core.values.domain import Box, Domain, FloatArray
from privfed.errors import ArgumentError, DataError
from privfed.estimators.declaring import parameters
from privfed.estimators.fitting import check_declared, check_surroundings
from privfed.estimators.moments import FederatedSummary
from privfed.estimators.parameters import Surroundings
from privfed.estimators.saving import OneToOneFeatureMixin, SavedNumbers, TransformerMixin, check_fitted
from privfed.federation.passed import as_passed, check_given, is_client_list, on_each
from privfed.privacy.derived import derived


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
                client, or one table.
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
        check_surroundings(given)
        if X is None:
            raise ArgumentError("X is missing: rows elsewhere have a schema, which fills them (missing=).")
        X, groups, _, names = as_passed(X, groups, None, names)
        check_given(X)
        several = is_client_list(X)
        least = 0 if self.privacy is not None else 1
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
        tables = [_numbers(one) for one in X] if several else [self._one(X, True, least)]
        width = tables[0].shape[1]
        if several and hasattr(X[0], "columns"):
            self.feature_names_in_ = np.asarray(list(map(str, X[0].columns)), dtype=object)
        declared = self.domain if self.privacy is None else self.privacy.domain
        box = None if declared is None else _ends(declared, width)
        filler = np.zeros(width) if box is None else box.mean(axis=0)
        marked = [np.hstack([np.where(gap := np.isnan(one), filler, one), ~gap]) for one in tables]
        if declared is not None and box is not None:
            low, high = np.hstack([box, np.repeat([[0.0], [1.0]], width, axis=1)])
            wide = Box(low, high, max_rows=declared.max_rows)
            given["domain"] = wide if self.privacy is None else self.domain
            if self.privacy is not None:
                given["privacy"] = derived(self.privacy, domain=wide)
        summary = FederatedSummary(**given)
        asked = marked if several else marked[0]
        with warnings.catch_warnings():
            # Marks of values that are nearly all there vary little; nothing is scaled by variances here.
            warnings.filterwarnings("ignore", "the variances of", UserWarning)
            (summary.resume if resume else summary.fit)(asked, groups=groups, client_names=names)
        self._keep(summary, width, filler, box)
        return self

    def _keep(
        self, summary: FederatedSummary, width: int, filler: FloatArray, box: FloatArray | None
    ) -> None:
        mean, known = summary.mean_[:width], summary.mean_[width:]
        rows = summary.n_samples_seen_
        if self.privacy is None and (empty := np.flatnonzero(known * rows < 0.5)).size:
            name = vars(self).get("feature_names_in_", range(width))[int(empty[0])]
            raise DataError(f"no client has a value in column {name}; leave the column out.")
        # Noise may leave a share of nothing, or more than all.
        known = np.clip(known, 1.0 / rows, 1.0)
        means = (mean - (1.0 - known) * filler) / known
        self.statistics_ = means if box is None else np.clip(means, *box)
        self.known_, self.n_samples_seen_, self.n_features_in_ = known, rows, width
        self.transcript_, self.federation_ = summary.transcript_, summary.federation_
        self.privacy_claim_ = summary.privacy_claim_

    def transform(self, X: Any) -> Any:
        """Return filled rows, float64 of the shape of `X`; of several clients a list, or a dict of them.

        Raises:
            DataError: `X` has other columns.
        """
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
        return np.where(np.isnan(rows), self.statistics_, rows)

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


def _ends(declared: Domain, width: int) -> FloatArray:
    """Return lowest and highest values, float64 of shape (2, width).

    Raises:
        ArgumentError: the domain is a ball, whose rows with gaps lie in no ball.
    """
    if not isinstance(declared, Box):
        raise ArgumentError(
            f"missing values are filled in a Box, and the domain is a {declared.kind}; declare a Box.",
            parameters=["domain"],
        )
    return np.stack(declared.bounds(width))


def _numbers(table: Any) -> FloatArray:
    """Return a table as float64 of shape (n_rows, n_features), NaN where there is no value."""
    try:
        rows = np.asarray(table, dtype=np.float64)
    except (ValueError, TypeError):
        raise DataError("all values of X must be numbers or NaN; a schema reads other tables.") from None
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise DataError(f"X needs tables with rows and columns, got shape {rows.shape}.")
    return rows
