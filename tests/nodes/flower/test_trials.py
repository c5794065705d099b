"""A federation on this machine, for trials, trains models with the command that its maker proposes."""

from __future__ import annotations

from pathlib import Path

import pytest

from privfed.nodes.commands import federations
from privfed.nodes.deploy.local import nodes_of
from tests.cli.wide import run
from tests.deep.population import clients
from tests.nodes.flower.models import over


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fedavg", "dcfl"])
def test_a_federation_on_this_machine_trains_models_as_its_maker_says(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner is one person: without a claim, and with the sums that DCFL needs."""
    lines = [
        f"w{i},{','.join(map(str, row))},{'xyz'[kind]}"
        for i, (rows, kinds) in enumerate(zip(*clients(6), strict=True))
        for row, kind in zip(rows.tolist(), kinds.tolist(), strict=True)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["ward,a,b,c,d,kind", *lines]))
    folder = tmp_path / "fed"
    words = ("--group", "ward", "--label", "kind", "--out", folder)
    said = run("flower", "local", tmp_path / "t.csv", *words).stdout
    assert f"privfed flower simulate {folder} --algorithm fedavg --classes x,y,z" in " ".join(said.split())
    monkeypatch.setattr(federations, "FlowerEngine", lambda *_, **__: over(folder)[0])
    fit = ("flower", "run", folder, "--algorithm", algorithm, "--classes", "x,y,z", "--rounds", 2)
    assert "after 2 rounds" in run(*fit, "--out", tmp_path / "run").stdout
    # What a node refuses says what its owner could write.
    for node in nodes_of(folder):
        settings = (node / "node.toml").read_text()
        (node / "node.toml").write_text(settings.replace("models = true", ""))
    refused = run(*fit, "--out", tmp_path / "again", exit_code=2).stderr
    assert "policy:models" in refused and "models = true in node.toml" in refused
