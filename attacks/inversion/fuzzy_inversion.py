"""Recovers a client's rows from its fuzzy statistics, by solving nonlinear equations with a search.

In Stallmann and Wilbik 2022 (FedFuzzDB) each client sends, for every cluster, the spread of all its rows
and the sum of their memberships, for several numbers of clusters. That is a system of equations for the
rows. The search:

1. Start from n rows drawn by nonnegative weights on public rows that reproduce the answers (a linear
   problem), or from n public rows.
2. Minimise the residuals by Levenberg-Marquardt with exact derivatives (a trust-region method if there are
   fewer equations than unknowns).
3. In a local minimum, replace a few rows by the public rows that fit best, of a random quarter of them, and
   go back to step 2. The best rows are kept.

Rows are claimed with confidence 1 if they satisfy all equations up to rounding and there are at least as many
independent equations as unknowns, otherwise with 0.

The equations that fuzzy statistics impose on the rows behind them, and their derivatives.

Each sum shows s = sum of phi(x) over the n rows of a client, with phi smooth and public:

* `FuzzySpread` (Stallmann and Wilbik 2022, FedFuzzDB, eq. 12 and 13): phi = (||x - c_i||^q, u_i(x)),
* `FuzzySums` (fuzzy c-means, eq. 6): phi = (u_i(x)^m, u_i(x)^m x).

The memberships of a row add up to one, so the summed memberships add up to the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import least_squares, nnls

from privfed.algorithms.fuzzy import FuzzySums
from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prior
from privfed.attacks.base.reading import Reads, own_or_total
from privfed.attacks.base.results import NotRun, Points
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.numerics.memberships import shares
from privfed.questions.fuzzy_spread import FuzzySpread

_NEAR = 1e-24
"""Least squared distance used, as memberships have no derivative at a center itself."""


@dataclass(frozen=True, eq=False)
class Equations:
    """Holds the equations that one sum imposes on n rows.

    Args:
        question: a `FuzzySpread` or `FuzzySums`.
        observed: the answer, float64 of shape (n_equations,).
    """

    question: FuzzySpread | FuzzySums
    observed: FloatArray

    @classmethod
    def of(cls, question: Question, answer: Statistics) -> Equations | None:
        """Return the equations of an answer; None if its question is of another type."""
        if isinstance(question, FuzzySpread):
            return cls(question, np.concatenate([answer["spread"], answer["membership"]]))
        if isinstance(question, FuzzySums):
            return cls(question, np.concatenate([answer["weight"], answer["weighted"].ravel()]))
        return None

    def phi(self, rows: FloatArray) -> FloatArray:
        """Return what each of `rows` (n, d) alone would answer, float64 of shape (n, n_equations)."""
        offsets = rows[:, None] - self.question.centers
        distances = np.maximum(np.square(offsets).sum(axis=2), _NEAR)
        u = shares(distances.T, self.question.m).T
        if isinstance(self.question, FuzzySpread):
            return np.hstack([distances ** (self.question.q / 2.0), u])
        powers = u**self.question.m
        return np.hstack([powers, (powers[:, :, None] * rows[:, None]).reshape(len(rows), -1)])

    def slopes(self, rows: FloatArray) -> FloatArray:
        """Return the derivatives of `phi`, float64 of shape (n, n_equations, d)."""
        m, offsets = self.question.m, rows[:, None] - self.question.centers
        distances = np.maximum(np.square(offsets).sum(axis=2), _NEAR)
        u = shares(distances.T, m).T
        # d ln D_i = 2 (x - c_i) / D_i, and d u_i = u_i (sum_k u_k d ln D_k - d ln D_i) / (m - 1).
        logs = 2.0 * offsets / distances[:, :, None]
        mean = np.einsum("nk,nkd->nd", u, logs)
        u_slopes = u[:, :, None] * (mean[:, None] - logs) / (m - 1.0)
        if isinstance(self.question, FuzzySpread):
            q = self.question.q
            return np.concatenate([(q / 2.0) * distances[:, :, None] ** (q / 2.0) * logs, u_slopes], axis=1)
        powers, power_slopes = u**m, m * u[:, :, None] ** (m - 1.0) * u_slopes
        products = power_slopes[:, :, None] * rows[:, None, :, None]
        products += powers[:, :, None, None] * np.eye(rows.shape[1])
        return np.concatenate([power_slopes, products.reshape(len(rows), -1, rows.shape[1])], axis=1)


def tells_number(question: Question) -> bool:
    """Say whether a question's answers show the number of rows, through memberships."""
    return isinstance(question, FuzzySpread)


def count_rows(answers: Sequence[tuple[Question, Statistics]]) -> int:
    """Return how many rows a client has, from summed memberships, which must be among the answers.

    The paper's remedy, to hide each client's number of rows, does not help while clients send memberships.
    """
    told = (answer for question, answer in answers if tells_number(question))
    return round(float(next(told)["membership"].sum()))


def independent(parts: Sequence[Equations]) -> int:
    """Return how many equations are independent; a sum's memberships add up to the known number of rows."""
    return sum(len(one.observed) - (1 if isinstance(one.question, FuzzySpread) else 0) for one in parts)


SOLVED = 1e-9
"""Largest RMS residual of a solution, in standard deviations of one row's answers."""
_PUBLIC = 2000
_STEPS = 300


@dataclass(frozen=True)
class FuzzyInversion(PassiveAttack[Points]):
    """Solves for the rows behind fuzzy statistics.

    Args:
        client: position of the client whose answers are attacked; None takes totals (all clients' rows).
        starts: number of independent searches.
        moves: how often each search may move rows out of a local minimum.
        most_unknowns: rows times features above which the attack is not run, as it would take hours.
    """

    client: int | None = 0
    starts: int = 15
    moves: int = 40
    most_unknowns: int = 200

    name: ClassVar[str] = "fuzzy-inversion"
    paper: ClassVar[str] = "Stallmann and Wilbik 2022 name the equations; solving them: ours"
    adversary: ClassVar[str] = "passive server"
    view: ClassVar[str] = "one client's fuzzy statistics over several questions, or totals of few rows"
    prior: ClassVar[str] = "a public sample, or the box of the data, to start from"
    defence: ClassVar[str] = "a secure sum over many rows; differential privacy"
    aim: ClassVar[Aim] = Aim.SHOWN_CLIENT

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Fuzzy statistics without noise, at least one of which shows the number of rows."""
        whose = "of all clients together" if self.client is None else f"of client {self.client} alone"
        what = f"fuzzy statistics {whose}, without noise, memberships among them (as of the fuzzy index)"
        return (
            Reads(
                what=what,
                shown=own_or_total(self.client),
                client=self.client,
                use=tells_number,
                noised=False,
            ),
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Points | NotRun:
        answers = self._answers(view)
        parts = [found for question, answer in answers if (found := Equations.of(question, answer))]
        public = prior.guesses(_PUBLIC, rng)
        if public is None:
            raise ArgumentError(
                "the search needs points to start from: pass public rows, Prior(sample=...), or their "
                "ranges, Prior(low=..., high=...)."
            )
        n, name = count_rows(answers), self.name
        if n * public.shape[1] > self.most_unknowns:
            why = (
                f"{n} rows of {public.shape[1]} features are more unknowns than "
                f"most_unknowns={self.most_unknowns}: the search would take hours"
            )
            return NotRun(attack=name, why=why)
        rows, residual = Search(parts, n, public, rng).run(self.starts, self.moves)
        solved = residual < SOLVED and independent(parts) >= rows.size
        return Points(
            attack=name,
            queries=len(parts),
            points=rows,
            client=self.client,
            confidence=np.full(n, float(solved)),
            without_access=prior.guesses(n, rng),
        )

    def _answers(self, view: View) -> list[tuple[Question, Statistics]]:
        """Return the questions with their answers, each question once."""
        found: dict[bytes, tuple[Question, Statistics]] = {}
        for one in view.sums:
            answer = one.total if self.client is None else one.answers.get(self.client)
            if one.question is not None and answer is not None:
                found[one.question.to_bytes()] = (one.question, answer)
        return list(found.values())


class Search:
    """Searches for n rows whose answers add up to what was observed.

    Args:
        parts: the equations.
        n: number of rows.
        public: rows to start from, float64 of shape (n_public, n_features).
        rng: generator of the starts and moves.
    """

    def __init__(
        self, parts: Sequence[Equations], n: int, public: FloatArray, rng: np.random.Generator
    ) -> None:
        self._parts, self._n, self._public, self._rng = parts, n, public, rng
        raw = self._phi(public)
        # Dividing by the spread of a single row's answer gives all equations equal weight.
        self._scale = np.maximum(raw.std(axis=0), 1e-12 * np.abs(raw).max(axis=0) + 1e-300)
        self._known = raw / self._scale
        self._target = np.concatenate([part.observed for part in parts]) / self._scale
        # Weights of the public rows whose answers add up to the target.
        self._weights = nnls(self._known.T, self._target, maxiter=20 * len(self._known))[0]

    def _phi(self, rows: FloatArray) -> FloatArray:
        return np.hstack([part.phi(rows) for part in self._parts])

    def run(self, starts: int, moves: int) -> tuple[FloatArray, float]:
        """Return the best rows found, (n, n_features), and the root mean square of their residuals."""
        best, least = self._public[: self._n], np.inf
        for number in range(starts):
            rows, residual = self._descend(self._start(number))
            for _ in range(moves):
                if residual < SOLVED:
                    break
                moved, other = self._descend(self._move(rows))
                if other < residual:
                    rows, residual = moved, other
            if residual < least:
                best, least = rows, residual
            if least < SOLVED:
                break
        return best, least

    def _start(self, number: int) -> FloatArray:
        # Every third start uses uniformly drawn public rows, as the weights can mislead.
        if number % 3 == 2 or not self._weights.any():
            chosen = self._rng.integers(len(self._public), size=self._n)
        else:
            places = (self._rng.random() + np.arange(self._n)) / self._n * self._weights.sum()
            order = self._rng.permutation(len(self._weights))
            drawn = np.searchsorted(np.cumsum(self._weights[order]), places)
            chosen = order[np.minimum(drawn, len(order) - 1)]
        spread = 0.05 * self._public.std(axis=0)
        rows: FloatArray = self._public[chosen] + spread * self._rng.normal(size=(self._n, len(spread)))
        return rows

    def _move(self, rows: FloatArray) -> FloatArray:
        """Replace a few rows by the public rows that fit best, of a random quarter of these."""
        moved = rows.copy()
        chosen = self._rng.permutation(self._n)[: self._rng.integers(1, min(4, self._n) + 1)]
        kept = np.delete(rows, chosen, axis=0)
        missing = self._target - (self._phi(kept) / self._scale).sum(axis=0)
        tried = self._rng.permutation(len(self._public))[: len(self._public) // 4]
        for place, left in zip(chosen, range(len(chosen), 0, -1), strict=True):
            # Each of the rows still to be placed should explain an equal part of what is missing.
            distance = np.square(missing / left - self._known[tried]).sum(axis=1)
            best = tried[int(distance.argmin())]
            moved[place], missing = self._public[best], missing - self._known[best]
        return moved

    def _descend(self, rows: FloatArray) -> tuple[FloatArray, float]:
        """Return the local minimum reached from `rows`, and its RMS residual."""
        shape = rows.shape

        def residuals(flat: FloatArray) -> FloatArray:
            missed: FloatArray = (self._phi(flat.reshape(shape)) / self._scale).sum(axis=0) - self._target
            return missed

        def slopes(flat: FloatArray) -> FloatArray:
            each = np.concatenate([part.slopes(flat.reshape(shape)) for part in self._parts], axis=1)
            turned: FloatArray = np.moveaxis(each / self._scale[:, None], 1, 0).reshape(len(self._scale), -1)
            return turned

        determined = len(self._target) >= rows.size
        found = least_squares(
            residuals,
            rows.ravel(),
            jac=slopes,
            method="lm" if determined else "trf",
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=_STEPS,
        )
        return found.x.reshape(shape), float(np.sqrt(np.square(found.fun).mean()))
