"""Starts come from questions, lie where the data lies, and show nothing of small clients."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.cluster import KMeans

from privfed import Box, DWFKMeans
from privfed.algorithms.starts import KMeansCentroids
from privfed.core.asking.question import ClientData
from privfed.core.record.records import Asked
from privfed.core.values.domain import Ranges
from privfed.errors import DataError
from privfed.questions.cells import CellSums, cells_wanted
from tests.opened import opened
from tests.reference import dwf_reference as oracle
from tests.some import some

pytestmark = [
    pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.filterwarnings("ignore:the centers are not the means:sklearn.exceptions.ConvergenceWarning"),
]

Clients = list[np.ndarray]


def fitted(clients: Clients, k: int, init: Any, protocol: str = "plain", **words: Any) -> DWFKMeans:
    words = {"max_iter": 1, "tol": 0.0, **words}
    return DWFKMeans(k, init=init, protocol=protocol, **words).fit(clients)


def mixture(n_features: int, n_clients: int = 8, n_blobs: int = 5, spread: float = 12.0) -> Clients:
    rng = np.random.default_rng(n_features)
    means = rng.uniform(-spread, spread, size=(n_blobs, n_features))
    return [
        means[rng.integers(n_blobs, size=60)] + rng.normal(size=(60, n_features)) for _ in range(n_clients)
    ]


def sums_of(model: DWFKMeans, question: str) -> list[Any]:
    return [seen for seen in opened(model.transcript_).sums if type(seen.question).__name__ == question]


# --- every start ---


@pytest.mark.parametrize("n_features", [1, 2, 3, 4, 11])
@pytest.mark.parametrize("init", ["coreset", "kfed", "random"])
def test_start_lies_inside_the_ranges(init: str, n_features: int, protocol: str) -> None:
    model = fitted(mixture(n_features), 5, init, protocol)
    ranges = sums_of(model, "Inertia")[0].question.ranges
    start = model.history_[0]
    assert start.shape == (5, n_features)
    assert (start >= ranges.low).all() and (start <= ranges.high).all()


@pytest.mark.parametrize("init", ["coreset", "kfed"])
def test_start_is_found_by_sums_over_all_clients_before_the_first_round(
    blobs: Clients, init: str, protocol: str
) -> None:
    model = fitted(blobs, 4, init, protocol, clients_per_round=6)
    asked = model.transcript_.of(Asked)
    starts = [record for record in asked if record.purpose == "start"]
    assert starts and all(record.clients == tuple(range(10)) for record in starts)
    assert asked[0].purpose == "range" and asked[1 : 1 + len(starts)] == starts


def test_random_start_and_given_start_ask_nothing(blobs: Clients, protocol: str) -> None:
    given_start = np.array([[0.0, 0.0], [1.0, 2.0]])
    for init in ("random", given_start, given_start.tolist()):
        model = fitted(blobs, 2, init, protocol)
        assert "start" not in {record.purpose for record in model.transcript_.of(Asked)}
    np.testing.assert_array_equal(model.history_[0], given_start)


@pytest.mark.parametrize("init", ["coreset", "kfed", "random"])
def test_start_repeats_and_changes_with_the_random_state(blobs: Clients, init: str, protocol: str) -> None:
    def start(seed: int) -> np.ndarray:
        return fitted(blobs, 7, init, protocol, random_state=seed).history_[0]

    np.testing.assert_array_equal(start(1), start(1))
    assert not np.array_equal(start(1), start(2))


@pytest.mark.parametrize("init", ["coreset", "kfed", "random"])
def test_fewer_distinct_points_than_clusters(init: str, protocol: str) -> None:
    two = [np.repeat([[0.0, 5.0], [3.0, 1.0]], 4, axis=0) for _ in range(5)]
    if init == "kfed":
        with pytest.raises(DataError, match='use init="coreset"'):
            fitted(two, 4, init, protocol)
        return
    model = fitted(two, 4, init, protocol, max_iter=5)
    assert np.isfinite(model.cluster_centers_).all()
    if init == "coreset":
        assert model.inertia_ == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("n_features", [2, 11])
@pytest.mark.parametrize("init", ["coreset", "random"])
def test_all_rows_the_same(init: str, n_features: int, protocol: str) -> None:
    model = fitted([np.full((4, n_features), 3.0)] * 5, 3, init, protocol, max_iter=3)
    assert np.isfinite(model.cluster_centers_).all()
    assert model.inertia_ == pytest.approx(0.0, abs=1e-5)


def test_as_many_clusters_as_rows(protocol: str) -> None:
    clients = [np.array([[float(i), 0.0]]) for i in range(6)]
    for init in ("coreset", "random"):
        assert fitted(clients, 6, init, protocol).cluster_centers_.shape == (6, 2)


# --- coreset ---


@pytest.mark.parametrize("n_features", [1, 2, 3, 4, 11])
def test_coreset_finds_separated_blobs(n_features: int, protocol: str) -> None:
    clients = mixture(n_features, spread=40.0)
    pooled = np.concatenate(clients)
    best = KMeans(5, n_init=20, random_state=0).fit(pooled).inertia_
    model = fitted(clients, 5, "coreset", protocol, max_iter=20)
    assert model.inertia_ <= 1.02 * best
    # The start itself is already near it: cells are finer than the blobs' distances.
    assert oracle.sse(pooled, model.history_[0]) <= 4.0 * best


def test_coreset_shows_counts_and_sums_of_cells_only(blobs: Clients, protocol: str) -> None:
    seen = sums_of(fitted(blobs, 4, "coreset", protocol), "CellSums")
    assert len(seen) == 1
    total, question = seen[0].total, seen[0].question
    n_rows = sum(map(len, blobs))
    assert set(total) == {"count", "sum"}
    assert total["count"].sum() == pytest.approx(n_rows)
    np.testing.assert_allclose(total["sum"].sum(axis=0), np.concatenate(blobs).sum(axis=0), atol=1e-5)
    assert question.n_cells >= 4 * 4


@pytest.mark.parametrize(
    ("n_rows", "k", "cells"),
    [
        pytest.param(10, 5, 40, id="at-least-8-a-cluster"),
        pytest.param(800, 5, 100, id="one-for-8-rows"),
        pytest.param(10**6, 5, 160, id="at-most-32-a-cluster"),
    ],
)
def test_number_of_cells(n_rows: int, k: int, cells: int) -> None:
    assert cells_wanted(n_rows, k) == cells


@given(
    st.integers(1, 3).flatmap(lambda d: arrays(np.float64, (7, d), elements=st.floats(-1.0, 1.0))),
    st.integers(1, 4),
    st.floats(0.0, 1.0),
)
def test_grid_cells_are_boxes_through_the_center(rows: np.ndarray, per_axis: int, share: float) -> None:
    d = rows.shape[1]
    ranges = Ranges([-1.0] * d, [1.0] * d, 8)
    center = ranges.low + share * ranges.width
    question = CellSums(ranges=ranges, center=center, normals=np.empty((0, d)), per_axis=per_axis)
    cells = question.cells(rows)
    assert (cells >= 0).all() and (cells < question.n_cells).all()
    for one, row in zip(cells, rows, strict=True):
        for other, second in zip(cells, rows, strict=True):
            if one == other:
                # Rows of one cell lie on the same side of the center, in every feature.
                assert ((row < center) == (second < center)).all()


def test_cell_without_width_takes_the_rows_on_it() -> None:
    ranges = Ranges([0.0, 0.0], [1.0, 0.0], 8)
    question = CellSums(ranges=ranges, center=np.zeros(2), normals=np.empty((0, 2)), per_axis=1)
    answer = question.answer(
        ClientData(np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.0]])), np.random.default_rng(0)
    )
    assert sorted(answer["count"].tolist()) == [0.0, 0.0, 0.0, 3.0]


@given(st.integers(0, 2**32 - 1))
def test_hyperplanes_separate_opposite_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranges = Ranges([-1.0] * 5, [1.0] * 5, 8)
    question = CellSums(ranges=ranges, center=np.zeros(5), normals=rng.normal(size=(3, 5)), per_axis=0)
    rows = rng.uniform(-1, 1, size=(10, 5))
    np.testing.assert_array_equal(question.cells(rows) + question.cells(-rows), np.full(10, 7))


# --- k-FED ---


def test_client_with_fewer_rows_than_clusters_contributes_nothing(blobs: Clients, protocol: str) -> None:
    k, small = 4, [np.array([[0.1, 0.2], [6.0, 6.0], [0.0, 6.0]])] * 3
    alone = [rows for rows in blobs if len(rows) > 10]
    few = fitted([*alone, *small], k, "kfed", protocol)
    none = fitted(alone, k, "kfed", protocol)
    for question in ("PointCells", "PointSums"):
        with_small, without = sums_of(few, question)[0].total, sums_of(none, question)[0].total
        assert round(float(with_small["count"].sum())) == round(float(without["count"].sum()))
        assert with_small["count"].sum() <= k * len(alone) + 1e-6
        np.testing.assert_allclose(with_small["sum"].sum(axis=0), without["sum"].sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("n_features", [2, 11])
def test_small_clients_answers_are_zeros(n_features: int) -> None:
    # With many features too: there an empty sum is formed in another way.
    clients = [*mixture(n_features, 3), np.ones((2, n_features)), np.eye(4, n_features)]
    model = fitted(clients, 5, "kfed")
    for question in ("PointCells", "PointSums"):
        for seen in some(sums_of(model, question)):
            for client in (3, 4):
                assert not seen.answers[client]["count"].any() and not seen.answers[client]["sum"].any()
            assert seen.answers[0]["count"].any()


def test_local_centroid_of_a_single_row_is_left_out() -> None:
    rows = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [9.0, 9.0]])
    found = KMeansCentroids(n_clusters=2, seed=0).of(ClientData(rows)).points
    assert len(found) == 1
    np.testing.assert_allclose(found[0], rows[:3].mean(axis=0))


def test_no_client_with_enough_rows_is_an_error_that_names_the_remedy(protocol: str) -> None:
    clients = [np.random.default_rng(i).normal(size=(3, 2)) for i in range(5)]
    with pytest.raises(DataError, match=r'no client has 4 different points.*use init="coreset"'):
        fitted(clients, 4, "kfed", protocol)


def test_rows_that_differ_in_their_last_bits_are_no_trouble(protocol: str) -> None:
    # With warnings as errors, a word of scikit-learn's about too few clusters would end the fit.
    near = np.array([[0.0, 0.0], [1e-200, 0.0], [0.0, 0.0], [0.0, 1e-200], [1.0, 0.0], [1.0, 1e-17]])
    for init in ("kfed", "coreset"):
        model = fitted([near, near + 1.0, near - 1.0, near], 3, init, protocol)
        assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize("n_features", [2, 5])
def test_kfed_start_is_about_as_good_as_the_authors(n_features: int, protocol: str) -> None:
    clients = mixture(n_features, spread=20.0)
    theirs = oracle.kfed_start(clients, 5, np.random.default_rng(0), server="kmeans")
    ours = fitted(clients, 5, "kfed", protocol).history_[0]
    assert oracle.pooled_score(clients, ours) <= 1.3 * oracle.pooled_score(clients, theirs)


def test_kfed_start_rests_under_one_more_lloyd_step_over_the_local_centroids(blobs: Clients) -> None:
    model = fitted(blobs, 4, "kfed")
    last = sums_of(model, "PointSums")[-1]
    count = last.total["count"][:, None]
    moved = np.where(count > 0.5, last.total["sum"] / np.maximum(count, 1.0), last.question.centers)
    np.testing.assert_allclose(model.history_[0], moved, atol=1e-4)


# --- random ---


def test_random_start_fills_a_declared_domain(blobs: Clients, protocol: str) -> None:
    model = fitted(blobs, 40, "random", protocol, domain=Box(-100, 300))
    start = model.history_[0]
    assert start.min() > -100 and start.max() < 300
    assert (np.ptp(start, axis=0) > 300).all()


@pytest.mark.parametrize("init", ["coreset", "kfed"])
def test_start_under_a_declared_domain(blobs: Clients, protocol: str, init: str) -> None:
    model = fitted(blobs, 4, init, protocol, domain=Box(-5, 15, max_rows=50))
    ranges = sums_of(model, "Inertia")[0].question.ranges
    assert ranges.low.tolist() == [-5.0, -5.0] and ranges.high.tolist() == [15.0, 15.0] and ranges.rows == 50
