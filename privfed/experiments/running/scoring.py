"""Measures the metrics that a study names, on the clients' rows as they are: for scoring only."""

from __future__ import annotations

import inspect
import math
from typing import Any

from privfed.core.values.domain import FloatArray
from privfed.experiments.study.datasets import Scene
from privfed.experiments.study.factories import metric_function


def named_metric(name: str, scene: Scene, centers: FloatArray) -> dict[str, float]:
    """Return the value of a metric; none if it compares with labels and there are none, or if not finite.

    It gets the clients' tables and the centers; `protocol="plain"` if it takes options, as its sums protect
    nobody here; and `labels`, one array for each client, if it has a parameter of this name.

    Args:
        name: a registered name, or "module:function".
        scene: the clients.
        centers: those of the fit.

    Raises:
        ArgumentError: there is no such function.
    """
    function = metric_function(name)
    parameters = inspect.signature(function).parameters
    options: dict[str, Any] = {}
    if "labels" in parameters:
        if scene.labels is None:
            return {}
        options["labels"] = scene.labels
    if "protocol" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        options["protocol"] = "plain"
    value = float(function(scene.clients, centers, **options))
    return {"value": value} if math.isfinite(value) else {}
