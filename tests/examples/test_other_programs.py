"""The adapter for NVFlare's k-means, on rounds that scikit-learn computes as that program's clients do."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import KMeans, MiniBatchKMeans, kmeans_plusplus
from sklearn.datasets import load_iris

from tests.examples.scripts import loaded

nvflare_kmeans = loaded("other_programs/nvflare_kmeans")


def recorded(folder: Path, k: int = 10, rounds: int = 12) -> dict[str, np.ndarray]:
    rows = np.random.default_rng(0).permutation(load_iris().data)[:120]
    clients = dict(zip(("site-1", "site-10", "site-2"), np.split(rows, 3), strict=True))
    first = {f"{name}/center": kmeans_plusplus(own, k, random_state=0)[0] for name, own in clients.items()}
    np.savez(folder / "round-0.npz", **first)
    centers = KMeans(k, n_init=1, random_state=0).fit(np.concatenate(list(first.values()))).cluster_centers_
    weights = np.zeros(k)
    for number in range(1, rounds):
        found, total, counts = {"sent": centers.copy()}, weights[:, None] * centers, weights.copy()
        for name, own in clients.items():
            one = MiniBatchKMeans(
                k, batch_size=40, max_iter=1, init=centers, n_init=1, reassignment_ratio=0, random_state=0
            ).fit(own)
            found |= {f"{name}/center": one.cluster_centers_, f"{name}/count": one._counts}
            total, counts = total + one._counts[:, None] * one.cluster_centers_, counts + one._counts
        np.savez(folder / f"round-{number}.npz", **found)
        centers, weights = total / np.maximum(counts, 1)[:, None], counts
    return clients


def test_seeds_and_cells_of_nvflares_kmeans_are_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = recorded(tmp_path)
    np.savez(tmp_path / "rows.npz", **clients)
    rounds = nvflare_kmeans.read(tmp_path)
    assert [len(one) for one in rounds] == [3, *[7] * 11]
    for name, shown in nvflare_kmeans.seeds(rounds).items():
        assert all((shown_row == clients[name]).all(axis=1).any() for shown_row in shown)
    nvflare_kmeans.main(str(tmp_path), str(tmp_path / "rows.npz"))
    said = capsys.readouterr().out
    assert said.count("rows as seeds in round 0") == 3 and "precision 1.00" in said
    assert "precision 0" not in said
