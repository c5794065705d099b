"""`privfed predict` and `privfed show`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.data import load_features


@pytest.fixture
def run(copied, tmp_path) -> Path:
    return copied(tmp_path / "run", "--protocol", "plain")


def test_predict_names_the_nearest_centroid_of_each_row(run, invoke, iris, tmp_path) -> None:
    lines = invoke("predict", run, iris).stdout.splitlines()
    with iris.open(newline="") as file:
        rows = np.array([row[1:5] for row in list(csv.reader(file))[1:]], dtype=float)
    centroids = np.array(json.loads((run / "result.json").read_text())["centroids"])
    nearest = np.square(rows[:, None] - centroids).sum(axis=2).argmin(axis=1)
    assert lines == ["cluster", *map(str, nearest)]
    said = invoke("predict", run, iris, "--out", tmp_path / "labels.csv")
    assert said.output == ""
    assert (tmp_path / "labels.csv").read_text().splitlines() == lines


@pytest.mark.parametrize("name", ["c.csv", "c.CSV", "c.csv.gz", "c.tsv", "c.tsv.gz", "c.parquet"])
def test_predict_writes_what_the_name_says(run, invoke, iris, tmp_path, name) -> None:
    lines = invoke("predict", run, iris).stdout.splitlines()
    invoke("predict", run, iris, "--out", tmp_path / name)
    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"PAR1") == name.endswith("parquet")
    assert content.startswith(b"\x1f\x8b") == name.endswith("gz")
    assert load_features(tmp_path / name, ["cluster"]).ravel().tolist() == [float(one) for one in lines[1:]]


@pytest.mark.parametrize("name", ["c.txt", "c", "c.npz", "parquet"])
def test_predict_refuses_a_name_that_says_nothing(run, failing, iris, tmp_path, name) -> None:
    said = failing("predict", run, iris, "--out", tmp_path / name)
    assert ".csv or .csv.gz or .tsv or .tsv.gz or .parquet" in said
    assert not (tmp_path / name).exists()


def test_predict_takes_columns_by_name(run, invoke, tmp_path) -> None:
    (tmp_path / "new.csv").write_text(
        "petal width;petal length;note;sepal width;sepal length\n0.2;1.4;x;3.5;5\n"
    )
    (tmp_path / "same.csv").write_text("sepal length,sepal width,petal length,petal width\n5,3.5,1.4,0.2\n")
    one, other = (invoke("predict", run, tmp_path / name).stdout for name in ("new.csv", "same.csv"))
    assert one == other


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("a,b\n1,2\n", "has no column 'sepal length'"),
        ("sepal length,sepal width,petal length,petal width\n1,2,3,x\n", "not numeric"),
        ("sepal length,sepal width,petal length,petal width\n1,2,3,\n", "missing"),
    ],
    ids=["no file", "other columns", "text", "missing value"],
)
def test_predict_refuses_other_tables(run, failing, tmp_path, content, message) -> None:
    if content is not None:
        (tmp_path / "new.csv").write_text(content)
    assert message in failing("predict", run, tmp_path / "new.csv")


def test_predict_needs_a_finished_run(run, failing, iris, tmp_path) -> None:
    (run / "result.json").write_text('{"columns": ["a"]')
    assert "result.json is damaged" in failing("predict", run, iris)
    (run / "result.json").unlink()
    assert "not finished" in failing("predict", run, iris)
    assert "no folder" in failing("predict", tmp_path / "nowhere", iris)


def test_show_names_every_sum(run, invoke) -> None:
    result = json.loads((run / "result.json").read_text())
    shown = json.loads(invoke("show", run, "--json").stdout)
    assert shown["sums"] == result["sums"]
    assert shown["clients"] == result["clients"]
    assert (shown["algorithm"], shown["protocol"], shown["finished"]) == ("DWFKMeans", "plain", True)
    assert shown["parameters"]["n_clusters"] == 3
    text = invoke("show", run).stdout
    for word in ("DWFKMeans", "plain", "every single client", "range", "agreement", "finished"):
        assert word in text


def test_show_reads_a_run_from_python(invoke, tmp_path) -> None:
    rng = np.random.default_rng(0)
    DWFKMeans(2, run_dir=tmp_path / "run", max_iter=3, tol=0).fit(
        [rng.normal(size=(20, 2)) for _ in range(5)]
    )
    shown = json.loads(invoke("show", tmp_path / "run", "--json").stdout)
    assert shown["clients"] == ["0", "1", "2", "3", "4"]
    assert shown["protocol"] == "masked"


def test_show_changes_nothing_of_a_run_that_is_being_written(run, invoke) -> None:
    path = run / "transcript.jsonl"
    path.write_bytes(path.read_bytes() + b'{"type":"Asked","ind')
    before = path.read_bytes()
    invoke("show", run)
    assert path.read_bytes() == before


def test_show_needs_a_transcript(failing, tmp_path) -> None:
    assert f"{tmp_path} holds no transcript.jsonl" in failing("show", tmp_path)
    (tmp_path / "transcript.jsonl").write_text("{}\n")
    assert f"{tmp_path}/transcript.jsonl, line 1, is damaged" in failing("show", tmp_path)


def test_predict_keeps_the_columns_that_are_named(run, invoke, failing, tmp_path) -> None:
    table = tmp_path / "new.csv"
    table.write_text(
        "who;petal width;petal length;sepal width;sepal length\n007;0.2;1.40;3.5;5\nb,c;2;5;3;6\n"
    )
    own = invoke("predict", run, table).stdout.splitlines()[1:]
    lines = list(csv.reader(invoke("predict", run, table, "--keep", "who,petal length").stdout.splitlines()))
    assert lines == [
        ["who", "petal length", "cluster"],
        ["007", "1.40", own[0]],
        ["b,c", "5", own[1]],
    ]
    invoke("predict", run, table, "--keep", "all", "--out", tmp_path / "all.csv")
    header = (tmp_path / "all.csv").read_text().splitlines()[0]
    assert header == "who,petal width,petal length,sepal width,sepal length,cluster"
    assert "has no column 'whom' to keep" in failing("predict", run, table, "--keep", "whom")
    assert "a column 'cluster', too" in failing("predict", run, tmp_path / "all.csv", "--keep", "all")
