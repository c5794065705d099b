"""Several fits on the same rows: with the same cells in each, all of them together show what one does."""

from __future__ import annotations

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.attacks import Differencing, Prior, Truth, evaluate, pooled
from tests.attacks.figures import real


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_four_fits_show_many_more_rows_than_one_unless_their_cells_are_the_same() -> None:
    clients = real("wine", 0)
    shares = {}
    for init in ("coreset", "nested"):
        fits = [DWFKMeans(10, init=init, random_state=seed).fit(clients) for seed in range(4)]
        views = [fit.transcript_.view("server") for fit in fits]
        for n in (1, 4):
            found = Differencing().run(pooled(views[:n]), Prior(), np.random.default_rng(0))
            shares[init, n] = evaluate(found, Truth(clients, tolerance=1e-4)).recovered
    assert shares["coreset", 4] > 3 * shares["coreset", 1] > 0
    assert 0 < shares["nested", 4] < 1.2 * shares["nested", 1] < 0.2
