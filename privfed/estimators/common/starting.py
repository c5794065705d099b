"""Fits that begin from an earlier fit's start total, and what they do where a client lacks it."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

from privfed.algorithms.starts.kept import StartTotal
from privfed.core.agreed.described import START_MISSING
from privfed.core.federation import Federation
from privfed.errors import RefusedError
from privfed.estimators.common.bases import BaseEstimator
from privfed.federation.builder import FederationRequest, open_federation


def start_given(estimator: BaseEstimator) -> StartTotal | None:
    """Return the start total that an estimator is to begin from; None where it has another start."""
    init = estimator.get_params(deep=False).get("init")
    return init if isinstance(init, StartTotal) else None


def opened(request: FederationRequest) -> tuple[Federation, Any]:
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
    warnings.warn(
        f"{', '.join(lacking)} lack the start total of the earlier fit: this one asks anew "
        f"(init={request.start.otherwise!r}), which clients count as a start.",
        stacklevel=5,
    )
    algorithm = replace(algorithm, init=request.start.otherwise)
    return open_federation(replace(request, algorithm=algorithm, start=None)), algorithm
