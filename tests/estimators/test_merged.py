"""MergedClusters: shapes that k-means cuts, their number from the tree, and what noise leaves open."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

import privfed
from privfed import FKM, Box, DPKMeans, DWFKMeans, FederatedGaussianMixture, MergedClusters, Privacy
from privfed.errors import ArgumentError
from tests.some import some

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def shape(name: str, n: int = 3000) -> tuple[FloatArray, Any]:
    """Rows of a shape within the unit box, and their clusters."""
    rng = np.random.default_rng(0)
    if name == "moons":
        rows, labels = make_moons(n, noise=0.06, random_state=0)
    elif name == "rings":
        rows, labels = make_circles(n, noise=0.05, factor=0.45, random_state=0)
    elif name == "bands":
        labels = rng.integers(3, size=n)
        rows = np.c_[rng.uniform(0.0, 10.0, n), 2.0 * labels + 0.15 * rng.normal(size=n)]
    else:
        rows, labels = make_blobs(n, n_features=5, centers=4, random_state=1)
    rows = rows - rows.mean(axis=0)
    return 0.95 * rows / np.abs(rows).max(axis=0), labels


def parts(rows: FloatArray, n: int = 5) -> list[FloatArray]:
    order = np.random.default_rng(1).permutation(len(rows))
    return np.array_split(rows[order], n)


def private(epsilon: float, seed: int) -> Privacy:
    return Privacy(
        epsilon=epsilon,
        delta=1e-6,
        unit="record",
        domain=Box(-1.0, 1.0),
        neighbours="add-remove",
        noise_seed=seed,
    )


@pytest.mark.parametrize("name", ["moons", "rings", "bands", "blobs"])
def test_shapes_are_found_with_their_number(name: str) -> None:
    rows, labels = shape(name)
    model = MergedClusters(DWFKMeans(40, protocol="plain")).fit(parts(rows))
    assert model.n_clusters_ == len(set(labels))
    assert adjusted_rand_score(labels, model.predict(rows)) > 0.98
    for own, told in zip(parts(rows), model.labels_, strict=True):
        np.testing.assert_array_equal(model.predict(own), told)


@pytest.mark.parametrize("name", ["moons", "rings", "blobs"])
@pytest.mark.parametrize("seed", [0, 1])
def test_shapes_are_found_under_a_guarantee_without_a_further_sum(name: str, seed: int) -> None:
    rows, labels = shape(name, 10_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fitted = DPKMeans(30, privacy=private(1.0, seed), protocol="plain", random_state=seed).fit([rows])
        sums = len(fitted.transcript_.totals())
        model = MergedClusters(n_clusters=len(set(labels))).join(fitted)
    assert len(fitted.transcript_.totals()) == sums and not fitted.federation_.others
    assert adjusted_rand_score(labels, model.predict(rows)) > 0.95


def test_noise_that_may_move_an_edge_across_the_cut_is_said() -> None:
    rows, _ = shape("rings", 10_000)
    with pytest.warns(UserWarning, match="across the cut"):
        model = MergedClusters(DPKMeans(30, privacy=private(0.1, 0), protocol="plain")).fit(parts(rows))
    assert model.doubtful_.any() and model.doubtful_.shape == (len(model.kept_) - 1,)
    exact = MergedClusters(DWFKMeans(40, protocol="plain")).fit(parts(rows))
    assert not exact.doubtful_.any()


@pytest.mark.parametrize("linkage", ["single", "average", "complete", "ward"])
def test_clusters_are_those_of_scikit_learn_on_the_centers(linkage: Any) -> None:
    rows, _ = shape("blobs")
    fitted = DWFKMeans(25, protocol="plain").fit(parts(rows))
    for k in some([2, 4, 7]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # Four blobs have no gap at seven clusters.
            model = MergedClusters(linkage=linkage, n_clusters=k).join(fitted)
        theirs = AgglomerativeClustering(k, linkage=linkage).fit(fitted.cluster_centers_[model.kept_])
        assert adjusted_rand_score(theirs.labels_, model.joined_[model.kept_]) == 1.0
        merged = (model.tree_[:, 2] < model.cut_).sum()
        assert merged == len(model.kept_) - k
        assert len(set(fcluster(model.tree_, model.cut_, "distance"))) == k


def test_edges_join_the_nearest_centers_of_two_clusters() -> None:
    rows, _ = shape("moons")
    model = MergedClusters(DWFKMeans(15, protocol="plain")).fit(parts(rows))
    centers = model.estimator_.cluster_centers_
    lengths = np.linalg.norm(centers[model.edges_[:, 0]] - centers[model.edges_[:, 1]], axis=1)
    np.testing.assert_allclose(lengths, model.tree_[:, 2])


def test_rows_without_a_gap_are_one_cluster_with_a_warning() -> None:
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (4000, 2))
    with pytest.warns(UserWarning):
        model = MergedClusters(DWFKMeans(40, protocol="plain")).fit(parts(rows))
    assert model.n_clusters_ == 1 and set(model.predict(rows)) == {0}
    MergedClusters(n_clusters=1).join(model.estimator_)  # One cluster that was asked for has no gap to lack.


def test_turns_as_near_as_centers_are_found_by_more_centers_and_said_by_few() -> None:
    rng = np.random.default_rng(0)
    labels, along = rng.integers(2, size=4000), np.sqrt(rng.uniform(0.05, 1.0, 4000))
    angle = 4.0 * np.pi * along + np.pi * labels
    rows = along[:, None] * np.c_[np.cos(angle), np.sin(angle)] + 0.02 * rng.normal(size=(4000, 2))
    for n_clusters in (None, 2):
        with pytest.warns(UserWarning):
            few = MergedClusters(DWFKMeans(40, protocol="plain"), n_clusters=n_clusters).fit(parts(rows))
        assert adjusted_rand_score(labels, few.predict(rows)) < 0.5
    many = MergedClusters(DWFKMeans(120, protocol="plain")).fit(parts(rows))
    assert adjusted_rand_score(labels, many.predict(rows)) > 0.98


@pytest.mark.parametrize("noised", [False, True])
def test_sizes_of_a_mixture_are_by_its_weights_and_its_noise_is_of_unknown_length(noised: bool) -> None:
    rows, _ = shape("blobs")
    words: dict[str, Any] = {"privacy": private(4.0, 0)} if noised else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = FederatedGaussianMixture(4, protocol="plain", **words).fit(parts(rows))
        model = MergedClusters(n_clusters=2).join(fitted)
    assert model.doubtful_.all() if noised else not model.doubtful_.any()
    np.testing.assert_allclose(model.sizes_, 3000.0 * fitted.weights_, rtol=0.2 if noised else 1e-12)


def test_centers_without_rows_and_equal_centers_make_no_cluster() -> None:
    rows = np.r_[np.zeros((50, 2)), np.ones((50, 2)), [[5.0, 5.0]] * 50]
    init = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [5.0, 5.0], [90.0, 90.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = DWFKMeans(5, init=init, protocol="plain", max_iter=3).fit(parts(rows))
    model = MergedClusters(n_clusters=3).join(fitted)
    assert len(model.kept_) == 3 and set(model.predict(rows)) == {0, 1, 2}
    assert model.joined_[4] == model.joined_[3]


@pytest.mark.parametrize("n_clusters", [None, 1])
def test_a_tree_with_one_center(n_clusters: int | None) -> None:
    rows = np.random.default_rng(0).normal(size=(100, 3))
    with pytest.warns(UserWarning, match="center 0 alone"):
        model = MergedClusters(DWFKMeans(1, protocol="plain"), n_clusters=n_clusters).fit(parts(rows))
    assert model.n_clusters_ == 1 and model.tree_.shape == (0, 4) and set(model.predict(rows)) == {0}
    assert not model.outliers(rows).any()


@pytest.mark.parametrize("words", [{"n_clusters": 0}, {"n_clusters": 9}, {"linkage": "centroid"}])
def test_what_no_tree_has_is_an_error_with_its_parameter(words: dict[str, Any]) -> None:
    rows, _ = shape("moons", 300)
    with pytest.raises(ArgumentError) as told:
        MergedClusters(DWFKMeans(8, protocol="plain"), **words).fit(parts(rows))
    assert list(told.value.parameters) == list(words)


def test_rows_far_from_every_center_and_of_tiny_clusters_are_outliers() -> None:
    rows, _ = shape("moons", 3000)
    far = np.array([[9.0, 9.0], [-7.0, 3.0], [0.0, -20.0]])
    model = MergedClusters(DWFKMeans(40, protocol="plain")).fit(parts(rows))
    assert model.outliers(rows).mean() < 0.01 and model.outliers(far).all()
    crumb = np.r_[rows, np.full((6, 2), 4.0) + 0.01 * np.random.default_rng(0).normal(size=(6, 2))]
    init = np.r_[model.estimator_.cluster_centers_, [[4.0, 4.0]]]
    other = MergedClusters(DWFKMeans(41, init=init, protocol="plain")).fit(parts(crumb))
    if 40 in other.kept_:
        assert other.outliers(crumb[-6:]).all()


def test_loaded_centers_of_scaled_rows_are_joined_as_well(tmp_path: Path) -> None:
    rows, labels = shape("rings")
    wide = rows * [1e4, 1e-3] + [5e6, 0.0]
    fitted = DWFKMeans(40, protocol="plain", scale="standard").fit(parts(wide))
    fitted.save(tmp_path / "model.npz")
    model = MergedClusters().join(privfed.load(tmp_path / "model.npz"))
    assert adjusted_rand_score(labels, model.predict(wide)) > 0.98 and not hasattr(model, "labels_")


def test_other_estimators_and_noise_of_each_client_alone() -> None:
    rows, labels = shape("moons")
    model = MergedClusters(FKM(30, protocol="plain"), n_clusters=2).fit(parts(rows))
    assert adjusted_rand_score(labels, model.predict(rows)) > 0.95
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        alone = FKM(12, protocol="plain", privacy=private(4.0, 1), init="coreset").fit(parts(rows, 2))
        assert MergedClusters(n_clusters=2).join(alone).n_clusters_ == 2


def test_parameters_are_those_of_its_estimator_too() -> None:
    rows, _ = shape("moons", 600)
    model = MergedClusters(DWFKMeans(12, protocol="plain"), linkage="average", n_clusters=2)
    again = clone(model)
    assert again.get_params()["n_clusters"] == 2 and again.get_params()["estimator__n_clusters"] == 12
    model.fit(parts(rows))
    assert model.joined_.max() == 1
