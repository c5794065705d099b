"""Of how many rows each mean is the mean: one set of whole numbers fits, or nothing is said."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.attacks.base.whole_numbers import reduced, sizes_of
from privfed.core.values.domain import FloatArray


def means_of(seed: int, d: int, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the means of sets of rows of these sizes, and the sum and number of all of them."""
    rng = np.random.default_rng(seed)
    rows = np.split(rng.normal(size=(int(sizes.sum()), d)) * rng.uniform(0.1, 10.0, d), np.cumsum(sizes)[:-1])
    total = np.append(np.concatenate(rows).sum(axis=0), sizes.sum())
    return np.array([own.mean(axis=0) for own in rows]), total


@pytest.mark.parametrize(("d", "most"), [(2, 10), (4, 15), (12, 12)])
@given(seed=st.integers(0, 2**32 - 1), data=st.data())
def test_sizes_follow_from_means_number_and_sum_also_of_more_means_than_columns(
    d: int, most: int, seed: int, data: st.DataObject
) -> None:
    sizes = np.random.default_rng(seed).integers(1, 20, data.draw(st.integers(2, most)))
    means, total = means_of(seed, d, sizes)
    found = sizes_of(means, total[None], np.full((1, len(means)), sizes.mean()))
    assert found is not None
    np.testing.assert_array_equal(found[1], sizes)


def test_a_mean_of_rows_that_left_has_none() -> None:
    sizes = np.array([4, 7, 1, 9, 3])
    means, total = means_of(0, 2, sizes)
    means = np.vstack([means, [0.3, 0.7]])
    found = sizes_of(means, np.stack([total + 0.5, total]), np.full((2, 6), 4.0))
    assert found is not None and found[0] == 1
    np.testing.assert_array_equal(found[1], [*sizes, 0])


def test_nothing_is_said_where_other_sizes_fit_too() -> None:
    # 1, 2, 3 are the means of 3, 2 and 3 rows, or of 2, 4 and 2.
    means, total = np.array([[1.0], [2.0], [3.0]]), np.array([[16.0, 8.0]])
    assert sizes_of(means, total, np.array([[3.0, 2.0, 3.0]])) is None
    # One column tells too little of thirty means, though some sizes fit it.
    many = np.random.default_rng(0).normal(size=(30, 1))
    target = np.append(many.sum(axis=0) * 5.0, 150.0)
    assert sizes_of(many, target[None], np.full((1, 30), 5.0)) is None


@given(seed=st.integers(0, 2**32 - 1), size=st.integers(2, 6))
def test_a_reduced_basis_is_short_and_of_the_same_lattice(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    basis = np.hstack([np.eye(size, dtype=np.int64), rng.integers(-(10**6), 10**6, (size, 1))])
    found = reduced(basis)
    # The first columns are the coordinates in the old basis: a lattice of its own volume.
    assert abs(round(np.linalg.det(found[:, :size].astype(float)))) == 1
    np.testing.assert_array_equal(found[:, :size] @ basis, found)
    volume = np.sqrt(np.linalg.det((basis @ basis.T).astype(float)))
    # Lenstra, Lenstra, Lovasz, proposition 1.9, for a factor a little below 3/4's 2.
    assert np.linalg.norm(found[0].astype(float)) <= 2 ** ((size - 1) / 4) * volume ** (1 / size) * 1.001
