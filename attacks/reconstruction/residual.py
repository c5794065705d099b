"""Counts and sums that are left once claimed rows are subtracted, and which rows still fit into them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privfed.attacks.base.report import IntArray
from privfed.attacks.evidence.cells import Observation
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import cell_sums

BoolArray = npt.NDArray[np.bool_]

_WRONG = 0.1
"""Largest share of the observations with likely cells that may contradict a row."""


class Residual:
    """Holds counts and sums of all cells of all observations in one table, with one cell in each table row.

    Args:
        observations: what was seen; copied.
        tolerance: largest error of a sum, in the data's units.

    Attributes:
        counts: number of rows left in each cell, float64 of shape (n_table,).
        sums: sums of these rows, (n_table, n_features).
        shown: whether the cell's statistics were seen.
        whole: number of rows in each cell before any was removed.
        of: the observation of each cell.
        cell: the cell's number in its observation.
        sequence: the sequence of each observation, (n_observations,).
        likely: whether an observation's cells are only likely, (n_observations,).
        wrong: whether a removed row contradicted an observation's likely cells, (n_observations,).
        doubt: what is subtracted from the log-odds of a row that appears only in likely cells,
            (n_observations,).
    """

    def __init__(self, observations: tuple[Observation, ...], tolerance: float) -> None:
        self.tolerance = tolerance
        self.observations = observations
        sizes = [len(one.counts) for one in observations]
        self.first = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.intp)
        self.counts = np.rint(np.concatenate([one.counts for one in observations]))
        self.whole = self.counts.copy()
        self.sums = np.concatenate([one.sums for one in observations])
        self.shown = np.concatenate([one.cells.shown for one in observations])
        self.of = np.repeat(np.arange(len(observations)), sizes)
        self.cell = np.concatenate([np.arange(size) for size in sizes])
        self.sequence = np.array([one.sequence for one in observations])
        self.likely = np.array([one.local for one in observations], dtype=np.bool_)
        self.wrong = np.zeros(len(observations), dtype=np.bool_)
        self.doubt = np.array([one.doubt for one in observations])

    def __len__(self) -> int:
        return len(self.observations)

    def place(self, points: FloatArray) -> IntArray:
        """Return the table row of each point in each observation, shape (n_observations, n_points)."""
        return self.first[:, None] + np.stack([one.cells.place(points) for one in self.observations])

    def rows_of(self, members: IntArray) -> IntArray:
        """Return the table rows of observations with the same number of cells, (n_members, n_cells)."""
        return self.first[members][:, None] + np.arange(len(self.observations[members[0]].counts))

    def fits(self, points: FloatArray, rows: IntArray) -> BoolArray:
        """Say which points can be among the rows that are left.

        In each observation the point's cell must hold a row. If it holds one, that row must be the point; if
        more, the mean of the others must lie in the cell, as cells are convex. A few observations with only
        likely cells may contradict this.

        Args:
            points: float64 of shape (n_points, n_features).
            rows: table rows of the points, from `place`.
        """
        possible = np.ones(len(points), dtype=np.bool_)
        against = np.zeros(len(points))
        for number, (one, first, own) in enumerate(zip(self.observations, self.first, rows, strict=True)):
            fitting = self._room(points, own)
            many = np.flatnonzero(possible & fitting & self.shown[own] & (self.counts[own] > 1))
            if many.size:
                means = (self.sums[own[many]] - points[many]) / (self.counts[own[many]] - 1.0)[:, None]
                fitting[many] = one.cells.place(means) + first == own[many]
            if self.likely[number]:
                against += ~fitting
            else:
                possible &= fitting
        return possible & (against <= self._most_against())

    def has_room(self, point: FloatArray, rows: IntArray) -> bool:
        """Say whether each of a point's cells still holds a row, which must be the point if it is the last.

        A few observations with only likely cells may contradict this.

        Args:
            point: float64 of shape (n_features,).
            rows: its table row in each observation, (n_observations,).
        """
        room = self._room(point, rows)
        against = int((~room & self.likely).sum())
        return bool(room[~self.likely].all()) and against <= self._most_against()

    def remove(self, point: FloatArray, rows: IntArray) -> None:
        """Remove a point from its cells; mark observations with likely cells as wrong if it does not fit.

        Args:
            point: float64 of shape (n_features,).
            rows: its table row in each observation, (n_observations,).
        """
        self.wrong |= self.likely & ~self._room(point, rows)
        self.shown &= ~self.wrong[self.of]
        self.counts[rows] -= 1.0
        self.sums[rows] -= point
        emptied = rows[self.counts[rows] == 0]
        # What rounding leaves in an emptied cell would look like data.
        self.sums[emptied] = np.where(
            np.abs(self.sums[emptied]) <= 10 * self.tolerance, 0, self.sums[emptied]
        )

    def _room(self, points: FloatArray, rows: IntArray) -> BoolArray:
        """Say whether table rows still hold a row for each point; a last row must be the point itself."""
        left = self.counts[rows] - 1.0
        last = np.abs(self.sums[rows] - points).max(axis=1) <= self.tolerance
        return np.asarray(~self.shown[rows] | (left > 0) | ((left == 0) & last))

    def _most_against(self) -> float:
        """Return how many observations with likely cells may contradict a point."""
        return _WRONG * float((self.likely & ~self.wrong).sum())


def holds(observation: Observation, rows: FloatArray, tolerance: float) -> bool:
    """Say whether an observation is consistent with rows that are known.

    Args:
        observation: counts and sums; cells that are not shown are not checked.
        rows: the known rows, float64 of shape (n_known, n_features).
        tolerance: largest error of a sum.
    """
    cells, shown = observation.cells, observation.cells.shown
    counts, sums = cell_sums(rows, cells.place(rows), cells.n_cells)
    left = np.rint(observation.counts) - counts
    rest = np.abs(observation.sums - sums)[shown & (left == 0)]
    return bool((left[shown] >= 0).all() and rest.max(initial=0.0) <= tolerance)
