"""Exact distances are the same bits from both kernels, as the literal loops have them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.numerics.kernels.dispatch import Choice, distances, joined, nearest, two_nearest, weighted_sums
from tests.default_run import examples
from tests.numerics.test_kernels import KERNELS, SEEDS, points

COLUMNS = st.sampled_from([1, 2, 3, 8, 9, 31, 33, 67])
ROWS = st.sampled_from([1, 5, 63, 64, 65, 130])


def literal_distances(rows: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Exact distances, as they are defined: squared differences, added one column after the other."""
    found = np.zeros((len(centers), len(rows)))
    for j, center in enumerate(centers):
        for i, row in enumerate(rows):
            total = np.float64(0.0)
            with np.errstate(over="ignore"):
                for value, place in zip(row, center, strict=True):
                    total += (value - place) * (value - place)
            found[j, i] = total
    return found


def literal_two(column: np.ndarray) -> tuple[int, float, float]:
    """The first of the least distances, and the least of the others, by sorting."""
    order = sorted(range(len(column)), key=lambda j: (column[j], j))
    return order[0], column[order[0]], column[order[1]] if len(order) > 1 else np.inf


@pytest.mark.parametrize("budget", KERNELS)
@settings(max_examples=examples(20), deadline=None)
@given(seed=SEEDS, d=COLUMNS, n=ROWS, k=st.integers(1, 5), kind=st.integers(0, 5))
def test_distances_and_the_two_least_are_exact(
    budget: float, seed: int, d: int, n: int, k: int, kind: int
) -> None:
    rng, choice = np.random.default_rng(seed), Choice(budget)
    rows, centers = points(rng, n, d, kind), points(rng, k, d, kind)
    expected = literal_distances(rows, centers)
    assert distances(rows, centers, choice=choice).tobytes() == expected.tobytes()
    found, both = two_nearest(rows, centers, choice=choice), [literal_two(own) for own in expected.T]
    assert [tuple(one) for one in zip(*found, strict=True)] == both
    assert [tuple(one) for one in zip(*nearest(rows, centers, choice=choice), strict=True)] == [
        one[:2] for one in both
    ]


@pytest.mark.parametrize("budget", KERNELS)
@settings(max_examples=examples(15), deadline=None)
@given(seed=SEEDS, d=COLUMNS, n=ROWS, sets=st.integers(1, 3), tries=st.integers(1, 4))
def test_a_candidate_that_joins_leaves_the_lesser_distances(
    budget: float, seed: int, d: int, n: int, sets: int, tries: int
) -> None:
    rng, choice = np.random.default_rng(seed), Choice(budget)
    rows, candidates = rng.normal(size=(n, d)), rng.normal(size=(sets, tries, d))
    weights = rng.random(n) * rng.integers(0, 2, n)
    closest = np.full((sets, n), np.inf) if seed % 2 else rng.random((sets, n)) * d
    found, sums = joined(rows, weights, candidates, closest, choice=choice)
    expected = np.stack([literal_distances(rows, own) for own in candidates])
    expected = np.minimum(expected, closest[:, None])
    assert found.tobytes() == expected.tobytes()
    literal = np.zeros((sets, tries))
    for values, weight in zip(np.moveaxis(expected, 2, 0), weights, strict=True):
        literal += values * weight
    assert sums.tolist() == literal.tolist()


@pytest.mark.parametrize("budget", KERNELS)
@settings(max_examples=examples(15), deadline=None)
@given(seed=SEEDS, d=COLUMNS, n=st.sampled_from([1, 2, 4, 7, 1_000]), k=st.integers(1, 5))
def test_weighted_sums_add_row_after_row(budget: float, seed: int, d: int, n: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    weights, rows = rng.random((k, n)) * rng.integers(0, 2, (k, n)), rng.normal(size=(n, d))
    rows[0] = -0.0
    totals, sums = np.zeros(k), np.zeros((k, d))
    for row, own in zip(rows, weights.T, strict=True):
        totals += own
        sums += own[:, None] * row
    wide = np.zeros((k, n + 2))
    wide[:, 1:-1] = weights
    found = weighted_sums(wide[:, 1:-1], rows, choice=Choice(budget))
    assert [one.tobytes() for one in found] == [totals.tobytes(), sums.tobytes()]


def test_a_settled_choice_stays_and_counts_its_work_once() -> None:
    choice = Choice(1.0)
    settled = choice.settled(10_000_000, 20, 100)
    assert choice.settled(1, 1, 1).compiled(1, 1, 1) is settled.compiled(1, 1, 1)
    held = Choice(1.0).settled(1, 1, 1)
    assert all(held.compiled(10_000_000, 20, 100) is None for _ in range(3))


@pytest.mark.parametrize("budget", KERNELS)
def test_tables_in_any_order_of_memory_are_read(budget: float) -> None:
    rng = np.random.default_rng(0)
    columns, centers = np.asfortranarray(rng.normal(size=(70, 9))), np.asfortranarray(rng.normal(size=(3, 9)))
    found = distances(columns, centers, choice=Choice(budget))
    assert found.tobytes() == literal_distances(columns, centers).tobytes()
