"""Stopping rules: a run stops once the movement is below a tolerance, or no longer decreases."""

from __future__ import annotations

from collections.abc import Sequence


def stops(movements: Sequence[float], *, tol: float, min_iter: int, patience: int | None) -> bool:
    """Say whether a run stops after these movements.

    Args:
        movements: movement of the centers in each round (Frobenius norm).
        tol: stop once the last movement is strictly less; 0 never stops.
        min_iter: fewest rounds before `tol` may stop a run.
        patience: stop once none of the last `patience` movements, from round `min_iter` on, is below the
            first of them; None never.
    """
    if len(movements) >= min_iter and movements[-1] < tol:
        return True
    if patience is None:
        return False
    recent = movements[min_iter - 1 :][-patience:]
    return len(recent) == patience and recent[0] <= min(recent)


def ending(stopped: bool, tol: float) -> bool | None:
    """Return the value of `ClusteringOutcome.converged` for a run.

    Args:
        stopped: whether a stopping rule ended it.
        tol: its tolerance; with 0 it is meant to do all its rounds.
    """
    return True if stopped else False if tol > 0.0 else None
