"""How coarsely a client answers: small groups of its rows are not shown, and counts are rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.core.declaration import RowCounts
from privfed.core.domain import FloatArray
from privfed.core.statistics import Statistics, StatisticsSpec


@dataclass(frozen=True, slots=True)
class Coarseness:
    """Which groups of a client's rows are shown, and how exactly.

    Args:
        min_count: groups of fewer rows are answered as empty.
        multiple: counts are rounded to multiples of it, the sums with them; 1 leaves them.
    """

    min_count: int = 1
    multiple: int = 1

    def kept(self, counts: FloatArray, most: npt.ArrayLike = np.inf) -> FloatArray:
        """Return counts as they are shown: the nearest multiples, and zero where these are below the minimum.

        Args:
            counts: not negative; sums of memberships may be fractions.
            most: largest value that may be shown, where the multiple below is taken; broadcasts to `counts`.
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
            spec: of the statistics.
        """
        told, most = dict(answer), {entry.name: entry.high for entry in spec.entries}
        for one in declared:
            counts = answer[one.entry]
            kept = self.kept(counts, most[one.entry])
            share = np.divide(kept, counts, out=np.zeros_like(counts), where=counts > 0.0)
            told[one.entry] = kept
            told |= {name: answer[name] * _along(share, answer[name]) for name in one.sums}
            told |= {name: answer[name] * _along(kept > 0.0, answer[name]) for name in one.means}
            whole = kept.sum() / counts.sum() if counts.sum() > 0.0 else 0.0
            told |= {name: answer[name] * whole for name in one.totals}
        return Statistics(**told)


def _along(factors: npt.NDArray[np.float64] | npt.NDArray[np.bool_], values: FloatArray) -> FloatArray:
    """Return one factor a cell in the shape that multiplies the values of that cell."""
    shown: FloatArray = np.asarray(factors, dtype=np.float64)
    if shown.size == 1:
        return shown.reshape(())
    return shown.reshape(*shown.shape, *[1] * (values.ndim - shown.ndim))
