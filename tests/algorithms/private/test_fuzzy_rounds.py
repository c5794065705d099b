"""Private fuzzy c-means reaches the fuzzy objective, where the domain is much wider than a cluster."""

from typing import Any

import numpy as np
import pytest

from privfed.algorithms.private.kmeans import FixedKMeans, PrivateKMeans
from privfed.algorithms.private.noised_rounds import Steps
from privfed.estimators.private import FuzzyStep
from privfed.numerics.kernels.interpreted import squared_distances
from tests.algorithms.private.test_any_totals import of_rows, setting_of
from tests.algorithms.private.test_fixed import on_a_line, scattered

FUZZIFIER = 2.0


def objective(rows: np.ndarray, centers: np.ndarray) -> float:
    """Return the sum of u^2 times squared distances (Bezdek), which is a harmonic mean for m = 2."""
    return float((1.0 / (1.0 / np.maximum(squared_distances(rows, centers), 1e-12)).sum(axis=1)).sum())


def converged(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Return the centers after fuzzy c-means without privacy."""
    for _ in range(100):
        closeness = 1.0 / np.maximum(squared_distances(rows, centers), 1e-12)
        weights = np.square(closeness / closeness.sum(axis=1, keepdims=True))
        centers = weights.T @ rows / weights.sum(axis=0)[:, None]
    return centers


@pytest.mark.parametrize("make", [on_a_line, scattered])
@pytest.mark.parametrize("kind", [PrivateKMeans, FixedKMeans])
def test_rounds_clip_by_the_distances_that_were_told_so_far_clusters_add_little_noise(
    make: Any, kind: Any
) -> None:
    rows, k = make(20)
    found = []
    for seed in range(3):
        setting, rng = setting_of(0.5, 20), np.random.default_rng([seed, 4])
        rounds = {"rounds": 5} if kind is FixedKMeans else {}
        running = kind(n_clusters=k, seed=seed, steps=Steps(asking=FuzzyStep(FUZZIFIER)), **rounds).run(
            setting
        )
        ask = next(running)
        while True:
            try:
                ask = running.send(of_rows(ask, rows, setting, rng))
            except StopIteration as finished:
                centers = finished.value.centers
                break
        found.append(objective(rows, centers) / objective(rows, converged(rows, centers)))
    assert np.median(found) < 1.1, found
