"""Later fits begin from an earlier fit's start total, which each client has verified and keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Box, DWFKMeans, Privacy
from privfed.algorithms.starts import KeptStart, StartTotal
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.asking.statistics import Statistics
from privfed.core.connection import Connection, Opening
from privfed.core.record.records import Asked
from privfed.core.roles.engine import Exchange
from privfed.core.roles.secure_sum import SecureSum
from privfed.errors import ArgumentError, PolicyError, PrivacyError, RefusedError
from privfed.estimators.base import FederatedClusterer
from privfed.nodes.database import Database
from privfed.nodes.journal import FILE
from privfed.protocols import CKKS, GroupMasked, Masked
from privfed.questions.cells import SumsInPublicCells
from tests.nodes.elsewhere import Elsewhere
from tests.nodes.journals import DOMAIN, SERVER
from tests.raised import forbidden_by, refused_with

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SUMS = [
    pytest.param(Masked(verified=True, losses=9), id="verified"),
    pytest.param(GroupMasked(losses=9, repeats=9), id="group-masked"),
    pytest.param(CKKS(losses=9, repeats=9), id="ckks", marks=pytest.mark.slow),
]


class Again(Elsewhere):
    """Clients of which each fit hears anew what they opened."""

    def connect(self, opening: Opening) -> Connection:
        self.told.clear()
        return super().connect(opening)


class Refusing(Again):
    """Clients of which one that does not join says so to the coordinator, as over a network."""

    def connect(self, opening: Opening) -> Connection:
        try:
            return super().connect(opening)
        except PolicyError as error:
            raise RefusedError({"a client": str(error)}, stage="join") from None


def rows(n: int = 4, d: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.normal(rng.choice([-4.0, 4.0], (20 + 5 * i, d)), 1.0) for i in range(n)]


def model(engine: Elsewhere | None, protocol: SecureSum | str, seed: int = 0, **words: Any) -> DWFKMeans:
    known: dict[str, Any] = {"n_clusters": 3, "max_iter": 2, "tol": 0, "protocol": protocol}
    return DWFKMeans(**{**known, **words}, engine=engine, random_state=seed)


def cells_asked(fitted: FederatedClusterer) -> int:
    asked = [question_from_bytes(one.question) for one in fitted.transcript_.of(Asked)]
    return sum(isinstance(one, SumsInPublicCells) for one in asked)


def starts_of(engine: Elsewhere) -> list[int]:
    return [engine.party(i).journal.usage("rows").starts for i in range(len(engine.members.names))]


@pytest.mark.few(1)
@pytest.mark.parametrize("protocol", SUMS)
def test_later_fits_ask_about_no_cells_and_begin_from_the_same_total(
    protocol: SecureSum, tmp_path: Path
) -> None:
    engine = Again(tmp_path, rows(), ClientPolicy(max_starts=1))
    first = model(engine, protocol).fit()
    start = first.kept_start()
    assert cells_asked(first) == 1 and start.clients == {"c0", "c1", "c2", "c3"}
    for seed, k in ((1, 3), (2, 5)):
        later = model(engine, protocol, seed, n_clusters=k, init=start).fit()
        assert cells_asked(later) == 0
        # The start that was kept is handed on, and is the one that a run without clients finds from it.
        assert later.kept_start() is start
        alone = model(None, "masked-verified", seed, n_clusters=k, init=start).fit(
            rows(), client_names=[f"c{i}" for i in range(4)]
        )
        np.testing.assert_allclose(later.history_[0], alone.history_[0], atol=1e-9)
    assert starts_of(engine) == [1, 1, 1, 1]
    # Another start in cells of its own is one more than these clients allow.
    with refused_with("policy:max_starts"):
        model(engine, protocol, 3, n_clusters=8).fit()


def test_a_client_without_the_total_has_all_ask_anew_and_count(tmp_path: Path) -> None:
    engine = Refusing(tmp_path, rows())
    start = model(engine, "masked-verified").fit().kept_start()
    database = Database(tmp_path / "c2" / FILE)
    with database.transaction() as opened:
        (trigger,) = opened.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'start_totals_delete'"
        ).fetchone()
        opened.execute("DROP TRIGGER start_totals_delete")
        opened.execute("DELETE FROM start_totals")
        opened.execute(trigger)
    with pytest.warns(UserWarning, match=r"lack the start total .* \(init='nested'\)"):
        later = model(engine, "masked-verified", 1, init=start).fit()
    assert cells_asked(later) == 1
    assert starts_of(engine) == [2, 2, 2, 2]
    assert later.kept_start() is not start


def tampered(start: StartTotal, **changed: Any) -> StartTotal:
    named = KeptStart(**{"fit": start.named.fit, "index": start.named.index, **changed})
    return replace(start, named=named)


@pytest.mark.parametrize("changed", [{"index": 0}, {"index": 2}, {"fit": "ab" * 32}])
@pytest.mark.few(2)
def test_a_total_that_is_no_start_of_these_rows_is_not_begun_from(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    engine = Again(tmp_path, rows())
    start = model(engine, "masked-verified").fit().kept_start()
    before = [len(engine.party(i).journal.entries()) for i in range(4)]
    with forbidden_by("start:missing"):
        model(engine, "masked-verified", 1, init=tampered(start, **changed)).fit()
    assert [len(engine.party(i).journal.entries()) for i in range(4)] == before


def test_numbers_of_the_servers_own_choice_are_not_what_clients_begin_from(tmp_path: Path) -> None:
    """The server names the right total, and goes on from another one: its first question is refused."""
    engine = Again(tmp_path, rows())
    start = model(engine, "masked-verified").fit().kept_start()
    statistics = dict(start.total.statistics)
    statistics["sum"] = statistics["sum"] + 3.0
    forged = replace(start, total=replace(start.total, statistics=Statistics(**statistics)))
    with pytest.raises(RefusedError) as refused:
        model(engine, "masked-verified", 1, init=forged).fit()
    assert set(refused.value.codes.values()) == {"program"}


class _Lost:
    """Drops one client from the sum of the start."""

    def __call__(self, exchange: Exchange, client: int) -> bool:
        return client == 3 and exchange.stage == "collect" and exchange.number == 2


@pytest.mark.parametrize("protocol", SUMS[:2])
def test_a_total_over_other_clients_is_not_begun_from(protocol: SecureSum, tmp_path: Path) -> None:
    engine = Again(tmp_path, rows(), ClientPolicy(max_losses=9))
    engine.silent = _Lost()
    fitted = model(engine, protocol).fit()
    start = fitted.kept_start()
    assert start.clients == {"c0", "c1", "c2"}
    engine.silent = lambda exchange, client: False
    with pytest.raises(ArgumentError, match=r"not over \['c3'\]"):
        model(engine, protocol, 1, init=start).fit()
    # A coordinator that hides it from its own check meets the clients': keys are in what they keep.
    claimed = replace(start, clients=frozenset(engine.members.names))
    with forbidden_by("start:missing"):
        model(engine, protocol, 1, init=claimed).fit()


def test_a_total_within_another_domain_is_not_begun_from(tmp_path: Path) -> None:
    engine = Again(tmp_path, rows())
    start = model(engine, "masked-verified", domain=Box(-9.0, 9.0)).fit().kept_start()
    with forbidden_by("start:missing"):
        model(engine, "masked-verified", 1, init=start, domain=Box(-8.0, 9.0)).fit()
    later = model(engine, "masked-verified", 1, init=start, domain=Box(-9.0, 9.0)).fit()
    assert cells_asked(later) == 0


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_clients_that_verify_nothing_begin_from_no_kept_start(protocol: str, tmp_path: Path) -> None:
    engine = Again(tmp_path, rows())
    start = model(engine, "masked-verified").fit().kept_start()
    with pytest.raises(ArgumentError, match=f"clients of '{protocol}' sums verify no totals"):
        model(engine, protocol, 1, init=start).fit()


def test_a_client_itself_refuses_a_kept_start_over_sums_that_it_does_not_verify(tmp_path: Path) -> None:
    engine = Again(tmp_path, rows())
    start = model(engine, "masked-verified").fit().kept_start()
    algorithm = model(engine, "masked-verified", init=start).make_algorithm(2, 0)
    configuration = model(engine, "masked").fit().transcript_.configuration
    program = type(configuration.program).of(algorithm)  # type: ignore[union-attr]
    crafted = msgspec.structs.replace(configuration, program=program, nonce=b"crafted")
    party = engine.party(0)
    keys = tuple(engine.party(i).own.key.public for i in range(4))
    agreement = Agreement(crafted, Registry(keys, SERVER.public))
    words: dict[str, Any] = {"data_set": "rows", "policy": ClientPolicy()}
    with forbidden_by("start:missing"):
        party.join(agreement, Masked(), ClientData(rows()[0]), **words)


def test_a_start_that_later_fits_cannot_take_is_said(tmp_path: Path) -> None:
    clients = rows()
    start = model(None, "masked-verified").fit(clients).kept_start()
    assert repr(start).startswith("StartTotal(") and "[" not in repr(start)
    with pytest.raises(ArgumentError, match="asked about no cells"):
        model(None, "masked", init="random").fit(clients).kept_start()
    with pytest.raises(PrivacyError, match="has no noise"):
        privacy = Privacy(epsilon=1.0, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove")
        DWFKMeans(3, local_iter=1, init=start, privacy=privacy, protocol="masked").fit(clients)
    with pytest.raises(ArgumentError, match="hexadecimal"):
        KeptStart(fit="no", index=0)
    model(None, "masked-verified", run_dir=tmp_path / "run").fit(clients)
    read = StartTotal.of_run(tmp_path / "run", "coreset")
    np.testing.assert_array_equal(read.total.statistics["sum"], start.total.statistics["sum"])
    assert read.named.index == start.named.index and read.otherwise == "coreset"


def test_other_columns_are_other_rows() -> None:
    start = model(None, "masked-verified").fit(rows()).kept_start()
    with pytest.raises(ArgumentError, match="has other columns"):
        model(None, "masked-verified", init=start).fit(rows(d=3))
