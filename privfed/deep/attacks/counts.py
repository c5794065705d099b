"""Counts and shares of classes: how many rows of each class a client has, from its update of one round.

A softmax regression that is trained in one step moves its biases by the shares of the classes: their gradient
is mean p - shares. Early models have p nearly the same on all rows of the domain, so that shares follow up to
a doubt that the domain tells. Shares of n rows are whole counts over n: where n is not shown, the least that
fits is taken, as long as chance would hardly fit.

After several steps, and of other networks, the biases of the last layer tell the shares. They are those with
which the same training, of public rows under labels drawn so, moves the biases alike: this has what models
learn between the steps. Shares that do not do so are not claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privfed.attacks.base.preparation import Prior
from privfed.attacks.base.report import Report
from privfed.attacks.base.results import NotRun, Result, Truth
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.deep.attacks.linkage import data_of, owners_of, with_labels
from privfed.deep.attacks.updates import (
    OnWholeUpdates,
    Seen,
    Update,
    clients_of,
    gradients_of,
    likely_of,
    rank_of,
)
from privfed.numerics.kernels.interpreted import IntArray

MOST_ROWS = 1000
"""Most rows of a client that are tried."""

PUBLIC = 512
"""Rows that stand for clients' rows where training is repeated, and most of one client without batches."""

TURNS, COPIES = 3, 5
"""How often shares are corrected, by the mean of so many trainings."""

UNEXPLAINED = 0.5
"""Most of the biases' update, by its length, that repeated training may leave."""

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


@dataclass(frozen=True, kw_only=True)
class ClassShares(Result):
    """Claims of which share of clients' rows each class has.

    Args:
        shares: of each client that is claimed, float64 of shape (n, n_classes).
        whose: the client of each of these; None where the attack cannot tell.
        first: the update that each is of, so that the truth can train again.
    """

    shares: FloatArray = field(repr=False)
    whose: Sequence[int | None]
    first: Sequence[Update] = field(repr=False)

    def score(self, truth: Truth) -> Report:
        """Compare the shares with the clients', beside guessing those of all clients' rows for each.

        Raises:
            ArgumentError: the truth has no labels.
        """
        truth = with_labels("shares of classes", truth)
        counts = [np.bincount(own[own >= 0], minlength=self.shares.shape[1]) for own in truth.labels]
        own = np.stack([one / max(1, one.sum()) for one in counts])
        named = [one for one in self.whose if one is not None]
        if len(named) < len(self.shares):
            everybody, moved = range(len(own)), np.stack([one.moved for one in self.first])
            named = owners_of(self.first[0].question, everybody, moved, data_of(truth))
        found, guessed = (
            float(np.abs(one - own[named]).sum(axis=1).mean() / 2.0)
            for one in (self.shares, own.mean(axis=0))
        )
        return Report(
            attack=self.attack,
            goal="1 - total variation of clients' shares of classes / of guessing all clients' shares",
            recovered=1.0 - found / guessed if guessed else 0.0,
            claims=len(self.shares),
            linked=None not in self.whose,
            baseline=0.0,
            queries=self.queries,
            seconds=self.seconds,
            details={"total variation": found, "total variation, guessed": guessed},
        )


@dataclass(frozen=True)
class ClassCounts(OnWholeUpdates[ClassesCounted | ClassShares]):
    """Counts the rows of each class of clients that train a softmax regression in one step a round.

    Of more steps and other networks it tells the shares of classes.

    Args:
        rows: number of rows of each client, where it is known; 0 for one that is not. Then the least number
            of steps is taken that leaves no client a negative share.
    """

    rows: int = 0

    name: ClassVar[str] = "class-counts"
    paper: ClassVar[str] = "the gradient of biases, and training again: ours"

    def _attack(
        self, view: View, prior: Prior, rng: np.random.Generator
    ) -> ClassesCounted | ClassShares | NotRun:
        clients = list(clients_of(view, rng))
        counted = [self._counted([one for one in gradients_of(seen) if not one.held]) for _, seen in clients]
        counts, whose = [one for one in counted if one is not None], [who for who, _ in clients]
        if clients and len(counts) == len(clients):
            used = max(len(seen) for _, seen in clients)
            return ClassesCounted(attack=self.name, queries=used, counts=counts, whose=whose)
        first = [seen[0] for _, seen in clients]
        shares = self._shares(first, prior, rng) if first else []
        told = [i for i, one in enumerate(shares) if one is not None]
        if not told:
            why = "no training of public rows moves the last biases as clients' training did"
            return NotRun(attack=self.name, why=f"{why}: others may tell more")
        return ClassShares(
            attack=self.name,
            queries=1,
            shares=np.stack([one for one in shares if one is not None]),
            whose=[whose[i] for i in told],
            first=[first[i] for i in told],
        )

    def _shares(
        self, first: Sequence[Update], prior: Prior, rng: np.random.Generator
    ) -> list[FloatArray | None]:
        """Return each client's shares of classes; None where no training moves the biases so."""
        question = first[0].question
        training, ranges = question.training, question.ranges
        n, size = training.n_classes, training.batch_size
        known = prior if prior.sample is not None else Prior(low=ranges.low, high=ranges.high)
        public, trainer = known.guesses(PUBLIC, rng), training.trainer(ranges.n_features)
        assert public is not None

        def likely(start: FloatArray) -> FloatArray:
            one = [trainer.losses(start, public, np.full(PUBLIC, label)).astype(float) for label in range(n)]
            return np.asarray(np.exp(-np.stack(one, axis=1)).mean(axis=0))

        before = [likely(one.start) for one in first]
        moved = [one.moved[-n:] / training.decayed_rate for one in first]
        least = max(float((-by / p).max()) for by, p in zip(moved, before, strict=True))
        rows = self.rows or (PUBLIC if size is None else size * math.ceil(least / training.epochs))
        drawn = (public[rng.integers(PUBLIC, size=one.rows or rows)] for one in first)
        return [_explaining(*four, rng) for four in zip(first, moved, before, drawn, strict=True)]

    def _counted(self, seen: Sequence[Seen]) -> IntArray | None:
        """Return a client's rows of each class; None where nothing fits, or too much would by chance."""
        if not seen or not seen[0].whole or seen[0].steps > 1:
            return None
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


def _explaining(
    one: Update, moved: FloatArray, likely: FloatArray, public: FloatArray, rng: np.random.Generator
) -> FloatArray | None:
    """Return the shares of classes with which training of public rows moves the biases so; None without."""
    training, n, rows = one.question.training, len(moved), len(public)
    steps, places = (
        training.epochs * -(-rows // (training.batch_size or rows)),
        (np.arange(rows) + 0.5) / rows,
    )
    shares, trained = np.zeros(n), -likely * steps
    for _ in range(TURNS + 1):
        shares = np.clip(shares + (moved - trained) / steps, 0.0, None)
        shares /= shares.sum()
        found = np.zeros(n)
        for _ in range(COPIES):
            labels = rng.permutation(np.searchsorted(np.cumsum(shares)[:-1], places))
            found += training.update(ClientData(public, labels), one.start, rng)[-n:]
        trained = found / (COPIES * training.decayed_rate)
    left = np.linalg.norm(moved - trained)
    return shares if left <= UNEXPLAINED * np.linalg.norm(moved) else None
