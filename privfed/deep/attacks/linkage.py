"""Linkage of sketches: slots hide whose a sketch is, but updates of one client look alike in all rounds.

Where not all clients are in each round, public lists say who was: a track is the client whose rounds it has.
With the public projection, sketches are as alike as updates are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.cluster.hierarchy import fcluster
from scipy.cluster.hierarchy import linkage as agglomerate
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist, squareform

from privfed.attacks.base.interface import Found, PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, of_single_clients
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import NotRun, Truth
from privfed.attacks.cohorts.linkage import TrackClaims, Unlinked, unlinked
from privfed.core.asking.question import ClientData
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.deep.training.rounds import Round, SketchedUpdates, round_of
from privfed.deep.training.trainer import Labels
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray

TOGETHER, TURNS = 4000, 12
"""Most sketches, of the first rounds, that are clustered; and turns of means and clients afterwards."""


@dataclass(frozen=True)
class LabelledTruth(Truth):
    """The truth of clients that train, for scoring only.

    Args:
        labels: of each client's rows, by position.
    """

    labels: Sequence[Labels] = ()


def labelled(name: str, target: Target) -> Truth:
    """Return the truth with the clients' labels, where there are any.

    Raises:
        ArgumentError: somebody helps the attacker: what colluders trained is no sum to take out of a total.
    """
    if target.labels is None:
        return target.truth
    if target.helping:
        raise ArgumentError(f"{name} is for a server alone; name no colluding clients.")
    return LabelledTruth(target.truth.clients, colluding=target.truth.colluding, labels=target.labels)


def with_labels(what: str, truth: Truth) -> LabelledTruth:
    """Return the truth with the clients' labels.

    Raises:
        ArgumentError: it has none, as those of a run whose folder does not name them.
    """
    if not isinstance(truth, LabelledTruth) or len(truth.labels) != len(truth.clients):
        raise ArgumentError(
            f"{what} are scored against the labels of the clients' rows, and the folder of a run of nodes or "
            "from Python names none: name their column with --label (in Python LabelledTruth has them)."
        )
    return truth


def data_of(truth: LabelledTruth) -> list[ClientData]:
    """Return the clients as they were before the first round."""
    return [ClientData(rows, labels) for rows, labels in zip(truth.clients, truth.labels, strict=True)]


def owners_of(
    question: Round, cohort: Sequence[int], seen: FloatArray | None, data: Sequence[ClientData]
) -> list[int]:
    """Return the client of each sketch or update, by matching it with what training again gives."""
    rng = np.random.default_rng(0)
    answers = [question.answer(data[i].within(question.ranges)[0], rng) for i in cohort]
    if seen is None:
        return []
    whose: list[int] = _among(np.stack([one["sketch"] for one in answers]), np.array(cohort), seen).tolist()
    return whose


@dataclass(frozen=True, kw_only=True)
class SketchLinks(TrackClaims):
    """Claims about which sketches are of one client.

    Args:
        questions: all rounds that the attack saw, in order, so that the truth can train again.
        cohorts: who was asked in each.
        seen: for each round the sketches, float64 of shape (n, size), or None where it showed none.
        tracks: for each that showed some the claimed client of each sketch, integers of shape (n,).
        named: whether these are names, since not all rounds had the same clients.
    """

    questions: Sequence[Round] = field(repr=False)
    cohorts: Sequence[tuple[int, ...]] = field(repr=False)
    seen: Sequence[FloatArray | None] = field(repr=False)
    tracks: Sequence[IntArray] = field(repr=False)
    named: bool

    def score(self, truth: Truth) -> Report:
        """Compare each sketch's client with its own, or with the client whose sketch began its track.

        Raises:
            ArgumentError: the truth has no labels: whose a sketch is, is found by training again.
        """
        data, owners = data_of(with_labels("links of sketches", truth)), list[list[int]]()
        # Each sketch is matched with what each client's training gives.
        for question, cohort, seen in zip(self.questions, self.cohorts, self.seen, strict=True):
            of = owners_of(question, cohort, seen, data)
            owners += [] if seen is None else [of]
        found = self._report("sketches", self.tracks, owners)
        if not self.named:
            return found
        right = float(np.mean(np.concatenate(self.tracks) == np.concatenate(owners)))
        return replace(
            found,
            goal="sketches named by who took part when",
            recovered=right,
            precision=right,
            claims=sum(map(len, owners)),
            linked=True,
        )


class OnUpdates(PassiveAttack[Found]):
    """Base of attacks on single clients' updates or sketches, which labels of rows are needed to score."""

    adversary: ClassVar[str] = "passive server"
    prior: ClassVar[str] = "none"

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Have the truth know the clients' labels, so that it can train again."""
        return Prepared(cls._made(parameters), target.prior, labelled(cls.name, target))


@dataclass(frozen=True)
class SketchLinkage(OnUpdates[SketchLinks]):
    """Links the sketches of one client over the rounds, by their directions, and names it by its rounds.

    Names in the view are not read: on one that has them, the attack measures how much hiding them would help.
    """

    name: ClassVar[str] = "sketch-linkage"
    paper: ClassVar[str] = "updates of one client keep their direction: ours"
    view: ClassVar[str] = "sketches without names, over several rounds"
    defence: ClassVar[str] = (
        "FedAvg or IFCA, which need no sketches; noise on updates (DP-SGD with decay=0), not on running means"
    )
    links: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Sketches of single clients, with or without names."""
        return of_single_clients(
            "every client's sketch by itself", lambda one: isinstance(one, SketchedUpdates)
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> SketchLinks | NotRun:
        rounds = [(found, one) for one in view.sums if (found := round_of(one.question)) is not None]
        if any(question.training.private for question, _ in rounds):
            why = (
                "training by DP-SGD does not repeat, so that links cannot be scored; running means of one "
                "client are linked all the same"
            )
            return NotRun(attack=self.name, why=why)
        shown = [sketches_of(one, rng) for _, one in rounds]
        seen = [None if one is None else one.column("sketch") for one in shown]
        cohorts = [one.contributors or one.cohort for _, one in rounds]
        lists = [one for one, shows in zip(cohorts, seen, strict=True) if shows is not None]
        whose = linked([one for one in seen if one is not None], lists)
        if len(whose) < 2:
            return NotRun(attack=self.name, why="it links sketches of one round after another, and saw one")
        return SketchLinks(
            attack=self.name,
            queries=len(rounds),
            questions=[question for question, _ in rounds],
            cohorts=cohorts,
            seen=seen,
            tracks=whose,
            named=len(set(map(frozenset, lists))) > 1,
        )


def sketches_of(one: SumView, rng: np.random.Generator) -> Unlinked | None:
    """Return a round's answers with sketches, in an order that tells nothing; None where it shows none."""
    found = unlinked(one, rng)
    return found if found is not None and isinstance(found.question, SketchedUpdates) else None


def linked(seen: Sequence[FloatArray], lists: Sequence[Sequence[int]] = ()) -> list[IntArray]:
    """Return whose each sketch is: its client where public lists differ between rounds, else any number.

    Directions of sketches around their round's mean are clustered, those of one round apart from each other
    (average linkage). Clusters get the names whose rounds theirs fit best. Then the mean of each client, and
    the client of each sketch among those who took part, are found in turns.

    Args:
        seen: the sketches of each round, float64 of shape (n, size).
        lists: for each round who took part; without them all in each.

    Returns:
        Integers of shape (n,) for each round; -1 for a sketch too many.
    """
    if not seen:
        return []
    lists = lists or [range(len(one)) for one in seen]
    units = [one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-300) for one in seen]
    units = [one - one.mean(axis=0) for one in units]
    some = units[: max(1, TOGETHER // max(map(len, units)))]
    of = np.repeat(np.arange(len(some)), [len(one) for one in some])
    rows, names = np.concatenate(some), np.arange(1 + max(map(max, lists)))
    # Two of one round are farther from each other than any two directions.
    apart = np.where(of[:, None] == of, 9.0, cdist(rows, rows, "sqeuclidean")) * ~np.eye(len(of), dtype=bool)
    groups = fcluster(agglomerate(squareform(apart, checks=False), "average"), len(names), "maxclust") - 1
    found = [groups[of == number] for number in range(len(some))]
    there, took = (
        np.transpose([np.isin(names, one) for one in which]) for which in (found, lists[: len(some)])
    )
    whose = linear_sum_assignment(cdist(there, took, "cityblock"))[1]
    found = [whose[one] for one in found]
    for _ in range(TURNS):
        own = names[:, None] == np.concatenate(found)
        means = own / np.maximum(own.sum(axis=1, keepdims=True), 1) @ np.concatenate(units[: len(found)])
        found = [_among(means[list(one)], np.array(one), own) for one, own in zip(lists, units, strict=True)]
    return found


def _among(known: FloatArray, whose: IntArray, rows: FloatArray) -> IntArray:
    """Return whose the rows are: those that known ones are of, each once; -1 for a row too many."""
    places, found = linear_sum_assignment(cdist(known, rows, "sqeuclidean"))
    own = np.full(len(rows), -1, dtype=np.intp)
    own[found] = whose[places]
    return own
