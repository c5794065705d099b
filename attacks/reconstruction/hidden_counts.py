"""Recovers the counts that equal weights are meant to hide, from a client's centroids alone.

A client of EWF k-means sends its local centroids M_t and no counts. But the centroids of all rounds are means
of the same rows: with counts n_t, every round satisfies sum_j n_tj M_tj = S and sum_j n_tj = n. If two rounds
have the same centroid, it is the mean of the same rows. These are linear equations in few unknowns, and the
counts must be integers, which verifies a solution. docs/attacks/equal-weight-counts.md explains it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Aim, Prior
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.report import IntArray
from privfed.attacks.base.results import Counts
from privfed.attacks.base.whole_numbers import sizes_of
from privfed.attacks.evidence.cells import answers_of, last_step
from privfed.attacks.evidence.equations import asked
from privfed.attacks.reconstruction.derivations import groups
from privfed.attacks.reconstruction.residual import BoolArray
from privfed.core.asking.question import Question
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.questions.ranges import FeatureRanges

WHOLE = 1e-5
"""Largest distance from an integer at which a solution is accepted as a count."""

FEWEST = 4
"""Fewest unknowns with known ratios for which the scale is taken from the condition that all are integers."""


class EqualWeightCounts(PassiveAttack[Counts]):
    """Finds how many rows of a client lie in each cluster, from its equally weighted centroids.

    Args:
        client: position of the client.
        use_totals: use the number and the sum of the client's rows, if the sum of ranges showed them.
    """

    name: ClassVar[str] = "equal-weight-counts"
    paper: ClassVar[str] = "own; refutes hiding weights as in EWF, Holzer, Jacob and Kavane 2023, eq. 8"
    adversary: ClassVar[str] = "passive server"
    view: ClassVar[str] = "a client's local centroids of each round; number and sum of its rows, if shown"
    prior: ClassVar[str] = "none"
    defence: ClassVar[str] = "secure sums; differential privacy; several local steps do not"
    aim: ClassVar[Aim] = Aim.ONE_CLIENT

    def __init__(self, client: int, *, use_totals: bool = True) -> None:
        self.client, self.use_totals = client, use_totals

    @property
    def reads(self) -> tuple[Reads, ...]:
        """A client's equally weighted centroids."""
        what = f"equally weighted centroids of client {self.client} alone (EWFKMeans)"
        return (Reads(what=what, shown=Shows.ANSWERS, client=self.client, use=_is_equal),)

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Counts:
        rounds, n_rows, row_sum = [], None, None
        for one, statistics in answers_of(view, self.client):
            question = asked(one)
            if isinstance(question, WeightedCentroids) and _is_equal(question):
                rounds.append((question, statistics["weighted"]))
            if isinstance(question, FeatureRanges) and self.use_totals:
                n_rows, row_sum = float(statistics["rows"][0]), statistics["sum"]
        sent = np.stack([question.centers for question, _ in rounds])
        counts = hidden_counts(
            sent, np.stack([one for _, one in rounds]), rng, n_rows=n_rows, row_sum=row_sum
        )
        return Counts(
            attack=self.name,
            queries=len(rounds),
            counts=counts,
            cells=[last_step(question) for question, _ in rounds],
            clients=[self.client] * len(rounds),
            without_access=None if n_rows is None else np.full(counts.shape, n_rows / counts.shape[1]),
        )


def _is_equal(question: Question) -> bool:
    return isinstance(question, WeightedCentroids) and question.weights == "equal"


def hidden_counts(
    sent: FloatArray,
    means: FloatArray,
    rng: np.random.Generator,
    *,
    n_rows: float | None = None,
    row_sum: FloatArray | None = None,
) -> FloatArray:
    """Return the counts that the centroids determine.

    Args:
        sent: centroids that the client received, float64 of shape (n_rounds, n_clusters, n_features).
        means: centroids that it sent, of the same shape; a cluster without rows sends back the received one.
        rng: draws a projection by which equal centroids are found.
        n_rows: number of the client's rows. If None, counts follow only up to a factor, which is chosen so
            that all are integers.
        row_sum: sum of these rows, (n_features,); None if unknown.

    Returns:
        Counts, float64 of shape (n_rounds, n_clusters), NaN where nothing is claimed.
    """
    n_rounds, k, d = means.shape
    scale = float(np.abs(means).max()) or 1.0
    numbers = groups(means.reshape(-1, d), 1e-12 * scale, rng).reshape(n_rounds, k)
    # A centroid that comes back unchanged has no rows or has converged; in the latter case it recurs.
    stayed = (np.abs(means - sent) <= 1e-12 * scale).all(axis=2)
    once = stayed & (np.bincount(numbers.ravel())[numbers] == 1)
    # A start may by chance be the mean of its rows and so come back only once. Then no counts fit, and the
    # equations are solved with these centroids' counts as unknowns. Where the rows' number and sum are known,
    # what follows so comes first.
    found, unknown = np.full(numbers.shape, np.nan), np.zeros_like(once)
    known = n_rows is not None and row_sum is not None
    for empty in (unknown, once) if known else (once, unknown):
        left = _equations(means, numbers, ~empty, n_rows, row_sum)
        solved = _determined(left, int(numbers.max()) + 1, known=n_rows is not None)
        if solved is not None:
            found = np.where(np.isnan(found), np.where(empty, 0.0, solved[numbers]), found)
            if n_rows is None or row_sum is None:
                break
            found = _completed(found, means, n_rows, row_sum)
    return found


def _completed(counts: FloatArray, means: FloatArray, n_rows: float, row_sum: FloatArray) -> FloatArray:
    """Fill in rounds of which number and sum of the rows leave one set of whole numbers."""
    found = counts.copy()
    for own, centroids in zip(found, means, strict=True):
        left = np.isnan(own)
        if left.any():
            held = np.where(left, 0.0, own)
            target = np.append(row_sum - held @ centroids, n_rows - held.sum())[None]
            likely = np.full((1, int(left.sum())), target[0, -1] / left.sum())
            solved = sizes_of(centroids[left], target, likely)
            own[left] = np.nan if solved is None else solved[1]
    return found


def _equations(
    means: FloatArray, numbers: IntArray, held: BoolArray, n_rows: float | None, row_sum: FloatArray | None
) -> FloatArray:
    """Return A of the equations A v = 0 that the rounds give; repeated rounds count once.

    v holds the counts of the distinct centroids, the sum and the number of all rows if these are unknown,
    and last a 1, whose coefficients are the known values.
    """
    n_counts, d = int(numbers.max()) + 1, means.shape[2]
    scale = float(np.abs(means).max()) or 1.0
    sums, rows = (d if row_sum is None else 0), (1 if n_rows is None else 0)
    left = []
    for place in np.unique(np.where(held, numbers, -1), axis=0, return_index=True)[1]:
        equations = np.zeros((d + 1, n_counts + sums + rows + 1))
        own = held[place]
        equations[:d, numbers[place, own]] = means[place, own].T / scale
        equations[d, numbers[place, own]] = 1.0
        equations[:d, n_counts : n_counts + sums] = -np.eye(d, sums)
        equations[d, n_counts + sums : n_counts + sums + rows] = -1.0
        equations[:d, -1] = 0.0 if row_sum is None else -row_sum / scale
        equations[d, -1] = 0.0 if n_rows is None else -n_rows
        left.append(equations)
    return np.concatenate(left)


def _determined(left: FloatArray, n_counts: int, *, known: bool) -> FloatArray | None:
    """Return the counts that the equations determine, NaN for the others; shape (n_counts,).

    None if the equations contradict each other: only zeros solve them, or no solution has the 1 at the end.

    Unknowns whose rows in the null space are parallel have the same ratios in all solutions. Ratios to the
    last unknown, which is 1, are counts. Without one, in a group of at least `FEWEST`, counts are the ratios
    times the smallest factor that makes all of them integers; if the true counts are a multiple of these, the
    claim is wrong.
    """
    _, singular, directions = np.linalg.svd(left)
    rank = int((singular > singular[0] * 1e-10).sum())
    null = directions[rank:].T
    sizes = np.linalg.norm(null, axis=1)
    if not null.size or (known and sizes[-1] <= 1e-8):
        return None
    counts = np.where(sizes[:n_counts] > 1e-8, np.nan, 0.0)
    members = np.flatnonzero(sizes > 1e-8)
    units = null[members] / sizes[members][:, None]
    while members.size:
        same = np.abs(np.abs(units @ units[-1]) - 1.0) < 1e-10
        group, along = members[same], null[members[same]] @ units[-1]
        if known:
            # Where the rows' number is known, whole numbers that fit it are surer than the least ratio.
            values = along / along[-1] if group[-1] == len(left[0]) - 1 else np.full(len(group), np.nan)
        else:
            values = _to_whole(along)
        own = group < n_counts
        right = own & (np.abs(values - np.rint(values)) < WHOLE) & (np.rint(values) >= 1)
        counts[group[right]] = np.rint(values[right])
        members, units = members[~same], units[~same]
    return counts


def _to_whole(direction: FloatArray) -> FloatArray:
    """Scale a group by the smallest factor that makes all its entries integers; NaN if there is none."""
    if len(direction) < FEWEST or not (direction / direction[0] > 0).all():
        return np.full(len(direction), np.nan)
    ratios = direction / direction[0] / np.min(direction / direction[0])
    factors = np.arange(1, 201)
    errors = np.abs(factors[:, None] * ratios - np.rint(factors[:, None] * ratios)).max(axis=1)
    fitting = np.flatnonzero(errors < WHOLE)
    return factors[fitting[0]] * ratios if fitting.size else np.full(len(direction), np.nan)
