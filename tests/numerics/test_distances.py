"""Sums in cells: which rows they add, and in which order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.numerics.kernels.interpreted import cell_sums
from tests.default_run import examples


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 60), d=st.integers(1, 20), cells=st.integers(1, 9))
def test_sums_in_cells_add_rows_one_after_the_other(seed: int, n: int, d: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    rows, place = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-9, 9, (n, 1)), rng.integers(0, cells, n)
    counts, sums = np.zeros(cells), np.zeros((cells, d))
    for row, cell in zip(rows, place, strict=True):
        counts[cell] += 1
        sums[cell] += row
    found = cell_sums(rows, place, cells)
    assert found[0].tolist() == counts.tolist()
    assert found[1].tobytes() == sums.tobytes()
