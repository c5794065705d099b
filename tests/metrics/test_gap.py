"""The knowledge gap of Stallmann and Wilbik, by hand and against scipy."""

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from privfed.errors import ArgumentError
from privfed.metrics import knowledge_gap
from tests.reference import validity_reference as oracle

TRUE = np.array([[0.0, 0.0], [0.0, 10.0], [4.0, 4.0]])


def test_the_gap_is_zero_where_all_centers_are_found_in_any_order() -> None:
    assert knowledge_gap(TRUE[[2, 0, 1]], TRUE) == 0.0
    assert knowledge_gap(TRUE[[2, 0, 1]], TRUE, pairing="nearest") == 0.0
    assert knowledge_gap(TRUE[[2, 0, 1]], TRUE, pairing="order") > 0.0


def test_distances_are_scaled_by_the_variance_of_each_feature() -> None:
    found, variances = TRUE + np.array([3.0, 4.0]), [9.0, 4.0]
    by_hand = sum(oracle.seuclidean(x, y, variances) for x, y in zip(found, TRUE, strict=True))
    assert knowledge_gap(found, TRUE, variances, pairing="order") == pytest.approx(by_hand)
    assert by_hand == pytest.approx(3 * np.sqrt(1 + 4))
    assert knowledge_gap(found, TRUE, None, pairing="order") == pytest.approx(3 * 5.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_authors_form_is_scipys(seed: int) -> None:
    # seuclidean without variances takes those of both sets together, as the published tables do.
    rng = np.random.default_rng(seed)
    found, true = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    theirs = cdist(found, true, metric="seuclidean").min(axis=1).sum()
    assert knowledge_gap(found, true, "centers", pairing="nearest") == pytest.approx(theirs)
    euclidean = cdist(found, true).min(axis=1).sum()
    assert knowledge_gap(found, true, None, pairing="nearest") == pytest.approx(euclidean)


def test_two_found_centers_on_one_true_one_leave_a_gap_only_one_to_one() -> None:
    found = TRUE[[0, 0, 2]]
    assert knowledge_gap(found, TRUE, None, pairing="nearest") == 0.0
    assert knowledge_gap(found, TRUE, None) == pytest.approx(10.0)


def test_one_to_one_is_never_above_another_pairing() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        found, true = rng.normal(size=(4, 2)), rng.normal(size=(4, 2))
        gap = knowledge_gap(found, true, None)
        assert gap <= knowledge_gap(found, true, None, pairing="order") + 1e-12
        assert gap >= knowledge_gap(found, true, None, pairing="nearest") - 1e-12


def test_a_feature_in_which_all_centers_agree_adds_nothing() -> None:
    found, true = np.array([[1.0, 7.0], [3.0, 7.0]]), np.array([[1.5, 7.0], [3.0, 7.0]])
    assert knowledge_gap(found, true) == pytest.approx(knowledge_gap(found[:, :1], true[:, :1]))
    assert knowledge_gap(found, true, [1.0, 0.0]) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        ({"found": [0.0, 1.0]}, "found"),
        ({"found": [["a", "b"]]}, "found"),
        ({"true": [[np.inf, 1.0]] * 3}, "true"),
        ({"true": [[1.0]] * 3}, "true"),
        ({"true": [[1.0, 2.0]]}, "true"),
        ({"variances": [1.0]}, "variances"),
        ({"variances": [1.0, -1.0]}, "variances"),
        ({"variances": ["a", "b"]}, "variances"),
        ({"variances": "data"}, "variances"),
        ({"variances": [1.0, 0.0], "found": TRUE + 1.0}, "variances"),
        ({"pairing": "best"}, "pairing"),
    ],
)
def test_centers_that_do_not_fit_are_an_error(words: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        knowledge_gap(**{"found": TRUE, "true": TRUE, **words})
    assert parameter in caught.value.parameters
