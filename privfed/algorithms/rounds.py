"""Runs in rounds: their outcome, restarts and stopping rules, and the base classes of such algorithms.

`Restarts` finds the ranges of the rows, then a start for each restart, and keeps the best outcome.
`RoundsAlgorithm` adds the rounds and the score. An own algorithm over sums inherits from it, and writes `ask`
and `move`; docs/extending.md has an example.

What a run moves from round to round is its state: named arrays, which the algorithm declares with their
shapes and bounds (`Restarts.state`). By default that is one array of centers. Rounds, stop rules, agreed
programs, transcripts, estimators and saved models read the declaration.

Public choices of a restart follow from the seed and the restart's number alone: hyperplanes of cells, and
seeds of the clients' own clusterings. So clients can check them without totals (`geometry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

import numpy as np

from privfed.algorithms.starts import MOST_START_SUMS, AnyInit, Starts, start_phases
from privfed.core.asking.phases import Cycle, Form, Near, Phase, Phases, Shape
from privfed.core.asking.question import Question, fields_of
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import EVERYONE, SCORE, Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError
from privfed.questions.cells import drawn_normals
from privfed.questions.lloyd import Inertia
from privfed.questions.ranges import Located, locate, range_phases

MAX_ITER = "max_iter"
"""Stands for the rule that ended a run where no stopping rule did."""


State = Statistics
"""What a run moves from round to round: named float64 arrays, read-only."""

Moved = Mapping[str, FloatArray] | FloatArray
"""A state as an algorithm computes it; an array stands for a state of this array alone."""


@dataclass(frozen=True, slots=True)
class ClusteringOutcome:
    """The result of a clustering run.

    Args:
        history: states of the kept restart: the start, then one entry a round.
        inertia: pooled sum of squared distances to the nearest center; None where it was not asked for.
        n_rows: number of rows of all clients; noised under differential privacy.
        converged: whether a stopping rule ended the kept restart; False where max_iter ended it first. None
            where the number of rounds was fixed, by `tol=0` or under differential privacy.
        score: value by which restarts are compared; the smallest is kept.
        stopped_by: the rule that ended the kept restart: "tol", "patience", "plateau", "cycle" or "max_iter".
        finish: how many of the last rounds were exact ones (`WeightedKMeans.finish`).
    """

    history: tuple[State, ...]
    inertia: float | None
    n_rows: int
    converged: bool | None
    score: float
    stopped_by: str = MAX_ITER
    finish: int = 0

    @classmethod
    def noised(
        cls, history: Sequence[FloatArray], n_rows: int, score: float = float("nan")
    ) -> ClusteringOutcome:
        """Return the outcome of a run under differential privacy, given its centers in each round."""
        return cls(tuple(State(centers=one) for one in history), None, n_rows, None, score)

    @property
    def centers(self) -> FloatArray | None:
        """The last centers, float64 of shape (n_clusters, n_features); None where the state has none."""
        return self.history[-1].get("centers")


PLATEAU = 5
"""Rounds over which movements are averaged by default: see `stops`."""


def stops(
    movements: Sequence[float],
    *,
    tol: float | None,
    min_iter: int = 1,
    patience: int | None = None,
    quiet: int = 0,
) -> str:
    """Return the rule that stops a run after these movements; empty if none does.

    Args:
        movements: movement of the centers in each round, at least one (Frobenius norm).
        tol: "tol" stops a run once the last movement is strictly less; None never. With 0 no more than
            `patience` stops a run.
        min_iter: fewest rounds before `tol` may stop a run.
        patience: "patience" stops a run once none of the last `patience` movements is below the first of
            them; None never. As in the code of Holzer et al., movements count from round `min_iter` on.
        quiet: window of the plateau, in rounds; 0 never. "plateau" stops a run, from round `4 quiet` on, once
            the last `quiet` movements are on average no less than the `quiet` before. Then the centers
            jitter: with several local steps they often do so for ever, and further rounds gain nothing.
    """
    if tol is not None and len(movements) >= min_iter and movements[-1] < tol:
        return "tol"
    if patience is not None:
        recent = movements[min_iter - 1 :][-patience:]
        if len(recent) == patience and recent[0] <= min(recent):
            return "patience"
    if quiet and tol != 0.0 and len(movements) >= 4 * quiet:
        last, before = movements[-quiet:], movements[-2 * quiet : -quiet]
        return "plateau" if sum(last) >= sum(before) else ""
    return ""


def ending(rule: str, tol: float | None) -> bool | None:
    """Return the value of `ClusteringOutcome.converged` for a run.

    Args:
        rule: that ended it (`ClusteringOutcome.stopped_by`).
        tol: its tolerance; without one, or with 0, it may do all its rounds.
    """
    if rule == "cycle":
        return False
    return True if rule != MAX_ITER else False if tol else None


def geometry(seed: int, restart: int) -> np.random.Generator:
    """Return the generator of a restart's public geometry, which no total moves.

    Args:
        seed: of the run.
        restart: its number, from 0. The first one's is the generator of a run without restarts.
    """
    return np.random.default_rng((seed, restart) if restart else seed)


def length(after: State, before: State) -> float:
    """Return how far a round moved the centers, or a state without any: the Frobenius norm."""
    old, new = (one.get("centers", one.vector) for one in (before, after))
    return float(np.linalg.norm(new - old))


def stated(found: Moved, declared: Mapping[str, Shape]) -> State:
    """Return a state as it was declared.

    Raises:
        ArgumentError: an array is missing, or is not what was declared.
    """
    state = State(**(found if isinstance(found, Mapping) else dict.fromkeys(declared, found)))
    wrong = [name for name, rule in declared.items() if rule.read(state.get(name), {}) is None]
    if wrong or len(state) > len(declared):
        raise ArgumentError(f"a state of {dict(state.layout)} is not {dict(declared)}, which was declared.")
    return state


def in_rounds(
    start: Moved,
    one_round: Callable[[Sequence[State]], Conversation[Moved]],
    *,
    declared: Mapping[str, Shape],
    max_iter: int,
    rule: Callable[[Sequence[float], Sequence[State]], str],
    moved: Callable[[State, State], float] = length,
) -> Conversation[tuple[tuple[State, ...], str]]:
    """Move a state round by round, until a rule stops it or `max_iter` rounds are done.

    Args:
        start: the state before the first round.
        one_round: returns the state after a round, given all states before it, the start first.
        declared: what a state is (`Restarts.state`).
        max_iter: most rounds.
        rule: returns what stops the run after a round, else an empty text, given all movements and all
            states.
        moved: returns the movement of a round, given the states after it and before it.

    Returns:
        The history, the start first, and the rule that ended the rounds.

    Raises:
        ArgumentError: a state is not what was declared.
    """
    history, movements, stopped = [stated(start, declared)], list[float](), ""
    while len(movements) < max_iter and not stopped:
        history.append(stated((yield from one_round(history)), declared))
        movements.append(moved(history[-1], history[-2]))
        stopped = rule(movements, history)
    return tuple(history), stopped or MAX_ITER


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
        tol: a run stops once the centers move by strictly less (Frobenius norm); 0 runs all rounds,
            and None leaves the end to `plateau`.
        plateau: a run stops, too, once its centers only jitter: window in rounds of full steps (`stops`).
            None never.
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
    tol: float | None = 1e-6
    plateau: int | None = PLATEAU
    max_iter: int = 300
    n_init: int = 1
    init: AnyInit = "coreset"
    sampled: bool = False
    seed: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: the ranges, and for each restart the start, a sum a round and the score."""
        return 2 + self.n_init * (MOST_START_SUMS + self.max_iter + 1)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges, then for each restart the start, the rounds and the score."""
        # A restart repeats these values; the next restart has others.
        forgets = ("start points", "round points", "round centers")
        first, *others = (self._restart_phases(setting, number) for number in range(self.n_init))
        return (*range_phases(setting), *first, *(Cycle(one, 1, 1, forgets) for one in others))

    def _restart_phases(self, setting: Setting, number: int) -> Phases:
        start = self.start_phases(setting, number, geometry(self.seed, number))
        return (*start, *self.round_phases(setting, number), *self.score_phases(setting))

    def start_phases(self, setting: Setting, number: int, rng: np.random.Generator) -> Phases:
        """Return what the start of a restart asks.

        Args:
            setting: the public facts.
            number: of the restart, from 0.
            rng: source of the restart's public geometry.
        """
        return start_phases(self.init, setting, self.n_clusters, rng, number)

    def movement(self, after: State, before: State) -> float:
        """Return how far a round moved the state, as `tol` measures it."""
        return length(after, before)

    def state(self, n_features: int) -> Mapping[str, Shape]:
        """Return what a run moves from round to round: each array's name, and what it may be.

        Metrics, profiles and pictures are about the array `centers`, (n_clusters, n_features). A question
        of a round has the arrays by the same names.
        """
        return {"centers": Shape(self.n_clusters, n_features)}

    @abstractmethod
    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return what the rounds of a restart ask."""

    def score_phases(self, setting: Setting) -> Phases:
        """Return what the score of a restart asks."""
        along = self.directions(setting.n_features)
        return (
            Phase(
                Form(
                    Inertia,
                    centers=Shape(self.n_clusters, setting.n_features),
                    directions=along if along is None else Near((along,)),
                )
            ),
        )

    def directions(self, n_features: int) -> FloatArray | None:
        """Return along what the score adds up offsets of rows from their centers (`Inertia`); None for none.

        It is one direction, which follows from the seed. In the mean over seeds, a squared length along it is
        the whole one. More would tell the gap more exactly, and more about who took part
        (docs/algorithms/dwf.md).
        """
        rng = np.random.default_rng((self.seed, n_features))
        return frozen_array(np.sqrt(n_features) * drawn_normals(n_features, 1, rng))

    def run(self, setting: Setting) -> Conversation[ClusteringOutcome]:
        """Find the ranges, then run each restart, and keep the first of the lowest score.

        Raises:
            ArgumentError: there are fewer rows than clusters, or no restart.
        """
        check_whole("n_init", self.n_init, 1)
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

    @property
    def step(self) -> float:
        """Share of a full step that a round moves the centers; a small one takes more rounds to a plateau."""
        return 1.0

    @property
    def quiet(self) -> int:
        """Window of the plateau in rounds; 0 for none, as where each round asks other clients.

        Then the draw of clients moves the centers more than the rounds do.
        """
        return 0 if self.plateau is None or self.sampled else ceil(self.plateau / self.step)

    def scored(
        self, located: Located, history: tuple[State, ...], stopped: str
    ) -> Conversation[ClusteringOutcome]:
        """Ask for the pooled inertia of the last centers, which gives the score, and return the outcome."""
        along = self.directions(located.ranges.n_features)
        question = Inertia(ranges=located.ranges, centers=history[-1]["centers"], directions=along)
        then = (EVERYONE, self.cohort(1)) if self.n_init > 1 and self.sampled else (EVERYONE,)
        total = (yield Ask(question, upcoming=then, purpose=SCORE)).statistics
        inertia, n_rows = float(total["inertia"][0]), round(float(total["rows"][0]))
        converged = ending(stopped, self.tol)
        score = inertia / max(n_rows, 1) if self.score_per_row else inertia
        return ClusteringOutcome(history, inertia, n_rows, converged, score, stopped)


@dataclass(frozen=True, kw_only=True)
class RoundsAlgorithm(Restarts):
    """Base of algorithms that move a state by one sum a round; each restart ends with a score.

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

    def ask(self, ranges: Ranges, *args: Any, **state: Any) -> Question:
        """Return the question of a round, given the state by name: `ask(self, ranges, centers)`.

        `phases` asks for one about an example of a state.
        """
        raise NotImplementedError(f"{type(self).__name__} needs ask(), or one_round() and round_phases().")

    def move(self, question: Any, total: Statistics) -> Moved:
        """Return the state after a round, given what it asked (the value of `ask`) and the total."""
        raise NotImplementedError(f"{type(self).__name__} needs move(), or one_round() and round_phases().")

    def begin(self, located: Located, centers: FloatArray) -> Conversation[Moved]:
        """Return the state before the first round, given starting centers: these, without a further sum."""
        yield from ()
        return centers

    def round_phases(self, setting: Setting, number: int) -> Phases:
        """Return `max_iter` questions of the form of `ask`, with any arrays that `state` allows."""
        d, declared = setting.n_features, self.state(setting.n_features)
        examples = {name: one.example() for name, one in declared.items()}
        example = self.ask(Ranges(np.zeros(d), np.ones(d), 1), **examples)
        asked = {one.name for one in fields_of(type(example))} & set(declared)
        return (Phase(Form.like(example, **{name: declared[name] for name in asked}), 1, self.max_iter),)

    def score_phases(self, setting: Setting) -> Phases:
        """Return the question for the inertia, where there is one."""
        return super().score_phases(setting) if self.inertia else ()

    def one_round(self, located: Located, history: Sequence[State]) -> Conversation[Moved]:
        """Do one round, given all states before it; return the one after it."""
        number, question = len(history), self.ask(located.ranges, **history[-1])
        total = yield Ask(question, self.cohort(number), (self.cohort(number + 1),))
        return self.move(question, total.statistics)

    def restart(self, begun: Restart) -> Conversation[ClusteringOutcome]:
        """Find the start, do the rounds, and ask for the score."""
        located = begun.located
        centers = yield from begun.starts.next((self.cohort(1),), begun.geometry)
        start = yield from self.begin(located, centers)
        history, stopped = yield from self.moved(located, start, lambda past: self.one_round(located, past))
        if self.inertia:
            return (yield from self.scored(located, history, stopped))
        return ClusteringOutcome(history, None, located.n_rows, ending(stopped, self.tol), 0.0, stopped)

    def moved(
        self,
        located: Located,
        start: Moved,
        one_round: Callable[[Sequence[State]], Conversation[Moved]],
    ) -> Conversation[tuple[tuple[State, ...], str]]:
        """Return `in_rounds` under the algorithm's own declaration and stopping rules."""
        rules: Any = {
            "tol": self.tol,
            "min_iter": self.min_iter,
            "patience": self.patience,
            "quiet": self.quiet,
        }
        return in_rounds(
            start,
            one_round,
            declared=self.state(located.ranges.n_features),
            max_iter=self.max_iter,
            rule=lambda movements, _: stops(movements, **rules),
            moved=self.movement,
        )
