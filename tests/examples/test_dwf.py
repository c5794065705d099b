"""The study of the DWF paper's tables and figures runs, and comes out as the paper says."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from examples import dwf as study


def frame(jobs: list[study.Job], scores: list[study.Score]) -> pl.DataFrame:
    pairs = zip(jobs, scores, strict=True)
    return pl.DataFrame([{**job._asdict(), **score._asdict(), "cpu": 1.0} for job, score in pairs])


@pytest.mark.slow
def test_page_and_pictures_of_a_few_runs(tmp_path: Path) -> None:
    assert study.main(["--quick", "--out", str(tmp_path), "--page", str(tmp_path / "papers")]) == 0
    page = (tmp_path / "papers" / "dwf.md").read_text()
    for name in ("dwf.png", "dwf-data.png"):
        assert name in page
        assert (tmp_path / "papers" / name).read_bytes().startswith(b"\x89PNG")
    found = pl.read_csv(tmp_path / "dwf.csv", comment_prefix="#")
    assert len(found) == 2 * 2 * 3 * (1 + 5 * 2)
    for kind in study.KINDS:
        best = study.kept(found, "synthetic", 100, kind, study.DWF, 100)[0]
        # After 60 of some 200 rounds with a learning rate of 0.01, most of the way is done.
        for metric, close in ((0, 0.004), (1, 0.01)):
            mean = study.PAPER["synthetic", kind][metric][2][0]
            assert best[metric] == pytest.approx(mean, abs=close)
            assert f"({mean:.4f}" in page


def test_the_better_half_is_kept() -> None:
    jobs = [study.Job("synthetic", 10, "iid", study.DWF, 10, seed) for seed in range(4)]
    found = frame(jobs, [study.Score(score, *[0.5] * 4) for score in (4.0, 1.0, 3.0, 2.0)])
    np.testing.assert_array_equal(study.kept(found, *jobs[0][:5], half=True)[:, 0], [1.0, 2.0])
    np.testing.assert_array_equal(study.kept(found, *jobs[0][:5])[:, 0], [1.0, 2.0, 3.0, 4.0])


@pytest.mark.slow
def test_a_run_of_k_fed_that_has_too_few_centroids_is_left_out() -> None:
    job = study.Job("synthetic", 4000, "iid", study.K_FED, 1, 0)
    score = study.Score(**study.scored(job, None, 60))
    assert np.isnan(score).all()
    found = frame([job, job._replace(seed=1)], [score, study.Score(1.0, *[0.5] * 4)])
    np.testing.assert_array_equal(study.kept(found, *job[:5]), [[1.0, 0.5, 0.5, 0.5, 0.5]])
    assert not len(study.kept(frame([job], [score]), *job[:5]))


def test_data_are_the_papers() -> None:
    rows, labels = study.synthetic()
    assert rows.shape == (10_100, 2)
    np.testing.assert_array_equal(np.bincount(labels), [2000] * 5 + [100])
    assert np.abs(rows[-100:]).max() <= 1.0


def test_images_are_left_out_without_their_files(tmp_path: Path) -> None:
    assert {job.data for job in study.jobs(study.PART, tmp_path)} == {"synthetic"}


def test_all_runs_are_as_many_as_the_papers() -> None:
    wanted = [job for job in study.jobs(study.FULL, None) if job.n_clients == 100]
    # Central k-means has no level of participation; EWF, DWF and k-FED are three of the five others.
    assert len(wanted) == 3 * 100 * (1 + 5 * 20)


def test_a_relocated_center_leaves_the_absent_clients_rows() -> None:
    _, moved = study.toy()
    away = {key: np.linalg.norm(centers[2] - study.TOY[2]) for key, centers in moved.items()}
    assert away[study.EWF, False] < 0.2 < 1.0 < away[study.EWF, True]
