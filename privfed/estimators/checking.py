"""Checks values by the declarations of parameters: an estimator's own, and fields of the same names."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Mapping
from inspect import formatannotation
from typing import Any

import numpy as np

from privfed.core.values.numbers import check_flag, check_number, check_word
from privfed.estimators.declaring import Parameter


def check_values(declared: Mapping[str, Parameter], values: Mapping[str, Any]) -> None:
    """Check that values are what parameters of their names are declared to be.

    Args:
        declared: parameters by name.
        values: by name; those of other names are not looked at.

    Raises:
        ArgumentError: a number is out of its bounds, or a name is unknown.
    """
    for name, one in declared.items():
        if name not in values:
            continue
        value, written = values[name], _as_text(one.annotation)
        known = written.removesuffix(" | None")
        if known.startswith("Literal[") and known.endswith("]"):
            literals = literal_eval(known.removeprefix("Literal"))
            check_word(name, value, literals if known == written else (None, *literals))
        if written == "bool":
            check_flag(name, bool(value) if isinstance(value, np.bool_) else value)
        if one.bounds:
            whole, or_none = written.startswith("int"), "None" in written
            check_number(name, value, one.bounds, whole=whole, or_none=or_none)


def _as_text(annotation: Any) -> str:
    """Return a parameter's type as text; without `from __future__ import annotations` it is no text yet."""
    written = annotation if isinstance(annotation, str) else formatannotation(annotation)
    inner = written.removeprefix("Optional[")
    return written if inner == written else f"{inner[:-1]} | None"
