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

from privfed.core.agreed.agreement import Size
from privfed.core.asking.phases import Phases
from privfed.core.roles.conversation import Ask, Conversation, Setting
from privfed.core.values.domain import FloatArray, Ranges, frozen_array
from privfed.deep.algorithms.phases import RoundForms
from privfed.deep.algorithms.plan import ModelsOutcome, Plan
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


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """FedAvg, or with several models IFCA.

    Args:
        plan: words of the run.
        n_clusters: number of models.
    """

    fixed: ClassVar[bool] = False

    plan: Plan
    n_clusters: int = 1

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
                limits=limits(self.plan.max_update_norm) if private else None,
            )
            history.append(frozen_array(question.averaged(total.statistics, history[-1])))
        return ModelsOutcome(history[-1], tuple(history))

    def _question(self, ranges: Ranges, models: FloatArray, number: int) -> AveragedUpdates:
        none = Regrouping.none()
        return AveragedUpdates(
            ranges=ranges,
            training=self.plan.training(number),
            models=models,
            structure=0,
            choice=self._choice,
            metric="complete",
            numbered=True,
            before=none,
            after=none,
        )
