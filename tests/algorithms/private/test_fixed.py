"""k-means in sums that are all fixed before: what its second look finds and costs."""

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

from privfed.algorithms.private.grids import parts_always
from privfed.algorithms.private.kmeans import FixedKMeans
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Ask
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.questions.bounded.bounded_sums import MOST_CELLS, GridSums
from privfed.questions.bounded.shells import SlabSums
from tests.algorithms.private.test_any_totals import of_rows, setting_of


def nested(d: int) -> tuple[np.ndarray, int]:
    """Make three groups far apart, of three clusters each."""
    rng = np.random.default_rng(5)
    groups = np.array([[-0.7] * d, [0.7] * d, [-0.7] + [0.7] * (d - 1)])
    corners = np.concatenate([np.zeros((1, d)), 0.08 * np.eye(d)[:2]])
    near = np.concatenate([group + corners for group in groups])
    return near[rng.integers(9, size=6000)] + 0.004 * rng.standard_normal((6000, d)), 9


def on_a_line(d: int) -> tuple[np.ndarray, int]:
    """Make six clusters along a line."""
    rng = np.random.default_rng(6)
    places = np.linspace(-1.2, 1.2, 6)[rng.integers(6, size=5000)] + 0.06 * rng.standard_normal(5000)
    return places[:, None] / np.sqrt(d) + 0.01 * rng.standard_normal((5000, d)), 6


def scattered(d: int) -> tuple[np.ndarray, int]:
    """Make clusters that neither nest nor lie along a line."""
    rng = np.random.default_rng(7)
    centers = rng.uniform(-0.8, 0.8, (5, d))
    return np.clip(centers[rng.integers(5, size=5000)] + 0.1 * rng.standard_normal((5000, d)), -1, 1), 5


def ran(rows: np.ndarray, k: int, seed: int = 0) -> tuple[float, list[Ask]]:
    """Return a fit's cost over that of k-means without privacy, and what it asked."""
    setting, rng, asked = setting_of(1.0, rows.shape[1]), np.random.default_rng([seed, 8]), list[Ask]()
    running: Any = FixedKMeans(n_clusters=k, rounds=5, seed=seed).run(setting)
    ask = next(running)
    while True:
        asked.append(ask)
        try:
            ask = running.send(of_rows(ask, rows, setting, rng))
        except StopIteration as finished:
            best = KMeans(k, n_init=10, random_state=0).fit(rows).inertia_
            return float(squared_distances(rows, finished.value.centers).min(axis=1).sum() / best), asked


@pytest.mark.parametrize(
    ("make", "d"), [(nested, 2), (nested, 3), (on_a_line, 10), (scattered, 2), (scattered, 10)]
)
def test_nested_clusters_lines_and_others_are_found_with_sums_of_fixed_lengths(make: Any, d: int) -> None:
    rows, k = make(d)
    fits = [ran(rows, k, seed) for seed in range(3)]
    assert np.median([cost for cost, _ in fits]) < 1.1
    asked = [[one.question.spec.size for one in asks] for _, asks in fits]
    # The same lengths, whatever the noise; and for each data set the same.
    assert asked[0] == asked[1] == asked[2]
    assert [one.question.spec.size for one in ran(rows[:400] / 3, k)[1]] == asked[0]


@pytest.mark.parametrize(("d", "kind"), [(2, GridSums), (3, GridSums), (5, SlabSums)])
def test_one_second_look_is_asked_whatever_rows_are_like(d: int, kind: type) -> None:
    for rows, k in (on_a_line(d), scattered(d)):
        looks = [one for one in ran(rows, k)[1] if isinstance(one.question, kind)]
        assert len(looks) == (2 if kind is GridSums else 1)


@pytest.mark.parametrize(("make", "d"), [(nested, 2), (nested, 3), (on_a_line, 5)])
def test_a_record_moves_all_sums_together_by_no_more_than_the_budget(make: Any, d: int) -> None:
    rows, k = make(d)
    asked, rng, most = ran(rows, k)[1], np.random.default_rng(9), 0.0
    for row in [*rows[:3], *rng.choice([-1.0, 1.0], (3, d)), np.zeros(d)]:
        moved = 0.0
        for ask in asked:
            less, more = (ask.question.answer(ClientData(own), rng) for own in (rows, np.vstack([rows, row])))
            bounds: Any = ask.question.bounds  # type: ignore[attr-defined]
            for name, weight in (ask.weights or {}).items():
                moved += weight * float(np.square(more[name] - less[name]).sum()) / bounds[name].l2 ** 2
        assert moved <= 1.0 + 1e-9
        most = max(most, moved)
    assert most > 0.7


def test_a_cut_grid_stays_below_the_most_cells() -> None:
    for d in (1, 2, 3):
        for k in (2, 9, 100, 1000, 5000):
            parts = parts_always(k, d)
            assert parts >= 1 and (parts == 1 or k * parts**d <= MOST_CELLS // 2)
    assert parts_always(1, 2) == 1 < parts_always(2, 2)
