"""The study of Stallmann and Wilbik's tables runs, and chooses five clusters as the paper does."""

from pathlib import Path

import polars as pl
import pytest

from examples import fedfcm as study


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
def test_quick_study_writes_its_page_and_picture(tmp_path: Path, bank_folder: Path) -> None:
    words = [
        "--quick",
        "--out",
        str(tmp_path),
        "--page",
        str(tmp_path / "papers"),
        "--data",
        str(bank_folder),
    ]
    assert study.main(words) == 0
    page = (tmp_path / "papers" / "fedfcm.md").read_text()
    assert "k-means avg. in 2 of 2" in page
    assert "over masked sums 5 clusters are chosen" in page
    assert (tmp_path / "papers" / "fedfcm.png").read_bytes().startswith(b"\x89PNG")
    index = pl.read_csv(tmp_path / "motivational.csv", comment_prefix="#").filter(method="kmeans", k=5)
    assert index["index"].to_list() == pytest.approx([0.4289] * 2, abs=0.03)
    found = pl.read_csv(tmp_path / "g2.csv", comment_prefix="#")
    # As in the paper: in two dimensions and wide groups the index prefers more clusters, elsewhere two.
    assert set(found.filter(pl.col("dimension") == 32)["chosen"].to_list()) == {2}
    assert set(pl.read_csv(tmp_path / "bank.csv", comment_prefix="#")["k"].to_list()) == {3, 4, 5}


def test_all_runs_are_the_papers() -> None:
    wanted = list(study.sets(study.FULL))
    assert len(wanted) == len(set(wanted)) == 100 * 20 * 7
    assert {(one.method, one.parties) for one in wanted} == set(study.PAPERS_SHARE)


def test_quantiles_and_shares_stand_beside_the_papers() -> None:
    rows = [
        {**one._asdict(), "index": 0.5 + 0.01 * number, "gap": 1.0, "chosen": 2 + number % 2}
        for way in study.PAPERS_SHARE
        for number, one in enumerate(study.Set(2, sd, *way, 0) for sd in range(100))
    ]
    table = pl.DataFrame(rows)
    lines = list(study.quantile_lines(table, "index", "kmeans"))
    assert [line[0] for line in lines] == list(study.STATISTICS)
    assert lines[1][1].startswith("0.9950 ± ")
    assert lines[3][1:] == ["0.5000 (0.5460)", *["0.5000 (0.5459)"] * 2, "0.5000 (0.5458)"]
    # Of the 80 results below 1.3 and of all 100, half have two clusters.
    for line in study.share_lines(table):
        assert [cell.partition(" ")[0] for cell in line[2:]] == ["50.0", "50.0"]
