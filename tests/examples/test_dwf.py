"""The study of the DWF paper's tables and figures runs, and comes out as the paper says."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.scripts import loaded


@pytest.fixture(scope="module")
def study() -> Any:
    return loaded("dwf")


@pytest.mark.slow
def test_tables_and_picture_of_a_few_runs(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scale = study.Scale(1, 0, (0.1, 1.0), 0, 0, 40)
    wanted = [job for job in study.jobs(scale, None) if job.n_clients == 100]
    runs = [study.measured(job, None, scale) for job in wanted]
    found = {job: score for job, score, _ in runs}
    study.write(found, {job: seconds for job, _, seconds in runs}, "one seed", tmp_path)
    study.draw(found, "one seed", tmp_path / "dwf.png")
    assert (tmp_path / "dwf.md").read_text() in capsys.readouterr().out
    assert (tmp_path / "dwf.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "dwf.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(wanted) == 3 * (1 + 3 * 2)
    for kind in study.KINDS:
        best = study.kept(found, "synthetic", 100, kind, study.DWF, 100)[0]
        # After 40 of some 200 rounds with a learning rate of 0.01, most of the way is done.
        assert best[0] == pytest.approx(study.PAPER["synthetic", kind][0][2], abs=0.004)
        assert best[1] == pytest.approx(study.PAPER["synthetic", kind][1][2], abs=0.01)


def test_the_better_half_is_kept(study: Any) -> None:
    jobs = [study.Job("synthetic", 10, "iid", study.DWF, 10, seed) for seed in range(4)]
    found = {job: study.Score(score, 0.5, 0.5) for job, score in zip(jobs, (4.0, 1.0, 3.0, 2.0), strict=True)}
    np.testing.assert_array_equal(study.kept(found, *jobs[0][:5])[:, 0], [1.0, 2.0])


@pytest.mark.slow
def test_a_run_of_k_fed_that_has_too_few_centroids_is_left_out(study: Any, tmp_path: Path) -> None:
    job = study.Job("synthetic", 4000, "iid", study.K_FED, 1, 0)
    _, score, _ = study.measured(job, None, study.QUICK)
    assert np.isnan(score).all()
    found = {job: score, job._replace(seed=1): study.Score(1.0, 0.5, 0.5)}
    np.testing.assert_array_equal(study.kept(found, *job[:5]), [[1.0, 0.5, 0.5]])
    assert np.isnan(study.kept({job: score}, *job[:5])).all()


def test_data_are_the_papers(study: Any) -> None:
    rows, labels = study.synthetic()
    assert rows.shape == (10_100, 2)
    np.testing.assert_array_equal(np.bincount(labels), [2000] * 5 + [100])
    assert np.abs(rows[-100:]).max() <= 1.0


def test_images_are_left_out_without_their_files(study: Any, tmp_path: Path) -> None:
    assert {job.data for job in study.jobs(study.FULL, tmp_path)} == {"synthetic"}
