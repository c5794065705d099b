"""Rounds under noise: Lloyd's and other steps.

Steps. The step of a center is the noised mean of its rows' clipped offsets. The variance of its noise is
known; how far a center is from its optimum is estimated from the step itself. The share taken is the gain of
a Kalman filter: near 1 for clusters of many rows, near 0 where the noise dominates.

Fuzzy steps. A fuzzy record belongs to all clusters, with memberships u. They sum to 1, and m >= 1. So the
vector of u^m has L2 norm at most 1, and that of u^m clip(x - c, R), over all clusters, at most R: the bounds
of a record in one cell hold. Replacing a record costs the most in one of the two cases of hard assignments.
Let t = sum u v for old and new memberships u and v. The squared change of counts is at most 2 - 2 t, that of
sums at most R^2 (2 + 2 t): the cost is linear in t. This requires that sums use the truncated memberships.

Several local steps have no useful bound for a record. They are asked of whole clients only
(`privfed.algorithms.private.clients`), with each center's movement clipped to the radius, then weighted.

Reveals to whoever opens the totals, with noise: counts and sums of offsets of the rows nearest to each
center, or those of other steps; and the sum of all rows' distances to their nearest center.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from typing import ClassVar

import numpy as np

from privfed.algorithms.private.coreset import (
    CELLS_PER_CENTER,
    LEAST_WIDE,
    MOST_WIDE,
    WIDE_SHARE,
    count_share,
)
from privfed.algorithms.private.points import Coreset
from privfed.algorithms.private.scale import Frame, Scale, chi_ratio, clipped, radius_rule
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Phase, Phases, Shape
from privfed.core.asking.question import register
from privfed.core.asking.statistics import StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import check_whole
from privfed.numerics.kernels.dispatch import distances
from privfed.numerics.kernels.interpreted import IntArray
from privfed.numerics.kmeans import weighted_kmeans
from privfed.numerics.memberships import check_fuzzifier, shares
from privfed.privacy.bounds import (
    HAIR,
    MOST_SHARED,
    Bound,
    RecordBounded,
    bounded_spec,
    check_sizes,
    counted,
    in_cells,
    magnitude,
    step_of,
    truncated,
)
from privfed.privacy.contributions import Contribution
from privfed.questions.bounded.bounded_sums import RelativeSums, SumsInCells
from privfed.questions.cells import GRID_FEATURES
from privfed.questions.lloyd import check_centers

LITTLE_NOISE, MOST_WIDER = 0.1, 3.0
"""Offsets are clipped to more than four in five rows need, at most so many times as much. This holds while
the noise of a center is below this part of the rows' mean distance to their center."""

LEAST_NARROWED = 0.02
"""Least radius of a round, in units of the last one's."""

DISTANCE_SHARE = 0.03
"""Share of a round's weight for the sum of distances, which determines the next round's clipping radius."""


@dataclass(frozen=True, slots=True)
class State:
    """Centers between rounds.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        radius: length to which offsets are clipped in the next round.
        variance: variance of the error in each center's coordinates, float64 of shape (n_clusters,).
        counts: noised number of rows of each cluster, at least 1, float64 of shape (n_clusters,).
        gain: share of the last step that each center took, float64 of shape (n_clusters,).
        found: noised number of rows of each cluster as it was found, float64 of shape (n_clusters,).
        count_noise: standard deviation of the noise in such a number.
    """

    centers: FloatArray
    radius: float
    variance: FloatArray
    counts: FloatArray
    gain: FloatArray
    found: FloatArray
    count_noise: float


def started(centers: FloatArray, radius: float, variance: float) -> State:
    """Return the state before the first round."""
    k = len(centers)
    return State(centers, radius, np.full(k, variance), np.ones(k), np.zeros(k), np.zeros(k), 0.0)


def weights_of(
    n_features: int, share: float, asks: tuple[str, ...], counts: float | None = None
) -> dict[str, float]:
    """Return entry -> share of the budget, for a round with this share in all.

    Counts have the part `counts` of what counts and sums have together; None for `count_share`.
    """
    distances = DISTANCE_SHARE if "distance" in asks else 0.0
    counts = count_share(n_features) if counts is None else counts
    parts = {"count": counts * (1.0 - distances), "sum": (1.0 - counts) * (1.0 - distances)}
    return {name: share * (parts | {"distance": distances})[name] for name in asks}


Asking = Callable[[Ranges, FloatArray, float], SumsInCells]
"""Makes a round's question from ranges, centers and the radius to which offsets are clipped."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """The question of a round, and how far the centers move by its result.

    Args:
        asking: makes the round's question; None for a Lloyd step.
        learning_rate: factor of the round's step, in (0, 1].
        momentum: share of the last movement that is added (Holzer et al. 2023, eq. 6), in [0, 1).
        smoothing: weight of the last movement in a running average (Triebe and Rajagopal 2019), in [0, 1).
        equal: whether clients have equal weight, however many rows they hold (unit "client").
    """

    asking: Asking | None = None
    learning_rate: float = 1.0
    momentum: float = 0.0
    smoothing: float = 0.0
    equal: bool = False

    def example(self, frame: Frame, n_clusters: int) -> SumsInCells | None:
        """Return a question like those of the rounds, from centers that mean nothing; None for Lloyd's."""
        return self.asking and self.asking(
            frame.ranges, np.repeat(frame.middle[None], n_clusters, axis=0), frame.radius
        )

    def movement(self, step: FloatArray, last: FloatArray) -> FloatArray:
        """Return how far centers move, given a round's step and their last movement."""
        moved: FloatArray = self.learning_rate * step
        return (1.0 - self.smoothing) * moved + (self.smoothing + self.momentum) * last


def round_phase(
    frame: Frame,
    n_clusters: int | tuple[int, int],
    most: int,
    example: SumsInCells | None = None,
    least: int = 1,
) -> Phase:
    """Return what rounds ask.

    Args:
        frame: the domain.
        n_clusters: number of centers, or (least, most) of them.
        most: most rounds.
        example: a question instead of a Lloyd step; its centers may be any.
        least: fewest rounds.
    """
    radius = radius_rule(frame)
    if example is not None:
        return Phase(Form.like(example, radius=radius), least, most)
    return Phase(
        Form(RelativeSums, centers=Shape(n_clusters, frame.ranges.n_features), radius=radius), least, most
    )


def wanted_radius(scale: Scale, mean: float, share: float, n_clusters: int) -> float:
    """Return the length to which a round should clip offsets, given their mean length.

    Clipping to little more than the mean length halves the noise of a wider radius, but pulls centers of
    skewed clusters off their means. So the radius is larger where noise is low.

    Args:
        scale: noised number, centre and radius of the rows.
        mean: mean distance of rows to their nearest center.
        share: share of the budget for the round.
        n_clusters: number of centers.
    """
    d = len(scale.center)
    least = mean * min(chi_ratio(d), 1.7)
    # Noise of a center, clipped to the least radius, in units of the mean distance.
    noise = (
        scale.noise(share, 1.0 / (1.0 + sqrt(4.0 * d))) * n_clusters / scale.n_rows * min(chi_ratio(d), 1.7)
    )
    return min(
        least * float(np.clip(LITTLE_NOISE / max(noise, 1e-9), 1.0, MOST_WIDER)), 2.0 * scale.frame.radius
    )


def lloyd_round(
    scale: Scale, state: State, share: float, question: SumsInCells | None = None, purpose: str = "round"
) -> Conversation[State]:
    """Ask for one round and move the centers.

    Args:
        scale: noised number, centre and radius of the rows.
        state: the centers.
        share: share of the budget for this round.
        question: question instead of a Lloyd step; its radius is that of the state.
        purpose: what the total is for, in a word for people.
    """
    d, radius = len(scale.center), state.radius
    if question is None:
        question = RelativeSums(ranges=scale.frame.ranges, centers=state.centers, radius=radius)
    total = yield Ask(question, purpose=purpose, weights=weights_of(d, share, question.asks))
    return stepped(scale, state, share, total.statistics, dict(total.noise_std or {}))


def stepped(
    scale: Scale,
    state: State,
    share: float,
    found: Mapping[str, FloatArray],
    noise: Mapping[str, float],
    wider: FloatArray | float = 1.0,
) -> State:
    """Return the state after a round's total.

    Args:
        scale: noised number, centre and radius of the rows.
        state: the centers before.
        share: share of the budget for the round.
        found: entry -> noised total.
        noise: entry -> standard deviation of the noise in each of its numbers.
        wider: how many times wider it is in counts and sums, of all or of each center.
    """
    radius, raw, least = state.radius, found["count"], 2.0 * wider * noise["count"]
    counts = np.maximum(raw, np.maximum(least, 1.0))
    of_noise = (wider * noise["sum"] / counts) ** 2
    step = clipped(found["sum"] / counts[:, None], radius)
    unsure = state.variance + np.maximum(np.square(step).mean(axis=1) - of_noise - state.variance, 0.0)
    gain = np.where(raw < least, 0.0, unsure / (unsure + of_noise))
    centers = scale.frame.ranges.clip(state.centers + gain[:, None] * step)
    if "distance" in noise and (error := noise["distance"] / scale.n_rows) <= 0.2 * radius:
        mean = float(found["distance"][0]) / scale.n_rows
        radius = max(wanted_radius(scale, mean + 0.5 * error, share, len(raw)), LEAST_NARROWED * radius)
    variance = np.where(gain > 0.0, gain * of_noise, state.variance)
    return State(centers, radius, variance, counts, gain, raw, noise["count"])


def widened(
    scale: Scale,
    found: Coreset,
    state_of: Callable[[FloatArray, float], State],
    n_clusters: int,
    rng: np.random.Generator,
) -> Conversation[Coreset | None]:
    """Return the centers of a round with several times as many centers as clusters; None where it asks none.

    Args:
        scale: noised number, centre and radius of the rows.
        found: the coreset.
        state_of: returns the state before a round from given centers, of which the share is known.
        n_clusters: number of clusters.
        rng: source of the clustering's starts.
    """
    affordable = scale.n_rows / scale.noise(WIDE_SHARE, count_share(len(scale.center)))
    n_wide = int(min(MOST_WIDE * n_clusters, affordable, len(found.points) / CELLS_PER_CENTER))
    if n_wide < LEAST_WIDE * n_clusters:
        return None
    centers = weighted_kmeans(found.points, found.weights, n_wide, rng, n_init=2, max_iter=50).centers
    state = state_of(scale.frame.ranges.clip(centers), WIDE_SHARE)
    state = yield from lloyd_round(scale, state, WIDE_SHARE, purpose="wide")
    return replace(found, points=state.centers, weights=state.counts, spent=WIDE_SHARE)


def wide_phases(frame: Frame, n_clusters: int) -> Phases:
    """Return what `widened` asks, which may be left out."""
    if frame.ranges.n_features <= GRID_FEATURES:
        return ()
    return (round_phase(frame, (int(LEAST_WIDE * n_clusters), int(MOST_WIDE * n_clusters)), 1, least=0),)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class FuzzyRelativeSums(SumsInCells, RecordBounded):
    """Ask for a fuzzy step: sums of u^m, of u^m times clipped offsets, and of distances to nearest centers.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        m: fuzzifier, above 1.
    """

    asks: ClassVar[tuple[str, ...]] = ("count", "sum", "distance")
    centers: FloatArray
    m: float = 2.0

    @property
    def declaration(self) -> Declaration:
        """Sums of u^m, of which a row has at most 1 in all, and weighted sums; distances of all rows."""
        return Declaration(self._row_counts, (self.centers,))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_centers(self.centers, self.ranges)
        check_sizes("centers", self.centers)
        check_fuzzifier(self.m)
        check_whole("n_centers", len(self.centers), 1, MOST_SHARED)

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """The bounds of a record in one cell (module docstring)."""
        return {"count": counted(), "sum": in_cells(self.radius), "distance": magnitude(self.radius)}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Entries of at most the rows of a client times the bound of one row."""
        bounds = {name: bound.l2 for name, bound in self.bounds.items()}
        k, rows = len(self.centers), self.ranges.rows
        return bounded_spec(
            bounds, {"count": (k,), "sum": (k, self.ranges.n_features), "distance": (1,)}, rows
        )

    @property
    def values_of_a_row(self) -> int:
        """A row adds to every center."""
        return 2 * self.centers.size

    def contributions(self, rows: FloatArray, labels: IntArray) -> Mapping[str, Contribution]:
        """Return each row's memberships, its weighted offsets from all centers, and its capped distance."""
        squares, reach = distances(rows, self.centers), self.radius * HAIR
        # Scaled slightly down, so that rounding makes no vector of memberships longer than 1.
        powers = truncated(HAIR * np.power(shares(squares, self.m), self.m), step_of(1.0))
        factors = powers * np.minimum(1.0, reach / np.maximum(np.sqrt(squares), reach))
        return {
            "count": Contribution(powers.T),
            "sum": Contribution(
                ((rows[:, None] - self.centers) * factors.T[:, :, None]).reshape(len(rows), -1)
            ),
            "distance": Contribution(np.minimum(np.sqrt(squares.min(axis=0)), reach)[:, None]),
        }
