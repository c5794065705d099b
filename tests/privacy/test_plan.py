"""A plan says beforehand what noise fits then have, from public numbers alone."""

from typing import Any

import numpy as np
import pytest

from privfed import Ball, Box, DPKMeans, Privacy
from privfed.errors import ArgumentError, PrivacyError

CENTERS = np.array([(-0.6, -0.6), (0.6, -0.55), (0.0, 0.05), (-0.55, 0.6), (0.6, 0.6)])
NORMALS = np.random.default_rng(7).standard_normal((6000, 2))
ROWS = np.clip(CENTERS[np.arange(6000) % 5] + 0.1 * NORMALS, -1.0, 1.0)
DISTANCE = 0.1 * float(np.sqrt(np.pi / 2.0))


def privacy(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**(known | {"domain": Box(-1.0, 1.0, max_rows=6000)} | words))


@pytest.mark.parametrize("words", [{"epsilon": 0.5}, {"epsilon": 4.0}, {"neighbours": "replace-one"}])
@pytest.mark.parametrize("copies", [1, 3])
def test_fits_have_the_noise_that_was_planned(words: dict[str, Any], copies: int) -> None:
    own = privacy(noise_seed=1, **words)
    plan = own.plan(6000, 5, 2, distance=DISTANCE, copies=copies)
    model = DPKMeans(5, protocol="plain", privacy=own, random_state=0).fit(np.array_split(ROWS, copies))
    found = model.intervals()
    assert plan.size_noise == pytest.approx((found.sizes_high - found.sizes)[0] / 1.96, rel=0.25)
    assert plan.mean_noise == pytest.approx(np.median(found.noise) / np.sqrt(2.0), rel=0.25)
    assert abs(plan.rounds - model.n_iter_) <= 1
    best = np.square(ROWS - CENTERS[np.arange(6000) % 5]).sum()
    cost = np.square(ROWS[:, None] - model.cluster_centers_).sum(axis=2).min(axis=1).sum()
    assert plan.cost_ratio is not None and cost / best < 1.0 + 8.0 * (plan.cost_ratio - 1.0) + 0.005


@pytest.mark.filterwarnings("ignore:the centers are mostly noise")
def test_clusters_stand_out_from_the_least_epsilon_on() -> None:
    least = privacy().plan(6000, 5, 2, distance=DISTANCE).least_epsilon
    assert privacy(epsilon=0.99 * least).plan(6000, 5, 2).cost_ratio is None
    marked = []
    for epsilon in (least, least / 16.0):
        model = DPKMeans(5, protocol="plain", privacy=privacy(epsilon=epsilon, noise_seed=1)).fit([ROWS])
        marked.append(int(model.intervals().mostly_noise.sum()))
    assert marked[0] == 0 and marked[1] >= 3


def test_more_rows_need_less_epsilon_and_copies_more() -> None:
    plans = [privacy().plan(n, 5, 2, copies=copies) for n, copies in ((500, 1), (5000, 1), (5000, 10))]
    few, many, copied = (one.least_epsilon for one in plans)
    assert many < copied < few and "least epsilon" in str(plans[0])
    assert privacy().plan(1, 5, 2).least_epsilon == np.inf and "none below" in str(privacy().plan(1, 5, 2))
    ball = privacy(domain=Ball(1.0, max_rows=10)).plan(5000, 5, 2)
    assert ball.mean_noise < plans[1].mean_noise


def test_what_cannot_be_planned_is_refused() -> None:
    with pytest.raises(PrivacyError, match='unit="record"'):
        privacy(unit="client").plan(1000, 3, 2)
    for wrong in ({"n_rows": 0}, {"n_clusters": 0}, {"n_features": 1.5}, {"distance": -1.0}, {"copies": 0}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            privacy().plan(**({"n_rows": 100, "n_clusters": 3, "n_features": 2} | wrong))
