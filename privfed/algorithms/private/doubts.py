"""Rounds that ask of doubtful points also, so that none holds a center's place before it is sure.

Noise alone fills a cell of a grid now and then, and a small group fills several cells a little. A center
there is lost where it is noise, and the group is lost without one where it is not. So a round has, beside
the centers, up to as many doubtful points. A record still falls into one cell, so that such a round costs
what another does. The counts of a point by the grid and by rounds add up, each with the weight that its noise
gives it. Once a point is beyond doubt by all of them, that center moves there which is missed least, if this
saves more than it costs.

Reveals to whoever opens the totals, with noise: counts and sums of offsets of the rows nearest to a doubtful
point, which totals before it determine.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privfed.algorithms.private.coreset import count_share
from privfed.algorithms.private.halves import Seats
from privfed.algorithms.private.noised_rounds import State, stepped, weights_of
from privfed.algorithms.private.points import BoolArray, Coreset, Doubts
from privfed.algorithms.private.scale import Scale, clipped
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import IntArray, squared_distances
from privfed.numerics.kmeans import nearest
from privfed.questions.bounded.bounded_sums import RelativeSums

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
ASKED_AGAIN = 0.7
"""How many deviations more a point needs to be beyond doubt, where rounds ask of it again."""

COUNTS = 0.6
"""Part of such a round's share for its counts."""

KEPT = 2.0
"""Below so many deviations, by all counts, a point is given up."""

CLEAR = 8.0
"""Least rows of an average cluster, in standard deviations of the noise in a round's count."""

PURE = 2
"""How many last rounds ask of whole clusters only."""


def doubted(scale: Scale, found: Coreset, n_clusters: int, share: float) -> Coreset | None:
    """Return a coreset that says which points rounds ask of again; None where they ask of none.

    They do after a grid whose clusters stand out of a round's noise: with more, a round shows no point, but
    takes rows from centers. Where counts are clipped, as of most whole clients, they say too little.

    Args:
        scale: noised number, centre and radius of the rows.
        found: the coreset.
        n_clusters: number of clusters.
        share: share of the budget for a round.
    """
    noise = scale.count_noise(share, count_share(len(scale.center)))
    if found.least is None or found.errors is None or scale.count_length < 1.0:
        return None
    if scale.n_rows < CLEAR * noise * n_clusters:
        return None
    least = np.where(found.least > 0.0, found.least + ASKED_AGAIN * found.errors, 0.0)
    unsure, windows = found.weights < least, found.doubts
    points, rows, errors = found.points[unsure], found.weights[unsure], found.errors[unsure]
    doubts = Doubts(points, rows, errors**-2.0, least[unsure] / errors)
    if windows is not None:
        doubts = doubts.joined(replace(windows, least=windows.least + ASKED_AGAIN))
    return replace(found, least=least, doubts=doubts)


def wanted(seats: Seats, state: State, noise: float) -> IntArray:
    """Return which doubtful points a round asks of: at most as many as clusters, the least doubtful first.

    Each would save more, if it is real, than the center costs that is missed least; and it lies nearer to no
    other that is asked of than to a center.

    Args:
        seats: points of the coreset, and what rounds found before.
        state: the state before the round.
        noise: standard deviation of the noise in the counts of a round that asks of whole clusters.
    """
    doubts, k, chosen = seats.coreset.doubts, len(state.centers), list[int]()
    if doubts is None or not len(doubts.points):
        return np.array(chosen, dtype=np.int64)
    squares = squared_distances(doubts.points, state.centers).min(axis=1)
    pays = doubts.rows * squares >= _costs(_rows(seats, state, noise), state.centers).min()
    for one in np.argsort(doubts.least - doubts.above, kind="stable").tolist():
        if len(chosen) == k:
            break
        apart = (
            squared_distances(doubts.points[chosen], doubts.points[[one]])[:, 0] if chosen else np.empty(0)
        )
        if pays[one] and doubts.above[one] >= KEPT and (apart >= squares[one]).all():
            chosen.append(one)
    return np.array(chosen, dtype=np.int64)


def doubting_round(
    scale: Scale, seats: Seats, state: State, share: float, asked: IntArray
) -> Conversation[tuple[Seats, State, float]]:
    """Ask for one round, of doubtful points too, and move the centers.

    Args:
        scale: noised number, centre and radius of the rows.
        seats: points of the coreset, some of them doubtful.
        state: the centers.
        share: share of the budget for this round.
        asked: which doubtful points are asked of, int64 of shape (n_asked,).

    Returns:
        The seats, whose doubtful points have the round's counts too; the state after it; and the precision of
        its counts, in units of a round that asks of whole clusters.
    """
    doubts, (k, d), ranges = seats.coreset.doubts, state.centers.shape, scale.frame.ranges
    assert doubts is not None
    every = ranges.clip(np.concatenate([state.centers, doubts.points[asked]]))
    question = RelativeSums(ranges=ranges, centers=every, radius=state.radius)
    total = yield Ask(question, purpose="round", weights=weights_of(d, share, question.asks, COUNTS))
    noise, found = dict(total.noise_std or {}), total.statistics
    whole = {"count": found["count"][:k], "sum": found["sum"][:k], "distance": found["distance"]}
    normal, counts = scale.count_noise(share, count_share(d)), found["count"][k:]
    after = replace(stepped(scale, state, share, whole, noise), count_noise=normal)
    held = np.maximum(counts, 2.0 * noise["count"])
    unsure = d * (noise["sum"] / held) ** 2
    gain = np.where(counts > 2.0 * noise["count"], state.radius**2 / (state.radius**2 + unsure), 0.0)
    points, rows, precision = doubts.points.copy(), doubts.rows.copy(), doubts.precision.copy()
    points[asked] = ranges.clip(
        every[k:] + gain[:, None] * clipped(found["sum"][k:] / held[:, None], state.radius)
    )
    more = noise["count"] ** -2.0
    rows[asked] = (rows[asked] * precision[asked] + counts * more) / (precision[asked] + more)
    precision[asked] += more
    coreset = replace(seats.coreset, doubts=Doubts(points, rows, precision, doubts.least))
    return replace(seats, coreset=coreset), after, (normal / noise["count"]) ** 2


def settled(
    seats: Seats, asked: FloatArray, state: State, probed: IntArray
) -> tuple[Seats, State, BoolArray]:
    """Move centers to points that are beyond doubt now, where that saves more than it costs.

    Args:
        seats: points of the coreset, and what all rounds found.
        asked: the centers of the last round before they moved.
        state: the state after that round.
        probed: the doubtful points that it asked of.

    Returns:
        The seats and the state after that, and which centers are new.
    """
    k, doubts = len(asked), seats.coreset.doubts
    assert doubts is not None
    centers, variance, new = state.centers.copy(), state.variance.copy(), np.zeros(k, dtype=np.bool_)
    rows, empty = _rows(seats, state, state.count_noise), seats.empty(asked, state.count_noise)
    sure, taken = probed[doubts.above[probed] >= doubts.least[probed]], list[int]()
    while len(sure):
        saved = doubts.rows[sure] * squared_distances(doubts.points[sure], centers).min(axis=1)
        costs = _costs(np.where(empty, 0.0, rows), centers)
        costs[new], costs[:, new] = np.inf, np.inf
        best, pair = int(saved.argmax()), list(divmod(int(costs.argmin()), k))
        if not costs[*pair] < saved[best]:
            break
        kept, left = sorted(pair, key=lambda one: (empty[one], -rows[one]))
        if not empty[left]:
            centers[kept] = np.average(centers[pair], axis=0, weights=rows[pair])
            rows[kept] += rows[left]
            new[kept] = True
        centers[left], rows[left], new[left] = doubts.points[sure[best]], doubts.rows[sure[best]], True
        taken.append(int(sure[best]))
        sure = np.delete(sure, best)
    if taken:
        seats = seats.moved(new, asked, empty)
        seats = replace(seats, coreset=seats.coreset.surely(taken))
    return seats, replace(state, centers=centers, variance=variance), new


def _rows(seats: Seats, state: State, noise: float) -> FloatArray:
    """Return the rows of each center by all counts, each with the weight that its noise gives it."""
    k, found = len(state.centers), seats.coreset
    assert found.errors is not None
    owner = nearest(found.points, state.centers)
    weight, square = np.bincount(owner, found.weights, k), np.bincount(owner, found.errors**2, k)
    part = np.where(square > 0.0, 1.0 / np.maximum(square, 1.0), 1e-12)
    rows: FloatArray = (weight * part + seats.counted / noise**2) / (part + seats.rounds / noise**2)
    return np.maximum(rows, 1.0)


def _costs(rows: FloatArray, centers: FloatArray) -> FloatArray:
    """Return by how much the cost rises if two centers become one, (n_clusters, n_clusters)."""
    costs: FloatArray = (
        rows[:, None] * rows / np.maximum(rows[:, None] + rows, 1.0) * squared_distances(centers, centers)
    )
    np.fill_diagonal(costs, np.inf)
    return costs
