"""Counts how often each possible row occurs, where all possible rows can be listed.

Tables of categories (one-hot columns) and of answers on a scale have few possible rows. Every sum over rows
is linear in how often each of them occurs: counts in cells, sums, start counts of local steps, memberships.
What cannot occur at all is left out first (`privfed.attacks.membership.scores`). The rest is bounded by
linear and whole-number programs. docs/attacks/enumerated-domain.md has figures.

Bounds how often each possible row occurs, from sums that are linear in these numbers.

With m_v the number of rows that equal v, each sum is b = sum_v m_v phi(v): a linear system in whole numbers
that are not negative. A row is claimed as often as it occurs in every solution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp, minimize, nnls
from scipy.sparse import csr_array
from scipy.special import logsumexp, softmax

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, own_or_total
from privfed.attacks.base.results import NotRun, Points
from privfed.attacks.evidence.equations import Equations, equations_of, summed
from privfed.attacks.membership.scores import contradictions
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError

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


MOST_VALUES = 5_000
"""Most possible rows; time and memory grow with their square."""


class EnumeratedDomain(PassiveAttack[Points]):
    """Claims the rows that occur in every table of possible rows with the sums that were seen.

    Args:
        values: all possible rows, as they were fitted, float64 of shape (n_values, n_features).
        client: position of the client whose answers are read; None reads totals, for rows of any client.
    """

    name: ClassVar[str] = "enumerated-domain"
    paper: ClassVar[str] = (
        "own; after reconstruction from statistical tables (Garfinkel, Abowd, Martindale 2019)"
    )
    adversary: ClassVar[str] = "passive server (honest but curious), alone or with colluding clients"
    view: ClassVar[str] = "any sums over rows, without noise: totals, or a client's own answers"
    algorithms: ClassVar[tuple[str, ...]] = (
        "dwf",
        "ewf",
        "lloyd",
        "minibatch",
        "fkm",
        "kfed",
        "fuzzy",
        "fedavg",
    )
    prior: ClassVar[str] = "all rows that are possible"
    defence: ClassVar[str] = "differential privacy; groups of rows; columns with many values"
    aim: ClassVar[Aim] = Aim.SHOWN_CLIENT

    def __init__(self, values: FloatArray, client: int | None = None) -> None:
        self.values, self.client = np.unique(as_numbers("values", values), axis=0), client
        if self.values.ndim != 2 or not 1 <= len(self.values) <= MOST_VALUES:
            raise ArgumentError(
                f"values are 1 to {MOST_VALUES} possible rows, got shape {self.values.shape}.",
                parameters=["values"],
            )

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Take as possible all that the columns of the public rows can be combined to."""
        given = dict(parameters)
        if "values" not in given:
            if target.public is None:
                raise ArgumentError("enumerated-domain lists all possible rows: pass public rows, or values.")
            given["values"] = possible_rows(target.public)
        return super().prepare(target, given)

    @property
    def reads(self) -> tuple[Reads, ...]:
        """All sums over rows, without noise."""
        return (
            Reads(
                what="sums over rows, without noise",
                shown=own_or_total(self.client),
                client=self.client,
                use=lambda question: bool(summed(question)),
                noised=False,
            ),
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Points | NotRun:
        every = [one for one in equations_of(view) if one.exact]
        wanted = [
            (one, shown)
            for one in every
            for shown in one.shown
            if self._is_of_target(shown.own, shown.clients)
        ]
        if not wanted:
            return NotRun(attack=self.name, why="no sum is of the target's rows alone")
        whose = Counter(shown.clients for _, shown in wanted).most_common(1)[0][0]
        sums = [(one, shown.values) for one, shown in wanted if shown.clients == whose]
        if self.values.shape[1] != sums[0][0].question.ranges.n_features:
            raise ArgumentError(
                f"values have {self.values.shape[1]} columns, the run has "
                f"{sums[0][0].question.ranges.n_features}.",
                parameters=["values"],
            )
        possible = self.values[contradictions(self.values, every, len(view.clients)) == 0.0]
        numbers = least(*system(possible, sums)).astype(np.intp) if len(possible) else np.zeros(0, np.intp)
        return Points(
            attack=self.name,
            queries=len(sums),
            points=np.repeat(possible, numbers, axis=0),
            client=self.client,
            without_access=from_marginals(self.values, sums),
        )

    def _is_of_target(self, own: bool, clients: tuple[int, ...]) -> bool:
        return clients == (self.client,) if own else self.client is None


def possible_rows(public: FloatArray) -> FloatArray:
    """Return all rows that the columns of public rows can be combined to.

    Columns next to each other that hold one 1 and else 0 in every row are the categories of one thing.

    Raises:
        ArgumentError: there are more than `MOST_VALUES`.
    """
    blocks: list[FloatArray] = []
    first, d = 0, public.shape[1]
    while first < d:
        ends = [
            end
            for end in range(first + 2, d + 1)
            if np.isin(public[:, first:end], (0.0, 1.0)).all()
            and (public[:, first:end].sum(axis=1) == 1.0).all()
        ]
        width = ends[0] - first if ends else 1
        blocks.append(np.eye(width) if ends else np.unique(public[:, first])[:, None])
        first += width
    n_values = int(np.prod([float(len(one)) for one in blocks]))
    if n_values > MOST_VALUES:
        raise ArgumentError(
            f"the public rows' columns combine to {n_values:.3g} possible rows, more than {MOST_VALUES}."
        )
    return np.array([np.concatenate(one) for one in product(*blocks)])


def from_marginals(values: FloatArray, sums: Sequence[tuple[Equations, FloatArray]]) -> FloatArray | None:
    """Return what guessing from the number and the mean of the rows gives: rows of greatest entropy.

    For one-hot columns this is the product of the true marginals. Each row is guessed as often as it is
    expected, rounded by largest remainders.

    Returns:
        float64 of shape (n_rows, n_features); None if the sums show no number and mean.
    """
    for one, total in sums:
        shown = one.of_rows(values[:1])
        if not shown.sum:
            continue
        parts = one.parts(total)
        n = max(1, round(float(parts[shown.count].sum())))
        mean = shown.sums(parts).sum(axis=0) / n
        expected = n * _likeliest(values - mean)
        whole = np.floor(expected).astype(np.intp)
        whole[np.argsort(whole - expected)[: n - whole.sum()]] += 1
        return np.repeat(values, whole, axis=0)
    return None


def _likeliest(centred: FloatArray) -> FloatArray:
    """Return the distribution of greatest entropy over rows whose mean is 0, (n_rows,)."""

    def dual(at: FloatArray) -> tuple[float, FloatArray]:
        return float(logsumexp(centred @ at)), softmax(centred @ at) @ centred

    found = minimize(dual, np.zeros(centred.shape[1]), jac=True, method="L-BFGS-B")
    return np.asarray(softmax(centred @ found.x))
