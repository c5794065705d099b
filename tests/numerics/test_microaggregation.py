"""Groups of alike points: their sizes, their bits whatever the order and the machine, and what they cost."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from privfed.numerics.microaggregation import canonical_order, group_means, microaggregated
from tests.some import some

FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
ANY = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1.0, 5e-324, 1e308, -1e308]
)
# Small numbers have ties, large ones overflow.
VALUES = st.one_of(ANY, st.integers(-2, 2).map(float))


@st.composite
def tables(draw: st.DrawFn, least: int = 1) -> FloatArray:
    shape = (draw(st.integers(least, 40)), draw(st.integers(1, 4)))
    values = draw(st.sampled_from([VALUES, st.integers(0, 1).map(float), ANY]))
    return np.array(
        draw(st.lists(values, min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    ).reshape(shape)


def table_of(points: FloatArray, m: int, ids: object = None, rows: object = None) -> FloatArray:
    """Return the sorted table of groups: mean, number of points' ids and of rows."""
    ones = np.ones(len(points), dtype=np.int64)
    ids, rows = ones if ids is None else np.asarray(ids), ones if rows is None else np.asarray(rows)
    order, ends = microaggregated(points, m, ids=ids, rows=rows)
    starts = np.concatenate([[0], ends[:-1]])
    sizes = [[ids[order[a:b]].sum(), rows[order[a:b]].sum()] for a, b in zip(starts, ends, strict=True)]
    found = np.hstack([group_means(points, rows, order, ends), np.array(sizes, dtype=np.float64)])
    return found[canonical_order(found)]


@given(tables(), st.integers(1, 9))
def test_each_point_is_in_one_group_and_each_group_has_m_to_2m_less_1(points: FloatArray, m: int) -> None:
    assume(len(points) >= m)
    order, ends = microaggregated(points, m)
    sizes = np.diff(np.concatenate([[0], ends]))
    assert sorted(order) == list(range(len(points)))
    assert ends[-1] == len(points) and sizes.min() >= m and sizes.max() <= 2 * m - 1


@given(tables(), st.integers(2, 6), st.data())
def test_groups_of_points_that_stand_for_several_ids_have_m_to_3m_less_3(
    points: FloatArray, m: int, data: st.DataObject
) -> None:
    ids = np.array(data.draw(st.lists(st.integers(1, m - 1), min_size=len(points), max_size=len(points))))
    assume(ids.sum() >= m)
    found = table_of(points, m, ids)[:, -2]
    assert found.sum() == ids.sum() and found.min() >= m and found.max() <= max(3 * m - 3, 2 * m - 1)


@given(tables(least=5), st.integers(2, 5), st.randoms(use_true_random=False), st.data())
def test_the_order_of_points_moves_no_bit(
    points: FloatArray, m: int, random: object, data: st.DataObject
) -> None:
    rows = np.array(data.draw(st.lists(st.integers(1, 3), min_size=len(points), max_size=len(points))))
    other = np.random.default_rng(random.randrange(2**32)).permutation(len(points))  # type: ignore[attr-defined]
    found = table_of(points, m, rows=rows)
    assert found.tobytes() == table_of(points[other], m, rows=rows[other]).tobytes()


@given(tables(least=5), st.integers(2, 5), st.permutations(range(4)))
def test_the_order_of_columns_moves_that_of_the_means(points: FloatArray, m: int, order: list[int]) -> None:
    other = [i for i in order if i < points.shape[1]]
    contents = {tuple(sorted(column + 0.0)): tuple(column + 0.0) for column in points.T}
    # Two columns with the same values at other points: nothing but their order tells them apart.
    assume(all(contents[tuple(sorted(column + 0.0))] == tuple(column + 0.0) for column in points.T))
    found, moved = table_of(points, m), table_of(points[:, other], m)
    back = np.hstack([moved[:, np.argsort(other)], moved[:, -2:]])
    assert found.tobytes() == back[canonical_order(back)].tobytes()


@given(tables(least=5), st.integers(2, 5))
def test_means_lie_within_their_groups_values_and_equal_values_are_their_mean(
    points: FloatArray, m: int
) -> None:
    ones = np.ones(len(points), dtype=np.int64)
    order, ends = microaggregated(points, m)
    means = group_means(points, ones, order, ends)
    for mean, of_group in some(zip(means, np.split(points[order], ends[:-1]), strict=True)):
        assert (mean >= of_group.min(axis=0)).all() and (mean <= of_group.max(axis=0)).all()
        exact = [float(sum(map(Fraction, column.tolist())) / len(column)) for column in of_group.T]
        np.testing.assert_allclose(mean, exact, rtol=1e-9, atol=1e-15 * np.abs(of_group).max())


def test_alike_points_are_grouped_whatever_an_outlier_and_a_columns_unit_are() -> None:
    rng = np.random.default_rng(0)
    corners = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    points = np.vstack([np.repeat(corners, 10, axis=0) + rng.normal(0, 0.01, (40, 2)), [[1e12, -1e12]]])
    order, ends = microaggregated(points * [1e-200, 1e200] + [1e-198, 0], 5)
    corners_in = [
        {number // 10 for number in members if number < 40} for members in np.split(order, ends[:-1])
    ]
    # The outlier's group needs four more; nothing else may be mixed.
    assert sum(len(found) > 1 for found in corners_in) <= 1 and len(corners_in) == 8


def drawn_groups() -> str:
    found = hashlib.sha256()
    for n_points, n_features, m in ((20_000, 3, 5), (900, 64, 3), (300, 1, 10), (64, 2, 2)):
        # Quotients of integers, which every machine draws and divides alike; the last has many ties.
        rng = np.random.default_rng(n_points)
        points = rng.integers(-999, 999, (n_points, n_features)) / rng.integers(1, 99, (n_points, 1))
        points = np.round(points) % 3 if m == 2 else points
        found.update(table_of(points, m).astype("<f8").tobytes())
    return found.hexdigest()


def test_other_machines_make_the_same_groups() -> None:
    assert drawn_groups() == "a47c4b8808aad4a9d5c33e2102c89650707f9c339968e91a9cebc821c8c85fad"


@pytest.mark.few(1)
@pytest.mark.parametrize("processor", ["Nehalem", "Haswell"])
def test_threads_and_instructions_of_the_processor_move_no_bit(processor: str) -> None:
    asked = "from tests.numerics.test_microaggregation import drawn_groups; print(drawn_groups())"
    other = {
        "OMP_NUM_THREADS": "4",
        "OPENBLAS_NUM_THREADS": "4",
        "OPENBLAS_CORETYPE": processor,
        "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3 AVX512F" if processor == "Nehalem" else "",
    }
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", asked], env=os.environ | other, capture_output=True, text=True
    )
    assert ran.stdout.strip() == drawn_groups(), ran.stderr


def lost(points: FloatArray, groups: list[FloatArray]) -> float:
    within = sum(((group - group.mean(axis=0)) ** 2).sum() for group in groups)
    return float(within / ((points - points.mean(axis=0)) ** 2).sum())


def mdav(points: FloatArray, m: int) -> list[FloatArray]:
    """Return groups by MDAV: Domingo-Ferrer and Torra, Data Min. Knowl. Discov. 11 (2005), algorithm 5.1."""
    left, groups = points, []

    def farthest(origin: FloatArray) -> FloatArray:
        return np.asarray(left[((left - origin) ** 2).sum(axis=1).argmax()])

    def take(centre: FloatArray) -> FloatArray:
        nearest = ((left - centre) ** 2).sum(axis=1).argsort(kind="stable")
        groups.append(left[nearest[:m]])
        return np.asarray(left[nearest[m:]])

    while len(left) >= 3 * m:
        first = farthest(left.mean(axis=0))
        left = take(first)
        left = take(farthest(first))
    if len(left) >= 2 * m:
        left = take(farthest(left.mean(axis=0)))
    return [*groups, left]


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_digits, load_diabetes])
def test_variance_is_lost_as_by_mdav(load: object) -> None:
    table = load().data  # type: ignore[operator]
    points = (table - table.mean(axis=0)) / np.where(table.std(axis=0) > 0, table.std(axis=0), 1)
    points = points[np.random.default_rng(0).permutation(len(points))[:360]]
    for m in (5, 10):
        order, ends = microaggregated(points, m)
        assert lost(points, np.split(points[order], ends[:-1])) <= 1.05 * lost(points, mdav(points, m))
