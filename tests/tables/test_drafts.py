"""Drafts of schemas, and what the command line does with columns where there is none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from privfed.errors import ArgumentError
from privfed.tables.described_tables import read_described
from privfed.tables.schema import Column, parse, to_toml


def test_drafts_of_two_tables_merge_into_one_that_reads_both(invoke, failing, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, decimal, separator in (("a", ".", ","), ("b", ",", ";")):
        rows = [f"{name}-{i:04d}{separator}{rng.normal():.3f}{separator}w{i % 200}" for i in range(500)]
        text = "\n".join(rows[:490]).replace(".", decimal) + f"\nx{separator}NA{separator}w1\n"
        (tmp_path / f"{name}.csv").write_text(f"who{separator}x{separator}ward\n{text}")
    assert "--decimal" in failing("schema", "draft", tmp_path / "b.csv")
    invoke("schema", "draft", tmp_path / "a.csv", "--out", tmp_path / "a.toml")
    invoke("schema", "draft", tmp_path / "b.csv", "--decimal", ",", "--out", tmp_path / "b.toml")
    invoke("schema", "merge", tmp_path / "a.toml", tmp_path / "b.toml", "--out", tmp_path / "both.toml")
    schema = parse((tmp_path / "both.toml").read_text())
    assert {name: own.kind for name, own in schema.columns.items()} == {
        "who": "id",
        "x": "number",
        "ward": "category",
    }
    assert len(schema.features) == 201
    found = read_described(tmp_path / "b.csv", schema)
    assert [(one.what, one.count) for one in found.findings] == [("have no value", 1)]
    (tmp_path / "other.toml").write_text('[columns.x]\nkind = "number"\nunit = "kg"')
    (tmp_path / "third.toml").write_text('[columns.x]\nkind = "number"\nunit = "s"')
    words = ("schema", "merge", tmp_path / "other.toml", tmp_path / "third.toml")
    found = invoke(*words, exit_code=1)
    assert "unit is 'kg', and 's' at third" in found.stderr
    with pytest.raises(ArgumentError, match="conflicts"):
        parse(found.stdout)


@pytest.mark.parametrize(("sign", "other"), [(".", ","), (",", ".")])
def test_a_sign_that_may_stand_between_thousands_is_a_question(
    sign: str, other: str, invoke: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    words = ("schema", "draft", path, "--decimal", sign)
    path.write_text(f"a;b\n1{sign}100;1{sign}1\n12{sign}000;2{sign}125\n7;3\n")
    told = invoke(*words).stderr
    assert f"column 'a' has '{sign}' before three digits in all 2 rows" in told and "column 'b'" not in told
    assert f"--decimal '{other}' --thousands '{sign}'" in told
    assert "three digits" not in invoke(*words[:-1], other, "--thousands", sign).stderr


def test_drafts_of_three_sites_with_their_own_dates_and_codes_merge(invoke, failing, tmp_path: Path) -> None:
    ways = {"a": "{2}-{1:02d}-{0}", "b": "{0}-{1:02d}-{2}", "c": "{2}/{1:02d}/{0}"}
    drafts = [tmp_path / f"{name}.toml" for name in ways]
    for name, way in ways.items():
        days = [way.format(2026, 1 + i % 12, 10 + i % 19) for i in range(60)]
        stays = ["9999.0" if name == "b" and i % 20 == 0 else 1 + i % 7 for i in range(60)]
        rows = [f"{day},{stay}" for day, stay in zip(days, stays, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["seen,days", *rows]))
        told = invoke("schema", "draft", tmp_path / f"{name}.csv", "--out", tmp_path / f"{name}.toml").stderr
        assert ("column 'days' is 9999.0 in 3 rows" in told) == (name == "b")
    assert "merged with nothing" in failing("schema", "merge", drafts[0])
    invoke("schema", "merge", *drafts, "--out", tmp_path / "all.toml")
    schema = parse((tmp_path / "all.toml").read_text())
    assert {name: one.dates for name, one in schema.files.items()} == {
        "a": {"seen": "%d-%m-%Y"},
        "b": {},
        "c": {"seen": "%d/%m/%Y"},
    }
    first, *others = (read_described(tmp_path / f"{name}.csv", schema) for name in ways)
    for one in others:
        assert not one.findings
        np.testing.assert_array_equal(one.features[:, 0], first.features[:, 0])
    assert parse(to_toml(schema)) == schema
    with pytest.raises(ArgumentError, match="'days' are written, which is no column of dates"):
        parse((tmp_path / "all.toml").read_text() + '[files.d]\ndates = {days = "%d"}\n')


def test_columns_are_dropped_and_values_clipped(invoke, failing, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"s{i % 4},{9 * (i % 2) + rng.normal()},{rng.normal()},x{i}" for i in range(80)]
    table, words = tmp_path / "t.csv", ("--group", "g", "-k", 2, "--low", -1, "--high", 8, "--quiet")
    table.write_text("\n".join(["g,a,b,note", *rows]))
    assert "no column 'nota' to drop" in failing("fit", table, "--drop", "nota", *words)
    assert "leave out --drop" in failing("fit", table, "--drop", "note", "--columns", "a", *words)
    outside = failing("fit", table, "--drop", "note", *words, "--out", tmp_path / "no")
    assert "outside the domain" in outside
    assert "give both" in failing("fit", table, "--drop", "note", "--group", "g", "--clip")
    invoke("fit", table, "--drop", "note", *words, "--clip", "--out", tmp_path / "run")
    found = pl.read_csv(tmp_path / "run/centroids.csv")
    assert found.columns == ["a", "b"]
    pooled = np.clip(pl.read_csv(table).select("a", "b").to_numpy(), -1, 8)
    near = pooled[:, 0] > 4
    wanted = np.stack([pooled[~near].mean(axis=0), pooled[near].mean(axis=0)])
    np.testing.assert_allclose(found.sort("a").to_numpy(), wanted, atol=1e-6)
    told = json.loads(
        invoke("summary", table, "--drop", "note", *words[:2], *words[4:8], "--clip", "--json").stdout
    )
    np.testing.assert_allclose([one["mean"] for one in told["columns"]], pooled.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ("2024-01-{day} 12:30:{day}", "%Y-%m-%d %H:%M:%S%.f"),
        ("2024-01-{day}T12:30:00.{day}", "%Y-%m-%dT%H:%M:%S%.f"),
        ("{day}.01.2024 08:15", "%d.%m.%Y %H:%M"),
    ],
)
def test_a_date_with_a_time_is_drafted_as_a_date(invoke, tmp_path: Path, written: str, kind: str) -> None:
    lines = [written.format(day=f"{day:02d}") for day in (30, 14, 14)]
    (tmp_path / "t.csv").write_text("\n".join(["seen", *lines]))
    schema = parse(invoke("schema", "draft", tmp_path / "t.csv").stdout)
    usual = Column(kind="date").format
    found = schema.files["t"].dates.get("seen", usual)
    assert schema.columns["seen"].kind == "date" and found == kind
    days = read_described(tmp_path / "t.csv", schema).checked().features[:, 0]
    np.testing.assert_array_equal(days - days[1], [16.0, 0.0, 0.0])


def test_a_file_without_rows_cannot_be_used_by_a_check_as_by_a_fit(invoke, failing, tmp_path: Path) -> None:
    (tmp_path / "sites").mkdir()
    for name, rows in (("a", "1\n2\n"), ("b", ""), ("c", "3\n4\n")):
        (tmp_path / "sites" / f"{name}.csv").write_text(f"age\n{rows}")
    (tmp_path / "s.toml").write_text('[columns.age]\nkind = "number"')
    words = (tmp_path / "sites", "--schema", tmp_path / "s.toml")
    found = json.loads(invoke("check", *words, "--json", exit_code=1).stdout)
    assert [(Path(one["file"]).name, one["count"]) for one in found if one["mistake"]] == [("b.csv", 0)]
    assert "client 'b' has no rows" in failing("fit", *words, "-k", 2, "--out", tmp_path / "run")


def test_a_merge_maps_names_and_says_what_not_all_have(invoke, tmp_path: Path) -> None:
    for name, columns in (
        ("a", ("age", "ward", "crp")),
        ("b", ("Age ", "ward", "crp")),
        ("c", ("alder", "crp")),
    ):
        text = "".join(f'[columns."{one}"]\nkind = "number"\n' for one in columns)
        (tmp_path / f"{name}.toml").write_text(text)
    words = ("schema", "merge", *(tmp_path / f"{name}.toml" for name in "abc"))
    found = invoke(*words, exit_code=1)
    assert "b: column 'Age ' is taken for 'age'" in found.stderr and "'ward': it is not in c" in found.stderr
    with pytest.raises(ArgumentError, match="not in c"):
        parse(found.stdout)
    whole = parse(invoke(*words, "--common").stdout)
    assert {*whole.columns} == {"age", "crp"} and whole.columns["age"].guessed == ("names",)
    assert {name: one.names for name, one in whole.files.items()} == {
        "b": {"Age ": "age"},
        "c": {"alder": "age"},
    }


def test_what_a_draft_read_from_rows_enters_no_claim_until_its_owner_declares_it(
    invoke: Any, failing: Any, tmp_path: Path
) -> None:
    """A category that one row has would be a public column of a private release."""
    rng = np.random.default_rng(0)
    lines = [f"{'pqrs'[i % 4]},{rng.uniform(0, 100):.1f},{('flu', 'cold')[i % 2]}" for i in range(400)]
    (tmp_path / "t.csv").write_text("\n".join(["site,age,dx", *lines, "p,44.0,rabies"]) + "\n")
    invoke("schema", "draft", tmp_path / "t.csv", "--out", tmp_path / "draft.toml")
    drafted = parse((tmp_path / "draft.toml").read_text())
    assert {name for name, own in drafted.columns.items() if own.provenance == "exact"} == {"site", "dx"}
    columns = {name: own for name, own in drafted.columns.items() if name != "site"}
    columns["age"] = replace(columns["age"], low=0.0, high=100.0, missing="leave-out", outside="clip")
    columns["dx"] = replace(columns["dx"], missing="leave-out")
    (tmp_path / "s.toml").write_text(to_toml(replace(drafted, columns=columns)))
    claim = ["--epsilon", 1, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove"]
    words = [*claim, "--group", "site", "--clients", "p,q,r,s", "--max-rows", 500, "--algorithm", "dp"]
    fit = ["fit", tmp_path / "t.csv", "-k", 2, *words, "--no-picture", "--schema"]
    said = failing(*fit, tmp_path / "s.toml", "--out", tmp_path / "run")
    assert "schema declare" in said and "'dx'" in said and not (tmp_path / "run").exists()
    assert "no column" in failing("schema", "declare", tmp_path / "s.toml", "--columns", "other")
    invoke("schema", "declare", tmp_path / "s.toml", "--columns", "dx", "--out", tmp_path / "declared.toml")
    invoke(*fit, tmp_path / "declared.toml", "--out", tmp_path / "run", "--quiet")
    merged = ["schema", "merge", tmp_path / "s.toml", tmp_path / "declared.toml"]
    assert parse(invoke(*merged).stdout).columns["dx"].provenance == "exact"
