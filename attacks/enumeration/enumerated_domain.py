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

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp, nnls
from scipy.sparse import csr_array

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, own_or_total
from privfed.attacks.base.results import NotRun, Points, Truth
from privfed.attacks.evidence.cells import answers_of
from privfed.attacks.evidence.equations import equations_of, summed
from privfed.attacks.evidence.exchanges import exchanged
from privfed.attacks.evidence.system import System
from privfed.attacks.membership.scores import contradictions
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised

_ERROR = 1e-6
"""Largest error of a sum, as a share of the largest value of its kind."""
_WHOLE = 1e-4
"""A solution this near to a whole number is one."""


def least(left: FloatArray, right: FloatArray, most_exact: int = 400, nodes: int = 200) -> FloatArray:
    """Return how often each possible row occurs at least, in all solutions, (n_values,).

    Args:
        left: A, float64 of shape (n_equations, n_values).
        right: b, (n_equations,).
        most_exact: most values for which whole numbers are searched; of more, linear bounds are claimed.
        nodes: most nodes of such a search.
    """
    found = np.zeros(left.shape[1])
    start, missed = nnls(left, right, maxiter=100 * max(left.shape))
    if missed > _ERROR * (1.0 + np.linalg.norm(right)):
        return found
    # Any solution is above the least one, so only rows that this one holds are asked about.
    for value in np.flatnonzero(start > 1.0 - _WHOLE).tolist():
        found[value] = _least_whole(left, right, value, nodes if len(found) <= most_exact else 1)
    return found


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
        if target.candidates is not None:
            given = {"values": target.candidates, **given}
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
        exact = tuple(one for one, _ in answers_of(view, self.client) if not isinstance(one.question, Noised))
        every = list(equations_of(view))
        n_features = every[0].question.ranges.n_features
        if self.values.shape[1] != n_features:
            raise ArgumentError(
                f"values have {self.values.shape[1]} columns, the run has {n_features}.",
                parameters=["values"],
            )
        against = contradictions(self.values, every, len(view.clients))
        possible = self.values[against == 0.0]
        units = [ClientData(value[None]) for value in possible]
        system = System.of(replace(view, sums=exact, result={}), units, client=self.client)
        if system is None:
            return NotRun(attack=self.name, why="no sum is of the target's rows alone")
        numbers = least(*system.whole()).astype(np.intp) if len(possible) else np.zeros(0, np.intp)
        return Points(
            attack=self.name,
            queries=system.n_sums,
            points=np.repeat(possible, numbers, axis=0),
            client=self.client,
            without_access=prior.guesses(int(numbers.sum()), rng),
            others=partial(_others, view, possible, system.left, self.client),
        )


def _others(
    view: View, possible: FloatArray, left: csr_array, client: int | None, truth: Truth
) -> npt.NDArray[np.bool_]:
    """Say of which true rows possible ones give all that a view shows."""
    rows, _ = truth.rows(client)
    places = {value.tobytes(): i for i, value in enumerate(possible)}
    which = np.array([places[row.tobytes()] for row in rows if row.tobytes() in places], dtype=np.intp)
    taken = np.bincount(which, minlength=len(possible)).astype(np.float64)
    shown = np.zeros(len(rows), dtype=np.bool_)
    shown[: len(which)] = exchanged(view, truth.clients, possible, taken, left, float(len(rows)))[which]
    return shown


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
