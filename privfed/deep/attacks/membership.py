"""Membership inference from models: a row that was trained on has a lower loss than before the training.

The score of a row is how far its loss fell from the first models that were sent to the last, in the cluster
where the loss is lowest at the end (Yeom et al. 2018, arXiv 1709.01604, section 3.2, whose attack takes the
loss alone; the loss before takes away how hard a row is by itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.prior import Prior
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.results import NotRun
from privfed.attacks.membership.scores import MembershipScores
from privfed.core.asking.question import Question
from privfed.core.record.view import View
from privfed.core.values.domain import FloatArray
from privfed.deep.training.rounds import Round
from privfed.deep.training.trainer import Labels
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised
from privfed.questions.slots import Slots


def round_of(question: Question | None) -> Round | None:
    """Return the round of training in a question, without noise and slots; None where there is none."""
    while isinstance(question, Noised | Slots):
        question = question.inner
    return question if isinstance(question, Round) else None


@dataclass(frozen=True)
class ModelMembership(PassiveAttack[MembershipScores]):
    """Scores candidates by how far training lowered their loss.

    Args:
        candidates: rows, float64 of shape (n_candidates, n_columns), with times where the clients' have them.
        labels: their classes, int64 of shape (n_candidates,).
    """

    candidates: FloatArray
    labels: Labels

    name: ClassVar[str] = "model-membership"
    paper: ClassVar[str] = "Yeom et al. 2018; the loss before the training taken off: ours"
    adversary: ClassVar[str] = "passive server, or a client"
    view: ClassVar[str] = "the models that are sent to clients"
    algorithms: ClassVar[tuple[str, ...]] = ("FedAvg", "IFCA", "CFL", "DCFL")
    prior: ClassVar[str] = "candidates with their labels"
    defence: ClassVar[str] = "DP-SGD, or noised updates; no secure sum hides the models"

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Rounds of training, whose questions hold the models."""
        return (
            Reads(
                what="rounds of training",
                shown=Shows.TOTALS,
                use=lambda question: round_of(question) is not None,
            ),
        )

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> MembershipScores | NotRun:
        rounds = [found for one in view.sums if (found := round_of(one.question)) is not None]
        if len(rounds) < 2:
            return NotRun(attack=self.name, why="it compares models before and after, and saw one round only")
        if self.labels.shape != self.candidates.shape[:1]:
            raise ArgumentError("model membership needs one label for each candidate.")
        before, after = self._losses(rounds[0]).mean(axis=0), self._losses(rounds[-1]).min(axis=0)
        unknown = np.full(len(self.candidates), np.nan)
        return MembershipScores(attack=self.name, queries=len(rounds), scores=before - after, mu=unknown)

    def _losses(self, one: Round) -> FloatArray:
        """Return the candidates' losses under each model, float64 of shape (n_models, n_candidates)."""
        trainer = one.training.trainer(one.ranges.n_features)
        width = one.ranges.n_features - 2 * one.training.timed
        rows = self.candidates[:, :width]
        return np.stack([trainer.losses(model, rows, self.labels) for model in one.models])
