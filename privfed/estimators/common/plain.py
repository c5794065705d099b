"""The parameters of an estimator that JSON can hold: for agreements and for saved models."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privfed.estimators.common.bases import BaseEstimator

NOT_PART_OF_THE_AGREEMENT = ("run_dir", "random_state", "protocol", "engine", "policy", "domain", "metrics")
"""Parameters that the agreement holds elsewhere, or that are a party's own."""


def plain_params(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the parameters that JSON can hold; objects are left out."""
    kept: dict[str, Any] = {}
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, np.integer | np.floating):
            value = value.item()
        if isinstance(value, Sequence | Mapping) and not isinstance(value, str):
            value = json.loads(json.dumps(value, default=lambda one: np.asarray(one).tolist()))
        if value is None or isinstance(value, bool | int | float | str | list | dict):
            kept[name] = value
    return kept
