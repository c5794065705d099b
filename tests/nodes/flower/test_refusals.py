"""Nodes that refuse, nodes that nobody listed, and starts that some nodes lack."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privfed import DPKMeans, DWFKMeans, Privacy
from privfed.core.agreed.agreement import Agreement
from privfed.core.record.records import Asked, Summed
from privfed.core.stored.encoding import Refusal, encode
from privfed.errors import ArgumentError, RefusedError
from privfed.nodes.deploy.folders import new_party, write_node
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import FAULTS, Heard
from privfed.nodes.flower.node import check_node
from privfed.nodes.flower.node_messages import (
    Declined,
    Join,
    read_down,
)
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import Identity
from tests.nodes.flower.federations import CLAIM, WORDS, assert_same, federation, here
from tests.nodes.flower.networks import Folders


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return federation(tmp_path / "fed")


def over(folder: Path) -> tuple[FlowerEngine, Folders]:
    network = Folders(nodes_of(folder))
    return FlowerEngine(folder, network=network), network


def test_an_unlisted_node_takes_no_part_and_stops_nobody(folder: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    new_party(foreign, "foreign")
    write_node(foreign, "rows.npz", "rows")
    shutil.copy(nodes_of(folder)[0] / "rows.npz", foreign)
    shutil.copy(folder / "parties", foreign)
    network = Folders((*nodes_of(folder), foreign))
    fitted = DWFKMeans(3, protocol="plain", engine=FlowerEngine(folder, network=network), **WORDS).fit()
    assert_same(fitted, here(DWFKMeans(3, protocol="plain", **WORDS)))
    with pytest.raises(ArgumentError, match="has no client with the key of 'foreign'"):
        check_node(foreign)


def test_nodes_refuse_seeded_noise_and_a_coordinator_is_told_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, network = over(folder)
    with pytest.raises(ArgumentError, match=r"noise_seed=7\) makes noise that repeats"):
        DPKMeans(3, privacy=replace(CLAIM, noise_seed=7), engine=engine).fit()
    assert network.trips == 0
    terms = Privacy.terms
    monkeypatch.setattr(
        Privacy, "terms", lambda *a, **k: msgspec.structs.replace(terms(*a, **k), seeded=True)
    )
    with pytest.raises(RefusedError) as refused:
        DPKMeans(3, privacy=CLAIM, engine=engine).fit()
    assert set(refused.value.codes.values()) == {"agreement:seeded"}
    assert all(Journal(one, read_identity(one)).fits == () for one in nodes_of(folder))


def test_nodes_join_no_sum_that_is_said_to_have_slots_but_not_named_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = Masked.terms
    slots = {"slotted": 2, "slot_contributors": 2}
    monkeypatch.setattr(Masked, "terms", lambda *args: msgspec.structs.replace(terms(*args), **slots))
    engine, _ = over(folder)
    with pytest.raises(RefusedError) as refused:
        DWFKMeans(3, protocol="masked", engine=engine).fit()
    assert set(refused.value.codes.values()) == {"policy:terms"}
    assert all(Journal(one, read_identity(one)).fits == () for one in nodes_of(folder))


class Outsider(Folders):
    """The nodes of a federation, and one more that answers each message with the same bytes.

    Attributes:
        says: from a request to join, what the outsider answers.
    """

    says: Callable[[Join], bytes] = staticmethod(lambda message: encode(Refusal("agreement:parties")))
    fault: int | None = None

    def nodes(self) -> tuple[int, ...]:
        return (99, *super().nodes())

    def send(self, messages: Any, seconds: float) -> Heard:
        heard = super().send({node: data for node, data in messages.items() if node != 99}, seconds)
        if 99 not in messages:
            return heard
        if self.fault is not None:
            return Heard(heard.replies, {**heard.faults, 99: self.fault})
        asked = read_down(messages[99])
        assert isinstance(asked, Join)
        return Heard({99: self.says(asked), **heard.replies}, heard.faults)


def in_the_place_of_another(message: Join) -> bytes:
    """Refuse as the client at position 1, with another key than its own."""
    digest = Agreement.from_bytes(message.agreement).digest
    refusal = Declined(position=1, code="policy:terms")
    return encode(refusal.signed(Identity.generate(), digest, message.reader))


REPLIES: dict[str, Callable[[Join], bytes]] = {
    "a code": lambda message: encode(Refusal("policy:terms")),
    "the code of a start": lambda message: encode(Refusal("start:missing")),
    "no message": lambda message: b"anything",
    "in a client's name": in_the_place_of_another,
    "at no position": lambda message: encode(Declined(position=7, code="error", signature=bytes(64))),
}


@pytest.mark.parametrize("says", REPLIES.values(), ids=REPLIES)
def test_whoever_is_not_listed_stops_nobody_by_what_it_says(
    says: Callable[[Join], bytes], folder: Path
) -> None:
    network = Outsider(nodes_of(folder))
    network.says = says
    fitted = DWFKMeans(3, protocol="plain", engine=FlowerEngine(folder, network=network), **WORDS).fit()
    assert_same(fitted, here(DWFKMeans(3, protocol="plain", **WORDS)))


@pytest.mark.parametrize(
    "fault", [1, *(pytest.param(one, marks=pytest.mark.slow) for one in FAULTS if one != 1)]
)
def test_whoever_is_not_listed_stops_nobody_by_its_faults(fault: int, folder: Path) -> None:
    network = Outsider(nodes_of(folder))
    network.fault = fault
    engine = FlowerEngine(folder, network=network)
    fitted = DWFKMeans(3, protocol="plain", engine=engine, **WORDS).fit()
    assert all(one.contributors == (0, 1, 2, 3) for one in fitted.transcript_.of(Summed))
    assert {(one.client, one.stage) for one in engine.faults} == {("node 99", "join")}


def refusing(folder: Path, *clients: int) -> None:
    """Have the owners of some clients allow nothing: each approves agreements, and has approved none."""
    for client in clients:
        (nodes_of(folder)[client] / "approved").mkdir()


@pytest.mark.parametrize(
    "protocol", ["masked", *(pytest.param(one, marks=pytest.mark.slow) for one in ("group-masked", "plain"))]
)
def test_a_client_that_refuses_is_left_out_where_enough_are_left(protocol: str, folder: Path) -> None:
    refusing(folder, 2)
    engine, _ = over(folder)
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **WORDS).fit()
    assert all(one.contributors == (0, 1, 3) for one in fitted.transcript_.of(Summed))
    assert [(one.client, one.what) for one in engine.faults] == [("c2", "refused: agreement:approved")]
    assert Journal(nodes_of(folder)[2], read_identity(nodes_of(folder)[2])).fits == ()


@pytest.mark.parametrize(
    "protocol", ["masked", *(pytest.param(one, marks=pytest.mark.slow) for one in ("group-masked", "ckks"))]
)
def test_where_too_few_are_left_the_error_says_who_refused_and_why(protocol: str, folder: Path) -> None:
    refusing(folder, 1, 2)
    engine, _ = over(folder)
    with pytest.raises(RefusedError, match="of which its owner keeps a copy") as refused:
        DWFKMeans(3, protocol=protocol, engine=engine, **WORDS).fit()
    assert refused.value.codes == {"c1": "agreement:approved", "c2": "agreement:approved"}


def test_where_all_refuse_nobody_waits(folder: Path) -> None:
    refusing(folder, 0, 1, 2, 3)
    engine, network = over(folder)
    engine.file = replace(engine.file, wait=600.0)
    with pytest.raises(RefusedError) as refused:
        DWFKMeans(3, engine=engine, **WORDS).fit()
    assert set(refused.value.codes) == {"c0", "c1", "c2", "c3"} and network.trips == 1


@pytest.mark.slow
def test_nodes_begin_from_a_start_that_all_of_them_keep_and_else_ask_anew(folder: Path) -> None:
    words = {**WORDS, "protocol": "masked-verified"}
    engine, _ = over(folder)
    first = DWFKMeans(3, engine=engine, **words).fit()
    later = DWFKMeans(4, engine=engine, init=first.kept_start(), **words).fit()
    purposes = [[one.purpose for one in fit.transcript_.of(Asked)].count("start") for fit in (first, later)]
    assert purposes == [1, 0]
    for own in nodes_of(folder)[:1]:
        (own / "node.toml").write_text((own / "node.toml").read_text().replace('"rows"', '"other"'))
    with pytest.warns(UserWarning, match="c0 lack the start total"):
        anew = DWFKMeans(4, engine=engine, init=first.kept_start(), **words).fit()
    assert [one.purpose for one in anew.transcript_.of(Asked)].count("start") == 1
