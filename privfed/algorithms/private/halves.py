"""Rounds that ask of clusters in halves, and centers that move to where they save more.

Lloyd steps rest where two groups share a center while another group has two. No total of whole clusters
shows that: the mean of two groups is a mean like any other. So some rounds have two centers a cluster, close
to each other, which cut it in halves. A record still falls into one cell, so that such a round costs what
another does. Both halves together give the round's step, with noise sqrt(2) times as wide. Apart they show
how far the cluster reaches across the cut. A center whose rows no round saw stays whole, after hyperplanes.

Let halves have n and m rows, and the means a and b. With a center for each half, the cost falls by at least
n m / (n + m) |a - b|^2. It rises by at most this for two whole clusters, if they get one center in place of
two. Where a fall exceeds a rise, beyond noise, a center moves. The next cut of a cluster goes across the
direction in which its halves lay apart: a step of power iteration for the direction of its largest spread.

Reveals to whoever opens the totals, with noise: counts and sums of offsets of the halves of clusters; and the
sum of all rows' distances to their nearest center.

New places for centers that rounds find empty.

Noise alone fills a cell now and then, and k-means on the coreset makes it a cluster. Rounds count anew, with
noise of their own, and find no rows there. So the coreset's points of such centers are left out, and the
others are clustered anew, which costs no budget. A center whose points stay together keeps the place that the
rounds found for it.

Reveals nothing: it looks at noised totals only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from privfed.algorithms.private.coreset import clustered, count_share
from privfed.algorithms.private.noised_rounds import State, stepped, weights_of
from privfed.algorithms.private.points import BoolArray, Coreset
from privfed.algorithms.private.scale import Scale, clipped
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import FloatArray
from privfed.numerics.kernels.interpreted import IntArray
from privfed.numerics.kmeans import nearest
from privfed.questions.bounded.bounded_sums import RelativeSums

# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
NO_ROWS, SURELY_LESS, NEGLIGIBLE, LITTLE = 0.5, 3.0, 0.05, 0.1
"""A center is empty if two things hold. Rounds found, on average, fewer rows than `NO_ROWS` standard
deviations of the noise in one round. The coreset has for it only a negligible part of an average cluster, or
more rows than were found, by `SURELY_LESS` standard deviations of the noise in that average. It is empty too
if the coreset has little for it, and rounds found none."""

NO_ROWS_AT_ALL = 2.0
"""Below so many deviations of the noise in all counts together a center is empty."""


@dataclass(frozen=True, slots=True)
class Seats:
    """Points of the coreset that no round has found empty.

    Args:
        coreset: the points, with about how many rows each represents.
        variance: of the error in a coordinate of a center that is a mean of such points.
        scale: noised number, centre and radius of the rows.
        counted: sum of the numbers of rows that rounds found for each center, float64 of shape (n_clusters,).
        rounds: number of these rounds, float64 of shape (n_clusters,).
    """

    coreset: Coreset
    variance: float
    scale: Scale
    counted: FloatArray
    rounds: FloatArray

    def counting(self, state: State, part: FloatArray | float) -> Seats:
        """Return the same points, with the counts of one more round.

        A center may have had rows elsewhere. After hyperplanes earlier counts are dropped once a round surely
        finds fewer.

        Args:
            state: the state after that round.
            part: precision of its counts, in units of a round that asks of whole clusters.
        """
        counted, rounds = self.counted, self.rounds
        if self.coreset.hashed:
            unsure = state.count_noise * np.sqrt(rounds * (1.0 + rounds / part))
            stays = counted - rounds * state.found <= SURELY_LESS * unsure
            counted, rounds = np.where(stays, counted, 0.0), np.where(stays, rounds, 0.0)
        return replace(self, counted=counted + part * state.found, rounds=rounds + part)

    def spare(self, asked: FloatArray, noise: float) -> bool:
        """Say whether, after hyperplanes, an empty center may go elsewhere; arguments as for `empty`."""
        return self.coreset.hashed and bool(self.empty(asked, noise, FEW, LESS).any())

    def cut(self, noise: float) -> BoolArray:
        """Return which centers halves are asked of; after hyperplanes, not those where rounds saw no rows.

        Their counts have less noise if they stay whole, and so say sooner whether they are empty.
        """
        seen = self.counted > SURELY_LESS * np.sqrt(self.rounds) * noise
        return np.asarray(seen | (self.rounds == 0.0) | (not self.coreset.hashed))

    def doubtful(self, noise: float) -> bool:
        """Say whether rounds found no rows, beyond noise, for some center; or none asked about it yet.

        Args:
            noise: standard deviation of the noise in the counts of a round that asks of whole clusters.
        """
        return bool((self.counted <= SEEN * np.sqrt(self.rounds) * noise).any())

    def empty(
        self, asked: FloatArray, noise: float, few: float = NO_ROWS, less: float = SURELY_LESS
    ) -> BoolArray:
        """Return which of the centers that the last round asked about are empty.

        Args:
            asked: these centers.
            noise: standard deviation of the noise in the counts of a round that asks of whole clusters.
            few: below so many of these a center has few rows, and `NO_ROWS` below that none.
            less: by how many deviations rounds must have found less than the coreset has.
        """
        k, mean = len(asked), self.counted / np.maximum(self.rounds, 0.5)
        weight = np.bincount(nearest(self.coreset.points, asked), self.coreset.weights, k)
        surely_less = (weight - mean) * np.sqrt(self.rounds) > less * noise
        share = weight * k / weight.sum()
        no_rows = (share < LITTLE) & (mean < (few - NO_ROWS) * noise)
        few_rows = (mean < few * noise) & (surely_less | (share < NEGLIGIBLE))
        return np.asarray((self.rounds > 0.0) & (few_rows | no_rows | self._none(asked, noise)))

    def _none(self, asked: FloatArray, noise: float) -> BoolArray:
        """Say for which centers all counts together are within `NO_ROWS_AT_ALL` deviations of their noise.

        Counts are the coreset's, whose noise is known after a grid, and those of rounds, each with the weight
        that its noise gives it. At unit "client" counts are clipped, and say less.
        """
        k, points = len(asked), self.coreset
        if points.errors is None or self.scale.count_length < 1.0:
            return np.zeros(k, dtype=np.bool_)
        owner = nearest(points.points, asked)
        square, rounds = np.bincount(owner, points.errors**2, k), self.rounds / noise**2
        part = np.where(square > 0.0, 1.0 / np.maximum(square, 1.0), 0.0)
        found = np.bincount(owner, points.weights, k) * part + self.counted / noise**2
        return np.asarray(found < NO_ROWS_AT_ALL * np.sqrt(part + rounds))

    def moved(self, new: BoolArray, asked: FloatArray, empty: BoolArray) -> Seats:
        """Return the seats after some centers moved; without the points of those that were empty.

        Args:
            new: which centers moved.
            asked: the centers of the last round before they moved.
            empty: which of these were empty.
        """
        left = ~(empty & new)[nearest(self.coreset.points, asked)]
        points = self.coreset.only(left) if left.any() else self.coreset
        counted, rounds = np.where(new, 0.0, self.counted), np.where(new, 0.0, self.rounds)
        return replace(self, coreset=points, counted=counted, rounds=rounds)

    def after(
        self, asked: FloatArray, state: State, rng: np.random.Generator
    ) -> tuple[Seats, State, BoolArray]:
        """Return the points that remain, the state with new places for empty centers, and which are new.

        Args:
            asked: the centers of the last round before they moved.
            state: the state after that round, which asked of whole clusters.
            rng: source of the clustering's starts.
        """
        k, empty = len(asked), self.empty(asked, state.count_noise)
        left = ~empty[nearest(self.coreset.points, asked)]
        if not empty.any() or empty.all() or left.sum() < k:
            return self, state, np.zeros(k, dtype=np.bool_)
        points = self.coreset.only(left)
        found, held = clustered(self.scale, points, k, rng), np.flatnonzero(~empty)
        old = held[nearest(points.points, state.centers[held])]
        stays, moved = _matched(old, nearest(points.points, found), k)
        centers, variance = state.centers.copy(), state.variance.copy()
        new = np.ones(k, dtype=np.bool_)
        new[stays] = False
        centers[new] = found[moved]
        variance[new] = self.variance
        seats = replace(
            self,
            coreset=points,
            counted=np.where(new, 0.0, self.counted),
            rounds=np.where(new, 0.0, self.rounds),
        )
        return seats, replace(state, centers=centers, variance=variance), new


def _matched(old: IntArray, labels: IntArray, n_clusters: int) -> tuple[IntArray, IntArray]:
    """Return which old clusters have exactly the points of a new one, and the new ones that have no match."""
    together = np.zeros((n_clusters, n_clusters), dtype=np.bool_)
    together[old, labels] = True
    alone = together & (together.sum(axis=0) == 1)[None] & (together.sum(axis=1) == 1)[:, None]
    stays, matched = np.nonzero(alone)
    return stays, np.setdiff1d(np.arange(n_clusters), matched)


# docs/algorithms/dp_kmeans.md, "Where the constants come from", says how these were found.
CLOSE = 0.01
"""Distance of the two centers of a cluster, in units of the round's radius."""

SURELY_MORE, SEEN = 2.0, 2.0
"""By how many standard deviations of its noise a fall of the cost must exceed a rise; and how many of the
noise in a count each half must have."""

FEW, LESS = 1.0, 2.0
"""As `NO_ROWS` and `SURELY_LESS` of seats, for a center that is wanted elsewhere."""

LEAST_ROUNDS, LEAST_CLUSTERS = 6, 3
"""Fewest rounds, and clusters, with which some rounds ask of halves."""

QUIET = 0.03
"""After a grid: most noise in a count of a round, as a share of an average cluster's rows. With more, counts
of whole clusters are of more use, since they say which centers are empty: one late round asks of halves."""


@dataclass(frozen=True, slots=True)
class Halves:
    """What a round tells of the halves of clusters.

    Args:
        means: of each half's rows, float64 of shape (2, n_clusters, n_features).
        variance: of the noise in a coordinate of these, float64 of shape (2, n_clusters).
        gain: how much the cost falls with a center for each half, float64 of shape (n_clusters,).
        unsure: standard deviation of the noise in it, float64 of shape (n_clusters,).
        part: precision of a cluster's count, in units of a round that asks of whole clusters, same shape.
    """

    means: FloatArray
    variance: FloatArray
    gain: FloatArray
    unsure: FloatArray
    part: FloatArray


def may(scale: Scale, rounds: int, n_clusters: int) -> bool:
    """Say whether any of so many rounds may ask of halves.

    None does where counts are clipped, as those of most whole clients are.
    """
    return rounds >= LEAST_ROUNDS and n_clusters >= LEAST_CLUSTERS and scale.count_length >= 1.0


def pays(scale: Scale, seats: Seats, share: float, last: bool) -> bool:
    """Say whether a round asks of halves.

    Across a line they do not while slabs show enough clusters, and rounds find rows in all. With more noise
    after a grid one round does, so late that rounds before it say which centers are empty.

    Args:
        scale: noised number, centre and radius of the rows.
        seats: points of the coreset, and what rounds found before.
        share: share of the budget for this round.
        last: whether no later round may ask of halves.
    """
    found, k = seats.coreset, len(seats.counted)
    noise = scale.count_noise(share, count_share(len(scale.center)))
    if found.hashed:
        return not found.sliced or len(found.points) < k or seats.doubtful(noise)
    return noise < QUIET * scale.n_rows / k or (last and seats.doubtful(noise))


def asked_in(number: int, rounds: int) -> bool:
    """Say whether a round may ask of halves: the second, fourth and sixth, but not the last."""
    return number % 2 == 1 and number + 1 < rounds


def halved_round(
    scale: Scale, state: State, share: float, axes: FloatArray, cut: BoolArray, spare: bool = False
) -> Conversation[tuple[State, Halves]]:
    """Ask for one round, of clusters in halves, and move the centers.

    Args:
        scale: noised number, centre and radius of the rows.
        state: the centers.
        share: share of the budget for this round.
        axes: unit vectors across which clusters are cut, float64 of shape (n_clusters, n_features).
        cut: which clusters are cut; the others stay whole.
        spare: whether a center is empty. Then sums get only sqrt(d) times as much of the share as counts.

    Returns:
        The state as after a round of whole clusters, and what is known of the halves.
    """
    (k, d), ranges, off = state.centers.shape, scale.frame.ranges, 0.5 * CLOSE * state.radius * axes
    off = np.where(cut[:, None], off, 0.0)
    both = ranges.clip(np.stack([state.centers - off, state.centers + off]))
    asked = np.array([np.ones(k, dtype=np.bool_), cut])
    question = RelativeSums(ranges=ranges, centers=both[asked], radius=state.radius)
    usual = count_share(d)
    counted = 1.0 / (1.0 + sqrt(d)) if spare else usual
    total = yield Ask(question, purpose="round", weights=weights_of(d, share, question.asks, counted))
    noise, found, sums = dict(total.noise_std or {}), np.zeros((2, k)), np.zeros((2, k, d))
    found[asked], sums[asked] = total.statistics["count"], total.statistics["sum"]
    least = SEEN * noise["count"]
    counts = np.maximum(found, max(least, 1.0))
    means = both + clipped((sums / counts[:, :, None]).reshape(-1, d), state.radius).reshape(2, k, d)
    variance, seen = (noise["sum"] / counts) ** 2, (found > least).all(axis=0)
    joint, twice = counts.prod(axis=0) / counts.sum(axis=0), variance.sum(axis=0)
    square, halved = np.square(means[1] - means[0]).sum(axis=1), np.where(cut, 2.0, 1.0)
    halves = Halves(
        means,
        variance,
        np.where(seen, joint * (square - d * twice), 0.0),
        joint * np.sqrt(4.0 * square * twice + 2.0 * d * twice**2),
        counted / usual / halved,
    )
    # Offsets from both centers of a cluster, as offsets from the one between them.
    sums += found[:, :, None] * (both - state.centers)
    whole = {"count": found.sum(axis=0), "sum": sums.sum(axis=0), "distance": total.statistics["distance"]}
    after = stepped(scale, state, share, whole, noise, np.sqrt(halved))
    return replace(after, count_noise=noise["count"] * sqrt(counted / usual)), halves


def traded(
    scale: Scale, seats: Seats, asked: FloatArray, state: State, halves: Halves
) -> tuple[Seats, State, BoolArray]:
    """Move centers to where they save more, as far as noise shows.

    Args:
        scale: noised number, centre and radius of the rows.
        seats: points of the coreset, and what rounds found before.
        asked: the centers of the last round before they moved.
        state: the state after that round.
        halves: what that round found of halves.

    Returns:
        The seats and the state after that, and which centers are new.
    """
    seats = seats.counting(state, halves.part)
    empty = seats.empty(asked, state.count_noise, FEW, LESS)
    centers, variance, new = state.centers.copy(), state.variance.copy(), np.zeros(len(asked), dtype=np.bool_)
    rows, sure = state.counts, halves.gain - SURELY_MORE * halves.unsure
    rise = rows[:, None] * rows / (rows[:, None] + rows) * np.square(centers[:, None] - centers).sum(axis=2)
    np.fill_diagonal(rise, np.inf)
    for split in np.argsort(-sure, kind="stable").tolist():
        free = ~new
        free[split] = False
        spare, open_ = np.flatnonzero(free & empty), np.where(free[:, None] & free, rise, np.inf)
        pair = list(divmod(int(open_.argmin()), len(asked)))
        if new[split] or not (0.0 if len(spare) else open_[*pair]) < sure[split]:
            continue
        # An empty center costs nothing where it was, and joins no other.
        kept, left = (None, spare[0]) if len(spare) else sorted(pair, key=lambda one: -rows[one])
        if kept is not None:
            centers[kept] = np.average(centers[pair], axis=0, weights=rows[pair])
            variance[kept] = variance[pair].max()
            new[kept] = True
        centers[[left, split]], variance[[left, split]] = halves.means[:, split], halves.variance[:, split]
        new[[left, split]] = True
    centers = scale.frame.ranges.clip(centers)
    return seats.moved(new, asked, empty), replace(state, centers=centers, variance=variance), new


def first_axes(found: Coreset, centers: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return the main direction of each center's points of the coreset; a random one of a single point."""
    axes, owner = _drawn(centers.shape, rng), nearest(found.points, centers)
    for j in range(len(centers)):
        points, weights = found.points[owner == j], found.weights[owner == j]
        if len(points) > 1:
            offsets = points - np.average(points, axis=0, weights=weights)
            axes[j] = np.linalg.svd(offsets * np.sqrt(weights)[:, None], full_matrices=False)[2][0]
    return axes


def next_axes(halves: Halves, new: BoolArray, rng: np.random.Generator) -> FloatArray:
    """Return in which direction halves lay apart; a random one where noise hides it, or a center is new."""
    apart = halves.means[1] - halves.means[0]
    axes, seen = _drawn(apart.shape, rng), (halves.gain > SURELY_MORE * halves.unsure) & ~new
    axes[seen] = apart[seen] / np.linalg.norm(apart[seen], axis=1, keepdims=True)
    return axes


def _drawn(shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
