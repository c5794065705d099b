"""Measures what rounded centroids leave (docs/attacks/not-sufficient.md).

`python -m tests.attacks.reconstruction.rounding_figures` prints the figures of columns that were measured,
and of columns of whole numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn import datasets

from privfed.attacks import Differencing, Prior, Truth, evaluate
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from tests.attacks.figures import fitted, line, real


def rounded(view: View, decimals: int) -> View:
    """Return a view in which clients had rounded the centroids that they sent."""

    def other(one: Statistics) -> Statistics:
        if "count" not in one:
            return one
        counts = one["count"][:, None]
        return Statistics(
            count=one["count"], sum=counts * np.round(one["sum"] / np.maximum(counts, 1.0), decimals)
        )

    sums = (replace(one, answers={i: other(a) for i, a in one.answers.items()}) for one in view.sums)
    return replace(view, sums=tuple(sums))


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
        for decimals in (10, 2, 1, 0):
            for prior in (Prior(), Prior(step=np.ones(64))):
                reports = []
                for seed, view in enumerate(views):
                    seen = rounded(view, decimals)
                    found = Differencing(client=0).run(seen, prior, np.random.default_rng(0))
                    reports.append(evaluate(found, Truth(digits(seed))))
                known = "known to be whole" if prior.step is not None else "unknown"
                line(f"digits (5 seeds), {init}, {decimals} decimals, {known}", reports)


if __name__ == "__main__":
    rounding()
    whole_numbers()
