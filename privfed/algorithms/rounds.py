"""Runs in rounds: their outcome, restarts and stopping rules, and the base classes of such algorithms.

`Restarts` finds the ranges of the rows, then a start for each restart, and keeps the best outcome.
`RoundsAlgorithm` adds the rounds and the score. An own algorithm over sums inherits from it, and writes `ask`
and `move`; docs/extending.md has an example.

Public choices of a restart follow from the seed and the restart's number alone: hyperplanes of cells, and
seeds of the clients' own clusterings. So clients can check them without totals (`geometry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privfed.algorithms.starts import MOST_START_SUMS, AnyInit, Starts, start_phases
from privfed.core.asking.phases import Cycle, Form, Phase, Phases, Shape
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import EVERYONE, SCORE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.errors import ArgumentError
from privfed.questions.lloyd import Inertia
from privfed.questions.ranges import Located, locate, range_phases


@dataclass(frozen=True, slots=True)
class ClusteringOutcome:
    """The result of a clustering run.

    Args:
        centers: float64 of shape (n_clusters, n_features).
        history: centers of the kept restart: the start, then one entry a round.
        inertia: pooled sum of squared distances to the nearest center; None where it was not asked for.
        n_rows: number of rows of all clients; noised under differential privacy.
        converged: whether a stopping rule ended the kept restart; False where max_iter ended it first. None
            where the number of rounds was fixed, by `tol=0` or under differential privacy.
        score: value by which restarts are compared; the smallest is kept.
    """

    centers: FloatArray
    history: tuple[FloatArray, ...]
    inertia: float | None
    n_rows: int
    converged: bool | None
    score: float


LONGEST_CYCLE = 24
"""Longest cycle that is detected, in rounds."""

RETURNED = 0.01
"""Centers have returned to an earlier state when their distance from it is below this share of `tol`."""


def cycles(history: Sequence[FloatArray], near: float) -> bool:
    """Say whether the last rounds went through a cycle of centers twice, each time within `near`.

    Once is not enough, as a round may depend on several states, with momentum on two.
    """
    for period in range(2, min(LONGEST_CYCLE, len(history) // 2) + 1):
        pairs = zip(history[-period:], history[-2 * period : -period], strict=True)
        if all(float(np.linalg.norm(after - before)) < near for after, before in pairs):
            return True
    return False


def stops(movements: Sequence[float], *, tol: float, min_iter: int, patience: int | None) -> bool:
    """Say whether a run stops after these movements.

    Args:
        movements: movement of the centers in each round (Frobenius norm).
        tol: stop once the last movement is strictly less; 0 never stops.
        min_iter: fewest rounds before `tol` may stop a run.
        patience: stop once none of the last `patience` movements is below the first of them; None never.
            As in the code of Holzer et al., movements count from round `min_iter` on.
    """
    if len(movements) >= min_iter and movements[-1] < tol:
        return True
    if patience is None:
        return False
    recent = movements[min_iter - 1 :][-patience:]
    return len(recent) == patience and recent[0] <= min(recent)


def ending(stopped: bool, tol: float) -> bool | None:
    """Return the value of `ClusteringOutcome.converged` for a run.

    Args:
        stopped: whether a stopping rule ended it.
        tol: its tolerance; with 0 it is meant to do all its rounds.
    """
    return True if stopped else False if tol > 0.0 else None


def geometry(seed: int, restart: int) -> np.random.Generator:
    """Return the generator of a restart's public geometry, which no total moves.

    Args:
        seed: of the run.
        restart: its number, from 0. The first one's is the generator of a run without restarts.
    """
    return np.random.default_rng((seed, restart) if restart else seed)


def in_rounds(
    start: FloatArray,
    one_round: Callable[[Sequence[FloatArray]], Conversation[FloatArray]],
    *,
    max_iter: int,
    tol: float,
    min_iter: int = 1,
    patience: int | None = None,
    cyclic: bool = False,
) -> Conversation[tuple[tuple[FloatArray, ...], bool]]:
    """Move centers round by round, until they stop or `max_iter` rounds are done.

    Args:
        start: centers, float64 of shape (n_clusters, n_features).
        one_round: returns the centers after a round, given all centers before it, the start first.
        max_iter: most rounds.
        tol: as for `stops`.
        min_iter: as for `stops`.
        patience: as for `stops`.
        cyclic: whether rounds end, too, where centers go round in a cycle (`cycles`).

    Returns:
        The history, the start first, and whether a stopping rule ended the rounds.
    """
    history, movements, stopped = [frozen_array(start)], list[float](), False
    while len(movements) < max_iter and not stopped:
        history.append(frozen_array((yield from one_round(history))))
        movements.append(float(np.linalg.norm(history[-1] - history[-2])))
        stopped = stops(movements, tol=tol, min_iter=min_iter, patience=patience)
        if cyclic and not stopped and len(movements) >= min_iter and cycles(history, RETURNED * tol):
            break
    return tuple(history), stopped


@dataclass(frozen=True, slots=True)
class Restart:
    """The state of a run when a restart begins.

    Args:
        number: of the restart, from 0.
        setting: the public facts.
        located: result of the range sum.
        starts: finds the start of each restart.
        geometry: source of the restart's public geometry; of the first restart it is `rng`.
        rng: source of all other random choices of the run.
    """

    number: int
    setting: Setting
    located: Located
    starts: Starts
    geometry: np.random.Generator
    rng: np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Restarts(ABC):
    """Base of algorithms that find ranges and a start by sums, and keep the best of several restarts.

    Subclasses write `round_phases` and `restart`, and `max_sums` where a round asks several sums.

    Args:
        n_clusters: number of clusters.
        tol: a run stops once the centers move by strictly less (Frobenius norm); 0 runs all rounds.
        max_iter: most rounds.
        n_init: number of restarts; the one of the lowest score is kept.
        init: "coreset", "nested", "kfed", "random", a start total of an earlier fit, or centers of shape
            (n_clusters, n_features).
        sampled: whether a round asks the configuration's cohort, or everyone.
        seed: of the run's random choices.
    """

    fixed: ClassVar[bool] = False
    score_per_row: ClassVar[bool] = True
    """Whether restarts are compared by the inertia of a row, or by that of all rows."""

    n_clusters: int
    tol: float = 1e-6
    max_iter: int = 300
    n_init: int = 1
    init: AnyInit = "coreset"
    sampled: bool = False
    seed: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, and for each restart the start, a sum a round and the score."""
        return 1 + self.n_init * (MOST_START_SUMS + self.max_iter + 1)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then for each restart the start, the rounds and the score."""
        # A restart repeats these values; the next restart has others.
        forgets = ("start points", "round points", "round centers")
        first, *others = (self._restart_phases(setting, number) for number in range(self.n_init))
        return (*range_phases(setting), *first, *(Cycle(one, 1, 1, forgets) for one in others))

    def _restart_phases(self, setting: Setting, number: int) -> Phases:
        rng = geometry(self.seed, number)
        start = self.start_phases(setting, number, rng)
        return (*start, *self.round_phases(setting, number), *self.score_phases(setting))

    def start_phases(self, setting: Setting, number: int, rng: np.random.Generator) -> Phases:
        """Return what the start of a restart asks.

        Args:
            setting: the public facts.
            number: of the restart, from 0.
            rng: source of the restart's public geometry.
        """
        return start_phases(self.init, setting, self.n_clusters, rng, number)

    @abstractmethod
    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return what the rounds of a restart ask."""

    def score_phases(self, setting: Setting) -> Phases:
        """Return what the score of a restart asks."""
        return (Phase(Form(Inertia, centers=Shape(self.n_clusters, setting.n_features))),)

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find the ranges, then run each restart, and keep the first of the lowest score.

        Raises:
            ArgumentError: there are fewer rows than clusters, or no restart.
        """
        if self.n_init < 1:
            raise ArgumentError(
                f"n_init must be at least 1, got n_init={self.n_init}.", parameters=["n_init"]
            )
        rng, n_clusters = np.random.default_rng(self.seed), self.n_clusters
        located = yield from locate(setting, upcoming=(EVERYONE, self.cohort(1)))
        if n_clusters > located.n_rows:
            raise ArgumentError(
                f"n_clusters={n_clusters} is more than all rows together, n_samples={located.n_rows}."
            )
        starts = Starts(self.init, located, n_clusters, rng, setting.start)
        best = yield from self.restart(Restart(0, setting, located, starts, rng, rng))
        for number in range(1, self.n_init):
            own = geometry(self.seed, number)
            outcome = yield from self.restart(Restart(number, setting, located, starts, own, rng))
            if outcome.score < best.score:
                best = outcome
        return best

    @abstractmethod
    def restart(self, begun: Restart) -> Conversation[ClusteringOutcome]:
        """Run one restart."""

    def cohort(self, number: int) -> int:
        """Return the label of the cohort that round `number` asks; after the last round everyone is asked."""
        return number if self.sampled and number <= self.max_iter else EVERYONE

    def scored(
        self, located: Located, history: tuple[FloatArray, ...], stopped: bool
    ) -> Conversation[ClusteringOutcome]:
        """Ask for the pooled inertia of the last centers, which gives the score, and return the outcome."""
        question = Inertia(ranges=located.ranges, centers=history[-1])
        then = (EVERYONE, self.cohort(1)) if self.n_init > 1 and self.sampled else (EVERYONE,)
        total = (yield Ask(question, upcoming=then, purpose=SCORE)).statistics
        inertia, n_rows = float(total["inertia"][0]), round(float(total["rows"][0]))
        converged = ending(stopped, self.tol)
        score = inertia / max(n_rows, 1) if self.score_per_row else inertia
        return ClusteringOutcome(history[-1], history, inertia, n_rows, converged, score)


@dataclass(frozen=True, kw_only=True)
class RoundsAlgorithm(Restarts):
    """Base of algorithms that move centers by one sum a round; each restart ends with a score.

    Subclasses write `ask` and `move`, or `one_round` and `round_phases` where a round is something else.

    Raises:
        ArgumentError: there are several restarts, and no score.

    Args:
        min_iter: fewest rounds before `tol` may stop a run.
        patience: a run stops once none of the last `patience` movements is below the first of them; None
            never.
    """

    inertia: ClassVar[bool] = True
    """Whether a restart ends with the pooled inertia as its score. Without it there is no further sum."""

    min_iter: int = 1
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.n_init > 1 and not self.inertia:
            raise ArgumentError(f"{type(self).__name__} has no score to choose from n_init={self.n_init} by.")

    def ask(self, ranges: Ranges, centers: FloatArray) -> Question:
        """Return the question of a round about its centers; `phases` asks for one about centers of zeros."""
        raise NotImplementedError(f"{type(self).__name__} needs ask(), or one_round() and round_phases().")

    def move(self, question: Any, total: Statistics) -> FloatArray:
        """Return the centers after a round, given what it asked (the value of `ask`) and the total."""
        raise NotImplementedError(f"{type(self).__name__} needs move(), or one_round() and round_phases().")

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return `max_iter` questions of the form of `ask`, with any centers of the agreed shape."""
        d = setting.n_features
        example = self.ask(Ranges(np.zeros(d), np.ones(d), 1), np.zeros((self.n_clusters, d)))
        return (Phase(Form.like(example), 1, self.max_iter),)

    def score_phases(self, setting: Setting) -> Phases:
        """Return the question for the inertia, where there is one."""
        return super().score_phases(setting) if self.inertia else ()

    def one_round(self, located: Located, history: Sequence[FloatArray]) -> Conversation[FloatArray]:
        """Do one round, given all centers before it; return those after it."""
        number = len(history)
        question = self.ask(located.ranges, history[-1])
        total = yield Ask(question, self.cohort(number), (self.cohort(number + 1),))
        return self.move(question, total.statistics)

    def restart(self, begun: Restart) -> Conversation[ClusteringOutcome]:
        """Find the start, do the rounds, and ask for the score."""
        start = yield from begun.starts.next((self.cohort(1),), begun.geometry)
        history, stopped = yield from self.moved(start, lambda past: self.one_round(begun.located, past))
        if self.inertia:
            return (yield from self.scored(begun.located, history, stopped))
        n_rows = begun.located.n_rows
        return ClusteringOutcome(history[-1], history, None, n_rows, ending(stopped, self.tol), 0.0)

    def moved(
        self,
        start: FloatArray,
        one_round: Callable[[Sequence[FloatArray]], Conversation[FloatArray]],
    ) -> Conversation[tuple[tuple[FloatArray, ...], bool]]:
        """Return `in_rounds` under the algorithm's own stopping rules."""
        return in_rounds(
            start,
            one_round,
            max_iter=self.max_iter,
            tol=self.tol,
            min_iter=self.min_iter,
            patience=self.patience,
            cyclic=not self.sampled,
        )
