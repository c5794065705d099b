"""What is left of counts and sums once claimed rows are taken out of them, and what fits into it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privfed.attacks.base.evidence import Observation
from privfed.attacks.base.measures import IntArray
from privfed.core.domain import FloatArray
from privfed.numerics.distances import cell_sums

BoolArray = npt.NDArray[np.bool_]

_WRONG = 0.1
"""Share of the observations of likely cells that may speak against a row: the rounds that are no further than
a row or two from rest."""


class Residual:
    """Counts and sums of all cells of all observations, in one table; a table row is one cell.

    Args:
        observations: what was seen; copied.
        tolerance: largest error of a sum, in the data's units.

    Attributes:
        counts: rows left in each cell, float64 of shape (n_table,).
        sums: their sums, (n_table, n_features).
        shown: whether the cell's statistics were seen.
        whole: rows of each cell before any was taken out.
        of: the observation of each cell; cell: its number there.
        sequence: the sequence of each observation.
        likely: whether its cells are likely only; wrong: whether a row that was taken out showed that they
            were others, shape (n_observations,).
        doubt: what is taken off the log-odds of a row that shows in likely cells only, (n_observations,).
    """

    def __init__(self, observations: tuple[Observation, ...], tolerance: float) -> None:
        self.tolerance = tolerance
        self._observations = observations
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
        return len(self._observations)

    def place(self, points: FloatArray) -> IntArray:
        """Return the table row of each point in each observation, shape (n_observations, n_points)."""
        labels = [one.cells.place(points) for one in self._observations]
        return self.first[:, None] + np.stack(labels)

    def place_in(self, number: int, points: FloatArray) -> IntArray:
        """Return the cell of each point in one observation, shape (n_points,)."""
        return self._observations[number].cells.place(points)

    def rows_of(self, members: IntArray) -> IntArray:
        """Return the table rows of observations of equally many cells, (n_members, n_cells)."""
        return self.first[members][:, None] + np.arange(len(self._observations[members[0]].counts))

    def fits(self, points: FloatArray, rows: IntArray) -> BoolArray:
        """Say of each point whether it can be among what is left.

        In each observation its cell must hold a row; if it holds one, that is the point; if more, the
        mean of the others lies in the cell, for cells are convex. Of the observations whose cells are
        likely, a few may say otherwise.

        Args:
            points: float64 of shape (n_points, n_features).
            rows: what `place` says of them.
        """
        possible = np.ones(len(points), dtype=np.bool_)
        against = np.zeros(len(points))
        for number, (one, first, own) in enumerate(zip(self._observations, self.first, rows, strict=True)):
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
        """Say whether one point's cells still hold a row each, and a last one is that point.

        Of the observations whose cells are likely, a few may say otherwise.

        Args:
            point: float64 of shape (n_features,).
            rows: its table row in each observation, (n_observations,).
        """
        room = self._room(point, rows)
        against = int((~room & self.likely).sum())
        return bool(room[~self.likely].all()) and against <= self._most_against()

    def remove(self, point: FloatArray, rows: IntArray) -> None:
        """Take a point out of its cells; leave out observations of likely cells that have no room for it.

        Args:
            point: float64 of shape (n_features,).
            rows: its table row in each observation, (n_observations,).
        """
        self.wrong |= self.likely & ~self._room(point, rows)
        self.shown &= ~self.wrong[self.of]
        self.counts[rows] -= 1.0
        self.sums[rows] -= point
        emptied = rows[self.counts[rows] == 0]
        # What rounding left there would look like data.
        self.sums[emptied] = np.where(
            np.abs(self.sums[emptied]) <= 10 * self.tolerance, 0, self.sums[emptied]
        )

    def _room(self, points: FloatArray, rows: IntArray) -> BoolArray:
        """Say of points, or of one, whether the table rows hold a row, and a last one is the point."""
        left = self.counts[rows] - 1.0
        last = np.abs(self.sums[rows] - points).max(axis=1) <= self.tolerance
        return np.asarray(~self.shown[rows] | (left > 0) | ((left == 0) & last))

    def _most_against(self) -> float:
        """Return how many observations of likely cells may speak against a point."""
        return _WRONG * float((self.likely & ~self.wrong).sum())


def holds(observation: Observation, rows: FloatArray, tolerance: float) -> bool:
    """Say whether an observation can be of rows that are known, and others.

    Args:
        observation: counts and sums; of cells that are not shown nothing is asked.
        rows: float64 of shape (n_known, n_features).
        tolerance: largest error of a sum.
    """
    cells, shown = observation.cells, observation.cells.shown
    counts, sums = cell_sums(rows, cells.place(rows), cells.n_cells)
    left = np.rint(observation.counts) - counts
    rest = np.abs(observation.sums - sums)[shown & (left == 0)]
    return bool((left[shown] >= 0).all() and rest.max(initial=0.0) <= tolerance)
