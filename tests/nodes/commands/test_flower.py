"""`privfed flower` makes the folders of a federation; what needs Flower's processes is tested with them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from privfed import ClientPolicy
from privfed.cli.main import main
from privfed.errors import ArgumentError, ColumnsError
from privfed.nodes.deploy import processes
from privfed.nodes.deploy.adding import approve, news
from privfed.nodes.deploy.folders import KITS, read_card, read_kit
from privfed.nodes.deploy.node import alone
from privfed.nodes.flower.node import check_node
from privfed.nodes.flower.settings import FederationFile, NodeSettings
from tests.some import some


def told(*words: object) -> str:
    done = CliRunner().invoke(main, ["flower", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def failed(*words: object) -> str:
    done = CliRunner().invoke(main, ["flower", *map(str, words)])
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


def joined(folder: Path, *words: object, header: str = "age,bmi") -> Path:
    """Make a party of a small table; return its card."""
    folder.parent.mkdir(exist_ok=True)
    table = folder.with_suffix(".csv")
    table.write_text(f"{header}\n30,21\n40,25\n50,24\n")
    told("join", folder, "--data", table, "--algorithms", "WeightedKMeans", *words)
    return folder.with_suffix(".pub")


@pytest.fixture
def cards(tmp_path: Path) -> list[Path]:
    return [joined(tmp_path / name) for name in ("a", "b", "c")]


def test_a_coordinator_and_a_client_make_their_folders_apart(tmp_path: Path) -> None:
    (tmp_path / "stays.csv").write_text("age,bmi,sex\n30,21,1\n40,25,0\n")
    party, words = tmp_path / "ward3", ("--name", "ward 3", "--columns", "age,bmi")
    said = told("join", party, "--data", tmp_path / "stays.csv", *words, "--algorithms", "WeightedKMeans")
    assert (
        "it answers WeightedKMeans, from means of groups of 5 rows, in at most 10 fits with 10 losses" in said
    )
    assert f"the card is {party}.pub" in said and "your move: send it to the coordinator" in said
    fed = tmp_path / "fed"
    said = told("add", fed, f"{party}.pub", "--host", "10.0.0.5", "--port", "9123")
    assert "+ ward 3: added" in said and "a sum over masks needs 3 clients" in said
    assert FederationFile.read(fed).columns == ("age", "bmi")
    assert FederationFile.read(fed).superlink == "10.0.0.5:9123"
    kit = read_kit(tmp_path / "fed.kit")
    assert kit.parties.fingerprint in said and news(party, kit) == ["  ward 3", "  coordinator: coordinator"]
    approve(party, kit)
    assert check_node(party) == "ward 3" and not news(party, kit)
    settings = NodeSettings.read(party)
    assert settings.policy == ClientPolicy.closed(algorithms=frozenset({"WeightedKMeans"}))
    assert settings.rows().features.tolist() == [[30.0, 21.0], [40.0, 25.0]] and not settings.tells


def test_to_add_the_same_again_changes_nothing_and_a_new_one_is_one_file(
    tmp_path: Path, cards: list[Path]
) -> None:
    fed, kit = tmp_path / "fed", tmp_path / "fed.kit"
    told("add", fed, *cards, "--host", "hub")
    first = kit.read_bytes()
    assert "nothing changed" in told("add", fed, *cards) and kit.read_bytes() == first
    approve(tmp_path / "a", read_kit(kit))
    said = told("add", fed, joined(tmp_path / "d"))
    assert "+ d: added" in said and "- " not in said
    assert news(tmp_path / "a", read_kit(kit)) == ["+ d is new", "  4 clients: a, b, c, d"]
    assert read_kit(kit).parties.server == KITS.from_bytes(first).parties.server
    # An older kit than the one that was approved is none.
    approve(tmp_path / "a", read_kit(kit))
    kit.write_bytes(first)
    assert "this kit is number 1, and you approved 2" in failed("node", tmp_path / "a", "--kit", kit, "--yes")


def test_a_party_is_removed_and_replaced_by_name(tmp_path: Path, cards: list[Path]) -> None:
    fed = tmp_path / "fed"
    told("add", fed, *cards, "--host", "hub")
    other = joined(tmp_path / "again" / "b")
    assert "'b' is in the list with another key" in failed("add", fed, other)
    said = told("add", fed, other, "--remove", "b")
    assert "- b: its node is refused" in said and "+ b: added" in said
    assert "was removed" in failed("add", fed, cards[1], "--remove", "b")
    assert "'x' is not in the list" in failed("add", fed, "--remove", "x")
    assert "this list has no 'b' with your key" in failed(
        "node", tmp_path / "b", "--kit", tmp_path / "fed.kit", "--yes"
    )


def test_a_certificate_is_renewed_and_an_address_is_another(tmp_path: Path, cards: list[Path]) -> None:
    fed, kit = tmp_path / "fed", tmp_path / "fed.kit"
    told("add", fed, *cards, "--host", "hub")
    approve(tmp_path / "a", read_kit(kit))
    server = (fed / "certificates" / "server.crt").read_bytes()
    assert "start it again" in told("add", fed, "--renew")
    assert (fed / "certificates" / "server.crt").read_bytes() != server
    assert not news(tmp_path / "a", read_kit(kit))
    told("add", fed, "--host", "hub2", "--port", "9100")
    assert news(tmp_path / "a", read_kit(kit))[0] == "~ the SuperLink is at hub2:9100"
    assert FederationFile.read(fed).parties == fed / "parties"


def test_a_second_node_of_a_folder_is_none(tmp_path: Path, cards: list[Path]) -> None:
    fed, kit, one = tmp_path / "fed", tmp_path / "fed.kit", tmp_path / "a"
    told("add", fed, *cards, "--host", "hub")
    with alone(one) as only:
        assert only
        # To approve a kit beside the running node is all that its owner does.
        assert "the node runs already, and goes on with this kit" in told("node", one, "--kit", kit, "--yes")
        assert "you approved this kit before" in told("node", one, "--kit", kit)
        assert "runs already; your move: none, or stop that one first" in failed("node", one)


def test_a_second_superlink_of_a_folder_is_none(tmp_path: Path, cards: list[Path]) -> None:
    pytest.importorskip("flwr")
    told("add", tmp_path / "fed", *cards, "--host", "hub")
    with alone(tmp_path / "fed"):
        assert "a SuperLink of" in failed("superlink", tmp_path / "fed")


def test_nodes_and_superlinks_know_the_flwr_that_they_need(
    tmp_path: Path, cards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    told("add", tmp_path / "fed", *cards, "--host", "hub")

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    for found, said in (
        (missing, "pip install 'privfed[flower]'"),
        (lambda name: "1.99.0", "1.41 and 1.42"),
    ):
        monkeypatch.setattr(processes, "version", found)
        assert said in failed("superlink", tmp_path / "fed")
        assert said in failed("node", tmp_path / "a", "--kit", tmp_path / "fed.kit", "--yes")


SCHEMA = """\
[columns.age]
kind = "number"
low = 0.0
high = 110.0
missing = "leave-out"
outside = "clip"
[columns.sex]
kind = "category"
categories = ["f", "m"]
missing = "leave-out"
"""


def test_a_schema_says_what_the_columns_of_a_node_are(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA)
    words = ("--schema", tmp_path / "s.toml", "--algorithms", "WeightedKMeans", "--group-size", "1")
    (tmp_path / "bad.csv").write_text("age,sex\n30,f\n40,x\n")
    assert "have a category that the schema does not name" in failed(
        "join", tmp_path / "bad", "--data", tmp_path / "bad.csv", *words
    )
    (tmp_path / "a.csv").write_text("sex,age,note\nf,30,x\nm,,y\nm,200,z\n")
    said = told("join", tmp_path / "a", "--data", tmp_path / "a.csv", *words)
    assert "2 of 3 rows are used, of columns age, sex=f, sex=m" in said
    assert "lie outside the declared range; they are clipped" in said
    assert read_card(tmp_path / "a.pub").columns == ("age", "sex=f", "sex=m")
    settings = NodeSettings.read(tmp_path / "a")
    assert settings.rows(("sex=m", "age", "sex=f")).features[:, 1].tolist() == [30.0, 110.0]
    # What a running node cannot read is a row that is left out, and no error.
    (tmp_path / "a.csv").write_text('sex,age,note\nf,30,x\nq,many,"\nm,50,z\n')
    assert settings.rows().features[:, 0].tolist() == [30.0, 50.0]
    assert settings.rows(("age",)).features.tolist() == [[30.0], [50.0]]
    with pytest.raises(ColumnsError):
        settings.rows(("age", "height"))
    told("add", tmp_path / "fed", tmp_path / "a.pub", "--host", "hub")
    approve(tmp_path / "a", read_kit(tmp_path / "fed.kit"))
    assert check_node(tmp_path / "a") == "a"
    text = (tmp_path / "a" / "node.toml").read_text()
    (tmp_path / "a" / "node.toml").write_text(text.replace("schema =", 'columns = ["age"]\nschema ='))
    with pytest.raises(ArgumentError, match="the schema says what columns would"):
        NodeSettings.read(tmp_path / "a")


def test_a_trial_on_this_machine_reads_tables_as_a_schema_does(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCHEMA)
    (tmp_path / "clients").mkdir()
    for name in "abc":
        (tmp_path / "clients" / f"{name}.csv").write_text("sex,age,note\nf,30,x\nm,,y\nm,200,z\n")
    words = ("local", tmp_path / "clients", "--schema", tmp_path / "s.toml", "--out")
    told(*words, tmp_path / "fed")
    own = NodeSettings.read(tmp_path / "fed/nodes/a").rows(("age", "sex=f", "sex=m"))
    assert own.features[:, 0].tolist() == [30.0, 110.0]
    assert "the schema says what --columns" in failed(*words, tmp_path / "other", "--columns", "age")
    assert not (tmp_path / "other").exists()


def test_who_must_act_is_said(tmp_path: Path, cards: list[Path]) -> None:
    fed, kit = tmp_path / "fed", tmp_path / "fed.kit"
    assert "the list would be empty" in failed("add", fed)
    other = joined(tmp_path / "d", header="age,weight")
    moved = """d's move: columns = ["age", "bmi"] in node.toml, then privfed flower check"""
    assert moved in failed("add", fed, *cards, other, "--host", "hub")
    assert not (tmp_path / "fed").exists()
    told("add", fed, *cards, "--host", "hub")
    assert "The coordinator's move: send fed.kit" in failed("node", tmp_path / "a")
    assert "your move: compare the digits, then add --yes" in failed("node", tmp_path / "a", "--kit", kit)
    (tmp_path / "bad.kit").write_bytes(kit.read_bytes()[:-1] + b"x")
    assert "not signed" in failed("node", tmp_path / "a", "--kit", tmp_path / "bad.kit", "--yes")
    assert "name a new folder" in failed("join", tmp_path / "a", "--name", "z", "--data", tmp_path / "a.csv")


@pytest.mark.parametrize("field", ["number", "address", "columns", "parties", "authority"])
def test_a_kit_that_somebody_changed_is_none(field: str, tmp_path: Path, cards: list[Path]) -> None:
    told("add", tmp_path / "fed", *cards, "--host", "hub")
    kit = read_kit(tmp_path / "fed.kit")
    fewer = msgspec.structs.replace(kit.parties, clients=kit.parties.clients[1:])
    values = {"number": 9, "address": "evil:9092", "columns": ("bmi", "age"), "authority": b""}
    changed = msgspec.structs.replace(kit, **{field: {**values, "parties": fewer}[field]})
    with pytest.raises(ArgumentError, match="not signed with its own key"):
        changed.check()


def test_a_card_that_somebody_changed_is_none(cards: list[Path]) -> None:
    one, other = read_card(cards[0]), read_card(cards[1])
    for values in some(({"node": other.node}, {"columns": ()})):
        changed = msgspec.structs.replace(one, **values)
        with pytest.raises(ArgumentError, match="not signed with its own key"):
            changed.check()
    shown = CliRunner().invoke(main, ["keys", "show", str(cards[0])]).output
    assert one.party.fingerprint in shown


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
        (["run", "nowhere"], "is missing or no TOML; make it with: privfed flower add"),
        (["superlink", "nowhere"], "is missing or no TOML; make it with: privfed flower add"),
        (["node", "nowhere"], "no kit was approved in nowhere"),
    ],
)
def test_a_folder_that_is_none_is_an_error(words: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["flower", *words])
    assert done.exit_code == 2 and message in " ".join(done.output.split())
