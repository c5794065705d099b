"""A node answers what its owner approved and nothing else, and as a client simulated in process does."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, FederatedFuzzyCMeans, FederatedScaler, Privacy
from privfed.core.agreed.policy import GROUP_SIZE, HIDING
from privfed.core.record.records import Asked
from privfed.core.stored.encoding import Refusal
from privfed.data import ClientTable, ClientTables
from privfed.errors import ProtocolError
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.network import Heard
from privfed.nodes.flower.node_messages import read_up
from privfed.nodes.flower.settings import NodeSettings
from privfed.nodes.identity import PARTIES, OwnIdentity, Parties, read_parties
from privfed.nodes.journal import Journal
from privfed.nodes.party import Party
from tests.cli.wide import run
from tests.nodes.flower.federations import CLAIM, WORDS, N, assert_same, federation, rows
from tests.nodes.flower.networks import Folders
from tests.some import some

APPROVED: dict[str, Any] = {"algorithms": ["WeightedKMeans", "PrivateKMeans"]}
"""What an owner must name; all else stays as it is closed."""


def asked(folder: Path, model: Any) -> Any:
    """Fit over nodes that run in this process."""
    with FlowerEngine(folder, network=Folders(nodes_of(folder))) as engine:
        model.engine = engine
        return model.fit()


def refused(folder: Path, model: Any) -> str:
    """Fit, and return what the error says."""
    with pytest.raises(ProtocolError) as error:
        asked(folder, model)
    return str(error.value)


def test_what_is_not_approved_is_refused(tmp_path: Path) -> None:
    closed = federation(tmp_path / "closed", approved={})
    assert "policy:algorithm" in refused(closed, DWFKMeans(2, **WORDS))
    folder = federation(tmp_path / "fed", approved=APPROVED)
    assert "policy:protocol" in refused(folder, DWFKMeans(2, protocol="plain", **WORDS))
    assert "policy:algorithm" in refused(folder, FederatedFuzzyCMeans(2, max_iter=2, random_state=0))
    # Groups would void a guarantee, and whoever approves privacy approves an epsilon.
    words = {"privacy": CLAIM, "random_state": 0}
    assert "policy:groups" in refused(folder, DPKMeans(2, **words))
    private = federation(tmp_path / "private", approved={**APPROVED, "max_epsilon": 2.0, "max_delta": 1e-5})
    assert asked(private, DPKMeans(2, **words)).privacy_spent_.epsilon == 2.0
    assert "privacy alone (max_epsilon): claim it" in refused(private, DWFKMeans(2, **WORDS))


LEFT_OUT = [[j for j in range(N) if j != i] for i in range(N)]
"""Cohorts that each lack one client: their totals and everybody's show each client's, and nobody is lost."""


@pytest.mark.parametrize("rule", [{"cohorts": LEFT_OUT}, {"clients_per_round": N - 1}])
def test_totals_tell_no_client_apart_by_cohorts_unless_the_owner_says_so(
    rule: dict[str, Any], tmp_path: Path
) -> None:
    folder = federation(tmp_path / "fed", approved=APPROVED)
    assert "policy:cohorts" in refused(folder, DWFKMeans(2, **WORDS, **rule))
    assert [one.fits for one in map(journal_of, nodes_of(folder))] == [()] * N
    fixed = DWFKMeans(2, **WORDS, cohorts=[list(range(N))])
    assert asked(folder, fixed).n_iter_ == 3
    allowed = federation(tmp_path / "allowed", approved={**APPROVED, "fixed_cohorts": False})
    assert asked(allowed, DWFKMeans(2, **WORDS, **rule)).n_iter_ == 3
    assert not ClientPolicy.closed(max_epsilon=1.0).fixed_cohorts


def journal_of(node: Path) -> Journal:
    return Party(node).journal


class ChangedMinds(Folders):
    """Nodes whose owners change their minds once two sums are answered."""

    change: Callable[[Path], object] | None = None

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        journals = [Party(node).journal for node in self.folders.values()]
        if self.change and all(sum(one.answered for one in own.fits) == 2 for own in journals):
            for node in some(self.folders.values()):
                self.change(node)
            self.change = None
        return super().send(messages, seconds)


def _replace(old: str, new: str) -> Callable[[Path], object]:
    def change(node: Path) -> None:
        settings = (node / "node.toml").read_text()
        assert old in settings
        (node / "node.toml").write_text(settings.replace(old, new))

    return change


def _with_another_list(node: Path) -> None:
    parties = read_parties(node / "parties")
    own = OwnIdentity.generate("other").signed_key
    (node / "parties").write_bytes(PARTIES.to_bytes(Parties.of(own, parties.clients)))


MINDS = {
    "policy:algorithm": _replace('"WeightedKMeans"', '"FuzzyCMeans"'),
    "policy:max_sums": _replace("[policy]", "[policy]\nmax_sums = 1"),
    "agreement:parties": _with_another_list,
    "agreement:approved": lambda node: (node / "approved").mkdir(),
}


@pytest.mark.parametrize("protocol", [*sorted(HIDING), "plain"])
@pytest.mark.parametrize("code", list(MINDS))
@pytest.mark.few(4)
def test_what_an_owner_approves_no_more_is_answered_no_more(protocol: str, code: str, tmp_path: Path) -> None:
    folder = federation(tmp_path / "fed")
    network = ChangedMinds(nodes_of(folder))
    network.change = MINDS[code]
    with FlowerEngine(folder, network=network) as engine, pytest.raises(ProtocolError, match=code):
        DWFKMeans(2, protocol=protocol, engine=engine, **WORDS).fit()
    assert network.change is None
    last = [read_up(reply, "a node") for reply in network.up[-N:]]
    assert last == [Refusal(code)] * N
    assert [one.answered for node in nodes_of(folder) for one in Party(node).journal.fits] == [2] * N


def tables() -> ClientTables:
    """Return the nodes' rows, loaded anew: rows that were in groups are not read one by one."""
    return ClientTables([ClientTable(f"c{i}", one) for i, one in enumerate(rows())], ("x0", "x1"))


@pytest.mark.parametrize("protocol", sorted(HIDING))
@pytest.mark.few(1)
def test_nodes_answer_from_groups_as_simulated_clients_do(protocol: str, tmp_path: Path) -> None:
    folder = federation(tmp_path / "fed", approved=APPROVED)
    over = asked(folder, DWFKMeans(2, protocol=protocol, **WORDS))
    policy = ClientPolicy(group_size=GROUP_SIZE)
    assert_same(over, DWFKMeans(2, protocol=protocol, policy=policy, **WORDS).fit(tables()))
    exact = DWFKMeans(2, protocol=protocol, **WORDS).fit(tables())
    assert not np.array_equal(over.cluster_centers_, exact.cluster_centers_)
    assert len(over.transcript_.of(Asked)) > 2


def test_nodes_that_leave_rows_out_join_no_claim_under_which_their_number_is_public(tmp_path: Path) -> None:
    folder = federation(tmp_path / "fed")
    claim = dataclasses.replace(CLAIM, neighbours="replace-one")
    with pytest.raises(ProtocolError, match=r"agreement:missing.*node\.toml"):
        asked(folder, FederatedScaler("range", privacy=claim))
    for node in some(nodes_of(folder)):
        settings = (node / "node.toml").read_text()
        (node / "node.toml").write_text(f"missing = 0.0\n{settings}")
    assert asked(folder, FederatedScaler("range", privacy=claim)).n_samples_seen_ == sum(map(len, rows()))


@pytest.mark.slow
def test_users_of_a_federation_on_this_machine_need_their_ids(tmp_path: Path) -> None:
    """With ids its nodes answer for users, without them they refuse by a code that says what is missing."""
    rng = np.random.default_rng(0)
    lines = [f"h{i % 3},p{i // 9},{a:.3f},{b:.3f}" for i, (a, b) in enumerate(rng.uniform(-1, 1, (90, 2)))]
    table, claim = tmp_path / "t.csv", {"unit": "user", "rows_per_user": 2, "neighbours": "add-remove"}
    table.write_text("\n".join(["hospital,who,x,y", *lines]))
    privacy = Privacy(epsilon=4.0, delta=1e-6, domain=Box(-1.0, 1.0), **claim)
    words = ("local", table, "--group", "hospital", "--columns", "x,y", "--max-epsilon", 5, "--out")
    run("flower", *words, tmp_path / "named", "--id", "who")
    run("flower", *words, tmp_path / "unnamed")
    run("flower", *words[:-3], "--out", tmp_path / "grouped", "--id", "who")

    def fit(folder: str) -> DPKMeans:
        network = Folders(nodes_of(tmp_path / folder))
        with FlowerEngine(tmp_path / folder, network=network) as engine:
            return DPKMeans(2, privacy=privacy, engine=engine, run_dir=tmp_path / f"{folder}.run").fit()

    assert fit("named").privacy_spent_.rows_per_user == 2
    with pytest.raises(ProtocolError, match=r"agreement:ids.*id in node\.toml"):
        fit("unnamed")
    with pytest.raises(ProtocolError, match=r"policy:groups.*--max-epsilon"):
        fit("grouped")
    mine = tmp_path / "mine.csv"
    mine.write_text("\n".join(["who,x,y", *(one[3:] for one in lines if one.startswith("h0"))]))
    replayed = ("audit", tmp_path / "named.run", "--my-rows", mine, "--columns", "x,y")
    said = run(*replayed, "--id", "who").stdout
    # Without a journal the key is another one, so that other rows count: the bound holds for any.
    assert "chosen by another key" in " ".join(said.split()) and "verdict: not refuted" in said
    assert "--id" in run(*replayed, exit_code=2).stderr
    journal = tmp_path / "named" / "nodes" / "h0"
    assert "questions were answered" in run(*replayed, "--id", "who", "--journal", journal).stdout


def test_more_than_half_of_the_owners_list_take_part_unless_the_owner_says_otherwise(tmp_path: Path) -> None:
    folder = federation(tmp_path / "fed", approved=APPROVED)
    for node in nodes_of(folder):
        assert NodeSettings.read(node).policy.min_clients == N // 2 + 1
        (node / "parties").unlink()
        assert NodeSettings.read(node).policy.min_clients == 1
    fewer = federation(tmp_path / "fewer", approved={**APPROVED, "min_clients": N + 1})
    assert "policy:min_clients" in refused(fewer, DWFKMeans(2, **WORDS))
