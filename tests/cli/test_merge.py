"""`privfed merge` joins the centers of a run as `MergedClusters` does; `predict --merged` follows it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score

from privfed import MergedClusters, load
from privfed.core.record.transcript import Transcript
from tests.cli.wide import run


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two moons over four sites, and a run of 40 centers."""
    folder, (rows, _) = tmp_path_factory.mktemp("moons"), make_moons(1200, noise=0.06, random_state=0)
    lines = [f"{'pqrs'[i % 4]},{a!r},{b!r}" for i, (a, b) in enumerate(rows.tolist())]
    (folder / "t.csv").write_text("\n".join(["site,a,b", *lines]))
    words = ("--group", "site", "-k", 40, "--scale", "standard", "--quiet", "--no-picture")
    run("fit", folder / "t.csv", *words, "--out", folder / "run")
    return folder


def clusters(text: str) -> list[int]:
    return [int(line) for line in text.splitlines()[1:]]


def test_moons_are_found_from_the_folder_of_a_run(moons: Path) -> None:
    said = run("predict", moons / "run", moons / "t.csv", "--merged", exit_code=2).output
    assert "privfed merge" in said
    found = json.loads(run("merge", moons / "run", "--json").output)
    model = load(moons / "run")
    model.transcript_ = Transcript.load(moons / "run")
    merged = MergedClusters().join(model)
    assert found["joined"] == merged.joined_.tolist() and found["n_clusters"] == merged.n_clusters_ == 2
    assert found["sizes"] == pytest.approx([600.0, 600.0])
    truth = make_moons(1200, noise=0.06, random_state=0)[1]
    named = clusters(run("predict", moons / "run", moons / "t.csv", "--merged").stdout)
    assert adjusted_rand_score(truth, named) == 1.0
    centers = clusters(run("predict", moons / "run", moons / "t.csv").stdout)
    assert named == np.array(found["joined"])[centers].tolist()


@pytest.mark.filterwarnings("ignore::UserWarning")  # Two moons have no gap at five clusters.
def test_the_number_and_the_linkage_are_chosen_and_a_picture_drawn(moons: Path) -> None:
    run("merge", moons / "run", "-k", 5, "--linkage", "ward", "--picture")
    found = json.loads((moons / "run" / "merged.json").read_text())
    assert found["n_clusters"] == 5 and sorted({*found["joined"]}) == [0, 1, 2, 3, 4]
    assert (moons / "run" / "merged.png").read_bytes().startswith(b"\x89PNG")
    said = run("merge", moons / "run", "-k", 41, exit_code=2).output
    assert "41" in said and "40 centers" in said


def test_a_run_that_is_not_there_or_has_no_centers_is_one_line(tmp_path: Path) -> None:
    assert "error" in run("merge", tmp_path / "none", exit_code=2).output
