"""Links contributions without names across rounds to the client that they come from.

Slots or shuffling hide who sent a contribution. But over all clusters a client's counts always add up to its
number of rows, and its sums to the sum of its rows, whatever the centroids are. The same holds for local
centroids with their weights (their weighted sum is that of the rows), and for fuzzy memberships (they add up
to the number of rows). If a statistic is only nearly constant (several local steps, equal weights), each
contribution is linked to the nearest earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prior
from privfed.attacks.base.reading import Reads, of_single_clients
from privfed.attacks.base.report import IntArray, Report
from privfed.attacks.base.results import NotRun, Result, Truth
from privfed.core.asking.question import AdditiveOver, ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.questions.slots import Slots

_EXACT = 1e-6
"""Largest difference of equal signatures, for rounding, in units of their spread between clients."""


class Unlinked(NamedTuple):
    """Holds contributions to one sum in an order that does not show their clients.

    Attributes:
        question: what was asked.
        answers: the contributions.
    """

    question: Question
    answers: Sequence[Statistics]

    def column(self, name: str) -> FloatArray:
        """Return one entry of all answers, float64 of shape (n, ...)."""
        return np.stack([answer[name] for answer in self.answers])


@dataclass(frozen=True, kw_only=True)
class TrackClaims(Result):
    """Base of claims about which contributions come from the same client."""

    def _report(
        self, what: str, tracks: Sequence[IntArray], owners: Sequence[Sequence[int]], later: int | None = None
    ) -> Report:
        """Compare each contribution's client with the client whose contribution began its track.

        Args:
            what: the contributions, in words.
            tracks: claimed client of each contribution, for each sum.
            owners: true ones.
            later: how many could be linked; None for all that are claimed.
        """
        began: dict[int, int] = {}
        right = claims = 0
        for track, owner in zip(np.concatenate([[], *tracks]).tolist(), chain(*owners), strict=True):
            # What begins a track claims nothing.
            if track in began:
                claims, right = claims + 1, right + (began[track] == owner)
            began.setdefault(track, owner)
        most, later = max(map(len, owners), default=0), claims if later is None else later
        return Report(
            attack=self.attack,
            goal=f"{what} linked to an earlier one of their client",
            recovered=right / later if later else 0.0,
            precision=right / claims if claims else float("nan"),
            claims=claims,
            linked=False,
            baseline=1.0 / most if most else float("nan"),
            bound=1.0,
            bound_of="all of them",
            queries=self.queries,
            seconds=self.seconds,
        )


@dataclass(frozen=True, kw_only=True)
class Links(TrackClaims):
    """Holds claims about which contributions come from the same client.

    Args:
        sums: the contributions, as they were given to the attack.
        tracks: for each sum, the track (claimed client) of each contribution; -1 for none.
    """

    sums: Sequence[Unlinked] = field(repr=False)
    tracks: Sequence[IntArray] = field(repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare each contribution's client with the client whose contribution began its track."""
        owners = [_owners(one, truth).tolist() for one in self.sums]
        asked: dict[type[Question], set[int]] = {}
        later = 0
        for one, own in zip(self.sums, owners, strict=True):
            known = asked.setdefault(type(one.question), set())
            # A client's first contribution has no earlier one that it could be linked to.
            later += sum(owner in known for owner in own)
            known.update(own)
        return self._report("contributions", self.tracks, owners, later)


@dataclass(frozen=True)
class Linkage(PassiveAttack[Links]):
    """Links contributions across sums by statistics that stay the same for a client.

    Names in the view are discarded first. On a view that shows who sent what, the attack thus measures how
    much hiding the names would help.
    """

    name: ClassVar[str] = "linkage"
    paper: ClassVar[str] = "invariants of counts and sums: ours"
    adversary: ClassVar[str] = "passive server"
    view: ClassVar[str] = "contributions without names (slotted or shuffled), over several sums"
    prior: ClassVar[str] = "none"
    defence: ClassVar[str] = "sums that show totals only; one slotted sum a fit; differential privacy"
    links: ClassVar[bool] = True

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Single contributions of all clients, with or without names."""
        return of_single_clients("every client's contribution by itself")

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> Links | NotRun:
        shown = [found for one in view.sums if (found := unlinked(one, rng)) is not None]
        sums = [one for one in shown if signature(one.answers[0]) is not None]
        kinds = [type(one.question) for one in sums]
        if len(set(kinds)) == len(kinds):
            why = "it links contributions to one question after another; none was asked again"
            return NotRun(attack=self.name, why=why)
        return Links(attack=self.name, queries=len(sums), sums=sums, tracks=linked(sums))


def unlinked(one: SumView, rng: np.random.Generator) -> Unlinked | None:
    """Return the contributions that a sum shows, without their names; None if it shows none."""
    if isinstance(one.question, Slots) and one.total is not None:
        answers, question = one.question.contributions(one.total), one.question.inner
    elif one.question is not None:
        answers, question = list(one.answers.values()), one.question
    else:
        return None
    if not answers:
        return None
    return Unlinked(question, [answers[i] for i in rng.permutation(len(answers))])


def linked(sums: Sequence[Unlinked]) -> list[IntArray]:
    """Return the track of each contribution of each sum; only questions of the same type are linked."""
    kinds: dict[type[Question], _Tracks] = {}
    fresh = count()
    return [kinds.setdefault(type(one.question), _Tracks(fresh)).follow(one) for one in sums]


class _Tracks:
    """Follows the tracks of one type of question, by the last signature of each."""

    def __init__(self, fresh: Iterator[int]) -> None:
        self._fresh = fresh
        self._names = np.empty(0, dtype=np.intp)
        self._last: FloatArray = np.empty((0, 0))

    def follow(self, one: Unlinked) -> IntArray:
        """Assign each contribution of a sum to its mutually nearest track, or to a new one."""
        found = np.stack([value for answer in one.answers if (value := signature(answer)) is not None])
        own = np.full(len(found), -1, dtype=np.intp)
        if len(self._names):
            # Each value is measured in units of its spread between clients.
            scale = np.maximum(self._last.std(axis=0), 1e-12 * np.abs(self._last).max() + 1e-300)
            distance = cdist(self._last / scale, found / scale)
            nearest, least = distance.argmin(axis=0), distance.min(axis=0)
            mutual = distance.argmin(axis=1)[nearest] == np.arange(len(found))
            # Sums over records stay the same up to rounding, so a merely near one is another client's.
            same = one.question.additive_over is AdditiveOver.RECORDS
            linked = mutual & (least < (_EXACT if same else np.inf))
            own[linked] = self._names[nearest[linked]]
            self._last[nearest[linked]] = found[linked]
        else:
            self._last = np.empty((0, found.shape[1]))
        new = own < 0
        own[new] = [next(self._fresh) for _ in range(int(new.sum()))]
        self._names = np.concatenate([self._names, own[new]])
        self._last = np.concatenate([self._last, found[new]])
        return own


def signature(answer: Statistics) -> FloatArray | None:
    """Return the part of a contribution that stays the same in all rounds; None if none is known.

    Returns:
        The number of rows and the sum of the rows, float64 of shape (1 + n_features,), or (1,).
    """
    for counts, sums in (("count", "sum"), ("weight", "weighted")):
        if counts in answer and sums in answer:
            return np.append(answer[counts].sum(), answer[sums].sum(axis=0))
    if "weight" in answer and "point" in answer:
        return np.append(answer["weight"].sum(), answer["weight"] @ answer["point"])
    if "membership" in answer:
        return np.atleast_1d(answer["membership"].sum())
    return None


def _owners(one: Unlinked, truth: Truth) -> IntArray:
    """Return the client of each contribution, by matching it with what each client would answer."""
    rng = np.random.default_rng(0)
    data = [ClientData(np.asarray(rows)).within(one.question.ranges)[0] for rows in truth.clients]
    exact = np.stack(
        [one.question.spec.flatten(answer) for answer in one.question.answer_all(data, [rng] * len(data))]
    )
    given = np.stack([one.question.spec.flatten(answer) for answer in one.answers])
    spread = exact.std(axis=0)
    scale = np.where(spread > 0.0, spread, np.inf)  # What all answer alike tells no client from another.
    clients, slots = linear_sum_assignment(cdist(exact / scale, given / scale))
    owners = np.full(len(given), -1, dtype=np.intp)
    owners[slots] = clients
    return owners
