"""What counts and sums over public cells determine, if one knew which row lies in which cell.

The linear bound (after the assignment-aware attack of TAR, arXiv:2511.07073): with assignments known,
all that was seen of the rows X is W X, one row of 0 and 1 in W for each cell of each sum. Row i of X
follows from it by linear algebra if and only if e_i lies in the row space of W. An attacker does not know
the assignments. But it may know more of the rows: where they are of 0 and 1, a cell whose sum is
its count shows all of its rows, and the linear bound is none for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.attacks.base.measures import IntArray
from privfed.core.domain import FloatArray

LINEAR = "linear algebra on the counts and sums that were read, if the cell of every row were known"
"""What `linear_bound` bounds, in words for a report."""


@dataclass(frozen=True, eq=False)
class Cells:
    """A public partition of space, as one sum used it.

    Args:
        place: gives the cell of each row, (n, n_features) -> (n,).
        shown: whether the statistics of a cell were seen, bool of shape (n_cells,).
        centers: the centroids behind it, (n_cells, n_features); None for other partitions.
    """

    place: Callable[[FloatArray], IntArray]
    shown: npt.NDArray[np.bool_]
    centers: FloatArray | None = None

    @classmethod
    def around(cls, centers: FloatArray, shown: npt.NDArray[np.bool_] | None = None) -> Cells:
        """Return the cells of rows nearest to each center."""
        seen = np.ones(len(centers), dtype=np.bool_) if shown is None else shown
        # As in `assign`: from an origin between the centers the products do not cancel.
        origin = centers.mean(axis=0)
        short = centers - origin
        squares, doubled = np.einsum("kd,kd->k", short, short) + 2.0 * (short @ origin), 2.0 * short.T
        return cls(lambda rows: np.argmin(squares - rows @ doubled, axis=1), seen, centers)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.shown)


def linear_bound(evidence: Sequence[Cells], rows: FloatArray) -> float:
    """Return the fraction of rows that linear algebra determines from counts and sums of known assignments.

    Args:
        evidence: the partitions that counts and sums were of.
        rows: float64 of shape (n_rows, n_features).
    """
    labels = np.stack([np.where(one.shown[own], own, -1) for one in evidence for own in [one.place(rows)]])
    paths, owner, sizes = np.unique(labels, axis=1, return_inverse=True, return_counts=True)
    gram = np.zeros((paths.shape[1], paths.shape[1]))
    for one in paths:
        # W'W without W: two paths meet in a cell that was shown.
        gram += (one[:, None] == one[None]) & (one >= 0)
    values, vectors = np.linalg.eigh(gram)
    kept = vectors[:, values > values.max() * 1e-10]
    determined = (np.einsum("ij,ij->i", kept, kept) > 1.0 - 1e-6) & (sizes == 1)
    return float(determined[owner.ravel()].mean())
