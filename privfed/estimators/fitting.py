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

from privfed.algorithms.rounds import stops
from privfed.algorithms.starts import StartTotal
from privfed.core.agreed.program import START_MISSING
from privfed.core.record.records import Asked, question_of
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.data.table import ClientTables
from privfed.errors import ArgumentError, DataError, RefusedError, warn
from privfed.estimators.checking import check_values
from privfed.estimators.declaring import parameters_of
from privfed.estimators.saving import BaseEstimator
from privfed.federation.clients import Clients, gathered
from privfed.federation.driver import Federation
from privfed.federation.opening import open_federation
from privfed.federation.passed import as_passed, check_given, is_client_list
from privfed.federation.request import FederationRequest, check_kinds
from privfed.questions.ranges import SMALLEST


def check_init(init: Any, n_clusters: int, n_features: int) -> Any:
    """Return the name of a known start, or of an earlier fit's, or centers of shape (n_clusters, n_features).

    Raises:
        ArgumentError: the name is unknown, or the array has another shape or is not finite.
    """
    if isinstance(init, StartTotal):
        return init.named
    if isinstance(init, str):
        if init not in ("coreset", "nested", "kfed", "random"):
            raise ArgumentError(
                f'init must be "coreset", "nested", "kfed", "random" or an array, got {init!r}.',
                parameters=["init"],
            )
        return init
    try:
        centers: FloatArray = frozen_array(init)
    except (TypeError, ValueError):
        raise ArgumentError(
            "init must be a start's name or an array of numbers.", parameters=["init"]
        ) from None
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
        X = validate_data(estimator, X, dtype=np.float64, ensure_min_samples=0 if private else 1)
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
    """
    if isinstance(X, Mapping):
        name = next(iter(X), "name")
        raise ArgumentError(
            f"X must be one table of rows, got a dict of {len(X)}: pass X[{name!r}], client by client."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
        return np.asarray(validate_data(estimator, X, reset=False, dtype=np.float64), dtype=np.float64)


def start_given(estimator: BaseEstimator) -> StartTotal | None:
    """Return the start total that an estimator is to begin from; None where it has another start."""
    init = estimator.get_params(deep=False).get("init")
    return init if isinstance(init, StartTotal) else None


def warn_tiny(model: Any) -> None:
    """Warn where all values lie in the bin around zero, which ends where the range sum's grid does."""
    if model.domain is not None or model.privacy is not None or not model.cluster_centers_.any(axis=1).all():
        return
    ranges = question_of(model.transcript_.of(Asked)[-1]).ranges
    if max(np.abs(ranges.low).max(), np.abs(ranges.high).max()) <= SMALLEST:
        message = (
            f"all values lie within {SMALLEST:.2g} of zero, below which no ranges are found, so that "
            "the start and the grid of sums are coarse: declare domain=, or scale rows (FederatedScaler)."
        )
        warn(message)


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


PATIENCE = 10
"""Rounds without a smaller movement after which centers count as going back and forth."""


def reason_of(params: dict[str, Any], movements: Sequence[float], settling: str) -> str:
    """Say why a run did not converge before its last round, and what helps.

    Args:
        params: the estimator's parameters.
        movements: how far centers moved in each round, as `tol` measures it.
        settling: parameters with which it would converge, as text; may be empty.
    """
    larger = f"raise tol={params['tol']:g} (the last round moved the centers by {movements[-1]:.3g})"
    # An estimator of a user's own has such of these parameters as it declares.
    rule: dict[str, Any] = {"tol": 0.0, "min_iter": params.get("min_iter"), "patience": PATIENCE}
    rounds = range(1, len(movements) + 1) if "patience" in params else ()
    end = next((n for n in rounds if stops(movements[:n], **rule)), None)
    patience = f"patience={PATIENCE} ends it after round {end}"
    if len(movements) < params["max_iter"]:
        return cycled(settling, "")
    asked = [name for name in ("clients_per_round", "cohorts") if params.get(name) is not None]
    if asked:
        return (
            "each round asks other clients, which keeps the centers moving; "
            f"{larger if end is None else patience}, or ask all clients: {asked[0]}=None."
        )
    if params.get("batch_size") is not None:
        return f"batches are drawn anew, which keeps the centers moving; {larger}, or use batch_size=None."
    if end is not None:
        settled = f", and with {settling} it comes to rest" if settling else ""
        return f"its centers go back and forth; {patience}{settled}."
    return f"it was cut off; raise max_iter={params['max_iter']}, or {larger}."


def cycled(settling: str, kept: str = ", of which the best was kept") -> str:
    """Say what helps if a run was ended because its centers returned to an earlier state.

    Args:
        settling: parameters with which it would converge, as text; may be empty.
        kept: which state of the cycle the run ended with; empty for the last.
    """
    text = f"its centers go round in a cycle{kept}: further rounds change nothing"
    return f"{text}; with {settling} it comes to rest." if settling else f"{text}."


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
