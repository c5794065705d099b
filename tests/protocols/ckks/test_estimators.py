"""Every algorithm over encrypted sums: the plain run's results, to the grid.

The tests that run over every secure sum take ckks too, tests/estimators/test_over_sums.py some by default.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import (
    DWFKMeans,
    Simulation,
)
from privfed.core.roles.conversation import Ask, Total
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError
from privfed.federation.clients import gather
from privfed.protocols import CKKS, by_name
from tests.protocols.client_opened.test_group_replays import Federates
from tests.protocols.federations import Sums, vectors
from tests.some import some

Clients = list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]


@pytest.fixture
def few(blobs: Clients) -> Clients:
    """Return five clients."""
    return blobs[:5]


def test_counts_are_exact_integers(few: Clients) -> None:
    fitted = DWFKMeans(3, protocol="ckks", max_iter=2, tol=0, random_state=0).fit(few)
    totals = [total.statistics for _, total in fitted.transcript_.totals()]
    counts = [one["weight"] for one in totals if "weight" in one]
    assert counts and all(np.array_equal(one, np.rint(one)) for one in counts)
    assert {one.sum() for one in counts} == {sum(map(len, few))}


def test_clients_that_are_lost_are_out_of_a_round_and_back_in_the_next(few: Clients) -> None:
    fourth = frozenset({4})
    faults = [Fault(2, "collect", "drop", fourth), Fault(3, "collect", "lost-reply", fourth)]
    words: dict[str, Any] = {"protocol": CKKS(losses=9), "engine": Simulation(faults=faults)}
    fitted = DWFKMeans(3, max_iter=4, tol=0, **words).fit(few)
    contributors = [total.contributors for _, total in fitted.transcript_.totals()]
    assert [len(one) for one in contributors].count(3) == 1
    assert contributors[-1] == tuple(range(5))


def test_a_resumed_run_is_the_uninterrupted_one_under_a_new_key(few: Clients, tmp_path: Path) -> None:
    def interrupt(index: int, ask: Ask, total: Total) -> None:
        if index == 4:
            raise KeyboardInterrupt

    words: dict[str, Any] = {"protocol": "ckks", "max_iter": 4, "tol": 0, "random_state": 0}
    with pytest.raises(KeyboardInterrupt):
        DWFKMeans(3, run_dir=tmp_path, **words).fit_clients(gather(few), watch=interrupt)
    resumed = DWFKMeans(3, run_dir=tmp_path, **words).resume(few)
    np.testing.assert_array_equal(resumed.cluster_centers_, DWFKMeans(3, **words).fit(few).cluster_centers_)


def test_all_replays_arrive_where_the_simulation_does(few: Clients) -> None:
    words: dict[str, Any] = {"protocol": "ckks", "max_iter": 2, "tol": 0, "random_state": 7}
    fitted = DWFKMeans(3, **words).fit(few)
    federates = Federates(few, DWFKMeans(3, **words))
    federates.run(len(fitted.transcript_.totals()))
    for replay in some(federates.replays):
        assert replay.outcome is not None
        np.testing.assert_array_equal(replay.outcome.centers, fitted.cluster_centers_)


@pytest.mark.parametrize(
    ("n", "words", "said"),
    [
        (2, {}, r"2 <= honest <= 2 .the smallest cohort., got honest=3"),
        (5, {"honest": 6}, r"2 <= honest <= 5 .the smallest cohort., got honest=6"),
        (5, {"honest": 1}, "honest must be a whole number in"),
    ],
)
def test_too_few_clients_are_an_error(n: int, words: dict[str, Any], said: str, few: Clients) -> None:
    with pytest.raises(ArgumentError, match=said):
        DWFKMeans(2, protocol=CKKS(**words)).fit(few[:n])


def test_ranges_beyond_the_slots_are_an_error_before_anybody_is_asked() -> None:
    run = Sums(CKKS(), 5)
    run.ask()
    before = run.exchanges
    with pytest.raises(ArgumentError, match=r"more than 219 bits for entry 0 .largest total 5e\+300"):
        run.ask(vectors(3, -1e300, 1e300, 1e-9))
    assert run.exchanges == before
    run.assert_exact(run.ask(), vectors())


def test_ckks_is_known_by_its_name() -> None:
    protocol = by_name("ckks")
    assert isinstance(protocol, CKKS)
    assert (protocol.name, protocol.recipient, protocol.reveals) == ("ckks", "clients", "sums")
