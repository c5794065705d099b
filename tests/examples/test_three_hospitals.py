"""What the demonstration over Flower prints, from nodes that are asked in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from privfed import DWFKMeans
from privfed.nodes.deploy.local import make_local, nodes_of
from privfed.nodes.flower import FlowerEngine
from tests.examples.scripts import loaded
from tests.nodes.flower.networks import Folders


def test_it_prints_what_each_party_saw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo, out = loaded("three_hospitals/run"), tmp_path / "out"
    make_local(out, demo.wards(), demo.COLUMNS, wait=0.0, approved=demo.APPROVED)
    demo.stranger(out / "stranger")
    (out / "flwr").mkdir()
    (out / "flwr" / "stranger.log").write_text("stranger waiting: the SuperLink does not know this key")
    network = Folders(nodes_of(out))
    with FlowerEngine(out, network=network) as engine:
        model = DWFKMeans(3, engine=engine, **{**demo.WORDS, "max_iter": 1}).fit()
        network.gone = {105}
        engine.end_fits()
        demo.tell_superlink(out, model)
        demo.tell_coordinator(model, engine)
        demo.tell_wards(out, model)
        demo.compare(model)
    said = capsys.readouterr().out
    assert "the stranger, with a key that nobody registered: never let in" in said
    assert "sum 0, FeatureRanges, of 6 wards" in said and "rows [360.0]" in said
    assert "north-1: 4 sums answered, 0 losses of others counted, closed, keys erased" in said
    assert "west-2: 4 sums answered, 0 losses of others counted, still open" in said
    assert said.count("bytes down") == 6 and "Centroids (age, bmi)" in said
