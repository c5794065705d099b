"""`privfed fit`: what it writes, and that the files agree with each other and with the Python face."""

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import Result
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, v_measure_score

from privfed import Box, DWFKMeans, EWFKMeans, metrics
from privfed.core.record.transcript import Transcript
from privfed.data import load_clients
from tests.default_run import slow

FILES = {
    "run.json",
    "transcript.jsonl",
    "result.json",
    "centroids.csv",
    "centroids.npz",
    "model.npz",
    "picture.png",
}
COLUMNS = ["sepal length", "sepal width", "petal length", "petal width"]


@pytest.fixture(params=["plain", "masked"])
def run(request, copied, tmp_path) -> Path:
    return copied(tmp_path / "run", "--protocol", request.param, "--picture")


def read(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def test_all_files_are_written_and_nothing_else(run) -> None:
    assert {path.name for path in run.iterdir()} == FILES


def test_without_a_picture_all_other_files_are_written_and_named(invoke, words, tmp_path) -> None:
    out = tmp_path / "run"
    fitted = invoke(*words, "--protocol", "plain", "--max-iter", 2, "--out", out, "--no-picture")
    assert {path.name for path in out.iterdir()} == FILES - {"picture.png"}
    resumed = invoke("resume", out, "--no-picture")
    assert not (out / "picture.png").exists()
    drawn = invoke("resume", out, "--picture")
    assert (out / "picture.png").read_bytes().startswith(b"\x89PNG")
    assert [("picture.png" in said.stdout) for said in (fitted, resumed, drawn)] == [False, False, True]


def test_the_centroids_are_the_same_in_all_files(run) -> None:
    centroids = np.array(read(run)["centroids"])
    with (run / "centroids.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == COLUMNS == read(run)["columns"]
    np.testing.assert_array_equal(np.array(rows, dtype=float), centroids)
    with np.load(run / "centroids.npz") as arrays:
        np.testing.assert_array_equal(arrays["centroids"], centroids)
        assert arrays["columns"].tolist() == COLUMNS
    with np.load(run / "model.npz") as arrays:
        np.testing.assert_array_equal(arrays["centers"][-1], centroids)


def test_the_result_is_that_of_the_estimator(run, iris) -> None:
    result = read(run)
    tables = load_clients(iris, group="hospital", label="species")
    model = DWFKMeans(3, protocol=result["protocol"]).fit(tables.arrays)
    np.testing.assert_array_equal(result["centroids"], model.cluster_centers_)
    assert result["n_iter"] == model.n_iter_ == len(result["movements"])
    assert result["inertia"] == model.inertia_
    assert result["rows"] == 150
    assert result["score"] == result["inertia"] / 150
    assert result["converged"]


def test_the_agreement_is_that_of_the_pooled_rows(run, iris) -> None:
    tables = load_clients(iris, group="hospital", label="species")
    centroids = np.array(read(run)["centroids"])
    rows, labels = np.concatenate(tables.arrays), np.concatenate(tables.labels)
    found = np.square(rows[:, None] - centroids).sum(axis=2).argmin(axis=1)
    agreement = read(run)["agreement"]
    assert agreement["v_measure"] == pytest.approx(v_measure_score(labels, found))
    assert agreement["adjusted_rand_index"] == pytest.approx(adjusted_rand_score(labels, found))
    assert 0.8 < agreement["accuracy"] <= 1.0


def test_the_traffic_is_that_of_the_federation(run) -> None:
    result, transcript = read(run), Transcript.load(run)
    sums, traffic = result["sums"], result["traffic"]
    assert [one["index"] for one in sums] == list(range(len(transcript.totals())))
    assert sum(one["bytes_down"] for one in sums) == sum(traffic["bytes_down"].values()) > 0
    assert sum(one["bytes_up"] for one in sums) == sum(traffic["bytes_up"].values()) > 0
    both = sum(traffic["bytes_down"].values()) + sum(traffic["bytes_up"].values())
    assert traffic["bytes_per_client"] == pytest.approx(both / 6)
    assert sums[-1]["purpose"] == "agreement"
    assert [one["contributors"] for one in sums] == [6] * len(sums)


def test_masked_and_plain_find_the_same_centroids(invoke, words, tmp_path) -> None:
    for protocol in ("plain", "masked"):
        invoke(*words, "--protocol", protocol, "--out", tmp_path / protocol)
    plain, masked = read(tmp_path / "plain"), read(tmp_path / "masked")
    np.testing.assert_allclose(plain["centroids"], masked["centroids"], rtol=0, atol=1e-8)
    assert "every single client" in plain["server_saw"]
    assert "totals" in masked["server_saw"]


def test_json_on_stdout_is_the_result_file(invoke, words, tmp_path) -> None:
    found = invoke(*words, "--protocol", "plain", "--out", tmp_path / "run", "--json", "--quiet")
    assert found.stdout == (tmp_path / "run" / "result.json").read_text()
    assert found.stderr == ""


def test_the_table_names_what_counts(invoke, words, tmp_path) -> None:
    text = invoke(*words, "--protocol", "plain", "--out", tmp_path / "run").stdout
    for word in ("dwf, 3 clusters", "every single client", "6, 150", "converged", "v-measure"):
        assert word in text


def test_without_a_label_no_agreement_is_asked_for(invoke, iris, tmp_path) -> None:
    columns = "petal length,petal width"
    words = ["--group", "hospital", "--columns", columns, "-k", 2, "--protocol", "plain"]
    invoke("fit", iris, *words, "--out", tmp_path / "run")
    result = read(tmp_path / "run")
    assert result["agreement"] is None
    assert result["columns"] == columns.split(",")
    assert result["sums"][-1]["purpose"] == "score"


def test_lloyd_is_dwf_with_one_local_step(invoke, words, iris, tmp_path) -> None:
    invoke(*words, "--algorithm", "lloyd", "--protocol", "plain", "--out", tmp_path / "run")
    tables = load_clients(iris, group="hospital", label="species")
    model = DWFKMeans(3, local_iter=1, protocol="plain").fit(tables.arrays)
    np.testing.assert_array_equal(read(tmp_path / "run")["centroids"], model.cluster_centers_)


def test_each_client_has_a_bound_of_its_own_on_its_rows(invoke, words, iris, tmp_path) -> None:
    tables = load_clients(iris, group="hospital", label="species")
    sizes = tuple(map(len, tables.arrays))
    named = ",".join(f"{name}={size}" for name, size in zip(tables.names, sizes, strict=True))
    spoken = ("--low", "0", "--high", "8", "--max-rows", named, "--protocol", "masked")
    invoke(*words, *spoken, "--out", tmp_path / "run")
    assert Transcript.load(tmp_path / "run").configuration.max_rows == sizes


def test_every_word_reaches_the_estimator(invoke, words, iris, tmp_path) -> None:
    spoken = "--algorithm ewf --local-iter 3 --learning-rate 0.9 --momentum 0.1 --tol 0.01 --max-iter 20 "
    spoken += "--min-iter 4 --patience 15 --n-init 2 --init kfed --clients-per-round 4 --seed 7 "
    spoken += "--low 0,0,0,0 --high 8 --max-rows 64 --protocol plain --separator ,"
    invoke(*words, *spoken.split(), "--out", tmp_path / "run")
    tables = load_clients(iris, group="hospital", label="species")
    model = EWFKMeans(
        3,
        local_iter=3,
        learning_rate=0.9,
        momentum=0.1,
        tol=0.01,
        max_iter=20,
        min_iter=4,
        patience=15,
        n_init=2,
        init="kfed",
        clients_per_round=4,
        protocol="plain",
        domain=Box(0, 8, max_rows=64),
        random_state=7,
    )
    # Clients are drawn by name, so that they need their names here too.
    kept = Transcript.load(tmp_path / "run").configuration
    groups = np.repeat(tables.names, [len(rows) for rows in tables.arrays])
    with pytest.warns(ConvergenceWarning, match="each round asks other clients"):
        by_name = model.fit(np.concatenate(tables.arrays), groups=groups)
    fitted = by_name.transcript_.configuration
    # The command line agrees on the metrics of the labels besides, as it is given their column.
    assert kept.program is not None and fitted.program is not None
    assert kept.program.metrics[: len(fitted.program.metrics)] == fitted.program.metrics
    program = msgspec.structs.replace(kept.program, metrics=fitted.program.metrics)
    # A table's columns are agreed on by name; an array has none.
    assert kept.columns == tables.columns
    assert fitted == msgspec.structs.replace(kept, program=program, columns=None)
    np.testing.assert_array_equal(read(tmp_path / "run")["centroids"], model.cluster_centers_)


def test_metrics_are_agreed_on_asked_and_written(invoke, words, tmp_path) -> None:
    out, named = tmp_path / "run", "davies_bouldin, mean_distance"
    shown = invoke(*words, "--protocol", "plain", "--max-iter", 3, "--metrics", named, "--out", out)
    program = Transcript.load(out).configuration.program
    assert program is not None
    assert [one.fields["name"] for one in program.metrics] == ["ClusterDistances"] * 2 + ["Contingency"]
    found = read(out)["metrics"]
    tables = load_clients(words[1], group="hospital", label="species")
    centers = np.array(read(out)["centroids"])
    assert found == pytest.approx(
        {
            "davies_bouldin": metrics.davies_bouldin(tables.arrays, centers, protocol="plain"),
            "mean_distance": metrics.mean_distance(tables.arrays, centers, protocol="plain"),
        }
    )
    assert "davies_bouldin" in shown.stdout
    before = read(out)
    invoke("resume", out)
    assert read(out)["metrics"] == found
    assert len(read(out)["sums"]) == len(before["sums"])


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ("--metrics silhouette", "there is no metric 'silhouette'; take calinski_harabasz"),
        ("--metrics inertia,inertia", "--metrics names 'inertia' 2 times"),
        ("--metrics davies_bouldin -k 1", "--metrics davies_bouldin compares clusters; take -k 2"),
        ("--metrics inertia --algorithm fedavg", "--metrics is for clusterings"),
        (
            "--metrics inertia --algorithm dp --epsilon 1 --delta 1e-6 --unit record --neighbours add-remove "
            "--low 0 --high 9 --clients h1,h2,h3,h4,h5,h6",
            "--epsilon is spent on the fit",
        ),
    ],
)
def test_metrics_that_cannot_be_asked_are_refused_before_anything_is(words, failing, tmp_path, bad, text):
    assert text in failing(*words, "--protocol", "plain", "--out", tmp_path / "run", *bad.split())
    assert not (tmp_path / "run").exists()


def test_an_index_that_is_not_defined_is_written_as_null(invoke, tmp_path) -> None:
    (tmp_path / "same.csv").write_text("group,x\n" + "a,1\nb,1\n" * 3)
    line = ("fit", tmp_path / "same.csv", "--group", "group", "-k", 2, "--protocol", "plain")
    shown = invoke(*line, "--metrics", "davies_bouldin,inertia", "--out", tmp_path / "run")
    assert read(tmp_path / "run")["metrics"] == {"davies_bouldin": None, "inertia": 0.0}
    assert "not defined" in shown.stdout


def test_other_kinds_of_files_give_the_same_result(invoke, words, iris, tmp_path) -> None:
    invoke(*words, "--protocol", "plain", "--out", tmp_path / "csv")
    packed = tmp_path / "iris2.csv.gz"
    packed.write_bytes(gzip.compress(iris.read_bytes()))
    invoke("fit", packed, *words[2:], "--protocol", "plain", "--out", tmp_path / "gz")
    assert read(tmp_path / "gz")["centroids"] == read(tmp_path / "csv")["centroids"]


def test_labels_of_an_npz_file_are_not_scored_unless_they_are_named(invoke, tmp_path) -> None:
    data = load_iris()
    np.savez(tmp_path / "iris.npz", X=data.data, y=data.target, client=np.arange(150) % 5)
    base = ["fit", tmp_path / "iris.npz", "-k", 3, "--protocol", "plain"]
    invoke(*base, "--out", tmp_path / "without")
    invoke(*base, "--label", "y", "--out", tmp_path / "with")
    assert read(tmp_path / "without")["agreement"] is None
    assert read(tmp_path / "with")["agreement"]["accuracy"] > 0.8


def test_names_with_brackets_and_colons_are_no_markup(invoke, tmp_path) -> None:
    table = tmp_path / "odd.csv"
    rows = "".join(f"[red]c{i % 3}:smile:,{i}.5,{i % 7}\n" for i in range(30))
    table.write_text("client,[bold]a,b:x:\n" + rows)
    words = ["--group", "client", "-k", 2, "--protocol", "plain", "--out", tmp_path / "[b]run"]
    assert "[b]run" in invoke("fit", table, *words).stdout
    assert read(tmp_path / "[b]run")["clients"][0] == "[red]c0:smile:"


def test_one_column_and_one_cluster_can_be_drawn(invoke, tmp_path) -> None:
    table = tmp_path / "one.csv"
    table.write_text("client,a\n" + "".join(f"c{i % 3},{i}\n" for i in range(30)))
    for k in (1, 9):
        words = ["--group", "client", "-k", k, "--protocol", "plain", "--out", tmp_path / f"run{k}"]
        invoke("fit", table, *words, "--picture")
        assert (tmp_path / f"run{k}" / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        slow(("minibatch", "--epochs 2 --batch-size 10 --max-iter 20")),
        slow(("fkm", "--min-cluster-size 1 --max-iter 3")),
        slow(("kfed", "--min-cluster-size 1 --n-local-clusters 2")),
        ("fuzzy", "--fuzzifier 1.5 --averaging weighted --max-iter 10"),
    ],
)
def test_every_algorithm_can_be_named_with_its_words(
    invoke: Callable[..., Result], iris: Path, tmp_path: Path, algorithm: str, words: str
) -> None:
    out = tmp_path / "run"
    options = (
        "-k",
        "3",
        "--algorithm",
        algorithm,
        *words.split(),
        "--group",
        "hospital",
        "--label",
        "species",
    )
    found = json.loads(invoke("fit", iris, *options, "--out", out, "--quiet", "--json").stdout)
    assert found["algorithm"] == algorithm
    assert np.shape(found["centroids"]) == (3, 4)
    assert found["agreement"]["accuracy"] > 0.8
    again = json.loads(invoke("resume", out, "--quiet", "--json").stdout)
    assert again["centroids"] == found["centroids"]


def test_differential_privacy_is_claimed_in_full_or_not_at_all(
    invoke: Callable[..., Result], iris: Path, tmp_path: Path
) -> None:
    options = (
        "-k",
        "3",
        "--algorithm",
        "dp",
        "--group",
        "hospital",
        "--label",
        "species",
        "--low",
        0,
        "--high",
        8,
        "--clients",
        "h1,h2,h3,h4,h5,h6",
    )
    claim = ("--epsilon", 5, "--delta", "1e-6", "--unit", "record", "--neighbours", "add-remove")
    found = json.loads(
        invoke("fit", iris, *options, *claim, "--out", tmp_path / "r", "--quiet", "--json").stdout
    )
    assert found["inertia"] is None and found["score"] is None and found["agreement"] is None
    assert np.shape(found["centroids"]) == (3, 4)
    assert len(list((tmp_path / "r" / "clients").glob("*.ledger"))) == 6
    again = json.loads(invoke("resume", tmp_path / "r", "--quiet", "--json").stdout)
    assert again["centroids"] == found["centroids"]
    said = invoke("fit", iris, *options, *claim[:2], "--out", tmp_path / "s", exit_code=2).stderr
    assert "missing: --delta, --unit, --neighbours" in said
    said = invoke("fit", iris, *options, "--noise", "local", "--out", tmp_path / "t", exit_code=2).stderr
    assert "missing: --epsilon, --delta, --unit, --neighbours" in said


@pytest.mark.parametrize(("noise", "mechanism"), [("local", "gaussian"), ("distributed", "skellam")])
def test_fit_takes_who_adds_which_noise(
    invoke: Callable[..., Result], iris: Path, tmp_path: Path, noise: str, mechanism: str
) -> None:
    claim = ("--epsilon", 5, "--delta", "1e-6", "--unit", "record", "--neighbours", "add-remove")
    options = ("--group", "hospital", "--label", "species", "--low", 0, "--high", 8, "--algorithm", "dp")
    options += ("--clients", "h1,h2,h3,h4,h5,h6")
    said = ("--noise", noise, "--mechanism", mechanism, "-k", 3, "--out", tmp_path / "r", "--quiet")
    invoke("fit", iris, *options, *claim, *said)
    terms = Transcript.load(tmp_path / "r").configuration.privacy
    assert terms is not None
    assert (terms.noise, terms.mechanism) == (noise, mechanism)


def test_under_privacy_no_number_of_rows_leads_to_an_error(
    invoke: Callable[..., Result], failing: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "few.csv").write_text("g,a\n" + "".join(f"c{i % 4},{i % 3}\n" for i in range(8)))
    options = (
        tmp_path / "few.csv",
        "--group",
        "g",
        "-k",
        9,
        "--low",
        0,
        "--high",
        2,
        "--clients",
        "c0,c1,c2,c3",
        "--out",
        tmp_path / "r",
    )
    assert "9 clusters" in failing("fit", *options)
    claim = ("--epsilon", 5, "--delta", "1e-6", "--unit", "record", "--neighbours", "add-remove")
    found = json.loads(invoke("fit", *options, "--algorithm", "dp", *claim, "--quiet", "--json").stdout)
    assert np.shape(found["centroids"]) == (9, 1)


def test_a_run_that_did_not_converge_is_marked_with_the_options_that_help(invoke, words, tmp_path) -> None:
    short = [*words, "--protocol", "plain", "--max-iter", 2, "--init", "random"]
    found = invoke(*short, "--out", tmp_path / "run")
    assert "2 (not converged)" in found.stdout and "--max-iter 2" in found.stdout
    # Python's own warning, with a path of the library, is kept from people.
    assert "Warning" not in found.stderr
    result = read(tmp_path / "run")
    assert result["converged"] is False and "max_iter=2" in result["remedy"]


def test_a_run_of_fixed_rounds_is_not_marked(invoke, words, tmp_path) -> None:
    found = invoke(*words, "--protocol", "plain", "--max-iter", 2, "--tol", 0, "--out", tmp_path / "run")
    assert "not converged" not in found.stdout
    result = read(tmp_path / "run")
    assert result["converged"] is None and result["remedy"] == ""
