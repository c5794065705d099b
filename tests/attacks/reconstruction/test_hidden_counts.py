"""Hidden counts: equal weights do not hide how many rows a client has in a cluster."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris

from privfed import EWFKMeans
from privfed.attacks import EqualWeightCounts, NotRun, Prior, Truth, evaluate
from privfed.attacks.reconstruction.hidden_counts import hidden_counts
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import cell_sums
from tests.attacks.figures import fitted, mixture

# Few rounds leave clusters without rows, and the attack reads the totals all the same.
pytestmark = pytest.mark.filterwarnings("ignore:no row lies at")


def lloyd(
    rows: FloatArray, k: int, rng: np.random.Generator, steps: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return sent centroids, means and true counts of the rounds of Lloyd's algorithm on one client."""
    centers = rows[rng.choice(len(rows), k, replace=False)] + 0.01
    sent, means, counts = [], [], []
    for _ in range(steps):
        count, total = cell_sums(rows, assign(rows, centers), k)
        sent.append(centers)
        centers = np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], centers)
        means.append(centers)
        counts.append(count)
    return np.stack(sent), np.stack(means), np.stack(counts)


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(2, 6))
def test_with_as_many_features_as_clusters_all_counts_are_known(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, k))
    sent, means, counts = lloyd(rows, k, rng, 3)
    found = hidden_counts(sent, means, rng, n_rows=40.0, row_sum=rows.sum(axis=0))
    np.testing.assert_array_equal(found, counts)


@given(seed=st.integers(0, 2**32 - 1))
def test_what_is_claimed_in_few_features_is_right_up_to_a_common_factor(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sent, means, counts = lloyd(rng.normal(size=(40, 2)), 5, rng, 12)
    found = hidden_counts(sent, means, rng)
    claimed = np.isfinite(found) & (counts > 0)
    factors = counts[claimed] / found[claimed]
    np.testing.assert_allclose(factors, np.rint(factors))


def test_a_start_that_is_a_mean_of_the_rows_is_no_empty_cluster() -> None:
    rng = np.random.default_rng(4)
    near, far = rng.normal(size=(30, 6)), 100.0 + rng.normal(size=(7, 6))
    sent, means, counts = (array[:1] for array in lloyd(near, 3, rng, 1))
    # The last centroid is the far rows' from the start on, and comes once.
    still = far.mean(axis=0)[None, None]
    sent, means = np.concatenate([sent, still], axis=1), np.concatenate([means, still], axis=1)
    total = near.sum(axis=0) + far.sum(axis=0)
    found = hidden_counts(sent, means, rng, n_rows=37.0, row_sum=total)
    np.testing.assert_array_equal(found, [[*counts[0], 7]])


@pytest.mark.parametrize(("d", "use_totals", "least"), [(10, True, 1.0), (10, False, 0.1), (2, True, 0.93)])
def test_a_run_of_ewf_gives_counts_away(d: int, use_totals: bool, least: float) -> None:
    clients, _ = mixture(1, 100, d)
    model = fitted(clients, 10, 1, kind=EWFKMeans, max_iter=20, tol=0)
    attack = EqualWeightCounts(client=0, use_totals=use_totals)
    report = evaluate(
        attack.run(model.transcript_.view("server"), Prior(), np.random.default_rng(0)), Truth(clients)
    )
    assert report.recovered >= least
    assert report.precision >= (0.99 if use_totals else 0.9)


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_rows_in_whole_numbers_give_all_counts_away() -> None:
    # Centroids that come back once have no rows, or are at rest: number and sum of the rows tell.
    rows = np.random.default_rng(4).permutation(load_iris().data)
    clients = np.array_split(rows, 5)
    model = fitted(clients, 10, 4, kind=EWFKMeans, max_iter=5, tol=0, local_iter=5)
    found = EqualWeightCounts(client=0).run(
        model.transcript_.view("server"), Prior(), np.random.default_rng(0)
    )
    report = evaluate(found, Truth(clients))
    assert report.recovered >= 0.9 and report.precision == 1.0


def test_other_runs_give_nothing_to_run_on() -> None:
    clients, _ = mixture(0, 30, 2, clients=3)
    for words in ({}, {"kind": EWFKMeans, "protocol": "masked"}):
        view = fitted(clients, 3, 0, max_iter=2, tol=0, **words).transcript_.view("server")
        found = EqualWeightCounts(client=0).run(view, Prior(), np.random.default_rng(0))
        assert isinstance(found, NotRun) and "equally weighted centroids" in found.why


@pytest.mark.parametrize("steps", [1, 5])
def test_several_local_steps_hide_no_counts(steps: int) -> None:
    # The local centroids are means of all rows after any step: docs/attacks/equal-weight-counts.md.
    clients = mixture(0, 100, 10)[0]
    model = fitted(clients, 10, 0, kind=EWFKMeans, max_iter=10, tol=0, local_iter=steps)
    found = EqualWeightCounts(client=0).run(
        model.transcript_.view("server"), Prior(), np.random.default_rng(0)
    )
    report = evaluate(found, Truth(clients))
    assert report.recovered >= 0.9
    assert report.precision >= 0.99
