"""Answers of single clients in one total: the union of their local points, and answers in secret slots.

**The union of points.** Gathering the union of the clients' local points, and counting them.

In FKM and k-FED, as published, the server sees every client's local centroids. A secure sum that shows
contributions supports this: each client's padded points are its statistics, and the union is read
from the contributions, never from the total. Over other sums the same k-means is computed from sums
(`privfed.questions.local_points.summed_kmeans`).

Reveals to whoever opens the totals: `GatheredPoints` shows each client's points and their weights to
whoever sees contributions, and sums of padded points to whoever sees the total; `PointCount` shows how
many points all clients hold together.

**Slots (`Slots`).** A question whose total shows every client's answer, but not which client gave it.

Each client writes its answer into its own slot of a zero array, so that the cohort's sum is the concatenation
of the answers. The question puts the answer into the first slot; a secure sum that offers slots
(`privfed.protocols.Slotted`) moves it to a slot that only clients know. Any other secure sum adds up all
answers in the first slot, as for the question without slots.

Reveals to whoever opens the total: every contribution, and how many slots are empty. A secure sum that offers
slots does not reveal whose contribution it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, cmp_to_key, lru_cache
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from privfed.core.asking.declaration import Declaration, Effort
from privfed.core.asking.phases import Form, Rule
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation
from privfed.core.values.domain import Ranges, frozen
from privfed.errors import ArgumentError, DataError
from privfed.privacy.noised import Noised
from privfed.questions.lloyd import RESOLUTION, box_entry
from privfed.questions.local_points import LocalPoints, WeightedPoints


@runtime_checkable
class PreparedPoints(Protocol):
    """Local points that can be computed for several simulated clients in one pass."""

    def prepare(self, clients: Sequence[ClientData]) -> None:
        """Put the exact results of `LocalPoints.make` into each client's cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _FewPoints(Question):
    """Questions about at most `most` points of each client.

    Args:
        points: how clients compute their points.
        most: most points of a client.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    points: LocalPoints
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 1 << 16:
            raise ArgumentError(f"most must lie in [1, 2**16], got most={self.most}.")


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
        point = box_entry("point", (self.most, low.size), low, high)
        weight = Entry("weight", (self.most,), 0.0, self.points.heaviest(self.ranges), RESOLUTION)
        return StatisticsSpec(point, weight)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients."""
        if isinstance(self.points, PreparedPoints):
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
    question = PointCount(ranges=ranges, points=points, most=most)
    total = yield Ask(question, cohort, upcoming, purpose="start")
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


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class Slots(Question):
    """Asks for the answers to another question, each in its own slot.

    Statistics: those of the question, each with a first axis of length `slots`; empty slots are zero.

    Args:
        inner: the question; its ranges are those of this question.
        slots: number of slots, equal to the number of all clients.
        group: names the clients' secret that slots are drawn from, where a secure sum has one: it says so.
    """

    additive_over = AdditiveOver.CLIENTS
    inner: Question
    slots: int
    group: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.slots <= 1 << 16:
            raise ArgumentError(f"slots must lie in [1, 2**16], got slots={self.slots}.")
        mine, theirs = self.ranges, self.inner.ranges
        same = np.array_equal(mine.low, theirs.low) and np.array_equal(mine.high, theirs.high)
        if isinstance(self.inner, Slots) or not same or mine.rows != theirs.rows:
            raise ArgumentError("the inner question of slots must have the same ranges, and no slots itself.")

    @property
    def asks_all_clients(self) -> bool:
        """As `inner`."""
        return self.inner.asks_all_clients

    @property
    def declaration(self) -> Declaration | None:
        """The declaration of `inner`, which holds for each slot."""
        return self.inner.declaration

    def effort(self, n_features: int) -> Effort:
        """The answers to `inner` side by side."""
        return Effort(numbers=self.slots * self.inner.spec.size)

    @cached_property
    def spec(self) -> StatisticsSpec:
        """The entries of `inner`, once a slot; their ranges include zero, for empty slots."""
        return StatisticsSpec(
            *(
                Entry(
                    entry.name,
                    (self.slots, *entry.shape),
                    low=np.minimum(0.0, entry.low),
                    high=np.maximum(0.0, entry.high),
                    resolution=entry.resolution,
                )
                for entry in self.inner.spec.entries
            )
        )

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients, each in the first slot."""
        return [self._first(own) for own in self.inner.answer_all(clients, generators)]

    def _first(self, own: Statistics) -> Statistics:
        # Zeros that nobody writes to take no memory.
        spread = Statistics.of(self.spec.layout, np.zeros(self.spec.size))
        for name, array in own.items():
            spread[name][0] = array
        frozen(spread.vector)
        return spread

    def contributions(self, total: Statistics) -> list[Statistics]:
        """Return the contents of the slots that are not empty, sorted by value, not by slot."""
        rows = np.concatenate([total[name].reshape(self.slots, -1) for name in total], axis=1)

        def compared(i: int, j: int) -> int:
            first = int(np.argmax(rows[i] != rows[j]))
            return int(np.sign(rows[i, first] - rows[j, first]))

        order = sorted(np.flatnonzero(rows.any(axis=1)).tolist(), key=cmp_to_key(compared))
        return [Statistics(**{name: total[name][i] for name in total}) for i in order]


@lru_cache(maxsize=4)
def in_group(question: Question, group: str) -> Question:
    """Return a question whose slots are drawn from the secret of a group; without slots it stays as it is."""
    if isinstance(question, Noised):
        named: Question = replace(question, inner=in_group(question.inner, group))
    elif isinstance(question, Slots):
        named = replace(question, group=group)
    else:
        return question
    return named.at(question.position)
