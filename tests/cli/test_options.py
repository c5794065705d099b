"""Options follow from declared parameters, also of one's own algorithm; errors name options."""

import inspect
import json
import re
import warnings
from pathlib import Path

import click
import pytest

from privfed import DPKMeans
from privfed.cli.main import main
from privfed.cli.program import PARTS, in_options
from privfed.cli.settings import Setting, own_settings
from privfed.core.names import imported
from privfed.estimators.declaring import parameters_of
from privfed.estimators.registry import DECLARED, ESTIMATORS, SHORT, TRAINED
from tests.command_line import PYTHON, subcommands
from tests.some import some

OWN = '''
from typing import Literal

import numpy as np

from privfed import DWFKMeans, metrics
from privfed.errors import ArgumentError
from privfed.estimators.declaring import parameter, parameters


@parameters
class Binned(DWFKMeans):
    """Weighted k-means with at most as many rounds as bins."""

    n_bins: int = parameter(default=4, text="bins of nothing.")
    order: Literal["up", "down"] = parameter(default="up", text="which way they go.")
    sharp: bool = parameter(default=False, text="whether they are sharp.")

    def make_algorithm(self, n_features, seed):
        if self.n_bins < 1:
            message = f"n_bins must be at least 1, got n_bins={self.n_bins}."
            raise ArgumentError(message, parameters=["n_bins"])
        self.max_iter = self.n_bins
        return super().make_algorithm(n_features, seed)


def halved(clients, centers, **options):
    """Return half the inertia."""
    return metrics.inertia(clients, centers, **options) / 2


NO_METRIC = 3
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a module with an algorithm and a metric; return the algorithm's name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"binned_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(OWN)
    return f"{name}:Binned"


def test_parameters_of_an_algorithm_of_ones_own_are_options(invoke, failing, words, own) -> None:
    mine = ("--algorithm", own, "--n-bins", 2, "--order", "down", "--sharp")
    invoke(*words, *mine, "--protocol", "plain", "--out", "run")
    asked = json.loads(Path("run/run.json").read_text())["parameters"]["words"]
    assert (asked["n_bins"], asked["order"], asked["sharp"]) == (2, "down", True)
    assert json.loads(Path("run/result.json").read_text())["n_iter"] <= 2
    invoke("resume", "run", "--algorithm", own)
    base = [one for one in words[1:] if one not in ("-k", 3)]
    invoke("select-k", *base, *mine, "--protocol", "plain", "--max-k", 2, "--out", "selected")
    shown = invoke("fit", "--algorithm", own, "--help").stdout
    assert "--n-bins INTEGER" in shown and "--fuzzifier" not in shown
    assert "--fuzzifier" in invoke("fit", "--algorithm", "fuzzy", "--help").stdout
    assert failing(*words, "--algorithm", own, "--n-bins", 0, "--out", "no").startswith(
        "--n-bins must be at least 1, got --n-bins 0"
    )
    assert "'side' is not one of 'up', 'down'" in failing(*words, "--algorithm", own, "--order", "side")
    refused = failing(*words, "--n-bins", 2)
    assert "No such option" in refused and "--n-bins" in refused


def test_so_are_those_of_a_registered_one(invoke, words, own, monkeypatch) -> None:
    monkeypatch.setitem(ESTIMATORS._things, "binned", ESTIMATORS.resolve(own))
    invoke(*words, "--algorithm", "binned", "--n-bins", 1, "--protocol", "plain", "--out", "run")
    assert json.loads(Path("run/result.json").read_text())["n_iter"] == 1


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_a_metric_of_ones_own_is_measured(invoke, failing, words, own, protocol) -> None:
    module = own.partition(":")[0]
    mine = ("--metrics", f"inertia,{module}:halved", "--protocol", protocol)
    said = json.loads(invoke(*words, *mine, "--json", "--out", "run").stdout)["metrics"]
    assert said[f"{module}:halved"] == pytest.approx(said["inertia"] / 2) and said["inertia"] > 0
    assert "name it again" in failing("resume", "run")
    again = invoke("resume", "run", "--metrics", f"{module}:halved", "--json").stdout
    assert json.loads(again)["metrics"] == pytest.approx(said)
    assert "is none" in failing(*words, "--metrics", f"{module}:NO_METRIC", "--out", "no")


def test_every_parameter_that_text_can_stand_for_is_an_option() -> None:
    options = {one.name for one in own_settings()}
    others = {"cohorts", "loss", "n_classes", "n_clusters", "nominal", "optimizer", "weights"}
    for name in some((*SHORT, *TRAINED)):
        group = imported(DECLARED[name])
        assert isinstance(group, type)
        own = {one for base in group.__mro__ for one in vars(base).get("_own_parameters", {})}
        surroundings = {"protocol", "privacy", "engine", "policy", "domain", "run_dir", "random_state"}
        assert own - surroundings - others <= options
        assert set(parameters_of(group)) == own


def test_an_option_is_called_like_its_parameter() -> None:
    fit = main.commands["fit"]
    parameters = {
        name for one in (*SHORT, *TRAINED) for name in ESTIMATORS.find(one)().get_params(deep=False)
    }
    assert {one.name for one in fit.get_params(click.Context(fit)) if isinstance(one, Setting)} <= parameters
    assert PARTS.keys() - {"client_names", "range", "order"} <= parameters
    assert "client_names" in inspect.signature(DPKMeans.fit).parameters


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        (
            "n_clusters must be at least 1, got n_clusters=0.",
            ["n_clusters"],
            "--n-clusters must be at least 1, got --n-clusters 0.",
        ),
        (
            "m must lie in (1, 9], got m=1.0; the papers take m=2.",
            ["m"],
            "--fuzzifier must lie in (1, 9], got --fuzzifier 1.0; the papers take --fuzzifier 2.",
        ),
        (
            'init="kfed" found nothing; use init="coreset".',
            [],
            "--init kfed found nothing; use --init coreset.",
        ),
        ("one a client (columns=).", [], "one a client (--columns)."),
        ("it needs privacy=...", [], "it needs --epsilon, --delta, --unit and --neighbours"),
        (
            "use DWFKMeans(local_iter=1, tol=0), KFED, or DPKMeans.",
            [],
            "use --algorithm dwf with --local-iter 1, --tol 0, --algorithm kfed, or --algorithm dp.",
        ),
        ("runs/KFED.csv of 'FKM' has DWFKMeans2", [], "runs/KFED.csv of 'FKM' has DWFKMeans2"),
        ("keep a share with spare=....", [], "keep a share with --spare."),
        # What is no parameter stays what it is: files, columns, other words.
        ("/data/tol=0.1/n_init.csv has no 'max_iter'.", [], "/data/tol=0.1/n_init.csv has no 'max_iter'."),
        ("hospital=1.csv does not exist.", [], "hospital=1.csv does not exist."),
        ("the noise is of a unit.", [], "the noise is of a unit."),
        (
            'use merge="summed", or (in Python) protocol=Slotted(Masked(), sums=3).',
            [],
            "use --merge summed, or (in Python) protocol=Slotted(Masked(), sums=3).",
        ),
        (
            "give n_init=2. In Python: FederatedScaler(privacy=budget.take(.1)).",
            [],
            "give --n-init 2. In Python: FederatedScaler(privacy=budget.take(.1)).",
        ),
    ],
)
def test_a_message_names_options(text: str, parameters: list[str], expected: str) -> None:
    above = main.make_context("privfed", ["fit", "."])
    with main.commands["fit"].make_context("fit", ["."], parent=above):
        assert in_options(text, parameters) == expected


def test_a_message_of_an_attack_names_the_option_of_public_rows() -> None:
    above = main.make_context("privfed", ["attack", "run"])
    with subcommands(main)["attack"].make_context("attack", ["."], parent=above):
        assert (
            in_options("pass rows, Prior(sample=...), or their ranges.")
            == "pass rows, --public, or their ranges."
        )


def test_the_pattern_of_python_finds_it() -> None:
    for text in ("got n_init=0", "pass Prior(sample=...)", "take fewer n_clusters", "(client=)"):
        assert re.search(PYTHON, text), text
    for text in ("--n-init 0", "/tmp/a=b/n_init", "no column 'max_iter'", "select_k.csv", "0 <= 5"):
        assert not re.search(PYTHON, text), text


def test_warnings_are_one_line_each_in_the_same_words(invoke, iris, tmp_path) -> None:
    claim = [
        "--epsilon",
        "20",
        "--delta",
        "1e-6",
        "--unit",
        "record",
        "--neighbours",
        "add-remove",
        "--low",
        "0",
        "--high",
        "8",
    ]
    words = ["fit", iris, "--group", "hospital", "--clients", "h1,h2,h3,h4,h5,h6", *claim]
    words += ["--columns", "petal length", "--algorithm", "dp"]
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = invoke(*words, "--quiet", "--out", tmp_path / "run").stderr
    assert shown == "privfed: warning: --epsilon 20.0 promises very little; usual are 0.1 to 10.\n"
