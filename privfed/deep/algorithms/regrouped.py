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

Until a round that is agreed on (`Training.held_until`) clients hold rows out. In DCFL these choose among
clusterings, of at most half as many clusters as clients, where the server holds whole updates. It asks for
the loss of what the models would be. After that round they tell whether clusters are worth it. Where there
are several, one model is trained beside them from where they were split, in the same rounds. If it does about
as well, it takes their place, and clients are not clustered any more (docs/decisions/024-deep-baseline.md).

With a rule's `decay` clients send sketches of their running means in place of updates (decision 024).

Reveals to whoever opens the totals: a sketch of the update of every client that takes part, and the cluster
that it started from. Over slots these come under no name, but sketches of one client look alike from round to
round: they are linked, under a lasting pseudonym, and open to inversion. With sketches as long as the model
these are the updates themselves, over "plain" with the client's name. Besides, the averages of each cluster;
one of one client is its update. Of held-out rows the sums of the clients' losses and accuracies, for models
that the server names. To clients: the models of all clusters, and the sketches that stand for clusters.
Nothing here is protected but by DP-SGD, or by noise at unit "client".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Among, Cycle, Form, Near, Phase, Phases, Same, Shape, Within
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import EVERYONE, Ask, Conversation, Setting, Total
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.deep.algorithms.plan import ModelsOutcome, Plan, Regrouped
from privfed.deep.algorithms.rules import Decision, Rule, Updates
from privfed.deep.clustering.clusterings import QUANTILES
from privfed.deep.clustering.noise import MeanNoise, shortest_decay
from privfed.deep.clustering.sketch import TAG_SIZE, sketch_size, sketched, tags
from privfed.deep.training.held_out import Comparison, HeldOut
from privfed.deep.training.local import Training
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import (
    MOST_CLUSTERS,
    AveragedUpdates,
    ClusterSizes,
    SketchedUpdates,
    averaged,
)
from privfed.errors import ArgumentError
from privfed.questions.slots import Slots

SKETCH_SHARE = 0.5
"""Share of a round's budget for sketches, under differential privacy; the averages have the rest."""

ORIGIN_SHARE = 0.1
"""Of the budget of sketches, for where updates started."""

NONE = Shape(0, 1)
"""Rule of a model that nobody asks about."""

LOOKS = 1 + len(QUANTILES)
"""Most questions about held-out rows in a round in which they choose clusters."""

Make = Callable[..., Any]
"""Makes a question of values, or its form of rules."""


@dataclass(frozen=True, kw_only=True)
class RegroupedLearning:
    """Rounds of training in clusters that a rule changes.

    Args:
        training: of the run.
        rule: when clients are clustered anew, and how.
        sketch_error: by which share sketches may change distances; None for whole updates.
        slotted: whether sketches come in slots, so that nobody knows whose they are.
        passes: of fine-tuning that are compared at most.
    """

    fixed: ClassVar[bool] = False

    training: Training
    rule: Rule
    sketch_error: float | None = None
    slotted: bool = False
    passes: int = 0

    @property
    def max_sums(self) -> int:
        """Most sums: two for the range, two a round, or one and in the end the sizes; and the comparison."""
        held = self.training.held_until
        return 2 + 2 * self.training.rounds + held + (held > 0) + LOOKS * held

    def sketch_size(self, plan: Plan) -> int:
        """Return how many numbers a sketch has."""
        error, whole = self.sketch_error, plan.n_parameters
        return whole if error is None else sketch_size(plan.n_clients, error, whole)

    def averages_itself(self, plan: Plan) -> bool:
        """Say whether the server holds whole updates, and averages them without a second sum."""
        return self.sketch_size(plan) == plan.n_parameters and not (plan.private or self.rule.decay)

    def finds_itself(self, plan: Plan) -> bool:
        """Say whether clients find what they sent among tags of all updates (`Regrouping`)."""
        return self.sketch_size(plan) == plan.n_parameters and not plan.private

    def landmark_size(self, plan: Plan) -> int:
        """Return how many numbers a landmark has."""
        size = self.sketch_size(plan)
        tagged = self.finds_itself(plan) or (self.rule.numbered and size == plan.n_parameters)
        return min(TAG_SIZE, size) if tagged else size

    @property
    def landmark_metric(self) -> str:
        """How a client's update is compared with landmarks: it finds its own, or the nearest exemplar."""
        return "euclidean" if self.rule.numbered else self.rule.metric

    def size(self, setting: Setting) -> Size:
        """Return how large its models are, and all totals of its rounds."""
        return Plan(self.training, setting).size(1)

    def sketches(self, plan: Plan, make: Make, number: int, decay: object, **clusters: object) -> Any:
        """Return the question for a round's sketches, or its form; in slots, where they come so."""
        inner = make(
            SketchedUpdates,
            training=self.training.at(number),
            metric=self.rule.metric,
            numbered=self.rule.numbered,
            size=self.sketch_size(plan),
            seed=self.training.public_seed,
            decay=decay,
            **clusters,
        )
        return make(Slots, inner=inner, slots=plan.n_clients) if self.slotted else inner

    def averages(self, make: Make, number: int, after: object, **clusters: object) -> Any:
        """Return the question for a round's averages, or its form."""
        rule = {"metric": self.rule.metric, "numbered": self.rule.numbered}
        return make(AveragedUpdates, training=self.training.at(number), after=after, **rule, **clusters)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: ranges where none are declared, one or two questions a round, or sizes."""
        plan, rounds = Plan(self.training, setting), self.training.rounds
        cycles, held = list[Phase | Cycle](), self.training.held_until
        for number in range(1, rounds + 1):
            cycles.append(self._phases_of(plan, number))
            if self.looks(plan) and number <= held:
                form = self.held_out(plan.form, number, one=NONE, start=NONE, **self._after(plan, number))
                cycles.append(Phase(form, least=0, most=LOOKS))
            cycles += self._compared(plan, held) if number == held else ()
        last = self._steps(plan, Within(1, rounds))
        numbers = {"structure": Within(0, rounds), "n_clusters": Within(1, MOST_CLUSTERS)}
        sizes = Phase(plan.form(ClusterSizes, before=last, **numbers))
        return (*plan.found, *cycles, *((sizes,) if self.averages_itself(plan) else ()))

    def _phases_of(self, plan: Plan, number: int) -> Cycle:
        """Return the questions of a round, which have the clusters in common."""
        clusters = {
            "models": Same("models", plan.models(number, None)),
            "structure": Same("structure", Within(0, number - 1 + (0 < self.training.held_until < number))),
            "before": Same("before", self._steps(plan, Within(1, max(1, number - 1)))),
        }
        # Without noise no shorter means are needed.
        shorter = Within(self.rule.least_decay, self.rule.decay)
        decay = shorter if self.training.private else self.rule.decay
        asked = [self.sketches(plan, plan.form, number, decay, **clusters)]
        if not self.averages_itself(plan):
            asked.append(self.averages(plan.form, number, self._steps(plan, number), **clusters))
        return Cycle(tuple(map(Phase, asked)), forgets=tuple(clusters))

    def _compared(self, plan: Plan, held: int) -> list[Phase]:
        """Return the rounds of one model beside clusters, and what compares them."""
        one = Shape(1, plan.n_parameters)
        beside = (self.beside(plan.form, t, one) for t in range(1, held + 1))
        others = {"one": one, "start": Near((plan.starts(1),)), "passes": self.passes}
        found = self.held_out(plan.form, held, **others, **self._after(plan, held))
        return [*(Phase(one, least=0) for one in beside), Phase(found)]

    def _after(self, plan: Plan, number: int) -> dict[str, Any]:
        """Return the rules of clusters after a round."""
        step = self._steps(plan, Within(1, number))
        return {"models": plan.models(number + 1, None), "structure": Within(0, number), "before": step}

    def looks(self, plan: Plan) -> bool:
        """Say whether held-out rows choose among clusterings: the server has models of each of them."""
        return (
            self.training.held_until > 0
            and not self.training.timed
            and self.rule.tries
            and self.averages_itself(plan)
        )

    def held_out(self, make: Make, number: int, **models: object) -> Any:
        """Return the question about held-out rows, or its form."""
        rule = {"metric": self.rule.metric, "numbered": self.rule.numbered}
        return make(HeldOut, training=self.training.at(number), **rule, **models)

    def beside(self, make: Make, number: int, one: object) -> Any:
        """Return the question of a round of one model beside clusters, or its form."""
        return make(AveragedUpdates, training=self.training.at(number), models=one, choice="apart")

    def _steps(self, plan: Plan, number: object) -> Among:
        """Return the rule of steps that were decided in a round; there may be none."""
        n_clusters, landmarks, size = (1, MOST_CLUSTERS), (1, plan.n_clients), self.landmark_size(plan)
        step = Form(
            Regrouping,
            seed=self.training.public_seed,
            metric=self.landmark_metric,
            before=Within(0, self.training.rounds),
            n_clusters=Within(*n_clusters),
            round=number,
            models=NONE if self.finds_itself(plan) else Shape(n_clusters, size),
            landmarks=Shape(landmarks, size),
            origins=Shape(landmarks),
            labels=Shape(landmarks),
            n_parameters=plan.n_parameters,
        )
        return Among((Regrouping(), step))

    def run(self, setting: Setting) -> Conversation[ModelsOutcome]:
        """Train round by round."""
        plan = Plan(self.training, setting)
        yield from plan.find_ranges()
        server = _Server(self, plan)
        for number in range(1, self.training.rounds + 1):
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

    def __init__(self, algorithm: RegroupedLearning, plan: Plan) -> None:
        self._algorithm, self._plan, self._rule = algorithm, plan, algorithm.rule
        self._training = algorithm.training
        self.models = plan.starts(1)
        self.history = [self.models]
        self.regrouped: list[Regrouped] = []
        self._structure, self._step = 0, Regrouping()
        self._noise: dict[int, MeanNoise] = {}
        self._parents = [-1]
        self._size = algorithm.sketch_size(plan)
        self._decay, self._newest = self._rule.decay, 0
        self._split = 0
        self._comparison: Comparison | None = None

    @property
    def _clusters(self) -> dict[str, Any]:
        """What both questions of a round have in common."""
        return {"models": self.models, "structure": self._structure, "before": self._step}

    def round(self, number: int) -> Conversation[None]:
        """Ask for sketches, decide, and average."""
        seen = yield from self._sketches(number)
        decision = yield from self._decide(seen, number)
        step, labels = self._regrouping(seen, decision, number), decision.after(seen)
        for new in range(len(self._parents), step.n_clusters):
            # A new cluster is split from that which most of its members come from.
            self._parents.append(int(np.bincount(seen.labels[labels == new]).argmax()))
        if self._algorithm.averages_itself(self._plan):
            self.models = self._averaged(seen, decision)
        else:
            # A second sum, so that nobody sees an update.
            question = self._algorithm.averages(self._plan.question, number, step, **self._clusters)
            total = yield self._plan.ask_averages(question, number, 1.0 - SKETCH_SHARE)
            self.models = frozen_array(question.averaged(total.statistics, self._otherwise(seen, decision)))
            self._catch_up(seen, decision)
        if step.n_clusters:
            self._structure, self._step = self._structure + 1, step
        elif step is not self._step and number > self._step.round + 1:
            self._step = Regrouping()
        self._decay = self._next_decay(seen, decision, number)
        self._split = self._split or number * (len(self.models) > 1)
        if number == self._training.held_until:
            yield from self._compare(number)
        self.history.append(self.models)
        self.regrouped.append(
            Regrouped(number, len(self.models), decision.index, bool(step.n_clusters), decision.converged)
        )

    def _compare(self, number: int) -> Conversation[None]:
        """Compare clusters with one model on held-out rows, and go on with what does better."""
        one = self.history[self._split - 1] if self._split else self.models
        for earlier in range(self._split or number + 1, number + 1):
            beside: AveragedUpdates = self._algorithm.beside(self._plan.question, earlier, one)
            total = yield self._plan.ask_averages(beside, earlier)
            one = frozen_array(beside.averaged(total.statistics, one))
        question = self._algorithm.held_out(
            self._plan.question,
            number,
            one=one,
            start=self.history[0],
            passes=self._algorithm.passes,
            **self._clusters,
        )
        found = (yield self._plan.ask(question, number, ())).statistics
        if found["clients"][0] < 0.5:
            return
        self._comparison = Comparison(found["right"] / float(found["clients"][0]))
        if self._comparison.one_is_better:
            self.models, self._parents = one, [-1]
            self._structure, self._step = self._structure + 1, Regrouping()

    def _decide(self, seen: Updates, number: int) -> Conversation[Decision]:
        """Decide about clusters; where clients hold rows out, these choose whether, and how many.

        From few clusters to many, the first ones are taken after which the loss rises. One cluster may stay.
        """
        if self._comparison is not None and self._comparison.one_is_better:
            return Decision()
        held = self._algorithm.looks(self._plan)
        best = self._rule.decide(seen, number, self._training.seed + number, held)
        others = best.others if number <= self._training.held_until else ()
        least = math.inf
        if others and (seen.n_clusters == 1 or self._rule.numbered):
            least = yield from self._loss(seen, best, number)
        for one in others:
            found = yield from self._loss(seen, one, number)
            if found >= least:
                break
            best, least = one, found
        return best

    def _loss(self, seen: Updates, decision: Decision, number: int) -> Conversation[float]:
        """Ask for the loss on held-out rows of what the models would be after a decision."""
        step = self._regrouping(seen, decision, number)
        clusters = {
            "models": self._averaged(seen, decision),
            "structure": self._structure + (step.n_clusters > 0),
            "before": step if step.n_clusters else self._step,
        }
        question = self._algorithm.held_out(self._plan.question, number, **clusters)
        total = yield self._plan.ask(question, number, (), sketches=True)
        return float(total.statistics["loss"][0])

    def end(self) -> Conversation[ModelsOutcome]:
        """Tell clients of the last clustering; where averages are asked for, these told them."""
        if self._algorithm.averages_itself(self._plan):
            now = {"before": self._step, "structure": self._structure, "n_clusters": len(self.models)}
            question = self._plan.question(ClusterSizes, **now)
            yield Ask(question, self._plan.label(self._training.rounds), (EVERYONE,), "sizes")
        parents = tuple(self._parents) if self._rule.numbered else ()
        return ModelsOutcome(
            self.models,
            tuple(self.history),
            tuple(self.regrouped),
            self._structure,
            parents,
            self._comparison,
        )

    def _sketches(self, number: int) -> Conversation[Updates]:
        """Ask for sketches, and return what is seen of them."""
        plan = self._plan
        question = self._algorithm.sketches(plan, plan.question, number, self._decay, **self._clusters)
        slots = question if self._algorithm.slotted else None
        share = SKETCH_SHARE / self._training.rounds
        shares = share * (1.0 - ORIGIN_SHARE), share * ORIGIN_SHARE
        total = yield plan.ask(question, number, shares, sketches=True)
        seen = contributions(slots, total, plan.private)
        labels = np.array([one["origin"].argmax() for one in seen], dtype=np.intp)
        known = sketched(self.models, self._size, self._training.public_seed)
        table = np.stack([one["sketch"] for one in seen])
        variance = self._variance(total.contributors, number)
        # Running means all start from the average of the models.
        starts = known[labels] if not self._rule.decay else np.broadcast_to(known.mean(axis=0), table.shape)
        weights = np.concatenate([one["rows"] for one in seen]) if self._training.by_rows else None
        return Updates(starts, table, labels, len(self.models), variance, weights)

    def _variance(self, contributors: Sequence[int], number: int) -> float:
        """Return the variance of the noise in each number of a sketch: that of the noisiest client."""
        for name in contributors:
            self._noise[name] = self._noise.get(name, MeanNoise()).followed(
                self._own_variance(number), self._decay
            )
        return max(self._noise[name].variance for name in contributors)

    def _next_decay(self, seen: Updates, decision: Decision, number: int) -> float:
        """Return the decay of the next round: less, once no cluster was new for as long as means reach back.

        What is not told apart yet needs the longest means.
        """
        most = self._rule.decay
        if len(self.models) > seen.n_clusters:
            self._newest = number
        if not (seen.variance and most) or (number - self._newest) * (1.0 - most) < 1.0 - 1e-9:
            return most
        found = shortest_decay(seen.updates, decision.after(seen), seen.variance, self._own_variance(number))
        return min(most, max(self._rule.least_decay, found))

    def _own_variance(self, number: int) -> float:
        """Return the variance that a round's noise has in each number of a sketch."""
        training, size = self._training.at(number), self.models.shape[1]
        # What is clipped is no longer than its bound, noise included.
        return float(min(training.noise_variance, training.max_update_norm**2 / size) * size / self._size)

    def _regrouping(self, seen: Updates, decision: Decision, number: int) -> Regrouping:
        if decision.labels is None or decision.landmarks is None:
            return Regrouping()
        chosen, seed = decision.landmarks, self._training.public_seed
        if self._algorithm.finds_itself(self._plan):
            chosen, models = np.arange(len(seen.labels)), np.zeros((0, 1))
            landmarks = tags(seen.updates, seed)
        else:
            size = self._algorithm.landmark_size(self._plan)
            models, landmarks = (sketched(one, size, seed) for one in (self.models, seen.updates[chosen]))
        return Regrouping(
            seed=seed,
            metric=self._algorithm.landmark_metric,
            before=self._structure,
            n_clusters=decision.n_clusters,
            round=number,
            models=frozen_array(models),
            landmarks=frozen_array(landmarks),
            origins=frozen_array(seen.labels[chosen]),
            labels=frozen_array(decision.labels[chosen]),
            n_parameters=self._plan.n_parameters,
        )

    def _otherwise(self, seen: Updates, decision: Decision) -> FloatArray:
        """Return the models of clusters that nobody is in: those they come from."""
        if decision.labels is None or decision.landmarks is None:
            return self.models
        if not self._rule.numbered:
            # Each cluster's landmark has its number.
            return np.asarray(self.models[seen.labels[decision.landmarks]])
        return np.resize(self.models, (decision.n_clusters, self.models.shape[1]))

    def _averaged(self, seen: Updates, decision: Decision) -> FloatArray:
        """Return the averages of the updates that the server holds itself."""
        labels, otherwise = decision.after(seen), self._otherwise(seen, decision)
        update, origin = np.zeros_like(otherwise), np.zeros((len(otherwise), len(self.models)))
        weights = np.ones(len(labels)) if seen.weights is None else seen.weights
        for label, weight, one in zip(labels, weights, seen.updates, strict=True):
            update[label] += weight * one
        np.add.at(origin, (labels, seen.labels), weights)
        return frozen_array(averaged(self.models, update, origin, otherwise))

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
