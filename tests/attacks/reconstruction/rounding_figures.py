"""Measures what rounded centroids leave (docs/attacks/not-sufficient.md).

`python -m tests.attacks.reconstruction.rounding_figures` prints the figures of columns that were measured,
and of columns of whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from sklearn import datasets

from privfed.attacks import Differencing, Points, Prior, Truth, evaluate
from privfed.attacks.evidence.cells import Observation, evidence_of
from privfed.core.asking.statistics import Statistics
from privfed.core.record.view import View
from privfed.core.values.domain import FloatArray
from tests.attacks.figures import fitted, line, real


def changed(view: View, change: Callable[[FloatArray, FloatArray], FloatArray]) -> View:
    """Return a view in which clients' sums are others: change(counts (n_cells, 1), sums) -> sums."""

    def other(one: Statistics) -> Statistics:
        if "count" not in one:
            return one
        return Statistics(count=one["count"], sum=change(one["count"][:, None], one["sum"]))

    sums = (replace(one, answers={i: other(a) for i, a in one.answers.items()}) for one in view.sums)
    return replace(view, sums=tuple(sums))


def rounded(view: View, decimals: int) -> View:
    """Return a view in which clients had rounded the centroids that they sent."""

    def coarse(counts: FloatArray, sums: FloatArray) -> FloatArray:
        held = np.maximum(counts, 1.0)
        return np.asarray(counts * np.round(sums / held, decimals))

    return changed(view, coarse)


def in_whole_numbers(view: View) -> View:
    """Return a view with sums rounded to whole numbers, as an attacker does who knows that rows are."""
    return changed(view, lambda counts, sums: np.rint(sums))


def digits(seed: int) -> list[FloatArray]:
    """Deal 600 of scikit-learn's digits out to five clients, in grey levels of 0 to 16."""
    rows = datasets.load_digits().data.astype(np.float64)
    order = np.random.default_rng(seed).permutation(len(rows))[:600]
    return [rows[part] for part in np.array_split(order, 5)]


def rounding() -> None:
    """Differencing where clients round the centroids of measured columns."""
    for decimals in (6, 4, 3, 2):
        for init in ("kfed", "coreset"):
            reports = []
            for seed in range(5):
                clients = real("breast_cancer", seed)
                view = fitted(clients, 10, seed, n_init=10, init=init).transcript_.view("server")
                found = Differencing(client=0).run(rounded(view, decimals), Prior(), np.random.default_rng(0))
                reports.append(evaluate(found, Truth(clients, tolerance=0.05)))
            line(f"breast_cancer (5 seeds), {init}, {decimals} decimals, within .05 sd", reports)


def whole_numbers() -> None:
    """Differencing where clients round the centroids of columns of whole numbers."""
    for init in ("kfed", "coreset"):
        views = []
        for seed in range(5):
            model = fitted(digits(seed), 10, seed, n_init=10, init=init)
            views.append(model.transcript_.view("server"))
        for name, seen in (
            ("not rounded", views),
            ("2 decimals", [rounded(view, 2) for view in views]),
            ("2 decimals, in whole numbers", [in_whole_numbers(rounded(view, 2)) for view in views]),
            ("1 decimal, in whole numbers", [in_whole_numbers(rounded(view, 1)) for view in views]),
        ):
            reports = []
            for seed, view in enumerate(seen):
                found = Differencing(client=0).run(view, Prior(), np.random.default_rng(0))
                reports.append(evaluate(found, Truth(digits(seed))))
            line(f"digits (5 seeds), {init}, {name}", reports)


def few_rows() -> None:
    """Differences of sums of fewer than ten rows, which one decimal leaves exact, of grey levels."""
    for init in ("kfed", "coreset"):
        reports = []
        for seed in range(5):
            model = fitted(digits(seed), 10, seed, n_init=10, init=init)
            seen = evidence_of(rounded(model.transcript_.view("server"), 1), 0).observations
            points = np.array(sorted(_alone(seen))).reshape(-1, 64)
            reports.append(evaluate(Points(attack="few rows", points=points, client=0), Truth(digits(seed))))
        line(f"digits (5 seeds), {init}, 1 decimal, sums of fewer than ten rows", reports)


def _alone(seen: Sequence[Observation]) -> set[tuple[float, ...]]:
    """Return the grey levels that lie in their cell, of single rows and of differences of one row."""
    exact: dict[int, dict[tuple[float, ...], tuple[Observation, int]]] = {0: {(0.0,) * 64: (seen[0], 0)}}
    for one in seen:
        for cell, count in enumerate(np.rint(one.counts).astype(int).tolist()):
            if 0 < count < 10:
                exact.setdefault(count, {})[tuple(np.rint(one.sums[cell]).tolist())] = (one, cell)
    found: set[tuple[float, ...]] = set()
    for count in range(1, 10):
        for larger, (one, cell) in exact.get(count, {}).items():
            for smaller in exact.get(count - 1, {}):
                row = np.subtract(larger, smaller)
                if row.min() >= 0 and row.max() <= 16 and one.cells.place(row[None])[0] == cell:
                    found.add(tuple(row.tolist()))
    return found


if __name__ == "__main__":
    rounding()
    whole_numbers()
    few_rows()
