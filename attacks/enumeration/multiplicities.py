"""Bounds how often each possible row occurs, from sums that are linear in these numbers.

With m_v the number of rows that equal v, each sum is b = sum_v m_v phi(v): a linear system in whole numbers
that are not negative. A row is claimed as often as it occurs in every solution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp, nnls
from scipy.sparse import csr_array

from privfed.attacks.evidence.equations import Equations
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import FloatArray

_ERROR = 1e-6
"""Largest error of a sum, as a share of the largest value of its kind."""
_WHOLE = 1e-4
"""A solution this near to a whole number is one."""
_RANK = 1e-9
"""Least singular value of an equation, as a share of the largest."""


def system(values: FloatArray, sums: Sequence[tuple[Equations, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Return A and b of A m = b, without equations that repeat others.

    Args:
        values: the possible rows, float64 of shape (n_values, n_features).
        sums: what was asked, and the sums over the target's rows.

    Returns:
        A of shape (n_equations, n_values) and b, (n_equations,).
    """
    units = [ClientData(value[None]) for value in values]
    rows, right = [], []
    for one, total in sums:
        added = one.of_units(units).T
        # Sums of whole numbers are whole: what they lack is rounding in a masked sum.
        whole = (added == np.rint(added)).all(axis=1)
        rows.append(added)
        right.append(np.where(whole, np.rint(total), total))
    left, b = np.concatenate(rows), np.concatenate(right)
    # Rows of one direction and length are one equation.
    _, kept = np.unique(np.round(left @ np.sin(np.arange(1.0, len(values) + 1.0)), 9), return_index=True)
    kept = np.sort(kept[left[kept].any(axis=1)])
    return left[kept], b[kept]


def least(left: FloatArray, right: FloatArray, most_exact: int = 400, nodes: int = 200) -> FloatArray:
    """Return how often each possible row occurs at least, in all solutions, (n_values,).

    Args:
        left: A, float64 of shape (n_equations, n_values).
        right: b, (n_equations,).
        most_exact: most values for which whole numbers are searched, where linear bounds leave rows open.
        nodes: most nodes of such a search.
    """
    found = np.zeros(left.shape[1])
    start, missed = nnls(left, right, maxiter=100 * max(left.shape))
    if missed > _ERROR * (1.0 + np.linalg.norm(right)):
        return found
    _, spread, directions = np.linalg.svd(left, full_matrices=True)
    rank = int((spread > _RANK * spread[0]).sum())
    free = directions[rank:].T
    # Any solution is above the least one, so only rows that this one holds are asked about.
    for value in np.flatnonzero(start > 1.0 - _WHOLE).tolist():
        found[value] = _least_of(start, free, value)
        if found[value] < np.floor(start[value] + _WHOLE) and len(found) <= most_exact:
            found[value] = max(found[value], _least_whole(left, right, value, nodes))
    return found


def _least_of(start: FloatArray, free: FloatArray, value: int) -> float:
    """Return the least number of one row over the solutions start + free z that are not negative."""
    if np.abs(free[value]).max(initial=0.0) < _WHOLE / 10:
        return float(np.floor(start[value] + _WHOLE))
    solved = linprog(free[value], A_ub=-free, b_ub=start, bounds=(None, None), method="highs")
    return max(0.0, float(np.ceil(start[value] + solved.fun - _WHOLE))) if solved.status == 0 else 0.0


def _least_whole(left: FloatArray, right: FloatArray, value: int, nodes: int) -> float:
    """Return a lower bound of the number of one row over the solutions in whole numbers."""
    goal, error = np.zeros(left.shape[1]), _ERROR * np.maximum(1.0, np.abs(right))
    goal[value] = 1.0
    solved = milp(
        goal,
        constraints=LinearConstraint(csr_array(left), right - error, right + error),
        bounds=Bounds(0, np.inf),
        integrality=np.ones(len(goal)),
        options={"node_limit": nodes},
    )
    bound = getattr(solved, "mip_dual_bound", None)
    return float(np.ceil(bound - _WHOLE)) if bound is not None and np.isfinite(bound) else 0.0
