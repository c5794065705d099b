"""Fits over nodes that are asked by messages alone, from nothing but their folders."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, FederatedScaler, load, metrics
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.program import own_versions
from privfed.core.record.records import Summed, question_of
from privfed.core.stored.encoding import Refusal, encode
from privfed.errors import ArgumentError, MessageError, NotEnoughClientsError, ProtocolError, RefusedError
from privfed.estimators.fitting import clients_of
from privfed.nodes.commands import federations
from privfed.nodes.deploy.folders import new_party, write_federation
from privfed.nodes.deploy.local import LocalNodes, make_local, nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import Heard, RunLostError
from privfed.nodes.flower.node import answered
from privfed.nodes.flower.node_messages import (
    Answered,
    Ask,
    Declined,
    End,
    Join,
    Joined,
    read_down,
    read_up,
    unseal_totals,
)
from privfed.nodes.flower.settings import FederationFile
from privfed.nodes.identity import PARTIES, Parties, read_identity, read_parties
from privfed.nodes.journal import Journal
from privfed.privacy.claim import PrivacySpent
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.setup.hybrid import new_reader
from privfed.questions.lloyd import LloydSums
from tests.cli.wide import run
from tests.nodes.flower.federations import CLAIM, OPEN, WORDS, N, assert_same, federation, here
from tests.nodes.flower.networks import Folders
from tests.some import some


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return federation(tmp_path / "fed")


def over(folder: Path) -> tuple[FlowerEngine, Folders]:
    network = Folders(nodes_of(folder))
    return FlowerEngine(folder, network=network), network


@pytest.mark.parametrize(
    "protocol",
    ["masked", "ckks", *(pytest.param(one, marks=pytest.mark.slow) for one in ("plain", "masked-verified"))],
)
def test_a_fit_over_nodes_is_the_one_in_this_process(protocol: str, folder: Path) -> None:
    engine, _ = over(folder)
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **WORDS).fit()
    assert_same(fitted, here(DWFKMeans(3, protocol=protocol, **WORDS)))
    assert engine.faults == []


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("protocol", "each", "besides"),
    [("plain", 1, 0), ("masked", 2, 3), ("group-masked", 1, 4), ("ckks", 1, 4)],
)
def test_exchanges_a_sum_are_as_few_as_the_protocol_needs(
    protocol: str, each: int, besides: int, folder: Path
) -> None:
    """Besides: the set-up, and what brings the last total to clients that open it."""
    engine, network = over(folder)
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **{**WORDS, "max_iter": 1}).fit()
    sums = len(fitted.transcript_.of(Summed))
    assert fitted.federation_.traffic.exchanges == each * sums + besides
    assert network.trips == 1 + fitted.federation_.traffic.exchanges


@pytest.mark.parametrize("protocol", ["masked", pytest.param("masked-proven", marks=pytest.mark.slow)])
def test_each_node_has_a_bound_of_its_own_on_its_rows(protocol: str, tmp_path: Path) -> None:
    engine, _ = over(federation(tmp_path / "fed", approved={**OPEN, "protocols": [protocol]}))
    sizes = [20 + 5 * i for i in range(N)]
    domain = Box(-12.0, 12.0, max_rows={f"c{i}": size for i, size in enumerate(sizes)})
    words: dict[str, Any] = {**WORDS, "local_iter": 1, "protocol": protocol, "domain": domain}
    fitted = DWFKMeans(3, engine=engine, **words).fit()
    assert_same(fitted, here(DWFKMeans(3, **words)))
    assert engine.faults == [] and fitted.transcript_.configuration.max_rows == tuple(sizes)


@pytest.mark.slow
def test_a_claim_is_the_one_in_this_process(folder: Path) -> None:
    engine, _ = over(folder)
    fitted = DPKMeans(3, privacy=CLAIM, engine=engine, random_state=3).fit()
    own = here(DPKMeans(3, privacy=CLAIM, random_state=3))
    assert fitted.privacy_spent_.against == own.privacy_spent_.against
    assert fitted.privacy_spent_.epsilon == 2.0


@pytest.mark.parametrize("command", ["run", "simulate"])
def test_a_run_from_the_command_line_ends_with_the_claim_that_python_makes(
    command: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    words = ("--algorithm", "dp", "-k", 3, "--low", -12, "--high", 12, "--max-rows", 100)
    claim = ("--epsilon", 2, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    said = run("flower", command, folder, *words, *claim, "--out", tmp_path / "run").output
    spent = load(tmp_path / "run" / "model.npz").privacy_spent_
    assert spent is not None and spent.line in said
    assert all(what in said and fact in said for what, fact in some(spent.facts().items()))
    table = tmp_path / "new.csv"
    table.write_text("\n".join([",".join(FederationFile.read(folder).columns), "1,2", "-9,-8"]))
    predicted = run("predict", tmp_path / "run", table)
    assert predicted.stdout.splitlines()[0] == "cluster" and len(predicted.stdout.splitlines()) == 3
    assert spent.line in predicted.stderr


def test_a_simulation_needs_no_flower_and_is_the_run_of_python(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    words = ("-k", 3, "--seed", 3, "--max-iter", 2, "--algorithm", "dwf", "--out", tmp_path / "run")
    assert "4 clients" in run("flower", "simulate", folder, *words).stdout
    engine, _ = over(folder)
    fitted = DWFKMeans(3, max_iter=2, random_state=3, engine=engine).fit()
    np.testing.assert_array_equal(
        load(tmp_path / "run" / "model.npz").cluster_centers_, fitted.cluster_centers_
    )
    bare = write_federation(tmp_path / "bare", ["a"])
    with pytest.raises(ArgumentError, match="no nodes on this machine"):
        LocalNodes(bare)


def test_one_node_alone_is_told_to_wait_for_others(tmp_path: Path) -> None:
    make_local(tmp_path / "fed", {"ward": np.eye(9)}, [f"x{i}" for i in range(9)])
    engine, _ = over(tmp_path / "fed")
    with pytest.raises(ArgumentError, match=r"'ward' is the only client: .* Add further ones"):
        DWFKMeans(2, engine=engine).fit()


def test_a_summary_from_the_command_line_ends_with_its_claim_in_both_forms(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    words = ("--low", -12, "--high", 12, "--max-rows", 100, "--epsilon", 2, "--delta", 1e-6)
    words = (*words, "--unit", "record", "--neighbours", "add-remove")
    said = run("flower", "summary", folder, *words).output
    found = json.loads(run("flower", "summary", folder, *words, "--json").stdout)
    claim = PrivacySpent.from_dict(found["privacy"])
    assert all(what in said and fact in said for what, fact in some(claim.facts().items()))


def test_metrics_and_scalers_ask_the_same_nodes(folder: Path) -> None:
    engine, _ = over(folder)
    scaled = FederatedScaler(engine=engine).fit()
    assert scaled.mean_.tobytes() == here(FederatedScaler()).mean_.tobytes()
    assert metrics.inertia(None, np.eye(2), engine=engine) > 0


def test_a_node_that_is_gone_is_a_dropout_and_comes_back(folder: Path) -> None:
    engine, network = over(folder)
    seen: list[tuple[int, ...]] = []

    def watch(index: int, ask: object, total: Any) -> None:
        seen.append(total.contributors)
        network.gone = {103} if index < 2 else set()

    model = DWFKMeans(3, protocol="plain", engine=engine, **WORDS)
    model.fit_clients(clients_of(model, None, None, None, None), watch=watch)
    assert seen[:3] == [(0, 1, 2, 3), (0, 1, 2), (0, 1, 2)] and seen[3] == (0, 1, 2, 3)
    assert [(one.client, one.what) for one in engine.faults] == [("c3", "the node is not connected")]


def test_too_few_nodes_end_a_sum_by_name(folder: Path) -> None:
    engine, network = over(folder)
    network.gone = {101, 102, 103}
    with pytest.raises(NotEnoughClientsError) as raised:
        DWFKMeans(3, engine=engine, **WORDS).fit()
    assert raised.value.missing == ("c1", "c2", "c3")
    network.gone = {100, 101, 102, 103}
    with pytest.raises(ProtocolError, match=r"none of the 4 clients has a node .*within 0 s"):
        DWFKMeans(3, engine=engine, **WORDS).fit()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("protocol", "trips"),
    [("masked", 12), ("plain", 5), ("ckks", 6), pytest.param("group-masked", 6, marks=pytest.mark.slow)],
)
def test_a_run_that_is_lost_is_resumed_with_the_same_journals(
    protocol: str, trips: int, folder: Path, tmp_path: Path
) -> None:
    class Lost(Folders):
        def send(self, messages: Any, seconds: float) -> Heard:
            heard = super().send(messages, seconds)
            if self.trips == trips:
                raise ProtocolError("the Flower run ended")
            return heard

    engine = FlowerEngine(folder, network=Lost(nodes_of(folder)))
    model = DWFKMeans(3, protocol=protocol, engine=engine, run_dir=tmp_path / "run", **WORDS)
    with pytest.raises(ProtocolError, match="the Flower run ended"):
        model.fit()
    assert_same(model.resume(), here(DWFKMeans(3, protocol=protocol, **WORDS)))
    own = nodes_of(folder)[0]
    assert len(Journal(own, read_identity(own)).fits) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("protocol", "trips"),
    [
        *(("masked", trip) for trip in (2, 3, 4, 6, 7)),
        *(("plain", 3), ("ckks", 5), ("masked-verified", 7)),
        *(("group-masked", trip) for trip in (2, 3, 4, 7, 8)),
    ],
)
@pytest.mark.parametrize("reached", [(0, 2), (0, 1, 2, 3)], ids=["some", "all"])
def test_a_fit_goes_on_where_the_run_is_lost_and_only_some_nodes_were_reached(
    reached: tuple[int, ...], protocol: str, trips: int, folder: Path
) -> None:
    """The same requests are sent again, and who had answered gives the same reply."""

    class Lost(Folders):
        lost = False

        def send(self, messages: Any, seconds: float) -> Heard:
            if self.lost or self.trips + 1 != trips:
                return super().send(messages, seconds)
            self.lost = True
            super().send({node: data for node, data in messages.items() if node - 100 in reached}, seconds)
            self.folders = {node + 50: own for node, own in self.folders.items()}  # Other nodes afterwards.
            raise RunLostError("the Flower run ended.")

    network = Lost(nodes_of(folder))
    engine = FlowerEngine(folder, network=network)
    fitted = DWFKMeans(3, protocol=protocol, engine=engine, **WORDS).fit()
    assert network.lost and engine.faults == []
    assert_same(fitted, here(DWFKMeans(3, protocol=protocol, **WORDS)))
    assert all(one.contributors == (0, 1, 2, 3) for one in fitted.transcript_.of(Summed))


def test_nodes_close_the_fits_that_their_coordinator_says_are_over(folder: Path) -> None:
    engine, network = over(folder)
    model = DWFKMeans(3, engine=engine, **{**WORDS, "max_iter": 1}).fit()
    journals = [Journal(own, read_identity(own)) for own in nodes_of(folder)]
    assert not any(one.closed for journal in journals for one in journal.fits)
    digest = next(one.digest for one in map(read_down, network.down) if isinstance(one, Ask))
    assert code(nodes_of(folder)[0], encode(End(digest=digest).signed(Identity.generate()))) == "malformed"
    assert not journals[0].fits[0].closed
    network.gone = {103}
    engine.end_fits()
    assert [one.fits[0].closed for one in journals] == [True, True, True, False]
    assert [(one.client, one.stage) for one in engine.faults] == [("c3", "end")]
    network.gone = set()
    with pytest.raises(RefusedError):
        metrics.inertia(model.federation_, model.cluster_centers_)
    engine.end_fits()
    assert network.trips == len(model.transcript_.of(Summed)) * 2 + 6


def test_a_fit_ends_where_no_other_run_can_be_started(folder: Path) -> None:
    class Gone(Folders):
        def send(self, messages: Any, seconds: float) -> Heard:
            if self.trips == 4:
                raise RunLostError("the Flower run ended.")
            return super().send(messages, seconds)

    with pytest.raises(ProtocolError, match="the Flower run ended"):
        DWFKMeans(3, engine=FlowerEngine(folder, network=Gone(nodes_of(folder))), **WORDS).fit()


def test_a_client_without_its_table_says_nothing_of_why(folder: Path) -> None:
    broken = nodes_of(folder)[1]
    (broken / "rows.npz").unlink()
    engine, network = over(folder)
    fitted = DWFKMeans(3, protocol="plain", engine=engine, **WORDS).fit()
    assert all(one.contributors == (0, 2, 3) for one in fitted.transcript_.of(Summed))
    assert [(one.client, one.stage, one.what) for one in engine.faults] == [("c1", "join", "refused: error")]
    assert not any(b"rows.npz" in one or b"exist" in one for one in network.up)
    assert "does not exist" in (broken / "log" / "0.log").read_text()


def test_a_client_whose_own_code_fails_on_its_rows_answers_as_one_without(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal would tell of its rows; what failed is in its own log."""
    lloyd = LloydSums.answer_all

    def failing(self: LloydSums, clients: Any, generators: Any) -> Any:
        if any(one.n_rows == 1 for one in clients):
            raise ArithmeticError("1234567.0")
        return lloyd(self, clients, generators)

    monkeypatch.setattr(LloydSums, "answer_all", failing)
    np.savez(nodes_of(folder)[1] / "rows.npz", X=np.array([[0.5, 1234567.0]]))
    engine, network = over(folder)
    fitted = DWFKMeans(
        3, engine=engine, **{**WORDS, "init": np.eye(3, 2), "local_iter": 1, "metrics": []}
    ).fit()
    totals = [
        total.statistics["count"].sum()
        for asked, total in fitted.transcript_.totals()
        if isinstance(question_of(asked), LloydSums)
    ]
    n_rows = sum(len(np.load(node / "rows.npz")["X"]) for node in nodes_of(folder)) - 1
    assert totals and totals == [n_rows] * len(totals) and not engine.faults
    assert not any(b"1234567" in one for one in network.up)
    assert "ArithmeticError: 1234567.0" in (nodes_of(folder)[1] / "log" / "0.log").read_text()


def joined(folder: Path) -> tuple[Agreement, Folders]:
    """Run a short fit that clients open; return what was agreed, and the network that saw it."""
    engine, network = over(folder)
    DWFKMeans(3, protocol="group-masked", engine=engine, **{**WORDS, "max_iter": 1}).fit()
    first = read_down(network.down[0])
    assert isinstance(first, Join)
    return Agreement.from_bytes(first.agreement), network


def request(agreement: Agreement, signer: Identity) -> bytes:
    return encode(Join(agreement=agreement.to_bytes(), reader=new_reader()[1]).signed(signer))


def code(folder: Path, message: bytes) -> str:
    reply = read_up(answered(folder, message), "a node")
    assert isinstance(reply, Refusal | Declined)
    return reply.code


def test_a_node_joins_what_its_own_coordinator_signed_with_its_own_parties_only(folder: Path) -> None:
    agreement, _ = joined(folder)
    node, server = nodes_of(folder)[0], read_identity(folder / "coordinator").key
    assert isinstance(read_up(answered(node, request(agreement, server)), "a node"), Joined)
    assert code(node, request(agreement, Identity.generate())) == "malformed"
    for unusable in (b"", bytes(32), new_reader()[1][:-1]):
        signed = Join(agreement=agreement.to_bytes(), reader=unusable).signed(server)
        assert code(node, encode(signed)) == "malformed"
    other = Registry((*agreement.registry.clients[:-1], Identity.generate().public), server.public)
    assert code(node, request(Agreement(agreement.configuration, other), server)) == "agreement:parties"
    assert code(node, encode(Ask(bytes(32), b""))) == "agreement:unknown"
    assert code(node, b"anything") == "malformed"
    whole, reader = agreement.to_bytes(), new_reader()[1]
    for damaged in (b"", b"anything", whole[:-1], whole + b"\0", whole.replace(b"agreement", b"agreemend")):
        signed = Join(agreement=damaged, reader=reader).signed(server)
        assert code(node, encode(signed)) == "agreement:format"


@pytest.mark.parametrize(
    ("name", "version", "refusal"),
    [
        ("wire", "99", f"version:wire:99:{own_versions()['wire']}"),
        ("ciphers", "2", "version:ciphers:2:none"),
        ("numpy", "1.9", f"version:numpy:1.9:{own_versions()['numpy']}"),
        ("algorithms", "Ward 3\n", "error"),
        ("privfed", "0.5.99", None),
    ],
)
def test_a_node_names_both_versions_of_what_must_be_equal(
    folder: Path, name: str, version: str, refusal: str | None
) -> None:
    agreement, _ = joined(folder)
    node, server = nodes_of(folder)[0], read_identity(folder / "coordinator").key
    agreed, change = agreement.configuration, msgspec.structs.replace
    assert agreed.program is not None
    program = change(agreed.program, versions=agreed.program.versions | {name: version})
    other = Agreement(change(agreed, program=program), agreement.registry)
    if refusal is None:
        assert isinstance(read_up(answered(node, request(other, server)), "a node"), Joined)
    else:
        assert code(node, request(other, server)) == refusal


def test_a_node_with_copies_of_agreements_joins_only_these(folder: Path) -> None:
    agreement, _ = joined(folder)
    node, server = nodes_of(folder)[0], read_identity(folder / "coordinator").key
    (node / "approved").mkdir()
    assert code(node, request(agreement, server)) == "agreement:approved"
    (node / "approved" / "lloyd").write_bytes(agreement.to_bytes())
    again = msgspec.structs.replace(agreement.configuration, nonce=b"another")
    assert isinstance(
        read_up(answered(node, request(Agreement(again, agreement.registry), server)), "a node"), Joined
    )
    more = msgspec.structs.replace(agreement.configuration, seed=99)
    assert code(node, request(Agreement(more, agreement.registry), server)) == "agreement:approved"


def test_what_clients_open_is_told_to_the_driving_process_alone(folder: Path) -> None:
    agreement, network = joined(folder)
    told = [
        one for one in (read_up(data, "") for data in network.up) if isinstance(one, Answered) and one.totals
    ]
    assert told
    with pytest.raises(MessageError, match="totals that do not authenticate"):
        unseal_totals(told[0].totals, agreement.digest, 0, new_reader()[0])
    for node in nodes_of(folder):
        settings = (node / "node.toml").read_text()
        (node / "node.toml").write_text(settings.replace("tells = true", "tells = false"))
    engine, network = over(folder)
    with pytest.raises(ProtocolError, match="only the clients have the total"):
        DWFKMeans(3, protocol="group-masked", engine=engine, **WORDS).fit()
    assert not any(getattr(read_up(data, ""), "totals", b"") for data in network.up)


@pytest.mark.slow
def test_a_new_client_in_the_list_ends_no_fit_of_the_others(folder: Path, tmp_path: Path) -> None:
    """The coordinator and one node have the new list; the others have not got it yet."""
    old = [f"c{i}" for i in range(N)]
    words: dict[str, Any] = {**WORDS, "protocol": "masked-verified", "run_dir": tmp_path / "run"}
    engine, network = over(folder)
    network.faults = {(6, node): 8 for node in network.folders}
    with pytest.raises(NotEnoughClientsError):
        DWFKMeans(3, engine=engine, **words).fit()
    new = new_party(tmp_path / "c9", "c9")
    parties = read_parties(folder / "parties")
    listed = PARTIES.to_bytes(Parties.of(parties.server, [*parties.clients, new.signed_key]))
    for place in (folder / "parties", nodes_of(folder)[0] / "parties"):
        place.write_bytes(listed)
    engine, _ = over(folder)
    assert engine.members.names == (*old, "c9")
    resumed = DWFKMeans(3, engine=engine, **words).resume()
    assert_same(resumed, here(DWFKMeans(3, protocol="masked-verified", **WORDS)))
    assert metrics.inertia(resumed.federation_, resumed.cluster_centers_ + 1) > 0  # Agreed on anew.
    with pytest.raises(RefusedError, match="agreement:parties"):
        DWFKMeans(3, engine=engine, **WORDS).fit()
    engine = FlowerEngine(folder, network=Folders(nodes_of(folder)), clients=old)
    assert_same(DWFKMeans(3, engine=engine, **WORDS).fit(), here(DWFKMeans(3, **WORDS)))
    with pytest.raises(ArgumentError, match="clients='c8' is not in the list of parties: c0, c1, c2, c3, c9"):
        FlowerEngine(folder, clients=["c8"])
