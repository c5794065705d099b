"""docs/extending.md: its parts keep their contracts, and work in every command, in workers and after load."""

from __future__ import annotations

import ast
import csv
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import privfed
from privfed import extend
from privfed.core.names import ALGORITHMS
from tests.some import some
from tests.test_documents import ROOT, blocks, write_files

PAGE = ROOT / "docs" / "extending.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extending")
    assert len(write_files(PAGE, folder)) == 10
    rng = np.random.default_rng(0)
    rows = [f"h{i % 5},{x:.4f},{y:.4f}" for i, (x, y) in enumerate(rng.uniform(0.1, 5.0, (60, 2)))]
    (folder / "table.csv").write_text("\n".join(["clinic,x,y", *rows]))
    (study,) = (one.text for one in blocks(PAGE) if one.kind == "toml")
    (folder / "study.toml").write_text(study)
    return folder


def run(folder: Path, *words: str) -> str:
    path = os.pathsep.join([str(ROOT), str(folder), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_part_keeps_its_contract(folder: Path) -> None:
    tests = sorted(path.name for path in folder.glob("test_*.py"))
    assert len(tests) == 5
    said = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *tests)
    assert " passed" in said and "failed" not in said


def test_parts_import_the_extension_api_alone_and_the_algorithm_is_short(folder: Path) -> None:
    for path in some(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            privfed = {name for name in names if name.split(".")[0] == "privfed"}
            allowed = {"privfed.testing"} if path.name.startswith("test_") else set()
            assert privfed <= {"privfed.extend", *allowed}, path.name
    assert len((folder / "spherical.py").read_text().splitlines()) <= 60
    assert set(extend.__all__) <= set(re.findall(r"\w+", extend.__doc__ or ""))


def test_a_field_of_an_own_algorithm_is_a_parameter_of_its_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is registered here is forgotten with the test.
    monkeypatch.setattr(ALGORITHMS, "_things", {})

    @extend.register_algorithm
    class Sharper(extend.RoundsAlgorithm):
        power: int = extend.parameter(default=3, text="of the weights.", bounds="[2, inf)")
        drawn: int = 2

    class Sharp(extend.RoundsClusterer):
        """Sharp."""

        algorithm = Sharper

    class Twice(extend.RoundsClusterer):
        algorithm = Sharper
        power: int = extend.parameter(default=5, text="of the weights.", bounds="[2, inf)")

    assert Sharper(n_clusters=4) == Sharper(n_clusters=4, power=3, drawn=2)
    assert "power: of the weights." in (Sharp.__doc__ or "")
    assert "drawn" not in Sharp(3).get_params() and Twice(3).get_params()["power"] == 5
    kind: Any = extend.parameters(Sharp)
    assert kind is Sharp and kind(3).get_params()["power"] == 3
    made = kind(4, tol=0.5, power=7).make_algorithm(2, seed=1)
    assert isinstance(made, Sharper) and (made.n_clusters, made.tol, made.power) == (4, 0.5, 7)
    wrong: list[tuple[Any, str]] = [(kind(0), "n_clusters must be"), (kind(3, tol=-1.0), "tol must be")]
    wrong += [(kind(3, power=1), "power must be"), (kind(3, power=2.5), "power must be a whole number")]
    for one, said in wrong:
        with pytest.raises(extend.ArgumentError, match=said):
            one.make_algorithm(2, seed=1)


def test_a_dataclass_that_declares_a_parameter_is_refused_before_it_is_registered() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Written(extend.RoundsAlgorithm):
        power: int = extend.parameter(default=3, text="of the weights.")

    with pytest.raises(extend.ArgumentError, match="leave out @dataclass"):
        extend.register_algorithm(Written)
    assert "Written" not in ALGORITHMS


@pytest.mark.parametrize("text", [True, False])
def test_parameters_are_checked_whether_types_are_texts_or_not(
    text: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module with and one without `from __future__ import annotations`."""
    monkeypatch.setattr(ALGORITHMS, "_things", {})

    class Plain(extend.RoundsAlgorithm):
        pass

    two = Literal["a", "b"]
    types: dict[str, Any] = {"power": int, "how": two, "other": two | None, "on": bool}
    if text:
        types = {
            "power": "int",
            "how": "Literal['a', 'b']",
            "other": "Literal['a', 'b'] | None",
            "on": "bool",
        }
    body = {
        "algorithm": extend.register_algorithm(Plain),
        "power": extend.parameter(default=3, text="of the weights.", bounds="[2, inf)"),
        "how": extend.parameter(default="a", text="of two ways."),
        "other": extend.parameter(default=None, text="of two ways."),
        "on": extend.parameter(default=True, text="or off."),
    }
    kind: Any = type(
        "Typed",
        (extend.RoundsClusterer,),
        {"__annotations__": types, "__module__": __name__, "__doc__": "A.", **body},
    )
    kind(3, power=2, how="b", other="a", on=False).make_algorithm(2, seed=1)
    for wrong, said in (
        ({"power": 2.5}, "power must be a whole number"),
        ({"how": "c"}, "how must be"),
        ({"other": "c"}, "other must be None"),
        ({"on": 3}, "on must be True or False"),
    ):
        with pytest.raises(extend.ArgumentError, match=said):
            kind(3, **wrong).make_algorithm(2, seed=1)


def test_an_algorithm_in_the_place_of_its_estimator_is_said() -> None:
    with pytest.raises(extend.ArgumentError, match="name the estimator whose algorithm it is"):
        privfed.select_n_clusters([], estimator="privfed.algorithms.wf_kmeans:WeightedKMeans")


PRIVFED = ("-c", "from privfed.cli.main import main; main()")
TABLE = ("table.csv", "--group", "clinic", "--quiet")
MINE = ("--algorithm", "spherical:SphericalKMeans", "-k", "3")


@pytest.mark.slow
def test_every_part_works_in_the_commands(folder: Path) -> None:
    metric = ("--metrics", "cosine:mean_cosine")
    run(folder, *PRIVFED, "fit", *TABLE, *MINE, "--tol", "0.001", *metric, "--out", "run")
    run(folder, *PRIVFED, "resume", "run", *MINE[:2], *metric, "--quiet")
    run(folder, *PRIVFED, "predict", "run", "table.csv")
    run(folder, *PRIVFED, "attack", "run", *MINE[:2], "--attack", "lone_rows:LoneRows", "--quiet")
    run(folder, *PRIVFED, "fit", *TABLE, "--protocol", "shared_key:SharedKey", "-k", "3", "--out", "shared")
    lloyd = ("--algorithm", "lloyd", "--protocol", "plain", "-k", "3")
    run(folder, *PRIVFED, "fit", *TABLE, *lloyd, "--out", "plain")
    run(folder, *PRIVFED, "attack", "plain", "--attack", "lone_rows:LoneRows", "--client", "h0", "--quiet")
    select = ("select-k", *TABLE, "--max-k", "4", "--index", "cosine:MEAN_COSINE")
    run(folder, *PRIVFED, *select, "--algorithm", "spherical:SphericalKMeans", "--out", "selected")
    run(folder, *PRIVFED, "predict", "selected", "table.csv")
    load = "import privfed, spherical; privfed.load('run/model.npz', estimators=[spherical.SphericalKMeans])"
    run(folder, "-c", load)


@pytest.mark.slow
def test_the_algorithm_runs_over_the_nodes_of_one_machine_and_its_metric_after_it(folder: Path) -> None:
    run(folder, *PRIVFED, "flower", "local", *TABLE[:3], "--module", "spherical", "--out", "federation")
    metric = ("--metrics", "cosine:mean_cosine")
    said = run(folder, *PRIVFED, "flower", "simulate", "federation", *MINE, *metric, "--out", "over-nodes")
    assert "5 clients" in said and (folder / "over-nodes" / "model.npz").exists()
    assert re.search(r"cosine:mean_cosine 0\.\d+", said)


@pytest.mark.slow
def test_nodes_of_one_machine_answer_a_metric_of_ones_own(folder: Path, tmp_path: Path) -> None:
    """Nodes refused its question, which is agreed on alone: they approved names of algorithms only."""
    run(
        folder, *PRIVFED, "flower", "local", *TABLE[:3], "--module", "spherical", "--out", str(tmp_path / "f")
    )
    script = f"""
from pathlib import Path
import numpy as np
from cosine import mean_cosine
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from tests.nodes.flower.networks import Folders
out = Path({str(tmp_path / "f")!r})
with FlowerEngine(out, network=Folders(nodes_of(out))) as engine:
    print("found", mean_cosine(None, np.eye(2), engine=engine, protocol="masked"))
"""
    assert re.search(r"found 0\.\d+", run(folder, "-c", script))
    named = ("--module", "spherical", "--algorithms", "Spherical,SphericalSums", "--group-size", "1")
    join = ("flower", "join", str(tmp_path / "own"), "--data", "table.csv", "--columns", "x,y", *named)
    run(folder, *PRIVFED, *join, "--max-fits", "3")
    assert '"SphericalSums"' in (tmp_path / "own" / "node.toml").read_text()


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_a_move_knows_what_was_asked() -> None:
    """Ranges and parameters of the question, without keeping them in the frozen algorithm."""

    class Middle(extend.RoundsAlgorithm):
        inertia = False

        def ask(self, ranges: Any, centers: Any) -> Any:
            return extend.LloydSums(ranges=ranges, centers=centers)

        def move(self, question: Any, total: Any) -> Any:
            return np.tile((question.ranges.low + question.ranges.high) / 2, (len(question.centers), 1))

    class Middles(extend.RoundsClusterer):
        algorithm = extend.register_algorithm(Middle)

    box = extend.Box(0.0, 4.0, max_rows=10)
    model = Middles(2, max_iter=2, domain=box).fit([np.eye(2), np.eye(2) + 1.0, np.eye(2) + 2.0])
    np.testing.assert_array_equal(model.cluster_centers_, np.full((2, 2), 2.0))


@pytest.mark.slow
def test_the_study_on_the_page_runs_in_worker_processes(folder: Path) -> None:
    run(folder, *PRIVFED, "tradeoff", "study.toml", "--jobs", "2", "--out", "study", "--quiet")
    (row,) = csv.DictReader((folder / "study" / "study.csv").read_text().splitlines())
    assert 0.0 < float(row["metric: cosine:mean_cosine"]) <= 1.0
