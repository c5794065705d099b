"""A verified fit that was stopped goes on: clients get and check the totals that they lack of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, Privacy
from privfed.core.record.records import Relayed as Kept
from privfed.core.record.transcript import Transcript
from privfed.core.roles.engine import Exchange
from privfed.errors import RefusedError
from privfed.protocols import Masked
from privfed.protocols.masked.masked_messages import EarlierSum
from privfed.protocols.masked.session import MaskedSession
from tests.engines.own_runs import OwnRuns
from tests.nodes.elsewhere import Elsewhere
from tests.protocols.masked.lying import multiplied

N = 4
LOSING = ClientPolicy(max_losses=99)
WORDS: dict[str, Any] = {"local_iter": 1, "max_iter": 4, "tol": 0, "random_state": 3}

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def test_whoever_runs_the_algorithm_keeps_the_agreed_share_in_spare(tmp_path: Path) -> None:
    """What is kept for sums asked again fixes the noise of all others, so that clients must know it."""
    claim = Privacy(
        epsilon=5.0,
        delta=1e-6,
        unit="record",
        domain=Box(-9.0, 9.0, max_rows=64),
        neighbours="add-remove",
        spare=0.3,
    )
    clients = [own.clip(-9, 9) for own in rows()]
    words: dict[str, Any] = {"protocol": "masked-verified", "random_state": 3}
    # Clients refuse a question with other noise than their own run of the algorithm gives it.
    elsewhere = DPKMeans(2, engine=Elsewhere(tmp_path, clients), privacy=claim, **words).fit()
    words["privacy"] = replace(claim, noise_seed=1)
    here, own_runs = (DPKMeans(2, engine=one, **words).fit(clients) for one in (None, OwnRuns()))
    np.testing.assert_array_equal(own_runs.cluster_centers_, here.cluster_centers_)
    assert elsewhere.federation_.configuration.privacy.spare == 0.3  # type: ignore[union-attr]


class Stopped(Exception):
    """Stops a run as a kill would: what was not written is gone."""


def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(rng.choice([-4.0, 4.0], (20 + 5 * i, 2)), 1.0) for i in range(N)]


def model(engine: Elsewhere | None, folder: Path | None = None, losses: int = 9) -> DWFKMeans:
    protocol = Masked(verified=True, losses=losses)
    return DWFKMeans(3, protocol=protocol, engine=engine, run_dir=folder, **WORDS)


def stop_at(engine: Elsewhere, stage: str, number: int, times: int = 1) -> None:
    """Stop the coordinator before it sends a stage of a sum."""
    left = [times]

    def silent(exchange: Exchange, client: int) -> bool:
        if (exchange.stage, exchange.number) == (stage, number) and left[0]:
            left[0] -= 1
            raise Stopped
        return False

    engine.silent = silent


@pytest.mark.few(1)
@pytest.mark.parametrize(("stage", "number"), [("collect", 3), ("unmask", 3), ("collect", 2)])
def test_a_stopped_fit_ends_as_one_that_was_not(tmp_path: Path, stage: str, number: int) -> None:
    engine = Elsewhere(tmp_path / "clients", rows(), LOSING)
    stop_at(engine, stage, number)
    with pytest.raises(Stopped):
        model(engine, tmp_path / "run").fit()
    resumed = model(engine, tmp_path / "run").resume()
    whole = model(None).fit(rows())
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
    np.testing.assert_array_equal(np.stack(resumed.history_), np.stack(whole.history_))
    # One agreement, one fit in each journal, and each total told once.
    assert [len(engine.party(i).journal.fits) for i in range(N)] == [1] * N


def test_a_fit_may_be_stopped_again_and_a_client_may_have_missed_totals(tmp_path: Path) -> None:
    engine = Elsewhere(tmp_path / "clients", rows(), LOSING)
    stop_at(engine, "collect", 4)
    stopping = engine.silent
    engine.silent = lambda exchange, client: (
        (client == 2 and exchange.number in (2, 3)) or stopping(exchange, client)
    )
    with pytest.raises(Stopped):
        model(engine, tmp_path / "run").fit()
    # Stopped once before any total of the next set-up, and once after.
    for number in (1, 3):
        stop_at(engine, "collect", number)
        with pytest.raises(Stopped):
            model(engine, tmp_path / "run").resume()
    resumed = model(engine, tmp_path / "run").resume()
    assert all(total.contributors == (0, 1, 2, 3) for _, total in resumed.transcript_.totals()[3:])
    assert len(resumed.transcript_.totals()) == 1 + 1 + 4 + 1


def test_a_total_that_was_not_recorded_is_not_brought(tmp_path: Path) -> None:
    """Stopped between what a session keeps and the total: the sum is asked again, and only that counts."""
    engine = Elsewhere(tmp_path / "clients", rows(), LOSING)
    with pytest.MonkeyPatch.context() as patch:
        summed = Transcript.summed

        def stopping(self: Transcript, index: int, total: Any) -> None:
            if index == 2:
                raise Stopped
            summed(self, index, total)

        patch.setattr(Transcript, "summed", stopping)
        with pytest.raises(Stopped):
            model(engine, tmp_path / "run").fit()
    resumed = model(engine, tmp_path / "run").resume()
    whole = model(None).fit(rows())
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
    kept = [one.index for one in resumed.transcript_.of(Kept) if b"Relayed" in one.data]
    assert kept.count(2) == 2 and len(kept) == len(set(kept)) + 1


def _doubled(one: EarlierSum) -> EarlierSum:
    words, check = multiplied(one.total.words, 2, 8), multiplied(one.total.check, 2, 24)
    return EarlierSum(one.session, msgspec.structs.replace(one.total, words=words, check=check))


def _of_another(one: EarlierSum) -> EarlierSum:
    return EarlierSum(bytes(32), one.total)


@pytest.mark.parametrize(("lie", "code"), [(_doubled, "total"), (_of_another, "history")])
def test_clients_notice_an_earlier_total_that_is_none(tmp_path: Path, lie: Any, code: str) -> None:
    engine = Elsewhere(tmp_path / "clients", rows(), LOSING)
    stop_at(engine, "collect", 3)
    with pytest.raises(Stopped):
        model(engine, tmp_path / "run").fit()

    def lies(session: object) -> None:
        assert isinstance(session, MaskedSession)
        honest = session.recall

        def recall(relayed: Any, opened: int) -> None:
            honest(relayed, opened)
            session._earlier = [msgspec.structs.replace(one, sum=lie(one.sum)) for one in session._earlier]

        session.recall = recall  # type: ignore[method-assign]

    engine.lies = lies
    with pytest.raises(RefusedError) as caught:
        model(engine, tmp_path / "run").resume()
    assert set(caught.value.codes.values()) == {code}
    if code == "total":
        # What was given to one set-up is given to none after a wrong total.
        engine.lies = lambda session: None
        with pytest.raises(RefusedError):
            model(engine, tmp_path / "run").resume()
