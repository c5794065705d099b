"""The study of Garst and Reinders' figures runs, and its indices are the paper's."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.scripts import loaded


@pytest.fixture(scope="module")
def study() -> Any:
    return loaded("fkm")


@pytest.mark.slow
def test_quick_study_writes_its_table_and_picture(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.main(["--quick", "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert "2 seeds, 10 merges (quick; the paper: 200 runs on one data set)" in printed
    assert "FEMNIST is left out: give --data DIR" in printed
    assert (tmp_path / "out" / "fkm.md").read_text() in printed
    assert (tmp_path / "out" / "fkm.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "out" / "fkm.csv").open() as file:
        lines = list(csv.DictReader(file))
    for beta in ("0.1", "1.0", "10.0", "cluster-wise"):
        own = [line for line in lines if line["beta"] == beta and line["noise"] == "1.0"]
        mean = {
            name: np.mean([float(line["pooled"]) for line in own if line["method"] == name])
            for name in study.COLOURS
        }
        # The paper's claims: FKM is as good as central k-means, k-FED is not.
        assert mean["FKM gathered"] == pytest.approx(mean["central k-means"], abs=0.01)
        assert mean["FKM summed"] == pytest.approx(mean["central k-means"], abs=0.01)
        assert mean["k-FED gathered"] <= mean["k-FED informed"] + 0.02 < mean["FKM gathered"]


def test_data_are_the_papers(study: Any) -> None:
    clients, labels = study.split(study.Data(None), 3)
    assert sorted(len(set(own.tolist())) for own in labels) == study.HELD
    assert sum(map(len, clients)) == 800
    rows, of = np.concatenate(clients), np.concatenate(labels)
    means = np.array([rows[of == j].mean(axis=0) for j in range(16)])
    assert np.abs(means - study.GRID).max() < 0.6
    assert (rows - study.GRID[of]).std() == pytest.approx(1.0, abs=0.05)


def test_index_is_pooled_and_by_client(study: Any) -> None:
    clients = [np.array([[0.0], [1.0], [9.0]]), np.array([[0.0], [9.0], [9.5], [1.0]])]
    data = study.Split(clients, [np.array([0, 0, 1]), np.array([0, 1, 0, 1])])
    centers = np.array([[0.5], [9.0]])
    # The first client's rows are told apart; of the second's each pair is torn: its index is -1/2.
    assert study.by_client(data, centers) == pytest.approx((3 * 1.0 + 4 * -0.5) / 7)
    assert -0.5 < study.pooled(data, centers) < 1.0


def test_silhouettes_of_rows_at_their_centers(study: Any) -> None:
    rows = np.repeat([[0.0, 0.0], [5.0, 0.0]], 10, axis=0)
    assert study.silhouettes(rows, np.array([[0.0, 0.0], [5.0, 0.0]])) == pytest.approx((1.0, 1.0))
