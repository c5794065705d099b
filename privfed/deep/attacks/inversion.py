"""Gradient inversion: rows of single clients, from updates that the server sees one by one.

A softmax regression that a client trains in one step has the gradient (1 / n) sum of (x, 1) (p(x) - y)^T, for
models that the server sent itself. Several rounds give more equations than a client's few rows have unknown
values. Without noise these have one solution, which is found by least squares (Zhu, Liu and Han, Deep Leakage
from Gradients, NeurIPS 2019; the equations of several rounds together, the check and the links: ours).

Rounds in which clients hold rows out are solved by themselves, where later ones do not tell all rows.

In the first rounds p is nearly the same on all rows, so that the gradient of the biases tells the shares of
the classes (`likely_of`): these with a number of rows give whole counts. The rank of the gradients of all
rounds is that number where rows are fewer than columns; then each row is found by itself (`_one_by_one`), and
all are made exact together. Else numbers are tried, and the first that fits is taken. A wrong link between
two rounds fits nothing, so that links are checked, too. Of a network the first layer is read
(`privfed.deep.attacks.first_layer`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import least_squares

from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.results import Points
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.deep.attacks.first_layer import TOLERANCE, near_of, repeated_rows
from privfed.deep.attacks.updates import OnWholeUpdates, Seen, clients_of, gradients_of, likely_of, rank_of
from privfed.deep.training.rounds import round_of
from privfed.deep.training.trainer import Labels

STARTS = 3
"""Random rows to start from that are tried for each number of rows."""

MOST_VALUES, MOST_OF_STEPS = 156, 32 * 32
"""Most values of a client that are sought from rows about as those of their classes, and of several steps:
time grows with their cube."""

ATTEMPTS = 40
"""Searches for single rows, for each row of a client."""

OUTSIDE = 1e-3
"""Weight of how far values lie outside of the ranges: true rows have none. Of 32 rows of two epochs a search
took 75 steps, and without it more than 1,000."""

STEPS, EARLY, UNEXPLAINED = 400, 50, 0.01
"""Most steps of a search, and after how many it ends if it leaves more than this share of the gradients.

On iris, wine and digits (seeds 0 to 2) it finds what searches without this end found. Where clients took two
steps, no search left less than 3 %."""


@dataclass(frozen=True)
class GradientInversion(OnWholeUpdates[Points]):
    """Finds the rows of clients that train a softmax regression, or a network, on all rows at once.

    Of softmax regressions also those of a few epochs, of up to 32 rows a client.

    Args:
        most_rows: most rows of a client that are tried with a softmax regression.
        units: of a network's first layer, linear and rectified; 0 for what follows from one hidden layer.
    """

    most_rows: int = 32
    units: int = 0

    name: ClassVar[str] = "gradient-inversion"
    paper: ClassVar[str] = "Zhu, Liu and Han 2019; Geiping et al. 2020; rounds together, checked: ours"

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Count rows that are found within `TOLERANCE`."""
        made = super().prepare(target, parameters)
        return replace(made, truth=replace(made.truth, tolerance=TOLERANCE))

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Points:
        clients = [(client, gradients_of(seen, self.units)) for client, seen in clients_of(view, rng)]
        solved = [(client, rows) for client, seen in clients if (rows := self._solved(seen, rng)) is not None]
        whose = [client for client, _ in solved]
        rounds = (found for one in view.sums if (found := round_of(one.question)) is not None)
        # Where it looked and could not tell nothing is claimed; that these updates tell nothing is not found.
        nothing = np.empty((0, next(rounds).ranges.n_features))
        points = np.concatenate([nothing, *(rows for _, rows in solved)])
        named = [client for client in whose if client is not None]
        owners = np.repeat(named, [len(rows) for _, rows in solved]) if len(named) == len(whose) > 0 else None
        return Points(
            attack=self.name,
            queries=max((len(seen) for _, seen in clients), default=0),
            points=points,
            owners=owners,
            without_access=prior.guesses(len(points), rng),
        )

    def _solved(self, seen: Sequence[Seen], rng: np.random.Generator) -> FloatArray | None:
        """Return a client's rows that rounds of all its rows tell, or else those of fewer; None without."""
        for held in (False, True):
            some = [one for one in seen if one.held == held]
            found = self._explained(some, rng) if some else None
            if found is not None:
                return found
        return None

    def _explained(self, seen: Sequence[Seen], rng: np.random.Generator) -> FloatArray | None:
        """Return the least number of rows that explain rounds of the same rows."""
        first = seen[0]
        if not first.whole:
            models, gradients = np.stack([(one.model, one.gradient) for one in seen], axis=1)
            return repeated_rows(models, gradients, first.ranges, first.rate, first.error)
        (width, n_classes), rank = first.model.shape, rank_of(seen)
        # Of several steps at the model in their middle.
        middle = first.model - (first.steps - 1) / 2.0 * first.rate * first.gradient
        shares = likely_of(replace(first, model=middle)) - first.gradient[-1]
        least, most = (first.rows, first.rows) if first.rows else (max(1, rank), self.most_rows)
        for n in range(least, min(most, self.most_rows) + 1):
            # A third more equations than values: what fits then, fits by no chance.
            if 3 * len(seen) * min(n, width) * (n_classes - 1) < 4 * n * (min(n, width) - 1):
                break
            counts = np.rint(shares * n).astype(np.intp)
            if counts.min() < 0 or counts.sum() != n or np.abs(shares * n - counts).max() > 0.4:
                continue
            labels = np.repeat(np.arange(n_classes), counts)
            for start in _starts(seen, labels, rank, rng):
                rows = _fitted(seen, labels, start)
                if rows is not None:
                    return rows
        return None


def _starts(
    seen: Sequence[Seen], labels: Labels, rank: int, rng: np.random.Generator
) -> Iterator[FloatArray]:
    """Yield rows to start from, float64 of shape (n, n_features + 1), the last column of ones."""
    n, (width, n_classes), first = len(labels), seen[0].model.shape, seen[0].gradient
    if seen[0].steps == 1 and n == rank and len(seen) > 1 and 2 * n <= len(seen) * (n_classes - 1) + 2:
        found = _one_by_one(seen, labels, rng)
        if found is not None:
            yield found
    about = np.full((n, width), 0.5)
    if len(seen) > 1:
        about = (_mean_row(seen) / n_classes - first[:, labels].T) / np.bincount(labels)[labels, None] * n
    most = MOST_VALUES if seen[0].steps == 1 else MOST_OF_STEPS
    for _ in range(STARTS if n * min(n, width) <= most else 0):
        yield np.column_stack([rng.normal(about[:, :-1], 0.3), np.ones(n)])


def _one_by_one(seen: Sequence[Seen], labels: Labels, rng: np.random.Generator) -> FloatArray | None:
    """Find rows one after the other, up to rounding; None where some is not found.

    Stack the errors of the rounds, p - y, as E, and the gradients as G = X^T E / n. If the n rows of X are
    independent, E = B G with X B^T = n I in the plane of the rows. So a row x is one whose errors e lie in
    the row space of G, e = b G, with b x = n. Other rows x' have b x' = 0: what is left is sought there.
    """
    n, n_classes, first = len(labels), seen[0].model.shape[1], seen[0].gradient
    every = np.linalg.svd(np.concatenate([one.gradient for one in seen], axis=1), full_matrices=False)
    axes, sizes, across = every[0][:, :n], every[1][:n], every[2][:n]
    models = np.stack([axes.T @ one.model for one in seen])
    # On the digits errors of true rows left it by up to nine times the grid's own error.
    exact = max(1e-12, 30.0 * max(one.error for one in seen))
    mean = _mean_row(seen)

    def errors(row: FloatArray, label: int) -> tuple[FloatArray, FloatArray]:
        found = _likely(row[None], models)[:, 0]
        found[:, label] -= 1.0
        return found.ravel(), across @ found.ravel() / sizes

    def residuals(values: FloatArray, kept: FloatArray, label: int) -> FloatArray:
        row = values @ kept
        found, dual = errors(row, label)
        return np.append(found - (dual * sizes) @ across, [row @ axes[-1] - 1.0, row @ dual / n - 1.0])

    def jacobian(values: FloatArray, kept: FloatArray, label: int) -> FloatArray:
        row = values @ kept
        by_row = _slopes(_likely(row[None], models), models).reshape(-1, n)
        along = across @ by_row
        last = (errors(row, label)[1] + row @ (along / sizes[:, None])) / n
        return np.concatenate([by_row - across.T @ along, axes[-1:], last[None]]) @ kept.T

    left, found = labels.tolist(), list[int]()
    rows = duals = np.empty((0, n))
    for attempt in range(ATTEMPTS * n):
        label = left[attempt % len(left)]
        about = (mean / n_classes - first[:, label]) / np.mean(labels == label)
        about[:-1] += rng.normal(0.0, 0.5, len(about) - 1)
        row = about @ axes
        for kept in (np.linalg.svd(duals)[2][len(duals) :], np.eye(n)):
            with np.errstate(all="ignore"):
                end = least_squares(
                    residuals,
                    kept @ row,
                    jacobian,
                    method="lm",
                    max_nfev=40,
                    args=(kept, label),
                    xtol=1e-15,
                    ftol=1e-15,
                    gtol=1e-15,
                )
            row, remains = end.x @ kept, float(np.abs(end.fun).max())
            if not remains < 1e-3:
                break
        if remains < exact and np.all(np.abs(duals @ row) < n / 2):
            left.remove(label)
            rows, duals = np.vstack([rows, row]), np.vstack([duals, errors(row, label)[1]])
            found.append(label)
        if not left:
            return np.asarray(rows[np.argsort(found, kind="stable")] @ axes.T)
    return None


def _mean_row(seen: Sequence[Seen]) -> FloatArray:
    """Return about the mean row: gradients of a class change with its biases' as that does, nearly."""
    changes = np.concatenate([one.gradient - seen[0].gradient for one in seen], axis=1)
    return np.asarray(changes @ changes[-1] / (changes[-1] @ changes[-1]))


def _likely(rows: FloatArray, models: FloatArray) -> FloatArray:
    """Return the chances of the classes, float64 of shape (n_rounds, n_rows, n_classes)."""
    scores = rows @ models
    likely = np.exp(scores - scores.max(axis=2, keepdims=True))
    return np.asarray(likely / likely.sum(axis=2, keepdims=True))


def _slopes(likely: FloatArray, models: FloatArray) -> FloatArray:
    """Return how these change with the row: d p_c / d x_j = p_c (W_jc - sum over classes of p W_j)."""
    slopes = np.swapaxes(models, 1, 2)
    return np.asarray(likely[..., None] * (slopes[:, None] - (likely @ slopes)[:, :, None, :]))


def _fitted(seen: Sequence[Seen], labels: Labels, start: FloatArray) -> FloatArray | None:
    """Solve for the rows of these labels; None where nothing fits, or values are not told well enough.

    All gradients are combinations of the rows, with a one for the biases: n rows are sought in the plane of
    the gradients' first n principal axes.
    """
    n, n_classes = len(labels), seen[0].model.shape[1]
    axes = np.linalg.svd(np.concatenate([one.gradient for one in seen], axis=1), full_matrices=False)[0]
    axes = axes[:, :n]
    models = np.stack([axes.T @ one.model for one in seen])
    gradients = np.stack([axes.T @ one.gradient for one in seen])
    wanted, shape = np.eye(n_classes)[labels], (n, axes.shape[1])
    own, steps, rate = np.arange(shape[1]), seen[0].steps, seen[0].rate
    low, high = seen[0].ranges.low, seen[0].ranges.high

    def walked(rows: FloatArray) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Yield for each step the models, what they say of rows, and the gradient there."""
        now = models
        for _ in range(steps):
            likely = _likely(rows, now)
            gradient = rows.T @ (likely - wanted) / n
            yield now, likely, gradient
            now = now - rate * gradient

    def residuals(values: FloatArray) -> FloatArray:
        rows = values.reshape(shape)
        missed, points = sum(one / steps for _, _, one in walked(rows)) - gradients, rows @ axes[:-1].T
        beyond = OUTSIDE * (points - np.clip(points, low, high))
        return np.concatenate([missed.ravel(), rows @ axes[-1] - 1.0, beyond.ravel()])

    def jacobian(values: FloatArray) -> FloatArray:
        rows, total = values.reshape(shape), np.zeros((len(models), len(own) * n_classes, values.size))
        for now, likely, _ in walked(rows):
            found = np.einsum("ik,ricj->rkcij", rows / n, _slopes(likely, now))
            found[:, own, :, :, own] += np.transpose((likely - wanted) / n, (0, 2, 1))[None]
            step = found.reshape(total.shape)
            if total.any():
                # Earlier steps move the model as rows do.
                bent = likely[..., None] * (np.eye(n_classes) - likely[..., None, :])
                curved = np.einsum("ik,ij,ricd->rkcjd", rows / n, rows, bent, optimize=True)
                step = step - rate * curved.reshape(len(models), total.shape[1], -1) @ total
            total += step
        points, beyond = rows @ axes[:-1].T, np.zeros((n, len(axes) - 1, n, len(own)))
        outside = (points < low) | (points > high)
        beyond[range(n), :, range(n)] = OUTSIDE * outside[:, :, None] * axes[:-1]
        parts = total / steps, np.kron(np.eye(n), axes[-1]), beyond
        return np.concatenate([part.reshape(-1, values.size) for part in parts])

    error = max(one.error for one in seen)
    with np.errstate(all="ignore"):
        values, missed, slopes = _accelerated(
            residuals,
            jacobian,
            (start @ axes).ravel(),
            0.1 * error * math.sqrt(gradients.size),
            UNEXPLAINED * float(np.linalg.norm(gradients)),
        )
    equations = gradients.size + n
    remains = math.sqrt(float(np.mean(np.square(missed[:equations]))))
    if not remains <= 2.0 * error:
        return None
    rows = values.reshape(shape) @ axes.T
    # How far values lie from those found, for errors as large as the grid's or as what no rows explain.
    sizes, ways = np.linalg.svd(slopes[:equations], full_matrices=False)[1:]
    with np.errstate(all="ignore"):
        spread = float(np.sqrt(np.square(ways.T / sizes).sum(axis=1).max()))
    rows = rows[:, :-1]
    return rows if near_of(rows) > 3.0 * max(remains, error) * spread else None


def _accelerated(
    residuals: Callable[[FloatArray], FloatArray],
    jacobian: Callable[[FloatArray], FloatArray],
    at: FloatArray,
    error: float,
    most: float,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return values of the least squares, with residuals and slopes there.

    Levenberg's and Marquardt's steps crawl along a narrow valley that bends. These follow the bend (geodesic
    acceleration: Transtrum and Sethna 2012, arXiv 1201.5885, equation 9).

    Args:
        residuals: of values.
        jacobian: their slopes.
        at: values to start from.
        error: length of residuals at which it ends.
        most: length that ends it after `EARLY` steps.
    """
    damping, fun, slopes = 0.005, residuals(at), jacobian(at)
    normal = slopes.T @ slopes
    for step in range(STEPS):
        length = float(np.linalg.norm(fun))
        if not (error < length < math.inf and damping < 1e6 and (step < EARLY or length < most)):
            break
        damping *= 2.0
        try:
            factor = cho_factor(normal + np.diag(damping * np.diag(normal)), check_finite=False)
        except np.linalg.LinAlgError:
            continue
        along = -cho_solve(factor, slopes.T @ fun, check_finite=False)
        bend = 20.0 * (10.0 * (residuals(at + 0.1 * along) - fun) - slopes @ along)
        aside = -0.5 * cho_solve(factor, slopes.T @ bend, check_finite=False)
        missed = residuals(at + along + aside)
        if np.linalg.norm(missed) < length and np.linalg.norm(aside) < 0.375 * np.linalg.norm(along):
            at, fun, damping = at + along + aside, missed, max(damping / 6.0, 1e-12)
            slopes = jacobian(at)
            normal = slopes.T @ slopes
    return at, fun, slopes
