"""Infers an unknown value of rows whose other values are known, from sums without noise.

The attacker knows all but one column of some rows that took part. Three things tell the value, the surest
first:

1. a row that `Differencing` recovers, and whose other values are the known ones;
2. the values with which the row contradicts no sum (`privfed.attacks.membership.scores`), weighed by what all
   sums say of all rows together, if each takes one of its values (`privfed.attacks.evidence.system.choices`);
3. a regression on public rows, which needs no access. Alone it is the baseline; it weighs the values of 2.

The same is done for control rows, as if they had taken part: what is found of these is the population's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial import cKDTree

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.report import IntArray, Report, risk, spread
from privfed.attacks.base.results import Result, Truth
from privfed.attacks.evidence.equations import equations_of, summed
from privfed.attacks.evidence.system import System, choices
from privfed.attacks.membership.membership import candidates_of
from privfed.attacks.membership.scores import contradictions
from privfed.attacks.reconstruction.differencing import Differencing
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

NEAR = 0.01
"""A value is found if it is within this many standard deviations."""
_GRID = 25
"""Values tried for each row."""
_SAME = 1e-4
"""Largest difference between known values and those of a recovered row, in standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Attributes(Result):
    """Holds guesses of one column.

    Args:
        column: its index.
        records: the rows with their known values, float64 of shape (n_records, n_features).
        values: guesses, (n_records,).
        claimed: whether a guess is claimed to be exact, bool of shape (n_records,).
        without_access: guesses from public rows alone, (n_records,).
        controls: true values and guesses of rows that took no part, float64 of shape (2, n_controls).
    """

    column: int
    records: FloatArray
    values: FloatArray
    claimed: np.ndarray[Any, np.dtype[np.bool_]]
    without_access: FloatArray
    controls: FloatArray = field(repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare guesses with the values of the rows that have the known ones.

        Raises:
            ArgumentError: a record is none of the clients' rows.
        """
        rows, _ = truth.rows(None)
        others = np.arange(rows.shape[1]) != self.column
        off, place = cKDTree(rows[:, others]).query(self.records[:, others])
        unit = float(rows[:, self.column].std()) or 1.0
        if off.max(initial=0.0) > 1e-6 * spread(rows):
            raise ArgumentError("records must be rows of the clients, but for the unknown column.")
        true = rows[place, self.column]
        right = np.abs(self.values - true) <= NEAR * unit
        control = np.abs(self.controls[1] - self.controls[0]) <= NEAR * unit
        return Report(
            attack=self.attack,
            goal=f"values of column {self.column} within {NEAR:g} sd",
            recovered=float(right.mean()),
            precision=float(right[self.claimed].mean()) if self.claimed.any() else float("nan"),
            claims=int(self.claimed.sum()),
            linked=True,
            baseline=float((np.abs(self.without_access - true) <= NEAR * unit).mean()),
            queries=self.queries,
            seconds=self.seconds,
            details={
                "R2": explained(true, self.values),
                "R2, no access": explained(true, self.without_access),
                "R2, controls": explained(*self.controls),
                "controls within .01 sd": float(control.mean()) if control.size else float("nan"),
                **risk("inference risk", right, control),
            },
        )


class AttributeInference(PassiveAttack[Attributes]):
    """Guesses one column of rows that took part and whose other columns are known.

    Args:
        records: rows of which the column is unknown (what stands there is not read), float64 of shape
            (n_records, n_features).
        column: index of the unknown column.
        controls: whole rows that took no part, float64 of shape (n_controls, n_features); None for none.
    """

    name: ClassVar[str] = "attribute-inference"
    paper: ClassVar[str] = (
        "Fredrikson et al. 2014 (the question); Giomi et al. 2023 (the control); solvers own"
    )
    adversary: ClassVar[str] = "passive server, alone or with colluding clients"
    view: ClassVar[str] = "totals that add up over rows, without noise"
    prior: ClassVar[str] = "all but one value of the rows; public rows of the same kind"
    defence: ClassVar[str] = "differential privacy; groups of rows; few fits"
    public_rows: ClassVar[int] = 4

    def __init__(self, records: FloatArray, column: int = -1, controls: FloatArray | None = None) -> None:
        n_features = records.shape[1]
        if not -n_features <= column < n_features or n_features < 2:
            raise ArgumentError(
                f"column must be one of {n_features}, beside at least one that is known; got {column}.",
                parameters=["column"],
            )
        self.records, self.column = records, column % n_features
        self.controls = np.empty((0, n_features)) if controls is None else controls

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Take half of the public rows as controls, and the other half as known."""
        if target.public is None or len(target.public) < cls.public_rows:
            raise ArgumentError(
                f"attribute-inference learns from public rows: pass at least {cls.public_rows}."
            )
        members, others, known = candidates_of(target, target.public)
        made = cls._made({"records": members, "controls": others, **parameters})
        prior = Prior(sample=known, n_clients=len(target.clients), colluders=target.prior.colluders)
        return Prepared(made, prior, target.truth)

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Totals that add up over rows, without noise."""
        return (
            Reads(
                what="totals that add up over rows, without noise",
                shown=Shows.TOTALS,
                use=lambda question: bool(summed(question)),
                noised=False,
            ),
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Attributes:
        if prior.sample is None:
            raise ArgumentError("attribute-inference learns from public rows: pass Prior(sample=...).")
        points = Differencing().rows_of(view, rng)
        values, claimed = self._guessed(self.records, points, view, prior.sample)
        control, _ = self._guessed(self.controls, points, view, prior.sample)
        return Attributes(
            attack=self.name,
            queries=len(view.sums),
            column=self.column,
            records=self.records,
            values=values,
            claimed=claimed,
            without_access=regressed(self.records, prior.sample, self.column)[0],
            controls=np.stack([self.controls[:, self.column], control]),
        )

    def _guessed(
        self, rows: FloatArray, points: FloatArray, view: View, sample: FloatArray
    ) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.bool_]]]:
        """Return a guess for each row, and whether it is that of a recovered row."""
        likely, deviation = regressed(rows, sample, self.column)
        claimed = np.zeros(len(rows), dtype=np.bool_)
        guess = self._weighed(rows, likely, deviation, view, sample) if len(rows) else likely
        others = np.arange(rows.shape[1]) != self.column
        if len(points) and len(rows):
            scale = np.maximum(sample[:, others].std(axis=0), 1e-12)
            off, place = cKDTree(points[:, others] / scale).query(rows[:, others] / scale, p=np.inf)
            claimed = off <= _SAME
            guess[claimed] = points[place[claimed], self.column]
        return guess, claimed

    def _weighed(
        self, rows: FloatArray, likely: FloatArray, deviation: float, view: View, sample: FloatArray
    ) -> FloatArray:
        """Return the mean of the values that contradict least, weighed by what all sums say of all rows."""
        steps = np.linspace(-3.0, 3.0, _GRID)
        tried = np.repeat(rows, _GRID, axis=0)
        tried[:, self.column] = (likely[:, None] + deviation * steps).ravel()
        against = contradictions(tried, equations_of(view), len(view.clients)).reshape(-1, _GRID)
        weight = np.exp(-np.square(steps) / 2.0) * (against == against.min(axis=1, keepdims=True))
        weight /= weight.sum(axis=1, keepdims=True)
        system = System.of(view, [ClientData(row[None]) for row in (*tried, *sample)])
        if system is not None and np.isfinite(system.units):
            weight = choices(system, weight)
        return np.asarray(likely + deviation * np.clip(weight @ steps, steps[0], steps[-1]))


def regressed(rows: FloatArray, sample: FloatArray, column: int) -> tuple[FloatArray, float]:
    """Return what ridge regression on public rows says of a column, and the deviation of its errors."""
    others: IntArray = np.flatnonzero(np.arange(sample.shape[1]) != column)
    middle, scale = sample.mean(axis=0), np.maximum(sample.std(axis=0), 1e-12)
    known, right = ((sample - middle) / scale)[:, others], ((sample - middle) / scale)[:, column]
    # The penalty is that of one row, so that fewer rows than columns have a solution.
    gram = known.T @ known + np.eye(len(others))
    weights = np.linalg.solve(gram, known.T @ right)
    freedom = float(np.trace(np.linalg.solve(gram, known.T @ known)))
    error = float(np.square(right - known @ weights).sum()) / max(1.0, len(known) - freedom)
    found = ((rows - middle) / scale)[:, others] @ weights
    return np.asarray(middle[column] + scale[column] * found), float(scale[column]) * error**0.5


def explained(true: FloatArray, guessed: FloatArray) -> float:
    """Return the share of the variance that guesses explain; NaN where the values do not vary."""
    whole = float(np.square(true - true.mean()).sum()) if len(true) else 0.0
    return 1.0 - float(np.square(true - guessed).sum()) / whole if whole else float("nan")
