"""Scaling of features over clients, by the same numbers for all, which come from sums.

Reveals: what the sums show (`privfed.questions.moments`), and to everyone the fitted numbers. Rows are
transformed where they are and never sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import validate_data

from privfed.algorithms.private.moments import PrivateMoments
from privfed.core.stored.messages import Array
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.estimators.common.bases import OneToOneFeatureMixin, TransformerMixin
from privfed.estimators.common.claimed import Claimed
from privfed.estimators.common.gathering import clients_of
from privfed.estimators.common.not_fitted import NotFittedError
from privfed.estimators.common.whole_program import whole_program
from privfed.estimators.parameters.declaring import parameter, parameters
from privfed.estimators.parameters.shared import Surroundings
from privfed.federation.builder import protocol_of
from privfed.federation.claim import claim_of
from privfed.federation.clients import is_client_list
from privfed.privacy.privacy import Privacy
from privfed.questions.moments import FeatureMoments, Moments

NAME = "FederatedScaler"
"""What agreements call the scaler."""


@parameters
class FederatedScaler(OneToOneFeatureMixin, TransformerMixin, Surroundings, Claimed):
    """Scales each feature to mean 0 and variance 1, or to its range, over all clients.

    With `scaling="standard"` the fitted numbers are those of scikit-learn's StandardScaler on the
    pooled rows, from two sums (three if features hardly vary). With "range", one sum finds each feature's
    range, which is mapped to [0, 1]. It is exactly that of the declared domain. Without a domain its ends
    are bin edges: they exceed the smallest and largest values by at most a sixteenth with up to three
    features, and by up to a whole power of two with many.

    Attributes:
        mean_: "standard": mean of each feature, float64 of shape (n_features,).
        var_: "standard": population variance of each feature.
        scale_: "standard": what features are divided by, the root of `var_`, 1 for constant features;
            "range": what they are multiplied by, as in scikit-learn's MinMaxScaler.
        data_min_, data_max_, data_range_: low and high end of each feature's range, and its width.
        min_: "range": what is added to the scaled features.
        n_samples_seen_: number of rows of all clients.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        DataError: a client's data cannot be used.
        ProtocolError: a sum could not be opened.
    """

    scaling: Literal["standard", "range"] = parameter(
        default="standard", text='"standard" or "range".', kw_only=False
    )
    privacy: Privacy | None = parameter(
        default=None,
        text='None, or a `privfed.Privacy`: then the numbers are noised; "range" scales to its domain.',
    )

    def fit(
        self, X: Any = None, y: Any = None, groups: Any = None, client_names: Iterable[Any] | None = None
    ) -> Self:
        """Find mean and variance, or the range, of each feature.

        Args:
            X: a list of tables of shape (n_i, n_features), one for each client; or one table. None for an
                engine whose clients already have their rows.
            y: ignored.
            groups: the client of each row, if `X` is one table.
            client_names: names of all clients; needed with `groups` under differential privacy, as in
                `DWFKMeans`.

        Returns:
            The fitted scaler.
        """
        if self.scaling not in ("standard", "range"):
            raise ArgumentError(f'scaling must be "standard" or "range", got scaling={self.scaling!r}.')
        clients = clients_of(self, X, groups, None, client_names)
        self.n_features_in_ = clients.n_features
        spread = self.scaling == "standard"
        algorithm = FeatureMoments(spread) if self.privacy is None else PrivateMoments(spread)
        agreed = {"algorithm": NAME, "scaling": self.scaling}
        self.federation_ = whole_program(self, clients, algorithm, agreed)
        self._keep(self.federation_.run(algorithm))
        return self

    def _keep(self, moments: Moments) -> None:
        self.data_min_, self.data_max_ = np.array(moments.ranges.low), np.array(moments.ranges.high)
        self.data_range_ = self.data_max_ - self.data_min_
        self.n_samples_seen_ = moments.n_rows
        for stale in ("mean_", "var_", "min_"):
            self.__dict__.pop(stale, None)
        if self.scaling == "standard":
            self.mean_, self.var_ = np.array(moments.mean), np.array(moments.var)
            self.scale_ = np.where(moments.constant, 1.0, np.sqrt(np.where(moments.constant, 1.0, self.var_)))
        else:
            self.scale_ = 1.0 / self.data_range_
            self.min_ = -self.data_min_ * self.scale_
        self.transcript_ = self.federation_.transcript
        self.transcript_.ended({"scale": Array.of(self.scale_)})
        self.privacy_claim_ = claim_of(self.federation_, protocol_of(self.protocol))
        if self.privacy is not None:
            self.privacy.check_delta(moments.n_rows, len(self.federation_.setting.clients))

    def transform(self, X: Any) -> Any:
        """Return scaled rows, float64 of the shape of `X`; a list of arrays for a list of clients."""
        return [self._scaled(one) for one in X] if is_client_list(X) else self._scaled(X)

    def inverse_transform(self, X: Any) -> Any:
        """Return rows as they were before scaling; a list of arrays for a list of clients."""
        return [self._unscaled(one) for one in X] if is_client_list(X) else self._unscaled(X)

    def _scaled(self, X: Any) -> FloatArray:
        rows, scale = self._rows(X), np.asarray(self.scale_)
        scaled: FloatArray = (
            rows * scale + self.min_ if hasattr(self, "min_") else (rows - self.mean_) / scale
        )
        return scaled

    def _unscaled(self, X: Any) -> FloatArray:
        rows, scale = self._rows(X), np.asarray(self.scale_)
        former: FloatArray = (
            (rows - self.min_) / scale if hasattr(self, "min_") else rows * scale + self.mean_
        )
        return former

    def _rows(self, X: Any) -> FloatArray:
        if not hasattr(self, "scale_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first.")
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64), dtype=np.float64)
