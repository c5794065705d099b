"""Rows without a number: an error to whoever has the rows, which says what to declare; then a rule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from privfed import Box
from privfed.cli.run_folder import read_centroids, read_run
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.stored.encoding import Array
from privfed.nodes.flower.settings import NodeSettings
from tests.cli.wide import run

ROWS = [(site, 0.1 * i, 0.2 * (i % 4)) for i in range(12) for site in "uvw"]
SECRET = "0.31337"


def table(path: Path, *more: str) -> Path:
    lines = [f"{site},{a:g},{b:g},{int(a > 0.5)}" for site, a, b in ROWS]
    path.write_text("\n".join(["site,a,b,ill", *lines, *more]) + "\n")
    return path


PRIVATE = ["--epsilon", 5, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove", "--low", 0]
PRIVATE += ["--high", 2, "--clients", "u,v,w", "--algorithm", "dp"]


@pytest.mark.filterwarnings("ignore:.* rows were left out before the fit")
def test_missing_values_are_an_error_that_says_what_to_declare(tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", f"v,{SECRET},,0", "v,nan,1,0")
    words = ["fit", data, "--group", "site", "--columns", "a,b", "-k", 2, "--out", tmp_path / "run"]
    said = run(*words, exit_code=2).output
    assert "client 'v' has 1 missing or infinite values in column 'a' (and more in 1 other columns)" in said
    assert "--missing leave-out, or give --missing a public number" in said and SECRET not in said
    assert run(*words, "--missing", "drop", exit_code=2).output.count("leave-out") == 1
    run(*words, "--missing", "leave-out", "--quiet")
    assert read_run(tmp_path / "run").source.missing == "leave-out"
    run("resume", tmp_path / "run", "--quiet")


@pytest.mark.parametrize(
    "odd",
    [
        f"v,{SECRET},,0",
        "v,nan,1,0",
        "v,0.4,inf,1",
        f"v,0.4,0.5,1,{SECRET}",
        f"v;0.4;0.5;{SECRET}",
        f"{SECRET},0.4,0.5,1",
        ',0.4,0.5,"',
        'v,0.4,0.5,"1',
        '"v,0.4,0.5,1',
        "",
        "x" * 100_000,
    ],
    ids=range(11),
)
@pytest.mark.parametrize("rule", [(), ("--missing", "leave-out"), ("--missing", "0.5")], ids=str)
@pytest.mark.filterwarnings("ignore:epsilon=5000.0 promises very little")
def test_no_line_of_a_table_tells_of_itself_under_a_claim(
    odd: str, rule: tuple[str, ...], tmp_path: Path
) -> None:
    """An odd line changes no other row, and neither output nor exit code shows that it is there."""
    words = ["summary", "--group", "site", "--columns", "a,b", *PRIVATE[:-2], "--epsilon", 5000, *rule]
    texts = []
    for name, lines in (("clean", []), ("odd", [odd])):
        (tmp_path / name).mkdir()
        data = table(tmp_path / name / "t.csv", *lines, 'w,0.4,0.5,"')
        texts.append(run(words[0], data, *words[1:], "--json").stdout)
    clean, found = (json.loads(text) for text in texts)
    assert abs(found["rows"] - clean["rows"]) < 2.5 and SECRET not in texts[1]
    assert set(found) == set(clean)


@pytest.mark.filterwarnings("ignore:.* rows were left out before the fit")
@pytest.mark.parametrize(("missing", "rows"), [("leave-out", 36), ("0.5", 38)])
def test_a_declared_rule_is_as_if_the_table_had_been_changed(missing: str, rows: int, tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", "v,,0.3,0", "w,0.4,inf,1")
    changed = ["v,0.5,0.3,0", "w,0.4,0.5,1"] if missing == "0.5" else []
    other = table(tmp_path / "other.csv", *changed)
    words = ["--group", "site", "--columns", "a,b", "-k", 2, "--quiet", "--seed", 3]
    run("fit", data, *words, "--missing", missing, "--out", tmp_path / "one")
    run("fit", other, *words, "--out", tmp_path / "two")
    one, two = (read_centroids(tmp_path / name) for name in ("one", "two"))
    np.testing.assert_array_equal(one.centroids, two.centroids)
    assert f'"rows": {rows}' in (tmp_path / "one" / "result.json").read_text()


def test_a_label_that_is_no_class_ends_a_simulated_fit_unless_it_is_declared(tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", f"v,{SECRET},0.3,maybe")
    words = ["fit", data, "--group", "site", "--label", "ill", "--classes", "0,1", "--algorithm", "fedavg"]
    words += ["--rounds", 1, "--quiet", "--out", tmp_path / "run"]
    said = run(*words, exit_code=2).output
    assert (
        "client 'v' has 1 rows whose labels are none of the classes; name all classes with --classes" in said
    )
    assert "maybe" not in said and SECRET not in said
    run(*words, "--missing", "leave-out")


def party(tmp_path: Path, *words: object, exit_code: int = 0) -> str:
    rows = ["--data", tmp_path / "t.csv", "--data-set", "ward 3", "--columns", "a,b", *words]
    return run("flower", "join", tmp_path / "party", *rows, exit_code=exit_code).output


def test_a_node_that_joins_is_told_what_its_rows_are_and_what_to_declare(tmp_path: Path) -> None:
    table(tmp_path / "t.csv", f"v,{SECRET},,0", "v,1,2,7")
    said = party(tmp_path, exit_code=2)
    assert "1 of 38 rows have no number in column 'b'" in said and "--missing leave-out" in said
    assert not (tmp_path / "party" / "node.toml").exists() and SECRET not in said
    labels = ["--labels", "ill", "--classes", 2]
    assert "1 of 38 rows have no class" in party(tmp_path, *labels, exit_code=2)
    said = party(tmp_path, *labels, "--missing", "leave-out")
    assert "37 of 38 rows are used, of columns a, b" in said and "in no training" in said
    data = NodeSettings.read(tmp_path / "party").rows()
    assert data.n_rows == 37 and data.labels is not None and sorted(set(data.labels.tolist())) == [-1, 0, 1]
    assert "37 of 38 rows are used" in run("flower", "check", tmp_path / "party").output


def test_a_check_counts_rows_outside_the_domain_of_an_agreement_that_is_there(tmp_path: Path) -> None:
    table(tmp_path / "t.csv", "v,5,0,0", f"v,{SECRET},-7,0")
    party(tmp_path)
    low, high = Box(0.0, 2.0).bounds(2)
    agreed = Configuration(
        protocol="masked",
        algorithm="",
        clients=("c",),
        n_features=2,
        low=Array.from_numpy(low),
        high=Array.from_numpy(high),
    )
    (tmp_path / "party" / "approved").mkdir()
    agreement = Agreement(agreed, Registry((bytes(32),), bytes(32)))
    (tmp_path / "party" / "approved" / "one").write_bytes(agreement.to_bytes())
    said = run("flower", "check", tmp_path / "party").output
    assert "2 of 38 rows lie outside the agreed domain" in said and SECRET not in said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a,b\n", "t.csv is used: it has none"),
        ("a,b\nx,y\n", "1 of 1 rows have no number in column 'a'"),
        ("a,c\n1,2\n", "has no column 'b'"),
    ],
)
def test_a_table_that_a_node_could_use_nothing_of_is_an_error_at_the_join_alone(
    content: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(content)
    said = " ".join(party(tmp_path, "--missing", "leave-out", exit_code=2).split())
    assert why in said
