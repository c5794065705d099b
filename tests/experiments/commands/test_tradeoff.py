"""`privfed tradeoff` and `privfed compare`."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.owners import assert_the_owners, umask

STUDY = """\
name = "Wine"
seeds = 1

[[data]]
source = "wine"
standardise = true

[[partition]]
clients = 4

[[algorithm]]
estimator = "DWFKMeans"
n_clusters = 3

[[sum]]
protocol = "plain"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "wine.toml"
    path.write_text(STUDY)
    return path


@pytest.mark.slow
def test_a_study_runs_resumes_and_is_compared_with_a_grown_one(invoke, study: Path, tmp_path: Path) -> None:
    with umask(0):
        first = invoke("tradeoff", study, "--out", tmp_path / "a", "--jobs", 1)
    assert_the_owners(tmp_path / "a", {"cells.sqlite", ".lock", "report.html", "results.json", "table.tex"})
    assert f"Written: {tmp_path / 'a' / 'report.html'}" in first.stdout
    again = invoke("tradeoff", study, "--out", tmp_path / "a", "--jobs", 1)
    assert "1 cells are stored already, 0 are to be run" in again.stderr
    study.write_text(STUDY.replace("n_clusters = 3", "grid = { n_clusters = [3, 4] }\nmax_iter = 2"))
    invoke("tradeoff", study, "--out", tmp_path / "b", "--jobs", 1, "--quiet")
    same = invoke("compare", tmp_path / "a", tmp_path / "a").stdout
    assert same.strip() == "1 configurations agree in everything but seconds."
    found = json.loads(invoke("compare", tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert len(found["only_first"]) == 1 and len(found["only_second"]) == 2 and found["other_data"] == []
    study.write_text(STUDY.replace("standardise = true", "unit = 2.0"))
    invoke("tradeoff", study, "--out", tmp_path / "c", "--jobs", 1, "--quiet")
    other = invoke("compare", tmp_path / "a", tmp_path / "c").stdout
    assert f"of other data in {tmp_path / 'c'} than in {tmp_path / 'a'}: wine / 4 iid" in other


def test_check_runs_nothing(invoke, study: Path, tmp_path: Path) -> None:
    text = invoke("tradeoff", study, "--out", tmp_path / "a", "--check").stdout
    assert text == "wine.toml is valid: 1 configurations, 1 cells\n"
    assert not (tmp_path / "a").exists()


def test_check_lists_all_mistakes(invoke, failing, study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("clients = 4", "client = 4").replace("n_clusters = 3", "grid = 0"))
    said = invoke("tradeoff", study, "--out", tmp_path / "a", "--check", exit_code=2)
    assert said.stdout == ""
    assert [":".join(line.split(":")[:3]) for line in said.stderr.splitlines()] == [
        "privfed: error: wine.toml, partition 1, client",
        "privfed: error: wine.toml, algorithm 1, grid",
    ]
    # To run it is refused with the first, in one line.
    told = "Object contains unknown field `client`; partition takes clients, kind, name, alpha, beta."
    assert f"{told} There are 1 more" in failing("tradeoff", study)
    study.write_text(STUDY + "x = ")
    said = invoke("tradeoff", study, "--check", exit_code=2).stderr
    assert said == "privfed: error: wine.toml is no TOML: Invalid value (at line 17).\n"


@pytest.mark.parametrize(
    "name",
    ["digits", "weights-over-rounds", "dp-frontier", "defences", "n-clients", "several-fits"],
)
def test_the_built_in_studies_are_well(invoke, name: str) -> None:
    assert f"{name}.toml is valid" in invoke("tradeoff", name, "--check").stdout


def test_the_study_of_baselines_is_well(invoke) -> None:
    path = Path(__file__).parents[3] / "benchmarks" / "dp-anchors.toml"
    assert "dp-anchors.toml is valid" in invoke("tradeoff", path, "--check").stdout


def test_wrong_studies_and_folders_give_one_line(failing, study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("clients = 4", "clients = 4000"))
    assert failing("tradeoff", study).startswith("wine.toml: clients must")
    assert "there is no study 'nothing'" in failing("tradeoff", "nothing")
    study.write_text(STUDY)
    assert "is a file" in failing("tradeoff", study, "--out", study)
    assert "holds no study.csv" in failing("compare", tmp_path, tmp_path)
    for damaged in ("", "[]", "data,partition\nwine,4 iid\n"):
        (tmp_path / "study.csv").write_text(damaged)
        assert "is damaged" in failing("compare", tmp_path, tmp_path)
    (tmp_path / "cells.sqlite").write_text("no database, but long enough to be looked at" * 100)
    assert "cannot be used" in failing("tradeoff", study, "--out", tmp_path)


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done(study: Path, tmp_path: Path) -> None:
    study.write_text(STUDY.replace("seeds = 1", "seeds = 200"))
    words = ["tradeoff", str(study), "--out", str(tmp_path / "a"), "--jobs", "1"]
    command = [sys.executable, "-c", "from privfed.cli.main import main; main()", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and _stored(tmp_path / "a") <= 2:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "the same command continues" in errors and "Traceback" not in errors
    assert _stored(tmp_path / "a") > 2


def _stored(folder: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{folder / 'cells.sqlite'}?mode=ro", uri=True)) as database:
            return int(database.execute("SELECT count(*) FROM parts").fetchone()[0])
    except sqlite3.OperationalError:  # There is no file yet, or no table.
        return 0
