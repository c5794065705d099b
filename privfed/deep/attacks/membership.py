"""Membership inference from models: a row that was trained on has a lower loss than before the training.

The score of a row is how far its loss fell from the first models that were sent to the last. It is taken in
the cluster where the loss is lowest at the end (Yeom et al. 2018, arXiv 1709.01604, section 3.2, whose attack
takes the loss alone; the loss before takes away how hard a row is by itself). With shadow fits it is LiRA's
or RMIA's (`privfed.deep.attacks.shadows`): these know how hard a row is from models that were not trained on
it.

Where totals of updates are shown, they say more: a client's update of one step is a sum of its rows'
gradients at the model that was sent. So the score is each candidate's share in all totals together, by
ridge regression on the candidates' gradients (`shares_in_updates`). Of several steps this is approximate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.results import NotRun
from privfed.attacks.membership.membership import candidates_of
from privfed.attacks.membership.scores import MembershipScores
from privfed.core.asking.question import Question, parts_of
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.deep.attacks.shadows import Shadow, scored, shadows_of
from privfed.deep.training.local import TIMES
from privfed.deep.training.rounds import AveragedUpdates, Round, SketchedUpdates
from privfed.deep.training.trainer import Labels, whole
from privfed.errors import ArgumentError


def round_of(question: Question | None) -> Round | None:
    """Return the round of training in a question, without noise and slots; None where there is none."""
    parts = () if question is None else parts_of(question)
    return next((one for one in parts if isinstance(one, SketchedUpdates | AveragedUpdates)), None)


def _trains(question: Question) -> bool:
    return round_of(question) is not None


_PENALTY = 1e-2
"""Of a share in updates, beside a gradient's mean square: what several steps do is no sum of gradients."""


def check_alone(name: str, target: Target) -> None:
    """Check that nobody helps: what colluders trained is no sum that could be taken out of a total.

    Raises:
        ArgumentError: somebody does.
    """
    if target.helping:
        raise ArgumentError(f"{name} is for a server alone; name no colluding clients.")


@dataclass(frozen=True)
class ModelMembership(PassiveAttack[MembershipScores]):
    """Scores candidates by how far training lowered their loss.

    Args:
        candidates: rows, float64 of shape (n_candidates, n_columns), with times where the clients' have them.
        labels: their classes, int64 of shape (n_candidates,).
        shadows: how many fits of halves of the candidates the attacker makes; or (in Python) fits of its own.
            With none the fall of the loss is the score.
        statistic: how candidates are compared with shadow fits, "lira" or "rmia".
    """

    candidates: FloatArray
    labels: Labels
    shadows: int | Sequence[Shadow] = 0
    statistic: Literal["lira", "rmia"] = "lira"

    name: ClassVar[str] = "model-membership"
    paper: ClassVar[str] = "Yeom et al. 2018; LiRA, Carlini et al. 2022; RMIA, Zarifzadeh et al. 2024"
    adversary: ClassVar[str] = "passive server, or a client"
    view: ClassVar[str] = "the models that are sent to clients, and totals of their updates"
    prior: ClassVar[str] = "candidates with their labels; shadow fits, if there are any"
    defence: ClassVar[str] = "DP-SGD, or noised updates; no secure sum hides the models"
    public_rows: ClassVar[int] = 2

    @classmethod
    def prepare(cls, target: Target, parameters: Mapping[str, Any]) -> Prepared[Self]:
        """Take rows that were trained on for candidates, and public rows with labels that were not."""
        if target.labels is None:
            # Such a run trains on nothing: the attack has nothing to read there.
            empty = {"candidates": target.clients[0][:0], "labels": np.zeros(0, dtype=np.int64)}
            return Prepared(cls._made({**parameters, **empty}), target.prior, target.truth)
        if target.public is None or target.public_labels is None:
            raise ArgumentError(
                "model membership compares with public rows that were not trained on: pass some with labels."
            )
        check_alone(cls.name, target)
        # Labels are a last column. Rows without a class train nothing.
        beside = (np.column_stack(one) for one in zip(target.clients, target.labels, strict=True))
        rows = [np.asarray(own[own[:, -1] >= 0], dtype=np.float64) for own in beside]
        public = np.column_stack([target.public, target.public_labels])
        members, others, _ = candidates_of(replace(target, clients=rows), public)
        both = np.concatenate([members, others])
        made = cls._made({**parameters, "candidates": both[:, :-1], "labels": both[:, -1].astype(np.int64)})
        inside = np.arange(len(both)) < len(members)
        return Prepared(made, target.prior, replace(target.truth, members=inside))

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Rounds of training, whose questions hold the models."""
        return (Reads(what="rounds of training", shown=Shows.TOTALS, use=_trains),)

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> MembershipScores | NotRun:
        rounds = [found for one in view.sums if (found := round_of(one.question)) is not None]
        if len(rounds) < 2:
            return NotRun(attack=self.name, why="it compares models before and after, and saw one round only")
        if not len(self.candidates):
            why = "it needs rows with labels, and the folder of a run of nodes or from Python names none"
            return NotRun(attack=self.name, why=f"{why}: name their column with --label")
        if self.labels.shape != self.candidates.shape[:1]:
            raise ArgumentError("model membership needs one label for each candidate.")
        if self.statistic not in ("lira", "rmia"):
            raise ArgumentError(f'statistic must be "lira" or "rmia", got {self.statistic!r}.')
        shadows = self.shadows
        first, last = rounds[0], rounds[-1]
        trainer = first.training.trainer(first.ranges.n_features)
        rows = self.candidates[:, : first.ranges.n_features - TIMES * first.training.timed]

        def losses(models: FloatArray) -> FloatArray:
            return np.stack([trainer.losses(model, rows, self.labels) for model in models])

        if isinstance(shadows, int):
            plain = [replace(one, training=replace(one.training, timed=False)) for one in rounds]
            shadows = shadows_of(plain, rows, self.labels, shadows, max(len(view.clients), 1), rng)
        told = None if shadows else shares_in_updates(view, rows, self.labels)
        if shadows:
            scores = scored(self.statistic, losses, last.models, shadows)
        elif told is not None:
            scores = told
        else:
            scores = losses(first.models).mean(axis=0) - losses(last.models).min(axis=0)
        unknown = np.full(len(self.candidates), np.nan)
        return MembershipScores(attack=self.name, queries=len(rounds), scores=scores, mu=unknown)


def shares_in_updates(view: View, rows: FloatArray, labels: Labels) -> FloatArray | None:
    """Return each row's share in the totals of one model's updates, up to a factor; None without totals.

    Args:
        view: what a party saw.
        rows: float64 of shape (n_rows, n_features).
        labels: their classes, (n_rows,).
    """
    gram, right = np.zeros((len(rows), len(rows))), np.zeros(len(rows))
    for one in view.sums:
        found = round_of(one.question)
        if found is None or one.total is None or "update" not in one.total or len(one.total["update"]) > 1:
            continue
        trainer = found.training.trainer(found.ranges.n_features)
        # A step goes against the gradient; its rate and the clients' sizes are a common factor.
        added = -np.asarray(whole(trainer.gradients(found.models[0], rows, labels)), dtype=np.float64)
        gram += added @ added.T
        right += added @ one.total["update"][0]
    if not right.any():
        return None
    penalty = _PENALTY * np.trace(gram) / len(rows)
    return np.asarray(np.linalg.solve(gram + penalty * np.eye(len(rows)), right))
