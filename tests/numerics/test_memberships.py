"""Memberships: shares that add up to one, exact on a center, whatever stands beside a row."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privfed.errors import ArgumentError, BoundsError
from privfed.numerics.memberships import check_fuzzifier, memberships
from tests.reference import fuzzy_reference as oracle

FUZZIFIERS = [1.0 + 1e-12, 1.05, 1.5, 2.0, 3.0, 100.0]


def drawn(n: int, k: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.normal(size=(k, d))


@pytest.mark.parametrize("d", [1, 2, 8, 9, 40])
@pytest.mark.parametrize("m", [1.05, 1.5, 2.0, 3.0])
def test_memberships_are_the_oracles(m: float, d: int) -> None:
    rows, centers = drawn(50, 5, d)
    rows[3], rows[7], centers[4] = centers[1], centers[0], centers[0]
    np.testing.assert_allclose(
        memberships(rows, centers, m), oracle.memberships(rows, centers, m), atol=1e-12
    )


@given(
    rows=arrays(np.float64, (6, 2), elements=st.sampled_from([0.0, 0.1, 1.0, -3.0, 1e-200, 1e150])),
    centers=arrays(np.float64, (4, 2), elements=st.sampled_from([0.0, 0.1, 1.0, 5.0, 1e-200])),
    m=st.sampled_from(FUZZIFIERS),
)
def test_memberships_are_shares_of_one(rows: np.ndarray, centers: np.ndarray, m: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = memberships(rows, centers, m)
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)


@pytest.mark.parametrize("d", [1, 3, 12])
@pytest.mark.parametrize("m", FUZZIFIERS)
def test_row_on_centers_belongs_to_these_alone_in_equal_shares(m: float, d: int) -> None:
    rows, centers = drawn(20, 6, d)
    centers[5] = centers[2]
    rows[0], rows[1] = centers[3], centers[2]
    found = memberships(rows, centers, m)
    np.testing.assert_array_equal(found[0], [0, 0, 0, 1, 0, 0])
    np.testing.assert_array_equal(found[1], [0, 0, 0.5, 0, 0, 0.5])


def test_fuzzifier_near_one_is_nearly_hard_and_a_large_one_spreads() -> None:
    rows, centers = np.array([[0.0], [1.0]]), np.array([[0.4], [2.0]])
    np.testing.assert_allclose(memberships(rows, centers, 1.001), [[1, 0], [1, 0]], atol=1e-12)
    np.testing.assert_allclose(memberships(rows, centers, 100.0), np.full((2, 2), 0.5), atol=0.02)
    # Equally far from both: no fuzzifier decides.
    np.testing.assert_allclose(memberships(np.array([[1.2]]), centers, 1.001), [[0.5, 0.5]], atol=1e-9)


def test_one_center_has_everything() -> None:
    rows, _ = drawn(5, 1, 2)
    np.testing.assert_array_equal(memberships(rows, rows[:1], 2.0), np.ones((5, 1)))


@pytest.mark.parametrize("d", [2, 11])
def test_memberships_of_a_row_do_not_depend_on_the_others(d: int) -> None:
    rows, centers = drawn(300, 12, d)
    rows[5] = centers[3]
    alone = [memberships(row[None], centers).tobytes() for row in rows]
    assert b"".join(alone) == memberships(rows, centers).tobytes()
    # Other fuzzifiers need powers, which NumPy may compute several at a time.
    together = memberships(rows, centers, 1.7)
    np.testing.assert_allclose(
        np.concatenate([memberships(row[None], centers, 1.7) for row in rows]), together, rtol=1e-10
    )


@pytest.mark.parametrize("m", [1.0, 0.5, -2.0, 100.5, np.inf, np.nan])
def test_fuzzifier_out_of_bounds_is_an_error(m: float) -> None:
    with pytest.raises(BoundsError) as found:
        check_fuzzifier(m)
    assert (found.value.parameter, found.value.bounds) == ("m", "(1, 100]")
    with pytest.raises(ArgumentError):
        memberships(np.zeros((2, 1)), np.ones((1, 1)), m)
