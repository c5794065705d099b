"""Pages of the papers: runs resume, cells count both spreads, and a page's changes are told from noise."""

import math
import re
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from examples import pages


class Job(NamedTuple):
    name: str
    seed: int | None


def counted(calls: list[Job]) -> object:
    def measure(job: Job) -> dict[str, float]:
        calls.append(job)
        return {"score": math.nan if job.seed is None else 10.0 * job.seed}

    return measure


JOBS = [Job("a", 0), Job("a", 1), Job("b", None)]


def run(jobs: list[Job], path: Path, **parameters: int) -> tuple[pl.DataFrame, list[Job]]:
    calls: list[Job] = []
    chosen = Namespace(workers=1, left=[])
    return pages.measured(jobs, counted(calls), path, parameters, chosen), calls  # type: ignore[arg-type]


def test_runs_that_a_file_holds_are_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    first, calls = run(JOBS[:2], path, rounds=3)
    assert calls == JOBS[:2]
    table, calls = run(JOBS, path, rounds=3)
    assert calls == JOBS[2:]
    assert table["score"].to_list()[:2] == first["score"].to_list() == [0.0, 10.0]
    assert math.isnan(table["score"][2])
    # Runs that nobody asks for stay in the file and out of the table.
    table, calls = run(JOBS[1:2], path, rounds=3)
    assert (table["seed"].to_list(), calls) == ([1], [])
    assert run(JOBS, path, rounds=3)[1] == []


def test_other_parameters_and_a_line_that_was_cut_off_are_run_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    run(JOBS, path, rounds=3)
    assert run(JOBS, path, rounds=4)[1] == JOBS
    path.write_text(path.read_text().rstrip().rpartition(",")[0])
    table, calls = run(JOBS, path, rounds=4)
    assert calls == JOBS[2:]
    assert len(table) == 3


def test_a_page_says_which_runs_are_missing_and_a_file_without_runs_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    run(JOBS[:2], path)
    chosen = Namespace(workers=0, left=[], page=None, out=tmp_path)
    assert len(pages.measured(JOBS, counted([]), path, {}, chosen)) == 2  # type: ignore[arg-type]
    assert chosen.left == ["2 of 3 of runs.csv"]
    pages.write("dwf", "# Paper\n\nText.", chosen)
    page = (tmp_path / "dwf.md").read_text()
    assert page.startswith("# Paper\n\n") and page.endswith("\n\nText.") and chosen.left[0] in page
    # A program that was broken off in its first run.
    path.write_text(path.read_text().splitlines()[0] + "\n")
    assert run(JOBS, path)[1] == JOBS


def apart(cell: str) -> float:
    found = re.search(r"([+-][\d.]+)\**\)", cell)
    assert found is not None
    return float(found[1])


def test_a_difference_counts_the_standard_errors_of_both() -> None:
    ours = [1.0, 3.0] * 50
    error = np.std(ours, ddof=1) / 10
    assert apart(pages.beside(ours, 1.5, 2.0, 25)) == pytest.approx(0.5 / math.hypot(0.2, 0.4), abs=0.06)
    # Without a printed spread ours stands for it; the paper's value is one run, or as many as are told.
    assert apart(pages.beside(ours, 1.5)) == pytest.approx(0.5 / math.hypot(error, 1.005), abs=0.06)
    assert apart(pages.beside(ours, 1.5, runs=100)) == pytest.approx(0.5 / math.hypot(error, 0.1), abs=0.06)
    assert apart(pages.beside(ours, 2.5, 2.0, 25)) == -apart(pages.beside(ours, 1.5, 2.0, 25))


def test_one_run_has_the_papers_spread_and_equal_runs_the_rounding() -> None:
    assert apart(pages.beside([5.0], 4.0, 2.0, 100)) == pytest.approx(1 / math.hypot(2.0, 0.2), abs=0.06)
    assert apart(pages.beside([0.5] * 9, 0.4999, 0.0, 100)) == pytest.approx(1.0, abs=0.06)


def test_runs_without_a_value_are_left_out() -> None:
    assert pages.beside([1.0, math.nan, 3.0], 2.0) == pages.beside([1.0, 3.0], 2.0)
    assert pages.beside([math.nan], 2.0).startswith("none")
    assert pages.beside([]) == ""


def page_of(value: float, error: float = 0.01) -> str:
    rng = np.random.default_rng(0)
    other = pages.beside(rng.normal(size=20), 0.1)
    cell = f"{value:.4f} ± {error:.4f} (0.5000, +0.1)"
    rows = [["iid", "mean", cell, other], ["iid", "best", "0.1 (0.2)", ""]]
    return "# Paper\n\n## Table 1\n\n" + pages.table(["data", "value", "DWF", "EWF"], rows)


def test_a_change_beyond_the_noise_of_both_pages_is_told() -> None:
    assert pages.changes(page_of(0.5), page_of(0.5)) == []
    assert pages.changes(page_of(0.5), page_of(0.55)) == []
    (line,) = pages.changes(page_of(0.5), page_of(0.6))
    assert all(one in line for one in ("Table 1", "iid", "DWF", "0.5", "0.6"))
    # Equal runs have the last digit as their noise.
    assert pages.changes(page_of(0.5, 0.0), page_of(0.5002, 0.0)) == []
    assert len(pages.changes(page_of(0.5, 0.0), page_of(0.501, 0.0))) == 1
    # A page of fewer data has fewer lines.
    assert pages.changes(page_of(0.5), "# Paper") == pages.changes("", page_of(0.5)) == []


def test_values_within_two_standard_errors_are_counted() -> None:
    cells = [pages.beside([1.0], printed, 1.0, 100) for printed in (0.0, 1.5, 4.0, -4.0)]
    assert pages.within(pages.table(list("abcd"), [cells])).startswith("Of 4 printed values 2 lie")


@pytest.mark.parametrize(("value", "code"), [(0.5, 0), (0.9, 1)])
def test_a_page_that_differs_from_the_one_before_exits_with_one(
    tmp_path: Path, value: float, code: int
) -> None:
    chosen = Namespace(out=tmp_path / "runs", page=tmp_path / "papers", left=[])
    chosen.out.mkdir()
    (chosen.out / "dwf.png").write_bytes(b"picture")
    assert pages.write("dwf", page_of(0.5), chosen) == 0
    assert pages.write("dwf", page_of(value), chosen) == code
    assert (chosen.page / "dwf.md").read_text() == (chosen.out / "dwf.md").read_text() == page_of(value)
    assert (chosen.page / "dwf.png").read_bytes() == b"picture"
    chosen.page = None
    assert pages.write("dwf", page_of(0.1), chosen) == 0
    assert (tmp_path / "papers" / "dwf.md").read_text() == page_of(value)
