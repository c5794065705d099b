"""FederatedImputer: scikit-learn's SimpleImputer on the pooled rows, from sums; private where it is paid."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from privfed import (
    Ball,
    Box,
    ClientPolicy,
    DPKMeans,
    FederatedImputer,
    FederatedScaler,
    Privacy,
    PrivacyBudget,
)
from privfed.errors import ArgumentError, DataError


def tables(n: int = 40, gaps: float = 0.1, seed: int = 0) -> list[np.ndarray]:
    """Return four clients' rows with gaps, in columns of unlike scales."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(4):
        rows = rng.normal(i, 1.0, size=(n + i, 3)) * [1.0, 1e4, 1e-3] + [0.0, 1e6, 0.0]
        rows[rng.random(rows.shape) < gaps] = np.nan
        found.append(rows)
    return found


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_filled_and_scaled_rows_are_those_of_the_pipeline_on_pooled_rows(protocol: str) -> None:
    clients = tables()
    pooled = make_pipeline(SimpleImputer(), StandardScaler()).fit(np.concatenate(clients))
    imputer = FederatedImputer(protocol=protocol).fit(clients)
    np.testing.assert_allclose(imputer.statistics_, pooled[0].statistics_, rtol=1e-9)
    shares = 1.0 - np.isnan(np.concatenate(clients)).mean(axis=0)
    np.testing.assert_allclose(imputer.known_, shares, rtol=1e-9)
    filled = imputer.transform(clients)
    ours = FederatedScaler(protocol=protocol).fit(filled).transform(filled)
    np.testing.assert_allclose(
        np.concatenate(ours), pooled.transform(np.concatenate(clients)), rtol=0, atol=1e-9
    )


def test_groups_of_rows_have_the_same_means_and_gaps_as_the_rows() -> None:
    clients = tables()
    with pytest.warns(UserWarning, match="arrays are grouped anew"):
        imputer = FederatedImputer(policy=ClientPolicy(group_size=5)).fit(clients)
    pooled = np.concatenate(clients)
    np.testing.assert_allclose(imputer.statistics_, SimpleImputer().fit(pooled).statistics_, rtol=1e-9)
    np.testing.assert_allclose(imputer.known_, 1.0 - np.isnan(pooled).mean(axis=0), rtol=1e-9)


def test_frames_are_taken_by_name_and_a_client_without_any_value_is_filled() -> None:
    first, second, third, _ = tables()
    second[:, 0] = np.nan
    frames = {
        name: pl.DataFrame(one, schema=["a", "b", "c"])
        for name, one in zip("xyz", (first, second, third), strict=True)
    }
    frames["y"] = frames["y"].select("c", "a", "b")
    imputer = FederatedImputer().fit(frames)
    expected = SimpleImputer().fit(np.concatenate([first, second, third])).transform(second)
    filled = imputer.transform(frames)["y"]
    np.testing.assert_allclose(filled, expected, rtol=1e-9)
    np.testing.assert_allclose(imputer.transform(second), expected, rtol=1e-9)
    with pytest.raises(DataError, match="fitted on a, b, c"):
        imputer.transform(frames["x"].rename({"a": "other"}))


def test_a_declared_domain_is_that_of_filled_rows() -> None:
    clients = [np.clip(one, [-5, 9e5, -1], [9, 2e6, 1]) for one in tables()]
    box = Box([-5.0, 9e5, -1.0], [9.0, 2e6, 1.0])
    imputer = FederatedImputer(domain=box).fit(clients)
    expected = SimpleImputer().fit(np.concatenate(clients)).statistics_
    np.testing.assert_allclose(imputer.statistics_, expected, rtol=1e-9)
    FederatedScaler("range", domain=box).fit(imputer.transform(clients))


def privacy(**changed: Any) -> Privacy:
    low, high = [-4.0, 9e5, -0.01], [8.0, 1.1e6, 0.01]
    words = {"epsilon": 8.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove", "noise_seed": 1}
    return Privacy(**(words | {"domain": Box(low, high)} | changed))


def test_under_privacy_means_are_near_and_in_the_domain() -> None:
    clients = tables(n=600)
    imputer = FederatedImputer(privacy=privacy(), protocol="plain").fit(clients)
    exact = SimpleImputer().fit(np.concatenate(clients)).statistics_
    width = np.array([12.0, 2e5, 0.02])
    np.testing.assert_allclose(imputer.statistics_ / width, exact / width, atol=0.02)
    np.testing.assert_allclose(imputer.known_, 0.9, atol=0.05)
    starved = FederatedImputer(privacy=privacy(epsilon=0.01), protocol="plain")
    starved.fit([np.full((1, 3), np.nan) for _ in range(3)])
    assert privacy().domain.contains(starved.statistics_[None]).all()


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API:sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([FederatedImputer(protocol="plain")])
def test_scikit_learns_check(estimator: Any, check: Any) -> None:
    check(estimator)


def test_imputer_scaler_and_fit_are_paid_from_one_budget(tmp_path: Path) -> None:
    clients, box = tables(n=600), privacy().domain
    budget = PrivacyBudget(9.0, 1e-6, "record", "add-remove", tmp_path / "b.db", domain=box)
    imputer = FederatedImputer(privacy=budget.take(0.2), protocol="plain").fit(clients)
    filled = imputer.transform(clients)
    scaler = FederatedScaler(privacy=budget.take(0.2), protocol="plain").fit(filled)
    claim = budget.take(0.6, domain=scaler.transform_domain())
    DPKMeans(2, privacy=claim, protocol="plain").fit(scaler.transform(filled))
    assert budget.remaining().share == 0.0
    assert imputer.privacy_spent_ is not None and imputer.privacy_spent_.unit == "record"


def through_the_path(clients: list[np.ndarray]) -> bytes:
    """Return all that imputer, scaler and fit release, with noise that repeats."""
    imputer = FederatedImputer(privacy=privacy(), protocol="plain").fit(clients)
    filled = imputer.transform(clients)
    scaler = FederatedScaler(privacy=privacy(noise_seed=2), protocol="plain").fit(filled)
    claim = privacy(noise_seed=3, domain=scaler.transform_domain())
    model = DPKMeans(2, privacy=claim, protocol="plain").fit(scaler.transform(filled))
    released = [imputer.statistics_, imputer.known_, scaler.mean_, scaler.scale_, model.cluster_centers_]
    return b"".join(np.ascontiguousarray(one).tobytes() for one in released)


def test_rows_that_the_domain_makes_equal_release_the_same_bytes() -> None:
    clients, others = tables(n=300), tables(n=300)
    clients[0][0], others[0][0] = [1e3, np.nan, 5.0], [1e5, np.nan, 7.0]
    assert through_the_path(clients) == through_the_path(others)
    others[0][0, 0] = 0.0
    assert through_the_path(clients) != through_the_path(others)


def test_wrong_use_is_an_error() -> None:
    clients = tables()
    with pytest.raises(ArgumentError, match="declare a Box"):
        FederatedImputer(domain=Ball(1.0)).fit(clients)
    with pytest.raises(DataError, match="column 1; leave"):
        FederatedImputer().fit([one * [1.0, np.nan, 1.0] for one in clients])
    with pytest.raises(DataError, match="numbers or NaN"):
        FederatedImputer().fit([np.array([["x", "y"]])])
    with pytest.raises(ArgumentError, match="schema"):
        FederatedImputer().fit()
    assert clone(FederatedImputer(protocol="plain")).protocol == "plain"
