"""Centers that explain few noised cells together, where each cell holds rows of several clusters."""

import numpy as np
import pytest

from benchmarks.dp_sets import fitted, gaussians
from privfed.algorithms.private.coreset import denoised, few_cells, wide_clusters
from privfed.algorithms.private.coreset import fitted as start_of
from privfed.algorithms.private.decoding import decoded
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.scale import Frame, Scale, clipped
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Total
from privfed.core.values.domain import Ranges
from privfed.numerics.kmeans import weighted_kmeans
from privfed.questions.bounded.bounded_sums import HashSums
from privfed.questions.cells import drawn_normals


def scale_of(rows: np.ndarray, budget: float, center: np.ndarray | None = None) -> Scale:
    d = rows.shape[1]
    ranges = Ranges(np.full(d, -1.0), np.full(d, 1.0), 1 << 20)
    center = rows.mean(axis=0) if center is None else center
    radius = float(np.quantile(np.linalg.norm(rows - center, axis=1), 0.8))
    frame = Frame(ranges, np.zeros(d), float(np.sqrt(d)))
    return Scale(frame, budget, False, float(len(rows)), center, radius, 0.07)


def clusters(n: int, d: int, k: int, seed: int, spread: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-0.8, 0.8, (k, d))
    rows = centers[rng.integers(k, size=n)] + spread * rng.standard_normal((n, d))
    return np.clip(rows, -1.0, 1.0), centers


def cost(rows: np.ndarray, centers: np.ndarray) -> float:
    return float(np.square(rows[:, None] - centers).sum(axis=2).min(axis=1).sum())


def test_they_are_nearer_than_clusters_of_the_cells_means() -> None:
    """Of 32 cells each holds two clusters or more, and noise is as long as a cell's sum."""
    fitted_to_all, of_means = list[float](), list[float]()
    for seed in range(12):
        rows, centers = clusters(500, 6, 5, seed)
        scale, rng = scale_of(rows, 0.056), np.random.default_rng(seed)
        normals = drawn_normals(6, 5, rng)
        question = HashSums(
            ranges=scale.frame.ranges, center=scale.center, radius=scale.radius, normals=normals
        )
        exact, noise = question.answer(ClientData(rows), rng), (20.0, 9.3 * scale.radius)
        counts = exact["count"] + noise[0] * rng.standard_normal(32)
        sums = exact["sum"] + noise[1] * rng.standard_normal((32, 6))
        points, weights = decoded(scale, question, (counts, sums), noise, 5, rng)
        assert points.shape == (5, 6) and weights.sum() == pytest.approx(500.0) and (weights > 0.0).all()
        kept = counts > 40.0
        means = clipped(denoised(sums[kept], noise[1]) / counts[kept, None], scale.radius)
        found = weighted_kmeans(scale.center + means, counts[kept], min(5, int(kept.sum())), rng).centers
        fitted_to_all.append(cost(rows, points) / cost(rows, centers))
        of_means.append(cost(rows, found) / cost(rows, centers))
    assert np.mean(fitted_to_all) < 0.75 * np.mean(of_means)


def test_a_fit_of_few_rows_costs_less() -> None:
    """The mean of these seeds was 2.3 when k-means began with the means of cells."""
    costs = []
    for draw in range(3):
        rows, centers = clusters(500, 6, 5, 100 + draw)
        for seed in range(8):
            found = fitted(PrivateKMeans(n_clusters=5, seed=seed), rows, 1.0, seed)
            costs.append(cost(rows, found) / cost(rows, centers))
    assert np.mean(costs) < 2.0 and np.median(costs) < 1.5


def test_it_is_for_few_cells_of_few_clusters_above_two() -> None:
    def few(n: int, d: int, k: int, budget: float) -> bool:
        scale = scale_of(gaussians(n, d, k, 1)[0], budget)
        assert not (few_cells(scale, k) and wide_clusters(scale, k))
        return few_cells(scale, k)

    assert few(500, 6, 5, 0.056)
    assert not few(500, 6, 2, 0.056) and not few(500, 6, 9, 0.056) and not few(500, 3, 5, 0.056)
    assert not few(50_000, 6, 5, 0.056) and not few(500, 6, 5, 1e-4)


@pytest.mark.parametrize("beside", [0.0, 0.25])
def test_of_rows_on_a_line_two_cells_are_left(beside: float) -> None:
    """Hyperplanes through a point of the line cut it there, and others in several places; slabs follow."""
    places = np.random.default_rng(0).choice([-0.7, -0.3, 0.3, 0.7], (600, 1))
    rows = np.clip(places * np.ones(6) + 0.01 * np.random.default_rng(1).standard_normal((600, 6)), -1, 1)
    center = beside * np.array([1.0, -1.0] * 3)
    scale, rng = scale_of(rows, 0.056, center), np.random.default_rng(3)
    asking = start_of(scale, 4, rng)
    ask = next(asking)
    assert isinstance(ask, Ask) and isinstance(ask.question, HashSums)
    exact = ask.question.answer(ClientData(rows), rng)
    with pytest.raises(StopIteration) as ended:
        asking.send(Total(Statistics(**exact), (0,), noise_std={"count": 20.0, "sum": 10.0}))
    found = ended.value.value
    assert len(found.points) == 2
    apart = np.diff(found.points, axis=0)[0]
    assert abs(apart.sum()) > 0.9 * np.sqrt(6) * np.linalg.norm(apart)
    if not beside:
        assert np.dot(*(found.points / np.linalg.norm(found.points, axis=1)[:, None])) < -0.9


def test_clusters_that_lie_apart_are_not_taken_for_a_line() -> None:
    kept = []
    for seed in range(20):
        rows, _ = clusters(500, 6, 5, seed)
        asking = start_of(scale_of(rows, 0.056), 5, np.random.default_rng(seed))
        exact = next(asking).question.answer(ClientData(rows), np.random.default_rng(0))
        with pytest.raises(StopIteration) as ended:
            asking.send(Total(Statistics(**exact), (0,), noise_std={"count": 20.0, "sum": 10.0}))
        kept.append(len(ended.value.value.points))
    assert kept.count(5) >= 18
