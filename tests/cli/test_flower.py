"""`privfed flower` makes the folders of a federation; what needs Flower's processes is tested with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from privfed import ClientPolicy
from privfed.cli.main import main
from privfed.engines.flower.node import check_node
from privfed.engines.flower.settings import FederationFile, NodeSettings


def told(*words: object) -> str:
    done = CliRunner().invoke(main, ["flower", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_coordinator_and_a_client_make_their_folders_apart(tmp_path: Path) -> None:
    fed, party = tmp_path / "fed", tmp_path / "party"
    said = told("new", fed, "--columns", "age,bmi", "--host", "10.0.0.5", "--port", "9123")
    assert "certificates/ca.crt" in said and "privfed keys registry KEY..." in said
    (tmp_path / "ward3.csv").write_text("age,bmi,sex\n30,21,1\n40,25,0\n")
    assert CliRunner().invoke(main, ["keys", "new", "ward 3", "--out", str(party)]).exit_code == 0
    words = ("--data-set", "ward 3", "--columns", "age,bmi")
    said = told("join", party, "--data", tmp_path / "ward3.csv", *words, "--algorithms", "WeightedKMeans")
    assert "it answers WeightedKMeans, from means of groups of 5 rows, in at most 10 fits, over ckks" in said
    signed_keys = [str(party / "public"), "--server", str(fed / "coordinator" / "public")]
    done = CliRunner().invoke(main, ["keys", "registry", *signed_keys, "--out", str(fed / "parties")])
    assert done.exit_code == 0
    (party / "parties").write_bytes((fed / "parties").read_bytes())
    file = FederationFile.read(fed)
    assert (file.columns, file.superlink) == (("age", "bmi"), "127.0.0.1:9123")
    assert check_node(party) == "ward 3"
    settings = NodeSettings.read(party)
    assert settings.policy == ClientPolicy.closed(algorithms=frozenset({"WeightedKMeans"}))
    assert settings.rows().features.tolist() == [[30.0, 21.0], [40.0, 25.0]] and not settings.tells


def test_a_table_becomes_a_federation_on_this_machine(tmp_path: Path) -> None:
    lines = [f"h{i % 3},{i},{i * i}" for i in range(12)]
    (tmp_path / "patients.csv").write_text("\n".join(["hospital,x,y", *lines]))
    said = told("local", tmp_path / "patients.csv", "--group", "hospital", "--out", tmp_path / "fed")
    assert "with 3 nodes" in said
    nodes = sorted((tmp_path / "fed" / "nodes").iterdir())
    assert [check_node(one) for one in nodes] == ["h0", "h1", "h2"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "nowhere"], "is missing or no TOML; make it with: privfed flower new"),
        (
            ["node", "nowhere", "--superlink", "a:1"],
            "make it with: privfed flower join",
        ),
    ],
)
def test_a_folder_that_is_none_is_an_error(words: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["flower", *words])
    assert done.exit_code == 2 and message in " ".join(done.output.split())
