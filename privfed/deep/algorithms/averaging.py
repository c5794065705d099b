"""FedAvg and IFCA: one sum a round, of updates in each cluster.

FedAvg: McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, arXiv 1602.05629, algorithm 1. IFCA: Ghosh,
Chung, Yin, Ramchandran 2020, arXiv 2006.04088, algorithm 1 (model averaging): each client takes the model of
the lowest loss on its own rows and trains it; its per-cluster sums fit secure sums as they are. FedAvg is
IFCA with one model.

Reveals to whoever opens the totals: in each round the sum of the clipped updates of each cluster's clients
and how many they are; with weights by rows how many rows these hold. With one client in a cluster that is its
update. Whoever reads the models learns them all. Only differential privacy bounds what that tells of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Phase, Phases
from privfed.core.roles.conversation import Conversation, Setting
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, frozen_array
from privfed.deep.algorithms.plan import ModelsOutcome, Plan
from privfed.deep.parameters import KnownNumber
from privfed.deep.training.local import Training
from privfed.deep.training.rounds import AveragedUpdates
from privfed.estimators.checking import check_values
from privfed.estimators.declaring import parameters_of


def divided(models: FloatArray, before: FloatArray, weights: FloatArray, seed: int) -> FloatArray:
    """Return models with each one that nobody takes beside one that many take, so that these may part.

    A cluster without clients trains no more, and never gets any (IFCA's authors start anew instead). Two
    groups of clients that share a model pull it in different directions: beside it, on one side of a random
    plane, lies what one of them rather takes. It follows from totals, so that nothing more is asked.

    Args:
        models: after the round, float64 of shape (n_clusters, n_parameters).
        before: those that clients trained in it, of the same shape.
        weights: of the clients of each, float64 of shape (n_clusters,).
        seed: of the directions, public.
    """
    rng, found, left = np.random.default_rng(seed), models.copy(), weights.copy()
    for empty in map(int, np.flatnonzero(weights <= 0.5)):
        fullest = int(left.argmax())
        if left[fullest] < 2.0:
            break
        # As far as a round moves it: nearer, clients could hardly tell the two; farther, nobody would follow.
        step = float(np.linalg.norm(models[fullest] - before[fullest]))
        aside = rng.normal(size=models.shape[1])
        found[empty] = models[fullest] + step * aside / np.linalg.norm(aside)
        left[fullest] = left[empty] = left[fullest] / 2.0
    return found


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """FedAvg, or with several models IFCA.

    Args:
        training: of the run.
        n_clusters: number of models.
        empty: what becomes of a model that nobody takes, as of IFCA: "divide" (`divided`) or "keep".
    """

    fixed: ClassVar[bool] = False

    training: Training
    n_clusters: int = 1
    empty: str = "keep"

    def __post_init__(self) -> None:
        check_values(parameters_of(KnownNumber), asdict(self))

    @property
    def max_sums(self) -> int:
        """Most sums: two for the range, and one a round."""
        return 2 + self.training.rounds

    def _asked(self, make: Callable[..., Any], number: int, models: object) -> Any:
        """Return the question of a round, or its form."""
        choice = "lowest-loss" if self.n_clusters > 1 else "kept"
        return make(AveragedUpdates, training=self.training.at(number), models=models, choice=choice)

    def size(self, setting: Setting) -> Size:
        """Return how large its models are, and all totals of its rounds."""
        return Plan(self.training, setting).size(self.n_clusters)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges where none are declared, then one question a round."""
        plan = Plan(self.training, setting)
        models = (plan.models(t, self.n_clusters) for t in range(1, self.training.rounds + 1))
        return (*plan.found, *(Phase(self._asked(plan.form, t, one)) for t, one in enumerate(models, 1)))

    def run(self, setting: Setting) -> Conversation[ModelsOutcome]:
        """Train round by round."""
        plan, rounds = Plan(self.training, setting), self.training.rounds
        yield from plan.find_ranges()
        history = [plan.starts(self.n_clusters)]
        for number in range(1, rounds + 1):
            question: AveragedUpdates = self._asked(plan.question, number, history[-1])
            total = yield plan.ask_averages(question, number)
            models = question.averaged(total.statistics, history[-1])
            if self.empty == "divide" and number < rounds:
                weights = total.statistics["origin"].sum(axis=1)
                models = divided(models, history[-1], weights, self.training.public_seed + number)
            history.append(frozen_array(models))
        return ModelsOutcome(history[-1], tuple(history))
