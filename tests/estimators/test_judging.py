"""A fit says what its own totals say against its result, over every sum, the most severe first."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin

import privfed
from privfed import DWFKMeans
from privfed.core.record.records import question_of
from privfed.estimators.judging import GAP, MOST, Finding, sizes_and_gap
from privfed.questions.lloyd import Inertia, LloydSums
from tests.some import some

SUMS = ("plain", "masked", "masked-verified", "group-masked", "ckks")
DISTINCT = np.repeat([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0], [9.0, 2.0]], 15, axis=0)


def fitted(model: Any, clients: list[np.ndarray]) -> Any:
    """Return a fitted model, whose findings must have been warnings, each of its class."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(clients)
    assert [(str(one.message), one.category) for one in said] == [
        (one.text, one.category) for one in model.findings_
    ]
    return model


def codes(model: Any) -> list[str]:
    return [one.code for one in model.findings_]


def skewed(k: int = 5) -> list[np.ndarray]:
    """Return clients that each hold a part of the plane, so that their own steps move the fixed point."""
    rows = np.random.default_rng(4).normal(size=(400, 2)) @ [[3.0, 1.0], [0.0, 1.0]]
    return np.array_split(rows[np.argsort(rows[:, 0])], k)


def asked_along(model: Any) -> np.ndarray:
    """Return the direction along which the score of a fit added up offsets, of shape (1, n_features)."""
    questions = (question_of(asked) for asked, _ in reversed(model.transcript_.totals()))
    return next(one.directions for one in questions if isinstance(one, Inertia))


def exact_gap(model: Any, clients: list[np.ndarray], along: np.ndarray | None = None) -> float:
    """Return by how much the means of the rows have less inertia than the centers; `along` directions."""
    rows, centers = np.concatenate(clients), model.cluster_centers_
    labels = pairwise_distances_argmin(rows, centers)
    along = np.eye(rows.shape[1]) if along is None else along
    moved = [
        (labels == j).sum() * np.square(along @ (rows[labels == j].mean(0) - centers[j])).sum()
        for j in set(labels)
    ]
    return float(sum(moved) / np.square(rows - centers[labels]).sum())


@pytest.mark.parametrize("over", SUMS)
def test_more_clusters_than_distinct_rows_are_said_and_marked(over: str) -> None:
    model = fitted(DWFKMeans(7, protocol=over, random_state=0), np.array_split(DISTINCT, 3))
    first: Finding = model.findings_[0]
    assert first.code == "few-rows" and issubclass(first.category, ConvergenceWarning)
    labels = set(np.concatenate(model.labels_).tolist())
    assert set(first.clusters) == set(range(7)) - labels and len(labels) == 4


@pytest.mark.parametrize("kind", ["DWFKMeans", "EWFKMeans", "FKM", "KFED", "FederatedMiniBatchKMeans"])
def test_centers_without_rows_are_said(kind: str) -> None:
    clients = [np.random.default_rng(i).normal(size=(30, 2)) for i in range(4)]
    far = np.array([[0.0, 0.0], [0.5, 0.0], [90.0, 90.0]])
    words: dict[str, Any] = {"init": far, "random_state": 0, "max_iter": 3, "tol": 0.0}
    words |= {"reassign_after": None} if kind == "FederatedMiniBatchKMeans" else {}
    model = fitted(getattr(privfed, kind)(3, **words), clients)
    sizes, _ = sizes_and_gap(model)
    assert sizes is not None
    np.testing.assert_array_equal(sizes, np.bincount(np.concatenate(model.labels_), minlength=3))
    empty = [one.clusters for one in model.findings_ if one.code == "empty"]
    assert empty == ([tuple(np.flatnonzero(sizes == 0))] if (sizes == 0).any() else [])


@pytest.mark.parametrize("over", SUMS)
@pytest.mark.parametrize("n_columns", [1, 2])
def test_the_gap_along_a_direction_is_exact_and_said_above_two_percent(over: str, n_columns: int) -> None:
    clients = [one[:, :n_columns] for one in skewed()]
    model = fitted(DWFKMeans(4, protocol=over, random_state=0), clients)
    _, gap = sizes_and_gap(model)
    assert gap == pytest.approx(exact_gap(model, clients, asked_along(model)), rel=1e-3, abs=1e-9)
    assert ("off-means" in codes(model)) == (bool(model.converged_) and gap > GAP)


def test_some_skewed_sites_have_a_gap_and_exact_rounds_have_none() -> None:
    gaps = {}
    for k in some([3, 4, 5, 8]):
        model = fitted(DWFKMeans(k, random_state=0), skewed())
        gaps[k] = sizes_and_gap(model)[1]
        finished = fitted(DWFKMeans(k, random_state=0, finish="lloyd"), skewed())
        assert "off-means" not in codes(finished)
        assert exact_gap(finished, skewed()) < 1e-9
    assert max(gaps.values()) > GAP


def test_the_gap_of_many_columns_is_estimated_without_bias() -> None:
    rng = np.random.default_rng(2)
    clients = [rng.normal(0.4 * i, 1.0, (40, 12)) for i in range(4)]
    models = [fitted(DWFKMeans(4, random_state=seed), clients) for seed in range(12)]
    shares = [sizes_and_gap(one)[1] / max(exact_gap(one, clients), 1e-12) for one in models]
    assert 0.5 < float(np.mean(shares)) < 2.0


def test_the_score_asks_for_offsets_along_one_direction() -> None:
    rng = np.random.default_rng(3)
    for d in some([1, 3, 9]):
        model = fitted(DWFKMeans(3, random_state=0), [rng.normal(size=(20, d)) for _ in range(4)])
        asked = [one.question for one in model.transcript_.view("server").sums]
        assert isinstance(asked[-1], Inertia)
        assert asked[-1].spec.layout[2:] == (("count", (3,)), ("along", (3, 1)))
        assert np.square(asked_along(model)).sum() == pytest.approx(d)


def test_lloyds_rounds_ask_for_no_offsets_and_have_no_gap() -> None:
    model = fitted(DWFKMeans(3, local_iter=1, random_state=0), skewed())
    asked = [one.question for one in model.transcript_.view("server").sums]
    assert isinstance(asked[-1], Inertia) and asked[-1].directions is None
    assert sizes_and_gap(model)[1] == 0.0


@pytest.mark.parametrize("over", ["plain", "masked", "ckks"])
def test_a_finish_is_lloyds_algorithm_from_where_the_local_steps_ended(over: str) -> None:
    clients = skewed()
    words: dict[str, Any] = {"protocol": over, "random_state": 0}
    first = fitted(DWFKMeans(5, **words), clients)
    whole = fitted(DWFKMeans(5, finish="lloyd", **words), clients)
    assert whole.n_iter_ == first.n_iter_ + whole.finish_iter_ == len(whole.history_) - 1
    assert whole.finish_iter_ >= 1 and first.finish_iter_ == 0
    np.testing.assert_array_equal(np.stack(whole.history_[: first.n_iter_ + 1]), np.stack(first.history_))
    lloyd = fitted(DWFKMeans(5, local_iter=1, init=first.cluster_centers_, **words), clients)
    np.testing.assert_allclose(lloyd.cluster_centers_, whole.cluster_centers_, atol=1e-9)
    exact = [
        type(one.question) is LloydSums
        for one in whole.transcript_.view("clients" if over == "ckks" else "server").sums
    ]
    assert sum(exact) == whole.finish_iter_


def test_a_run_that_was_cut_off_is_said_and_a_fixed_number_of_rounds_is_not() -> None:
    assert codes(fitted(DWFKMeans(5, max_iter=1, random_state=0), skewed())) == ["unconverged"]
    assert codes(fitted(DWFKMeans(5, max_iter=1, tol=0.0, random_state=0), skewed())) == []


def test_at_most_five_findings_are_said() -> None:
    assert MOST == 5
