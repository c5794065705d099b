"""Rounded sums of rows on a known grid: what is restored is exact, and the rest is hidden."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from privfed.attacks import Differencing, Prior, Truth, evaluate, view_from_rounds
from privfed.attacks.base.report import Cells
from privfed.attacks.evidence.cells import evidence_of, on_grid
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import cell_sums
from tests.raised import parameter_refused
from tests.some import some

STEP = np.array([1.0, 0.5, 2.0])


def rounds(
    clients: list[FloatArray], decimals: int, n_rounds: int = 12, seed: int = 0
) -> dict[str, list[FloatArray]]:
    """Return the totals of a program that shows means to so many decimals, and the exact ones."""
    rng, rows = np.random.default_rng(seed), np.concatenate(clients)
    found: dict[str, list[FloatArray]] = {"centers": [], "counts": [], "sums": [], "exact": []}
    for _ in range(n_rounds):
        centers = rows[rng.choice(len(rows), 6, replace=False)] + 0.1
        each = [cell_sums(own, Cells.around(centers).place(own), 6) for own in clients]
        shown = [n[:, None] * np.round(s / np.maximum(n, 1.0)[:, None], decimals) for n, s in each]
        for name, one in (
            ("centers", centers),
            ("counts", sum(n for n, _ in each)),
            ("sums", sum(shown)),
            ("exact", sum(s for _, s in each)),
        ):
            found[name].append(np.asarray(one))
    return found


def rows_of(seed: int, n: int = 40) -> FloatArray:
    return STEP * np.random.default_rng(seed).integers(0, 30, (n, 3))


@given(seed=st.integers(0, 2**32 - 1), decimals=st.integers(0, 4), parts=st.integers(1, 3))
def test_what_is_restored_is_exact_and_cells_of_too_many_rows_are_hidden(
    seed: int, decimals: int, parts: int
) -> None:
    made = rounds(np.array_split(rows_of(seed), parts), decimals, 4, seed)
    exact = made.pop("exact")
    seen = evidence_of(view_from_rounds(**made, clients=[f"c{i}" for i in range(parts)]), None)
    for one, sums in some(zip(on_grid(seen, STEP).observations, exact, strict=True)):
        few = one.counts * 10.0**-decimals < STEP.min() * (1.0 - 1e-9)
        if decimals >= 1:
            np.testing.assert_array_equal(one.cells.shown, few)
        if decimals >= 1 or parts == 1:
            np.testing.assert_allclose(one.sums[one.cells.shown], sums[one.cells.shown], atol=1e-9)


def test_means_to_two_decimals_hide_no_row_of_half_steps() -> None:
    rows = rows_of(0)
    made = rounds([rows], 2, 60)
    del made["exact"]
    view = view_from_rounds(**made)
    reports = [
        evaluate(Differencing().run(view, prior, np.random.default_rng(0)), Truth([rows]))
        for prior in (Prior(), Prior(step=STEP))
    ]
    assert reports[0].recovered < 0.2
    assert reports[1].recovered >= 0.5 and reports[1].precision >= 0.98


def test_a_step_is_above_zero_and_one_for_each_feature() -> None:
    with parameter_refused("step"):
        Prior(step=np.array([1.0, 0.0, 1.0]))
    made = rounds([rows_of(0)], 2)
    del made["exact"]
    with parameter_refused("step"):
        Differencing().run(view_from_rounds(**made), Prior(step=np.ones(2)), np.random.default_rng(0))
