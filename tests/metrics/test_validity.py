"""Validity indices over the query path are those of the pooled rows."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
from sklearn.cluster import KMeans

from privfed import metrics
from privfed.core.record.records import Asked, Exchanged
from privfed.core.values.domain import Box
from privfed.errors import ArgumentError, DataError, UndefinedIndexError
from privfed.estimators.choosing import LocalClusters, local_cluster_counts
from privfed.estimators.local_steps import DWFKMeans
from privfed.numerics.kernels.dispatch import assign
from privfed.questions.local_cluster_counts import local_clusters
from tests.reference import validity_reference as oracle

Clients = list[np.ndarray]
SUMS = pytest.mark.parametrize("over", ["plain", "masked"])
INDICES = [
    metrics.davies_bouldin,
    metrics.mean_distance,
    metrics.simplified_silhouette,
    metrics.calinski_harabasz,
]


def clients_of(n_features: int, shift: float = 0.0) -> Clients:
    rng = np.random.default_rng(n_features)
    means = rng.normal(scale=3.0, size=(4, n_features))
    return [shift + means[rng.choice(4, n)] + rng.normal(size=(n, n_features)) for n in (1, 30, 4, 17, 25, 9)]


def some_centers(clients: Clients, k: int = 4) -> np.ndarray:
    """Return centers that are no means, each with several rows."""
    rows = np.concatenate(clients)
    return KMeans(k, n_init=1, random_state=0).fit(rows).cluster_centers_ + 0.1


def means_of_labels(clients: Clients, k: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return centers that are the means of the rows nearest to them, and these labels."""
    rows, centers = np.concatenate(clients), some_centers(clients, k)
    for _ in range(200):
        labels = assign(rows, centers)
        centers = np.array([rows[labels == i].mean(axis=0) for i in range(k)])
    return centers, assign(rows, centers)


# --- equality with the pooled value ---


@SUMS
@pytest.mark.parametrize("n_features", [1, 2, 8, 9, 40])
@pytest.mark.few(4)
def test_davies_bouldin_is_scikit_learns_where_centers_are_means(n_features: int, over: str) -> None:
    clients = clients_of(n_features)
    centers, labels = means_of_labels(clients)
    ours = metrics.davies_bouldin(clients, centers, protocol=over)
    assert ours == pytest.approx(
        sklearn_metrics.davies_bouldin_score(np.concatenate(clients), labels), rel=1e-9
    )


@SUMS
@pytest.mark.parametrize(("p", "q"), [(2, 1), (2, 2), (1, 1), (3.5, 1.5), (1, 4)])
@pytest.mark.few(4)
def test_davies_bouldin_of_given_centers(p: float, q: float, over: str) -> None:
    clients = clients_of(3)
    centers = some_centers(clients)
    ours = metrics.davies_bouldin(clients, centers, p, q, protocol=over)
    assert ours == pytest.approx(oracle.davies_bouldin(np.concatenate(clients), centers, p, q), rel=1e-9)


@SUMS
@pytest.mark.parametrize("n_features", [1, 2, 8, 9, 40])
@pytest.mark.few(4)
def test_mean_distance_and_silhouette_of_given_centers(n_features: int, over: str) -> None:
    clients = clients_of(n_features)
    rows, centers = np.concatenate(clients), some_centers(clients)
    assert metrics.mean_distance(clients, centers, protocol=over) == pytest.approx(
        oracle.mean_distance(rows, centers), rel=1e-9
    )
    assert metrics.simplified_silhouette(clients, centers, protocol=over) == pytest.approx(
        oracle.simplified_silhouette(rows, centers), rel=1e-9
    )


@SUMS
@pytest.mark.parametrize("n_features", [1, 2, 8, 9, 40])
@pytest.mark.few(4)
def test_calinski_harabasz_is_scikit_learns_whatever_the_centers(n_features: int, over: str) -> None:
    clients = clients_of(n_features)
    rows, centers = np.concatenate(clients), some_centers(clients)
    ours = metrics.calinski_harabasz(clients, centers, protocol=over)
    assert ours == pytest.approx(
        sklearn_metrics.calinski_harabasz_score(rows, assign(rows, centers)), rel=1e-9
    )


@pytest.mark.parametrize("n_features", [2, 12])
@pytest.mark.parametrize("index", INDICES)
def test_data_far_from_the_origin_loses_no_digits(index: Callable[..., float], n_features: int) -> None:
    # Powers of two, so that the shifted data has the same differences.
    near = [np.round(rows * 2**20) / 2**20 for rows in clients_of(n_features)]
    centers = np.round(some_centers(near) * 2**20) / 2**20
    far = [rows + 2.0**30 for rows in near]
    options = {"protocol": "plain", "domain": Box(-(2.0**6) + 2.0**30, 2.0**6 + 2.0**30)}
    assert index(far, centers + 2.0**30, **options) == pytest.approx(
        index(near, centers, protocol="plain"), rel=1e-9
    )


@pytest.mark.parametrize("index", INDICES)
def test_how_the_rows_lie_with_the_clients_changes_nothing(index: Callable[..., float]) -> None:
    clients = clients_of(2)
    rows, centers = np.concatenate(clients), some_centers(clients)
    order = np.random.default_rng(0).permutation(len(rows))
    other = index(np.array_split(rows[order], 3), centers, protocol="plain")
    assert other == pytest.approx(index(clients, centers, protocol="plain"), rel=1e-12)


# --- clusters without rows, of one row, of equal rows ---


@SUMS
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.few(4)
def test_clusters_without_rows_are_left_out(index: Callable[..., float], over: str) -> None:
    clients = clients_of(2)
    centers = some_centers(clients)
    # One far off, one equal to another (of equal distances the first counts), and one between them that
    # would be many rows' second nearest, had it rows.
    with_empty = np.vstack([centers, [[900.0, 900.0]], centers[:1]])
    assert index(clients, with_empty, protocol=over) == pytest.approx(
        index(clients, centers, protocol=over), rel=1e-12
    )


def test_a_center_that_no_row_is_nearest_to_is_nobodys_second_nearest() -> None:
    clients = [np.array([[0.0], [0.2], [1.0]]), np.array([[10.0], [10.2], [10.4]]), np.array([[0.1], [10.1]])]
    centers = np.array([[0.3], [5.0], [10.2]])
    rows = np.concatenate(clients)
    assert set(assign(rows, centers)) == {0, 2}
    ours = metrics.simplified_silhouette(clients, centers, protocol="masked")
    assert ours == pytest.approx(oracle.simplified_silhouette(rows, centers), rel=1e-9)


def test_the_row_of_a_cluster_of_one_has_silhouette_zero() -> None:
    clients = [np.array([[0.0], [0.25]]), np.array([[8.0]])]
    ours = metrics.simplified_silhouette(clients, [[0.0], [8.0]], protocol="plain")
    assert ours == pytest.approx((1.0 + (1 - 0.25 / 7.75) + 0.0) / 3, rel=1e-12)


def test_rows_on_their_centers() -> None:
    clients, centers = [np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]])], [[0.0], [1.0]]
    assert metrics.davies_bouldin(clients, centers, protocol="plain") == 0.0
    assert metrics.mean_distance(clients, centers, protocol="plain") == 0.0
    assert metrics.simplified_silhouette(clients, centers, protocol="plain") == 1.0
    # As scikit-learn has it where nothing scatters within the clusters.
    assert metrics.calinski_harabasz(clients, centers, protocol="plain") == 1.0


@pytest.mark.parametrize("index", [one for one in INDICES if one is not metrics.mean_distance])
def test_one_cluster_with_rows_has_no_index(index: Callable[..., float]) -> None:
    with pytest.raises(UndefinedIndexError, match=r"1 (of 2 )?clusters hold"):
        index(clients_of(2), [[0.0, 0.0], [500.0, 500.0]], protocol="plain")


def test_a_cluster_a_row_has_no_variance_ratio() -> None:
    with pytest.raises(UndefinedIndexError, match="each of the 2 clusters holds one row"):
        metrics.calinski_harabasz([[[0.0]], [[1.0]]], [[0.0], [1.0]], protocol="plain")


# --- over the query path ---


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.few(2)
def test_an_index_of_a_fit_is_one_masked_sum_of_two_exchanges(
    index: Callable[..., float], blobs: Clients
) -> None:
    model = DWFKMeans(4, max_iter=3, tol=0).fit(blobs)
    sums, exchanges = (len(model.transcript_.of(kind)) for kind in (Asked, Exchanged))
    found = index(model.federation_, model.cluster_centers_)
    assert found == pytest.approx(index(blobs, model.cluster_centers_, protocol="plain"), rel=1e-9)
    assert len(model.transcript_.of(Asked)) == sums + 1
    assert len(model.transcript_.of(Exchanged)) == exchanges + 2
    assert model.transcript_.of(Asked)[-1].purpose == "index"


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        ({"centers": [[0.0, 0.0]]}, "centers"),
        ({"centers": [0.0, 1.0]}, "centers"),
        ({"centers": [["a", "b"], ["c", "d"]]}, "centers"),
        ({"centers": [[0.0], [1.0]]}, ""),
        ({"centers": [[0.0, np.nan], [1.0, 2.0]]}, "centers"),
        ({"p": 0.5}, "p"),
        ({"p": np.inf}, "p"),
        ({"q": 0.5}, "q"),
        ({"q": np.nan}, "q"),
        ({"q": 9}, "q"),
        ({"privacy": 1.0}, ""),
    ],
)
def test_bad_words_are_an_error(blobs: Clients, words: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        metrics.davies_bouldin(blobs, **{"centers": [[0.0, 0.0], [6.0, 6.0]], "protocol": "plain", **words})
    assert not parameter or parameter in caught.value.parameters


# --- how many clusters each client finds ---


def blob_client(n_blobs: int, seed: int, n_rows: int = 80) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corners = np.array(list(itertools.product([0.0, 20.0], [0.0, 20.0, 40.0])))[:n_blobs]
    return corners[np.arange(n_rows) % n_blobs] + rng.normal(scale=0.5, size=(n_rows, 2))


@pytest.mark.parametrize("n_blobs", [2, 3, 5, 6])
def test_a_client_finds_its_own_clusters(n_blobs: int) -> None:
    assert local_clusters(blob_client(n_blobs, 0), 10, 0) == n_blobs


def test_a_client_never_finds_more_than_the_root_of_its_distinct_rows() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 2))
    assert local_clusters(rows, 10, 0) <= 3
    assert local_clusters(np.repeat(rows[:3], 9, axis=0), 10, 0) == 1
    assert local_clusters(np.repeat(rows[:4], 9, axis=0), 10, 0) == 2
    assert local_clusters(blob_client(6, 0), 4, 0) <= 4


@SUMS
def test_the_histogram_adds_up_and_gives_the_rule_of_thumb(over: str) -> None:
    clients = [blob_client(n, i) for i, n in enumerate([3, 5, 3, 4])] + [np.zeros((6, 2))]
    counts = local_cluster_counts(clients, protocol=over)
    assert counts.clients == (1, 0, 2, 1, 1, 0, 0, 0, 0, 0)
    # K_min is the smallest, K_max the smallest plus the largest; who cannot tell is left out.
    assert counts.candidates == range(3, 9)


def test_where_no_client_can_tell_a_range_is_needed() -> None:
    with pytest.raises(DataError, match="pass the range"):
        LocalClusters((4, 0, 0)).candidates  # noqa: B018
