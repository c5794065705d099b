"""R-DPCFL, an algorithm of one's own: clusters from the first round's updates and then from clients' choices.

Malekmohammadi, Taik, Farnadi: Differentially Private Clustered Federated Learning, TMLR 2025, openreview
JSsko0a4yr. In the first round all clients train one model, by batches of all their rows, whose noise is least
against what they learn. Their updates are clustered by a mixture of Gaussians
(`examples.rdpcfl.mixture`). The more these overlap, the shorter they are followed: in the rounds up
to (1 - overlap) T / 2 each client draws its cluster by its chances. In the next rounds, a tenth of all, each
chooses the model that gets most of its rows right, under noise; afterwards it keeps its cluster.

Read from the paper's abstract and the authors' public code; where these are silent, or we differ:

- A cluster's first model is the mean of what all clients trained to in the first round, weighted by their
  chances in it (the code takes one client's model for all clusters).
- Principal components are those of the updates as they are; the code scales each parameter to find them, and
  then applies them to updates that are not scaled.
- A choice is by counts of right rows with Gaussian noise, which composes with the steps of DP-SGD; theirs by
  accuracies with Gumbel noise, scaled by a client's number of rows, which would have to be public.
- A client that was not in the first round draws with equal chances until it chooses. One that comes after the
  choices joins the nearest cluster, as in DCFL.

Reveals to whoever opens the totals: in the first round every client's update, over slots not whose; then the
sum of updates in each cluster and how many clients they are of. To clients: the models, and the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from examples.rdpcfl.choosing import noised_choice
from examples.rdpcfl.mixture import MOST_CLUSTERS, PLANE, Mixture, fitted_mixture, overlap, shares
from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Among, Phases
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Algorithm, Conversation
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.deep.algorithms.plan import ModelsOutcome, Plan, Regrouped
from privfed.deep.algorithms.regrouped import contributions
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.estimators.clustered import check_merge
from privfed.deep.training.local import Training
from privfed.deep.training.memory import Memory
from privfed.deep.training.rounds import AveragedUpdates, SketchedUpdates
from privfed.extend import (
    ArgumentError,
    Ask,
    DataError,
    Form,
    Phase,
    PrivacyError,
    Same,
    Setting,
    Shape,
    parameter,
    parameters,
    register,
    register_algorithm,
)
from privfed.privacy.sampler import noise_source
from privfed.questions.slots import Slots


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class MixedUpdates(AveragedUpdates):
    """Ask for the sums of updates in each cluster, where clients draw or choose their cluster.

    `choice` is "drawn": by its chances in the mixture, or with equal ones where it sent no update in the
    first round; "most-right": the model that gets most of its rows right (`examples.rdpcfl.choosing`);
    or "kept": that of the round before.

    Args:
        mixture: of the first round's updates.
    """

    choices: ClassVar[tuple[str, ...]] = ("drawn", "most-right", "kept")
    mixture: Mixture

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.mixture.means) != len(self.models) or self.mixture.axes.shape[1] != self.models.shape[1]:
            raise ArgumentError(
                f"a mixture of {len(self.mixture.means)} clusters does not fit {len(self.models)} models."
            )
        if self.training.private and self.choice == "most-right" and not self.training.choice_noise:
            raise ArgumentError(
                "under DP-SGD a choice by rows needs choice_noise.", parameters=["choice_noise"]
            )

    def _own(self, client: ClientData, memory: Memory, generator: np.random.Generator) -> int:
        """Return a client's cluster in this round."""
        if len(self.models) == 1:
            return 0
        if self.choice == "drawn":
            return self._drawn(memory, generator)
        if self.choice == "most-right":
            return self._most_right(client, generator)
        return super()._own(client, memory, generator)

    def _drawn(self, memory: Memory, generator: np.random.Generator) -> int:
        chances = np.full(len(self.models), 1.0 / len(self.models))
        if memory.first is not None:
            chances = self.mixture.chances(memory.first[None])[0]
        found = int(np.searchsorted(np.cumsum(chances), generator.random(), side="right"))
        return min(found, len(self.models) - 1)

    def _most_right(self, client: ClientData, generator: np.random.Generator) -> int:
        training = self.training
        trainer = training.trainer(client.n_features)
        features, labels = training.rows_of(client)
        if training.private:
            bits = noise_source(generator)
            return noised_choice(trainer, self.models, features, labels, training.choice_noise, bits)
        right = [int((trainer.predict(one, features) == labels).sum()) for one in self.models]
        return int(np.argmax(right)) if len(features) else 0


@register_algorithm
@dataclass(frozen=True, kw_only=True)
class MixtureLearning:
    """Rounds of training in clusters that the first round's updates and clients' choices make.

    Args:
        training: of the run.
        n_clusters: number of models; None for the number whose Gaussians are farthest apart.
        choosing_rounds: rounds in which clients choose.
        slotted: whether the first round's updates come in slots, so that nobody knows whose they are.
    """

    fixed: ClassVar[bool] = False

    training: Training
    n_clusters: int | None
    choosing_rounds: int
    slotted: bool

    @property
    def max_sums(self) -> int:
        """Most sums: the range, and one a round."""
        return 1 + self.training.rounds

    def size(self, setting: Setting) -> Size:
        """Return how large its models are, and all totals of its rounds."""
        return Plan(self.training, setting).size(self.n_clusters or 1)

    def _asked_first(self, plan: Plan, make: Callable[..., Any], models: object) -> Any:
        """Return the question of the first round, or its form."""
        size, seed = plan.n_parameters, self.training.public_seed
        inner = make(SketchedUpdates, training=self.training, models=models, size=size, seed=seed)
        return make(Slots, inner=inner, slots=plan.n_clients) if self.slotted else inner

    def _asked(self, make: Callable[..., Any], number: int, **own: object) -> Any:
        """Return the question of a later round, or its form."""
        return make(MixedUpdates, training=self.training.at(number), structure=1, **own)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges where none are declared, updates, then averages."""
        plan = Plan(self.training, setting)
        count = (1, MOST_CLUSTERS) if self.n_clusters is None else self.n_clusters
        mixture = Form(
            Mixture,
            axes=Shape(PLANE, plan.n_parameters),
            low=Shape(PLANE),
            width=Shape(PLANE),
            means=Shape(count, PLANE),
            variances=Shape(count),
        )
        rules = {"choice": Among(MixedUpdates.choices), "mixture": Same("mixture", mixture)}
        models, rounds = Shape(count, plan.n_parameters), range(2, self.training.rounds + 1)
        later = (self._asked(plan.form, t, models=models, **rules) for t in rounds)
        first = self._asked_first(plan, plan.form, plan.models(1, 1))
        return (*plan.found, *map(Phase, (first, *later)))

    def run(self, setting: Setting) -> Conversation[ModelsOutcome]:
        """Train round by round."""
        plan = Plan(self.training, setting)
        yield from plan.find_ranges()
        start = plan.starts(1)
        updates = yield from self._first(plan, start)
        mixture = fitted_mixture(updates, self.n_clusters, self.training.seed)
        models = frozen_array(start + shares(mixture, updates))
        drawn = int((1.0 - overlap(mixture.means, mixture.variances)) * self.training.rounds / 2.0)
        history, decided = [start, models], [Regrouped(1, len(models), np.nan, True)]
        for number, choice in self._rounds(drawn):
            question = self._asked(plan.question, number, models=models, choice=choice, mixture=mixture)
            total = yield Ask(question, plan.label(number), (plan.label(number + 1),))
            models = frozen_array(question.averaged(total.statistics, models))
            history.append(models)
            decided.append(Regrouped(number, len(models), np.nan, choice != "kept"))
        return ModelsOutcome(models, tuple(history), tuple(decided), structure=1)

    def _rounds(self, drawn: int) -> Iterator[tuple[int, str]]:
        """Yield the rounds after the first, and how clients find their cluster in each."""
        for number in range(2, self.training.rounds + 1):
            chosen = number <= drawn + self.choosing_rounds
            yield number, "drawn" if number <= drawn else "most-right" if chosen else "kept"

    def _first(self, plan: Plan, start: FloatArray) -> Conversation[FloatArray]:
        """Ask for the first round's updates, float64 of shape (n, n_parameters)."""
        question = self._asked_first(plan, plan.question, start)
        total = yield Ask(question, plan.label(1), (plan.label(2),), "sketches")
        updates = [one["sketch"] for one in contributions(question if self.slotted else None, total, False)]
        least = max(3, self.n_clusters or 0)
        if len(updates) < least:
            raise DataError(
                f"{len(updates)} clients in the first round are too few for clusters: at least {least}."
            )
        return np.stack(updates)


@parameters
class RDPCFL(FederatedModel):
    """Clusters by the first round's updates, then by clients' choices (Malekmohammadi et al. 2025, R-DPCFL).

    Made for DP-SGD at each client (`privacy` at unit "record"); without privacy it trains by plain SGD.

    Reveals: this module.
    """

    n_clusters: int | None = parameter(
        default=None,
        bounds="[1, inf)",
        text="number of models; None takes the number whose Gaussians are farthest apart in the first round.",
    )
    first_rate: float = parameter(
        default=1.0,
        bounds="(0, 1]",
        text="with DP-SGD: chance of a row to be in a step's batch in the first round; 1 takes all rows.",
    )
    choosing_share: float = parameter(
        default=0.1,
        bounds="[0, 1]",
        text="share of the rounds in which clients choose their cluster by their rows.",
    )
    choice_noise: float = parameter(
        default=20.0,
        bounds="(0, 1048576]",
        text="with DP-SGD: ratio of the noise of a choice's counts to their L2 sensitivity.",
    )
    merge: Literal["slotted", "gathered"] = parameter(
        default="slotted",
        text='how the first round\'s updates meet; "slotted": the server does not see whose they are, or '
        '"gathered": it sees every client\'s (only with `protocol="plain"`).',
    )

    @property
    def slotted_sums(self) -> int:
        """The first round's updates come in slots."""
        return 1 if self.merge == "slotted" else 0

    def _check(self) -> None:
        super()._check()
        if self.rounds < 2:
            raise ArgumentError(f"R-DPCFL clusters after its first of at least 2 rounds, got {self.rounds}.")
        if self.privacy is not None and self._by_dp_sgd is None:
            raise PrivacyError(
                'R-DPCFL protects records, by DP-SGD at each client; use unit="record", or DCFL or FedAvg at '
                'unit="client".'
            )

    def make_algorithm(self, training: Training) -> Algorithm[ModelsOutcome]:
        """Check the parameters and return the algorithm."""
        return MixtureLearning(
            training=training,
            n_clusters=self.n_clusters,
            choosing_rounds=round(self.choosing_share * training.rounds),
            slotted=check_merge(self.merge, self._secure_sum()),
        )
