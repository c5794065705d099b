"""The union of the clients' local points in one total, and their number.

In FKM and k-FED, as published, the server sees every client's local centroids. A secure sum that shows
contributions supports this: each client's padded points are its statistics, and the union is read
from the contributions, never from the total. Over other sums the same k-means is computed from sums
(`privfed.questions.local_points.summed_kmeans`).

Reveals to whoever opens the totals: `GatheredPoints` shows each client's points and their weights to
whoever sees contributions, and sums of padded points to whoever sees the total; `PointCount` shows how
many points all clients hold together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Form, Rule
from privfed.core.asking.question import ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import Ranges
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError, DataError
from privfed.questions.lloyd import RESOLUTION, box_entry
from privfed.questions.local_points import LocalPoints, WeightedPoints
from privfed.questions.slots import Slots


@dataclass(frozen=True, kw_only=True, eq=False)
class _FewPoints(Question):
    """Questions about at most `most` points of each client.

    Args:
        points: how clients compute their points.
        most: most points of a client.
    """

    points: LocalPoints
    most: int

    def __post_init__(self) -> None:
        check_whole("most", self.most, 1, 1 << 16)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class GatheredPoints(_FewPoints):
    """Ask for each client's own points, padded with zeros, and their weights.

    Whoever sees contributions learns each client's local centroids, and how many rows each has.

    Statistics: `point` (most, n_features), `weight` (most,). Points of weight zero are padding; a client's
    points beyond `most` are left out.
    """

    @property
    def declaration(self) -> Declaration:
        """The weights, where they count rows."""
        return Declaration(self.points.row_counts("weight"))

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Points in the ranges, or zero; weights of at most a client's largest total weight."""
        low, high = self.ranges.low, self.ranges.high
        return StatisticsSpec(
            box_entry("point", (self.most, low.size), low, high),
            Entry("weight", (self.most,), 0.0, self.points.heaviest(self.ranges), RESOLUTION),
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        self.points.prepare(clients)
        return [self._padded(self.points.of(client)) for client in clients]

    def _padded(self, held: WeightedPoints) -> Statistics:
        n = min(self.most, len(held.points))
        point, weight = np.zeros((self.most, self.ranges.n_features)), np.zeros(self.most)
        point[:n], weight[:n] = held.points[:n], held.weights[:n]
        return Statistics(point=point, weight=weight)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class PointCount(_FewPoints):
    """Ask how many points the clients hold. Statistics: `points` (1,)."""

    @property
    def declaration(self) -> Declaration:
        """Nothing: the entry counts points, not rows."""
        return Declaration()

    @cached_property
    def spec(self) -> StatisticsSpec:
        """A count of at most `most`."""
        return StatisticsSpec(Entry("points", (1,), 0.0, self.most, RESOLUTION))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        return [Statistics(points=[min(self.most, len(self.points.of(one).points))]) for one in clients]


def gathered_form(points: Rule, *, most: int, slots: int = 0) -> Form:
    """Return the form of what `gather_points` asks; `points` is the rule for them."""
    form = Form(GatheredPoints, points=points, most=most)
    return Form(Slots, inner=form, slots=slots) if slots else form


def gather_points(
    points: LocalPoints,
    ranges: Ranges,
    *,
    most: int,
    cohort: int,
    upcoming: tuple[int, ...],
    purpose: str,
    slots: int = 0,
) -> Conversation[list[WeightedPoints]]:
    """Gather the points of each contributing client, with one sum.

    They are in the order of the clients' positions. With `slots` (the number of all clients) they are not
    linked to clients: they are sorted by value, and clients without points are missing.

    Raises:
        ArgumentError: the secure sum does not show contributions.
    """
    question = GatheredPoints(ranges=ranges, points=points, most=most)
    if slots:
        slotted = Slots(ranges=ranges, inner=question, slots=slots)
        unlinked = yield Ask(slotted, cohort, upcoming, purpose)
        return [_unpadded(own) for own in slotted.contributions(unlinked.statistics)]
    total = yield Ask(question, cohort, upcoming, purpose)
    if total.contributions is None:
        raise ArgumentError(
            'merge="gathered" needs every client\'s own centroids, and this sum does not show them; '
            'use merge="summed", or protocol="plain".'
        )
    return [_unpadded(own) for _, own in sorted(total.contributions.items())]


def _unpadded(own: Statistics) -> WeightedPoints:
    real = own["weight"] > 0.0
    return WeightedPoints(own["point"][real], own["weight"][real])


def union(held: Sequence[WeightedPoints]) -> WeightedPoints:
    """Return the points of all clients, in an order that does not depend on the order of clients."""
    points = np.concatenate([own.points for own in held])
    weights = np.concatenate([own.weights for own in held])
    order = np.lexsort((weights, *points.T))
    return WeightedPoints(points[order], weights[order])


def count_points(
    points: LocalPoints, ranges: Ranges, *, most: int, cohort: int, upcoming: tuple[int, ...]
) -> Conversation[int]:
    """Find how many points the clients hold together, with one sum."""
    total = yield Ask(PointCount(ranges=ranges, points=points, most=most), cohort, upcoming, purpose="start")
    return round(float(total.statistics["points"][0]))


def check_enough(found: int, n_clusters: int, n_rows: int, remedy: str) -> None:
    """Check that there are at least as many local centroids as clusters.

    Args:
        found: number of local centroids of all clients.
        n_clusters: number of clusters of the fit.
        n_rows: number of rows of all clients.
        remedy: what to do where there are too few, besides taking fewer clusters, for the message.

    Raises:
        DataError: there are fewer.
    """
    if found < n_clusters:
        raise DataError(
            f"{found} local centroids of enough rows, of all clients with n_samples={n_rows} together, are "
            f"fewer than n_clusters={n_clusters}; take fewer n_clusters, {remedy}.",
            parameters=["n_clusters"],
        )
