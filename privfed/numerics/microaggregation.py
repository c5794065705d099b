"""Microaggregation: groups of alike points, each with at least a given number of them.

Domingo-Ferrer and Mateo-Sanz, "Practical data-oriented microaggregation for statistical disclosure control",
IEEE TKDE 14 (2002), by recursive splits along the first principal axis.

Properties (`tests/numerics/test_microaggregation.py`): the groups are the same on every machine, since all
that decides is computed on integers below 2**53, whose sums are exact in any order. The order of points moves
no bit of the sorted means. Of groups of m, each has from m to 2 m - 1 points.
"""

from __future__ import annotations

from math import ceil, log2

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray

IntArray = npt.NDArray[np.int64]

_FENCE = 8.0
"""Values count as far outside as this many interquartile ranges from the median: for alikeness only."""

_REACH = 8.0
"""Values count as far outside as this many standard deviations from the mean, likewise."""

_TURNS = 6
"""Power iterations for an axis: more did not lower the variance within groups."""

_SHORTEST = 0.25
"""Smallest share of a node's groups on either side of a cut, which bounds the depth."""

_WORTH = 0.5
"""A cut that costs a group must leave at most this part of the variance along the axis that others leave."""


def canonical_order(*columns: FloatArray) -> IntArray:
    """Return the order of points by all their values, int64 of shape (n_points,).

    Equal points keep their order. The order is by content only, and on every machine the same.

    Args:
        columns: float64 of shape (n_points,) or (n_points, any), one after another.
    """
    # Adding 0.0 makes -0.0 a 0.0. Big-endian bytes compare alike on every machine.
    return _by_bytes(np.column_stack(columns) + 0.0).argsort(kind="stable")


def _by_bytes(table: FloatArray) -> npt.NDArray[np.void]:
    big = np.ascontiguousarray(table, dtype=">f8")
    return big.view(np.dtype((np.void, 8 * big.shape[1]))).ravel()


def microaggregated(
    points: FloatArray, m: int, *, ids: IntArray | None = None, rows: IntArray | None = None
) -> tuple[IntArray, IntArray]:
    """Return groups of alike points.

    A node is cut where the variance along its first principal axis is least on both sides, at a place that
    loses no group. All nodes of about one size are cut at once.

    Args:
        points: float64 of shape (n_points, n_features), finite.
        m: fewest ids of a group, at least 1; the points must have as many.
        ids: int64 of shape (n_points,), the number of ids that a point stands for, below `m`; by default 1.
        rows: int64 of shape (n_points,), the number of rows that a point stands for, which tells equal points
            apart; by default 1.

    Returns:
        order: int64 of shape (n_points,), the points' numbers, group by group.
        ends: int64 of shape (n_groups,), where each group ends in `order`. Groups have from `m` to
        2 `m` - 1 ids; or to 3 `m` - 3, where points stand for several.
    """
    ones = np.ones(len(points), dtype=np.int64)
    ids, rows = ones if ids is None else ids, ones if rows is None else rows
    # Columns in an order of their own, so that theirs matters only where two have the same values.
    points = points[:, _by_bytes(np.sort(points + 0.0, axis=0).T).argsort(kind="stable")]
    order = canonical_order(points, ids.astype(np.float64), rows.astype(np.float64))
    tree = _Tree(_whole(points)[order], ids[order].astype(np.float64), m)
    while tree.cut():
        pass
    return order[tree.order], np.sort(tree.starts + tree.sizes)


def group_means(points: FloatArray, rows: IntArray, order: IntArray, ends: IntArray) -> FloatArray:
    """Return each group's mean over rows, float64 of shape (n_groups, n_features), within its values' range.

    Args:
        points: float64 of shape (n_points, n_features), each the mean of its rows.
        rows: int64 of shape (n_points,), how many rows.
        order: the points' numbers, group by group; the same points in the same order give the same bits.
        ends: where each group ends in `order`.
    """
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
    total, scaled = np.zeros((2, len(ends), points.shape[1]))
    low, high = np.full_like(total, np.inf), np.full_like(total, -np.inf)
    before = np.concatenate([[0], rows[order].cumsum()])
    weights, size = rows.astype(np.float64), (before[ends] - before[starts]).astype(np.float64)[:, None]
    # One addition a step for all groups: sums of numpy's own may differ between machines.
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(int((ends - starts).max(initial=0))):
            has = np.flatnonzero(starts + step < ends)
            chosen = order[starts[has] + step]
            values, weight = points[chosen], weights[chosen][:, None]
            total[has] += values * weight
            scaled[has] += values * (weight / size[has])
            low[has], high[has] = np.minimum(low[has], values), np.maximum(high[has], values)
        mean = total / size
    # A sum of huge values overflows where their mean does not.
    found: FloatArray = np.clip(np.where(np.isfinite(total), mean, scaled), low, high) + 0.0
    return found


def nearest_with_room(points: FloatArray, ids: IntArray, groups: FloatArray, room: IntArray) -> IntArray:
    """Return the nearest group that has room for each point, one point after another; -1 for none.

    Args:
        points: float64 of shape (n_points, n_features), in the order in which they are placed.
        ids: int64 of shape (n_points,), the number of ids that a point stands for.
        groups: the groups' means, float64 of shape (n_groups, n_features).
        room: int64 of shape (n_groups,), how many more ids each group may have.
    """
    whole, left = _whole(np.concatenate([groups, points])), room.copy()
    means, found = whole[: len(groups)], np.full(len(points), -1, dtype=np.int64)
    for i, (place, number) in enumerate(zip(whole[len(groups) :], ids, strict=True)):
        free = np.flatnonzero(left >= number)
        if free.size:
            away = means[free] - place
            found[i] = free[np.einsum("gd,gd->g", away, away).argmin()]
            left[found[i]] -= number
    return found


def _whole(points: FloatArray) -> FloatArray:
    """Return whole numbers in float64 that say how alike points are: each column over its own deviation.

    Whatever the values, no step overflows: a column is moved to its middle and divided by its half width.
    """
    n_points, n_features = points.shape
    ordered = np.sort(points, axis=0)
    quarter, middle, three = (ordered[(n_points - 1) * part // 4] for part in (1, 2, 3))
    with np.errstate(over="ignore"):
        fence = _FENCE * (three - quarter)
        # Where half of the values are one, nothing says what lies outside.
        fence = np.where(fence > 0, fence, np.inf)
        low, high = np.maximum(ordered[0], middle - fence), np.minimum(ordered[-1], middle + fence)
    half, centre = high / 2 - low / 2, low / 2 + high / 2
    places = (np.clip(points, low, high) / 2 - centre / 2) / np.where(half > 0, half, 1.0)
    whole = np.rint(places * 2.0 ** min(20, (60 - _bits(n_points)) // 2)).astype(np.int64)
    whole -= np.rint(whole.sum(axis=0) / n_points).astype(np.int64)
    deviation = np.sqrt((whole * whole).sum(axis=0) / n_points)
    # So many bits that all products and sums of `_Tree.cut` stay below 2**53.
    reach = 2.0 ** min(20, (51 - _bits(n_features)) // 2, 40 - _bits(n_points))
    distance = np.clip(whole / np.where(deviation > 0, deviation, 1.0), -_REACH, _REACH)
    found: FloatArray = np.rint(distance * (reach / _REACH))
    return found


def _bits(number: int) -> int:
    return ceil(log2(max(number, 2)))


def _rounded(values: FloatArray, bits: int) -> FloatArray:
    """Return values as whole numbers up to 2**bits, each row over its own largest."""
    largest = np.abs(values).max(axis=1, keepdims=True)
    rounded: FloatArray = np.rint(values / np.where(largest > 0, largest, 1.0) * 2.0**bits)
    return rounded


class _Tree:
    """Points in nodes, which are cut until none has the ids of two groups.

    Args:
        points: float64 of shape (n_points, n_features), whole numbers (`_whole`), in canonical order.
        ids: float64 of shape (n_points,), number of ids of each.
        m: fewest ids of a group.
    """

    def __init__(self, points: FloatArray, ids: FloatArray, m: int) -> None:
        self._points, self._ids, self._m = points, ids, m
        self.order = np.arange(len(points))
        self.starts, self.sizes = np.array([0]), np.array([len(points)])
        self._whole = np.array([ids.sum() < 2 * m])

    def cut(self) -> bool:
        """Cut the largest nodes, those of more than half the points of the largest; False if none is left."""
        largest = int(self.sizes[~self._whole].max(initial=0))
        if not largest:
            return False
        chosen = ~self._whole & (self.sizes > largest // 2)
        starts, sizes = self.starts[chosen], self.sizes[chosen]
        columns = np.arange(largest)
        real = columns < sizes[:, None]
        places = np.minimum(starts[:, None] + columns, len(self._points) - 1)
        along = self._along_axis(places, real, sizes)
        inner = np.where(real, along, np.inf).argsort(axis=1, kind="stable")
        to, source = places[real], (starts[:, None] + inner)[real]
        for values in (self._points, self._ids, self.order):
            values[to] = values[source]
        before = np.where(real, self._ids[places], 0.0).cumsum(axis=1)
        at = self._places_to_cut(np.take_along_axis(_rounded(along, 20), inner, axis=1), before, sizes)
        cut = at >= 0
        left = np.where(cut, at + 1, sizes)
        taken = before[np.arange(len(at)), left - 1]
        rest = before[:, -1] - taken
        self.starts = np.concatenate([starts, (starts + left)[cut], self.starts[~chosen]])
        self.sizes = np.concatenate([left, (sizes - left)[cut], self.sizes[~chosen]])
        small = 2 * self._m
        self._whole = np.concatenate([(taken < small) | ~cut, (rest < small)[cut], self._whole[~chosen]])
        return True

    def _along_axis(self, places: IntArray, real: npt.NDArray[np.bool_], sizes: IntArray) -> FloatArray:
        """Return each point's place along its node's first principal axis; 0 beyond a node's points."""
        points = self._points[places.ravel()].reshape(*places.shape, -1)
        points[~real] = 0.0
        points -= np.rint(points.sum(axis=1) / sizes[:, None])[:, None]
        points[~real] = 0.0
        # The power iteration begins at the point that is farthest from the middle.
        far = np.einsum("nsd,nsd->ns", points, points).argmax(axis=1)
        axis = _rounded(points[np.arange(len(far)), far], 10)
        for _ in range(_TURNS):
            along = _rounded(np.matmul(points, axis[:, :, None])[:, :, 0], 12)
            axis = _rounded(np.matmul(along[:, None, :], points)[:, 0], 10)
        found: FloatArray = np.matmul(points, axis[:, :, None])[:, :, 0]
        return found

    def _places_to_cut(self, along: FloatArray, before: FloatArray, sizes: IntArray) -> IntArray:
        """Return the number of the last point on the left of each node's cut; -1 where there is no place.

        Args:
            along: float64 of shape (n_nodes, largest), places along the axis, ascending.
            before: of the same shape, ids up to each point.
            sizes: int64 of shape (n_nodes,), numbers of points.
        """
        m, all_ids = self._m, before[:, -1:]
        sums, lefts = along.cumsum(axis=1), np.arange(1.0, along.shape[1] + 1)
        others = sums[:, -1:] - sums
        between = sums * sums / lefts + others * others / np.maximum(sizes[:, None] - lefts, 1)
        within = (along * along).cumsum(axis=1)[:, -1:] - between
        shorter = np.minimum(before, all_ids - before)
        allowed = (shorter >= m) & (shorter >= (all_ids // m * _SHORTEST // 1) * m)
        # With several ids a point, there may be no place within these.
        allowed = np.where(allowed.any(axis=1, keepdims=True), allowed, shorter >= m)
        keeps = allowed & (before // m + (all_ids - before) // m == all_ids // m)
        nodes, best = np.arange(len(along)), np.where(allowed, within, np.inf).argmin(axis=1)
        kept = np.where(keeps, within, np.inf).argmin(axis=1)
        worth = ~keeps.any(axis=1) | (within[nodes, best] < _WORTH * within[nodes, kept])
        return np.where(allowed.any(axis=1), np.where(worth, best, kept), -1)
