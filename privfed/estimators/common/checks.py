"""Checks of parameters, made when `fit` is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np

from privfed.algorithms.starts.kept import StartTotal
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.connection import Engine
from privfed.core.values.domain import Ball, Box, FloatArray, frozen_array
from privfed.errors import ArgumentError
from privfed.privacy.privacy import Privacy


def check_integer(name: str, value: Any, low: int) -> int:
    """Return the value as an integer of at least `low`.

    Raises:
        ArgumentError: it is not one.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < low:
        raise ArgumentError(f"{name} must be an integer of at least {low}, got {name}={value!r}.")
    return int(value)


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float = np.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return the value as a finite number between `low` and `high`.

    Raises:
        ArgumentError: it is not one.
    """
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    inside = number and np.isfinite(value) and low <= value <= high
    if not inside or (open_low and value == low) or (open_high and value == high):
        interval = f"{'(' if open_low else '['}{low}, {high}{')' if open_high or high == np.inf else ']'}"
        raise ArgumentError(f"{name} must be a number in {interval}, got {name}={value!r}.")
    return float(value)


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
                f'init must be "coreset", "nested", "kfed", "random" or an array, got {init!r}.'
            )
        return init
    try:
        centers: FloatArray = frozen_array(init)
    except (TypeError, ValueError):
        raise ArgumentError("init must be a start's name or an array of numbers.") from None
    if centers.shape != (n_clusters, n_features) or not np.isfinite(centers).all():
        raise ArgumentError(
            f"init must be finite of shape ({n_clusters}, {n_features}), got shape {centers.shape}."
        )
    return centers


def check_clustering(params: dict[str, Any]) -> None:
    """Check the parameters that WF, DWF and EWF k-means share.

    Raises:
        ArgumentError: one is out of its bounds.
    """
    for name, low in (("n_clusters", 1), ("local_iter", 1), ("max_iter", 1), ("min_iter", 1), ("n_init", 1)):
        check_integer(name, params[name], low)
    check_number("learning_rate", params["learning_rate"], 0.0, 1.0, open_low=True)
    check_number("momentum", params["momentum"], 0.0, 1.0, open_high=True)
    check_number("tol", params["tol"], 0.0)
    if params["local_tol"] is not None:
        check_number("local_tol", params["local_tol"], 0.0)
    if params["patience"] is not None:
        check_integer("patience", params["patience"], 1)
    if params["clients_per_round"] is not None:
        check_integer("clients_per_round", params["clients_per_round"], 1)
    if params["restart_score"] not in ("pooled", "client-mean"):
        raise ArgumentError(
            f'restart_score must be "pooled" or "client-mean", got {params["restart_score"]!r}.'
        )
    if not isinstance(params["relocate_empty"], bool | np.bool_):
        raise ArgumentError(f"relocate_empty must be True or False, got {params['relocate_empty']!r}.")


def check_surroundings(params: dict[str, Any]) -> None:
    """Check the parameters that say where and how a fit runs.

    Raises:
        ArgumentError: one has another type.
    """
    kinds = {
        "engine": Engine,
        "policy": ClientPolicy,
        "domain": Box | Ball,
        "run_dir": str | Path,
        "privacy": Privacy,
    }
    for name, kind in kinds.items():
        if params[name] is not None and not isinstance(params[name], kind):
            wanted = " or ".join(one.__name__ for one in get_args(kind) or (kind,))
            raise ArgumentError(f"{name} must be None or a {wanted}, got {name}={params[name]!r}.")
