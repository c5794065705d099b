"""Commands over nodes that share a schema: their numbers are in its units, and its ranges are the domain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from privfed import Box, DWFKMeans, FederatedScaler, Privacy, load
from privfed.errors import ProtocolError
from privfed.nodes.commands import federations
from privfed.nodes.deploy.local import nodes_of
from privfed.nodes.flower import FlowerEngine
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.tables import read_schema
from tests.cli.wide import run
from tests.nodes.flower.federations import WORDS, N, assert_same, federation, here, rows
from tests.nodes.flower.networks import Folders
from tests.some import some


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return federation(tmp_path / "fed")


def over(folder: Path) -> tuple[FlowerEngine, Folders]:
    network = Folders(nodes_of(folder))
    return FlowerEngine(folder, network=network), network


def fits(node: Path) -> int:
    """Return how many fits a node has joined."""
    return len(Journal(node, read_identity(node)).fits)


def test_a_run_over_nodes_is_read_and_written_in_the_units_of_their_schema(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    column = 'kind = "number"\nlow = -120\nhigh = 120\noutside = "clip"\nmissing = 0\nspread = 10.0\n'
    unit = 'unit = "kg"\n'
    (tmp_path / "s.toml").write_text(f"[columns.x0]\n{column}{unit}[columns.x1]\n{column}")
    schema = ("--schema", tmp_path / "s.toml")
    said = run("flower", "run", folder, "-k", 3, *schema, "--out", tmp_path / "run").stdout
    own = here(DWFKMeans(3, domain=Box(-12, 12), random_state=0))
    found = load(tmp_path / "run" / "model.npz")
    assert found.cluster_centers_.tobytes() == own.cluster_centers_.tobytes()
    written = np.loadtxt(tmp_path / "run" / "centroids-in-units.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(written, 10.0 * own.cluster_centers_, rtol=1e-12)
    plain = np.loadtxt(tmp_path / "run" / "centroids.csv", delimiter=",", skiprows=1)
    np.testing.assert_allclose(plain, 10.0 * own.cluster_centers_, rtol=1e-12)
    assert "x0 [kg]" in said and f"{written[0, 0]:.6g}" in said
    # Rows are in the columns' units, and the folder of the run knows the schema.
    (tmp_path / "new.csv").write_text("x0,x1\n10,20\n-90,-80\n")
    labels = run("predict", tmp_path / "run", tmp_path / "new.csv").stdout.split()[1:]
    assert [int(one) for one in labels] == own.predict(np.array([[1.0, 2.0], [-9.0, -8.0]])).tolist()
    counted = json.loads(run("flower", "summary", folder, *schema, "--json").stdout)["columns"]
    assert counted[0]["low"] == -120.0 and counted[0]["unit"] == "kg"
    exact = here(FederatedScaler(domain=Box(-12, 12)))
    assert [one["mean"] for one in counted] == pytest.approx((10.0 * exact.mean_).tolist())
    assert "times that of" not in said
    unlike = ("--low", "-12,-1200", "--high", "12,1200")
    hinted = run("flower", "run", folder, "-k", 3, *unlike, "--out", tmp_path / "wide").stdout
    assert "the range of x1 is 100 times that of x0" in hinted and "privfed flower scale" in hinted
    refused = run("flower", "run", folder, *schema, "--low", 0, "--out", tmp_path / "no", exit_code=2).output
    assert "--low and --high would" in refused


@pytest.mark.parametrize("scale", ["standard", pytest.param("robust", marks=pytest.mark.slow)])
def test_nodes_learn_the_scale_of_their_schema_and_fit_by_it(
    scale: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the estimator's `scale` does over rows in one process."""
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    schema, scaled = tmp_path / "schema.toml", tmp_path / "scaled.toml"
    schema.write_text('[columns.x0]\nkind = "number"\n[columns.x1]\nkind = "number"\n')
    words = ("flower", "scale", folder, "--schema", schema, "--scale", scale)
    said = run(*words, "--out", scaled, "--seed", 3).output
    own = here(DWFKMeans(3, scale=scale, **WORDS))
    found = read_schema(scaled).columns
    assert [one.shift for one in found.values()] == list(own.scaling_.shift)
    assert [one.spread for one in found.values()] == list(own.scaling_.scale)
    assert f"x1: shift = {found['x1'].shift:.6g}" in said
    given = [fits(node) for node in nodes_of(folder)]
    # What cannot be written is not asked either.
    assert "exists; name another file" in run(*words, "--out", scaled, exit_code=2).output
    assert [fits(node) for node in some(nodes_of(folder))] == given == [1] * N
    for name, table in zip(("c0", "c1", "c2", "c3"), rows(), strict=True):
        home = folder / "nodes" / name
        (home / "rows.csv").write_text(
            "\n".join(["x0,x1", *(",".join(map(repr, row)) for row in table.tolist())])
        )
        settings = (home / "node.toml").read_text().replace("rows.npz", "rows.csv")
        (home / "node.toml").write_text(f'schema = "{scaled}"\n{settings}')
    fitted = DWFKMeans(3, engine=over(folder)[0], **WORDS).fit()
    assert_same(fitted, own)
    for wrong, text in (
        (scaled, "scales 'x0' already"),
        (tmp_path / "other.toml", "has the features y, and the nodes have x0, x1"),
    ):
        (tmp_path / "other.toml").write_text('[columns.y]\nkind = "number"\n')
        refused = run(*words[:4], wrong, "--out", tmp_path / "new.toml", exit_code=2)
        assert text in refused.output and not (tmp_path / "new.toml").exists()


def test_a_scale_that_nodes_learn_under_a_claim_ends_with_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schema's ranges are the declared domain."""
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    column = 'kind = "number"\nlow = -12\nhigh = 12\noutside = "clip"\nmissing = 0\n'
    (tmp_path / "s.toml").write_text(f"[columns.x0]\n{column}[columns.x1]\n{column}")
    claim = ("--epsilon", 10, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    words = ("--schema", tmp_path / "s.toml", "--out", tmp_path / "out.toml", "--max-rows", 100)
    said = run("flower", "scale", folder, *words, *claim).output
    assert "differential privacy: epsilon 10" in said
    found = read_schema(tmp_path / "out.toml").columns["x1"]
    exact = here(FederatedScaler())
    assert found.shift != exact.mean_[1] and found.shift == pytest.approx(exact.mean_[1], abs=3.0)
    assert 0 < found.spread < 24


def test_nodes_join_no_claim_by_a_schema_that_exact_sums_gave(folder: Path, tmp_path: Path) -> None:
    """Their journals know only what they answered themselves."""
    column = 'kind = "number"\nlow = -12\nhigh = 12\noutside = "clip"\nmissing = 0\n'
    schema, text = tmp_path / "s.toml", f"[columns.x0]\n{column}[columns.x1]\n{column}"
    for name, table in zip(("c0", "c1", "c2", "c3"), rows(), strict=True):
        home = folder / "nodes" / name
        lines = [",".join(map(repr, row)) for row in table.tolist()]
        (home / "rows.csv").write_text("\n".join(["x0,x1", *lines]))
        settings = (home / "node.toml").read_text().replace("rows.npz", "rows.csv")
        (home / "node.toml").write_text(f'schema = "{schema}"\n{settings}')
    domain = Box(-12, 12, max_rows=100)
    claim = Privacy(epsilon=5, delta=1e-6, unit="record", domain=domain, neighbours="add-remove")
    schema.write_text(f"{text}provenance = 'exact'\n")
    with pytest.raises(ProtocolError, match=r"agreement:exact.*learn them under --epsilon"):
        FederatedScaler("range", privacy=claim, engine=over(folder)[0]).fit()
    assert [fits(node) for node in nodes_of(folder)] == [0] * N
    schema.write_text(text)
    FederatedScaler("range", privacy=claim, engine=over(folder)[0]).fit()
