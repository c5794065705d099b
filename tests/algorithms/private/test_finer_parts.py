"""Cells that hold several clusters are cut finer, unless noise would hide what is in the parts."""

from typing import Any

import numpy as np
import pytest

from privfed.algorithms.private.grids import FINE_PARTS
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Setting, Total
from privfed.core.values.domain import Box
from privfed.core.values.guarantee import Neighbours, Noise, Unit
from privfed.privacy.accounting import gdp_mu

FEW = 100


def grouped(d: int) -> np.ndarray:
    """Make three groups far apart, of three clusters of 1,000 rows each, and five clusters of few rows."""
    rng = np.random.default_rng(3)
    groups = np.array([[-0.8] * d, [0.8] * d, [-0.8] + [0.8] * (d - 1)])
    large = np.concatenate([group + 0.04 * rng.uniform(-1, 1, (3, d)) for group in groups])
    small = rng.uniform(-0.6, 0.6, (5, d))
    centers = np.concatenate([np.repeat(large, 1000, axis=0), np.repeat(small, FEW, axis=0)])
    return np.clip(centers + 0.004 * rng.standard_normal(centers.shape), -1, 1)


def cuts_of(rows: np.ndarray, n_clusters: int, epsilon: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return into how many parts an axis cells were cut in a private fit, and how many rows each has."""
    d, rng, data = rows.shape[1], np.random.default_rng(seed), ClientData(rows)
    budget = gdp_mu(epsilon, 1e-6) ** 2
    terms = PrivacyTerms(
        epsilon=epsilon,
        delta=1e-6,
        unit=Unit.RECORD,
        neighbours=Neighbours.ADD_REMOVE,
        noise=Noise.DISTRIBUTED,
        budget=budget,
    )
    fit = PrivateKMeans(n_clusters=n_clusters, seed=seed).run(Setting(("0",), d, Box(-1, 1), privacy=terms))
    ask, counts = next(fit), np.zeros(0)
    while True:
        question: Any = ask.question
        exact = question.answer(data, rng)
        std = {name: question.bounds[name].l2 / np.sqrt((ask.weights or {})[name] * budget) for name in exact}
        if ask.purpose == "coreset":
            if question.cuts is not None:
                return np.asarray(question.cuts), counts
            counts = np.asarray(exact["count"])
        noised = {name: exact[name] + std[name] * rng.standard_normal(exact[name].shape) for name in exact}
        ask = fit.send(Total(Statistics(**noised), (0,), noise_std=std))


@pytest.mark.parametrize("d", [2, 3])
def test_cells_of_several_clusters_are_cut_finer_and_those_of_few_rows_are_not(d: int) -> None:
    cuts, counts = cuts_of(grouped(d), 14, 0.5, 1)
    assert cuts.shape == counts.shape and (counts > 1000).any()
    assert cuts[counts > 1000].min() >= FINE_PARTS[d - 1]
    assert cuts[counts <= FEW].max() < FINE_PARTS[d - 1]


@pytest.mark.parametrize("d", [2, 3])
def test_where_noise_hides_clusters_few_full_cells_are_no_reason(d: int) -> None:
    cuts, counts = cuts_of(grouped(d)[:9000], 9, 0.1, 1)
    assert (counts > 1000).any() and cuts.max() < FINE_PARTS[d - 1]
