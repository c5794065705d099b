"""Utility of noise that the server adds once: DWF over ckks, compared with noise shares of the clients.

100 clients, noise of a seeded run. Noise shares are sized for the 51 honest clients that a sum is certain to
contain, and all 100 add theirs, so totals have nearly twice the variance that the claim needs; with noise of
the server they have just that variance. In return, its number of rounds is fixed in advance and cannot be
planned from totals. docs/measurements/utility.md has the table.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.utility import FOUR, CountedOn, claim, cost, dealt, small_delta
from privfed import Box, DWFKMeans
from privfed.protocols import CKKS

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(0)]

CLIENTS, SEEDS, ROUNDS = 100, 4, 6
SETS = ("blobs", "g2", "digits")


def found(rows: np.ndarray, k: int, epsilon: float, **words: Any) -> float:
    """Return the mean cost over seeds."""
    parts, costs = dealt(rows, CLIENTS), []
    domain = Box(-1, 1, max_rows=max(map(len, parts)))
    server = isinstance(words["protocol"], CKKS)
    for seed in range(SEEDS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # delta = 1 / (n ln n), as in the published figures
            noise: Any = "server" if server else "distributed"
            privacy = replace(claim(epsilon, small_delta(rows), seed), domain=domain, noise=noise)
            model = DWFKMeans(k, local_iter=1, privacy=privacy, random_state=seed, **words).fit(parts)
        costs.append(cost(rows, k, model.cluster_centers_))
    return float(np.mean(costs))


@pytest.mark.parametrize("name", SETS)
def test_one_draw_of_the_server_costs_no_more_than_shares_of_half_the_clients(name: str) -> None:
    rows, k = FOUR[name]()
    for epsilon in (0.5, 1.0, 4.0):
        server = found(rows, k, epsilon, protocol=CKKS(), tol=0, max_iter=ROUNDS)
        shares = found(rows, k, epsilon, protocol=CountedOn(51))
        print(f"{name:>8} {epsilon:4} server {server:.3f} distributed {shares:.3f}")
        # With little noise, rounds that are planned from totals may gain a little more.
        assert server <= 1.05 * shares
