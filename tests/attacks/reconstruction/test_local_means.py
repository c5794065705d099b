"""What clients say of their own clusterings: rows from k-FED, FKM, a kfed start."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from privfed import FKM, KFED
from privfed.attacks import Differencing, Prior
from privfed.attacks.base.report import linear_bound
from privfed.attacks.evidence.cells import Evidence, answers_of, evidence_of
from privfed.attacks.reconstruction.differencing import (
    LocalClustering,
    clusterings_of,
    completed,
    observed,
    readings,
    with_clusterings,
)
from privfed.attacks.reconstruction.iterative_removal import removed
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import cell_sums
from tests.attacks.figures import differenced, fitted, mixture, real
from tests.default_run import slow


def clustered(seed: int, n: int = 40, d: int = 3, k: int = 6) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return rows, their k-means centroids of at least two rows, and the rows that stand alone."""
    rows = np.random.default_rng(seed).normal(size=(n, d))
    fitted_rows = KMeans(k, n_init=3, random_state=seed).fit(rows)
    sizes = np.bincount(fitted_rows.labels_, minlength=k)
    centers = fitted_rows.cluster_centers_
    return rows, centers[sizes > 1], centers[sizes == 1]


def about(rows: FloatArray) -> Evidence:
    box = np.full(rows.shape[1], np.abs(rows).max() + 1.0)
    return Evidence(0, (), (), float(len(rows)), rows.sum(axis=0), -box, box)


@pytest.mark.parametrize("seed", range(6))
def test_a_clustering_s_counts_and_sums_follow_from_its_means(seed: int) -> None:
    rows, means, alone = clustered(seed)
    found = observed(LocalClustering(6, None, (), ()), means, alone, about(rows), -1)
    assert found is not None
    assert found.local
    counts, sums = cell_sums(rows, found.cells.place(rows), found.cells.n_cells)
    np.testing.assert_array_equal(found.counts, counts)
    np.testing.assert_allclose(found.sums, sums, atol=1e-9)


def test_a_row_that_stands_alone_must_be_known() -> None:
    seed = next(seed for seed in range(100) if len(clustered(seed)[2]) == 1)
    rows, means, alone = clustered(seed)
    clustering = LocalClustering(6, None, (), ())
    assert observed(clustering, means, rows[:0], about(rows), -1) is None
    assert observed(clustering, means, np.vstack([rows[:5], alone]), about(rows), -1) is not None


def test_means_that_are_not_all_of_the_client_s_rows_give_nothing() -> None:
    rows, means, _ = clustered(0)
    assert observed(LocalClustering(6, None, (), ()), means + 1e-3, rows[:0], about(rows), -1) is None
    assert observed(LocalClustering(6, None, (), ()), means[:0], rows[:0], about(rows), -1) is None


def test_two_means_that_share_all_cells_are_told_apart_by_another_clustering() -> None:
    view = fitted(real("breast_cancer", 1), 10, 1, n_init=6, max_iter=1, tol=0).transcript_.view("server")
    evidence, rng = evidence_of(view, 0), np.random.default_rng(0)
    clusterings = clusterings_of(list(answers_of(view, 0)))
    taken = [
        removed(Evidence(0, one.observations, (), np.nan, None, evidence.low, evidence.high), rng)[0]
        for one in clusterings
    ]
    short = [i for i, own in enumerate(taken) if len(own) == 8]
    offered = np.concatenate(taken)
    assert short
    whole = [one for i in short for one in completed(clusterings[i], taken[i], offered)]
    assert whole
    assert {len(one) for one in whole} == {10}
    assert not completed(clusterings[short[0]], taken[short[0]], offered[:0])


@pytest.mark.slow
def test_a_kfed_start_shows_more_rows_than_the_rounds() -> None:
    more = []
    for seed in range(4):
        clients = real("wine", seed)
        model = fitted(clients, 10, seed, n_init=10)
        evidence = evidence_of(model.transcript_.view("server"), 0)
        rounds = linear_bound([one.cells for one in evidence.observations], clients[0])
        report = differenced(clients, model, 0)
        assert report.precision >= 0.98
        assert report.bound >= report.recovered >= rounds
        more.append(report.recovered - rounds)
    assert np.mean(more) > 0.04


@pytest.mark.slow
def test_what_clusterings_say_is_what_their_rows_say() -> None:
    clients = mixture(0, 100, 2)[0]
    view = fitted(clients, 10, 0, n_init=5, max_iter=20, tol=0).transcript_.view("server")
    evidence, rng = evidence_of(view, 0), np.random.default_rng(0)
    left = readings(evidence, view, rng)
    larger, _ = with_clusterings(evidence, removed(evidence, rng), left, rng)
    assert len(left) == 5
    new = larger.observations[len(evidence.observations) :]
    assert len(new) >= 3
    assert len({one.sequence for one in larger.observations[-len(new) :]}) == len(new)
    for one in new:
        counts, sums = cell_sums(clients[0], one.cells.place(clients[0]), one.cells.n_cells)
        np.testing.assert_array_equal(one.counts, counts)
        np.testing.assert_allclose(one.sums, sums, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "merge", "shape", "least"),
    [
        slow((FKM, "gathered", (3, 60, 6), 0.2)),
        slow((FKM, "summed", (3, 60, 6), 0.3)),
        (KFED, "gathered", (2, 40, 4), 0.0),
    ],
)
def test_methods_that_ask_for_local_centroids_show_rows(
    kind: type[FKM] | type[KFED], merge: str, shape: tuple[int, int, int], least: float
) -> None:
    clients = mixture(*shape)[0]
    model = kind(shape[2] + 2, merge=merge, n_init=5, protocol="plain", random_state=shape[0]).fit(clients)
    report = differenced(clients, model, 0)
    assert report.precision == 1.0
    assert report.bound >= report.recovered > least


def test_totals_of_several_clients_solve_no_clustering() -> None:
    clients = real("iris", 0)
    view = fitted(clients, 5, 0, n_init=2, max_iter=3, tol=0).transcript_.view("server")
    found = Differencing().run(view, Prior(), np.random.default_rng(0))
    assert found.queries == len(evidence_of(view, None).observations)
