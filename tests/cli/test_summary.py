"""`privfed summary` prints what FederatedSummary finds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privfed.cli.main import main
from tests.some import some

RNG = np.random.default_rng(2)
ROWS = RNG.normal([40.0, 25.0], [10.0, 4.0], (60, 2)).round(1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    lines = [f"h{i % 3},{age},{bmi}" for i, (age, bmi) in enumerate(ROWS)]
    path.write_text("\n".join(["hospital,age,bmi", *lines]))
    return path


def said(*words: object) -> str:
    done = CliRunner().invoke(main, ["summary", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


def test_numbers_are_those_of_the_table(table: Path) -> None:
    found = json.loads(said(table, "--group", "hospital", "--bins", "0,30,50,90", "--json"))
    assert (found["rows"], found["privacy"], found["noise_std_of_counts"]) == (60, None, 0.0)
    for j, column in enumerate(found["columns"]):
        assert column["name"] == ("age", "bmi")[j]
        assert column["mean"] == pytest.approx(ROWS[:, j].mean())
        assert column["std"] == pytest.approx(ROWS[:, j].std())
        assert column["histogram"]["counts"] == np.histogram(ROWS[:, j], [0, 30, 50, 90])[0].tolist()


def test_tables_are_printed(table: Path) -> None:
    text = said(table, "--group", "hospital", "--bins", 4, "--low", 0, "--high", 100)
    assert "60 rows" in text and "25 to 50" in text and "differential privacy: none claimed" in text
    assert "below" not in text


def test_a_site_in_another_unit_is_noticed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(4):
        rows = rng.normal([60.0, 5.5], [12.0, 1.0], (50, 2)) * [1.0, 18.0 if i == 2 else 1.0]
        text = "age,glucose\n" + "".join(f"{a},{b}\n" for a, b in rows)
        (tmp_path / f"site{i}.csv").write_text(text)
    text = said(tmp_path, "--between")
    assert "between clients" in text and "clients do not look alike in glucose: most" in " ".join(
        text.split()
    )
    proposed = [one for one in text.splitlines() if one.startswith("site2: in glucose")]
    assert (
        "at hand" in text
        and len(proposed) == 1
        and "mg/dl to mmol/l" in text
        and "0.0555" in text
        and "site1:" not in text
    )
    # Groups stand for rows there: nothing is told of the rows themselves.
    assert "at hand" not in said(tmp_path, "--between", "--group-size", "5")
    columns = json.loads(said(tmp_path, "--between", "--json"))["columns"]
    assert columns[0]["between"] < 0.1 and columns[1]["between"] > 0.9
    assert "between" not in said(tmp_path)
    (tmp_path / "site3.csv").unlink()
    refused = CliRunner().invoke(main, ["summary", str(tmp_path), "--between"])
    assert refused.exit_code and "at least 4 clients, got 3" in refused.output


def test_noised_numbers_come_with_their_claim(table: Path) -> None:
    words = ["--epsilon", 5, "--delta", 1e-5, "--unit", "record", "--neighbours", "replace-one"]
    words += ["--low", 0, "--high", 100, "--clients", "h0,h1,h2", "--missing", 0]
    text = said(table, "--group", "hospital", "--bins", 4, *words)
    assert "epsilon 5" in text and "noise in a count" in text and "60 rows" in text
    assert text.count("\u00b1") == 1 + 2 * 2
    found = json.loads(said(table, "--group", "hospital", "--json", *words))
    assert all(one["mean_noise"] > 0.0 and one["std_noise"] > 0.0 for one in some(found["columns"]))
    exact = json.loads(said(table, "--group", "hospital", "--json"))
    assert {one["mean_noise"] for one in exact["columns"]} == {exact["rows_noise"]} == {None}
    assert 0.0 < found["rows_noise"] < 0.01
    # Where the number of rows is protected, it has noise.
    words[words.index("replace-one")] = "add-remove"
    assert re.search("\\d+ \u00b1 [\\d.]+ rows", said(table, "--group", "hospital", *words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--bins", "2.5"], "neither a whole number of bins nor edges"),
        (["--bins", "a"], "is no number"),
        (["--bins", "900"], "--bins must be a whole number in [1, 64], got --bins 900"),
        ([], "holds one client"),
    ],
)
def test_what_cannot_be_summarized_is_one_line(table: Path, words: list[str], message: str) -> None:
    group = ["--group", "hospital"] if words else ["--columns", "age,bmi"]
    done = CliRunner().invoke(main, ["summary", str(table), *group, *words])
    assert done.exit_code == 2 and message in " ".join(done.output.split())


@pytest.mark.parametrize("command", ["summary", "select-k"])
def test_all_that_a_claim_lacks_is_named_at_once(command: str, table: Path) -> None:
    done = CliRunner().invoke(main, [command, str(table), "--group", "hospital", "--epsilon", "1"])
    assert done.exit_code == 2
    assert "missing: --delta, --unit, --neighbours, --low, --high, --clients." in done.output


SCHEMA = """
[columns.age]
kind = "number"
unit = "years"
low = 0
high = 100
shift = 40.0
spread = 10.0
[columns.ward]
kind = "category"
categories = ["heart", "lung"]
[columns.seen]
kind = "date"
low = 2020-01-01
high = 2030-01-01
"""


def test_numbers_are_in_the_units_of_a_schema(tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    ages = np.arange(36).reshape(3, 12) + 30
    for name, own in zip("abc", ages, strict=True):
        rows = [f"{age},{'heart' if age % 4 else 'lung'},2024-02-{age - 29:02d}" for age in own if age < 59]
        (tmp_path / "sites" / f"{name}.csv").write_text("\n".join(["age,ward,seen", *rows]) + "\n")
    (tmp_path / "s.toml").write_text(SCHEMA)
    words = [tmp_path / "sites", "--schema", tmp_path / "s.toml", "--bins", "0,40,100"]
    found = {one["name"]: one for one in json.loads(said(*words, "--json"))["columns"]}
    held = np.arange(30, 59)
    age, lung, seen = (found[name] for name in ("age", "ward=lung", "seen"))
    assert (age["unit"], age["low"], age["high"]) == ("years", 0.0, 100.0)
    assert age["mean"] == pytest.approx(held.mean()) and age["std"] == pytest.approx(held.std())
    assert age["histogram"]["counts"] == [10.0, 19.0]
    assert age["histogram"]["edges"] == pytest.approx([0.0, 40.0, 100.0])
    assert lung["mean"] == pytest.approx(np.mean(held % 4 == 0)) and lung["high"] == pytest.approx(1.0)
    assert seen["origin"] == "2000-01-01"
    text = said(*words)
    assert "age [years]" in text and "0 to 40" in text
    assert "2024-02-15" in text and "2020-01-01" in text and "2030-01-01" in text
