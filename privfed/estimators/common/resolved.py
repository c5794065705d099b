"""Describes the algorithm that an estimator's parameters amount to; equal texts mean equal computations.

Under differential privacy several estimators ask for the same noised sums: `DWFKMeans(local_iter=1)` and
`DPKMeans` are one algorithm with two names, whatever `tol` is. Without it, `WFKMeans` with dynamic weights is
`DWFKMeans`.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

import numpy as np

from privfed.core.stored.held import held

NOT_SAID = ("seed",)
"""Fields that distinguish runs of the same algorithm, and are not described."""


def described(value: Any) -> str:
    """Return a value as text; an algorithm with those of its fields that differ from their defaults."""
    if is_dataclass(value) and not isinstance(value, type):
        said = [
            f"{one.name}={described(own)}"
            for one, own in zip(fields(value), held(value).values(), strict=True)
            if one.name not in NOT_SAID and not _is_default(one, own)
        ]
        return f"{type(value).__name__}({', '.join(said)})"
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
