"""Questions about rows that were mapped before any sum saw them, as questions about the rows before.

Fits of the same rows in other scales, or with other columns, are one system of equations: each question is
composed with the linear map of its run. Where the map has an inverse, sums over rows are those of the rows
before, too: with x the row before and x A + b the row after, sum x = (sum (x A + b) - n b) A^-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Statistics, StatisticsSpec
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.privacy.noised import Noised


@dataclass(frozen=True, eq=False)
class LinearMap:
    """Says how rows became those of a run: x A + b.

    Args:
        matrix: A, float64 of shape (n_before, n_after); (n,) is a diagonal.
        offset: b, (n_after,).
    """

    matrix: FloatArray
    offset: FloatArray

    def __post_init__(self) -> None:
        matrix = np.asarray(self.matrix, dtype=np.float64)
        object.__setattr__(self, "matrix", np.diag(matrix) if matrix.ndim == 1 else matrix)

    @property
    def inverts(self) -> bool:
        """Whether rows before follow from rows after."""
        before, after = self.matrix.shape
        return bool(before == after == np.linalg.matrix_rank(self.matrix))

    def after(self, rows: FloatArray) -> FloatArray:
        """Return rows as the run had them, (n, n_after)."""
        return np.asarray(rows @ self.matrix + self.offset)

    def before(self, sums: FloatArray, counts: FloatArray) -> FloatArray:
        """Return sums of so many rows as they were before, (n, n_before)."""
        return np.asarray((sums - counts[:, None] * self.offset) @ np.linalg.pinv(self.matrix))

    def ranges(self, after: Ranges) -> Ranges:
        """Return ranges that hold all rows before whose mapped rows lie in the given ranges."""
        inverse = np.linalg.pinv(self.matrix)
        middle = (after.low + 0.5 * after.width - self.offset) @ inverse
        reach = 0.5 * after.width @ np.abs(inverse)
        return Ranges(middle - reach, middle + reach, after.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Mapped(Question):
    """Asks a question of rows after a map.

    Args:
        inner: the question.
        map: the map.
    """

    inner: Question
    map: LinearMap = field(repr=False)

    @property
    def additive_over(self):  # type: ignore[no-untyped-def, override]
        """As of the question."""
        return self.inner.additive_over

    @property
    def declaration(self) -> Declaration | None:
        """As of the question; its centers are those after the map."""
        return self.inner.declaration

    @property
    def spec(self) -> StatisticsSpec:
        """As of the question."""
        return self.inner.spec

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> Sequence[Statistics]:
        """Answer for the mapped rows."""
        after = [replace(one, features=self.map.after(one.features), cache={}) for one in clients]
        return self.inner.answer_all([one.within(self.inner.ranges)[0] for one in after], generators)

    def to_bytes(self) -> bytes:
        """Return an encoding that tells questions apart; nobody is sent it."""
        return self.inner.to_bytes() + self.map.matrix.tobytes() + self.map.offset.tobytes()


def before(view: View, map: LinearMap) -> View:
    """Return a view whose questions are about rows before a map, and whose centers are points before it."""
    sums, result = list(view.sums), dict(view.result)
    for i, one in enumerate(sums):
        question = one.question
        inner = question.inner if isinstance(question, Noised) else question
        if question is not None and inner is not None:
            ranges = map.ranges(inner.ranges)
            mapped = Mapped(ranges=ranges, inner=inner, map=map)
            noised = (
                replace(question, inner=mapped, ranges=ranges) if isinstance(question, Noised) else mapped
            )
            sums[i] = replace(one, question=noised)
    if "centers" in result:
        result["centers"] = map.before(result["centers"], np.ones(len(result["centers"])))
    return replace(view, sums=tuple(sums), result=result)
