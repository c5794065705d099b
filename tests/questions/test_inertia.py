"""Scores as sums are the scores of the pooled rows."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from privfed import metrics
from privfed.core.record.records import Exchanged
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.federation.opening import open_over
from privfed.questions.lloyd import ClientScores, Inertia, largest_distances
from tests.reference import dwf_reference as oracle
from tests.undeclared import ANYTHING

Clients = list[np.ndarray]


def clients_of(n_features: int) -> Clients:
    rng = np.random.default_rng(n_features)
    return [rng.normal(loc=rng.normal(size=n_features), size=(n, n_features)) for n in (1, 30, 4, 17, 25, 9)]


def ranges_of(clients: Clients) -> Ranges:
    rows = np.concatenate(clients)
    return Ranges(rows.min(axis=0), rows.max(axis=0), 32)


@pytest.mark.parametrize("n_features", [1, 2, 8, 9, 40])
def test_inertia_is_scikit_learns_on_the_pooled_rows(n_features: int, protocol: str) -> None:
    clients = clients_of(n_features)
    pooled = KMeans(3, n_init=2, random_state=0).fit(np.concatenate(clients))
    question = Inertia(ranges=ranges_of(clients), centers=pooled.cluster_centers_)
    total = open_over(clients, protocol=protocol, policy=ANYTHING).ask(Ask(question))
    assert total.statistics["inertia"][0] == pytest.approx(pooled.inertia_, rel=1e-6)
    assert total.statistics["rows"][0] == pytest.approx(86, abs=1e-6)


@pytest.mark.parametrize("n_features", [2, 9])
def test_client_scores_are_the_mean_of_the_clients_own(n_features: int, protocol: str) -> None:
    clients = clients_of(n_features)
    centers = np.random.default_rng(1).normal(size=(4, n_features))
    total = open_over(clients, protocol=protocol, policy=ANYTHING).ask(
        Ask(ClientScores(ranges=ranges_of(clients), centers=centers))
    )
    mean = total.statistics["score"][0] / total.statistics["clients"][0]
    assert mean == pytest.approx(oracle.mean_client_score(clients, centers), rel=1e-6)


@pytest.mark.parametrize("n_features", [2, 12])
def test_inertia_of_rows_far_from_the_origin(n_features: int) -> None:
    # |x|^2 - 2xc + |c|^2 would lose all digits here.
    clients = [1e8 + rows for rows in clients_of(n_features)]
    centers = clients[1][:3]
    question = Inertia(ranges=ranges_of(clients), centers=centers)
    answer = open_over(clients, protocol="plain", policy=ANYTHING).ask(Ask(question)).statistics["inertia"][0]
    assert answer == pytest.approx(sum(oracle.sse(rows, centers) for rows in clients), rel=1e-6)


def test_no_row_of_the_ranges_is_farther_than_the_largest_distances() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        ranges = Ranges(-rng.uniform(size=3), rng.uniform(size=3), 1)
        centers = rng.normal(scale=2.0, size=(rng.integers(1, 4), 3))
        corners = np.stack(np.meshgrid(*zip(ranges.low, ranges.high, strict=True)), axis=-1).reshape(-1, 3)
        rows = np.concatenate([corners, rng.uniform(ranges.low, ranges.high, size=(50, 3))])
        nearest = ((rows[:, None] - centers[None]) ** 2).sum(axis=2).min(axis=1)
        assert nearest.max() <= largest_distances(centers, ranges).min() * (1 + 1e-12)


def test_clients_that_open_totals_hear_a_score_that_is_asked_alone() -> None:
    clients = clients_of(2)
    federation = open_over(clients, protocol="group-masked", policy=ANYTHING)
    for _ in range(2):
        metrics.score(federation, clients[1][:3])
        assert federation.transcript.of(Exchanged)[-1].stage == "close"
