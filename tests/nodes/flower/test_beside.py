"""What follows a fit over nodes: columns that it did not use, survival, whether clusters are found again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import DWFKMeans, FederatedGaussianMixture, load
from privfed.errors import ArgumentError, RefusedError
from privfed.metrics import profiles, stability
from privfed.nodes.commands import federations
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.flower.node import check_node
from privfed.nodes.flower.settings import FILE
from privfed.tables import survival
from tests.cli.wide import run
from tests.nodes.flower.federations import WORDS, federation
from tests.nodes.flower.networks import Folders

COLUMNS = ("x", "y", "age", "days", "died")
PLACES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
Parts = list[np.ndarray]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Parts]:
    """A federation of nodes with named columns, and their rows."""
    folder = federation(tmp_path / "fed")
    names = (folder / FILE).read_text().split("columns = ")[1].split("]")[0]
    listed = '["' + '","'.join(COLUMNS) + '"'
    (folder / FILE).write_text((folder / FILE).read_text().replace(names, listed))
    rng, parts = np.random.default_rng(5), []
    for node in nodes_of(folder):
        own = rng.integers(3, size=60)
        times = np.ceil(rng.exponential(np.array([10.0, 14.0, 30.0])[own]))
        more = [rng.normal(np.array([40.0, 60.0, 50.0])[own], 5.0), times, rng.random(60) < 0.7]
        rows = np.column_stack([PLACES[own] + rng.normal(size=(60, 2)), *more])
        np.savetxt(node / "rows.csv", rows, "%.17g", ",", header=",".join(COLUMNS), comments="")
        text = (node / "node.toml").read_text().replace("rows.npz", "rows.csv")
        (node / "node.toml").write_text(text)
        parts.append(np.loadtxt(node / "rows.csv", delimiter=",", skiprows=1))

    def engine(folder: Path, **words: Any) -> FlowerEngine:
        return FlowerEngine(folder, **{"network": Folders(nodes_of(folder)), **words})

    monkeypatch.setattr(federations, "FlowerEngine", engine)
    return folder, parts


def policy(folder: Path, old: str, new: str) -> None:
    for node in nodes_of(folder):
        text = (node / "node.toml").read_text()
        assert old in text
        (node / "node.toml").write_text(text.replace(old, new))


def fitted(folder: Path, *words: object) -> Path:
    run("flower", "run", folder, "-k", 3, "--columns", "x,y", *words, "--out", folder.parent / "run")
    return folder.parent / "run"


SCHEMA = "".join(
    f'[columns.{name}]\nkind = "number"\nlow = {low}\nhigh = {high}\noutside = "clip"\nmissing = {low}\n'
    for name, low, high in zip(COLUMNS, (-9, -9, 0, 0, 0), (19, 19, 100, 400, 1), strict=True)
)


def test_a_fit_of_some_columns_is_followed_by_profiles_and_survival_of_others(
    made: tuple[Path, Parts],
) -> None:
    folder, parts = made
    out = fitted(folder)
    model = load(out / "model.npz", DWFKMeans)
    assert list(model.feature_names_in_) == ["x", "y"]
    words: dict[str, Any] = {key: value for key, value in WORDS.items() if key != "random_state"}
    own = DWFKMeans(3, random_state=0, **words).fit([one[:, :2] for one in parts])
    found = json.loads(run("flower", "profile", folder, out, "--json").stdout)
    again = profiles([one[:, :2] for one in parts], model.cluster_centers_)
    np.testing.assert_allclose(found["means"], again.means, atol=1e-6)
    assert sum(found["sizes"]) == sum(map(len, parts)) and own.cluster_centers_.shape == (3, 2)
    (folder.parent / "s.toml").write_text(SCHEMA)
    told = ("--beside", "age", "--schema", folder.parent / "s.toml")
    said = run("flower", "profile", folder, out, *told).stdout
    assert "age" in said and "±" in said
    kept = json.loads((out / "profile.json").read_text())
    assert np.max(kept["missing"]) == 0.0
    pooled = np.concatenate(parts)
    labels = model.predict(pooled[:, :2])
    for k in range(3):
        assert kept["means"][k][0] == pytest.approx(pooled[labels == k, 2].mean(), abs=1e-3)
    lived = ("--time", "days", "--event", "died", "--edges", "5,10,20,40")
    found = json.loads(run("flower", "survival", folder, out, *lived, "--no-picture", "--json").stdout)
    here = survival(
        [one[:, :2] for one in parts],
        model.cluster_centers_,
        [one[:, 3] for one in parts],
        [one[:, 4] for one in parts],
        edges=[5, 10, 20, 40],
    )
    np.testing.assert_allclose(found["survival"], here.survival, rtol=1e-12)
    assert found["statistic"] == pytest.approx(here.statistic)


GAPS = """
[columns.x]
kind = "number"
low = -9
high = 19
outside = "clip"
missing = 0.0
[columns.y]
kind = "number"
low = -9
high = 19
outside = "clip"
missing = 0.0
[columns.age]
kind = "number"
low = 0
high = 100
outside = "missing"
missing = "leave-out"
codes = ["?"]
[columns.ward]
kind = "category"
categories = ["heart", "lung", "skin"]
missing = "skin"
codes = ["none"]
[columns.stage]
kind = "ordinal"
categories = ["one", "two"]
missing = "two"
"""


def with_gaps(made: tuple[Path, Parts], described: bool) -> tuple[Path, Path]:
    """Write tables with gaps, a schema and others' schema; return the nodes' folder and a simulation's."""
    folder, parts = made
    rng, here, names = np.random.default_rng(8), folder.parent / "here", ("x", "y", "age", "ward", "stage")
    here.mkdir()
    features = [*names[:3], "ward=heart", "ward=lung", "ward=skin", "stage"] if described else names[:3]
    listed = (folder / FILE).read_text().replace(str(list(COLUMNS)), "")
    listed = listed.replace('["' + '","'.join(COLUMNS) + '"]', json.dumps(features))
    (folder / FILE).write_text(listed)
    for node, rows in zip(nodes_of(folder), parts, strict=True):
        lines = [",".join(names if described else names[:3])]
        for x, y, age, *_ in rows.tolist():
            more = [rng.choice(["", "none", "heart", "lung"]), rng.choice(["", "one", "two"])]
            age = rng.choice(["", "300" if described else "99", "?", repr(age)], p=[0.2, 0.05, 0.05, 0.7])
            lines.append(",".join([repr(x), repr(y), age, *(more if described else ())]))
        for place in (node / "rows.csv", here / f"{node.name}.csv"):
            place.write_text("\n".join(lines) + "\n")
        if described:
            (node / "s.toml").write_text(GAPS)
            text = (node / "node.toml").read_text()
            (node / "node.toml").write_text('schema = "s.toml"\n' + text)
    schema = (
        GAPS
        if described
        else GAPS.split("[columns.ward]")[0].replace('outside = "missing"', 'outside = "clip"')
    )
    (folder.parent / "s.toml").write_text(schema)
    cut = schema.index("[columns.age]")
    (folder.parent / "first.toml").write_text(schema[:cut])
    (folder.parent / "other.toml").write_text(schema[cut:])
    return folder, here


@pytest.mark.parametrize("described", [True, False])
def test_missing_values_are_counted_as_in_a_simulation(made: tuple[Path, Parts], described: bool) -> None:
    folder, here = with_gaps(made, described)
    beside = ("age", "ward", "stage") if described else ("age",)
    schema = ("--schema", folder.parent / "s.toml")
    out = fitted(folder, *schema)
    run("flower", "profile", folder, out, "--beside", ",".join(beside), *schema)
    found = json.loads((out / "profile.json").read_text())
    first = ("--schema", folder.parent / "first.toml", "-k", 3, "--max-iter", 1)
    simulated = folder.parent / "simulated"
    run("fit", here, *first, "--out", simulated)
    kept = json.loads((simulated / "result.json").read_text())
    kept["centroids"] = load(out / "model.npz", DWFKMeans).cluster_centers_.tolist()
    (simulated / "result.json").write_text(json.dumps(kept))
    run("profile", simulated, "--beside", folder.parent / "other.toml", "--no-picture")
    again = json.loads((simulated / "result.json").read_text())["beside"]["profile"]
    assert np.min(found["missing"]) > 0.1
    for name in ("sizes", "missing", "means", "stds", "quartiles"):
        np.testing.assert_allclose(found[name], again[name], rtol=1e-6, err_msg=name)


def test_noise_is_paid_at_nodes_and_exact_counts_are_refused_after_it(made: tuple[Path, Parts]) -> None:
    folder, _ = made
    (folder.parent / "s.toml").write_text(SCHEMA)
    schema = ("--schema", folder.parent / "s.toml")
    claim = ("--epsilon", 4, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    out = fitted(folder, *schema, "--algorithm", "dp", *claim)
    refused = run("flower", "profile", folder, out, "--beside", "age", *schema, exit_code=2).output
    assert "claim" in refused
    said = run("flower", "profile", folder, out, "--beside", "age", *schema, *claim).stdout
    assert "epsilon 4" in said and " to " in said
    assert "epsilon 4" in run("flower", "profile", folder, out, *schema, *claim).stdout
    lived = ("--time", "days", "--event", "died", "--edges", "10,40")
    said = run("flower", "survival", folder, out, *lived, *schema, *claim, "--no-picture").stdout
    assert "epsilon 4" in said


def test_groups_have_no_times_and_owners_approve_each_question(made: tuple[Path, Parts]) -> None:
    folder, _ = made
    policy(folder, "group_size = 1", "group_size = 5")
    for node in nodes_of(folder):
        # As a node does when it starts: groups are of all its columns.
        check_node(node, COLUMNS)
    out = fitted(folder)
    lived = ("flower", "survival", folder, out, "--time", "days", "--event", "died", "--edges", "10,40")
    assert "agreement:groups" in run(*lived, exit_code=2).output
    (folder.parent / "s.toml").write_text(SCHEMA)
    beside = ("--beside", "age", "--schema", folder.parent / "s.toml")
    assert "agreement:groups" in run("flower", "profile", folder, out, *beside, exit_code=2).output
    beside = (*beside, "--no-gaps")
    assert "age" in run("flower", "profile", folder, out, *beside).stdout
    assert "missing" not in json.loads((out / "profile.json").read_text())
    policy(folder, '"ClusterColumns", ', "")
    assert "policy" in run("flower", "profile", folder, out, *beside, exit_code=2).output


def test_clusters_are_found_again_in_parts_of_the_nodes(made: tuple[Path, Parts]) -> None:
    folder, parts = made
    out = fitted(folder)
    run("flower", "stability", folder, out, "--resamples", 2)
    found = json.loads((out / "stability.json").read_text())
    model = load(out / "model.npz", DWFKMeans)
    own = stability(model, [one[:, :2] for one in parts], n_resamples=2)
    assert np.min(found["coefficients"]) > 0.9 and own.min() > 0.9
    engine = federations.FlowerEngine(folder, columns=["x", "y"])
    with pytest.raises(ArgumentError):
        stability(model, engine=engine, parts="rows")
    mixture = FederatedGaussianMixture(3, n_init=3).fit([one[:, :2] for one in parts])
    assert stability(mixture, engine=engine, n_resamples=1).min() > 0.9
    policy(folder, "max_fits", "max_sums")
    with pytest.raises(RefusedError):
        policy(folder, '"ClusterPairs", ', "")
        stability(model, engine=engine, n_resamples=1)


def test_columns_are_known_by_name(made: tuple[Path, Parts]) -> None:
    with pytest.raises(ArgumentError):
        FlowerEngine(made[0], columns=["z"])
