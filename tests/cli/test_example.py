"""`privfed example` writes a table on which the command that it prints, and its choice of k, work."""

import json
import shlex
from pathlib import Path

import polars as pl
import pytest
from sklearn.metrics import silhouette_score

from privfed.data import load_clients


def test_the_command_that_it_prints_finds_the_four_kinds(
    invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = invoke("example", "my clients.csv").stdout
    (command,) = (line for line in said.splitlines() if line.startswith("    privfed "))
    invoke(*shlex.split(command)[1:])
    invoke("predict", "run", "my clients.csv", "--out", "clusters.csv")
    rows = pl.read_csv("my clients.csv").drop("hospital").to_numpy()
    clusters = pl.read_csv("clusters.csv")["cluster"].to_numpy()
    assert silhouette_score(rows / rows.std(axis=0), clusters) > 0.6
    invoke("select-k", "my clients.csv", "--group", "hospital", "--max-k", 7, "--scale", "standard")
    assert json.loads(Path("selection/selection.json").read_bytes())["n_clusters"] == 4


def test_it_writes_the_same_four_hospitals_each_time_and_never_over_a_file(
    invoke, failing, tmp_path: Path
) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (first, second):
        invoke("example", path)
    assert first.read_bytes() == second.read_bytes()
    tables = load_clients(first, group="hospital")
    assert len(tables.names) == 4 and sum(map(len, tables.arrays)) == 800
    assert "never replaced" in failing("example", first)
    assert first.read_bytes() == second.read_bytes()
    for place in (tmp_path / "none" / "a.csv", tmp_path / "a.xlsx"):
        failing("example", place)
        assert not place.exists()
