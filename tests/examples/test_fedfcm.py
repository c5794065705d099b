"""The example of Stallmann and Wilbik's figures runs, and chooses five clusters as the paper does."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "fedfcm.py"


def run(out: Path, *words: str) -> str:
    command = [sys.executable, str(SCRIPT), "--quick", "--out", str(out), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def bank_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small file of the bank's kind: three jobs, a few of them wealthy."""
    folder = tmp_path_factory.mktemp("data")
    lines = ["age;job;education;balance"]
    for i in range(240):
        job = ("clerk", "nurse", "smith", "unknown")[i % 4]
        education = ("primary", "secondary", "tertiary")[i % 3]
        lines.append(f"{20 + i % 47};{job};{education};{50_000 if i % 20 == 1 else 100 * (i % 7)}")
    (folder / "bank-full.csv").write_text("\n".join(lines))
    return folder


@pytest.mark.slow
def test_quick_example_writes_tables_and_picture(tmp_path: Path, bank_folder: Path) -> None:
    printed = run(tmp_path, "--data", str(bank_folder))
    assert "k-means avg.: five clusters chosen in 2 of 2 seeds." in printed
    assert "Over masked sums, seed 0: 5 clusters chosen." in printed
    assert "180 customers, 3 jobs." in printed
    assert (tmp_path / "fedfcm.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "fedfcm.md").read_text().startswith("# FedFCM and FedFuzzDB, quick scale")
    index = pl.read_csv(tmp_path / "motivational.csv").filter(pl.col("method") == "kmeans", pl.col("k") == 5)
    assert index["index"].to_list() == pytest.approx([0.4289] * 2, abs=0.03)
    sets = pl.read_csv(tmp_path / "g2.csv")
    # As in the paper: in two dimensions and wide groups the index prefers more clusters, elsewhere two.
    assert set(sets.filter(pl.col("dimension") == 32)["chosen"].to_list()) == {2}
    assert set(pl.read_csv(tmp_path / "bank.csv")["k"].to_list()) == {3, 4, 5, 6}
