"""Differential privacy of a whole client: each client counts as one record that is spread over cells.

A client divides its counts and sums by a common number of rows B, or by its own number where that is larger.
So its counts add up to at most 1, and its sum of clipped offsets is at most as long as the radius. The bounds
of one record hold for the client as a whole. Usually its answer is much shorter than these bounds: a client
whose rows spread evenly over k clusters has counts of L2 norm 1 / sqrt(k). So each answer also includes the
norms of its counts and sums, and the next question of the same class clips to about their mean.

Before the first such question, a probe with 2 % of the budget finds the norms over a few cells between
random hyperplanes.

Clipping scales a client's counts and sums by the same factor, which keeps its means and reduces its weight.

Reveals to whoever opens the totals, with noise: how many clients hold about how many rows; the totals of
the questions; and the mean norms of the clients' counts and sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar, cast

import numpy as np

from privfed.algorithms.private.scale import Frame, Scale, octave, radius_rule
from privfed.core.asking.declaration import Declaration
from privfed.core.asking.phases import Cycle, Form, Near, Phase, Phases, Shape, Within
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.conversation import Ask, Conversation, Total
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.bounds import HAIR, bounded_spec, check_sizes, step_of
from privfed.questions.bounded.bounded_sums import HashSums, SumsInCells
from privfed.questions.bounded.client_shares import SharesOfARecord
from privfed.questions.lloyd import check_centers

LENGTH_SHARE = 0.02
"""Share of a question's weight for the norms of counts and sums."""

PROBE_SHARE = 0.02
"""Share of the budget for the norms before the first question about cells."""

LONGEST = 2.0**0.5
"""L2 bound on the pair of a client's norms, each at most 1."""

_MARGIN = 1.25

Result = TypeVar("Result")


class Lengths(NamedTuple):
    """L2 norms of a client's counts, and of its sums in units of the radius."""

    counts: float = 1.0
    sums: float = 1.0


WHOLE = Lengths()


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClientLengths(SharesOfARecord):
    """Ask for the L2 norms of each client's counts and sums, scaled so that a client counts as one record.

    Statistics: `length` (2,), the norm of the client's counts, and of its sums in units of the radius, after
    division by max(`rows`, rows of the client).
    """

    inner: SumsInCells

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Norms of at most 1."""
        return StatisticsSpec(Entry("length", (2,), 0.0, 1.0, step_of(1.0)))

    def shares(self, answer: Statistics, n_rows: int) -> tuple[dict[str, FloatArray], Lengths]:
        """Return a client's sums, scaled so that it counts as one record, and their norms."""
        mass = float(answer["count"].sum()) if "count" in answer else float(n_rows)
        shares = {name: answer[name] / max(self.rows, mass) for name in answer}
        count = float(np.linalg.norm(shares["count"])) if "count" in shares else 0.0
        length = float(np.linalg.norm(shares["sum"])) / self.inner.radius if "sum" in shares else 0.0
        return shares, Lengths(min(count, 1.0), min(length, 1.0))

    def divided(self, answer: Statistics, n_rows: int) -> Statistics:
        """Return one client's answer, given its sums."""
        return Statistics(length=list(self.shares(answer, n_rows)[1]))


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class ClientShares(ClientLengths):
    """Ask for another question's sums, scaled so that each client counts as one record.

    Statistics: those of `inner`, divided by max(`rows`, rows of the client), and `length` (2,).

    Args:
        most_count: L2 norm to which counts are clipped; sums are scaled by the same factor.
        most_sum: L2 norm to which sums are clipped, in units of the radius; counts are scaled along.
    """

    most_count: float = 1.0
    most_sum: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (2.0**-20 <= self.most_count <= 1.0 and 2.0**-20 <= self.most_sum <= 1.0):
            raise ArgumentError(
                f"most_count and most_sum must lie in [2^-20, 1], got most_count={self.most_count}, "
                f"most_sum={self.most_sum}."
            )

    @property
    def limits(self) -> dict[str, float]:
        """Entry -> bound on its L2 norm for one client."""
        radius = self.inner.radius
        known = {"count": self.most_count, "sum": self.most_sum * radius, "distance": radius}
        return {name: known[name] for name in self.inner.asks} | {"length": LONGEST}

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Values of at most their entry's limit."""
        shapes = {entry.name: entry.shape for entry in self.inner.spec.entries} | {"length": (2,)}
        return bounded_spec(self.limits, shapes)

    def divided(self, answer: Statistics, n_rows: int) -> Statistics:
        """Return one client's answer, with counts and sums clipped by the same factor."""
        shares, length = self.shares(answer, n_rows)
        shorter = HAIR * min(
            1.0, self.most_count / max(length.counts, 1e-9), self.most_sum / max(length.sums, 1e-9)
        )
        for name in {"count", "sum"} & set(shares):
            shares[name] = shares[name] * shorter
        return Statistics(**shares, length=list(length))


def _shares(inner: SumsInCells, rows: float, most: Lengths) -> ClientShares:
    return ClientShares(
        ranges=inner.ranges, inner=inner, rows=rows, most_count=most.counts, most_sum=most.sums
    )


def _probe_normals(n_features: int, n_clusters: int, rng: np.random.Generator) -> FloatArray:
    planes = min(max(1, int(np.ceil(np.log2(n_clusters)))), n_features)
    return np.asarray(np.linalg.qr(rng.standard_normal((n_features, planes)))[0].T)


def probe(scale: Scale, n_clusters: int, rows: float, rng: np.random.Generator) -> Conversation[Lengths]:
    """Find the norms of clients' counts and sums over about as many cells as clusters, with one sum."""
    normals = _probe_normals(len(scale.center), n_clusters, rng)
    inner = HashSums(ranges=scale.frame.ranges, center=scale.center, radius=scale.radius, normals=normals)
    question = ClientLengths(ranges=inner.ranges, inner=inner, rows=rows)
    weights, limits = {"length": PROBE_SHARE}, {"length": LONGEST}
    return _next_limits((yield Ask(question, purpose="probe", weights=weights, limits=limits)))


MOST_ROWS, NORM = Within(1.0, 2.0**40), Within(2.0**-20, 1.0)
"""Rules for a common number of rows, and for a norm of at most 1."""


def probe_phase(frame: Frame, n_clusters: int, rng: np.random.Generator) -> Phase:
    """Return what `probe` asks; it draws from `rng` as that does."""
    d = frame.ranges.n_features
    normals = Near((_probe_normals(d, n_clusters, rng),))
    inner = Form(HashSums, center=Shape(d), radius=radius_rule(frame), normals=normals)
    return Phase(Form(ClientLengths, inner=inner, rows=MOST_ROWS))


def client_phases(phases: Phases) -> Phases:
    """Return what `by_client` asks for a conversation of these phases."""
    return tuple(_by_client(one) for one in phases)


def _by_client(phase: Phase | Cycle) -> Phase | Cycle:
    if isinstance(phase, Cycle):
        return replace(phase, body=client_phases(phase.body))
    form = Form(ClientShares, inner=phase.form, rows=MOST_ROWS, most_count=NORM, most_sum=NORM)
    return replace(phase, form=form)


def by_client(
    conversation: Conversation[Result],
    rows: float,
    share: float,
    probed: Lengths = WHOLE,
    equal: bool = False,
    octaves: bool = False,
) -> Conversation[Result]:
    """Run a conversation that asks for sums over records, with clients in the role of records.

    Args:
        conversation: asks `SumsInCells` with weights that sum to at most 1.
        rows: common number of rows by which clients divide their sums.
        share: share of the budget for the whole conversation.
        probed: norms to which counts and sums are clipped in the first question of each class.
        equal: in questions that are additive over clients, divide by max(1, sum of a client's weights), so
            that clients have about equal weight.
        octaves: clip to norms that are powers of two, so that sigma, in steps, is the same for all.
    """
    longest: dict[type[SumsInCells], Lengths] = {}
    ask = next(conversation)
    while True:
        inner = ask.question
        if not isinstance(inner, SumsInCells):
            raise ArgumentError(f"{type(inner).__name__} cannot be asked of clients as records.")
        most, whole = longest.get(type(inner), probed), set(inner.asks) >= {"count", "sum"}
        own = equal and inner.additive_over is AdditiveOver.CLIENTS
        question = _shares(inner, 1.0 if own else rows, most if whole else WHOLE)
        asked = ask.weights or {}
        weights = {name: weight * share * (1.0 - LENGTH_SHARE) for name, weight in asked.items()}
        weights["length"] = LENGTH_SHARE * share * sum(asked.values())
        total = yield replace(ask, question=question, weights=weights, limits=question.limits)
        found = _next_limits(total)
        longest[type(inner)] = Lengths(*(octave(one, 1.0) for one in found)) if octaves else found
        try:
            ask = conversation.send(total)
        except StopIteration as finished:
            return cast(Result, finished.value)


def _next_limits(total: Total) -> Lengths:
    """Return the norms to which the next answers of this class are clipped, a margin above the mean norms."""
    n_clients = len(total.contributors)
    unsure = (total.noise_std or {})["length"] / n_clients
    means: FloatArray = total.statistics["length"] / n_clients
    return Lengths(*np.clip(_MARGIN * means + unsure, 0.02, 1.0).tolist())


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class LocalMovements(SumsInCells):
    """Ask for the results of several local steps: weights, and weighted movements clipped to a radius.

    Statistics: `count` (n_clusters,), the weights; `sum` (n_clusters, n_features), each weight times the
    clipped movement of its center.

    Args:
        steps: asks for weights, and for weighted local centers or weighted movements, as its first and
            second entry; its ranges are those of this question.
    """

    steps: Question

    def __post_init__(self) -> None:
        super().__post_init__()
        check_centers(self._centers, self.ranges)
        check_sizes("centers", self._centers)
        mine, theirs = self.ranges, self.steps.ranges
        same = np.array_equal(mine.low, theirs.low) and np.array_equal(mine.high, theirs.high)
        if not same or mine.rows != theirs.rows:
            raise ArgumentError("movements must have the ranges of their local steps.")
        if [entry.shape for entry in self.steps.spec.entries] != [
            self._centers.shape[:1],
            self._centers.shape,
        ]:
            raise ArgumentError("local steps need a weight and a sum for each center.")

    @property
    def declaration(self) -> Declaration | None:
        """Row counts, where the weights of the local steps count rows."""
        inner = self.steps.declaration
        counts = ("count",) if inner and inner.row_counts else ()
        return inner and Declaration(counts, can_fail=inner.can_fail)

    @property
    def _centers(self) -> FloatArray:
        declared = self.steps.declaration
        if declared is None or len(declared.centers) != 1:
            raise ArgumentError(f"{type(self.steps).__name__} declares no local steps from centers.")
        return declared.centers[0]

    @cached_property
    def spec(self) -> StatisticsSpec:
        """Weights of at most those of the local steps, and movements of at most that many radii."""
        rows = float(np.max(np.asarray(self.steps.spec.entries[0].high)))
        shapes = {"count": self._centers.shape[:1], "sum": self._centers.shape}
        return bounded_spec({"count": 1.0, "sum": self.radius}, shapes, max(rows, 1.0))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients in one pass; weights that are no valid numbers count as zero."""
        with np.errstate(all="ignore"):  # A warning would depend on the rows.
            weight, total = (entry.name for entry in self.steps.spec.entries)
            declared = self.steps.declaration
            moved = declared is not None and declared.movements
            answers = self.steps.answer_all(clients, generators)
            return [self._one(answer[weight], answer[total], moved=moved) for answer in answers]

    def _one(self, weight: FloatArray, total: FloatArray, *, moved: bool) -> Statistics:
        # A user's weighting may give NaN, infinite or negative weights for some rows; these count as zero.
        kept, high = np.isfinite(weight) & (weight >= 0.0), np.asarray(self.steps.spec.entries[0].high)
        kept &= np.isfinite(total).all(axis=1)
        within = np.where(kept, high / np.fmax(weight, high), 0.0)
        weight = np.where(kept, weight, 0.0) * within
        total = np.where(kept[:, None], total, 0.0) * within[:, None]
        movement = total if moved else total - weight[:, None] * self._centers
        length, reach = np.linalg.norm(movement, axis=1), weight * self.radius * HAIR
        shorter = np.divide(reach, length, out=np.ones_like(length), where=length > reach)
        return Statistics(count=weight, sum=movement * shorter[:, None])
