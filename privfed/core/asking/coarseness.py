"""Coarse answers of a client: small groups of its rows are suppressed, and counts are rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.core.asking.declaration import RowCounts
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.values.domain import FloatArray


@dataclass(frozen=True, slots=True)
class Coarseness:
    """States which groups of a client's rows its answers show, and how exactly.

    Args:
        min_count: groups of fewer rows are answered as empty.
        multiple: counts are rounded to multiples of it, and sums are scaled along; 1 changes nothing.
    """

    min_count: int = 1
    multiple: int = 1

    def kept(self, counts: FloatArray, most: npt.ArrayLike = np.inf) -> FloatArray:
        """Return counts as they are shown: rounded to the nearest multiple, and zero if below the minimum.

        Args:
            counts: not negative; sums of memberships may be fractional.
            most: largest value that may be shown: where the nearest multiple is above it, the count is
                rounded down instead; broadcasts to `counts`.
        """
        shown: FloatArray = np.where(counts >= self.min_count, counts, 0.0)
        if self.multiple > 1:
            nearest = np.rint(shown / self.multiple) * self.multiple
            shown = np.where(nearest <= most, nearest, np.floor(shown / self.multiple) * self.multiple)
        return np.where(shown >= self.min_count, shown, 0.0)

    def of(self, answer: Statistics, declared: Sequence[RowCounts], spec: StatisticsSpec) -> Statistics:
        """Return one client's statistics as they are shown.

        Args:
            answer: exact statistics.
            declared: which of their entries count rows.
            spec: layout and ranges of the statistics.
        """
        shown, most = dict(answer), {entry.name: entry.high for entry in spec.entries}
        for one in declared:
            counts = answer[one.entry]
            kept = self.kept(counts, most[one.entry])
            share = np.divide(kept, counts, out=np.zeros_like(counts), where=counts > 0.0)
            shown[one.entry] = kept
            shown |= {name: answer[name] * _along(share, answer[name]) for name in one.sums}
            shown |= {name: answer[name] * _along(kept > 0.0, answer[name]) for name in one.means}
            whole = kept.sum() / counts.sum() if counts.sum() > 0.0 else 0.0
            shown |= {name: answer[name] * whole for name in one.totals}
        return Statistics(**shown)


def _along(factors: npt.NDArray[np.float64] | npt.NDArray[np.bool_], values: FloatArray) -> FloatArray:
    """Return one factor a cell, reshaped to broadcast over the values of that cell."""
    shown: FloatArray = np.asarray(factors, dtype=np.float64)
    if shown.size == 1:
        return shown.reshape(())
    return shown.reshape(*shown.shape, *[1] * (values.ndim - shown.ndim))
