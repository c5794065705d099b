"""Reads every sum that a view shows as equations in the rows that took part, whatever was asked.

A question whose statistics are sums over rows shows s = sum of phi(x) over rows x, where phi(x) is what it
answers of one row. Which entries are such sums, and which count rows, the question declares. What phi does is
seen by asking: a count that is 1 for one cell and 0 elsewhere gives a row's cell. An entry that holds the row
itself in that cell, or how far it lies from the cell's center times one number, gives the sum of the cell's
rows. So no question is known by name here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privfed.attacks.audits.truth import reads_labels_undeclared
from privfed.attacks.base.report import Cells, IntArray
from privfed.attacks.evidence.mapped import LinearMap, Mapped
from privfed.core.asking.question import AdditiveOver, ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.privacy.noised import Noised
from privfed.questions.cells import SumsInPublicCells

_BLOCK = 256
"""Units that are asked at once."""


@dataclass(frozen=True, eq=False)
class Shown:
    """Holds one sum: of whose rows, and what it shows.

    Args:
        clients: positions of the clients whose rows are in it.
        values: the entries that are sums over rows, float64 of shape (n_values,).
        own: whether it is the answer of one client.
        noise: variance of the noise in each value, (n_values,).
    """

    clients: tuple[int, ...]
    values: FloatArray
    own: bool
    noise: FloatArray


class Rows:
    """What rows show of themselves in one question: what they add, their cells, and where they are summed.

    Args:
        added: what each row alone adds, by entry, (n_rows, *shape).
        rows: the rows as clients clip them, float64 of shape (n_rows, n_features).
        counts: names of the entries that count rows.
        centers: points that the question names, float64 of shape (n_centers, n_features).

    Attributes:
        added: as given.
        rows: as given.
        counts: those of the names that are in `added`.
        cell: the cell of each row, (n_rows,); None if no count is 1 for one cell and 0 elsewhere.
        count: name of the entry that counts rows in cells.
        sum: name of the entry that adds up the rows of each cell; empty if there is none.
        less: what it subtracts from each row of a cell, (n_cells, n_features): zeros, or the centers.
        times: what it multiplies these differences by, not 0.
    """

    def __init__(
        self,
        added: Mapping[str, FloatArray],
        rows: FloatArray,
        counts: Sequence[str],
        centers: FloatArray,
    ) -> None:
        self.added, self.rows = added, rows
        self.counts = tuple(name for name in counts if name in added)
        self.cell: IntArray | None = None
        self.count = self.sum = ""
        self.less, self.times = np.zeros((0, rows.shape[1])), 1.0
        for name in self.counts:
            values = added[name]
            if values.ndim == 2 and np.isin(values, (0.0, 1.0)).all() and (values.sum(axis=1) == 1.0).all():
                self.count, self.cell = name, values.argmax(axis=1)
                zeros = np.zeros((values.shape[1], rows.shape[1]))
                tried = (zeros, centers) if centers.shape == zeros.shape else (zeros,)
                found = ((one, less, by) for less in tried for one in added if (by := self._times(one, less)))
                self.sum, self.less, self.times = next(found, ("", zeros, 1.0))
                return

    def _times(self, name: str, less: FloatArray) -> float:
        """Return by what an entry multiplies rows less a point of their cell; 0 where it does not."""
        n_cells, (n, d) = self.added[self.count].shape[1], self.rows.shape
        if self.added[name][0].size != n_cells * d or name == self.count:
            return 0.0
        own = self.added[name].reshape(n, n_cells, d)[np.arange(n), self.cell]
        beyond = self.rows - less[self.cell]
        length = float(np.square(beyond).sum())
        times = float((own * beyond).sum()) / length if length > 0.0 else 1.0
        return times if np.allclose(own, times * beyond, rtol=1e-9, atol=1e-12) else 0.0


@dataclass(frozen=True, eq=False)
class Equations:
    """Holds the sums over one question's answers, and what any row adds to them.

    Args:
        index: index of the sum in the view.
        question: what was asked, without noise.
        names: entries that are sums over rows.
        shown: whose sums were shown.
    """

    index: int
    question: Question
    names: tuple[str, ...]
    shown: tuple[Shown, ...]

    @property
    def exact(self) -> bool:
        """Whether the sums carry no noise."""
        return not any(shown.noise.any() for shown in self.shown)

    def parts(self, values: FloatArray) -> dict[str, FloatArray]:
        """Cut values, (..., n_values), into entries, (..., *shape)."""
        sizes = {name: shape for name, shape in self.question.spec.layout if name in self.names}
        ends = np.cumsum([int(np.prod(sizes[name])) for name in self.names])[:-1]
        cut = np.split(values, ends, axis=-1)
        return {
            name: one.reshape(*values.shape[:-1], *sizes[name])
            for name, one in zip(self.names, cut, strict=True)
        }

    def of_units(self, units: Sequence[ClientData]) -> FloatArray:
        """Return what each unit alone would add, float64 of shape (n_units, n_values)."""
        shapes = dict(self.question.spec.layout)
        found = np.empty((len(units), sum(int(np.prod(shapes[name])) for name in self.names)))
        # Answers may hold much beside these entries, so that they are asked for in blocks.
        for first in range(0, len(units), _BLOCK):
            within = [unit.within(self.question.ranges)[0] for unit in units[first : first + _BLOCK]]
            answers = self.question.answer_all(within, [np.random.default_rng(0)] * len(within))
            for place, answer in enumerate(answers, start=first):
                found[place] = _vector(answer, self.names)
        return found

    def of_rows(self, rows: FloatArray) -> Rows:
        """Return what rows, float64 of shape (n_rows, n_features), show of themselves."""
        ranges, declared = self.question.ranges, self.question.declaration
        added = self.parts(self.of_units([ClientData(row[None]) for row in rows]))
        counts = () if declared is None else declared.row_counts
        return Rows(added, np.clip(rows, ranges.low, ranges.high), counts, _centers(self.question))


def equations_of(view: View, *, by_row: bool = True) -> Iterator[Equations]:
    """Yield what each sum of a view shows, in order: single answers where they are shown, and totals.

    Args:
        view: what a party saw.
        by_row: whether units are rows; otherwise they are clients, over whom all answers add up.
    """
    for one in view.sums:
        question = asked(one)
        if question is None or not (names := summed(question, by_row=by_row)):
            continue
        # A party that does not see who contributed assumes that the whole cohort did.
        whole = one.contributors or one.cohort
        shown = [
            Shown((client,), _vector(own, names), True, noise_of(view, one, names, own=True))
            for client, own in one.answers.items()
        ]
        if one.total is not None:
            noise = noise_of(view, one, names, own=False)
            shown.append(Shown(whole, _vector(one.total, names), False, noise))
        if shown:
            yield Equations(one.index, question, names, tuple(shown))


def asked(one: SumView) -> Question | None:
    """Return the question without its noise; None if the party did not see it."""
    return one.question.inner if isinstance(one.question, Noised) else one.question


@dataclass(frozen=True, eq=False)
class Counted:
    """Describes a question that counts rows in cells, and may add them up.

    Args:
        cells: the cells.
        count: name of the entry that counts rows in each.
        sum: name of the entry that adds them up; empty if there is none.
        less: what that entry subtracts from each row of a cell, (n_cells, n_features).
        times: what it multiplies these differences by.
        map: how the rows were mapped before; None if they were not.
    """

    cells: Cells
    count: str
    sum: str
    less: FloatArray = field(repr=False)
    times: float
    map: LinearMap | None = None

    def sums(self, statistics: Mapping[str, FloatArray]) -> FloatArray:
        """Return the sum of the rows of each cell, (n_cells, n_features), of statistics that hold `sum`."""
        counts = statistics[self.count].ravel()
        found: FloatArray = statistics[self.sum].reshape(self.less.shape) / self.times
        found = found + counts[:, None] * self.less
        return found if self.map is None else self.map.before(found, counts)


def _centers(question: Question) -> FloatArray:
    """Return the first points that a question assigns rows to, (0, n_features) for none."""
    declared = question.declaration
    if declared is None or not declared.centers:
        return np.empty((0, question.ranges.n_features))
    return declared.centers[0]


def counted_in(question: Question) -> Counted | None:
    """Return in which cells a question counts rows; None if it does not.

    This follows from what it answers of a few points, so that it holds for questions of users, too.
    """
    if isinstance(question, Mapped):
        of, inner = question.map, counted_in(question.inner)
        return inner and replace(
            inner,
            cells=Cells(lambda rows: inner.cells.place(of.after(rows)), inner.cells.shown),
            sum=inner.sum * of.inverts,
            map=of,
        )
    declared, ranges = question.declaration, question.ranges
    names = summed(question)
    if declared is None or not names or not declared.row_counts:
        return None
    centers = _centers(question)
    middle = ranges.low + 0.5 * ranges.width
    points = np.clip(np.vstack([centers, ranges.low, middle, ranges.high]), ranges.low, ranges.high)
    equations = Equations(0, question, names, ())
    found = equations.of_rows(points)
    if found.cell is None:
        return None
    n_cells = found.added[found.count].shape[1]
    nearest = Cells.around(centers) if len(centers) == n_cells else None
    if nearest is not None and np.array_equal(nearest.place(points), found.cell):
        return Counted(nearest, found.count, found.sum, found.less, found.times)
    shown = np.ones(n_cells, dtype=np.bool_)
    if isinstance(question, SumsInPublicCells):
        return Counted(Cells(question.cells, shown), found.count, found.sum, found.less, found.times)

    def place(rows: FloatArray) -> IntArray:
        cell = equations.of_rows(rows).cell
        return np.zeros(len(rows), dtype=np.int64) if cell is None else cell

    return Counted(Cells(place, shown), found.count, found.sum, found.less, found.times)


def summed(question: Question, *, by_row: bool = True) -> tuple[str, ...]:
    """Return the entries of a question that are sums over the units, as it declares.

    There are none where it looks at labels, which no attack knows of a row.
    """
    ranges = question.ranges
    if reads_labels_undeclared(question, [ClientData((ranges.low + 0.5 * ranges.width)[None])]):
        return ()
    if not by_row or question.additive_over is AdditiveOver.RECORDS:
        return tuple(name for name, _ in question.spec.layout)
    declared = question.declaration
    return () if declared is None else declared.row_sums


def adds_up(one: SumView, *, by_row: bool = True) -> bool:
    """Say whether all that a sum shows adds up over the units."""
    question = asked(one)
    return question is not None and set(summed(question, by_row=by_row)) == set(dict(question.spec.layout))


def _vector(statistics: Statistics, names: Sequence[str]) -> FloatArray:
    return np.concatenate([statistics[name].ravel() for name in names])


def noise_of(view: View, one: SumView, names: Sequence[str], *, own: bool) -> FloatArray:
    """Return the variance of the noise in each value of some entries, (n_values,).

    Args:
        view: what a party saw.
        one: a sum of it.
        names: of the entries.
        own: whether the values are one client's answer, and not the total.
    """
    # A colluder's share of the noise stays in a total, but if answers are seen it left with its answer.
    many = 1 if own else len(one.contributors or one.cohort) + (0 if one.answers else len(view.colluding))
    question = one.question
    deviation = dict(question.noise_std(many)) if isinstance(question, Noised) else {}
    shapes = {} if question is None else dict(question.spec.layout)
    return np.concatenate(
        [np.full(int(np.prod(shapes[name])), deviation.get(name, 0.0) ** 2) for name in names]
    )
