"""`privfed predict` reads new rows as the fit read its own: gaps, ranges, files of other names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privfed import DWFKMeans, load
from privfed.cli.main import main
from privfed.tables import load_described, read_schema
from tests.cli.test_missing import table
from tests.cli.wide import run

WORDS = ["--group", "site", "--columns", "a,b", "-k", 2, "--quiet", "--no-picture"]
SCHEMA = """
[columns.who]
kind = "id"
[columns.age]
kind = "number"
unit = "years"
[columns.ward]
kind = "category"
categories = ["heart", "lung"]
[files.odense]
decimal = ","
names = {alder = "age"}
"""


def clusters(text: str) -> list[int]:
    return [int(line.rpartition(",")[2]) for line in text.splitlines()[1:]]


@pytest.mark.filterwarnings("ignore:.* rows were left out before the fit")
@pytest.mark.parametrize("missing", ["leave-out", "0.5"])
def test_rows_with_gaps_are_what_the_fit_made_of_them(missing: str, tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv", "v,,0.3,0", "w,0.4,inf,1")
    run("fit", data, *WORDS, "--missing", missing, "--out", tmp_path / "run")
    filled = table(tmp_path / "filled.csv", "v,0.5,0.3,0", "w,0.4,0.5,1")
    now, then = (clusters(run("predict", tmp_path / "run", one).stdout) for one in (data, filled))
    assert now[:-2] == then[:-2] and set(now[:-2]) == {0, 1}
    assert now[-2:] == ([-1, -1] if missing == "leave-out" else then[-2:])
    run("fit", filled, *WORDS, "--out", tmp_path / "whole")
    said = run("predict", tmp_path / "whole", data, exit_code=2).output
    assert "1 missing or infinite values in column 'a'" in said


@pytest.mark.parametrize("identified", [True, False])
def test_the_id_of_a_fit_stands_beside_the_cluster(identified: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{'uvw'[i % 3]},p{i:03},{x!r},{y!r}" for i, (x, y) in enumerate(rng.uniform(size=(30, 2)).tolist())
    ]
    (tmp_path / "t.csv").write_text("\n".join(["site,patient,a,b", *rows]))
    words = ("--id", "patient") if identified else ("--drop", "patient")
    run("fit", tmp_path / "t.csv", "--group", "site", "-k", 2, *words, "--out", tmp_path / "run")
    head, *lines = run("predict", tmp_path / "run", tmp_path / "t.csv").stdout.splitlines()
    assert ("patient" in head.split(",")) == identified
    if identified:
        assert [line.split(",")[head.split(",").index("patient")] for line in lines] == [
            f"p{i:03}" for i in range(30)
        ]


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_rows_of_a_mixture_are_of_their_likeliest_component(scale: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    long = rng.normal(size=(300, 2)) * [3.0, 0.2]
    rows = np.vstack([long, rng.normal(size=(100, 2)) * 0.2 + [2.5, 1.0]])
    lines = [f"{'vwxy'[i % 4]},{a!r},{b!r}" for i, (a, b) in enumerate(rows.tolist())]
    (tmp_path / "t.csv").write_text("\n".join(["site,a,b", *lines]))
    words = (*WORDS, "--algorithm", "mixture", "--scale", scale, "--out", tmp_path / "run")
    run("fit", tmp_path / "t.csv", *words)
    found = clusters(run("predict", tmp_path / "run", tmp_path / "t.csv").stdout)
    model = load(tmp_path / "run")
    assert found == model.predict(rows).tolist()
    centers = model.cluster_centers_ if scale == "none" else model.scaling_.original(model.cluster_centers_)
    nearest = np.square(rows[:, None] - centers).sum(axis=2).argmin(axis=1)
    assert found != nearest.tolist()


def test_the_table_of_the_rows_is_never_replaced(tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv")
    run("fit", data, *WORDS, "--out", tmp_path / "run")
    before = data.read_bytes()
    said = run(
        "predict", tmp_path / "run", data, "--out", tmp_path / "run" / ".." / "t.csv", exit_code=2
    ).output
    assert "would be lost; name another file" in said
    assert data.read_bytes() == before


def test_rows_outside_the_range_are_clipped_as_in_the_fit(tmp_path: Path) -> None:
    rows = [f"{site},{a},{b}" for site in "uvw" for a, b in [(0.5, 0), (90, 5)] * 6]
    (tmp_path / "t.csv").write_text("\n".join(["site,a,b", *rows]) + "\n")
    bounds = ["--low", "0,0", "--high", "1,10", "--clip"]
    run("fit", tmp_path / "t.csv", *WORDS, *bounds, "--out", tmp_path / "run")
    # Centers lie at (.5, 0) and (1, 5). As it stands, the second row is nearer to the latter.
    (tmp_path / "new.csv").write_text("a,b\n0.5,0\n90,0\n")
    one, other = clusters(run("predict", tmp_path / "run", tmp_path / "new.csv").stdout)
    assert one == other


def test_standard_input_has_columns_to_keep(tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv")
    run("fit", data, *WORDS, "--out", tmp_path / "run")
    kept = ["--keep", "site,ill"]
    piped = CliRunner().invoke(main, ["predict", str(tmp_path / "run"), "-", *kept], input=data.read_bytes())
    assert piped.stdout == run("predict", tmp_path / "run", data, *kept).stdout
    assert piped.stdout.startswith("site,ill,cluster\nu,0,")


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    folder = tmp_path / "sites"
    folder.mkdir()
    for name, comma in (("aarhus", "."), ("odense", ","), ("viborg", ".")):
        rows = [f"{name}-{i};{20 + 40 * (i % 2)}{comma}5;{'heart' if i % 2 else 'lung'}" for i in range(12)]
        head = "who;alder;ward" if name == "odense" else "who;age;ward"
        (folder / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    run("fit", folder, "--schema", tmp_path / "schema.toml", "-k", 2, "--quiet", "--out", tmp_path / "run")
    return folder


def test_a_schema_names_a_file_that_came_after_the_fit(sites: Path, tmp_path: Path) -> None:
    old = run("predict", tmp_path / "run", sites / "odense.csv").stdout
    later = tmp_path / "odense-2027.csv"
    later.write_text((sites / "odense.csv").read_text())
    said = run("predict", tmp_path / "run", later, exit_code=2).output
    assert "no column 'age'" in said and "--schema" in said
    (tmp_path / "new.toml").write_text(SCHEMA.replace("[files.odense]", '[files."odense-2027"]'))
    words = ["--schema", tmp_path / "new.toml"]
    assert run("predict", tmp_path / "run", later, *words).stdout == old
    assert old.count("\n") == 13 and old.startswith("who,cluster\nodense-0,")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('unit = "years"', 'unit = "months"'), "column 'age' has another unit"),
        (('unit = "years"', 'unit = "years"\nspread = 2.0'), "column 'age' has another unit, scale"),
        (('"lung"]', '"lung"]\nweight = 2.0'), "column 'ward' has another"),
        (('"lung"]', '"lung", "unknown"]'), "ward=unknown, and"),
    ],
)
def test_a_schema_in_which_a_feature_means_something_else_is_refused(
    change: tuple[str, str], said: str, sites: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text(SCHEMA.replace(*change))
    words = ["predict", tmp_path / "run", sites / "aarhus.csv", "--schema", tmp_path / "other.toml"]
    assert said in run(*words, exit_code=2).output


def test_rows_of_a_run_over_nodes_are_read_by_a_schema(sites: Path, tmp_path: Path) -> None:
    schema = read_schema(tmp_path / "schema.toml")
    model = DWFKMeans(2, random_state=0).fit(load_described(sites, schema))
    (tmp_path / "nodes").mkdir()
    model.save(tmp_path / "nodes" / "model.npz")
    words = ["predict", tmp_path / "nodes", sites / "odense.csv"]
    said = run(*words, exit_code=2).output
    assert "has no column 'age'" in said and "--schema" in said
    found = clusters(run(*words, "--schema", tmp_path / "schema.toml").stdout)
    np.testing.assert_array_equal(found, model.labels_[1])


def test_a_run_without_a_schema_takes_none(sites: Path, tmp_path: Path) -> None:
    data = table(tmp_path / "t.csv")
    run("fit", data, *WORDS, "--out", tmp_path / "plain")
    words = ["predict", tmp_path / "plain", data, "--schema", tmp_path / "schema.toml"]
    assert "was fitted without a schema" in run(*words, exit_code=2).output


def test_a_column_to_keep_is_named_as_the_schema_names_it(sites: Path, tmp_path: Path) -> None:
    words = ["predict", tmp_path / "run", sites / "odense.csv", "--keep"]
    assert "'alder' is called 'age' by names of [files.odense]" in run(*words, "alder", exit_code=2).output
    assert run(*words, "age").stdout.startswith('who,age,cluster\nodense-0,"20,5",')
