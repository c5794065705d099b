"""Splits into clients obey their laws, and each does what its name says."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.data import at_random, by_cluster, by_dirichlet, by_distance, by_kmeans, half_iid, iid, partition
from privfed.data.named_partitions import PARTITIONS
from privfed.errors import ArgumentError, BoundsError, DataError
from privfed.testing import PartitionContract
from tests.some import some

Rows = npt.NDArray[np.intp]
BLOBS = np.repeat(np.arange(5.0), 40)[:, None] * [10, -10] + np.random.default_rng(1).normal(size=(200, 2))
BLOB = np.repeat(np.arange(5), 40)


def options(kind: str, n_clients: int, y: Any) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {
        "dirichlet": {"y": y, "alpha": 5.0},
        "distance": {"beta": 1.0},
        "cluster-wise": {"y": np.arange(len(y)) % max(n_clients, 1), "clusters": [1] * max(n_clients, 0)},
    }
    return found.get(kind, {})


def assert_lawful(clients: Sequence[Rows], n_rows: int, n_clients: int) -> None:
    assert len(clients) == n_clients
    assert min(map(len, clients)) >= 1
    assert sorted(np.concatenate(clients).tolist()) == list(range(n_rows))
    for rows in clients:
        assert rows.dtype == np.intp
        assert (np.diff(rows) > 0).all()


class TestEveryPartition(PartitionContract):
    # Dirichlet needs some room to succeed in 100 draws.
    room = 8

    @pytest.fixture(autouse=True, params=PARTITIONS)
    def _kind(self, request: pytest.FixtureRequest) -> None:
        self.kind = request.param

    def split(self, X: Any, n_clients: int, rng: np.random.Generator, y: Any) -> Sequence[Rows]:
        return partition(X, n_clients, self.kind, rng, **options(self.kind, n_clients, y))


@pytest.mark.parametrize(
    "split", [by_kmeans, lambda X, n, rng: iid(len(X), n, rng)], ids=["by_kmeans", "iid"]
)
def test_as_many_clients_as_rows_is_one_row_each(split: Callable[..., list[Rows]]) -> None:
    clients = split(np.zeros((9, 1)), 9, np.random.default_rng(0))
    assert_lawful(clients, 9, 9)


@given(st.integers(1, 200), st.integers(1, 200))
def test_iid_slices_differ_by_one_row_at_most(n_rows: int, n_clients: int) -> None:
    n_clients = min(n_rows, n_clients)
    sizes = [len(rows) for rows in iid(n_rows, n_clients, np.random.default_rng(0))]
    assert max(sizes) - min(sizes) <= 1


def test_iid_mixes_the_rows() -> None:
    for rows in some(iid(200, 4, np.random.default_rng(0))):
        assert len(set(BLOB[rows])) == 5


def test_by_kmeans_gives_each_client_a_cluster() -> None:
    for rows in some(by_kmeans(BLOBS, 5, np.random.default_rng(0))):
        assert len(set(BLOB[rows])) == 1


def test_half_iid_gives_each_client_a_mixed_and_a_clustered_half() -> None:
    clients = half_iid(BLOBS, 5, np.random.default_rng(0))
    assert_lawful(clients, 200, 5)
    for rows in clients:
        counts = np.bincount(BLOB[rows], minlength=5)
        # 20 rows of all blobs, and about 20 of the blob that is this client's cluster in the other half.
        assert counts.max() >= 12
        assert np.count_nonzero(counts) >= 4


def test_small_alpha_skews_labels_and_large_alpha_does_not() -> None:
    y = np.repeat(["a", "b", "c", "d"], 500)

    def largest_share(alpha: float) -> float:
        clients = by_dirichlet(y, 4, alpha, np.random.default_rng(3))
        return float(
            np.mean([np.unique(y[rows], return_counts=True)[1].max() / len(rows) for rows in clients])
        )

    assert largest_share(0.1) > 0.6
    assert largest_share(1e9) == pytest.approx(0.25, abs=0.01)


def test_dirichlet_shares_have_the_mean_and_variance_of_the_distribution() -> None:
    # One label: the share of the first of K clients is Beta(alpha, (K - 1) alpha) with mean 1 / K and
    # variance (K - 1) / (K^2 (K alpha + 1)). With alpha = 50 no client is ever empty: nothing is drawn anew.
    rng, y = np.random.default_rng(11), np.zeros(4000)
    shares = np.array([len(by_dirichlet(y, 4, 50.0, rng)[0]) / 4000 for _ in range(2000)])
    variance = 3 / (16 * 201)
    assert abs(shares.mean() - 0.25) < 4 * np.sqrt(variance / 2000)
    assert shares.var() == pytest.approx(variance, rel=0.15)


@given(st.integers(1, 10), st.integers(0, 100))
def test_dirichlet_keeps_min_rows(min_rows: int, seed: int) -> None:
    clients = by_dirichlet(BLOB, 5, 2.0, np.random.default_rng(seed), min_rows=min_rows)
    assert_lawful(clients, 200, 5)
    assert min(map(len, clients)) >= min_rows


def test_dirichlet_takes_tiny_alpha_and_labels_of_any_type() -> None:
    clients = by_dirichlet(["x", "y"] * 10, 1, 1e-300, np.random.default_rng(0))
    assert_lawful(clients, 20, 1)


def test_partition_passes_min_rows_on() -> None:
    clients = partition(BLOBS, 4, "dirichlet", np.random.default_rng(0), BLOB, alpha=1.0, min_rows=20)
    assert min(map(len, clients)) >= 20


def test_partition_by_name_is_the_function_itself() -> None:
    def rng() -> np.random.Generator:
        return np.random.default_rng(5)

    places, held = BLOBS[::40], [1, 5, 2, 3, 4]
    given: dict[str, dict[str, Any]] = {
        "dirichlet": {"y": BLOB, "alpha": 5.0},
        "distance": {"beta": 2.0, "locations": places},
        "cluster-wise": {"y": BLOB, "clusters": held},
    }
    expected = {
        "iid": iid(200, 5, rng()),
        "half-iid": half_iid(BLOBS, 5, rng()),
        "non-iid": by_kmeans(BLOBS, 5, rng()),
        "random": at_random(200, 5, rng()),
        "dirichlet": by_dirichlet(BLOB, 5, 5.0, rng()),
        "distance": by_distance(BLOBS, places, 2.0, rng()),
        "cluster-wise": by_cluster(BLOB, held, rng()),
    }
    assert set(expected) == set(PARTITIONS)
    for kind in PARTITIONS:
        split = partition(BLOBS, 5, kind, rng(), **given.get(kind, {}))
        assert [rows.tolist() for rows in split] == [rows.tolist() for rows in expected[kind]]


@pytest.mark.parametrize("kind", PARTITIONS)
@pytest.mark.parametrize("n_clients", [0, -1, 201])
def test_number_of_clients_has_bounds(kind: str, n_clients: int) -> None:
    most = 100 if kind == "half-iid" else 200
    with pytest.raises(BoundsError) as found:
        partition(BLOBS, n_clients, kind, np.random.default_rng(0), **options(kind, n_clients, BLOB))
    assert (found.value.parameter, found.value.value) == ("n_clients", n_clients)
    assert found.value.bounds == f"[1, {most}]"


def test_half_iid_needs_two_rows_a_client() -> None:
    with pytest.raises(BoundsError) as found:
        half_iid(np.zeros((7, 1)), 4, np.random.default_rng(0))
    assert (found.value.parameter, found.value.bounds) == ("n_clients", "[1, 3]")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            {"kind": "noniid"},
            r"one of iid, half-iid, non-iid, .*dirichlet, .*got 'noniid'",
            id="kind",
        ),
        pytest.param(
            {"kind": "iid", "alpha": 1.0}, "kind='iid' takes no options, got alpha", id="iid-option"
        ),
        pytest.param({"kind": "dirichlet", "alpha": 1.0}, "splits by label; give labels", id="no-labels"),
        pytest.param({"kind": "dirichlet", "y": BLOB}, "needs alpha; give one", id="no-alpha"),
        pytest.param(
            {"kind": "dirichlet", "y": BLOB, "beta": 1.0}, "min_rows, got beta", id="dirichlet-option"
        ),
        pytest.param(
            {"kind": "dirichlet", "y": BLOB[1:], "alpha": 1.0}, "199 labels for 200 rows", id="short-y"
        ),
        pytest.param(
            {"kind": "dirichlet", "y": BLOB, "alpha": 1.0, "min_rows": 1.5},
            "min_rows must be a whole number",
            id="half-row",
        ),
        pytest.param(
            {"kind": "dirichlet", "y": BLOB, "alpha": 1.0, "min_rows": np.inf},
            "got min_rows=inf",
            id="infinite-rows",
        ),
        pytest.param({"kind": "dirichlet", "y": BLOB, "alpha": [1.0]}, "alpha must be a number", id="list"),
        pytest.param({"kind": "random", "beta": 1.0}, "kind='random' takes no options", id="random-option"),
        pytest.param({"kind": "distance"}, "needs beta; give one, such as beta=1.0", id="no-beta"),
        pytest.param({"kind": "distance", "beta": 0.0}, "beta must be a number", id="beta-zero"),
        pytest.param({"kind": "distance", "beta": np.nan}, "beta must be a number", id="beta-nan"),
        pytest.param({"kind": "distance", "beta": "big"}, "beta must be a number", id="beta-text"),
        pytest.param(
            {"kind": "distance", "beta": 1.0, "locations": np.zeros((3, 2))},
            r"locations must be one a client, got shape \(3, 2\) for n_clients=2",
            id="other-places",
        ),
        pytest.param(
            {"kind": "distance", "beta": 1.0, "locations": np.zeros((2, 3))},
            r"shape \(n_clients, 2\), got shape \(2, 3\)",
            id="other-features",
        ),
        pytest.param(
            {"kind": "cluster-wise", "clusters": [2, 3]}, "splits by label; give labels", id="no-clusters-y"
        ),
        pytest.param(
            {"kind": "cluster-wise", "y": BLOB}, r"needs clusters; give one, such as", id="no-clusters"
        ),
        pytest.param(
            {"kind": "cluster-wise", "y": BLOB, "clusters": [2, 3, 4]}, "one a client", id="too-many-clients"
        ),
        pytest.param(
            {"kind": "cluster-wise", "y": BLOB, "clusters": [2, 2]}, "at least 5 together", id="too-few-held"
        ),
        pytest.param(
            {"kind": "cluster-wise", "y": BLOB, "clusters": [6, 2]}, r"in \[1, 5\]", id="more-than-there-are"
        ),
        pytest.param({"kind": "cluster-wise", "y": BLOB, "clusters": [0, 5]}, r"in \[1, 5\]", id="none-held"),
        pytest.param(
            {"kind": "cluster-wise", "y": BLOB, "clusters": [1.5, 5]}, "whole numbers", id="half-a-cluster"
        ),
        pytest.param(
            {"kind": "cluster-wise", "y": np.arange(200), "clusters": [200, 200]},
            "a cluster of 1 rows is too small for the 2 clients",
            id="rows-for-all-holders",
        ),
    ],
)
def test_partition_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        partition(BLOBS, 2, rng=np.random.default_rng(0), **arguments)


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.nan, np.inf, 1e10])
def test_alpha_has_bounds(alpha: float) -> None:
    with pytest.raises(BoundsError) as found:
        by_dirichlet(BLOB, 2, alpha, np.random.default_rng(0))
    assert (found.value.parameter, found.value.bounds) == ("alpha", "(0, 1e9]")


@pytest.mark.parametrize("min_rows", [0, 101])
def test_min_rows_has_bounds(min_rows: int) -> None:
    with pytest.raises(BoundsError) as found:
        by_dirichlet(BLOB, 2, 1.0, np.random.default_rng(0), min_rows=min_rows)
    assert (found.value.parameter, found.value.bounds) == ("min_rows", "[1, 100]")


def test_dirichlet_gives_up_after_100_draws() -> None:
    with pytest.raises(
        ArgumentError, match=r"100 draws with alpha=0.001 left .* take a larger alpha, fewer clients"
    ):
        by_dirichlet(BLOB, 50, 0.001, np.random.default_rng(0))


def test_labels_must_be_one_dimensional() -> None:
    with pytest.raises(ArgumentError, match=r"y must have shape \(n_rows,\), got shape \(200, 2\)"):
        by_dirichlet(BLOBS, 2, 1.0, np.random.default_rng(0))


@pytest.mark.parametrize("split", [by_kmeans, half_iid])
def test_rows_must_be_a_finite_table(split: Callable[..., list[Rows]]) -> None:
    with pytest.raises(ArgumentError, match=r"X must have shape \(n_rows, n_features\), got shape \(200,\)"):
        split(BLOB, 2, np.random.default_rng(0))
    rows = BLOBS.copy()
    rows[3, 1] = np.nan
    with pytest.raises(DataError, match="X has 1 missing or infinite values in column '1'"):
        split(rows, 2, np.random.default_rng(0))


# --- by chance ---


def test_at_random_draws_each_rows_client_uniformly() -> None:
    sizes = [len(rows) for rows in at_random(100_000, 4, np.random.default_rng(2))]
    # Binomial: 25,000 with a standard deviation of 137; equal slices would be no draw.
    assert all(abs(size - 25_000) < 5 * 137 for size in sizes)
    assert len(set(sizes)) > 1


# --- by distance ---


def test_rows_hit_a_client_with_the_probability_of_its_distance() -> None:
    # Two clients at distance 1 and 3 of the same rows. Only one is hit, or both and one is drawn, or none
    # and the nearer gets it: the share of the farther is (1 - p) q + p q / 2.
    beta, rows = 0.7, np.zeros((200_000, 1))
    near, far = by_distance(rows, [[1.0], [3.0]], beta, np.random.default_rng(3))
    p, q = 1 - np.exp(-beta / 1.0), 1 - np.exp(-beta / 3.0)
    assert len(far) / 200_000 == pytest.approx((1 - p) * q + p * q / 2, abs=0.005)
    assert len(near) + len(far) == 200_000


def test_small_beta_gives_rows_to_the_nearest_and_large_beta_to_anyone() -> None:
    places = BLOBS[[0, 199]]
    nearest = np.linalg.norm(BLOBS[:, None] - places[None], axis=2).argmin(axis=1)
    for rows, client in zip(by_distance(BLOBS, places, 1e-12, np.random.default_rng(0)), (0, 1), strict=True):
        assert (nearest[rows] == client).all()
    even = by_distance(BLOBS, places, 1e12, np.random.default_rng(0))
    assert abs(len(even[0]) - 100) < 40
    assert all(len(set(BLOB[rows])) == 5 for rows in even)


def test_client_without_rows_takes_the_nearest_of_another() -> None:
    rows = np.array([[0.0], [1.0], [2.0], [3.0]])
    clients = by_distance(rows, [[0.0], [1e6]], 1e-9, np.random.default_rng(0))
    assert [own.tolist() for own in clients] == [[0, 1, 2], [3]]


def test_row_at_a_clients_own_place_hits_it() -> None:
    clients = by_distance(np.zeros((50, 2)), [[0.0, 0.0], [1e9, 0.0]], 1e-6, np.random.default_rng(0))
    assert len(clients[0]) == 49


def test_places_that_are_not_given_are_drawn_among_the_rows() -> None:
    sizes = [len(rows) for rows in partition(BLOBS, 5, "distance", np.random.default_rng(1), beta=0.1)]
    assert max(sizes) > 40 and sum(sizes) == 200


# --- cluster-wise ---


@given(
    st.integers(1, 8).flatmap(
        lambda k: st.tuples(st.just(k), st.lists(st.integers(1, k), min_size=1, max_size=6))
    ),
    st.integers(0, 2**32),
)
def test_each_client_holds_its_number_of_clusters(case: tuple[int, list[int]], seed: int) -> None:
    k, held = case
    held = held if sum(held) >= k else [*held, k]
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(k), 10))
    clients = by_cluster(y, held, np.random.default_rng(seed))
    assert_lawful(clients, len(y), len(held))
    assert [len(set(y[rows].tolist())) for rows in clients] == held
    for cluster in range(k):
        shares = [np.count_nonzero(y[rows] == cluster) for rows in clients]
        present = [share for share in shares if share]
        assert max(present) - min(present) <= 1


def test_papers_clusters_a_client() -> None:
    y = np.repeat(np.arange(16), 50)
    held = [1, 4, 7, 10, 16]
    clients = partition(np.zeros((800, 2)), 5, "cluster-wise", np.random.default_rng(0), y, clusters=held)
    assert [len(set(y[rows].tolist())) for rows in clients] == held
