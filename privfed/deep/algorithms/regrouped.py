"""CFL and DCFL: clusters of clients that change with their updates.

A round is a conversation of two sums: first a sketch of each client's update, then the averages of the
updates in each cluster. Between them the server compares sketches, and decides whether clients are clustered
anew. Where the sum shows contributions and sketches are whole updates, the server averages them itself, as in
the papers, and the second sum is left out; clients hear of new clusters with the next question.

A rule says when and how clients are clustered anew: DCFL's looks at all of them together (algorithm 1 of
Augello et al. 2023), CFL's at each cluster by itself. In DCFL as published a new cluster's model is the
average of its members' models after their training (equation 5); with a cluster that stays that is the usual
step, so that both are the same sum. Where the paper is silent: clients that are not in a round keep their
cluster, unless clients are clustered anew in that round; then they join the nearest when they come back, as
newcomers do (equation 6); a cluster that nobody was in when clients were clustered anew is gone; in other
rounds its model stays.

With a rule's `decay` clients send sketches of their running means in place of updates (docs/decisions/046).
The variance of DP-SGD's noise in them is public: clients are clustered where noise does not explain it, every
mean is a landmark, and the first clusters' models catch up with what set their members apart before.

Reveals to whoever opens the totals: a sketch of the update of every client that takes part, and the cluster
that it started from. Over slots these come under no name, but sketches of one client look alike from round to
round: they are linked, under a lasting pseudonym, and open to inversion. With sketches as long as the model
these are the updates themselves, over "plain" with the client's name. Besides, the averages of each cluster;
one of one client is its update. To clients: the models of all clusters, and the sketches that stand for
clusters. Nothing here is protected but by DP-SGD, or by noise at unit "client".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Phases
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting, Total
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.deep.algorithms.averaging import limits, shares
from privfed.deep.algorithms.plan import ModelsOutcome, Plan, Regrouped, Regroupings, RoundForms
from privfed.deep.clustering.distances import Metric
from privfed.deep.clustering.noise import MeanNoise
from privfed.deep.clustering.sketch import sketch_size, sketched
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import AveragedUpdates, ClusterSizes, SketchedUpdates, averaged
from privfed.errors import ArgumentError
from privfed.numerics.kernels.interpreted import IntArray
from privfed.questions.gathered import Slots

SKETCH_SHARE = 0.5
"""Share of a round's budget for sketches, under differential privacy; the averages have the rest."""

TAG_SIZE = 16
"""Numbers by which a client finds itself among landmarks that stand for nothing else."""

ORIGIN_SHARE = 0.1
"""Of the budget of sketches, for where updates started."""


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """What the server sees of a round's updates, in one space: sketches, or whole updates.

    Args:
        starts: models that updates started from, float64 of shape (n, size).
        updates: float64 of shape (n, size).
        labels: cluster that each started from, integers of shape (n,).
        n_clusters: number of clusters, those without an update included.
        variance: of the noise in each number, known to everybody; 0 without noise of clients' own.
        weights: of clients in averages, float64 of shape (n,); None for all alike.
    """

    starts: FloatArray
    updates: FloatArray
    labels: IntArray
    n_clusters: int
    variance: float = 0.0
    weights: FloatArray | None = None

    @property
    def ends(self) -> FloatArray:
        """Where updates end."""
        return self.starts + self.updates


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What a rule decides.

    Args:
        labels: new cluster of each update, integers of shape (n,); None for clusters that stay.
        landmarks: updates that stand for clusters, by which clients find theirs, integers.
        n_clusters: number of new clusters.
        index: Dunn index of the clusters before, or NaN.
        converged: whether the clustering converged; one that did not changes nothing.
    """

    labels: IntArray | None = None
    landmarks: IntArray | None = None
    n_clusters: int = 0
    index: float = math.nan
    converged: bool = True


class Rule(Protocol):
    """When clients are clustered anew, and how."""

    @property
    def metric(self) -> Metric:
        """How a newcomer's update is compared with clusters."""

    @property
    def landmark_metric(self) -> Metric:
        """How a client's update is compared with landmarks."""

    @property
    def numbered(self) -> bool:
        """Whether clusters keep their numbers: then clients keep theirs that missed a clustering."""

    @property
    def tags(self) -> bool:
        """Whether landmarks are only for finding oneself, so that a few numbers of each will do."""

    @property
    def decay(self) -> float:
        """By which running means of updates are compared (`SketchedUpdates.decay`); 0 for updates."""

    def decide(self, updates: Updates, round_number: int, seed: int) -> Decision:
        """Return what becomes of the clusters."""


@dataclass(frozen=True, kw_only=True)
class RegroupedLearning:
    """Rounds of training in clusters that a rule changes.

    Args:
        plan: options of the run.
        rule: when clients are clustered anew, and how.
        sketch_error: by which share sketches may change distances; None for whole updates.
        slotted: whether sketches come in slots, so that nobody knows whose they are.
    """

    fixed: ClassVar[bool] = False

    plan: Plan
    rule: Rule
    sketch_error: float | None = None
    slotted: bool = False

    @property
    def max_sums(self) -> int:
        """Most sums: the range, two a round, and the sizes of clusters."""
        return 2 + 2 * self.plan.rounds

    def sketch_size(self, n_parameters: int, n_clients: int) -> int:
        """Return how many numbers a sketch has."""
        error = self.sketch_error
        return n_parameters if error is None else sketch_size(n_clients, error, n_parameters)

    def averages_itself(self, size: int, n_parameters: int, private: bool) -> bool:
        """Say whether the server holds whole updates, and averages them without a second sum."""
        return size == n_parameters and not (private or self.rule.decay)

    def tag_size(self, size: int, n_parameters: int) -> int:
        """Return how many numbers a landmark has."""
        return min(TAG_SIZE, size) if self.rule.tags and size == n_parameters else size

    def size(self, setting: Setting) -> Size:
        """Return how large its models are, and all totals of its rounds."""
        return self.plan.size(setting, 1)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges where none are declared, one or two questions a round, sizes."""
        n_parameters = self.plan.trainer(setting.n_features).n_parameters
        n_clients, private = len(setting.clients), setting.privacy is not None
        size = self.sketch_size(n_parameters, n_clients)
        steps = Regroupings(
            size=size,
            tag=self.tag_size(size, n_parameters),
            seed=self.plan.seed % 2**32,
            metric=self.rule.landmark_metric,
            n_parameters=n_parameters,
            n_clients=n_clients,
            rounds=self.plan.rounds,
            decay=self.rule.decay,
        )
        forms, options = RoundForms(self.plan, setting), (self.rule.metric, self.rule.numbered, steps)
        asked = n_clients * self.slotted, not self.averages_itself(size, n_parameters, private)
        rounds = (forms.compared(t, *options, *asked) for t in range(1, self.plan.rounds + 1))
        return (*forms.found, *rounds, *(() if private else (forms.sizes(steps),)))

    def run(self, setting: Setting) -> Conversation[ModelsOutcome]:
        """Train round by round."""
        ranges = yield from self.plan.ranges(setting)
        server = _Server(self, setting, ranges)
        for number in range(1, self.plan.rounds + 1):
            yield from server.round(number)
        return (yield from server.end())


def contributions(slots: Slots | None, total: Total, private: bool) -> list[Statistics]:
    """Return each contribution to a sum, in the order of positions or in one that tells nothing.

    Args:
        slots: the question, where contributions come in slots; None where the sum shows them by name.
        total: of the sum.
        private: whether the total is noised.

    Raises:
        ArgumentError: the sum does not show contributions.
    """
    if slots is not None and not private:
        return slots.contributions(total.statistics)
    if slots is not None:
        # Noise is in every slot: those are taken whose clusters stand out, as many as took part.
        marks = total.statistics["origin"].max(axis=1)
        taken = np.sort(np.argsort(-marks, kind="stable")[: len(total.contributors)])
        found = total.statistics
        return [Statistics(**{name: found[name][i] for name in found}) for i in taken]
    if total.contributions is None:
        raise ArgumentError(
            'clusters are found by comparing updates, and this sum shows none; use merge="slotted", '
            'or protocol="plain".'
        )
    return [one for _, one in sorted(total.contributions.items())]


class _Server:
    """What the server keeps of a run: models, the number of their clustering, and the step to it."""

    def __init__(self, algorithm: RegroupedLearning, setting: Setting, ranges: Ranges) -> None:
        self._algorithm, self._plan, self._rule = algorithm, algorithm.plan, algorithm.rule
        self._ranges, self._n_clients = ranges, len(setting.clients)
        self._private = setting.privacy is not None
        self.models = self._plan.starts(setting.n_features, 1)
        self.history = [self.models]
        self.regrouped: list[Regrouped] = []
        self._structure, self._step = 0, Regrouping.none()
        self._noise: dict[int, MeanNoise] = {}
        self._parents = [-1]
        n_parameters = self.models.shape[1]
        self._size = algorithm.sketch_size(n_parameters, self._n_clients)
        self._seed = self._plan.seed % 2**32

    def round(self, number: int) -> Conversation[None]:
        """Ask for sketches, decide, and average."""
        seen, whole = yield from self._sketches(number)
        decision = self._rule.decide(seen, number, self._plan.seed + number)
        step = self._regrouping(seen, decision, number)
        self._parents += [
            self._parent(seen, decision, new) for new in range(len(self._parents), step.n_clusters)
        ]
        if whole:
            self._average(seen, seen.labels if decision.labels is None else decision.labels, step)
        else:
            yield from self._averages(number, step)
            self._catch_up(seen, decision)
        if step.n_clusters:
            self._structure, self._step = self._structure + 1, step
        elif step is not self._step and number > self._step.round + 1:
            self._step = Regrouping.none()
        self.history.append(self.models)
        self.regrouped.append(
            Regrouped(number, len(self.models), decision.index, bool(step.n_clusters), decision.converged)
        )

    def end(self) -> Conversation[ModelsOutcome]:
        """Tell clients of the last clustering, and ask how many are in each cluster."""
        clients = np.zeros(0)
        if not self._private:
            question = ClusterSizes(
                ranges=self._ranges, before=self._step, structure=self._structure, n_clusters=len(self.models)
            )
            total = yield Ask(question, self._plan.label(self._plan.rounds), (EVERYONE,), "sizes")
            clients = total.statistics["clients"]
        parents = tuple(self._parents) if self._rule.numbered else ()
        return ModelsOutcome(
            self.models, tuple(self.history), tuple(self.regrouped), clients, self._structure, parents
        )

    @staticmethod
    def _parent(seen: Updates, decision: Decision, new: int) -> int:
        """Return the cluster that most members of a new one come from."""
        assert decision.labels is not None
        return int(np.bincount(seen.labels[decision.labels == new]).argmax())

    def _options(self, number: int, **own: Any) -> dict[str, Any]:
        rule = {"metric": self._rule.metric, "numbered": self._rule.numbered}
        return self._plan.asked(
            number, models=self.models, structure=self._structure, before=self._step, **rule, **own
        )

    def _sketches(self, number: int) -> Conversation[tuple[Updates, bool]]:
        """Ask for sketches; return what is seen of them, and whether these are all there is to average."""
        options = self._options(number, size=self._size, seed=self._seed, decay=self._rule.decay)
        question = SketchedUpdates(ranges=self._ranges, **options)
        slots = Slots(ranges=self._ranges, inner=question, slots=self._n_clients)
        share, label = SKETCH_SHARE / self._plan.rounds, self._plan.label(number)
        total = yield Ask(
            slots if self._algorithm.slotted else question,
            label,
            tuple(dict.fromkeys((label, self._plan.label(number + 1)))),
            "sketches",
            weights=self._paid(sketch=share * (1.0 - ORIGIN_SHARE), origin=share * ORIGIN_SHARE),
            limits=self._paid(sketch=question.longest, origin=1.0),
        )
        seen = contributions(slots if self._algorithm.slotted else None, total, self._private)
        labels = np.array([one["origin"].argmax() for one in seen], dtype=np.intp)
        known = sketched(self.models, self._size, self._seed)
        table = np.stack([one["sketch"] for one in seen])
        variance = self._variance(total.contributors, number)
        # Running means all start from the average of the models.
        starts = known[labels] if not self._rule.decay else np.broadcast_to(known.mean(axis=0), table.shape)
        weights = np.concatenate([one["rows"] for one in seen]) if self._plan.first.by_rows else None
        updates = Updates(starts, table, labels, len(self.models), variance, weights)
        return updates, self._algorithm.averages_itself(self._size, self.models.shape[1], self._private)

    def _variance(self, contributors: Sequence[int], number: int) -> float:
        """Return the variance of the noise in each number of a sketch: that of the noisiest client."""
        training, decay = self._plan.training(number), self._rule.decay
        n_parameters = self.models.shape[1]
        # What is clipped is no longer than its bound, noise included.
        own = min(training.noise_variance, training.max_update_norm**2 / n_parameters)
        for name in contributors:
            self._noise[name] = self._noise.get(name, MeanNoise()).followed(own, decay)
        noisiest = max(self._noise[name].variance for name in contributors)
        return float(noisiest * n_parameters / self._size)

    def _paid(self, **options: float) -> Mapping[str, float] | None:
        return options if self._private else None

    def _regrouping(self, seen: Updates, decision: Decision, number: int) -> Regrouping:
        if decision.labels is None or decision.landmarks is None:
            return Regrouping.none()
        chosen, landmarks = decision.landmarks, seen.updates[decision.landmarks]
        tag = self._algorithm.tag_size(self._size, self.models.shape[1])
        if tag < self._size:
            landmarks = sketched(landmarks, tag, self._seed)
        return Regrouping(
            before=self._structure,
            round=number,
            n_clusters=decision.n_clusters,
            models=self.models,
            landmarks=frozen_array(landmarks),
            origins=frozen_array(seen.labels[chosen]),
            labels=frozen_array(decision.labels[chosen]),
            seed=self._seed,
            metric=self._rule.landmark_metric,
        )

    def _otherwise(self, step: Regrouping) -> FloatArray:
        """Return the models of clusters that nobody is in: those they come from."""
        if not step.n_clusters:
            return self.models
        found = np.resize(self.models, (step.n_clusters, self.models.shape[1]))
        if not self._rule.numbered:
            for label, origin in zip(step.labels[::-1], step.origins[::-1], strict=True):
                found[int(label)] = self.models[int(origin)]
        return found

    def _average(self, seen: Updates, labels: IntArray, step: Regrouping) -> None:
        """Average the updates that the server holds itself."""
        otherwise = self._otherwise(step)
        update, origin = np.zeros_like(otherwise), np.zeros((len(otherwise), len(self.models)))
        weights = np.ones(len(labels)) if seen.weights is None else seen.weights
        for label, weight, one in zip(labels, weights, seen.updates, strict=True):
            update[label] += weight * one
        np.add.at(origin, (labels, seen.labels), weights)
        self.models = frozen_array(averaged(self.models, update, origin, otherwise))

    def _catch_up(self, seen: Updates, decision: Decision) -> None:
        """Move the first clusters' models by what set their members' updates apart in all rounds before.

        Their running means tell, where they are not sketched: until then all started from the same models.
        """
        first = self._rule.decay and self._structure == 0 and decision.labels is not None
        if not first or self._size < self.models.shape[1]:
            return
        before = max(one.mass for one in self._noise.values()) - 1.0
        apart = seen.updates - seen.updates.mean(axis=0)
        means = [apart[decision.labels == label].mean(axis=0) for label in range(decision.n_clusters)]
        self.models = frozen_array(self.models + before * np.stack(means))

    def _averages(self, number: int, step: Regrouping) -> Conversation[None]:
        """Ask for the averages, so that nobody sees an update."""
        question = AveragedUpdates(ranges=self._ranges, **self._options(number, after=step))
        total = yield Ask(
            question,
            self._plan.label(number),
            (self._plan.label(number + 1),),
            weights=self._paid(**shares(self._plan.rounds, 1.0 - SKETCH_SHARE)),
            limits=self._paid(**limits(self._plan.first.max_update_norm)),
        )
        self.models = frozen_array(question.averaged(total.statistics, self._otherwise(step)))
