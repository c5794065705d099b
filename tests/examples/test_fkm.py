"""The study of Garst and Reinders' figures runs, and its indices are the paper's."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from examples import fkm as study


@pytest.mark.slow
def test_quick_study_writes_its_page_and_picture(tmp_path: Path) -> None:
    assert study.main(["--quick", "--out", str(tmp_path), "--page", str(tmp_path / "papers")]) == 0
    page = (tmp_path / "papers" / "fkm.md").read_text()
    assert (tmp_path / "papers" / "fkm.png").read_bytes().startswith(b"\x89PNG")
    found = pl.read_csv(tmp_path / "fkm.csv", comment_prefix="#")
    for beta in (*study.BETAS, None):
        mean = {name: study.values(found, name, study.Data(beta)).mean() for name in study.COLOURS}
        # The paper's claims: FKM is as good as central k-means, k-FED is not.
        assert mean["FKM gathered"] == pytest.approx(mean["central k-means"], abs=0.01)
        assert mean["FKM summed"] == pytest.approx(mean["central k-means"], abs=0.01)
        assert mean["k-FED gathered"] <= mean["k-FED informed"] + 0.02 < mean["FKM gathered"]
        assert f"({study.AUTHORS_CODE['FKM gathered', beta][0]:.4f}, " in page


def test_the_study_has_each_figures_runs() -> None:
    wanted = list(study.jobs(study.PART))
    assert len(wanted) == len(set(wanted))
    assert {job.rows for job in wanted if job.beta is not None} == {50, 100, 200}
    informed = [job for job in wanted if job.k_local is not None]
    assert {job.method for job in informed} == {study.INFORMED}
    assert {job.noise for job in informed} == {1.0}


def test_data_are_the_papers() -> None:
    clients, labels = study.split(study.Data(None), 3)
    assert sorted(len(set(own.tolist())) for own in labels) == study.HELD
    assert sum(map(len, clients)) == 800
    rows, of = np.concatenate(clients), np.concatenate(labels)
    means = np.array([rows[of == j].mean(axis=0) for j in range(16)])
    assert np.abs(means - study.GRID).max() < 0.6
    assert (rows - study.GRID[of]).std() == pytest.approx(1.0, abs=0.05)


def test_index_is_pooled_and_by_client() -> None:
    clients = [np.array([[0.0], [1.0], [9.0]]), np.array([[0.0], [9.0], [9.5], [1.0]])]
    data = study.Split(clients, [np.array([0, 0, 1]), np.array([0, 1, 0, 1])])
    centers = np.array([[0.5], [9.0]])
    # The first client's rows are told apart; of the second's each pair is torn: its index is -1/2.
    assert study.by_client(data, centers) == pytest.approx((3 * 1.0 + 4 * -0.5) / 7)
    assert -0.5 < study.pooled(data, centers) < 1.0


def test_silhouettes_of_rows_at_their_centers() -> None:
    rows = np.repeat([[0.0, 0.0], [5.0, 0.0]], 10, axis=0)
    assert study.silhouettes(rows, np.array([[0.0, 0.0], [5.0, 0.0]])) == pytest.approx((1.0, 1.0))
