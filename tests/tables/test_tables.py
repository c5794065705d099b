"""A schema makes numbers of messy tables; each mistake is one line with file, column, count and remedy."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from privfed.cli.main import main
from privfed.data.table import same_but_for_spelling
from privfed.errors import ArgumentError, DataError, PrivacyError
from privfed.tables.described_clients import in_units
from privfed.tables.described_tables import read_described
from privfed.tables.merging import merge
from privfed.tables.schema import Column, File, Schema, parse, to_toml
from tests.some import some

SCHEMA = """
[columns.cpr]
kind = "id"
[columns.age]
kind = "number"
unit = "years"
low = 0
high = 120
codes = ["9999", "<5"]
missing = "leave-out"
outside = "clip"
[columns.glucose]
kind = "number"
unit = "mmol/l"
units = {"mg/dl" = 0.0555}
low = 0
high = 40
missing = 5.5
outside = "clip"
[columns.ward]
kind = "category"
categories = ["øre", "hjerte"]
missing = "øre"
[columns.seen]
kind = "date"
format = "%d-%m-%Y"
low = 2020-01-01
high = 2030-01-01
missing = 2024-01-01
outside = "clip"
[files.aarhus]
encoding = "latin-1"
decimal = ","
names = {alder = "age"}
[files.odense.units]
glucose = "mg/dl"
"""
AARHUS = "cpr;alder;glucose;ward;seen\n1;50;5,5;øre;02-01-2020\n2;9999;6,5;hjerte;\n3;130;;Øre;03-01-2020\n"
ODENSE = "glucose,extra,seen,ward,age,cpr\n100,x,01-01-2020,hjerte,40,7\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    clients = tmp_path / "clients"
    clients.mkdir()
    (clients / "aarhus.csv").write_bytes(AARHUS.encode("latin-1"))
    (clients / "odense.csv").write_text(ODENSE, encoding="utf-16")
    (tmp_path / "s.toml").write_text(SCHEMA, encoding="utf-8")
    return tmp_path


def test_each_file_is_read_as_the_schema_says_it_is_written(folder: Path) -> None:
    schema = parse(SCHEMA)
    assert schema.features == ("age", "glucose", "ward=øre", "ward=hjerte", "seen")
    first = read_described(folder / "clients/aarhus.csv", schema)
    weight, origin = np.sqrt(0.5), 7305.0  # 2020-01-01 is 20 years and 5 leap days after 2000-01-01.
    np.testing.assert_allclose(first.features[0], [50, 5.5, weight, 0, origin + 1])
    np.testing.assert_array_equal(first.kept, [True, False, True])
    assert first.features[2, 0] == 120.0
    second = read_described(folder / "clients/odense.csv", schema)
    np.testing.assert_allclose(second.features, [[40, 5.55, 0, weight, origin]])


def test_check_tells_what_is_clipped_left_out_and_filled_with_counts(invoke, folder: Path) -> None:
    out = invoke("check", folder / "clients", "--schema", folder / "s.toml", "--json", exit_code=1).stdout
    found = {(one["column"], one["what"]): (one["count"], one["mistake"]) for one in json.loads(out)}
    assert found == {
        ("age", "have no value"): (1, False),
        ("age", "lie outside the declared range"): (1, False),
        ("glucose", "have no value"): (1, False),
        ("seen", "have no value"): (1, False),
        ("ward", "have a category that the schema does not name"): (1, True),
    } | {
        (name, f"are clipped, left out or filled ({share}%, more than 5 %)"): (count, True)
        for name, share, count in (("age", 67, 2), ("glucose", 33, 1), ("seen", 33, 1))
    } | {
        ("", "are left out for one column or more"): (1, False),
        ("seen", "have days from 2020-01-01 to 2020-01-01"): (1, False),
        ("seen", "have days from 2020-01-02 to 2020-01-03"): (3, False),
    }
    assert [one["values"] for one in json.loads(out) if one["column"] == "ward"] == [["Øre"]]
    out = invoke(
        "check",
        folder / "clients",
        "--schema",
        folder / "s.toml",
        "--allow",
        "age,seen",
        "--json",
        exit_code=1,
    )
    wrong = {one["column"] for one in json.loads(out.stdout) if one["mistake"]}
    assert wrong == {"glucose", "ward"}


def test_under_privacy_no_row_causes_an_error(folder: Path) -> None:
    schema = parse(SCHEMA)
    schema.check_private()
    for text in (AARHUS + "x;y;z;w;v\n", AARHUS + "\xff;" * 9 + "\n"):
        (folder / "clients/aarhus.csv").write_bytes(text.encode("latin-1"))
        read = read_described(folder / "clients/aarhus.csv", schema, private=True).checked()
        assert np.isfinite(read.features).all()
        low, high = schema.domain() or ((), ())
        assert (read.features >= low).all() and (read.features <= high).all()
    with pytest.raises(PrivacyError, match=r"needs a range: .* give low and high to 'age'"):
        parse('[columns.age]\nkind = "number"').check_private()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            "1,100",
            r"t.csv: column 'x': 2 rows have a comma.*decimal = \",\" or thousands = \",\" in \[files.t\]",
        ),
        ("abc", r"t.csv: column 'x': 2 rows hold no number.*codes"),
        ("", r"t.csv: column 'x': 2 rows have no value; give missing"),
        ("11", r"t.csv: column 'x': 2 rows lie outside the declared range; correct the unit"),
    ],
)
def test_a_mistake_is_one_line_with_file_column_count_and_remedy(
    tmp_path: Path, value: str, text: str
) -> None:
    schema = parse('[columns.x]\nkind = "number"\nlow = 0\nhigh = 10')
    (tmp_path / "t.csv").write_text(f"y;x\n1;2\n1;{value}\n1;{value}\n")
    with pytest.raises(DataError, match=text):
        read_described(tmp_path / "t.csv", schema).checked()


def test_thousands_are_read_once_they_are_declared(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x;y\n1,100;1\n2,200,300.5;1\n")
    schema = parse('[columns.x]\nkind = "number"\n[files.t]\nthousands = ","')
    read = read_described(tmp_path / "t.csv", schema).checked()
    np.testing.assert_array_equal(read.features[:, 0], [1100.0, 2200300.5])


def test_a_missing_column_is_named_with_its_near_name(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("Age,y\n1,2\n")
    with pytest.raises(DataError, match=r"no column 'age', whose near name is 'Age'"):
        read_described(tmp_path / "t.csv", parse('[columns.age]\nkind = "number"'))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('[columns.x]\nkind = "number"\nlow = 1', "one end"),
        ('[columns.x]\nkind = "number"\nlow = 2\nhigh = 1', "empty or infinite"),
        ('[columns.x]\nkind = "number"\n[columns.y]\nkind = "number"\ncolour = 1', "column 'y' has 'colour'"),
        ('[columns.x]\nkind = "number"\n[files.a]\ndecimal = 3', "file 'a' has decimal = 3; give one of"),
        ('[columns.x]\nkind = "numbr"', "kind = 'numbr'; give one of 'number', 'cat"),
        ('[columns.x]\nkind = "number"\nlow = "1"', "column 'x' has low = '1'; give a number"),
        ("[columns.x]\nlow = 1", "column 'x' has no 'kind'; give one of"),
        ('[colums.x]\nkind = "number"', "has 'colums', .* did you mean 'columns'"),
        ("columns = 3", "columns = 3; give a table for each"),
        ('[columns.x]\nkind = "category"', "needs categories"),
        ('[columns.x]\nkind = "number"\nlow = 0\nhigh = 1\nmissing = 2', "value for missing"),
        ('scale = "range"\n[columns.x]\nkind = "number"', "scale"),
        ('[columns.x]\nkind = "id"', "no feature"),
        ('[columns.x]\nkind = "number"\n[files.a.units]\nx = "mg"', "units"),
    ],
)
def test_a_wrong_schema_is_an_error_that_names_the_place(text: str, wrong: str) -> None:
    with pytest.raises(ArgumentError, match=wrong):
        parse(text)


@pytest.mark.parametrize("part", [Column, File, Schema])
def test_every_wrong_value_of_a_schema_is_named_with_what_may_stand_there(part: type) -> None:
    for one in some(msgspec.structs.fields(part)):
        if one.name == "missing":  # Any value; whether it fits the kind is checked with the column.
            continue
        said: dict[str, Any] = {"columns": {"x": {"kind": "number"}}}
        own = {
            Column: said["columns"]["x"],
            File: said.setdefault("files", {}).setdefault("x", {}),
            Schema: said,
        }
        own[part][one.name] = [[]]
        text = "\n".join(toml(said))
        with pytest.raises(ArgumentError, match=rf"{one.name} = \[\[\]\]; give ") as caught:
            parse(text)
        assert "Expected" not in str(caught.value) and "$" not in str(caught.value)


def toml(said: dict[str, Any], at: tuple[str, ...] = ()) -> Iterator[str]:
    """Write nested tables as TOML, whose plain values come first."""
    if at:
        yield f"[{'.'.join(at)}]"
    yield from (f"{key} = {json.dumps(value)}" for key, value in said.items() if not isinstance(value, dict))
    for key, value in said.items():
        if isinstance(value, dict):
            yield from toml(value, (*at, key))


def test_the_schema_on_the_page_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs/tables.md").read_text()
    block = page[page.index("    scale = ") :].partition("\n|")[0]
    schema = parse("\n".join(line[4:] for line in block.splitlines()))
    assert schema.domain() == ((0.0,) * 6, (1.0, 1.0, *[np.sqrt(0.5)] * 3, 1.0))


def test_a_schema_is_read_back_as_it_was_written() -> None:
    assert parse(to_toml(parse(SCHEMA))) == parse(SCHEMA)


def test_two_columns_that_get_one_name_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("alder,age\n1,2\n")
    schema = parse('[columns.age]\nkind = "number"\n[files.t]\nnames = {alder = "age"}')
    with pytest.raises(DataError, match=r"t.csv: two columns are called 'age' once names of \[files.t\]"):
        read_described(tmp_path / "t.csv", schema)
    schema = parse('[columns.age]\nkind = "number"\n[files.t]\nnames = {alder = "age", age = "alder"}')
    np.testing.assert_array_equal(read_described(tmp_path / "t.csv", schema).features, [[1.0]])


PAIN = """
scale = "range"
[columns.pain]
kind = "ordinal"
categories = ["none", "some", "severe"]
missing = "some"
"""


def test_an_ordinal_is_its_position_in_the_order(tmp_path: Path) -> None:
    schema = parse(PAIN)
    (tmp_path / "t.csv").write_text("pain,x\nsevere,1\nnone,1\n,1\nsome,1\n")
    rows = read_described(tmp_path / "t.csv", schema).checked().features
    np.testing.assert_array_equal(rows[:, 0], [1.0, 0.0, 0.5, 0.5])
    assert (schema.features, schema.domain(), schema.blocks) == (("pain",), ((0.0,), (1.0,)), ())
    found = in_units(schema, np.array([[0.75]]))
    assert {name: one.tolist() for name, one in found.items()} == {"pain [0 none to 2 severe]": [1.5]}
    schema.check_private()
    private = read_described(tmp_path / "t.csv", schema, private=True).checked().features
    np.testing.assert_array_equal(private, rows)
    assert merge([("a", schema), ("b", schema)])[0].columns == schema.columns
    assert parse(to_toml(schema)) == schema
    other = parse(PAIN.replace('"none", "some"', '"some", "none"'))
    (left,) = merge([("a", schema), ("b", other)])[0].columns["pain"].conflicts
    assert "categories" in left


@pytest.mark.filterwarnings("ignore:.* rows were left out before the fit")
def test_a_selection_reads_and_says_tables_as_its_schema_does(invoke, tmp_path: Path) -> None:
    clients, chosen = hospitals(tmp_path), tmp_path / "chosen"
    words = ("--schema", tmp_path / "schema.toml", "--max-k", 3, "--scale", "standard")
    invoke("select-k", clients, *words, "--out", chosen, "--quiet")
    centers = np.genfromtxt(chosen / "centroids-in-units.csv", delimiter=",", names=True, deletechars="")
    np.testing.assert_allclose(np.sort(centers["age_[years]"]), [30, 70], atol=2)
    rows = invoke("predict", chosen, clients / "c.csv").stdout.splitlines()
    assert rows[0] == "who,cluster" and len(rows) == 61


@pytest.mark.filterwarnings("ignore:.* rows were left out before the fit")
def test_standard_input_is_read_as_a_file_is(invoke, tmp_path: Path) -> None:
    clients, run = hospitals(tmp_path, gaps=0.2), tmp_path / "run"
    words = ("fit", clients, "--schema", tmp_path / "schema.toml", "-k", 2, "--protocol", "plain")
    invoke(*words, "--out", run, "--quiet")

    def piped(*words: object) -> str:
        found = CliRunner().invoke(main, [*map(str, words)], input=(clients / "a.csv").read_bytes())
        assert found.exit_code == 0, found.output
        return found.stdout

    assert piped("predict", run, "-") == invoke("predict", run, clients / "a.csv").stdout
    drafted = piped("schema", "draft", "-").replace('[files."-"]', '[files."a"]')
    assert drafted == invoke("schema", "draft", clients / "a.csv").stdout
    found = json.loads(piped("check", "-", "--schema", tmp_path / "schema.toml", "--allow", "age", "--json"))
    assert {(one["file"], one["column"], one["what"]) for one in found} >= {("-", "age", "have no value")}


def test_an_id_among_the_numbers_and_a_constant_column_are_noticed(invoke, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,z\n" + "".join(f"{i},{i % 7},3\n" for i in range(50)))
    (tmp_path / "s.toml").write_text("".join(f'[columns.{one}]\nkind = "number"\n' for one in "xyz"))
    out = json.loads(invoke("check", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--json").stdout)
    assert [(one["column"], one["what"], one["mistake"]) for one in out] == [
        ("x", "hold whole numbers that all differ", False),
        ("z", "hold one value", False),
    ]


def test_names_that_differ_in_spelling_only_are_noticed() -> None:
    assert same_but_for_spelling(["Aarhus", "Odense", "aarhus "]) == [("Aarhus", "aarhus ")]


def hospitals(folder: Path, gaps: float = 0.05) -> Path:
    """Write three clients with habits of their own around two clusters, and their schema."""
    rng, clients = np.random.default_rng(1), folder / "sites"
    clients.mkdir()
    for name in ("a", "b", "c"):
        lines = ["cost,who,ward,age"] if name != "c" else ["age;ward;who;cost"]
        for i in range(60):
            old = i % 2
            age, cost = rng.normal(30 + 40 * old, 3), rng.normal(1000 + 5000 * old, 100)
            written = "NA" if rng.random() < gaps else f"{age:.2f}"
            fields = [f"{cost:.2f}", f"{name}{i}", f"w{old}", written]
            line = ",".join(fields) if name != "c" else ";".join(fields[::-1]).replace(".", ",")
            lines.append(line)
        (clients / f"{name}.csv").write_text("\n".join(lines), encoding="utf-16" if name == "b" else "utf-8")
    (folder / "schema.toml").write_text("""
scale = "range"
[columns.who]
kind = "id"
[columns.age]
kind = "number"
unit = "years"
low = 0
high = 100
codes = ["NA"]
missing = "leave-out"
outside = "clip"
[columns.ward]
kind = "category"
categories = ["w0", "w1"]
missing = "leave-out"
[columns.cost]
kind = "number"
low = 0
high = 10000
missing = "leave-out"
outside = "clip"
[files.c]
decimal = ","
""")
    return clients


@pytest.mark.filterwarnings("ignore:.* rows were left out before the fit")
def test_from_export_to_centroids_in_units_and_back_to_ids(invoke, failing, tmp_path: Path) -> None:
    clients, run = hospitals(tmp_path), tmp_path / "run"
    words = ("fit", clients, "--schema", tmp_path / "schema.toml", "-k", 2, "--protocol", "plain")
    invoke(*words, "--out", run, "--quiet")
    centers = np.genfromtxt(run / "centroids-in-units.csv", delimiter=",", names=True, deletechars="")
    assert centers.dtype.names == ("age_[years]", "ward=w0", "ward=w1", "cost")
    np.testing.assert_allclose(np.sort(centers["age_[years]"]), [30, 70], atol=2)
    np.testing.assert_allclose(np.sort(centers["cost"]), [1000, 6000], atol=60)
    np.testing.assert_allclose(np.sort(centers["ward=w1"]), [0, 1], atol=1e-9)
    rows = invoke("predict", run, clients / "c.csv").stdout.splitlines()
    assert rows[0] == "who,cluster" and len(rows) == 61
    found = {tuple(row.split(",")) for row in rows[1:]}
    left_out = (clients / "c.csv").read_text().count("NA")
    assert sum(cluster == "-1" for _, cluster in found) == left_out > 0
    of_old = {cluster for who, cluster in found if int(who[1:]) % 2 and cluster != "-1"}
    assert len(of_old) == 1
    invoke("predict", run, clients, "--out-folder", tmp_path / "labels")
    assert sorted(path.name for path in (tmp_path / "labels").iterdir()) == ["a.csv", "b.csv", "c.csv"]
    assert (tmp_path / "labels" / "c.csv").read_text().splitlines() == rows
    assert "is not an empty folder" in failing("predict", run, clients, "--out-folder", tmp_path / "labels")
    assert "name a new folder" in failing("predict", run, clients)
    assert "take --out" in failing("predict", run, clients / "c.csv", "--out-folder", tmp_path / "more")
    kept = invoke("predict", run, clients / "c.csv", "--keep", "all").stdout.splitlines()
    assert sorted(kept[0].split(",")) == ["age", "cluster", "cost", "ward", "who"]
    assert [row.rsplit(",", 1)[1] for row in kept[1:]] == [row.split(",")[1] for row in rows[1:]]
    (tmp_path / "schema.toml").unlink()
    invoke("resume", run, "--quiet")
    assert "--low" in failing(*words[:2], "--schema", _only(tmp_path), "--low", "0", "--high", "1")


def _only(folder: Path) -> Path:
    (folder / "only.toml").write_text('[columns.age]\nkind = "number"\nlow = 0\nhigh = 1')
    return folder / "only.toml"


def test_a_private_fit_takes_its_domain_from_the_schema(invoke, failing, tmp_path: Path) -> None:
    clients = hospitals(tmp_path)
    claim = ("--algorithm", "dp", "--epsilon", 10, "--delta", 1e-5, "--unit", "record")
    claim = (*claim, "--neighbours", "add-remove", "-k", 2, "--out", tmp_path / "run", "--quiet")
    assert "'age'" in failing("fit", clients, "--schema", _only(tmp_path), *claim)
    invoke("fit", clients, "--schema", tmp_path / "schema.toml", *claim)
    declared = json.loads((tmp_path / "run/run.json").read_text())["parameters"]["declared"]
    assert declared["low"] == [0.0] * 4
    assert declared["high"] == pytest.approx([1.0, np.sqrt(0.5), np.sqrt(0.5), 1.0])


@pytest.mark.parametrize("described", [True, False])
def test_clients_whose_names_differ_in_spelling_only_are_an_error(
    described: bool, invoke, failing, tmp_path: Path
) -> None:
    rows = "".join(f"{name},{i}\n" for name in ("Aarhus", "aarhus", "Odense") for i in range(9))
    (tmp_path / "t.csv").write_text("site,age\n" + rows)
    (tmp_path / "s.toml").write_text('[columns.age]\nkind = "number"')
    schema = ("--schema", tmp_path / "s.toml") if described else ()
    words = ("fit", tmp_path / "t.csv", "--group", "site", *schema, "-k", 2, "--out", tmp_path / "run")
    text = failing(*words)
    assert "'Aarhus' and 'aarhus'" in text and "--clients" in text
    invoke(*words, "--clients", "Aarhus,aarhus,Odense", "--quiet")


@pytest.mark.parametrize("damaged", ['1,"open', "1,2,3,4,5", '"', "1", "\x00,\x00", '5,"a""', "1e400,nan"])
def test_under_privacy_a_damaged_line_changes_no_other_row(damaged: str, tmp_path: Path) -> None:
    schema = parse(
        '[columns.age]\nkind = "number"\nlow = 0\nhigh = 99\nmissing = 50\noutside = "clip"\n'
        '[columns.bmi]\nkind = "number"\nlow = 10\nhigh = 60\nmissing = 20\noutside = "clip"\n'
    )
    schema.check_private()
    read = []
    for place, line in enumerate((damaged, "30,31")):
        path = tmp_path / f"{place}.csv"
        path.write_text("\n".join(["age,bmi", "20,25", line, "40,35", "60,45", ""]))
        read.append(read_described(path, schema, private=True).checked().features)
    assert read[0].shape == read[1].shape
    np.testing.assert_array_equal(np.delete(read[0], 1, axis=0), np.delete(read[1], 1, axis=0))
