"""The fuzzy objective and the fuzzy Davies-Bouldin index as sums are those of the pooled rows."""

from typing import Any

import numpy as np
import pytest

from privfed import Box
from privfed.core.record.records import Asked
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError
from privfed.federation.opening import open_over
from privfed.metrics.functions import fuzzy_davies_bouldin
from privfed.questions.fuzzy_spread import FuzzyObjective, FuzzySpread
from tests.reference import fuzzy_reference as oracle
from tests.undeclared import ANYTHING

Clients = list[np.ndarray]


def clients_of(n_features: int) -> Clients:
    rng = np.random.default_rng(n_features)
    return [rng.normal(loc=rng.normal(size=n_features), size=(n, n_features)) for n in (1, 30, 4, 17, 25, 9)]


def ranges_of(clients: Clients) -> Ranges:
    rows = np.concatenate(clients)
    return Ranges(rows.min(axis=0), rows.max(axis=0), 32)


@pytest.mark.parametrize("over", ["plain", "masked"])
@pytest.mark.parametrize("n_features", [1, 2, 9, 40])
@pytest.mark.parametrize(("p", "q"), [(2, 1), (1, 1), (2, 2), (3, 1.5), (np.inf, 4)])
@pytest.mark.few(8)
def test_index_is_the_pooled_one(n_features: int, p: float, q: float, over: str) -> None:
    clients = clients_of(n_features)
    centers = np.random.default_rng(1).normal(size=(4, n_features))
    found = fuzzy_davies_bouldin(clients, centers, p=p, q=q, protocol=over)
    expected = oracle.fuzzy_davies_bouldin(np.concatenate(clients), centers, p=p, q=q)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("over", ["plain", "masked"])
@pytest.mark.parametrize("m", [1.1, 1.7, 2.0, 5.0])
def test_objective_is_the_pooled_one_and_never_above_the_inertia(m: float, over: str) -> None:
    clients = clients_of(3)
    centers = clients[1][:3]  # Rows on centers among them.
    question = FuzzyObjective(ranges=ranges_of(clients), centers=centers, m=m)
    total = open_over(clients, protocol=over, policy=ANYTHING).ask(Ask(question)).statistics
    pooled = np.concatenate(clients)
    assert total["objective"][0] == pytest.approx(oracle.objective(pooled, centers, m), rel=1e-9)
    assert total["inertia"][0] == pytest.approx(
        float((oracle.distances(pooled, centers).min(axis=1) ** 2).sum())
    )
    assert total["objective"][0] <= total["inertia"][0] * (1 + 1e-12)
    assert total["rows"][0] == pytest.approx(86, abs=1e-9)


def test_index_by_hand() -> None:
    # Rows at 0 and 4, centers on them: each row is its center's alone, so U = 1/2 and S = 1/2 * 4/2 = 1.
    clients = [np.array([[0.0]]), np.array([[4.0]])]
    assert fuzzy_davies_bouldin(clients, [[0.0], [4.0]], protocol="plain") == pytest.approx(0.5)
    # With q = 2 the mean of 0 and 16 has the root sqrt(8).
    found = fuzzy_davies_bouldin(clients, [[0.0], [4.0]], q=2, protocol="plain")
    assert found == pytest.approx(np.sqrt(8) / 4)


def test_a_clients_rows_are_exactly_the_sum_of_its_memberships() -> None:
    # What Reveals says: hiding the number of rows alone hides nothing.
    clients = clients_of(2)
    question = FuzzySpread(ranges=ranges_of(clients), centers=np.random.default_rng(0).normal(size=(5, 2)))
    total = open_over(clients, protocol="plain", policy=ANYTHING).ask(Ask(question))
    assert total.contributions is not None
    for position, rows in enumerate(clients):
        answer = total.contributions[position]
        assert answer["membership"].sum() == pytest.approx(len(rows), abs=1e-12)
        assert answer["rows"][0] == len(rows)


def test_index_chooses_the_true_number_of_clusters() -> None:
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    clients = [means[rng.integers(3, size=60)] + rng.normal(size=(60, 2)) for _ in range(4)]
    extra = np.array([[9.0, 1.0], [0.5, 8.0]])
    by_number = {
        k: fuzzy_davies_bouldin(clients, np.vstack([means, extra])[:k], protocol="masked")
        for k in (2, 3, 4, 5)
    }
    assert min(by_number, key=lambda k: by_number[k]) == 3


def test_coincident_centers_are_infinitely_bad(recwarn: pytest.WarningsRecorder) -> None:
    clients = clients_of(2)
    centers = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert fuzzy_davies_bouldin(clients, centers, protocol="plain") == np.inf
    same = [np.zeros((3, 2))] * 3
    assert fuzzy_davies_bouldin(same, np.zeros((2, 2)), protocol="plain") == np.inf
    assert not recwarn.list


def test_index_is_one_sum_and_one_more_for_the_ranges() -> None:
    clients = clients_of(2)
    centers = np.eye(2)
    for words, purposes in (
        ({}, ["range", "index"]),
        ({"domain": Box(-20, 20, max_rows=64)}, ["range", "index"]),
    ):
        federation = open_over(clients, protocol="plain", policy=ANYTHING, **words)
        fuzzy_davies_bouldin(federation, centers)
        assert [asked.purpose for asked in federation.transcript.of(Asked)] == purposes
        fuzzy_davies_bouldin(federation, centers)
        assert len(federation.transcript.of(Asked)) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param({"centers": [[0.0, 0.0]]}, "n_clusters >= 2", id="one-center"),
        pytest.param({"centers": [0.0, 1.0]}, "n_clusters >= 2", id="one-axis"),
        pytest.param({"centers": [[0.0], [1.0]]}, "centers need 2 columns", id="columns"),
        pytest.param({"centers": [[0.0, 0.0], [np.nan, 0.0]]}, "finite", id="nan"),
        pytest.param({"m": 1.0}, "m must be", id="m"),
        pytest.param({"p": 0.5}, "p must be", id="p"),
        pytest.param({"p": np.nan}, "p must be", id="p-nan"),
        pytest.param({"q": 0.5}, "q must be", id="q"),
        pytest.param({"q": np.nan}, "q must be", id="q-nan"),
        pytest.param(
            {"q": 64, "centers": [[0.0, 0.0], [1e20, 0.0]]}, "q=64.0 is too large", id="q-too-large"
        ),
        pytest.param({"privacy": 1.0}, "privacy must be None", id="privacy"),
    ],
)
def test_bad_words_are_errors(words: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        fuzzy_davies_bouldin(clients_of(2), **{"centers": np.eye(2), "protocol": "plain", **words})
