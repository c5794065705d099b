"""Models of one's own over nodes, and models from the command line."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, load
from privfed.deep import FedAvg
from privfed.deep.training.trainer import MODELS, trainer_of
from privfed.errors import (
    ArgumentError,
    RefusedError,
)
from privfed.nodes.commands import federations
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower.node import Node
from privfed.nodes.flower.settings import NodeSettings
from tests.cli.wide import run
from tests.nodes.flower.models import (
    WORDS,
    assert_same_models,
    here,
    labelled,
    over,
)
from tests.nodes.flower.test_models import line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return labelled(tmp_path / "fed")


OWN = """
import numpy as np
from privfed.deep import MODELS
from privfed.deep.training.trainer import SoftmaxRegression

class Halved(SoftmaxRegression):
    def gradient(self, parameters, features, labels):
        return 0.5 * super().gradient(parameters, features, labels)

MODELS.add("halved", Halved)
"""


@pytest.mark.slow
def test_a_model_of_ones_own_runs_where_nodes_owners_have_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halved_softmax.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("halved_softmax")
    engine, _ = over(folder)
    with monkeypatch.context() as patched:
        # Nodes are processes of their own, which have not imported it.
        patched.setattr(Node, "answer", without_model(Node.answer))
        with pytest.raises(RefusedError) as refused:
            FedAvg("halved", **WORDS, engine=engine).fit()
    assert set(refused.value.codes.values()) == {"agreement:program"}
    assert "model must be one of softmax" in (nodes_of(folder)[0] / "log" / "0.log").read_text()
    for node in nodes_of(folder):
        settings = (node / "node.toml").read_text()
        (node / "node.toml").write_text(f'modules = ["halved_softmax"]\n{settings}')
        assert NodeSettings.read(node).modules == ("halved_softmax",)
    fitted = FedAvg("halved", **WORDS, engine=engine).fit()
    assert_same_models(fitted, here(FedAvg("halved", **WORDS)))
    assert fitted.models_.tobytes() != here(FedAvg(**WORDS)).models_.tobytes()


def without_model(answer: Callable[[Node, Any], Any]) -> Callable[[Node, Any], Any]:
    def forgetful(self: Node, message: Any) -> Any:
        with pytest.MonkeyPatch.context() as patched:
            patched.delitem(MODELS._things, "halved")
            trainer_of.cache_clear()
            return answer(self, message)

    return forgetful


def test_a_module_of_this_process_is_an_error_that_names_the_way(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    engine, network = over(folder)
    with pytest.raises(ArgumentError, match=r"model=Linear is code of this process.*MODELS\.add.*node\.toml"):
        FedAvg(torch.nn.Linear(4, 3), **WORDS, engine=engine).fit()
    assert network.trips == 0


@pytest.mark.parametrize("algorithm", ["fedavg", pytest.param("dcfl", marks=pytest.mark.slow)])
def test_models_are_trained_from_the_command_line(
    algorithm: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    words = ("--algorithm", algorithm, "--classes", "red,green,blue", "--rounds", 2, "--low", 0, "--high", 1)
    said = run("flower", "run", folder, *words, "--seed", 1, "--out", tmp_path / "run").stdout
    model = load(tmp_path / "run" / "model.npz")
    own = here(type(model)(n_classes=3, rounds=2, random_state=1, domain=Box(0, 1)))
    np.testing.assert_array_equal(model.models_, own.models_)
    assert f"{len(own.models_)} models of 15 parameters, after 2 rounds" in said
    assert all(line(node).closed for node in nodes_of(folder))
    rows = np.random.default_rng(0).uniform(0.0, 1.0, (20, 4))
    table, kept = tmp_path / "new.csv", json.loads((tmp_path / "run" / "classes.json").read_text())
    np.savetxt(table, rows, delimiter=",", header=",".join(kept["columns"]), comments="", fmt="%.17g")
    last = len(own.models_) - 1
    given = run("predict", tmp_path / "run", table, *(("--cluster", last) if last else ())).stdout.split()
    names = np.array(["red", "green", "blue"])
    assert given == ["class", *names[own.predict(rows, last)].tolist()]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name the classes with --classes"),
        (("--classes", "a,b,c", "--metrics", "inertia"), "--metrics are of centroids"),
        (("--module", "no_such_module"), "no_such_module cannot be imported here"),
    ],
)
def test_what_models_lack_on_the_command_line_is_said(
    words: tuple[str, ...], why: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    command = ("flower", "run", folder, "--algorithm", "fedavg")
    found = run(*command, *words, "--out", tmp_path / "r", exit_code=2)
    assert why in found.stderr
