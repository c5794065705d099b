"""`--protocol masked-verified`: the same result as over masked sums; it can be resumed and shown."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.wide import run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-9, 9, (3, 2))[rng.integers(3, size=60)] + rng.normal(size=(60, 2))
    lines = [f"{'abcd'[i % 4]},{a:.4f},{b:.4f}" for i, (a, b) in enumerate(rows.tolist())]
    (tmp_path / "t.csv").write_text("g,a,b\n" + "\n".join(lines) + "\n")
    return tmp_path / "t.csv"


def test_a_verified_run_finds_what_a_masked_one_finds_and_says_its_name(table: Path, tmp_path: Path) -> None:
    words = ("fit", table, "--group", "g", "-k", 3, "--max-iter", 3, "--quiet", "--no-picture")
    run(*words, "--protocol", "masked-verified", "--out", tmp_path / "verified")
    run(*words, "--out", tmp_path / "masked")
    found = [np.load(tmp_path / name / "centroids.npz")["centroids"] for name in ("verified", "masked")]
    np.testing.assert_array_equal(*found)
    again = json.loads(run("resume", tmp_path / "verified", "--quiet", "--no-picture", "--json").stdout)
    assert again["protocol"] == "masked-verified"
    assert "masked-verified" in run("show", tmp_path / "verified").stdout
