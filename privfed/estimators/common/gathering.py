"""Turns what users pass to `fit` into clients, for all estimators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from privfed.estimators.common.checks import check_surroundings
from privfed.federation.clients import Clients, check_given, gathered, is_client_list


def clients_of(estimator: Any, X: Any, groups: Any, y: Any, names: Iterable[Any] | None) -> Clients:
    """Return the clients to fit, and record their columns in the estimator, as scikit-learn does.

    Raises:
        ArgumentError: a parameter has another type, or rows and engine do not fit together.
        DataError: a client's data cannot be used.
    """
    params = estimator.get_params(deep=False)
    check_surroundings(params)
    private = params["privacy"] is not None
    words: dict[str, Any] = {"names": names, "domain": params["domain"], "private": private}
    if X is not None:
        check_given(X)
    if X is not None and not is_client_list(X):
        X = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=0 if private else 1)
        return gathered(params["engine"], X, groups, y, **words)
    clients = gathered(params["engine"], X, groups, y, **words)
    if clients.columns is not None:
        estimator.feature_names_in_ = np.asarray(clients.columns, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return clients
