"""Membership inference from models: a row that was trained on has a lower loss than before the training.

The score of a row is how far its loss fell from the first models that were sent to the last. It is taken in
the cluster where the loss is lowest at the end (Yeom et al. 2018, arXiv 1709.01604, section 3.2, whose attack
takes the loss alone; the loss before takes away how hard a row is by itself). With shadow fits it is LiRA's
or RMIA's (`privfed.deep.attacks.shadows`): these know how hard a row is from models that were not trained on
it.

Where totals of updates are shown, they say more: a client's update of one step is a sum of its rows'
gradients at the model that was sent. So the score is each candidate's share in all totals together, by
ridge regression on the candidates' gradients (`shares_in_updates`). Of several steps this is approximate.
Where single clients' whole updates are shown, by name or in slots, these are taken in place of totals: then
the question is whether a row is at a client.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.spatial import cKDTree

from privfed.attacks.base.interface import PassiveAttack
from privfed.attacks.base.preparation import Prepared, Prior, Target
from privfed.attacks.base.reading import Reads, Shows
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import NotRun, Truth
from privfed.attacks.membership.membership import candidates_of
from privfed.attacks.membership.scores import MembershipScores, area, chance
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.deep.attacks.linkage import data_of, labelled, owners_of, with_labels
from privfed.deep.attacks.shadows import Shadow, scored, shadows_of
from privfed.deep.attacks.updates import Update, clients_of
from privfed.deep.training.local import TIMES
from privfed.deep.training.rounds import Round, round_of
from privfed.deep.training.trainer import Labels, whole
from privfed.errors import ArgumentError

_PENALTY = 1e-2
"""Of a share in updates, beside a gradient's mean square: what several steps do is no sum of gradients."""


@dataclass(frozen=True, kw_only=True)
class RowsAtClients(MembershipScores):
    """Scores of each candidate at each client whose updates are shown, by name or linked.

    Args:
        each: float64 of shape (n_clients, n_candidates); `scores` are the highest of all clients.
        candidates: the rows, float64 of shape (n_candidates, n_features).
        whose: the client of each row of `each`; None where the attack cannot tell.
        first: the first update of each, so that the truth can train again.
    """

    each: FloatArray
    candidates: FloatArray = field(repr=False)
    whose: Sequence[int | None]
    first: Sequence[Update] = field(repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare scores of rows at the client that trained on them with those of all other pairs."""
        found, named = super().score(truth), [one for one in self.whose if one is not None]
        if len(named) < len(self.each):
            moved, known = np.stack([one.moved for one in self.first]), with_labels("rows at clients", truth)
            named = owners_of(self.first[0].question, range(len(known.clients)), moved, data_of(known))
        rows, owners = truth.rows(None)
        apart, place = cKDTree(rows[:, : self.candidates.shape[1]]).query(self.candidates)
        owner = np.where((apart < 1e-9) & truth.members, owners[place], -1)
        here = np.array(named)[:, None] == owner
        if not here.any():
            return found
        return replace(
            found,
            goal="area under the ROC curve, of rows at clients",
            recovered=area(self.each[here], self.each[~here]),
            chance=chance(here.ravel()),
            linked=None not in self.whose,
            details={**found.details, "auc, at any client": found.recovered},
        )


@dataclass(frozen=True)
class ModelMembership(PassiveAttack[MembershipScores]):
    """Scores candidates by their share in updates, of all clients or of each, or by how their loss fell.

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
    view: ClassVar[str] = "the models that are sent to clients, and their updates or totals of these"
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
        # Labels are a last column. Rows without a class train nothing.
        beside = (np.column_stack(one) for one in zip(target.clients, target.labels, strict=True))
        rows = [np.asarray(own[own[:, -1] >= 0], dtype=np.float64) for own in beside]
        public = np.column_stack([target.public, target.public_labels])
        members, others, _ = candidates_of(replace(target, clients=rows), public)
        both = np.concatenate([members, others])
        made = cls._made({**parameters, "candidates": both[:, :-1], "labels": both[:, -1].astype(np.int64)})
        inside = np.arange(len(both)) < len(members)
        return Prepared(made, target.prior, replace(labelled(cls.name, target), members=inside))

    @property
    def reads(self) -> tuple[Reads, ...]:
        """Rounds of training, whose questions hold the models."""
        return (
            Reads(what="rounds of training", shown=Shows.TOTALS, use=lambda one: round_of(one) is not None),
        )

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
        if not shadows and len(clients := list(clients_of(view, rng))) > 1:
            return self._at_clients(clients, rows, len(rounds))
        told = None if shadows else shares_in_updates(rows, self.labels, totals_of(view))
        if shadows:
            scores = scored(self.statistic, losses, last.models, shadows)
        elif told is not None:
            scores = told[0]
        else:
            scores = losses(first.models).mean(axis=0) - losses(last.models).min(axis=0)
        unknown = np.full(len(self.candidates), np.nan)
        return MembershipScores(attack=self.name, queries=len(rounds), scores=scores, mu=unknown)

    def _at_clients(
        self, clients: Sequence[tuple[int | None, Sequence[Update]]], rows: FloatArray, queries: int
    ) -> RowsAtClients:
        """Return each row's share in each client's updates, in its standard deviations."""
        each, groups = np.zeros((len(clients), len(rows))), dict[tuple[bytes, ...], list[int]]()
        for i, (_, seen) in enumerate(clients):
            # Clients that trained the same models share the rows' gradients there.
            groups.setdefault(tuple(one.start.tobytes() for one in seen), []).append(i)
        for own in groups.values():
            rounds = zip(*(clients[i][1] for i in own), strict=True)
            updates = ((one[0].question, one[0].start, np.stack([of.moved for of in one])) for one in rounds)
            found = shares_in_updates(rows, self.labels, updates)
            each[own] = 0.0 if found is None else found
        each = (each - each.mean(axis=1, keepdims=True)) / (each.std(axis=1, keepdims=True) + 1e-300)
        return RowsAtClients(
            attack=self.name,
            queries=queries,
            scores=each.max(axis=0),
            mu=np.full(len(rows), np.nan),
            each=each,
            candidates=rows,
            whose=[who for who, _ in clients],
            first=[seen[0] for _, seen in clients],
        )


def totals_of(view: View) -> Iterator[tuple[Round, FloatArray, FloatArray]]:
    """Yield rounds of one model, that model and the total of its updates, of shape (1, n_parameters)."""
    for one in view.sums:
        found = round_of(one.question)
        if (
            found is not None
            and one.total is not None
            and "update" in one.total
            and len(one.total["update"]) == 1
        ):
            yield found, found.models[0], one.total["update"]


def shares_in_updates(
    rows: FloatArray, labels: Labels, updates: Iterable[tuple[Round, FloatArray, FloatArray]]
) -> FloatArray | None:
    """Return each row's share in updates, up to a factor, (n_updates, n_rows); None without updates.

    Args:
        rows: float64 of shape (n_rows, n_features).
        labels: their classes, (n_rows,).
        updates: of each round its question, the model that was sent, and updates of it that belong together
            from round to round, float64 of shape (n_updates, n_parameters).
    """
    gram, right = np.zeros((len(rows), len(rows))), np.zeros((0, len(rows)))
    for found, start, moved in updates:
        trainer = found.training.trainer(found.ranges.n_features)
        # A step goes against the gradient; its rate and the clients' sizes are a common factor.
        added = -np.asarray(whole(trainer.gradients(start, rows, labels)), dtype=np.float64)
        gram += added @ added.T
        right = moved @ added.T + (right if len(right) else 0.0)
    if not right.any():
        return None
    penalty = _PENALTY * np.trace(gram) / len(rows)
    return np.asarray(np.linalg.solve(gram + penalty * np.eye(len(rows)), right.T).T)
