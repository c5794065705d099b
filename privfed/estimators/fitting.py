"""What fits have in common: checks of parameters, clients from what users pass, opening, and why a run ended.

Parameters are checked when `fit` is called. The reason for not converging uses only the centers of each
round, which every party of the run has anyway.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from privfed.algorithms.starts import StartTotal
from privfed.core.agreed.program import START_MISSING
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.core.values.numbers import as_numbers
from privfed.core.values.origin import carrying
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError, DataError, RefusedError, warn
from privfed.estimators.checking import check_values
from privfed.estimators.declaring import parameters_of
from privfed.estimators.mixins import BaseEstimator
from privfed.federation.clients import Clients, gathered
from privfed.federation.driver import Federation
from privfed.federation.opening import open_federation
from privfed.federation.passed import as_passed, check_given, is_client_list
from privfed.federation.request import FederationRequest, check_kinds


def check_init(init: Any, n_clusters: int, n_features: int, own: str = "coreset") -> Any:
    """Return the name of a known start, or of an earlier fit's, or centers of shape (n_clusters, n_features).

    Args:
        init: as the user gave it.
        n_clusters: number of clusters.
        n_features: number of columns.
        own: name of a start that the estimator has besides.

    Raises:
        ArgumentError: the name is unknown, or the array has another shape or is not finite.
    """
    if isinstance(init, StartTotal):
        return init.named
    if isinstance(init, str):
        if init not in ("coreset", "nested", "kfed", "random", own):
            raise ArgumentError(
                f'init must be "coreset", "nested", "kfed", "random" or an array, got {init!r}.',
                parameters=["init"],
            )
        return init
    centers = frozen_array(as_numbers("init", init))
    if centers.shape != (n_clusters, n_features) or not np.isfinite(centers).all():
        raise ArgumentError(
            f"init must be finite of shape ({n_clusters}, {n_features}), got shape {centers.shape}.",
            parameters=["init"],
        )
    return centers


def check_declared(estimator: Any) -> None:
    """Check that parameters are what they are declared to be: numbers in their bounds, and known names.

    Raises:
        ArgumentError: one is not.
    """
    check_values(parameters_of(type(estimator)), estimator.get_params(deep=False))


def clients_of(estimator: Any, X: Any, groups: Any, y: Any, names: Iterable[Any] | None) -> Clients:
    """Return the clients to fit, and record their columns in the estimator, as scikit-learn does.

    Raises:
        ArgumentError: a parameter has another type, or rows and engine do not fit together.
        DataError: a client's data cannot be used.
    """
    params = estimator.get_params(deep=False)
    check_kinds(params)
    private = params["privacy"] is not None
    plain = X is not None and not isinstance(X, ClientTables | Clients)
    if plain:
        X, groups, y, names = as_passed(X, groups, y, names)
        check_given(X)
    one_table = plain and not is_client_list(X)
    if one_table:
        rows = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=0 if private else 1)
        X = carrying(rows, X)
    clients = gathered(params["engine"], X, groups, y, names=names, domain=params["domain"], private=private)
    if not one_table:
        keep_columns(estimator, clients.columns)
        return clients
    columns = vars(estimator).get("feature_names_in_")
    return clients if columns is None else replace(clients, columns=tuple(map(str, columns)))


def keep_columns(estimator: Any, columns: Sequence[str] | None) -> None:
    """Record the names of the columns in an estimator, as scikit-learn does; None where they have none."""
    vars(estimator).pop("feature_names_in_", None)
    if columns is not None:
        estimator.feature_names_in_ = np.asarray(columns, dtype=object)


def check_order(columns: Iterable[Any], known: Iterable[str]) -> None:
    """Check that a table's columns are those that a model was fitted on, in their order.

    Raises:
        DataError: they are others.
    """
    found, wanted = list(map(str, columns)), list(known)
    if found != wanted:
        raise DataError(
            f"the columns are {', '.join(found)}, and the model was fitted on {', '.join(wanted)}: pass "
            "these, in this order."
        )


def rows_of(estimator: Any, X: Any) -> FloatArray:
    """Return the rows of a table for a fitted estimator, whose columns must be the table's, in their order.

    Arrays have no names, and are taken by position without a warning.

    Raises:
        ArgumentError: X is a dict of tables, whose rows have no order.
        DataError: a value is NaN or infinite.
    """
    if isinstance(X, Mapping):
        name = next(iter(X), "name")
        raise ArgumentError(
            f"X must be one table of rows, got a dict of {len(X)}: pass X[{name!r}], client by client."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        rows = validate_data(estimator, X, reset=False, dtype=np.float64, ensure_all_finite=False)
    if not np.isfinite(rows).all():
        raise DataError("X holds NaN or infinity; fill them (FederatedImputer), or leave these rows out.")
    return np.asarray(rows, dtype=np.float64)


def start_given(estimator: BaseEstimator) -> StartTotal | None:
    """Return the start total that an estimator is to begin from; None where it has another start."""
    init = estimator.get_params(deep=False).get("init")
    return init if isinstance(init, StartTotal) else None


def open_fit(request: FederationRequest) -> tuple[Federation, Any]:
    """Open the federation of a fit; return it with the algorithm that runs.

    Where a client has no such start total in its journal, all agree on a start that asks anew instead.

    Warns:
        UserWarning: that happened; clients count the start.
    """
    try:
        return open_federation(request), request.algorithm
    except RefusedError as error:
        lacking = sorted(name for name, code in error.codes.items() if code == START_MISSING)
        if request.start is None or not lacking:
            raise
    algorithm: Any = request.algorithm
    warn(
        f"{', '.join(lacking)} lack the start total of the earlier fit: this one asks anew "
        f"(init={request.start.otherwise!r}), which clients count as a start.",
    )
    algorithm = replace(algorithm, init=request.start.otherwise)
    return open_federation(replace(request, algorithm=algorithm, start=None)), algorithm


def reason_of(params: dict[str, Any], stopped_by: str | None, last: float, settling: str) -> str:
    """Say why a run did not converge, and what helps.

    Args:
        params: the estimator's parameters; one of a user's own has such of them as it declares.
        stopped_by: the rule that ended the run.
        last: how far the last round moved the centers, as `tol` measures it.
        settling: parameters with which it would converge, as text; may be empty.
    """
    larger = f"raise tol={params['tol']} (the last round moved the centers by {last:.3g})"
    asked = [name for name in ("clients_per_round", "cohorts") if params.get(name) is not None]
    if asked:
        why = "each round asks other clients, which keeps the centers moving"
        return f"{why}; {larger}, or ask all clients: {asked[0]}=None."
    if params.get("batch_size") is not None:
        return f"batches are drawn anew, which keeps the centers moving; {larger}, or use batch_size=None."
    why = f"it was cut off; raise max_iter={params['max_iter']}, or {larger}"
    if stopped_by == "cycle":
        why = "its centers go round in a cycle, of which the best was kept: further rounds change nothing"
    jitters = "; plateau=5 ends a run whose centers only jitter" * (params.get("plateau", 0) is None)
    return f"{why}{jitters}{f'; with {settling} it comes to rest' * bool(settling)}."


_NOT_DESCRIBED = ("seed",)
"""Fields that distinguish runs of the same algorithm, and are not described."""


def described(value: Any) -> str:
    """Return a value as text; an algorithm with those of its fields that differ from their defaults.

    Equal texts mean equal computations. Under differential privacy several estimators ask for the same noised
    sums: `DWFKMeans(local_iter=1)` and `DPKMeans` are one algorithm with two names, whatever `tol` is.
    Without it, `WFKMeans` with dynamic weights is `DWFKMeans`.
    """
    if is_dataclass(value) and not isinstance(value, type):
        shown = [
            f"{one.name}={described(own)}"
            for one, own in zip(fields(value), asdict(value).values(), strict=True)
            if one.name not in _NOT_DESCRIBED and not _is_default(one, own)
        ]
        return f"{type(value).__name__}({', '.join(shown)})"
    if isinstance(value, np.ndarray):
        return described(value.tolist())
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(described, value))}]"
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    # 1 and 1.0 mean the same to an algorithm.
    whole = isinstance(value, float | np.number) and float(value).is_integer()
    return str(int(value)) if whole else repr(value)


def _is_default(one: Field[Any], value: Any) -> bool:
    default = one.default if one.default_factory is MISSING else one.default_factory()
    return default is not MISSING and described(default) == described(value)
