"""A stopped fit of clients without a journal, which keep what they must not forget in files, goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, Privacy
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.asking.question import ClientData
from privfed.core.connection import Connection, Opening
from privfed.core.roles.secure_sum import SecureSum
from privfed.errors import StateError
from privfed.nodes.signed import Requests, SignedSide
from privfed.party.client import Stores, ledger_in, own_client
from privfed.party.program import PROGRAM_STATE
from privfed.party.replay import TOTALS, own_run, reads_totals
from privfed.party.state import MEMORIES, FileStore
from privfed.protocols import GroupMasked, Masked, Plain
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import SERVER
from tests.nodes.test_resumed_verified import Stopped, stop_at
from tests.some import some

N = 4
DOMAIN = Box(-12.0, 12.0, max_rows=100)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


class InFolders(Elsewhere):
    """Clients whose stores are files of a folder an agreement, and that have no journal."""

    def connect(self, opening: Opening) -> Connection:
        parties = [self.party(i) for i in range(len(self._rows))]
        registry = Registry(tuple(one.own.key.public for one in parties), SERVER.public)
        agreement = Agreement(opening.configuration, registry)
        self._clients = []
        for i, rows in enumerate(self._rows):
            folder = self._folder / f"{agreement.digest.hex()[:8]}-{i}"
            replay = None
            if reads_totals(opening.protocol.recipient, opening.configuration):
                store = FileStore(folder / "totals", TOTALS.to_bytes, TOTALS.from_bytes)
                replay = own_run(opening.configuration, store, domain=opening.domain, tells=self._hear)
            inner = opening.protocol.client(agreement, i, parties[i].own.key, self._policy, replay)
            side = SignedSide(inner, agreement, i)
            stores = Stores(
                FileStore(folder / "state", side.codec.to_bytes, side.codec.from_bytes),
                ledger_in(folder / "ledger"),
                FileStore(folder / "program", PROGRAM_STATE.to_bytes, PROGRAM_STATE.from_bytes),
                FileStore(folder / "memory", MEMORIES.to_bytes, MEMORIES.from_bytes),
            )
            words: Any = (opening.configuration, self._policy, stores)
            self._clients.append(own_client(side, i, ClientData(rows), *words, domain=opening.domain))
        self._requests = Requests(agreement, SERVER)
        return Connection(session=opening.protocol.coordinator(agreement, SERVER, self), carrier=self)

    def files(self) -> set[str]:
        """Return the names of the files that clients keep."""
        found = [one.name for one in self._folder.glob("*-*/*") if not one.name.endswith(".lock")]
        return set(found)


def rows() -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(rng.choice([-4.0, 4.0], (20 + 5 * i, 2)), 1.0).clip(-12, 12) for i in range(N)]


def model(engine: Elsewhere | None, protocol: SecureSum, folder: Path | None = None) -> DWFKMeans:
    words: dict[str, Any] = {"local_iter": 1, "max_iter": 4, "tol": 0, "random_state": 3}
    return DWFKMeans(3, protocol=protocol, engine=engine, run_dir=folder, domain=DOMAIN, **words)


@pytest.mark.parametrize(
    ("protocol", "stage"),
    [
        pytest.param(Plain(), "collect", id="plain"),
        pytest.param(Masked(losses=9), "collect", id="masked"),
        pytest.param(Masked(losses=9), "unmask", id="masked, in a sum"),
        pytest.param(Masked(verified=True, losses=9), "collect", id="verified", marks=pytest.mark.slow),
        pytest.param(GroupMasked(losses=9, repeats=9), "collect", id="group-masked", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_fit_ends_as_one_that_was_not(protocol: SecureSum, stage: str, tmp_path: Path) -> None:
    engine = InFolders(tmp_path / "clients", rows())
    stop_at(engine, stage, 4)
    with pytest.raises(Stopped):
        model(engine, protocol, tmp_path / "run").fit()
    assert {"state", "program"} <= engine.files()
    resumed = model(engine, protocol, tmp_path / "run").resume()
    whole = model(None, protocol).fit(rows())
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
    np.testing.assert_array_equal(np.stack(resumed.history_), np.stack(whole.history_))


def test_a_budget_is_paid_over_the_stop(tmp_path: Path) -> None:
    claim = Privacy(epsilon=5.0, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove", spare=0.3)
    words: dict[str, Any] = {"protocol": Masked(losses=9), "privacy": claim, "run_dir": tmp_path / "run"}
    engine = InFolders(tmp_path / "clients", rows())
    stop_at(engine, "collect", 4)
    with pytest.raises(Stopped):
        DPKMeans(2, engine=engine, random_state=3, **words).fit()
    ledgers = sorted((tmp_path / "clients").glob("*-*/ledger"))
    before = [float(one.read_bytes()) for one in ledgers]
    DPKMeans(2, engine=engine, random_state=3, **words).resume()
    for path, spent in some(zip(ledgers, before, strict=True)):
        assert 0.0 < spent < float(path.read_bytes()) <= 1.0


@pytest.mark.parametrize("lost", ["state", "program"])
def test_a_client_whose_file_is_damaged_answers_no_more(lost: str, tmp_path: Path) -> None:
    engine = InFolders(tmp_path / "clients", rows())
    stop_at(engine, "collect", 4)
    with pytest.raises(Stopped):
        model(engine, Masked(losses=9), tmp_path / "run").fit()
    (path,) = (tmp_path / "clients").glob(f"*-2/{lost}")
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StateError, match=f"{lost} is damaged, so that it is unknown what this client has"):
        model(engine, Masked(losses=9), tmp_path / "run").resume()
