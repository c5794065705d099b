"""Counts of classes: how many rows of each class a client has, from its update of one round.

A softmax regression that is trained in one step moves its biases by the shares of the classes: their gradient
is mean p - shares. Early models have p nearly the same on all rows of the domain, so that shares follow up to
a doubt that the domain tells. Shares of n rows are whole counts over n: where n is not shown, the least that
fits is taken, as long as chance would hardly fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privfed.attacks.base.preparation import Prior
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import NotRun, Result, Truth
from privfed.core.asking.question import Question
from privfed.core.record.records import View
from privfed.deep.attacks.linkage import with_labels
from privfed.deep.attacks.updates import OnOneStep, Seen, clients_of, likely_of, rank_of
from privfed.deep.training.rounds import Round
from privfed.numerics.kernels.interpreted import IntArray

MOST_ROWS = 1000
"""Most rows of a client that are tried."""

CHANCE = 0.05
"""Chance of a fit of random shares up to which counts are claimed."""


@dataclass(frozen=True, kw_only=True)
class ClassesCounted(Result):
    """Claims of how many rows of each class clients have.

    Args:
        counts: of each client that is claimed, integers of shape (n_classes,).
        whose: the client of each of these; None where the attack cannot tell.
    """

    counts: Sequence[IntArray] = field(repr=False)
    whose: Sequence[int | None]

    def score(self, truth: Truth) -> Report:
        """Compare the counts with those of all clients: right is who has all of its classes right.

        Raises:
            ArgumentError: the truth has no labels.
        """
        truth = with_labels("counts of classes", truth)
        left = [np.bincount(own[own >= 0]).tolist() for own in truth.labels]
        right = 0
        for counts, whose in zip(self.counts, self.whose, strict=True):
            wanted = np.trim_zeros(counts, "b").tolist()
            among = range(len(left)) if whose is None else [whose]
            found = next((i for i in among if left[i] == wanted), None)
            if found is not None:
                right, left[found] = right + 1, []
        return Report(
            attack=self.attack,
            goal="clients whose rows of all classes are counted",
            recovered=right / len(truth.labels),
            precision=right / len(self.counts),
            claims=len(self.counts),
            linked=None not in self.whose,
            queries=self.queries,
            seconds=self.seconds,
        )


@dataclass(frozen=True)
class ClassCounts(OnOneStep[ClassesCounted]):
    """Counts the rows of each class of clients that train a softmax regression in one step a round.

    Args:
        rows: number of rows of each client, where it is known; 0 for one that is not.
    """

    rows: int = 0

    name: ClassVar[str] = "class-counts"
    paper: ClassVar[str] = "the gradient of biases: ours"
    updates: ClassVar[str] = "updates of a softmax regression"

    def use(self, question: Question) -> bool:
        """Say whether answers are updates of one step of a softmax regression, on all rows."""
        if not super().use(question) or not isinstance(question, Round):
            return False
        one = question.training
        return one.model == "softmax" and one.round > one.held_until

    def _attack(self, view: View, prior: Prior, rng: np.random.Generator) -> ClassesCounted | NotRun:
        clients = list(clients_of(view, rng, self.use))
        told = [(found, who) for who, seen in clients if (found := self._counted(seen)) is not None]
        if not told:
            why = "no client's counts of classes fit beyond chance; who knows their rows may find more"
            return NotRun(attack=self.name, why=why)
        counts, whose = zip(*told, strict=True)
        used = max(len(seen) for _, seen in clients)
        return ClassesCounted(attack=self.name, queries=used, counts=counts, whose=whose)

    def _counted(self, seen: Sequence[Seen]) -> IntArray | None:
        """Return a client's rows of each class; None where nothing fits, or too much would by chance."""
        first, known = seen[0], self.rows or seen[0].rows
        n_classes, likely = len(first.model.T), likely_of(first)
        shares = likely - first.gradient[-1]
        # Two and a half deviations of means that are anywhere in their ranges.
        slopes = likely * (first.model[:-1] - (first.model[:-1] @ likely)[:, None])
        doubt = 2.5 * np.sqrt(first.ranges.width**2 / 12.0 @ slopes**2) + first.error
        rank, chance, divides = rank_of(seen), 0.0, 0.0
        for n in [known] if known else range(max(1, rank), MOST_ROWS + 1):
            counts: IntArray = np.rint(n * shares).astype(np.intp)
            # Fewer rows than there are axes show their number. Counts add up, so that one class follows.
            if not known and not n == rank < min(len(first.model), len(seen) * (n_classes - 1)):
                chance += float(np.sort(np.minimum(2.0 * n * doubt, 1.0))[:-1].prod())
                # About one in 2^m has m counts with a common divisor, so that fewer rows fit, too.
                divides = 0.5 ** np.count_nonzero(counts)
            if (n * doubt).max() > 0.5 or chance > CHANCE:
                return None
            if counts.sum() == n and counts.min() >= 0 and (np.abs(n * shares - counts) <= n * doubt).all():
                return counts if divides + chance <= CHANCE else None
        return None
