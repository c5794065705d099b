"""`privfed select-k`: the table, the files, and a selection that was stopped."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed import select_n_clusters
from privfed.cli import selecting
from privfed.core.record.records import FILE, Asked, Ended
from privfed.core.record.transcript import Transcript
from privfed.data import load_clients
from privfed.errors import NotEnoughClientsError
from privfed.estimators.choosing import INDICES
from privfed.estimators.registry import SHORT
from privfed.federation.clients import gather
from tests.default_run import slow_but


@pytest.fixture
def base(iris: Path) -> list[object]:
    """Words of a selection that ends soon, without --out."""
    return ["select-k", iris, "--group", "hospital", "--label", "species", "--protocol", "plain"]


@pytest.fixture
def words(base: list[object]) -> list[object]:
    return [*base, "--min-k", 2, "--max-k", 4]


def read(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "selection.json").read_text())
    return found


# --- what comes out ---


def test_the_chosen_clustering_predicts(invoke, words, iris, tmp_path) -> None:
    invoke(*words, "--out", tmp_path / "s", "--quiet")
    model = privfed.load(tmp_path / "s" / "model.npz")
    rows = np.concatenate(load_clients(iris, columns=read(tmp_path / "s")["columns"]).arrays)
    said = invoke("predict", tmp_path / "s", iris).stdout.split()
    assert said == ["cluster", *map(str, model.predict(rows))]
    said = invoke("predict", tmp_path / "s", iris, "--cluster", 0, exit_code=2).stderr
    assert "--cluster is for runs that trained models" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--algorithm", "fedavg"), "must be one that clusters rows"),
        (("--index", "inertia", "--rule", "minimum"), "inertia is chosen by its elbow, got --rule minimum."),
        (("--rule", "maximum"), "davies_bouldin is chosen by its minimum, or by its elbow, got --rule"),
    ],
    ids=["models", "elbow only", "minimum or elbow"],
)
def test_what_cannot_choose_is_said(failing, words, tmp_path, more, message) -> None:
    assert message in failing(*words, *more, "--out", tmp_path / "s")


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.few(1)
def test_files_and_table_are_those_of_the_python_face(invoke, words, iris, tmp_path, protocol) -> None:
    out = tmp_path / "s"
    result = invoke(*words, "--protocol", protocol, "--out", out, "--seed", 7, "--picture")
    tables = load_clients(iris, group="hospital", label="species")
    ours = select_n_clusters(
        gather(tables.arrays, names=tables.names), range(2, 5), protocol=protocol, random_state=7
    )
    written = read(out)
    assert {name: written[name] for name in ours.to_dict()} == ours.to_dict()
    assert written["rows"] == 150 and written["clients"] == list(tables.names)
    assert written["centroids"] == ours.estimator.cluster_centers_.tolist()
    assert written["protocol"] == protocol
    assert ("every single client" in written["server_saw"]) == (protocol == "plain")
    assert "2 clusters: minimum of davies_bouldin." in result.stdout
    chosen = [line for line in result.stdout.splitlines() if "<" in line]
    assert len(chosen) == 1 and chosen[0].split()[1] == "2"
    names = {"k002", "k003", "k004", "model.npz", "picture.png", "select.json", "selection.json"}
    assert {path.name for path in out.iterdir()} == names
    assert (out / "picture.png").read_bytes().startswith(b"\x89PNG")
    model = privfed.load(out / "model.npz")
    np.testing.assert_array_equal(model.cluster_centers_, ours.estimator.cluster_centers_)


def test_without_a_picture_none_is_drawn_or_named(invoke, words, tmp_path) -> None:
    said = invoke(*words, "--out", tmp_path / "s", "--no-picture").stdout
    assert "model.npz" in said and "picture.png" not in said
    assert not (tmp_path / "s" / "picture.png").exists()


def test_json_on_stdout_is_the_file(invoke, words, tmp_path) -> None:
    result = invoke(*words, "--out", tmp_path / "s", "--json", "--quiet")
    assert result.stdout == (tmp_path / "s" / "selection.json").read_text()
    assert result.stderr == ""


def test_words_reach_the_estimator_and_the_rule(invoke, words, tmp_path) -> None:
    spoken = "--algorithm lloyd --index inertia --rule elbow --max-iter 7 --tol 0.5 --n-init 2 --init random"
    spoken += " --clients-per-round 4 --low 0 --high 8,8,8,8 --max-rows 64"
    invoke(*words, *spoken.split(), "--out", tmp_path / "s")
    found = read(tmp_path / "s")
    assert (found["index"], found["rule"], found["n_clusters"]) == ("inertia", "elbow", 3)
    configuration = Transcript.load(tmp_path / "s" / "k003").configuration
    agreed = json.loads(configuration.algorithm)
    assert {name: agreed[name] for name in ("max_iter", "tol", "n_init", "init", "local_iter")} == {
        "max_iter": 7,
        "tol": 0.5,
        "n_init": 2,
        "init": "random",
        "local_iter": 1,
    }
    assert configuration.cohorts.size == 4 and configuration.max_rows == 64


def test_without_a_range_the_clients_are_asked(invoke, base, tmp_path) -> None:
    invoke(*base, "--out", tmp_path / "s")
    found = read(tmp_path / "s")
    assert sum(found["local_clusters"]) == 6
    local = [number for number, count in enumerate(found["local_clusters"], start=1) if count]
    tried = [row["n_clusters"] for row in found["table"]]
    assert tried == list(range(local[0], local[0] + local[-1] + 1))


@pytest.mark.parametrize("algorithm", slow_but(SHORT, "dp", "ewf"))
def test_every_algorithm_runs(invoke, words, tmp_path, algorithm) -> None:
    claim = "--epsilon 5 --delta 1e-6 --unit record --neighbours add-remove --low 0 --high 8"
    claim += " --clients h1,h2,h3,h4,h5,h6"
    more = claim.split() if algorithm == "dp" else ["--max-iter", 3]
    invoke(*words, "--algorithm", algorithm, *more, "--out", tmp_path / "s")
    assert read(tmp_path / "s")["algorithm"] == algorithm


@pytest.mark.parametrize("index", slow_but(INDICES, list(INDICES)[-1]))
def test_every_index_is_drawn_and_written(invoke, words, tmp_path, index) -> None:
    algorithm = "mixture" if index == "bic" else "dwf"
    invoke(*words, "--algorithm", algorithm, "--index", index, "--max-iter", 3, "--out", tmp_path / "s")
    found = read(tmp_path / "s")
    assert found["index"] == index and all(row["index"] is not None for row in found["table"])


def test_an_index_without_a_value_is_null(invoke, tmp_path) -> None:
    table = tmp_path / "same.csv"
    rows = [f"c{i % 4},{0 if i < 38 else 9}" for i in range(40)]
    table.write_text("\n".join(["client,a", *rows]))
    line = ["select-k", table, "--group", "client", "--max-k", 3, "--protocol", "plain"]
    invoke(*line, "--index", "simplified_silhouette", "--out", tmp_path / "s")
    assert read(tmp_path / "s")["n_clusters"] == 2


# --- stopped, and gone on ---


def stopping_at(monkeypatch: pytest.MonkeyPatch, number: int, error: BaseException) -> None:
    """Make the progress of one number of clusters end a selection in its fourth sum."""

    class Progress(selecting.RoundProgress):
        def __call__(self, index: int, ask: Any, total: Any) -> None:
            if f" {number} clusters" in self._label and index == 3:
                raise error

    monkeypatch.setattr(selecting, "RoundProgress", Progress)


def test_a_stopped_selection_goes_on_with_the_same_command(invoke, words, tmp_path, monkeypatch) -> None:
    out = tmp_path / "s"
    invoke(*words, "--out", tmp_path / "whole")
    with monkeypatch.context() as patched:
        stopping_at(patched, 3, KeyboardInterrupt())
        said = invoke(*words, "--out", out, exit_code=130).stderr
    assert "finish the run with: the same command with --out" in said and str(out) in said
    begun = Transcript.load(out / "k003")
    assert not begun.of(Ended) and not (out / "k004").exists() and not (out / "selection.json").exists()
    first = (out / "k002" / FILE).read_bytes()
    invoke(*words, "--out", out)
    assert (out / "k002" / FILE).read_bytes() == first
    asked = Transcript.load(out / "k003").of(Asked)
    assert [record.index for record in asked] == sorted({record.index for record in asked})
    whole, again = read(tmp_path / "whole"), read(out)
    for found in (whole, again):
        found.pop("seconds")
    assert again == whole


def test_lost_clients_are_one_line_that_says_how_to_go_on(failing, words, tmp_path, monkeypatch) -> None:
    lost = NotEnoughClientsError(missing=["h1"], left=1, needed=4, stage="collect")
    stopping_at(monkeypatch, 2, lost)
    said = failing(*words, "--out", tmp_path / "s")
    assert "Missing: h1" in said and "finish the run with: the same command with --out" in said
    assert (tmp_path / "s" / "k002" / FILE).exists()


def test_other_words_do_not_go_on(invoke, failing, words, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        stopping_at(patched, 3, KeyboardInterrupt())
        invoke(*words, "--out", tmp_path / "s", exit_code=130)
    before = sorted(path.name for path in (tmp_path / "s").iterdir())
    assert "with other parameters" in failing(*words, "--seed", 1, "--out", tmp_path / "s")
    (tmp_path / "s" / "select.json").write_text("{")
    assert "select.json is damaged" in failing(*words, "--out", tmp_path / "s")
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == before


def test_other_data_do_not_go_on(invoke, failing, words, iris, tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patched:
        stopping_at(patched, 3, KeyboardInterrupt())
        invoke(*words, "--out", tmp_path / "s", exit_code=130)
    iris.write_text("\n".join(iris.read_text().splitlines()[:-1]) + "\n")
    assert "149 rows, the run began with 150" in failing(*words, "--out", tmp_path / "s")


# --- bad input ---

BAD = {
    "min above max": ("--min-k 5 --max-k 4", "2 <= min <= max <= 150, the rows, got 5 and 4"),
    "one cluster": ("--min-k 1", "2 <= min <= max"),
    "more than rows": ("--max-k 151", "got 2 and 151"),
    "no number": ("--max-k many", "'many' is not a valid integer"),
    "unknown index": ("--index dunn", "'dunn' is none of davies_bouldin"),
    "unknown rule": ("--rule best", "'best' is not one of"),
    "rule of another index": ("--rule maximum", "davies_bouldin is chosen by its minimum"),
    "elbow of two": ("--max-k 3 --rule elbow", "3 or more numbers of clusters"),
    "unknown algorithm": ("--algorithm kmeans", "'kmeans' is none of dp, dwf"),
    "word of another algorithm": (
        "--algorithm kfed --local-iter 3",
        "--algorithm kfed takes no --local-iter here; leave it out",
    ),
    "unknown group": ("--group hospitl", "has no column 'hospitl'"),
    "low alone": ("--low 0", "--low and --high go together"),
    "max-rows alone": ("--max-rows 8", "--max-rows goes with --low and --high"),
    "outside the domain": ("--low -1 --high 4", "outside the"),
    "tol": ("--tol nan", "tol must be"),
    "seed": ("--seed -1", "--seed"),
}


@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD.keys())
def test_bad_words_are_one_line(failing, words, tmp_path, bad, message) -> None:
    said = failing(*words, "--out", tmp_path / "s", *bad.split())
    assert message in said
    assert not (tmp_path / "s").exists()


def test_min_k_alone_is_one_line(failing, base, tmp_path) -> None:
    assert "--min-k goes with --max-k" in failing(*base, "--min-k", 3, "--out", tmp_path / "s")


def test_one_client_over_masked_sums_is_one_line(failing, tmp_path) -> None:
    (tmp_path / "one.csv").write_text("a,b\n" + "1,2\n3,4\n" * 9)
    said = failing("select-k", tmp_path / "one.csv", "--max-k", 3, "--out", tmp_path / "s")
    assert "one client" in said and "--group" in said


def test_a_folder_that_is_taken_stays_as_it_is(invoke, failing, words, iris, tmp_path) -> None:
    invoke(*words, "--out", tmp_path / "s")
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()}
    assert "already holds a selection" in failing(*words, "--out", tmp_path / "s")
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()} == before
    assert "is a file" in failing(*words, "--out", iris)
    assert "/proc/privfed" in failing(*words, "--out", "/proc/privfed/s")


def test_the_command_is_listed(invoke) -> None:
    assert "select-k" in invoke().stdout


def test_numbers_that_did_not_converge_are_marked(invoke, words, tmp_path) -> None:
    result = invoke(*words, "--max-iter", 1, "--init", "random", "--out", tmp_path / "s")
    assert "not converged" in result.stdout and "raise --max-iter 1" in result.stdout
    assert "Warning" not in result.stderr
    table = read(tmp_path / "s")["table"]
    assert [row["converged"] for row in table] == [False] * 3
    assert all("max_iter=1" in row["remedy"] for row in table)
