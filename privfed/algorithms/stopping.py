"""When a run stops: the movement falls below a tolerance, or no longer falls; and how it ended."""

from __future__ import annotations

from collections.abc import Sequence


def stops(movements: Sequence[float], *, tol: float, min_iter: int, patience: int | None) -> bool:
    """Say whether a run stops after these movements, one a round (Frobenius norms).

    Args:
        movements: how far the centers moved in each round.
        tol: stop once the last movement is strictly less; 0 never stops.
        min_iter: fewest rounds before `tol` may stop a run.
        patience: stop once no movement of the last `patience` rounds, from round `min_iter` on, is below
            the first of them; None never.
    """
    if len(movements) >= min_iter and movements[-1] < tol:
        return True
    if patience is None:
        return False
    recent = movements[min_iter - 1 :][-patience:]
    return len(recent) == patience and recent[0] <= min(recent)


def ending(stopped: bool, tol: float) -> bool | None:
    """Return `ClusteringOutcome.converged` of a run.

    Args:
        stopped: whether a stop rule ended it.
        tol: its tolerance; with 0 a run is meant to do all its rounds.
    """
    return True if stopped else False if tol > 0.0 else None
