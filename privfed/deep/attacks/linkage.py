"""Linkage of sketches: slots hide whose a sketch is, but updates of one client look alike in all rounds.

Each round's sketches are matched with the last ones of known tracks, by the least total cosine distance (one
to one). With the public projection, sketches are as alike as updates are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from privfed.attacks.base.interface import Found, PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, of_single_clients
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import NotRun, Truth
from privfed.attacks.cohorts.linkage import TrackClaims, Unlinked, unlinked
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.deep.attacks.membership import check_alone, round_of
from privfed.deep.training.rounds import Round, SketchedUpdates
from privfed.deep.training.trainer import Labels
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray


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
        ArgumentError: somebody helps the attacker.
    """
    if target.labels is None:
        return target.truth
    check_alone(name, target)
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


@dataclass(frozen=True, kw_only=True)
class SketchLinks(TrackClaims):
    """Claims about which sketches are of one client.

    Args:
        questions: all rounds that the attack saw, in order, so that the truth can train again.
        cohorts: who was asked in each.
        seen: for each round the sketches, float64 of shape (n, size), or None where it showed none.
        tracks: for each that showed some the claimed client of each sketch, integers of shape (n,).
    """

    questions: Sequence[Round] = field(repr=False)
    cohorts: Sequence[tuple[int, ...]] = field(repr=False)
    seen: Sequence[FloatArray | None] = field(repr=False)
    tracks: Sequence[IntArray] = field(repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare each sketch's client with the client whose sketch began its track.

        Raises:
            ArgumentError: the truth has no labels: whose a sketch is, is found by training again.
        """
        owners = self._owners(with_labels("links of sketches", truth))
        return self._report("sketches", self.tracks, owners)

    def _owners(self, truth: LabelledTruth) -> list[list[int]]:
        """Return the client of each sketch, by matching it with what each client's training gives."""
        data = [ClientData(rows, labels) for rows, labels in zip(truth.clients, truth.labels, strict=True)]
        found: list[list[int]] = []
        for question, cohort, seen in zip(self.questions, self.cohorts, self.seen, strict=True):
            rng = np.random.default_rng(0)
            answers = [question.answer(data[i].within(question.ranges)[0], rng) for i in cohort]
            found += [] if seen is None else [_matched(answers, cohort, seen)]
        return found


def _matched(answers: list[Statistics], cohort: tuple[int, ...], seen: FloatArray) -> list[int]:
    exact = np.stack([answer["sketch"] for answer in answers])
    clients, places = linear_sum_assignment(cdist(exact, seen))
    owners = dict(zip(places.tolist(), clients.tolist(), strict=True))
    return [cohort[owners[i]] if i in owners else -1 for i in range(len(seen))]


class OnUpdates(PassiveAttack[Found]):
    """Base of attacks on single clients' updates or sketches, which labels of rows are needed to score."""

    adversary: ClassVar[str] = "passive server"
    algorithms: ClassVar[tuple[str, ...]] = ("fedavg", "ifca", "cfl", "dcfl")
    prior: ClassVar[str] = "none"

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Have the truth know the clients' labels, so that it can train again."""
        return Prepared(cls._made(parameters), target.prior, labelled(cls.name, target))


@dataclass(frozen=True)
class SketchLinkage(OnUpdates[SketchLinks]):
    """Links the sketches of one client over the rounds, by their directions.

    Names in the view are not read: on one that has them, the attack measures how much hiding them would help.
    """

    name: ClassVar[str] = "sketch-linkage"
    paper: ClassVar[str] = "updates of one client keep their direction: ours"
    view: ClassVar[str] = "sketches without names, over several rounds"
    algorithms: ClassVar[tuple[str, ...]] = ("cfl", "dcfl")
    defence: ClassVar[str] = (
        "FedAvg or IFCA, which need no sketches; noise on updates (DP-SGD with decay=0), not on running means"
    )
    links: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Sketches of single clients, with or without names."""
        return of_single_clients("every client's sketch by itself", _has_sketches)

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
        whole = [
            not question.half for (question, _), one in zip(rounds, seen, strict=True) if one is not None
        ]
        linked = tracks([one for one in seen if one is not None], whole)
        if len(linked) < 2:
            return NotRun(attack=self.name, why="it links sketches of one round after another, and saw one")
        return SketchLinks(
            attack=self.name,
            queries=len(rounds),
            questions=[question for question, _ in rounds],
            cohorts=[one.contributors or one.cohort for _, one in rounds],
            seen=seen,
            tracks=linked,
        )


def _has_sketches(question: Question) -> bool:
    return isinstance(question, SketchedUpdates)


def sketches_of(one: SumView, rng: np.random.Generator) -> Unlinked | None:
    """Return a round's answers with sketches, in an order that tells nothing; None where it shows none."""
    found = unlinked(one, rng)
    return found if found is not None and _has_sketches(found.question) else None


def tracks(seen: Sequence[FloatArray], whole: Sequence[bool]) -> list[IntArray]:
    """Link sketches of one round after another, by their directions.

    Two halves of a client's rows have little in common, and each has much with all of them. So rounds of all
    rows are linked first, and those of halves to the round of all rows before them, or else after.

    Args:
        seen: the sketches of each round, float64 of shape (n, size).
        whole: whether each round's are of all rows of a client; otherwise of half of them.

    Returns:
        The number of each sketch's track, integers of shape (n,), for each round.
    """
    last: dict[int, FloatArray] = {}
    found: dict[int, IntArray] = {}
    known: dict[int, dict[int, FloatArray]] = {}
    every = range(len(seen))
    for place in [i for i in every if whole[i]] or every:
        found[place] = _joined(seen[place], last, len(last))
        last |= dict(zip(found[place].tolist(), seen[place], strict=True))
        known[place] = dict(last)
    number = len(last)
    for place in [i for i in every if i not in found]:
        near = max((i for i in known if i < place), default=min(known))
        found[place] = _joined(seen[place], known[near], number)
        number = max(number, 1 + int(found[place].max(initial=-1)))
    return [found[place] for place in every]


def _joined(sketches: FloatArray, last: Mapping[int, FloatArray], number: int) -> IntArray:
    """Return the track of each sketch: the likest of those known, or new ones from a number on."""
    own = np.full(len(sketches), -1, dtype=np.intp)
    if last:
        names = list(last)
        apart = np.nan_to_num(cdist(np.stack([last[name] for name in names]), sketches, "cosine"), nan=1.0)
        for place, name in zip(*reversed(linear_sum_assignment(apart)), strict=True):
            own[place] = names[name]
    return np.where(own < 0, number + np.cumsum(own < 0) - 1, own)
