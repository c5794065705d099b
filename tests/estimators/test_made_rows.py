"""Rows made of released sizes and centers, and intervals that include sampling error."""

from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, FederatedFuzzyCMeans, Privacy
from privfed.errors import ArgumentError, BoundsError
from privfed.numerics.kernels.interpreted import squared_distances

CENTERS = np.array([[-0.6, -0.6], [0.6, -0.5], [0.0, 0.6]])
SHARES = np.array([0.6, 0.3, 0.1])


def tables(seed: int = 0, n: int = 3000, spread: float = 0.1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = CENTERS[rng.choice(3, size=n, p=SHARES)] + spread * rng.standard_normal((n, 2))
    return np.array_split(np.clip(rows, -1.0, 1.0), 3)


def privacy(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**{"domain": Box(-1.0, 1.0, max_rows=3000), **known, "noise_seed": 1, **words})


def fitted(**words: Any) -> DPKMeans:
    own = {"privacy": privacy(), "protocol": "plain", "random_state": 0, **words}
    return DPKMeans(3, **own).fit(tables())


def test_made_rows_have_the_clusters_sizes_and_spread_of_the_rows() -> None:
    model = fitted()
    rows, labels = model.sample(20_000, 0)
    assert rows.shape == (20_000, 2) and labels.shape == (20_000,) and np.abs(rows).max() <= 1.0
    nearest = squared_distances(CENTERS, np.asarray(model.cluster_centers_)).argmin(axis=1)
    for j, share in zip(nearest, SHARES, strict=True):
        own = rows[labels == j]
        assert len(own) / 20_000 == pytest.approx(share, abs=0.03)
        assert np.linalg.norm(own.mean(axis=0) - np.asarray(model.cluster_centers_)[j]) < 0.02
        assert np.sqrt(own.var(axis=0).mean()) == pytest.approx(0.1, rel=0.2)
    again = model.sample(20_000, 0)
    np.testing.assert_array_equal(again[0], rows)
    payments = len(model.privacy_claim_.payments)
    model.sample(5)
    assert len(model.privacy_claim_.payments) == payments


def test_several_uncertain_samples_vary_by_what_noise_leaves_open() -> None:
    """Shares in 16 fits, each beside its own uncertain samples: these cover the rows' own share."""
    covered = 0
    for seed in range(16):
        model = fitted(privacy=privacy(epsilon=0.3, noise_seed=seed))
        nearest = int(squared_distances(CENTERS[:1], np.asarray(model.cluster_centers_)).argmin())
        sure = np.array([np.mean(model.sample(2000, k)[1] == nearest) for k in range(20)])
        drawn = [np.mean(model.sample(2000, k, uncertain=True)[1] == nearest) for k in range(80)]
        assert np.std(drawn) > np.std(sure)
        rows = np.concatenate(tables())
        exact = (squared_distances(rows, np.asarray(model.history_[-2])).argmin(axis=1) == nearest).mean()
        low, high = np.quantile(drawn, [0.025, 0.975])
        covered += low <= exact <= high
    assert covered >= 12


def test_made_rows_are_in_the_columns_units_and_inside_a_ball_of_noise() -> None:
    far = [100.0 * rows + 500.0 for rows in tables()]
    own = privacy(domain=Box(380.0, 620.0, max_rows=3000))
    model = DPKMeans(3, scale="standard", privacy=own, protocol="plain", random_state=0).fit(far)
    rows, _ = model.sample(3000, 1)
    assert rows.min() >= 380.0 and rows.max() <= 620.0
    np.testing.assert_allclose(rows.mean(axis=0), np.concatenate(far).mean(axis=0), atol=8.0)


def test_what_has_no_noised_sizes_makes_no_rows() -> None:
    model = DWFKMeans(3, protocol="plain", random_state=0).fit(tables())
    with pytest.raises(ArgumentError):
        model.sample(10)
    for wrong in (0, -1, 1.5, "all"):
        with pytest.raises(BoundsError):
            fitted().sample(wrong)


@pytest.mark.parametrize("spread", [0.05, 0.2])
def test_intervals_with_sampling_error_cover_what_other_rows_of_the_same_kind_show(spread: float) -> None:
    """Sizes and means that fresh rows would have at the centers asked about; noise alone covers too few."""
    fresh = np.concatenate(tables(1000, 100_000, spread))
    covered, without = [], []
    for seed in range(16):
        own = privacy(epsilon=8.0, noise_seed=seed)
        model = DPKMeans(3, privacy=own, protocol="plain", random_state=0).fit(tables(seed, 600, spread))
        asked = np.asarray(model.history_[-2])
        found = model.intervals(sampling=True)
        assert found.sampling and found.radius is not None
        plain = model.intervals()
        assert (found.high - found.low >= plain.high - plain.low).all()
        cells = squared_distances(fresh, asked).argmin(axis=1)
        offsets = fresh - asked[cells]
        length = np.maximum(np.linalg.norm(offsets, axis=1, keepdims=True), 1e-300)
        offsets *= np.minimum(1.0, found.radius / length)
        means = asked + np.array([offsets[cells == j].mean(axis=0) for j in range(3)])
        sizes = np.bincount(cells, minlength=3) * 600 / 100_000
        covered += [*np.ravel((found.low <= means) & (means <= found.high))]
        covered += [*((found.sizes_low <= sizes) & (sizes <= found.sizes_high))]
        without += [*((plain.sizes_low <= sizes) & (sizes <= plain.sizes_high))]
    assert np.mean(covered) >= 0.94 and np.mean(without) < 0.8


def test_sampling_error_is_of_single_rows() -> None:
    model = FederatedFuzzyCMeans(3, averaging="weighted", local_iter=1, protocol="plain", privacy=privacy())
    with pytest.raises(ArgumentError):
        model.fit(tables()).intervals(sampling=True)
