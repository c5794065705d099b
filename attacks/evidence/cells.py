"""Evidence in a view about the rows of one client or of all clients: counts and sums in public cells.

**Rounds of several local steps.** A client answers with local centroids c_j, each weighted by its number of
rows in the first step. Each c_j is the mean of the rows nearest to a centroid of the last step but one, which
was not sent. So the sums are exact, but the cells are those around the c_j only if the local steps had
converged; otherwise a row or two lie in another cell. Evidence from such rounds is therefore doubted, the
more the fewer the steps, and a round that contradicts a claimed row is left out
(`privfed.attacks.reconstruction.residual`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.attacks.base.reading import Reads, own_or_total
from privfed.attacks.base.report import Cells, IntArray
from privfed.attacks.base.whole_numbers import sizes_of
from privfed.attacks.evidence.equations import asked, counted_in
from privfed.attacks.evidence.mapped import LinearMap, Mapped
from privfed.core.asking.data import Stacked
from privfed.core.asking.question import Question, centers_of
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.errors import ArgumentError
from privfed.numerics.kernels.dispatch import assign
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.numerics.kmeans import local_updates
from privfed.questions.lloyd import Inertia
from privfed.questions.ranges import FeatureRanges


@dataclass(frozen=True, eq=False)
class Observation:
    """Holds counts and sums of the target's rows in the cells of one sum.

    Args:
        sequence: number of a sequence; its observations follow the same clusters from round to round.
        cells: the partition, as far as the server knows it.
        counts: float64 of shape (n_cells,).
        sums: float64 of shape (n_cells, n_features).
        local: whether the cells are those of the client's own centroids, and so only likely.
        doubt: what is subtracted from the log-odds of a row that appears only in likely cells.
        true: the partition that the sums are really of, if `cells` are only likely; for scoring.
    """

    sequence: int
    cells: Cells
    counts: FloatArray
    sums: FloatArray
    local: bool = False
    doubt: float = 0.0
    true: Cells | None = None


@dataclass(frozen=True, eq=False)
class Scored:
    """Holds a restart's last centroids, and the target's mean squared distance to the nearest of them.

    Both are of rows after the run's map.
    """

    centers: FloatArray
    mean_squared: float
    map: LinearMap | None = None

    def squared(self, rows: FloatArray) -> FloatArray:
        """Return squared distances of rows to the nearest centroid, in units of that mean, (n_rows,)."""
        after = rows if self.map is None else self.map.after(rows)
        least = max(self.mean_squared, float(np.finfo(np.float64).tiny))
        return np.asarray(squared_distances(after, self.centers).min(axis=1) / least)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Holds all evidence in a view about the target.

    Args:
        client: position of the target; None for all clients of the cohort together.
        observations: what was seen, in the order of the sums.
        scored: centroids and score of each restart whose score was seen.
        n_rows: number of the target's rows; NaN if it was not seen.
        row_sum: sum of the target's rows, (n_features,), or None.
        low: smallest value of each feature, by the questions' ranges.
        high: largest value of each feature.
    """

    client: int | None
    observations: tuple[Observation, ...]
    scored: tuple[Scored, ...]
    n_rows: float
    row_sum: FloatArray | None
    low: FloatArray
    high: FloatArray

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.low)

    @property
    def partitions(self) -> list[Cells]:
        """The partitions that the sums are of, for scoring."""
        return [one.true or one.cells for one in self.observations]


def read_in_cells(client: int | None, what: str, noised: bool | None = None) -> tuple[Reads, ...]:
    """Declare what `evidence_of` reads.

    Args:
        client: position of the target; None for all clients together.
        what: what is read of the target, in words.
        noised: as in `Reads`.
    """
    shown = own_or_total(client)
    return (
        Reads(
            what=what, shown=shown, client=client, use=lambda question: cells_of(question) > 1, noised=noised
        ),
        # After several local steps the counts can only be derived if number and sum of the rows are known.
        Reads(what=what, shown=shown, client=client, use=_is_of_steps, noised=noised, beside=FeatureRanges),
    )


def cells_of(question: Question) -> int:
    """Return in how many cells a question asks for the number and the sum of rows; 0 if it does not."""
    found = counted_in(question)
    return found.cells.n_cells if found is not None and found.sum else 0


def _is_of_steps(question: Question) -> bool:
    return isinstance(question, WeightedCentroids) and question.weights == "dynamic"


def answers_of(view: View, client: int | None) -> Iterator[tuple[SumView, Statistics]]:
    """Yield the sums whose statistics about the target were seen, with these statistics.

    Args:
        view: what the party saw.
        client: position of a client, for its own answers. None for totals; only totals over the most
            common set of contributors are used, as others are over other rows.
    """
    if client is not None:
        yield from ((one, one.answers[client]) for one in view.sums if client in one.answers)
        return
    opened = [one for one in view.sums if one.total is not None]
    common = Counter(one.contributors or one.cohort for one in opened).most_common(1)
    for one in opened:
        if one.total is not None and (one.contributors or one.cohort) == common[0][0]:
            yield one, one.total


def evidence_of(view: View, client: int | None) -> Evidence:
    """Collect counts and sums in public cells, from all questions that ask for them.

    These are rounds with one local step and the cells of a coreset start. Rounds with more local steps
    are used if the counts of the last step can be derived (`privfed.attacks.evidence.cells`).
    """
    if maps := {
        id(one.question.map): one.question.map for one in view.sums if isinstance(one.question, Mapped)
    }:
        return _joined([_before(view, client, of) for of in maps.values() if of.inverts])
    seen = list(answers_of(view, client))
    n_rows, row_sum, rounding = _number_and_sum(seen)
    observations: list[Observation] = []
    scored: list[Scored] = []
    sequence = 0
    for one, statistics in seen:
        question = asked(one)
        if isinstance(question, Inertia):
            rows = max(float(statistics["rows"][0]), 1.0)
            scored.append(Scored(question.centers, float(statistics["inertia"][0]) / rows))
            sequence += 1
        found = _observed(one, statistics, n_rows, row_sum, rounding)
        if found is not None:
            place, counts, sums = found
            # The cells of a start do not follow the rounds' clusters, so they form a sequence of their own.
            asked_about = () if question is None else centers_of(question)
            local = place.centers is not None and not any(place.centers is one for one in asked_about)
            sequence += bool(observations) and len(counts) != len(observations[-1].counts)
            own = -1 - one.index if local or place.centers is None else sequence
            # Empty cells are hidden if the counts miss rows: clients may be missing from the total.
            if np.isfinite(n_rows) and abs(counts.sum() - n_rows) > 0.5:
                place = Cells(place.place, counts > 0.5, place.centers)
            made = Observation(own, place, counts, sums, local)
            if local and isinstance(question, WeightedCentroids):
                true = replace(last_step(question), shown=made.cells.shown)
                doubt = min(_MOST_DOUBT, _DOUBT / max(question.local_iter - 1, 1))
                made = replace(made, doubt=doubt, true=true)
            observations.append(made)
    if not observations and row_sum is not None and round(n_rows) == 1:
        # The number and the sum of one row are that row: all of space is its cell, beside an empty one.
        everywhere = Cells(lambda rows: np.zeros(len(rows), dtype=np.int64), np.ones(2, dtype=np.bool_))
        sums = np.stack([row_sum, np.zeros_like(row_sum)])
        observations.append(Observation(sequence, everywhere, np.array([1.0, 0.0]), sums))
    low, high = _box(view)
    return Evidence(client, _at_rest(observations), tuple(scored), n_rows, row_sum, low, high)


def _before(view: View, client: int | None, of: LinearMap) -> Evidence:
    """Return the evidence of the sums after one map, about the rows before it."""
    own = [(one, one.question) for one in view.sums]
    sums = [replace(one, question=q.inner) for one, q in own if isinstance(q, Mapped) and q.map is of]
    found = evidence_of(replace(view, sums=tuple(sums)), client)

    def cells(one: Cells) -> Cells:
        return Cells(lambda rows: one.place(of.after(rows)), one.shown)

    moved = [
        replace(
            one,
            cells=cells(one.cells),
            true=one.true and cells(one.true),
            sums=of.before(one.sums, one.counts),
        )
        for one in found.observations
    ]
    whole = found.row_sum
    known = None if whole is None else of.before(whole[None], np.array([found.n_rows]))[0]
    ranges = of.ranges(Ranges(found.low, found.high, 1))
    return replace(
        found,
        observations=tuple(moved),
        scored=tuple(replace(one, map=of) for one in found.scored),
        row_sum=known,
        low=ranges.low,
        high=ranges.high,
    )


def _joined(found: Sequence[Evidence]) -> Evidence:
    """Return all evidence together, whose sequences stay apart."""
    each = [(i, one) for i, own in enumerate(found) for one in own.observations]
    moved = [
        replace(one, sequence=one.sequence + (_APART if one.sequence >= 0 else -_APART) * i)
        for i, one in each
    ]
    low, high = np.max([one.low for one in found], axis=0), np.min([one.high for one in found], axis=0)
    scored = tuple(one for own in found for one in own.scored)
    return replace(found[0], observations=tuple(moved), scored=scored, low=low, high=high)


def on_grid(evidence: Evidence, step: FloatArray) -> Evidence:
    """Return evidence with exact sums of rows on a grid, where what was shown is rounded to some decimals.

    A mean of n rows to p decimals, times n, is off by n / 2 parts of 10^p at most. Where that is less than
    half a step, the nearest sum on the grid is the exact one. Other cells are hidden. The decimals are those
    of all means, or of all sums: a total of rounded means of several clients.

    Args:
        evidence: what was seen.
        step: all values of a feature are whole multiples of it, float64 of shape (n_features,).

    Raises:
        ArgumentError: the run has another number of features.
    """
    seen = evidence.observations
    if len(step) != evidence.n_features:
        raise ArgumentError(
            f"step is of {len(step)} features, the run has {evidence.n_features}.", parameters=["step"]
        )
    sums = np.concatenate([one.sums for one in seen]) if seen else np.empty((0, len(step)))
    counts = np.concatenate([one.counts for one in seen]) if seen else np.empty(0)
    unit = _decimal(sums / np.maximum(counts, 1.0)[:, None])
    if unit is None and (np.abs(sums - step * np.rint(sums / step)) > 1e-6 * step).any():
        unit = _decimal(sums)
    if unit is None:
        return evidence

    def restored(one: Observation) -> Observation:
        exact = np.rint(one.counts) * unit < (1.0 - 1e-9) * step.min()
        cells = replace(one.cells, shown=one.cells.shown & exact)
        return replace(one, cells=cells, sums=step * np.rint(one.sums / step))

    return replace(evidence, observations=tuple(restored(one) for one in seen))


def _decimal(values: FloatArray) -> float | None:
    """Return the largest of 1, .1, .01, ... of which all values are multiples; None without any."""
    error = 1e-12 * float(np.abs(values).max(initial=1.0))
    units = [10.0**-places for places in range(10)]
    return next((one for one in units if (np.abs(values - one * np.rint(values / one)) <= error).all()), None)


def _rounding(one: SumView, statistics: Statistics, entry: str) -> float:
    """Return by how much a secure sum's grid, no coarser than the question's, may move a total's entry."""
    question = asked(one) if statistics is one.total else None
    steps = [] if question is None else [e.resolution for e in question.spec.entries if e.name == entry]
    return len(one.contributors or one.cohort) * max((float(np.max(step)) for step in steps), default=0.0)


def _number_and_sum(seen: list[tuple[SumView, Statistics]]) -> tuple[float, FloatArray | None, float]:
    """Return number and sum of all rows, and by how much a grid may have moved the sum."""
    for one, statistics in seen:
        question = asked(one)
        found = None if question is None else counted_in(question)
        if found is not None and found.sum and found.cells.n_cells == 1:
            rounding = _rounding(one, statistics, found.sum) / abs(found.times)
            return float(statistics[found.count].sum()), found.sums(statistics).ravel(), rounding
    return float("nan"), None, 0.0


def _observed(
    one: SumView, statistics: Statistics, n_rows: float, row_sum: FloatArray | None, rounding: float
) -> tuple[Cells, FloatArray, FloatArray] | None:
    question = asked(one)
    found = None if question is None else counted_in(question)
    if found is not None and found.sum and found.cells.n_cells > 1:
        return found.cells, statistics[found.count], found.sums(statistics)
    if isinstance(question, WeightedCentroids) and _is_of_steps(question) and row_sum is not None:
        # A sum is divided by the first step's count, and multiplied by the last one's.
        fewest = float(np.min(statistics["weight"], where=statistics["weight"] > 0, initial=max(n_rows, 1.0)))
        rounding += n_rows / fewest * _rounding(one, statistics, "weighted")
        return after_local_steps(question.centers, statistics, n_rows, row_sum, rounding)
    return None


def _at_rest(observations: list[Observation]) -> tuple[Observation, ...]:
    """Remove the doubt from rounds that ended at the same local centroids as another round.

    Such rounds have usually converged: a further step would move no row, and the rows' cells are those of
    these centroids. A row may still contradict one of them.
    """
    likely = [i for i, one in enumerate(observations) if one.local]
    found = list(observations)
    for shape in {observations[i].sums.shape for i in likely}:
        own = np.array([i for i in likely if observations[i].sums.shape == shape])
        for i in own[_repeated(np.stack([observations[i].sums.ravel() for i in own]))]:
            found[i] = replace(found[i], doubt=0.0)
    return tuple(found)


def _repeated(table: FloatArray) -> npt.NDArray[np.bool_]:
    """Say for each row of a table whether another one is equal to it, up to rounding."""
    # Along this direction, only rows that are equal coincide.
    projected = table @ np.sin(np.arange(1.0, table.shape[1] + 1.0))
    order = np.argsort(projected)
    close = np.diff(projected[order]) <= 1e-9 * np.abs(table).sum(axis=1).max()
    repeated = np.zeros(len(table), dtype=np.bool_)
    repeated[order[1:]] |= close
    repeated[order[:-1]] |= close
    return repeated


def _box(view: View) -> tuple[FloatArray, FloatArray]:
    """Return the narrowest ranges that the view's questions name."""
    named = [question.ranges for question in map(asked, view.sums) if question is not None]
    narrow = min(named, key=lambda ranges: float(ranges.width.sum()))
    return narrow.low, narrow.high


_APART = 100_000
"""Distance between the sequences of two runs."""
# Chosen on breast_cancer for two, three and five steps, where .2, .5 and .9 of the rounds had converged.
_DOUBT, _MOST_DOUBT = 8.0, 4.0


def after_local_steps(
    received: FloatArray,
    statistics: Statistics,
    n_rows: float,
    row_sum: FloatArray,
    rounding: float = 0.0,
) -> tuple[Cells, FloatArray, FloatArray] | None:
    """Return likely cells, counts and sums of the last local step, from integer counts that fit its means.

    The weights are the first step's counts n_j. If sum_j n_j c_j equals the sum of the rows, no row moved,
    and the cells are certainly those of the received centroids. Otherwise integers n_j with
    sum_j n_j c_j = S and sum_j n_j = n are sought; the likely cells are those of the local centroids c_j.

    Args:
        received: the centroids sent to the clients, float64 of shape (n_clusters, n_features).
        statistics: `weight` and `weighted` of a client.
        n_rows: n, the number of its rows.
        row_sum: S, the sum of its rows, float64 of shape (n_features,).
        rounding: largest error of sum_j n_j c_j - S by the grid of a secure sum.

    Returns:
        Cells, counts and sums; None if no integer counts were found.
    """
    weight, weighted = statistics["weight"], statistics["weighted"]
    held = weight > 0
    means = np.where(held[:, None], weighted / np.where(held, weight, 1.0)[:, None], received)
    right = np.append(row_sum, n_rows)
    error = 1e-9 * (np.abs(weighted).sum() + np.abs(row_sum).sum() + n_rows) + rounding
    if np.abs(np.append((weight[:, None] * means).sum(axis=0), weight.sum()) - right).max() <= error:
        return Cells.around(received), weight, weighted
    solved = sizes_of(means[held], right[None], weight[None, held], rounding)
    if solved is None:
        return None
    counts = np.zeros(len(means))
    counts[held] = solved[1]
    return Cells.around(means), counts, counts[:, None] * means


def last_step(question: WeightedCentroids) -> Cells:
    """Return the cells that the sums are really of, for scoring; they depend on all rows of the client."""

    def place(rows: FloatArray) -> IntArray:
        n_steps = question.local_iter
        after = _steps(question, rows, n_steps)
        # If the last steps moved nothing, an earlier step was the last one.
        while n_steps > 1 and np.array_equal(_steps(question, rows, n_steps - 1), after):
            n_steps -= 1
        return assign(rows, _steps(question, rows, n_steps - 1))

    return Cells(place, np.ones(len(question.centers), dtype=np.bool_))


def _steps(question: WeightedCentroids, rows: FloatArray, n_steps: int) -> FloatArray:
    """Return the local centroids after `n_steps` local steps."""
    if n_steps == 0:
        return question.centers
    update = local_updates(
        Stacked.of([rows]),
        question.centers,
        local_iter=n_steps,
        local_tol=question.local_tol,
        relocate_empty=question.relocate_empty,
    )[0]
    return update.centers
