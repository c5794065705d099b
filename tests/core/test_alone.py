"""Sums over a row's own values: what they are, and that no other row, shape or order in memory shows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.values.numbers import column_sum, lengths, products, squared_lengths

SEEDS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS, n=st.integers(1, 80), d=st.integers(1, 60))
def test_a_rows_sums_are_those_of_the_row_alone(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows, vector = rng.standard_normal((n, d)), rng.standard_normal(d)
    places = np.r_[:n, rng.integers(n, size=n)]
    for found in (squared_lengths, lengths, lambda table: products(table, vector)):
        together = found(rows)
        assert [found(rows[i : i + 1])[0] for i in range(n)] == together.tolist()
        assert found(np.asfortranarray(rows[places])).tolist() == together[places].tolist()
        assert found(np.repeat(rows, 3, axis=0)[::3]).tolist() == together.tolist()


@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 1), (5, 1), (40_000, 2), (70, 784), (1, 40_000)])
def test_sums_are_what_they_should_be(n: int, d: int) -> None:
    rng = np.random.default_rng(n + d)
    rows, vector = rng.standard_normal((n, d)), rng.standard_normal(d)
    np.testing.assert_allclose(squared_lengths(rows), np.square(rows).sum(axis=1), rtol=1e-13)
    np.testing.assert_allclose(lengths(rows), np.linalg.norm(rows, axis=1), rtol=1e-13)
    np.testing.assert_allclose(products(rows, vector), rows @ vector, atol=1e-10)
    np.testing.assert_allclose(column_sum(rows.T) if n else [], rows.sum(axis=1), atol=1e-10)


def test_rounding_grows_slowly_with_the_number_of_columns() -> None:
    # One after the other, the sum of so many tenths is off by 1e-11 of itself.
    tenths = np.full((1 << 20, 1), 0.1)
    assert column_sum(tenths)[0] == pytest.approx(0.1 * (1 << 20), rel=1e-15)
