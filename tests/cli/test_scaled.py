"""`--scale`: from columns in their own units to clusters and back, as a pipeline on pooled rows does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import privfed
from privfed.core.record.records import Asked
from privfed.core.record.transcript import Transcript
from tests.cli.wide import run

FIT = ("--group", "site", "-k", 3, "--scale", "standard", "--quiet")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose columns have unlike scales, of three sites and three clusters."""
    rng = np.random.default_rng(4)
    middles = np.repeat([[0.0, 0.0], [8.0, 1.0], [1.0, 9.0]], 20, axis=0)
    rows = (middles + rng.normal(size=(60, 2)))[rng.permutation(60)] * [1.0, 1000.0] + [40.0, 5e4]
    path = tmp_path_factory.mktemp("scaled") / "stays.csv"
    lines = [f"s{i % 3},{a!r},{b!r}" for i, (a, b) in enumerate(rows.tolist())]
    path.write_text("\n".join(["site,age,cost", *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def whole(table: Path) -> Path:
    folder = table.parent / "run"
    run("fit", table, *FIT, "--out", folder)
    return folder


def rows_of(table: Path) -> np.ndarray:
    return np.genfromtxt(table, delimiter=",", skip_header=1)[:, 1:]


def test_centroids_are_in_the_columns_units_and_rows_are_scaled_before_they_are_compared(
    table: Path, whole: Path
) -> None:
    rows, model = rows_of(table), privfed.load(whole)
    scaler = StandardScaler().fit(rows)
    written = np.genfromtxt(whole / "centroids.csv", delimiter=",", skip_header=1)
    np.testing.assert_allclose(written, scaler.inverse_transform(model.cluster_centers_), rtol=1e-9)
    assert json.loads((whole / "result.json").read_text())["centroids"] == written.tolist()
    nearest = ((scaler.transform(rows)[:, None] - model.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)
    printed = run("predict", whole, table).stdout.split()
    assert printed[1:] == [str(one) for one in nearest] == [str(one) for one in model.predict(rows)]


@pytest.mark.parametrize("lost", ["transcript.jsonl", "scaling/transcript.jsonl"])
def test_it_resumes_wherever_it_was_stopped(table: Path, whole: Path, tmp_path: Path, lost: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / "result.json").unlink()
    if lost != "transcript.jsonl":
        (folder / "transcript.jsonl").unlink()
    lines = (folder / lost).read_bytes().splitlines(keepends=True)
    (folder / lost).write_bytes(b"".join(lines[:2]))
    run("resume", folder, "--quiet")
    assert (folder / "centroids.csv").read_bytes() == (whole / "centroids.csv").read_bytes()


def test_attacks_are_scored_on_scaled_rows(whole: Path) -> None:
    words = ("--attack", "differencing", "--json", "--out", whole / "one")
    found = json.loads(run("attack", whole, *words).stdout)["attacks"]["differencing"]
    assert found["claims"] and found["precision"] == 1.0
    printed = run("attack", whole, "--attack", "differencing", "--out", whole / "two").stdout
    assert f"privfed attack {whole / 'scaling'} --truth DATA" in printed
    run("attack", whole / "scaling", "--truth", whole.parent / "stays.csv", "--group", "site", "--quiet")


def test_numbers_of_clusters_are_compared_on_scaled_rows(table: Path, tmp_path: Path) -> None:
    words = ("--group", "site", "--max-k", 4, "--scale", "standard", "--index", "calinski_harabasz")
    run("select-k", table, *words, "--out", tmp_path / "chosen", "--quiet")
    chosen = json.loads((tmp_path / "chosen" / "selection.json").read_text())
    assert chosen["n_clusters"] == 3 and chosen["scaling"]["kind"] == "standard"
    plain = ("--group", "site", "--max-k", 4, "--index", "calinski_harabasz", "--out", tmp_path / "plain")
    run("select-k", table, *plain, "--quiet")
    assert "scaling" in json.loads((tmp_path / "plain" / "selection.json").read_text())
    labels = run("predict", tmp_path / "chosen", table).stdout.split()[1:]
    assert len(set(labels)) == 3


def test_a_schema_is_scaled_and_chosen_with_too(table: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    columns = {"site": 'kind = "label"', "age": 'kind = "number"', "cost": 'kind = "number"\nunit = "eur"'}
    schema.write_text("\n".join(f"[columns.{name}]\n{text}" for name, text in columns.items()))
    words = ("--group", "site", "--schema", schema, "--scale", "standard", "--quiet")
    run("fit", table, "-k", 3, *words, "--out", tmp_path / "run")
    header, *lines = (tmp_path / "run" / "centroids-in-units.csv").read_text().splitlines()
    assert header == "age,cost [eur]"
    assert np.array([line.split(",") for line in lines], dtype=float)[:, 1].min() > 1e4
    run("select-k", table, "--max-k", 3, *words, "--out", tmp_path / "chosen")
    assert json.loads((tmp_path / "chosen" / "selection.json").read_text())["columns"] == ["age", "cost"]


CLAIM = (
    *("--epsilon", 5, "--delta", 1e-5, "--unit", "record", "--neighbours", "add-remove"),
    *("--low", "0,0", "--high", "90,100000", "--max-rows", 100, "--clients", "s0,s1,s2"),
)


@pytest.mark.filterwarnings("ignore")
def test_under_privacy_the_declared_range_is_mapped_and_nothing_else_is_asked(
    table: Path, tmp_path: Path
) -> None:
    words = ("--group", "site", "-k", 3, "--algorithm", "dp", *CLAIM, "--quiet", "--protocol", "plain")
    run("fit", table, *words, "--scale", "range", "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "scaling").exists()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["scaling"] == {"kind": "range", "shift": [0.0, 0.0], "scale": [90.0, 1e5]}
    run("fit", table, *words, "--scale", "none", "--out", tmp_path / "as-it-is")
    asked = [len(Transcript.load(tmp_path / one).of(Asked)) for one in ("run", "as-it-is")]
    assert max(asked) <= min(asked) + 4  # As many rounds as the noise allows, and no sum of a scaling.
    assert json.loads((tmp_path / "as-it-is" / "result.json").read_text())["scaling"] is None


@pytest.mark.filterwarnings("ignore")
def test_under_privacy_ranges_that_differ_are_scaled_by_quartiles_within_the_claim(
    table: Path, tmp_path: Path
) -> None:
    words = ("--group", "site", "-k", 3, "--algorithm", "dp", *CLAIM, "--quiet", "--protocol", "plain")
    said = run("fit", table, *words, "--out", tmp_path / "run").stderr
    assert "--scale none" in said and "25 %" in said
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["scaling"]["kind"] == "robust"
    own = [Transcript.load(tmp_path / "run" / one).configuration.privacy for one in (".", "scaling")]
    assert all(one is not None and one.epsilon < 5.0 for one in own)
    for claim in (result["privacy"], json.loads(run("show", tmp_path / "run", "--json").stdout)["privacy"]):
        assert claim["epsilon"] == pytest.approx(5.0, rel=1e-9)
        assert sum(one["share"] for one in claim["payments"]) <= 1.0 + 1e-9
    # One range for all columns says that they have one unit.
    same = tuple("90" if one == "90,100000" else "0" if one == "0,0" else one for one in words)
    assert "quartiles" not in run("fit", table, *same, "--out", tmp_path / "same").stderr


def test_a_profile_is_in_the_columns_units(table: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run("fit", table, *FIT, "--profile", "--out", folder)
    run("profile", folder, "--out", tmp_path / "p.csv", "--no-picture")
    cluster, size, _, mean, std, *_ = (tmp_path / "p.csv").read_text().splitlines()[2].split(",")
    labels = np.array(run("predict", folder, table).stdout.split()[1:], dtype=int)
    own = rows_of(table)[labels == int(cluster)]
    assert len(own) == float(size)
    assert float(mean) == pytest.approx(own[:, 1].mean()) and float(std) == pytest.approx(own[:, 1].std())
    printed = run("profile", folder).stdout
    assert "± " in printed and "sd)" in printed and (folder / "profile.png").exists()
    for path in (folder / "one.svg", tmp_path / "one.svg"):
        run("profile", folder, "--out", path, "--no-picture")
    drawn = (tmp_path / "one.svg").read_bytes()
    run("profile", folder, "--out", tmp_path / "one.png", "--no-picture")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in drawn and drawn == (folder / "one.svg").read_bytes()
    known = json.loads(run("profile", folder, "--json").stdout)
    assert len(known["profile"]["sizes"]) == 3 and known["privacy"] is None


def test_without_a_profile_the_command_says_how_to_get_one(whole: Path) -> None:
    assert "--ask" in run("profile", whole, exit_code=2).stderr


def test_a_profile_of_a_private_fit_has_the_intervals_of_its_totals(table: Path, tmp_path: Path) -> None:
    words = ("--group", "site", "-k", 3, "--algorithm", "dp", *CLAIM, "--quiet")
    assert "leave it out" in run("fit", table, *words, "--profile", exit_code=2).stderr
    run("fit", table, *words, "--out", tmp_path / "run")
    svg = ("profile", tmp_path / "run", "--out", tmp_path / "a.svg")
    assert "has no exact profile" in run(*svg, exit_code=2).stderr
    printed = run("profile", tmp_path / "run").stdout
    assert "joint intervals at level 0.95" in printed and "differential privacy: epsilon 5" in printed


def test_unlike_scales_are_said_where_nothing_scales_them(table: Path, tmp_path: Path) -> None:
    words = ("--group", "site", "-k", 3)
    said = run("fit", table, *words, "--out", tmp_path / "plain").stderr
    assert "the range of cost is " in said and "--scale puts all columns on one scale" in said
    assert "range of" not in run("fit", table, *words, "--scale", "range", "--out", tmp_path / "r").stderr
    assert "range of" not in run("fit", table, *words, "--quiet", "--out", tmp_path / "quiet").stderr


def test_more_clusters_than_the_rows_bear_are_said(table: Path, tmp_path: Path) -> None:
    words = ("--group", "site", "--scale", "range", "--profile")
    many = run("fit", table, *words, "-k", 20, "--out", tmp_path / "many").stderr
    assert "20 clusters of 60 rows have 3 rows each on average: take a smaller -k." in many
    assert "take a smaller" not in run("fit", table, *words, "-k", 3, "--out", tmp_path / "few").stderr


def test_a_cluster_of_one_client_alone_is_said_of_a_profile(table: Path, tmp_path: Path) -> None:
    header, *rows = table.read_text().splitlines()
    at, cost = (header.split(",").index(name) for name in ("site", "cost"))
    cells = [row.split(",") for row in rows]
    for row in cells:
        row[cost] = str(float(row[cost]) * (1e3 if row[at] == cells[0][at] else 1.0))
    other = tmp_path / "unit.csv"
    other.write_text("\n".join([header, *map(",".join, cells)]))
    words = ("--group", "site", "-k", 2, "--scale", "standard", "--profile")
    said = run("fit", other, *words, "--out", tmp_path / "run").stderr
    assert "are one client's: if it measures in another unit, privfed summary --between names" in said
    assert "clients" in run("profile", tmp_path / "run").stdout
    assert "one client's" not in run("fit", table, *words, "--out", tmp_path / "same").stderr


@pytest.mark.parametrize("scale", [(), ("--scale", "standard"), ("--scale", "range")], ids=str)
def test_columns_that_hardly_vary_are_said_of_a_profile(
    table: Path, tmp_path: Path, scale: tuple[str, ...]
) -> None:
    header, *rows = table.read_text().splitlines()
    still = tmp_path / "still.csv"
    still.write_text("\n".join([f"{header},year,none", *(f"{row},2024,0" for row in rows)]))
    words = ("--group", "site", "-k", 3, *scale)
    said = run("fit", still, *words, "--profile", "--out", tmp_path / "run").stderr
    assert "these columns hardly vary, and tell no clusters apart: year, none; leave them out." in said
    assert "hardly vary" not in run("fit", still, *words, "--out", tmp_path / "not").stderr
    assert "hardly vary" not in run("fit", table, *words, "--profile", "--out", tmp_path / "all").stderr
