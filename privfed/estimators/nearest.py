"""What a fitted clustering estimator says of rows at hand: their nearest centers; nobody is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray
from privfed.core.values.origin import carrying
from privfed.data.table import ClientTables
from privfed.estimators.fitting import rows_of
from privfed.estimators.mixins import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from privfed.estimators.saving import NoLabels, Saved, check_fitted
from privfed.estimators.scaling import Scaling
from privfed.federation.passed import as_passed, check_one_table, is_client_list
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import squared_distances


class NearestCenters(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, Saved):
    """Adds predict, transform and score to an estimator with centers."""

    cluster_centers_: FloatArray
    labels_: Any = NoLabels()
    scaling_: Scaling | None = None

    def _rows(self, X: Any) -> FloatArray:
        check_fitted(self, "cluster_centers_")
        check_one_table(X)
        rows = rows_of(self, X)
        return rows if self.scaling_ is None else self.scaling_.scaled(rows)

    def predict(self, X: Any) -> npt.NDArray[np.int32]:
        """Return the nearest center of each row of a table, int32 of shape (n_rows,)."""
        return self._assigned(self._rows(X))

    def _assigned(self, rows: FloatArray) -> npt.NDArray[np.int32]:
        """Return the cluster of each scaled row."""
        return assign(rows, self.cluster_centers_).astype(np.int32)

    def transform(self, X: Any) -> FloatArray:
        """Return the distance of each row to each center, float64 of shape (n_rows, n_clusters)."""
        return carrying(
            np.sqrt(squared_distances(self._rows(X), self.cluster_centers_)), X, self.cluster_centers_
        )

    def fit_predict(
        self, X: Any, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Any:
        """Fit and return `labels_`."""
        return cast(Any, self).fit(X, y, groups, client_names).labels_

    def fit_transform(
        self, X: Any, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Any:
        """Fit and return the distances to the centers; a list of arrays for a list of clients."""
        self.fit_predict(X, y, groups, client_names)
        if isinstance(X, ClientTables):
            return [self.transform(one) for one in X.arrays]
        X = as_passed(X, groups, None, client_names)[0]
        return [self.transform(one) for one in X] if is_client_list(X) else self.transform(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the sum of squared distances of a table's rows to their nearest centers.

        It is computed here and asks nobody: `privfed.metrics.score` asks clients about theirs.
        """
        return -float(squared_distances(self._rows(X), self.cluster_centers_).min(axis=1).sum())
