"""Private metrics of rows clipped at the radius that a fit released: by default after it, and by name."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed import Box, DPKMeans, DWFKMeans, FederatedFuzzyCMeans, Privacy, metrics
from privfed.core.values.origin import Origin
from privfed.errors import ArgumentError, BoundsError, PrivacyError
from privfed.metrics.named import USUAL
from privfed.numerics.kernels.interpreted import squared_distances

CENTERS = np.array([[-0.6, -0.6], [0.6, -0.5], [0.0, 0.6]])
OF_DISTANCES = (
    "inertia",
    "score",
    "mean_distance",
    "davies_bouldin",
    "calinski_harabasz",
    "fuzzy_davies_bouldin",
)


def tables(seed: int = 0, n: int = 2000) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = CENTERS[rng.integers(3, size=3 * n)] + 0.1 * rng.standard_normal((3 * n, 2))
    return np.array_split(np.clip(rows, -1.0, 1.0), 3)


def privacy(width: float = 1.0, **words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(domain=Box(-width, width, max_rows=4000), **{**known, "noise_seed": 1, **words})


def clipped(rows: np.ndarray, centers: np.ndarray, radius: float) -> np.ndarray:
    centers = np.asarray(centers)
    own = centers[squared_distances(rows, centers).argmin(axis=1)]
    length = np.maximum(np.linalg.norm(rows - own, axis=1, keepdims=True), 1e-300)
    return own + (rows - own) * np.minimum(1.0, radius / length)


def test_noise_of_a_metric_after_a_fit_does_not_grow_with_the_domain() -> None:
    deviations = []
    for width in (1.0, 3.0, 10.0, 100.0):
        model = DPKMeans(3, privacy=privacy(width), protocol="plain", random_state=0).fit(tables())
        seen = [privacy(width, noise_seed=seed) for seed in range(30)]
        values = [
            metrics.inertia(tables(), model.cluster_centers_, privacy=one, protocol="plain") for one in seen
        ]
        assert np.median(values) == pytest.approx(
            squared_distances(np.concatenate(tables()), np.asarray(model.cluster_centers_)).min(axis=1).sum(),
            rel=0.05,
        )
        deviations.append(np.std(values))
    # Deviations of 30 draws differ by a third by themselves.
    assert max(deviations) < 2.0 * min(deviations)
    whole = [metrics.inertia(tables(), CENTERS, privacy=one, protocol="plain") for one in seen]
    assert np.std(whole) > 100.0 * max(deviations)


@pytest.mark.parametrize("name", OF_DISTANCES)
def test_intervals_are_finite_and_cover_the_metric_of_clipped_rows(name: str) -> None:
    """With a radius that clips a tenth of the rows, in a domain a hundred times as wide as they are."""
    radius = 0.21
    moved = [clipped(rows, CENTERS, radius) for rows in tables()]
    exact = getattr(metrics, name)(moved, CENTERS, protocol="plain", domain=Box(-1, 1, max_rows=4000))
    covered = 0
    for seed in range(60):
        found = metrics.with_interval(
            name, tables(), CENTERS, privacy=privacy(100.0, noise_seed=seed), protocol="plain", radius=radius
        )
        assert found.radius == radius and "clipped at 0.21" in str(found)
        assert found.low is not None and found.high is not None and np.isfinite([found.low, found.high]).all()
        covered += found.low <= exact * (1 + 1e-6) and exact * (1 - 1e-6) <= found.high
    assert covered >= 53  # P < .002 at 95 %.


def test_rows_beyond_the_radius_are_not_seen() -> None:
    far = [*tables()[:-1], np.vstack([tables()[-1], np.full((16, 2), 10.0)])]
    own = privacy(10.0, epsilon=8.0)
    both = [metrics.inertia(X, CENTERS, privacy=own, protocol="plain", radius=0.5) for X in (tables(), far)]
    assert both[1] - both[0] == pytest.approx(16 * 0.25, abs=3.0)
    unclipped = metrics.inertia(far, CENTERS, privacy=own, protocol="plain", radius=None)
    assert unclipped - both[0] > 1000.0


@pytest.mark.parametrize(
    "model",
    [DPKMeans(3), DWFKMeans(3, local_iter=1), FederatedFuzzyCMeans(3, averaging="weighted", local_iter=1)],
)
def test_the_radius_of_a_fit_goes_with_its_centers(model: Any, tmp_path: Path) -> None:
    model.set_params(privacy=privacy(3.0), protocol="plain", random_state=0).fit(tables())
    radius = model.intervals().radius
    assert radius is not None and 0.1 < radius < 1.5
    model.save(tmp_path / "m.npz")
    for one in (
        model,
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        privfed.load(tmp_path / "m.npz"),
    ):
        assert one.cluster_centers_.radius == radius
        np.testing.assert_array_equal(one.cluster_centers_, model.cluster_centers_)
    # What is computed of them is no release of this fit.
    assert getattr(2.0 * model.cluster_centers_, "radius", None) is None
    assert getattr(np.array(model.cluster_centers_), "radius", None) is None


def test_without_privacy_there_is_no_radius() -> None:
    model = DWFKMeans(3, protocol="plain", random_state=0).fit(tables())
    assert model.cluster_centers_.radius is None and model.cluster_centers_.origin == Origin.EXACT
    with pytest.raises(ArgumentError):
        metrics.inertia(tables(), CENTERS, protocol="plain", radius=0.5)
    for wrong in (0.0, -1.0, np.nan, "far"):
        with pytest.raises(BoundsError):
            metrics.inertia(tables(), CENTERS, privacy=privacy(), protocol="plain", radius=wrong)


@pytest.mark.parametrize("name", [*USUAL, "profiles"])
def test_a_claim_takes_no_centers_that_rows_gave_without_noise(name: str) -> None:
    exact = DWFKMeans(3, protocol="plain", random_state=0).fit(tables()).cluster_centers_
    own = privacy(3.0, epsilon=8.0, noise_seed=None)
    for centers in (exact, exact[:2], np.concatenate([exact, CENTERS])):
        with pytest.raises(PrivacyError) as caught:
            getattr(metrics, name)(tables(), centers, privacy=own, protocol="plain")
        assert caught.value.parameters == ("centers",)
    if name == "inertia":
        with pytest.raises(PrivacyError):
            metrics.with_interval(name, tables(), exact, privacy=own, protocol="plain")
    # Noise that repeats protects nobody, and a copy by np.array is the word of who made it.
    getattr(metrics, name)(tables(), exact, privacy=replace(own, noise_seed=1), protocol="plain")
    getattr(metrics, name)(tables(), np.array(exact), privacy=own, protocol="plain")


@pytest.mark.parametrize("unit", ["record", "client"])
@pytest.mark.parametrize("name", USUAL)
def test_every_usual_metric_takes_a_radius(name: str, unit: str) -> None:
    own = privacy(3.0, epsilon=8.0, unit=unit)
    many = np.array_split(np.concatenate(tables()), 300)
    value = getattr(metrics, name)(many, CENTERS, privacy=own, protocol="plain", radius=0.6)
    assert np.isfinite(value)
