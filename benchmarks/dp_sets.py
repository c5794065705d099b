"""Made and public sets on which private k-means is hard, and fits on them that are fast enough to repeat.

A fit asks the product's own questions of all rows at once; the totals get Gaussian noise in floating point,
of the size that one claim needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from benchmarks.utility import blobs, g2, scaled
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.core.values.domain import Box
from privfed.core.values.guarantee import Neighbours, Noise, Unit
from privfed.privacy.accounting import gdp_mu

Made = tuple[np.ndarray, int]


def corner(d: int, seed: int, n: int = 5000, k: int = 5, side: float = 0.01) -> Made:
    """Make clusters within a small part of the box."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    rows = centers[rng.integers(k, size=n)] + 0.1 * rng.standard_normal((n, d))
    return np.clip(0.63 + side * rows, -1, 1), k


def nested(d: int, seed: int) -> Made:
    """Make three groups far apart, of three clusters each."""
    rng = np.random.default_rng(seed)
    groups = np.array([[-0.8] * d, [0.8] * d, [-0.8] + [0.8] * (d - 1)])
    centers = np.concatenate([group + 0.04 * rng.uniform(-1, 1, (3, d)) for group in groups])
    return np.clip(centers[rng.integers(9, size=6000)] + 0.004 * rng.standard_normal((6000, d)), -1, 1), 9


def sizes(d: int, seed: int, k: int = 6) -> Made:
    """Make clusters of 1 to 100 times the rows."""
    rng = np.random.default_rng(seed)
    weights = np.geomspace(1, 100, k)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    own = rng.choice(k, 10_000, p=weights / weights.sum())
    return np.clip(centers[own] + 0.05 * rng.standard_normal((10_000, d)), -1, 1), k


def line(d: int, seed: int, k: int = 8) -> Made:
    """Make clusters along a line."""
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(d)
    direction /= np.linalg.norm(direction)
    places = 2 * np.linspace(-1, 1, k)[rng.integers(k, size=5000)] + 0.08 * rng.standard_normal(5000)
    rows = places[:, None] * direction + 0.01 * rng.standard_normal((5000, d))
    return np.clip(rows, -1, 1), k


def duplicates(d: int, seed: int, k: int = 8, different: int = 25) -> Made:
    """Make rows of which there are only a few different ones."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-0.9, 0.9, (different, d))
    return rows[rng.choice(different, 5000, p=rng.dirichlet(np.ones(different)))], k


def gaussians(n: int, d: int, k: int, seed: int) -> Made:
    """Make equal Gaussian clusters that fill the box."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    return np.clip(centers[rng.integers(k, size=n)] + 0.15 * rng.standard_normal((n, d)), -1, 1), k


SETS: dict[str, Callable[[], Made]] = {
    "corner3": lambda: corner(3, 0),
    "corner16": lambda: corner(16, 20, n=8000, k=6, side=0.05),
    "nested2": lambda: nested(2, 1),
    "sizes5": lambda: sizes(5, 21),
    "line20": lambda: line(20, 3),
    "dup2": lambda: duplicates(2, 4),
    "syn16": lambda: gaussians(10_000, 16, 8, 5),
    "breast": lambda: (scaled(load_breast_cancer().data), 2),
    "wine": lambda: (scaled(load_wine().data), 3),
    "digits": lambda: (load_digits().data / 8 - 1, 10),
    "blobs": blobs,
    # The other half.
    "corner2": lambda: corner(2, 31, k=8, side=0.003),
    "corner8": lambda: corner(8, 30),
    "nested3": lambda: nested(3, 32),
    "sizes2": lambda: sizes(2, 36),
    "dup6": lambda: duplicates(6, 35),
    "syn4": lambda: gaussians(20_000, 4, 4, 37),
    "iris": lambda: (scaled(load_iris().data), 3),
    "g2": g2,
}


def total(ask: Ask, data: ClientData, budget: float, rng: np.random.Generator) -> Total:
    """Answer for all rows, with the noise that the question's weights pay for (add-remove, unit record)."""
    exact = ask.question.answer(data, rng)
    bounds = ask.question.bounds  # type: ignore[attr-defined]
    std = {name: float(bounds[name].l2 / np.sqrt((ask.weights or {})[name] * budget)) for name in exact}
    noised = {name: exact[name] + std[name] * rng.standard_normal(exact[name].shape) for name in exact}
    return Total(Statistics(**noised), (0,), noise_std=std)


def fitted(algorithm: Any, rows: np.ndarray, epsilon: float, seed: int, delta: float = 1e-6) -> np.ndarray:
    """Return the centers that an algorithm finds in the box [-1, 1]."""
    budget, rng, data = gdp_mu(epsilon, delta) ** 2, np.random.default_rng([seed, 77]), ClientData(rows)
    terms = PrivacyTerms(
        epsilon=epsilon,
        delta=delta,
        unit=Unit.RECORD,
        neighbours=Neighbours.ADD_REMOVE,
        noise=Noise.DISTRIBUTED,
        budget=budget,
    )
    running = algorithm.run(Setting(("0",), rows.shape[1], Box(-1, 1), privacy=terms))
    ask = next(running)
    while True:
        try:
            ask = running.send(total(ask, data, budget, rng))
        except StopIteration as finished:
            centers: np.ndarray = finished.value.centers
            return centers
