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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Phases
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.deep.algorithms.plan import ModelsOutcome, Plan, RoundForms
from privfed.deep.training.regrouping import Regrouping
from privfed.deep.training.rounds import AveragedUpdates

UPDATE_SHARE = 0.9
"""Share of a round's budget for the updates; the rest is for how many clients they are of."""


def shares(rounds: int, part: float = 1.0) -> dict[str, float]:
    """Return the weights of `AveragedUpdates` in a run under differential privacy.

    Args:
        rounds: that the budget is divided by.
        part: share of a round's budget that the question has.
    """
    return {"update": part * UPDATE_SHARE / rounds, "origin": part * (1.0 - UPDATE_SHARE) / rounds}


def limits(max_update_norm: float) -> dict[str, float]:
    """Return the L2 limits of a client's answer to `AveragedUpdates`."""
    return {"update": max_update_norm, "origin": 1.0}


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
        plan: options of the run.
        n_clusters: number of models.
        divide: whether a model that nobody takes is put beside one that many take (`divided`).
    """

    fixed: ClassVar[bool] = False

    plan: Plan
    n_clusters: int = 1
    divide: bool = False

    @property
    def max_sums(self) -> int:
        """Most sums: the range, and one a round."""
        return 1 + self.plan.rounds

    @property
    def _choice(self) -> str:
        return "lowest-loss" if self.n_clusters > 1 else "kept"

    def size(self, setting: Setting) -> Size:
        """Return how large its models are, and all totals of its rounds."""
        return self.plan.size(setting, self.n_clusters)

    def phases(self, setting: Setting) -> Phases:
        """Return what a run asks: the ranges where none are declared, then one question a round."""
        forms = RoundForms(self.plan, setting)
        rounds = range(1, self.plan.rounds + 1)
        return (*forms.found, *(forms.averaged(t, self.n_clusters, self._choice) for t in rounds))

    def run(self, setting: Setting) -> Conversation[ModelsOutcome]:
        """Train round by round."""
        ranges = yield from self.plan.ranges(setting)
        history = [self.plan.starts(setting.n_features, self.n_clusters)]
        private = setting.privacy is not None
        for number in range(1, self.plan.rounds + 1):
            question = self._question(ranges, history[-1], number)
            total = yield Ask(
                question,
                self.plan.label(number),
                (self.plan.label(number + 1),),
                weights=shares(self.plan.rounds) if private else None,
                limits=limits(self.plan.first.max_update_norm) if private else None,
            )
            models = question.averaged(total.statistics, history[-1])
            if self.divide and number < self.plan.rounds:
                weights = total.statistics["origin"].sum(axis=1)
                models = divided(models, history[-1], weights, self.plan.training(number).seed + number)
            history.append(frozen_array(models))
        return ModelsOutcome(history[-1], tuple(history))

    def _question(self, ranges: Ranges, models: FloatArray, number: int) -> AveragedUpdates:
        options = self.plan.asked(number, models=models, choice=self._choice, after=Regrouping.none())
        return AveragedUpdates(ranges=ranges, **options)
