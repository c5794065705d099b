"""A bound on what counts and sums over public cells determine, for known assignments of rows to cells.

The linear bound (after the assignment-aware attack of TAR, arXiv:2511.07073): with assignments known,
everything that was seen of the rows X is W X, where W has one row of 0 and 1 for each cell of each sum.
Row i of X follows by linear algebra if and only if e_i lies in the row space of W. An attacker does not
know the assignments, but it may know something else about the rows, which this bound does not cover: if
features are 0 or 1, a cell whose sum equals its count shows all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.attacks.base.measures import IntArray
from privfed.core.values.domain import FloatArray

LINEAR = "linear algebra on the counts and sums that were read, if the cell of every row were known"
"""The reasoning that `linear_bound` bounds, in words for a report."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Describes a public partition of space, as one sum used it.

    Args:
        place: gives the cell of each row, (n, n_features) -> (n,).
        shown: whether the statistics of a cell were seen, bool of shape (n_cells,).
        centers: the centroids that define it, float64 of shape (n_cells, n_features); None for other
            partitions.
    """

    place: Callable[[FloatArray], IntArray]
    shown: npt.NDArray[np.bool_]
    centers: FloatArray | None = None

    @classmethod
    def around(cls, centers: FloatArray, shown: npt.NDArray[np.bool_] | None = None) -> Cells:
        """Return the cells of rows nearest to each center."""
        seen = np.ones(len(centers), dtype=np.bool_) if shown is None else shown
        # As in `assign`, distances are taken from an origin between the centers to avoid cancellation.
        origin = centers.mean(axis=0)
        short = centers - origin
        squares, doubled = np.einsum("kd,kd->k", short, short) + 2.0 * (short @ origin), 2.0 * short.T
        return cls(lambda rows: np.argmin(squares - rows @ doubled, axis=1), seen, centers)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.shown)


def linear_bound(evidence: Sequence[Cells], rows: FloatArray) -> float:
    """Return the fraction of rows that linear algebra determines from counts and sums, assignments known.

    Args:
        evidence: the partitions whose counts and sums were seen.
        rows: the true rows, float64 of shape (n_rows, n_features).
    """
    labels = np.stack([np.where(one.shown[own], own, -1) for one in evidence for own in [one.place(rows)]])
    paths, owner, sizes = np.unique(labels, axis=1, return_inverse=True, return_counts=True)
    gram = np.zeros((paths.shape[1], paths.shape[1]))
    for one in paths:
        # Adds up W'W without building W: entry (i, j) counts the shown cells that rows i and j share.
        gram += (one[:, None] == one[None]) & (one >= 0)
    values, vectors = np.linalg.eigh(gram)
    kept = vectors[:, values > values.max() * 1e-10]
    determined = (np.einsum("ij,ij->i", kept, kept) > 1.0 - 1e-6) & (sizes == 1)
    return float(determined[owner.ravel()].mean())
