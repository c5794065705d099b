"""FederatedGaussianMixture under differential privacy: what it finds, what it releases, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as Central

import privfed
from privfed import Box, FederatedGaussianMixture, Privacy, select_n_clusters
from privfed.algorithms.mixtures import COVARIANCES, declared
from privfed.algorithms.private.mixtures import MixtureMoments
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, PrivacyError

pytestmark = pytest.mark.filterwarnings("ignore:.*promises very little")
FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def claim(epsilon: float = 1.0, **words: Any) -> Privacy:
    known: dict[str, Any] = {"unit": "record", "neighbours": "add-remove", "domain": Box(-6, 6)}
    return Privacy(epsilon=epsilon, delta=1e-6, noise_seed=1, **(known | words))


def iris(n: int = 10_000) -> tuple[FloatArray, FloatArray]:
    """Rows of one Gaussian for each kind of iris, in columns of variance 1, and their kinds."""
    rng, (rows, kinds) = np.random.default_rng(0), load_iris(return_X_y=True)
    own = rng.integers(3, size=n)
    found = np.empty((n, 4))
    for kind in range(3):
        alike = rows[kinds == kind]
        shape = alike.mean(axis=0), np.cov(alike.T)
        found[own == kind] = rng.multivariate_normal(*shape, size=int((own == kind).sum()))
    return (found - found.mean(axis=0)) / found.std(axis=0), own


def drawn(n: int = 10_000, d: int = 2, k: int = 5) -> tuple[FloatArray, FloatArray]:
    """Rows of clusters of unequal size, long in different directions."""
    rng = np.random.default_rng(1)
    own, means = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0))), rng.normal(size=(k, d)) * 3
    turns = rng.normal(size=(k, d, d)) * rng.uniform(0.2, 1.2, (k, 1, 1))
    rows = np.einsum("nij,nj->ni", turns[own], rng.normal(size=(n, d))) + means[own]
    return (rows - rows.mean(axis=0)) / rows.std(axis=0), own


@pytest.mark.parametrize("make", [iris, drawn])
def test_at_epsilon_1_it_is_nearly_the_central_fit(make: Any) -> None:
    rows, own = make()
    k = len(set(own.tolist()))
    model = FederatedGaussianMixture(k, privacy=claim(), random_state=1).fit(np.array_split(rows, 5))
    central = Central(k, n_init=5, reg_covar=1e-3, random_state=0).fit(rows)
    found = [adjusted_rand_score(own, one.predict(rows)) for one in (model, central)]
    assert found[0] >= found[1] - 0.05 and found[1] > 0.9
    assert model.score(rows) > central.score(rows) - 0.5
    spent = model.privacy_claim_
    assert spent is not None and (spent.epsilon, spent.unit) == (1.0, "record")


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.parametrize("epsilon", [0.01, 50.0])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_every_round_releases_a_mixture_however_large_the_noise(
    kind: str, epsilon: float, neighbours: str
) -> None:
    rows, _ = drawn(600, d=4, k=3)
    privacy = claim(epsilon, neighbours=neighbours)
    model = FederatedGaussianMixture(3, covariance_type=kind, privacy=privacy, random_state=1)
    model.fit(np.array_split(rows, 3))
    for state in model.states_:
        for name, rule in declared(kind, 3, 4, None).items():
            assert rule.read(state[name], {}) is not None
        assert state["weights"].sum() == pytest.approx(1.0)
        assert (np.abs(state["centers"]) <= 6.0).all()
    assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.parametrize("kind", COVARIANCES)
def test_with_little_noise_it_is_scikit_learns_mixture(kind: str) -> None:
    """Clipping is given back, so that components of Gaussians are those of expectation maximisation."""
    rng = np.random.default_rng(3)
    own = rng.choice(3, 20_000, p=[0.5, 0.3, 0.2])
    scales = np.array([[1.0, 0.5], [1.0, 0.5], [1.0, 0.5]]) if kind == "tied" else rng.uniform(0.3, 1, (3, 2))
    rows = np.array([[-4.0, 0.0], [0.0, 3.0], [4.0, -2.0]])[own] + scales[own] * rng.normal(size=(20_000, 2))
    model = FederatedGaussianMixture(3, covariance_type=kind, privacy=claim(1e4, domain=Box(-9, 9)))
    model.fit(np.array_split(rows, 3))
    central = Central(3, covariance_type=kind, means_init=model.means_).fit(rows)
    np.testing.assert_allclose(model.weights_, central.weights_, atol=0.01)
    np.testing.assert_allclose(model.means_, central.means_, atol=0.03)
    np.testing.assert_allclose(model.covariances_, central.covariances_, atol=0.06)


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(COVARIANCES), d=st.integers(1, 5))
def test_a_replaced_record_moves_sums_as_the_lemma_says(seed: int, kind: str, d: int) -> None:
    """With t the scalar product of responsibilities: 2 - 2 t, R^2 (2 + 2 t), 2 R^4."""
    rng, k, reach = np.random.default_rng(seed), 3, 10.0 ** np.random.default_rng(seed).uniform(-1, 1)
    roots = rng.normal(size=(k, d, d)) * 10.0 ** rng.uniform(-2, 1, (k, 1, 1))
    full = roots @ roots.swapaxes(1, 2) + 1e-4 * np.eye(d)
    shapes = {"full": full, "tied": full[0], "diag": np.diagonal(full, axis1=1, axis2=2).copy()}
    question = MixtureMoments(
        ranges=Ranges(np.full(d, -9.0), np.full(d, 9.0), 9),
        centers=rng.uniform(-3, 3, (k, d)),
        weights=rng.dirichlet(np.ones(k)),
        covariances=shapes[kind],
        covariance_type=kind,
        units=np.zeros(d),
        reach=reach,
    )
    found = question.contributions(rng.uniform(-9, 9, (20, d)), np.full(20, -1))
    weight, added, product = (found[name].values for name in ("weight", "sum", "product"))
    near = 1.0 + 1e-9
    for one, most in ((weight, 1.0), (added, reach), (product, reach**2)):
        assert (np.linalg.norm(one, axis=1) <= most).all()
    t = weight @ weight.T

    def moved(one: FloatArray) -> FloatArray:
        return np.square(one[:, None] - one).sum(axis=2)

    assert (moved(weight) <= (2.0 - 2.0 * t) * near + 1e-9).all()
    assert (moved(added) <= reach**2 * (2.0 + 2.0 * t) * near).all()
    assert (moved(product) <= 2.0 * reach**4 * near).all()


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        ({"privacy": claim(unit="client")}, {}),
        ({"privacy": claim(noise="server"), "protocol": "ckks"}, {}),
        ({"nominal": [[0, 1]]}, {}),
        ({"n_init": 2}, {}),
        ({"init": "kfed"}, {}),
    ],
)
def test_what_has_no_noised_form_is_refused_before_anything_is_asked(
    words: dict[str, Any], parameters: dict[str, Any]
) -> None:
    rows, _ = drawn(60)
    model = FederatedGaussianMixture(2, **({"privacy": claim()} | words))
    with pytest.raises(PrivacyError):
        model.fit(np.array_split(rows, 3))
    assert not hasattr(model, "federation_")


@pytest.mark.parametrize("index", ["davies_bouldin", "bic"])
def test_a_number_of_noised_components_is_refused_before_a_budget_pays(index: str, tmp_path: Path) -> None:
    rows, _ = drawn(60)
    model = FederatedGaussianMixture(2, privacy=claim(), run_dir=tmp_path / "run")
    with pytest.raises(PrivacyError):
        select_n_clusters(np.array_split(rows, 3), [2, 3], estimator=model, index=index)
    assert not (tmp_path / "run").exists()


def test_no_likelihood_is_released_and_rows_at_home_have_theirs(tmp_path: Path) -> None:
    rows, _ = drawn(2000)
    model = FederatedGaussianMixture(3, privacy=claim(20.0), run_dir=tmp_path / "run", random_state=1)
    model.fit(np.array_split(rows, 3))
    assert model.lower_bound_ is None and model.inertia_ is None
    with pytest.raises(PrivacyError, match="bic"):
        model.bic()
    with pytest.raises(ArgumentError, match="intervals"):
        model.intervals()
    loaded = privfed.load(tmp_path / "run")
    assert loaded.bic(rows) == model.bic(rows) and np.isfinite(model.bic(rows))
    assert (loaded.predict(rows) == model.predict(rows)).all()
    again = FederatedGaussianMixture(3, privacy=claim(20.0), random_state=1).fit(np.array_split(rows, 3))
    assert (again.covariances_ == model.covariances_).all()
