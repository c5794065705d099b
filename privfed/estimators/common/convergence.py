"""Explains why a run did not converge, and which parameters of its estimator help.

It uses only the centers of each round, which every party of the run has anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privfed.algorithms.stopping import stops
from privfed.core.values.domain import FloatArray

PATIENCE = 10
"""Rounds without a smaller movement after which centers count as going back and forth."""


def frobenius(after: FloatArray, before: FloatArray) -> float:
    """Return how far centers moved, as most estimators measure it."""
    return float(np.linalg.norm(after - before))


def reason_of(params: dict[str, Any], movements: Sequence[float], settling: str) -> str:
    """Say why a run did not converge before its last round, and what helps.

    Args:
        params: the estimator's parameters.
        movements: how far centers moved in each round, as `tol` measures it.
        settling: parameters with which it would converge, as text; may be empty.
    """
    larger = f"raise tol={params['tol']:g} (the last round moved the centers by {movements[-1]:.3g})"
    # An estimator of a user's own has such of these parameters as it declares.
    end = end_of_patience(movements, params["min_iter"]) if "patience" in params else None
    patience = f"patience={PATIENCE} ends it after round {end}"
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


def cycled(settling: str) -> str:
    """Say what helps if a run was ended because its centers returned to an earlier state.

    Args:
        settling: parameters with which it would converge, as text; may be empty.
    """
    text = "its centers go round in a cycle, of which the best was kept: further rounds change nothing"
    return f"{text}; with {settling} it comes to rest." if settling else f"{text}."


def end_of_patience(movements: Sequence[float], min_iter: int) -> int | None:
    """Return the round after which `PATIENCE` would have ended a run; None if it would not have."""
    rule: dict[str, Any] = {"tol": 0.0, "min_iter": min_iter, "patience": PATIENCE}
    return next((n for n in range(1, len(movements) + 1) if stops(movements[:n], **rule)), None)
