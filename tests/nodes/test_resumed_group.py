"""Sums that clients open, stopped and set up anew: who lacks totals is left out, and misled by nobody."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.core.roles.engine import Exchange
from privfed.core.roles.secure_sum import SecureSum
from privfed.errors import NotEnoughClientsError, RefusedError
from privfed.nodes.journalled import JournalledFit
from privfed.party.replay import TOTALS, OpenedTotal
from privfed.protocols import CKKS, GroupMasked
from privfed.protocols.client_opened.relay import Relay
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.test_resumed_verified import Stopped, stop_at
from tests.some import some

N, AWAY, SUMS = 5, 4, 6
LOSING = ClientPolicy(max_losses=99)
Silent = Callable[[Exchange], bool]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SCHEMES = [
    pytest.param(GroupMasked(losses=9, repeats=9), id="group-masked"),
    pytest.param(CKKS(losses=9), id="ckks", marks=pytest.mark.slow),
]

KINDS: dict[str, tuple[Silent, int]] = {
    "in no list": (lambda one: one.stage == "advertise", 0),
    "after the list": (lambda one: one.stage == "prepare", 0),
    "before any total": (lambda one: one.number >= 1, 0),
    "in the middle": (lambda one: one.number >= 3, 1),
    "before the last total": (lambda one: one.number >= 4, 2),
}
"""When a client was lost before the coordinator was stopped -> how many totals it then has, at most."""


def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(rng.choice([-4.0, 4.0], (20 + 5 * i, 2)), 1.0) for i in range(N)]


def model(engine: Elsewhere | None, protocol: SecureSum, folder: Path | None = None) -> DWFKMeans:
    words: dict[str, Any] = {"local_iter": 1, "max_iter": 3, "tol": 0, "random_state": 3}
    return DWFKMeans(3, protocol=protocol, engine=engine, run_dir=folder, **words)


def stopped(path: Path, protocol: SecureSum, lost: dict[int, Silent], number: int = 6) -> Elsewhere:
    """Return clients of a fit whose coordinator was stopped; some of them had been lost before."""
    engine = Elsewhere(path / "clients", rows(), LOSING)
    stop_at(engine, "collect", number)
    stopping = engine.silent
    engine.silent = lambda one, client: (client in lost and lost[client](one)) or stopping(one, client)
    with pytest.raises(Stopped):
        model(engine, protocol, path / "run").fit()
    engine.silent = lambda one, client: False
    return engine


def opened(engine: Elsewhere, client: int) -> tuple[OpenedTotal, ...]:
    """Return the totals that a client's own run has, as its journal keeps them."""
    journal = engine.party(client).journal
    kept = JournalledFit(journal._database, 1).read("totals")
    return () if kept is None else TOTALS.from_bytes(kept)


def assert_right(engine: Elsewhere, resumed: DWFKMeans, behind: set[int]) -> None:
    """Assert that all runs agree: those who stayed have every total, others the first of them."""
    totals = [OpenedTotal.of(total) for _, total in resumed.transcript_.totals()]
    for client in some(range(N)):
        own = opened(engine, client)
        assert list(own) == totals[: len(own)]
        assert (len(own) == len(totals)) == (client not in behind)


@pytest.mark.parametrize("protocol", SCHEMES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.few(2)
def test_a_client_that_lacks_totals_is_left_out_and_costs_no_repeat(
    kind: str, protocol: SecureSum, tmp_path: Path
) -> None:
    silent, most = KINDS[kind]
    engine = stopped(tmp_path, protocol, {AWAY: silent})
    assert len(opened(engine, AWAY)) <= most
    kept = len(engine.told)
    resumed = model(engine, protocol, tmp_path / "run").resume()
    totals = [total for _, total in resumed.transcript_.totals()]
    assert len(totals) == SUMS
    after = totals[kept:]
    assert len(after) > 1 and all(
        total.contributors == (0, 1, 2, 3) and total.attempts == 1 for total in after
    )
    assert after[0].rejected == {AWAY: f"has {len(opened(engine, AWAY))} of {kept} totals of earlier set-ups"}
    assert_right(engine, resumed, {AWAY})


@pytest.mark.parametrize("protocol", SCHEMES)
def test_clients_that_have_all_totals_go_on_to_the_same_centers(protocol: SecureSum, tmp_path: Path) -> None:
    engine = stopped(tmp_path, protocol, {})
    resumed = model(engine, protocol, tmp_path / "run").resume()
    np.testing.assert_array_equal(
        resumed.cluster_centers_, model(None, protocol).fit(rows()).cluster_centers_
    )
    assert_right(engine, resumed, set())


def test_a_client_that_missed_requests_and_is_back_before_the_stop_stays(tmp_path: Path) -> None:
    """Encrypted answers just add up, so that who was silent stays in the fit, and gets what it missed."""
    engine = stopped(tmp_path, CKKS(losses=9), {AWAY: lambda one: one.number in (2, 3)})
    resumed = model(engine, CKKS(losses=9), tmp_path / "run").resume()
    assert resumed.transcript_.totals()[-1][1].contributors == (0, 1, 2, 3, 4)
    assert_right(engine, resumed, set())


@pytest.mark.parametrize("protocol", SCHEMES)
def test_a_client_lost_at_the_second_set_up_only_is_out_of_the_third(
    protocol: SecureSum, tmp_path: Path
) -> None:
    engine = stopped(tmp_path, protocol, {}, number=3)
    stop_at(engine, "collect", 3)
    stopping = engine.silent
    engine.silent = lambda one, client: (client == AWAY and one.stage == "advertise") or stopping(one, client)
    with pytest.raises(Stopped):
        model(engine, protocol, tmp_path / "run").resume()
    engine.silent = lambda one, client: False
    resumed = model(engine, protocol, tmp_path / "run").resume()
    assert resumed.transcript_.totals()[-1][1].contributors == (0, 1, 2, 3)
    assert_right(engine, resumed, {AWAY})


@pytest.mark.parametrize("protocol", SCHEMES)
def test_too_few_with_all_totals_is_an_error_that_says_what_helps(
    protocol: SecureSum, tmp_path: Path
) -> None:
    late: dict[int, Silent] = dict.fromkeys((2, 3, 4), lambda one: one.number >= 4)
    engine = Elsewhere(tmp_path / "clients", rows(), LOSING)

    def silent(one: Exchange, client: int) -> bool:
        if one.number >= 5:
            raise Stopped
        return client in late and late[client](one)

    engine.silent = silent
    with pytest.raises((Stopped, NotEnoughClientsError)):
        model(engine, protocol, tmp_path / "run").fit()
    engine.silent = lambda one, client: False
    assert all(len(opened(engine, one)) < len(engine.told) for one in some(late))
    with pytest.raises(RefusedError, match=r"totals:missed.*begin a new fit") as raised:
        model(engine, protocol, tmp_path / "run").resume()
    assert set(raised.value.codes) == {"c2", "c3", "c4"}


@pytest.mark.parametrize("protocol", SCHEMES)
def test_a_coordinator_that_asks_it_nonetheless_is_refused(
    protocol: SecureSum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = stopped(tmp_path, protocol, {AWAY: KINDS["in the middle"][0]})
    monkeypatch.setattr(Relay, "_leave_behind", lambda self, index: None)
    seen: list[dict[int, str]] = []
    exchanged = Relay._exchanged

    def watched(self: Relay, *words: Any) -> Any:
        found = yield from exchanged(self, *words)
        seen.append(dict(self._refused))
        return found

    monkeypatch.setattr(Relay, "_exchanged", watched)
    resumed = model(engine, protocol, tmp_path / "run").resume()
    assert {AWAY: "totals:missed"} in seen
    assert_right(engine, resumed, {AWAY})
