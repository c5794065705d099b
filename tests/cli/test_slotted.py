"""`--merge slotted`: contributions come out of masked sums, but not whose they are."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.wide import run


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-9, 9, (3, 2))[rng.integers(3, size=120)] + rng.normal(size=(120, 2))
    lines = [f"{'abcdef'[i % 6]},{a:.4f},{b:.4f}" for i, (a, b) in enumerate(rows.tolist())]
    (tmp_path / "t.csv").write_text("g,a,b\n" + "\n".join(lines) + "\n")
    return tmp_path / "t.csv"


@pytest.mark.parametrize(("algorithm", "rounds"), [("kfed", ()), ("fkm", ("--max-iter", 3, "--n-init", 2))])
def test_a_run_with_slots_is_fitted_and_resumed(
    algorithm: str, rounds: tuple[object, ...], table: Path, tmp_path: Path
) -> None:
    words = ("fit", table, "--group", "g", "--algorithm", algorithm, "-k", 3, "--quiet", *rounds)
    run(*words, "--merge", "slotted", "--out", tmp_path / "slotted")
    run(*words, "--merge", "gathered", "--protocol", "plain", "--out", tmp_path / "plain")
    found = [np.load(tmp_path / name / "centroids.npz")["centroids"] for name in ("slotted", "plain")]
    if algorithm == "fkm":
        np.testing.assert_allclose(*found, atol=1e-6)
    again = json.loads(run("resume", tmp_path / "slotted", "--quiet", "--json").stdout)
    assert again["protocol"] == "slotted masked"
    assert "slotted masked" in run("show", tmp_path / "slotted").stdout


def test_too_few_clients_and_sums_that_hide_nothing_are_told_in_words_of_the_command(table: Path) -> None:
    few = table.with_name("few.csv")
    few.write_text("".join(line for line in table.read_text().splitlines(True) if line[0] in "gabc"))
    words = ("--algorithm", "kfed", "-k", 3, "--group", "g", "--merge", "slotted", "--quiet")
    said = run("fit", few, *words, "--out", table.with_name("r"), exit_code=2).stderr
    assert "needs 5 clients, more than the smallest cohort of 3" in said
    said = run("fit", table, *words, "--protocol", "plain", "--out", table.with_name("s"), exit_code=2).stderr
    assert "slots hide whose a contribution is, and 'plain' sums show it" in said
