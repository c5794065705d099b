"""Metrics that a study names: registered ones, those of packages, and a user's own, also in workers."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from privfed.experiments.cells import metric_id
from privfed.experiments.measuring import measure
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import StudyError, parse_study
from privfed.experiments.report.summary import summarise
from privfed.experiments.report.tables import columns
from privfed.experiments.running import Store, missing
from tests.experiments.small import SMALL
from tests.test_documents import ROOT

MINE = """\
import numpy as np


def farthest(clients, centers):
    return float(max(np.linalg.norm(own[:, None] - centers, axis=2).min(axis=1).max() for own in clients))


def failing(clients, centers, **options):
    raise ValueError("of no use")


NUMBER = 3
"""
NAMED = ["simplified_silhouette", "adjusted_rand_index", "my_metric_of_studies:farthest", "ari", "inertia"]
ONE = SMALL.replace("n_init = [1, 2]", "n_init = [1]").replace('[[sum]]\nprotocol = "masked"', "")


def planned(named: list[str], text: str = ONE) -> Plan:
    return plan(parse_study(text.replace("seeds = 2", f"seeds = 1\nmetrics = {named}"), "study.toml"), Path())


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "my_metric_of_studies.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_registered_metrics_and_own_ones_are_measured_on_the_clients_rows(mine: Path) -> None:
    study = planned(NAMED)
    (setup,) = study.setups
    store, parts = Store(mine / "out"), [one for one in setup.parts() if not one.startswith("attack")]
    assert len(parts) == 5  # The fit, and what is not measured anyway; attacks are not tried here.
    store.keep(setup.cell(0), {}, measure(setup, 0, parts, Path()), 1)
    (row,) = summarise(study, store)
    assert not row.errors
    shown = columns(study.file.study, [row])
    own = {name: name if name == "ari" else f"metric: {name}" for name in NAMED}
    assert shown[:5] == [own[name] for name in NAMED]
    got = {name: row.stats[own[name]].mean for name in NAMED}
    assert got["adjusted_rand_index"] == pytest.approx(got["ari"])
    assert 0.2 < got["simplified_silhouette"] < 1.0
    # No row is farther from its center than the root of all squared distances, or nearer than their mean.
    assert (
        got["inertia"] / row.stats["rows"].mean < got["my_metric_of_studies:farthest"] ** 2 < got["inertia"]
    )


def test_a_metric_in_an_old_study_is_the_only_part_that_is_missing(mine: Path) -> None:
    before, after = planned(["ari"]), planned(["ari", "inertia"])
    store, (setup,) = Store(mine / "out"), before.setups
    store.keep(setup.cell(0), {}, measure(setup, 0, ["fit"], Path()), 1)
    left = [part for job in missing(after, store) for part in job.parts if not part.startswith("attack")]
    assert after.setups[0].cell(0) == setup.cell(0)
    assert left == ["metric:inertia"]


def test_a_metric_that_fails_or_needs_labels_says_so_and_spares_the_others(mine: Path) -> None:
    rows = np.random.default_rng(0).uniform(size=(60, 2)).round(4)
    (mine / "rows.csv").write_text("\n".join(["x,y", *(f"{x},{y}" for x, y in rows)]))
    unlabelled = ONE.replace('"iris"', f'"{mine / "rows.csv"}"')
    study = planned(["my_metric_of_studies:failing", "v_measure", "homogeneity", "inertia"], unlabelled)
    (setup,) = study.setups
    store = Store(mine / "out")
    store.keep(setup.cell(0), {}, measure(setup, 0, ["fit", *map(metric_id, setup.metrics)], Path()), 1)
    (row,) = summarise(study, store)
    assert [(part, error) for _, part, error in row.errors] == [
        ("metric:my_metric_of_studies:failing", "ValueError: of no use")
    ]
    assert "metric: homogeneity" not in row.stats and "metric: inertia" in row.stats


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("x", "score_ratio, ari, v_measure, accuracy, fuzzy_davies_bouldin, adjusted_rand_index"),
        ("my_metric_of_studies:missing", "module my_metric_of_studies does not define 'missing'"),
        ("no_such_module:missing", "cannot be imported"),
        ("my_metric_of_studies:NUMBER", "must be functions of clients and centers"),
    ],
)
def test_an_unknown_metric_is_a_mistake_of_its_key(name: str, told: str, mine: Path) -> None:
    with pytest.raises(StudyError, match=r"study.toml, metrics: ") as caught:
        planned(["ari", name])
    assert told in str(caught.value) and name in str(caught.value)


@pytest.mark.slow
def test_metrics_of_a_module_and_of_a_package_are_measured_in_worker_processes(mine: Path) -> None:
    """The package is installed where no module is found by chance: on the path of this command alone."""
    package = mine / "site"
    (package / "studied-1.0.dist-info").mkdir(parents=True)
    (package / "studied.py").write_text(MINE)
    (package / "studied-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: studied\nVersion: 1.0\n"
    )
    (package / "studied-1.0.dist-info" / "entry_points.txt").write_text(
        "[privfed.metrics]\nfar = studied:farthest\n"
    )
    text = SMALL[: SMALL.index("[[attack]]")]

    def tradeoff(named: list[str], *options: str) -> str:
        (mine / "study.toml").write_text(text.replace("seeds = 2", f"seeds = 1\nmetrics = {named}"))
        words = [sys.executable, "-c", "from privfed.cli.main import main; main()", "tradeoff", "study.toml"]
        path = os.pathsep.join([str(ROOT), str(package), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([*words, *options], cwd=mine, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    jobs = ("--jobs", "2", "--out", "out")
    assert "is valid" in tradeoff(["far", "my_metric_of_studies:farthest"], "--check")
    tradeoff(["far"], *jobs)
    tradeoff(["far", "my_metric_of_studies:farthest"], *jobs)
    again = tradeoff(["my_metric_of_studies:farthest", "far"], *jobs)
    assert "4 cells are stored already, 0 are to be run" in again
    with (mine / "out" / "study.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert [one["metric: far"] for one in rows] == [
        one["metric: my_metric_of_studies:farthest"] for one in rows
    ]
    assert all(float(one["metric: far"]) > 0.0 for one in rows)


def test_a_fit_on_scaled_rows_is_scored_and_attacked_on_scaled_rows() -> None:
    text = ONE.replace("low = 0.0\nhigh = 8.0\n", "").replace("seeds = 2", "seeds = 1")
    text = text.replace("tol = 0\n", 'tol = 0\nscale = "standard"\n')
    (setup,) = plan(parse_study(text, "study.toml"), Path()).setups
    found = measure(setup, 0, setup.parts(), Path())
    assert not any([part.error for part in found.values()])
    values = found["fit"].values
    assert 0.99 < values["score_ratio"] < 1.5 and values["ari"] > 0.4
    assert values["score_ratio_after"][-1] == pytest.approx(values["score_ratio"])
    with pytest.raises(StudyError, match="scale or group_size"):
        plan(parse_study(text.replace("tol = 0\n", "tol = 0\ngroup_size = 3\n"), "study.toml"), Path())
