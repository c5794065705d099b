"""Finds differences of sums that could be one row, from cells whose counts differ by one.

Take two cells with counts c and c + 1. If the first holds all but one of the second's rows, the difference of
the sums is that row x; otherwise it is a combination such as x + y - z. So each difference is a possible
derivation of a row: the row must lie in the cell with more rows and outside the one with fewer, and
independent derivations of the same vector are unlikely to be a coincidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privfed.attacks.base.report import IntArray
from privfed.attacks.reconstruction.residual import BoolArray, Residual
from privfed.core.values.domain import FloatArray

_CHUNK = 200_000

_FILTERING = 4
"""Number of features that are checked first, as a few rule out nearly all pairs."""

_MOST_UNITED = 32
"""Most cells of an observation whose pairs are compared with single cells of others."""


@dataclass(frozen=True, eq=False)
class Derivations:
    """Holds differences that could be rows, one in each table row.

    Args:
        points: the differences, float64 of shape (n, n_features).
        more: observation of the larger side, shape (n,).
        less: observation of the smaller side, shape (n,); -1 if nothing is subtracted.
        more_cells: the one or two cells of the larger side, (n, 2); a single cell is repeated.
        less_cells: the one or two cells of the smaller side, (n, 2).
    """

    points: FloatArray
    more: IntArray
    less: IntArray
    more_cells: IntArray
    less_cells: IntArray

    def __len__(self) -> int:
        return len(self.points)

    def kept(self, which: BoolArray | IntArray) -> Derivations:
        """Return the chosen derivations."""
        return Derivations(
            self.points[which],
            self.more[which],
            self.less[which],
            self.more_cells[which],
            self.less_cells[which],
        )


def derive(residual: Residual, low: FloatArray, high: FloatArray, rng: np.random.Generator) -> Derivations:
    """Return all differences that could be a row in the box [low, high].

    Single cells are compared across all observations. A pair of cells is compared with the same pair in
    other observations of its sequence, as rows that move between the two cells cancel.

    Args:
        residual: counts and sums that are left.
        low: smallest value of each feature, (n_features,).
        high: largest value of each feature, (n_features,).
        rng: draws a projection by which equal vectors are found.
    """
    singles = _of_single_cells(residual, low, high, rng)
    pairs = [_of_pairs(residual, sequence, low, high) for sequence in np.unique(residual.sequence)]
    return _joined(residual, [*singles, *pairs])


def derive_unions(
    residual: Residual, low: FloatArray, high: FloatArray, rng: np.random.Generator
) -> Derivations:
    """Return differences between a cell and two cells of another observation that could be a row in the box.

    There are many, and few are rows, so they are used only when single cells give no more.

    Args:
        residual: counts and sums that are left.
        low: smallest value of each feature, (n_features,).
        high: largest value of each feature, (n_features,).
        rng: draws a projection by which equal vectors are found.
    """
    held, contents = _held(residual, rng)
    first = np.unique(contents, return_index=True)[1]
    found, seen = [_single(residual, residual.sums[:0], held[:0], held[:0])], set()
    for number in range(len(residual)):
        of_this = residual.of[held] == number
        content = tuple(np.unique(contents[of_this]))
        if content in seen or len(content) > _MOST_UNITED:
            continue
        seen.add(content)
        other = held[first[~np.isin(contents[first], content)]]
        found.append(_against_unions(residual, held[of_this], other, low, high))
    return _joined(residual, found)


def _held(residual: Residual, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Return the cells that hold rows, and a number for the content of each; equal contents share one."""
    held = np.flatnonzero((residual.counts > 0) & residual.shown)
    return held, groups(
        np.column_stack([residual.counts[held], residual.sums[held]]), residual.tolerance, rng
    )


def _against_unions(
    residual: Residual, own: IntArray, other: IntArray, low: FloatArray, high: FloatArray
) -> Derivations:
    pairs = own[np.array(np.triu_indices(len(own), 1)).T]
    sums = residual.sums[pairs].sum(axis=1)
    gained = residual.counts[pairs].sum(axis=1)[:, None] - residual.counts[other]
    pair, single = np.nonzero(np.abs(gained) == 1)
    for feature in range(min(len(low), _FILTERING)):
        value = (sums[pair, feature] - residual.sums[other[single], feature]) * gained[pair, single]
        inside = (value >= low[feature]) & (value <= high[feature])
        pair, single = pair[inside], single[inside]
    sign = gained[pair, single]
    points = (sums[pair] - residual.sums[other[single]]) * sign[:, None]
    inside = _inside(points, low, high)
    union, alone, larger = pairs[pair[inside]], other[single[inside]], (sign[inside] > 0)[:, None]
    cells = residual.cell[union], np.repeat(residual.cell[alone][:, None], 2, axis=1)
    of = residual.of[union[:, 0]], residual.of[alone]
    return Derivations(
        points[inside],
        np.where(larger[:, 0], *of),
        np.where(larger[:, 0], *of[::-1]),
        np.where(larger, *cells),
        np.where(larger, *cells[::-1]),
    )


def _joined(residual: Residual, parts: list[Derivations]) -> Derivations:
    """Concatenate derivations; keep those whose point lies in the larger side and not in the smaller."""
    each = ((one.points, one.more, one.less, one.more_cells, one.less_cells) for one in parts)
    found = Derivations(*map(np.concatenate, zip(*each, strict=True)))
    return found.kept(_located(residual, found))


def _inside(points: FloatArray, low: FloatArray, high: FloatArray) -> BoolArray:
    return np.asarray(((points >= low) & (points <= high)).all(axis=1))


def _of_single_cells(
    residual: Residual, low: FloatArray, high: FloatArray, rng: np.random.Generator
) -> list[Derivations]:
    held, contents = _held(residual, rng)
    held = held[np.unique(contents, return_index=True)[1]]
    counts = residual.counts[held]
    alone = held[counts == 1]
    found = [_single(residual, residual.sums[alone], alone, np.full(len(alone), -1))]
    for count in np.unique(counts):
        less, more = held[counts == count], held[counts == count + 1]
        step = max(1, _CHUNK // max(len(more), 1))
        for start in range(0, len(less) if len(more) else 0, step):
            found.append(_compared(residual, more, less[start : start + step], low, high))
    return found


def _compared(
    residual: Residual, more: IntArray, less: IntArray, low: FloatArray, high: FloatArray
) -> Derivations:
    possible = np.ones((len(less), len(more)), dtype=np.bool_)
    for feature in range(min(len(low), _FILTERING)):
        difference = residual.sums[more, feature] - residual.sums[less, feature][:, None]
        possible &= (difference >= low[feature]) & (difference <= high[feature])
    a, b = np.nonzero(possible)
    points = residual.sums[more[b]] - residual.sums[less[a]]
    inside = _inside(points, low, high)
    return _single(residual, points[inside], more[b[inside]], less[a[inside]])


def _single(residual: Residual, points: FloatArray, more: IntArray, less: IntArray) -> Derivations:
    cells = [np.repeat(residual.cell[one][:, None], 2, axis=1) for one in (more, less)]
    return Derivations(points, residual.of[more], np.where(less < 0, -1, residual.of[less]), *cells)


def _of_pairs(residual: Residual, sequence: int, low: FloatArray, high: FloatArray) -> Derivations:
    members = np.flatnonzero(residual.sequence == sequence)
    own = residual.rows_of(members)
    pairs = np.array(np.triu_indices(own.shape[1], 1)).T
    rows = own[:, pairs]
    counts = np.where(residual.shown[rows].all(axis=2), residual.counts[rows].sum(axis=2), np.nan)
    sums = residual.sums[rows].sum(axis=2)
    parts: list[tuple[FloatArray, IntArray, IntArray, IntArray]] = []
    for place in range(len(members) - 1):
        gained = counts[place + 1 :] - counts[place]
        later, pair = np.nonzero(np.abs(gained) == 1)
        sign = gained[later, pair]
        later += place + 1
        points = (sums[later, pair] - sums[place, pair]) * sign[:, None]
        inside = _inside(points, low, high)
        later, pair, sign, points = later[inside], pair[inside], sign[inside], points[inside]
        more = np.where(sign > 0, later, place)
        parts.append((points, more, later + place - more, pair))
    if not parts:
        return _single(residual, residual.sums[:0], rows[:0, 0, 0], rows[:0, 0, 0])
    points, more, less, pair = (np.concatenate(one) for one in zip(*parts, strict=True))
    return Derivations(points, members[more], members[less], pairs[pair], pairs[pair])


def _located(residual: Residual, found: Derivations) -> BoolArray:
    """Say which points lie in the larger side and not in the smaller one."""
    right = np.ones(len(found), dtype=np.bool_)
    for sides, cells, wanted in (
        (found.more, found.more_cells, True),
        (found.less, found.less_cells, False),
    ):
        for number in np.unique(sides[sides >= 0]):
            which = np.flatnonzero(right & (sides == number))
            if which.size:
                own = residual.observations[number].cells.place(found.points[which])
                right[which] = (own[:, None] == cells[which]).any(axis=1) == wanted
    return right


def groups(points: FloatArray, tolerance: float, rng: np.random.Generator) -> IntArray:
    """Number the distinct vectors: points within a tolerance of each other have the same number.

    They are compared in a random projection, in which distinct points hardly ever coincide.

    Args:
        points: float64 of shape (n, n_features).
        tolerance: largest error of a feature.
        rng: draws the projection.
    """
    direction = rng.uniform(0.5, 1.5, points.shape[1]) * rng.choice([-1.0, 1.0], points.shape[1])
    projected = points @ direction
    order = np.argsort(projected)
    new = np.diff(projected[order], prepend=projected[order[:1]]) > 4 * tolerance * points.shape[1] ** 0.5
    numbers = np.empty(len(points), dtype=np.intp)
    numbers[order] = np.cumsum(new)
    return numbers


def support(residual: Residual, found: Derivations, numbers: IntArray, rows: IntArray) -> IntArray:
    """Return how many independent derivations found each distinct point.

    A stay is a run of consecutive rounds of a sequence in which the point does not change its cell. Two
    derivations that compare the same two stays are not independent, as the same other rows may have moved
    in both.

    Args:
        residual: counts and sums that are left.
        found: the derivations.
        numbers: the distinct point of each derivation, in [0, n_points).
        rows: table rows of the distinct points (`Residual.place`), (n_observations, n_points).
    """
    stays = np.zeros(rows.shape, dtype=np.intp)
    labels = rows - residual.first[:, None]
    for sequence in np.unique(residual.sequence):
        members = np.flatnonzero(residual.sequence == sequence)
        stays[members[1:]] = np.cumsum(labels[members[1:]] != labels[members[:-1]], axis=0)
        stays[members] += members[0] * len(residual)
    # The numbers of stays in different sequences do not overlap.
    other = np.where(found.less < 0, -1, stays[found.less, numbers])
    own = stays[found.more, numbers]
    n_stays = int(stays.max()) + 2
    pairs = (np.minimum(own, other) + 1) * n_stays + np.maximum(own, other)
    keys = np.unique(numbers * n_stays**2 + pairs)
    return np.bincount(keys // n_stays**2, minlength=rows.shape[1])


def surely_alone(residual: Residual, found: Derivations) -> BoolArray:
    """Say which derivations are a cell's single row; a cell that is only likely must never have had more.

    The mean of one row is that row, wherever its cell lies. But if another row was removed from a wrong cell,
    what is left there is not a row.
    """
    cells = residual.first[found.more] + found.more_cells[:, 0]
    return np.asarray((found.less < 0) & (~residual.likely[found.more] | (residual.whole[cells] == 1)))


def doubts(residual: Residual, found: Derivations, numbers: IntArray) -> FloatArray:
    """Return the doubt about each distinct point, which is that of its least doubted derivation.

    Args:
        residual: counts and sums that are left.
        found: the derivations.
        numbers: the distinct point of each derivation, in [0, n_points).
    """
    other = np.where(found.less < 0, 0.0, residual.doubt[found.less])
    least = np.full(int(numbers.max()) + 1, np.inf)
    np.minimum.at(least, numbers, np.maximum(residual.doubt[found.more], other))
    return least
