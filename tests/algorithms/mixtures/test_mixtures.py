"""FederatedGaussianMixture: scikit-learn's steps, categories, bounds, and inputs that no mixture fits."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture as Central

import privfed
from privfed import FederatedGaussianMixture, select_n_clusters
from privfed.algorithms.mixtures import COVARIANCES, MixtureSums
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError
from privfed.testing import EstimatorContract, QuestionContract

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def drawn(seed: int = 0, n: int = 600, d: int = 3, k: int = 3) -> tuple[FloatArray, np.ndarray[Any, Any]]:
    """Rows of unlike, correlated clusters in columns of variance 1, and their clusters."""
    rng = np.random.default_rng(seed)
    labels, means = rng.choice(k, n, p=rng.dirichlet(np.full(k, 4.0))), 4.0 * rng.normal(size=(k, d))
    turns = rng.normal(size=(k, d, d)) * rng.uniform(0.3, 1.2, (k, 1, 1))
    rows = np.einsum("nij,nj->ni", turns[labels], rng.normal(size=(n, d))) + means[labels]
    return (rows - rows.mean(axis=0)) / rows.std(axis=0), labels


def central(start: Any, covariance_type: str, rows: FloatArray, **words: Any) -> Central:
    """scikit-learn's mixture from the same start."""
    shape = start["covariances"]
    precisions = 1.0 / shape if covariance_type == "diag" else np.linalg.inv(shape)
    found = Central(
        len(start["weights"]),
        covariance_type=covariance_type,
        weights_init=start["weights"],
        means_init=start["centers"],
        precisions_init=precisions,
        **words,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return found.fit(rows)


class TestMixture(EstimatorContract):
    kind = FederatedGaussianMixture
    parameters = {"n_clusters": 3, "random_state": 1, "covariance_type": "full"}  # noqa: RUF012
    tolerance = 1e-5


class TestTied(TestMixture):
    parameters = {"n_clusters": 3, "random_state": 1, "covariance_type": "tied", "n_init": 2}  # noqa: RUF012


class TestDiagonal(TestMixture):
    parameters = {"n_clusters": 4, "random_state": 1, "covariance_type": "diag", "scale": "standard"}  # noqa: RUF012


def question(
    ranges: Ranges, centers: FloatArray, covariance_type: str, *, nominal: bool = False, seed: int = 0
) -> MixtureSums:
    (k, d), rng = centers.shape, np.random.default_rng(seed)
    units = np.zeros(d)
    units[d // 2 :] = 1.0 if nominal else 0.0
    n = int((units == 0.0).sum())
    width = np.maximum(ranges.width[units == 0.0], 1e-3 * max(ranges.width.max(), 1e-9))
    roots = rng.normal(size=(k, n, n)) * width[:, None] * 0.3
    full = roots @ roots.swapaxes(1, 2) + np.eye(n) * width**2 * 0.05
    full = 0.5 * (full + full.swapaxes(1, 2))
    shapes = {"full": full, "tied": full[0], "diag": np.diagonal(full, axis1=1, axis2=2).copy()}
    return MixtureSums(
        ranges=ranges,
        centers=centers,
        weights=rng.dirichlet(np.full(k, 3.0)),
        covariances=shapes[covariance_type],
        covariance_type=covariance_type,
        units=units,
    )


@pytest.mark.parametrize("covariance_type", COVARIANCES)
class TestSums(QuestionContract):
    nominal = False

    @pytest.fixture(autouse=True)
    def _type(self, covariance_type: str) -> None:
        self.covariance_type = covariance_type

    def make(self, ranges: Ranges, centers: FloatArray) -> MixtureSums:
        return question(ranges, centers, self.covariance_type, nominal=self.nominal)


class TestSumsWithCategories(TestSums):
    nominal = True


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.parametrize("covariance_type", COVARIANCES)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_round_is_scikit_learns_from_the_same_start(
    protocol: str, covariance_type: str, seed: int
) -> None:
    rows, _ = drawn(seed)
    model = FederatedGaussianMixture(3, covariance_type=covariance_type, protocol=protocol, max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.array_split(rows, 5))
    close = 1e-9 if protocol == "plain" else 1e-7
    for number in sorted({1, min(2, model.n_iter_), model.n_iter_}):
        theirs = central(model.states_[0], covariance_type, rows, max_iter=number, tol=0.0)
        ours = model.states_[number]
        for mine, other in (
            (ours["weights"], theirs.weights_),
            (ours["centers"], theirs.means_),
            (ours["covariances"], theirs.covariances_),
            (ours["bound"][0], theirs.lower_bound_),
        ):
            np.testing.assert_allclose(mine, other, rtol=close, atol=close)
    if model.converged_:
        assert central(model.states_[0], covariance_type, rows, max_iter=30).n_iter_ == model.n_iter_
    np.testing.assert_allclose(model.predict_proba(rows), theirs.predict_proba(rows), atol=100 * close)
    np.testing.assert_allclose(model.score_samples(rows), theirs.score_samples(rows), atol=1000 * close)
    for criterion in ("bic", "aic"):
        expected = getattr(theirs, criterion)(rows)
        assert getattr(model, criterion)() == pytest.approx(expected, rel=1e-7)
        assert getattr(model, criterion)(rows) == pytest.approx(expected, rel=1e-7)


def test_unlike_sizes_and_slopes_are_found_where_k_means_cuts() -> None:
    rows, labels = load_iris(return_X_y=True)
    clients = np.array_split(rows[np.random.default_rng(0).permutation(150)], 6)
    found = FederatedGaussianMixture(3, n_init=5, scale="standard").fit(clients)
    cut = privfed.DWFKMeans(3, n_init=5, scale="standard").fit(clients)
    ours, theirs = (adjusted_rand_score(labels, one.predict(rows)) for one in (found, cut))
    assert ours > 0.89 and theirs < 0.7
    np.testing.assert_allclose(found.weights_.sum(), 1.0)


def test_columns_far_from_zero_and_of_unlike_units_give_the_same_clusters() -> None:
    rows, _ = drawn(4)
    far = rows * [1e-6, 1.0, 1e6] + [1.7e9 * 1e-6, -3e4, 1.7e9]
    one = FederatedGaussianMixture(3, scale="standard").fit(np.array_split(rows, 4))
    other = FederatedGaussianMixture(3, scale="standard").fit(np.array_split(far, 4))
    assert adjusted_rand_score(one.predict(rows), other.predict(far)) > 0.99
    raw = FederatedGaussianMixture(3, init=other.scaling_.original(other.means_)).fit(np.array_split(far, 4))
    assert np.isfinite(raw.lower_bound_) and adjusted_rand_score(raw.predict(far), other.predict(far)) > 0.95


def categories(n: int = 900) -> tuple[FloatArray, np.ndarray[Any, Any]]:
    """Two numbers that tell little, a variable of three categories and one of two, for three classes."""
    rng = np.random.default_rng(6)
    labels = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    shares = np.array([[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.05, 0.05, 0.9]])
    ward = np.array([rng.choice(3, p=shares[one]) for one in labels])
    drug = rng.random(n) < np.array([0.1, 0.8, 0.9])[labels]
    numbers = rng.normal(size=(n, 2)) + np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[labels]
    return np.column_stack([numbers, np.eye(3)[ward], drug, ~drug]).astype(np.float64), labels


NOMINAL = ((2, 3, 4), (5, 6))


@pytest.mark.parametrize("scale", [None, "standard"])
def test_categories_are_shares_and_the_likelihood_is_that_of_latent_classes(scale: Any) -> None:
    rows, labels = categories()
    clients = [rows[rows[:, 4] == 0.0][:300], rows[rows[:, 4] == 1.0], rows[rows[:, 4] == 0.0][300:]]
    model = FederatedGaussianMixture(
        3, covariance_type="diag", nominal=NOMINAL, scale=scale, tol=1e-8, max_iter=500
    )
    model.fit(clients)  # One category occurs at one client alone.
    means = model.means_ if model.scaling_ is None else model.scaling_.original(model.means_)
    for block in NOMINAL:
        np.testing.assert_allclose(means[:, block].sum(axis=1), 1.0, atol=1e-7)
    assert adjusted_rand_score(labels, model.predict(rows)) > 0.6
    scaled = rows if model.scaling_ is None else model.scaling_.scaled(rows)
    numbers, shares = slice(0, 2), np.clip(means[:, 2:], 1e-6, 1.0)
    away = (scaled[:, None, numbers] - model.means_[:, numbers]) ** 2 / model.covariances_
    density = -0.5 * (away + np.log(2.0 * np.pi * model.covariances_)).sum(axis=2)
    joint = np.log(model.weights_) + density + rows[:, 2:] @ np.log(shares).T
    expected = np.logaddexp.reduce(joint, axis=1)
    np.testing.assert_allclose(model.score_samples(rows), expected, rtol=1e-9)
    assert model.log_likelihood_ == pytest.approx(expected.sum(), rel=1e-7)
    # 2 weights, 6 means and 6 variances, 3 times 2 and 3 times 1 shares.
    assert model.bic() == pytest.approx(-2.0 * expected.sum() + 23.0 * np.log(len(rows)), rel=1e-7)
    again, drawn_labels = model.sample(2000, random_state=1)
    assert set(np.unique(again[:, 2:].round(9))) <= {0.0, 1.0} and (again[:, 2:5].sum(axis=1) > 0.999).all()
    assert adjusted_rand_score(drawn_labels, model.predict(again)) > 0.5


def test_latent_classes_of_categories_alone() -> None:
    rows, labels = categories()
    only, nominal = rows[:, 2:], ((0, 1, 2), (3, 4))
    model = FederatedGaussianMixture(3, nominal=nominal, n_init=3).fit(np.array_split(only, 5))
    assert model.covariances_.shape == (3, 0, 0) and np.isfinite(model.bic())
    assert adjusted_rand_score(labels, model.predict(only)) > 0.4


@pytest.mark.parametrize("nominal", [((0, 9),), ((0, 1), (1, 2)), ((-1,),)])
def test_columns_of_categories_must_be_there_and_once(nominal: Any) -> None:
    with pytest.raises(ArgumentError) as told:
        FederatedGaussianMixture(2, nominal=nominal).fit(np.array_split(drawn()[0], 4))
    assert told.value.parameters == ("nominal",) or list(told.value.parameters) == ["nominal"]


def test_components_follow_the_distribution_that_is_drawn_from() -> None:
    rows, _ = drawn(1)
    model = FederatedGaussianMixture(3).fit(np.array_split(rows, 4))
    again, labels = model.sample(20_000, random_state=3)
    np.testing.assert_allclose(np.bincount(labels) / 20_000, model.weights_, atol=0.02)
    for k in range(3):
        np.testing.assert_allclose(again[labels == k].mean(axis=0), model.means_[k], atol=0.1)
        np.testing.assert_allclose(np.cov(again[labels == k].T), model.covariances_[k], atol=0.15)


def test_the_number_of_components_is_chosen_by_bic() -> None:
    rows, _ = drawn(2, n=1200, d=2, k=3)
    found = select_n_clusters(
        np.array_split(rows, 5), range(1 + 1, 6), estimator="mixture", index="bic", n_init=3, random_state=0
    )
    sizes = [Central(k, n_init=3, random_state=0).fit(rows).bic(rows) for k in range(2, 6)]
    assert found.n_clusters == 2 + int(np.argmin(sizes)) and found.rule == "minimum"
    with pytest.raises(ArgumentError):
        select_n_clusters(np.array_split(rows, 5), range(2, 4), index="bic")


# --- inputs that no mixture fits ---


@pytest.mark.parametrize("covariance_type", COVARIANCES)
def test_equal_rows_constant_columns_and_few_distinct_rows_end_in_a_finding(covariance_type: str) -> None:
    few = np.repeat([[0.0, 5.0, 7.0], [1.0, 5.0, 7.5]], 30, axis=0)
    with pytest.warns(ConvergenceWarning):
        model = FederatedGaussianMixture(3, covariance_type=covariance_type).fit(np.array_split(few, 4))
    assert {"singular", "empty"} & {one.code for one in model.findings_}
    assert np.isfinite(model.covariances_).all() and np.isfinite(model.log_likelihood_)
    for k in range(3):
        shape = model.covariances_ if covariance_type == "tied" else model.covariances_[k]
        assert (np.linalg.eigvalsh(np.diag(shape) if shape.ndim == 1 else shape) > 0.0).all()


@pytest.mark.parametrize("covariance_type", COVARIANCES)
@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_a_component_that_loses_all_weight_keeps_its_place_and_is_named(
    covariance_type: str, protocol: str
) -> None:
    rows, _ = drawn(5, n=300, d=2, k=2)
    init = np.array([[0.0, 0.0], [1.0, 1.0], [1e4, 1e4]])
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        model = FederatedGaussianMixture(3, covariance_type=covariance_type, protocol=protocol, init=init)
        model.fit(np.array_split(rows, 4))
    assert np.isfinite(model.states_[-1].vector).all() and (model.weights_ > 0.0).all()
    if model.weights_.min() * len(rows) < 1.0:
        assert [one.clusters for one in model.findings_ if one.code == "empty"]


def test_one_client_one_column_and_one_component() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 1))
    model = FederatedGaussianMixture(1, protocol="plain").fit([rows])
    np.testing.assert_allclose(model.means_, [[rows.mean()]], atol=1e-9)
    np.testing.assert_allclose(model.covariances_, [[[rows.var() * (1.0 + 1e-6)]]], rtol=1e-9)
    many = FederatedGaussianMixture(2, covariance_type="diag").fit(np.array_split(rows, 5))
    assert np.isfinite(many.bic())


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.array([0.5, -0.5])},
        {"weights": np.array([1.0])},
        {"covariances": np.zeros((2, 2, 2))},
        {"covariances": -np.ones((2, 2, 2))},
        {"covariances": np.array([[[1.0, 0.9], [0.1, 1.0]]] * 2)},
        {"covariances": np.ones((2, 2))},
        {"covariances": np.full((2, 2, 2), np.inf)},
        {"covariance_type": "round"},
        {"units": np.array([-1.0, 0.0])},
        {"units": np.zeros(3)},
        {"centers": np.zeros((2, 3))},
    ],
)
def test_a_question_about_no_mixture_is_refused(change: dict[str, Any]) -> None:
    good = {
        "ranges": Ranges(np.zeros(2), np.ones(2), 9),
        "centers": np.zeros((2, 2)),
        "weights": np.array([0.5, 0.5]),
        "covariances": np.array([np.eye(2)] * 2),
        "covariance_type": "full",
        "units": np.zeros(2),
    }
    MixtureSums(**good)
    with pytest.raises(ArgumentError):
        MixtureSums(**(good | change))


def test_a_mixture_has_no_inertia_to_choose_by() -> None:
    with pytest.raises(ArgumentError, match="bic"):
        select_n_clusters(
            np.array_split(drawn()[0], 4), range(2, 5), estimator="mixture", index="inertia", tol=0.1
        )


def test_a_loaded_mixture_says_the_same_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    rows, _ = drawn(1)
    model = FederatedGaussianMixture(3, run_dir=tmp_path / "run").fit(np.array_split(rows, 4))
    again = privfed.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(rows), model.predict_proba(rows))
    assert (again.bic(), again.lower_bound_) == (model.bic(), model.lower_bound_)
    model.covariances_[:] = 0.0
    model.states_[-1] = type(model.states_[-1])(**{**model.states_[-1], "covariances": model.covariances_})
    model.save(tmp_path / "model.npz")
    with pytest.raises(privfed.errors.RunFolderError):
        privfed.load(tmp_path / "model.npz")
