"""Asks for counts and sums of a target's rows in cells of the attacker's choice, noised if clients insist.

Under differential privacy clients answer only questions with a proven bound, so a Lloyd step on clipped
offsets replaces one on whole rows; at unit "client" each entry is also clipped to what a client of typical
size may have. The ranges are then the declared domain, and cost nothing.

Joins coordinates to rows, after each axis was measured on its own.

The distribution of rows along one direction, learned from questions about slabs.

Centroids on a line divide space into slabs, with a border midway between neighbours. A pair of centroids at
t - e and t + e puts a border at t; a further border, not asked for, lies midway between two pairs. Cumulative
counts and sums of the slabs say what lies below each border.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from privfed.algorithms.private.coreset import count_share
from privfed.algorithms.private.scale import Frame, frame_of
from privfed.attacks.base.oracle import Oracle
from privfed.attacks.base.preparation import Prior
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Ask, Conversation, Setting, Total, driven
from privfed.core.values.domain import Box, FloatArray, Ranges
from privfed.core.values.guarantee import Unit
from privfed.errors import PolicyError
from privfed.privacy.noised import Noised
from privfed.questions.bounded.bounded_sums import RelativeSums
from privfed.questions.client_sizes import typical_size
from privfed.questions.lloyd import LloydSums
from privfed.questions.ranges import locate

DISTANCE_PART = 1e-3
"""Part of a question's cost spent on the sum of distances, which a Lloyd step includes but is not needed."""

Learned = TypeVar("Learned")


class ProbedSums:
    """Asks one client, or all behind a secure sum, for counts and sums around chosen centroids.

    The constructor already asks for the ranges, and for the number and the sum of the target's rows.

    Args:
        oracle: the clients.
        prior: ranges, if clients insist on declared ones.
        n_clusters: number of centroids in a question.
        client: position of the target; None for all together.
        inconsistent: ask the target the question and all others a decoy that puts their rows in one cell.

    Attributes:
        ranges: ranges of the features.
        center: middle of the ranges, float64 of shape (n_features,).
        n_rows: number of the target's rows, approximate under noise.
        sum: sum of the target's rows, float64 of shape (n_features,).
        noised: whether clients answer only with noise.

    Raises:
        PolicyError: the server cannot read the answers that it attacks.
        PrivacyError: clients would refuse the questions.
        ProtocolError: clients refused.
    """

    def __init__(
        self,
        oracle: Oracle,
        prior: Prior,
        n_clusters: int,
        client: int | None,
        inconsistent: bool,
    ) -> None:
        self._oracle, self._client, self._inconsistent = oracle, client, inconsistent
        setting = oracle.setting
        self._frame: Frame | None = None if setting.privacy is None else frame_of(setting)
        self.noised = self._frame is not None
        self.ranges = self._located(prior) if self._frame is None else self._frame.ranges
        self.center = (self.ranges.low + self.ranges.high) / 2
        self._limits: dict[str, float] | None = None
        if self._frame is not None and setting.privacy is not None and setting.privacy.unit == Unit.CLIENT:
            rows = self._driven(typical_size(self.ranges))
            self._limits = {"count": rows, **dict.fromkeys(("sum", "distance"), rows * self._frame.radius)}
        # All centroids except one are out of reach, so that all rows fall into the first or the second cell.
        far = np.tile(2 * self.ranges.low - self.ranges.high - 1.0, (n_clusters, 1))
        self._parked, second = far.copy(), far
        self._parked[0], second[1] = self.center, self.center
        self._others = np.zeros(1 + oracle.n_features)
        counts, sums = self._observed(second)
        if inconsistent:
            self._others = np.concatenate([counts[:1], sums[0]])
        counts, sums = self._of_target(counts, sums, second)
        self.n_rows, self.sum = float(counts[1]), sums[1]

    def __call__(self, centers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the target's counts and sums in the cells of centroids.

        Args:
            centers: float64 of shape (n_clusters, n_features).

        Returns:
            Counts, (n_clusters,), rounded to integers under noise; and sums, (n_clusters, n_features).
        """
        return self._of_target(*self._observed(centers), centers)

    def _of_target(
        self, counts: FloatArray, sums: FloatArray, centers: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Subtract the other clients' rows, and turn sums of offsets into sums of rows."""
        counts[0] -= self._others[0]
        sums[0] -= self._others[1:]
        if self.noised:
            counts = np.maximum(np.rint(counts), 0.0)
            sums = sums + counts[:, None] * centers
        return counts, sums

    def _observed(self, centers: FloatArray) -> tuple[FloatArray, FloatArray]:
        question, parked = self._question(centers), self._question(self._parked)
        weights = None
        if self.noised:
            part = count_share(self._oracle.n_features)
            weights = {"count": part, "sum": 1.0 - part - DISTANCE_PART, "distance": DISTANCE_PART}
        seen = self._oracle.ask(
            question,
            parked if self._inconsistent else None,
            self._client or 0,
            weights=weights,
            limits=self._limits,
        )
        own = self._client is not None and not self._inconsistent
        told = seen.answers.get(self._client or 0) if own else seen.total
        if told is None:
            raise PolicyError("the server cannot read the answers that it attacks.")
        return told["count"].copy(), told["sum"].copy()

    def _question(self, centers: FloatArray) -> Question:
        if self._frame is None:
            return LloydSums(ranges=self.ranges, centers=centers)
        return RelativeSums(ranges=self.ranges, centers=centers, radius=self._frame.radius)

    def _located(self, prior: Prior) -> Ranges:
        """Ask for the ranges, as an honest run does at its start."""
        domain = None if prior.low is None or prior.high is None else Box(prior.low, prior.high)
        return self._driven(locate(Setting(self._oracle.clients, self._oracle.n_features, domain), ())).ranges

    def _driven(self, conversation: Conversation[Learned]) -> Learned:
        """Ask what an honest algorithm would ask, and return what it learns."""

        def answer(ask: Ask) -> Total:
            seen = self._oracle.ask(ask.question, limits=ask.limits)
            if seen.total is None:
                raise PolicyError("the server cannot read totals.")
            noise = None
            if isinstance(seen.question, Noised):
                noise = seen.question.noise_std(len(seen.contributors))
            return Total(seen.total, seen.contributors, noise_std=noise)

        return driven(conversation, answer)


def joined(
    axes: Sequence[FloatArray], mixtures: Sequence[FloatArray], mix: float, tolerance: float
) -> FloatArray:
    """Join values on all axes to rows, by values along axis 0 plus `mix` times another axis.

    A pair (a, b) belongs together if a + mix b is among the mixture's values; for an irrational `mix`
    hardly any other pair fits.

    Args:
        axes: values of all rows along each axis, each (n_rows,).
        mixtures: values of all rows along axis 0 plus `mix` times axis j, for j = 1, 2, ..., each (n_rows,).
        mix: factor of the other axis.
        tolerance: largest error of a + mix b.

    Returns:
        The rows that could be completed, float64 of shape (n_joined, n_axes).
    """
    first, n = axes[0], len(axes[0])
    columns, complete = [first], np.ones(n, dtype=np.bool_)
    for other, values in zip(axes[1:], mixtures, strict=True):
        sums, ordered = first[:, None] + mix * other, np.sort(values)
        place = np.clip(np.searchsorted(ordered, sums), 1, n - 1) if n > 1 else np.ones_like(sums, dtype=int)
        nearest = np.minimum(np.abs(ordered[place - 1] - sums), np.abs(ordered[place % n] - sums))
        a, b = np.nonzero(nearest <= tolerance)
        pairs = coo_array((np.ones(len(a)), (a, b)), shape=(n, n)).tocsr()
        match = maximum_bipartite_matching(pairs, perm_type="column")
        complete &= match >= 0
        columns.append(other[match])
    return np.column_stack(columns)[complete]


CLOSEST = 1e-7
"""Smallest distance of a pair, relative to the width; closer ones are lost in float64 rounding."""


@dataclass(frozen=True, eq=False)
class Slabs:
    """Holds what lies between neighbouring borders.

    Args:
        borders: float64 of shape (n_slabs + 1,), ascending; the outermost enclose all rows.
        counts: number of rows in each slab, (n_slabs,).
        sums: sums of these rows, (n_slabs, n_columns).
    """

    borders: FloatArray
    counts: FloatArray
    sums: FloatArray


class CumulativeProfile:
    """Collects counts and sums below each border that was asked about, along one direction.

    Args:
        low: smallest value that a row can have along the direction.
        high: largest value that a row can have along the direction.
        n_rows: number of the target's rows.
        total: sum of these rows, (n_columns,).
    """

    def __init__(self, low: float, high: float, n_rows: float, total: FloatArray) -> None:
        self.n_rows = n_rows
        margin = 1e-6 * (high - low)
        self._borders = np.array([low - margin, high + margin])
        self._below = np.vstack([np.zeros(1 + len(total)), np.concatenate([[n_rows], total])])

    @property
    def width(self) -> float:
        """Distance between the outermost borders."""
        return float(self._borders[-1] - self._borders[0])

    def slabs(self) -> Slabs:
        """Return what lies between neighbouring borders."""
        between = np.diff(self._below, axis=0)
        return Slabs(self._borders, np.rint(between[:, 0]), between[:, 1:])

    def learn(self, places: FloatArray, counts: FloatArray, sums: FloatArray) -> None:
        """Add the answer to one question.

        Args:
            places: positions of the centroids along the direction, ascending, (n,).
            counts: number of rows nearest to each, (n,).
            sums: sums of these rows, (n, n_columns).
        """
        borders = (places[:-1] + places[1:]) / 2
        below = np.cumsum(np.column_stack([counts, sums]), axis=0)[:-1]
        fresh = ~np.isin(borders, self._borders)
        self._borders = np.concatenate([self._borders, borders[fresh]])
        order = np.argsort(self._borders, kind="stable")
        self._borders = self._borders[order]
        self._below = np.concatenate([self._below, below[fresh]])[order]


def pairs(targets: FloatArray, width: float, n_centers: int) -> FloatArray:
    """Return positions of at most `n_centers` centroids, ascending, whose borders include the targets.

    Args:
        targets: wanted borders, ascending; at least one, at most (n_centers + 1) // 2.
        width: width of the profile.
        n_centers: most positions.
    """
    gaps = np.diff(targets)
    apart = np.minimum(np.concatenate([[width], gaps]), np.concatenate([gaps, [width]])) / 4
    placed = np.column_stack([targets - apart, targets + apart]).ravel()
    if len(placed) <= n_centers:
        return placed
    # If one centroid is left for the last target, it mirrors the one before across that target.
    return np.append(placed[: n_centers - 1], 2 * targets[-1] - placed[n_centers - 2])
