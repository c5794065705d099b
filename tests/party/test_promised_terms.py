"""Terms are written by whoever proposes an agreement: a client takes none that its sum cannot keep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, Privacy, Simulation
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, NotEnoughClientsError
from privfed.protocols import CKKS, GroupMasked, Masked, Plain
from privfed.protocols.secure_sums import SECURE_SUMS
from tests.nodes.elsewhere import Elsewhere
from tests.raised import forbidden_by

ROWS = [np.random.default_rng(i).uniform(-1.0, 1.0, (30, 2)) for i in range(4)]
INSISTS = ClientPolicy(min_honest=5, min_colluders=2, max_epsilon=0.2, max_delta=1e-5)


def promising(kind: type[Any], monkeypatch: pytest.MonkeyPatch, **promised: int) -> None:
    """Have a lying coordinator promise in an agreement what its sums do not keep."""
    own = kind.terms
    monkeypatch.setattr(kind, "terms", lambda *args: msgspec.structs.replace(own(*args), **promised))


@pytest.mark.parametrize("promised", [{"honest": 10**8, "colluders": 5}, {"honest": 2}, {"colluders": 1}])
def test_no_client_adds_a_share_of_noise_in_sums_that_show_every_answer(
    promised: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With 10^8 honest clients promised each adds a hundred millionth of the noise, and the server reads it.
    promising(Plain, monkeypatch, **promised)
    policy = INSISTS if promised.get("honest", 0) > 5 else ClientPolicy()
    claim = Privacy(
        epsilon=0.2, delta=1e-5, unit="record", domain=Box(-1, 1, max_rows=64), neighbours="add-remove"
    )
    with forbidden_by("policy:terms"):
        DPKMeans(2, privacy=claim, protocol="plain", engine=Elsewhere(tmp_path, ROWS, policy)).fit()


def test_one_key_withstands_no_colluder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    promising(CKKS, monkeypatch, colluders=1)
    with forbidden_by("policy:terms"):
        DWFKMeans(2, protocol="ckks", engine=Elsewhere(tmp_path, ROWS, ClientPolicy(min_colluders=1))).fit()


@pytest.mark.parametrize("name", ["plain", "masked", "masked-verified", "group-masked", "ckks"])
def test_a_sum_is_verified_where_its_name_says_so_and_nowhere_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners list names: one who took verified sums alone joined some whose centers the coordinator chose."""
    promising(SECURE_SUMS.find(name), monkeypatch, verified=name != "masked-verified")
    engine = Elsewhere(tmp_path, ROWS, ClientPolicy(protocols=frozenset({name})))
    with forbidden_by("policy:terms"):
        DWFKMeans(2, protocol=name, engine=engine, max_iter=2).fit()
    assert engine.party(0).journal.usage("rows").sums == 0


@pytest.mark.parametrize("name", ["plain", "masked", "masked-verified", "group-masked", "ckks"])
def test_there_are_slots_where_a_sums_name_says_so_and_nowhere_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With slots numbers have no room to add up, and a total shows every answer."""
    promising(SECURE_SUMS.find(name), monkeypatch, slotted=2, slot_contributors=2)
    engine = Elsewhere(tmp_path, ROWS)
    with forbidden_by("policy:terms"):
        DWFKMeans(2, protocol=name, engine=engine).fit()
    # What is refused costs no fit and no epsilon.
    assert engine.party(0).journal.fits == ()


HIDING = [CKKS, GroupMasked, Masked, partial(Masked, verified=True)]
TWO: dict[str, Any] = {"honest": 2, "colluders": 0, "min_clients": 2}


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("kind", HIDING)
def test_no_client_is_summed_with_one_other(
    kind: Callable[[], Any], n: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The coordinator leaves out its own check: by the total each of two learns the answer of the other.
    protocol = kind()
    own = type(protocol).terms
    monkeypatch.setattr(
        type(protocol),
        "terms",
        lambda self, k, _, most: msgspec.structs.replace(own(self, 4, 4, most), **TWO),
    )
    cohorts = [[0, 1], [2, 3]][: n // 2]
    engine = Elsewhere(tmp_path, ROWS[:n])
    with forbidden_by("policy:terms"):
        DWFKMeans(2, protocol=protocol, engine=engine, cohorts=cohorts, max_iter=2).fit()
    assert engine.party(0).journal.usage("rows").sums == 0


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("kind", HIDING)
def test_a_coordinator_agrees_on_no_cohort_of_two(kind: Callable[..., Any], n: int) -> None:
    cohorts = [[0, 1], [2, 3]][: n // 2]
    with pytest.raises(ArgumentError, match=r"at least 3 clients"):
        DWFKMeans(2, protocol=kind(honest=2), cohorts=cohorts, max_iter=2).fit(ROWS[:n])


@pytest.mark.parametrize("kind", [CKKS, GroupMasked])
def test_two_that_are_left_are_not_summed(kind: type[Any]) -> None:
    words: dict[str, Any] = {"honest": 2, "repeats": 3} | ({} if kind is CKKS else {"colluders": 0})
    lost = [Fault(i, "collect") for i in (0, 1)]
    with pytest.raises(NotEnoughClientsError, match="3"):
        DWFKMeans(2, protocol=kind(**words), engine=Simulation(faults=lost), max_iter=2).fit(ROWS)


@pytest.mark.parametrize("kind", [CKKS, GroupMasked, Masked])
def test_no_client_is_summed_with_itself_alone(
    kind: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cohort of one client, where one honest client is promised: its answer was the total that all read.
    own = kind.terms
    words = {"honest": 1, "colluders": 0, "min_clients": 1}
    monkeypatch.setattr(
        kind, "terms", lambda self, n, _, most: msgspec.structs.replace(own(self, n, n, most), **words)
    )
    engine = Elsewhere(tmp_path, ROWS)
    with forbidden_by("policy:terms"):
        DWFKMeans(2, protocol=kind(), engine=engine, cohorts=[[0], [1, 2, 3]], max_iter=2).fit()
