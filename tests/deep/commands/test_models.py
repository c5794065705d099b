"""`privfed fit --algorithm dcfl` and its like: what is written, and that Python agrees."""

import csv
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privfed
from privfed.core.record.transcript import Transcript
from privfed.deep import DCFL, MODELS
from privfed.federation.driver import Federation
from privfed.privacy.claim import PrivacySpent
from tests.cli.wide import run
from tests.deep.population import clients, kinds, same

LEARNING = ("--rounds", 4, "--epochs", 2, "--batch-size", 8, "--learning-rate", 0.5, "--quiet")
PLAIN = ("--protocol", "plain")
CLEAR = (*PLAIN, "--merge", "gathered")
BOX = ("--low", 0, "--high", 1)
UNIT = ("--unit", "record", "--neighbours", "add-remove", "--noise", "local")
CLAIM = ("--epsilon", 8, "--delta", "1e-6", *UNIT)
ALL = ("--clients", "c0,c1,c2,c3,c4,c5")
DECLARED = (*ALL, "--classes", "x,y,z", "--rows-per-client", 40)


def write(path: Path, seed: int = 0, n: int = 6, names: str = "xyz") -> Path:
    X, y = clients(n, seed=seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["client", "a", "b", "d", "e", "kind"])
        for i, (rows, labels) in enumerate(zip(X, y, strict=True)):
            writer.writerows(
                [f"c{i}", *row, names[label]] for row, label in zip(rows.tolist(), labels, strict=True)
            )
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, public rows, a run of DCFL and one by DP-SGD."""
    folder = tmp_path_factory.mktemp("models")
    words = ("fit", write(folder / "t.csv"), "--group", "client", "--label", "kind", *BOX)
    write(folder / "public.csv", seed=9, n=3)
    run(*words, "--algorithm", "dcfl", *LEARNING, *CLEAR, "--out", folder / "run")
    noised = ("--rounds", 2, "--sample-rate", 0.5, "--noise-multiplier", 3, *PLAIN)
    run(*words, "--algorithm", "fedavg", *noised, *CLAIM, *DECLARED, "--quiet", "--out", folder / "noised")
    return folder


def read(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_text())


def test_the_command_line_trains_the_models_that_python_does(home: Path) -> None:
    X, y = clients(6)
    words = {"rounds": 4, "epochs": 2, "batch_size": 8, "learning_rate": 0.5, "domain": privfed.Box(0, 1)}
    fitted = DCFL(n_classes=3, **words, protocol="plain", merge="gathered").fit(X, y)
    found, stored = read(home / "run"), privfed.load(home / "run" / "model.npz")
    assert np.array_equal(stored.models_, fitted.models_)
    assert same(np.array(list(found["clusters"].values())), kinds(6))
    assert (found["kind"], found["classes"], found["n_clusters"]) == ("models", ["x", "y", "z"], 3)
    assert list(found["accuracy"].values()) == [
        (fitted.predict(rows, fitted.labels_[i]) == y[i]).mean() for i, rows in enumerate(X)
    ]
    assert [one["changed"] for one in found["decided"]] == [one.changed for one in fitted.regrouped_]


def test_a_run_of_models_has_a_picture(home: Path) -> None:
    for name in ("run", "noised"):
        run("resume", home / name, "--quiet", "--picture")
        assert (home / name / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", [["profile"], ["measure", "t.csv", "--metrics", "inertia"]])
def test_what_asks_for_clusters_of_rows_says_that_models_have_none(home: Path, command: list[str]) -> None:
    name, *others = (home / one if one == "t.csv" else one for one in command)
    assert "has no clusters of rows" in " ".join(run(name, home / "run", *others, exit_code=2).stderr.split())


def test_it_says_what_was_found_and_show_what_ran(home: Path) -> None:
    said = run("resume", home / "run").stdout
    assert "3, found anew in" in said and "15 parameters, 3 classes" in said and "none claimed" in said
    shown = run("show", home / "run").stdout
    assert "DCFL" in shown and "learning_rate 0.5" in shown and "sketches" in shown


def test_rows_get_the_classes_of_a_clusters_model(home: Path) -> None:
    said = run("predict", home / "run", home / "public.csv", "--cluster", 1).stdout.split()
    rows = np.concatenate(clients(3, seed=9)[0])
    expected = privfed.load(home / "run" / "model.npz").predict(rows, 1)
    assert said == ["class", *("xyz"[code] for code in expected)]
    assert "name one with --cluster" in run("predict", home / "run", home / "public.csv", exit_code=2).stderr
    assert (
        "cluster must be"
        in run("predict", home / "run", home / "public.csv", "--cluster", 7, exit_code=2).stderr
    )


def test_the_claim_of_dp_sgd_is_the_same_everywhere(home: Path) -> None:
    model = privfed.load(home / "noised" / "model.npz")
    claim = model.privacy_spent_
    assert claim is not None and claim.epsilon == 8.0
    shown = json.loads(run("show", home / "noised", "--json").stdout)
    again = json.loads(run("resume", home / "noised", "--quiet", "--json").stdout)
    for one in (read(home / "noised"), shown, again):
        assert PrivacySpent.from_dict(one["privacy"]) == claim
        assert one["privacy"]["summary"] == claim.line
    found = read(home / "noised")
    assert (
        found["accuracy"] is None
        and found["clusters"] is None
        and found["noised"] == ["n_clusters", "decided"]
    )
    assert claim.line in run("predict", home / "noised", home / "public.csv").stderr
    said = run("fit", home / "t.csv", "--algorithm", "dcfl", "--help").stdout
    assert "dcfl" in said and "--classes" in said


def test_a_run_by_dp_sgd_cannot_be_audited_from_its_totals(home: Path) -> None:
    said = run("audit", home / "noised", exit_code=2).stderr
    assert "carry no noise" in said and "DP-SGD" in said and "epsilon 8" in said


def test_attacks_read_what_was_trained_and_sketched(home: Path, tmp_path: Path) -> None:
    words = ("--public", home / "public.csv", "--out", tmp_path / "a", "--json")
    found = json.loads(run("attack", home / "run", *words).stdout)
    linked, member = found["attacks"]["sketch-linkage"], found["attacks"]["model-membership"]
    assert linked["recovered"] > 0.5 > 2 * linked["baseline"] and 0.0 <= member["recovered"] <= 1.0
    assert found["attacks"]["differencing"]["status"] == "not applicable"
    words = ("--attack", "model-membership,sketch-linkage", *words[:-3], "--out", tmp_path / "b")
    said = run("attack", home / "noised", *words).stdout
    assert "epsilon 8" in said and "sketch-linkage was left out" in said
    assert "pass some with labels" in run("attack", home / "run", "--out", tmp_path / "c").stdout


def test_attacks_on_a_run_of_nodes_take_the_labels_that_its_folder_does_not_name(
    home: Path, tmp_path: Path
) -> None:
    """Nodes' labels are whole numbers, and some rows of theirs are left out."""
    for name in ("transcript.jsonl", "transcript.npz"):
        if (home / "run" / name).exists():
            shutil.copy(home / "run" / name, tmp_path)
    write(tmp_path / "t.csv", names="012")
    with (tmp_path / "t.csv").open("a") as file:
        file.write("c0,,.1,.1,.1,0\nc1,.1,.1,.1,.1,\n")
    public = write(tmp_path / "public.csv", seed=9, n=3, names="012")
    with public.open("a") as file:
        file.write("c0,.1,,.1,.1,0\nc1,.1,.1,.1,.1,\n")
    words = ("--attack", "model-membership,sketch-linkage", "--json")
    expected = json.loads(
        run("attack", home / "run", *words, "--public", home / "public.csv", "--out", tmp_path / "a").stdout
    )["attacks"]
    truth = ("--truth", tmp_path / "t.csv", "--group", "client", "--missing", "leave-out")
    words = ("attack", tmp_path, *words, *truth)
    labels = ("--public", public, "--label", "kind")
    found = json.loads(run(*words, *labels, "--out", tmp_path / "b").stdout)["attacks"]
    for name, one in found.items():
        assert {**one, "key": "", "seconds": 0} == {**expected[name], "key": "", "seconds": 0}
    assert found.keys() == expected.keys()
    without = json.loads(run(*words, "--columns", "a,b,d,e", "--out", tmp_path / "c").stdout)
    assert "name their column with --label" in without["left_out"]["sketch-linkage"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--algorithm", "dcfl", "--label", "kind", "-k", 3), "takes no --n-clusters"),
        (("--algorithm", "dcfl"), "name their column with --label"),
        (("--algorithm", "dwf", "--label", "kind", "--classes", "x"), "--classes is for models"),
        (("--algorithm", "fedavg", "--label", "kind", "--metric", "cosine"), "takes no --metric"),
        (("--algorithm", "dcfl", "--label", "kind", "--model", "resnet"), "none of softmax"),
        (("--algorithm", "dcfl", "--label", "kind", "--sketch-error", 2), "--sketch-error must"),
        (
            ("--algorithm", "fedavg", "--label", "kind", "--epsilon", 1),
            "missing: --delta, --unit, --neighbours, --low, --high, --clients, --classes, --rows-per-client, "
            "--noise local.",
        ),
        (
            ("--algorithm", "fedavg", "--label", "kind", *BOX, *CLAIM, "--clients", "c0,c1,c2,c3,c4,c5"),
            "missing: --classes, --rows-per-client",
        ),
        (
            ("--algorithm", "fedavg", "--label", "kind", *BOX, *CLAIM, *DECLARED[:2], *DECLARED[4:]),
            "missing: --classes. They must be declared",
        ),
        (("--algorithm", "ifca", "--label", "kind", "--cluster", 1), "No such option"),
    ],
)
def test_words_that_do_not_fit_are_one_clear_line(
    home: Path, tmp_path: Path, words: tuple[Any, ...], message: str
) -> None:
    said = run(
        "fit", home / "t.csv", "--group", "client", *words, "--out", tmp_path / "r", exit_code=2
    ).stderr
    assert message in said
    assert not (tmp_path / "r").exists()


def test_a_number_of_clusters_is_taken(home: Path, tmp_path: Path) -> None:
    words = ("--group", "client", "--label", "kind", "--rounds", 2, "--quiet", "--out", tmp_path / "r")
    run("fit", home / "t.csv", "--algorithm", "ifca", "-k", 2, *words)
    assert read(tmp_path / "r")["n_clusters"] == 2
    with np.load(tmp_path / "r" / "model.npz", allow_pickle=False) as file:
        assert file["models"].shape == (2, 15)


def test_a_run_that_was_stopped_goes_on(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--group", "client", "--label", "kind", *BOX, *LEARNING, *CLEAR)
    ask = Federation.ask

    def stopped(self: Federation, asked: Any) -> Any:
        if self._index == 2:
            raise KeyboardInterrupt
        return ask(self, asked)

    with monkeypatch.context() as patched:
        patched.setattr(Federation, "ask", stopped)
        run("fit", home / "t.csv", "--algorithm", "dcfl", *words, "--out", tmp_path / "r", exit_code=130)
    assert len(Transcript.load(tmp_path / "r").totals()) == 2
    run("resume", tmp_path / "r", "--quiet")
    own, whole = (privfed.load(one / "model.npz").models_ for one in (tmp_path / "r", home / "run"))
    assert np.array_equal(own, whole)


def test_a_model_that_is_no_torch_module_or_lacks_the_extra_is_said(home: Path, tmp_path: Path) -> None:
    words = ("--group", "client", "--label", "kind", "--algorithm", "fedavg", "--rounds", 2, "--quiet")
    asked = ("fit", home / "t.csv", *words, "--model", f"{__name__}:NO_MODULE", "--out", tmp_path / "r")
    said = run(*asked, exit_code=2).stderr
    assert "torch module" in said and said.count("\n") == 1
    if find_spec("torch") is None:
        assert "privfed[deep]" in said


NO_MODULE = object()


OWN = """
import torch
from privfed.deep import MODELS
from privfed.deep.training.torch_trainer import TorchTrainer

torch.manual_seed(0)
NET = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))

def halved(scores, labels):
    return 0.5 * torch.nn.functional.cross_entropy(scores, labels)

def own(n_features, n_classes):
    return TorchTrainer(NET, halved, torch.optim.Adam)

MODELS.add("own-net", own)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the last updates of")  # Adam takes steps of its own length.
@pytest.mark.parametrize("name", ["NET", "own"])
def test_a_model_of_ones_own_is_named_again_for_attacks_and_predictions(
    name: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch module, or what its module registers, with a loss and an optimizer."""
    pytest.importorskip("torch")
    place = f"own_net_{name}"
    (tmp_path / f"{place}.py").write_text(OWN.replace("own-net", place))
    monkeypatch.syspath_prepend(tmp_path)
    model = ("--model", f"{place}:{name}")
    words = ("--group", "client", "--label", "kind", *BOX, *LEARNING, *PLAIN, "--algorithm", "fedavg")
    run("fit", home / "t.csv", *words, *model, "--out", tmp_path / "r")
    fitted = privfed.load(tmp_path / "r")
    rows = clients(6)[0][0]
    classes = np.array(list("xyz"))[fitted.predict(rows)].tolist()
    # In another process nothing is registered, and the module is imported again.
    monkeypatch.setattr(MODELS, "_things", {})
    monkeypatch.delitem(sys.modules, place)
    attack = ("attack", tmp_path / "r", "--attack", "model-membership", "--public", home / "public.csv")
    assert f"privfed attack {tmp_path / 'r'} --model {place}:{name}" in run(*attack, exit_code=2).stderr
    found = json.loads(run(*attack, *model, "--json", "--no-picture").stdout)["attacks"]["model-membership"]
    assert 0.0 <= found["recovered"] <= 1.0
    said = run("predict", tmp_path / "r", home / "t.csv", *model).stdout.splitlines()
    assert [one["class"] for one in csv.DictReader(said)][: len(rows)] == classes


@pytest.mark.filterwarnings("default:clusters were not worth it")
def test_a_result_says_whether_clusters_were_worth_it(home: Path, tmp_path: Path) -> None:
    """Clients are alike, and a high quantile splits them all the same."""
    rng, lines = np.random.default_rng(1), ["client,a,b,d,e,kind"]
    for i in range(9):
        for row in rng.uniform(size=(25, 4)):
            kind = "xyz"[int(rng.integers(3)) if rng.random() < 0.3 else int(row[:3].argmax())]
            lines.append(",".join([f"c{i}", *map(str, row.tolist()), kind]))
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    words = ("fit", tmp_path / "t.csv", "--group", "client", "--label", "kind", *BOX, "--algorithm", "dcfl")
    options = (*LEARNING, *CLEAR, "--rounds", 9, "--preference-quantile", 0.9)
    said = run(*words, *options, "--out", tmp_path / "run").stderr
    found, model = read(tmp_path / "run"), privfed.load(tmp_path / "run" / "model.npz")
    assert model.comparison_.loses and found["compared"] == model.comparison_.summary
    assert found["found"] == model.comparison_.found and "not worth it" in said
    assert "not worth it" in run("resume", tmp_path / "run").stdout
    assert read(home / "run")["compared"] is None
