"""The equations that fuzzy statistics impose on the rows behind them, and their derivatives.

Each sum shows s = sum of phi(x) over the n rows of a client, with phi smooth and public:

* `FuzzySpread` (Stallmann and Wilbik 2022, FedFuzzDB, eq. 12 and 13): phi = (||x - c_i||^q, u_i(x)),
* `FuzzySums` (fuzzy c-means, eq. 6): phi = (u_i(x)^m, u_i(x)^m x).

The memberships of a row add up to one, so the summed memberships add up to the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.algorithms.fuzzy import FuzzySums
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import FloatArray
from privfed.numerics.memberships import shares
from privfed.questions.cluster_spread import FuzzySpread

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
