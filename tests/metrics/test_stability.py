"""Whether clusters are found again in parts of the clients or rows."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state, resample

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, FederatedGaussianMixture, MergedClusters, Privacy
from privfed.errors import ArgumentError, PrivacyError
from privfed.metrics import stability

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PLACES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])


def sites(n: int = 6, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return [PLACES[rng.integers(3, size=90)] + rng.normal(size=(90, 2)) for _ in range(n)]


def central(model: Any, again: Any, rows: Any) -> list[float]:
    """Return the coefficients from sets of rows, as the paper defines them."""
    ours, theirs = model.predict(rows), again.predict(rows)
    found = []
    for i in range(len(model.cluster_centers_)):
        inside = {*np.flatnonzero(ours == i)}
        others = [{*np.flatnonzero(theirs == j)} for j in range(len(again.cluster_centers_))]
        found.append(max(len(inside & one) / len(inside | one) for one in others))
    return found


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.parametrize("k", [3, 5])
def test_it_is_the_jaccard_coefficient_of_pooled_rows(protocol: str, k: int) -> None:
    clients = sites()
    model = DWFKMeans(k, protocol=protocol, random_state=3).fit(clients)
    found = stability(model, clients, n_resamples=3, share=0.6, seed=7)
    rng = check_random_state(7)
    for one in found:
        drawn = resample(clients, n_samples=4, replace=False, random_state=rng)
        again = clone(model).set_params(random_state=rng.randint(2**31), protocol="plain").fit(drawn)
        assert one == pytest.approx(central(model, again, np.concatenate(drawn)), abs=1e-6)


@pytest.mark.parametrize("parts", ["clients", "rows"])
def test_clusters_that_are_there_are_found_again_and_others_are_not(parts: str) -> None:
    clients = sites()
    there, split = (DWFKMeans(k, protocol="plain", random_state=0).fit(clients) for k in (3, 6))
    assert stability(there, clients, parts=parts).mean(axis=0).min() > 0.95
    assert stability(split, clients, parts=parts).mean(axis=0).max() < 0.85


@pytest.mark.parametrize(
    "estimator",
    [
        MergedClusters(DWFKMeans(12, protocol="plain", random_state=0)),
        FederatedGaussianMixture(3, protocol="plain", random_state=0, n_init=3),
        DWFKMeans(3, protocol="plain", random_state=0, scale="standard"),
    ],
    ids=["merged", "mixture", "scaled"],
)
def test_any_estimator_that_predicts_is_judged(estimator: Any) -> None:
    clients = sites()
    found = stability(estimator.fit(clients), clients, n_resamples=3, parts="rows")
    assert found.shape == (3, 3)
    assert found.min() > 0.9


def test_a_cluster_without_a_drawn_row_has_no_number() -> None:
    clients = [*sites(5), np.full((4, 2), 40.0)]
    model = DWFKMeans(4, protocol="plain", random_state=0, init=np.vstack([PLACES, [[40.0, 40.0]]])).fit(
        clients
    )
    found = stability(model, clients, n_resamples=12, seed=1)
    missing = np.isnan(found[:, 3])
    assert 0 < missing.sum() < 12
    assert np.isfinite(found[:, :3]).all()


def test_noise_and_groups_of_rows_are_refused() -> None:
    clients = sites()
    claim = Privacy(epsilon=5.0, delta=1e-5, unit="record", neighbours="add-remove", domain=Box(-5, 13))
    with pytest.raises(PrivacyError):
        stability(DPKMeans(3, privacy=claim).fit(clients), clients)
    grouped = DWFKMeans(3, protocol="plain", policy=ClientPolicy(group_size=5))
    with pytest.warns(UserWarning, match="group"):
        grouped.fit(clients)
    with pytest.raises(PrivacyError):
        stability(grouped, clients)


@pytest.mark.parametrize(
    "words",
    [{"n_resamples": 0}, {"share": 1.0}, {"share": 0.9}, {"parts": "columns"}],
    ids=["none", "all", "all in effect", "parts"],
)
def test_bad_parameters_are_errors(words: dict[str, Any]) -> None:
    clients = sites()
    model = DWFKMeans(3, protocol="plain", max_iter=1).fit(clients)
    with pytest.raises(ArgumentError):
        stability(model, clients, **words)
    with pytest.raises(ArgumentError):
        stability(model, clients[:2], n_resamples=1)
    with pytest.raises(ArgumentError):
        stability(model, np.concatenate(clients))  # type: ignore[arg-type]
    for unfitted in (DWFKMeans(3), MergedClusters()):
        with pytest.raises(NotFittedError):
            stability(unfitted, clients)


def test_clients_that_are_drawn_keep_their_bounds_on_rows() -> None:
    clients = [one[: 40 + 10 * i] for i, one in enumerate(sites())]
    own = {str(i): len(one) for i, one in enumerate(clients)}
    model = DWFKMeans(3, protocol="plain", domain=Box(-9.0, 17.0, max_rows=own), random_state=0).fit(clients)
    assert stability(model, clients, n_resamples=4).shape == (4, 3)
