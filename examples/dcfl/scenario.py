"""Who takes part when, and whose data change: newcomers, absences and drift as values.

The setting of DCFL (Augello et al. 2023, section III): labels spread over clients by a Dirichlet
distribution, each client's images turned by an angle of its own; every ten rounds one client more; from the
fifth round on, every ten rounds one client at random gets another angle.

Accuracy of each client's own model over the rounds, on images that it was not trained on, is scoring only: it
reads what clients in this process know of their clusters, and nothing of it flows back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from examples.dcfl.images import Images
from privfed.core.values.domain import FloatArray
from privfed.data import by_dirichlet
from privfed.deep.estimators.base import FederatedModel
from privfed.deep.training.trainer import Labels
from privfed.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Drift:
    """A client's images are turned otherwise from a round on.

    Args:
        client: its position.
        round: first round of the new angle.
        degrees: the new angle.
    """

    client: int
    round: int
    degrees: float


@dataclass(frozen=True, slots=True)
class Absence:
    """A client is away from one round to another one, both included."""

    client: int
    first: int
    last: int


MIN_IMAGES = 8
"""Fewest images of a client, of which some are for the test."""


class Tables(NamedTuple):
    """What `fit` takes with `timed=True`: rows with times, and labels, one of each a client."""

    X: list[FloatArray]
    y: list[Labels]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A schedule of rounds.

    Args:
        rounds: number of rounds.
        degrees: angle of each client's images at first.
        joins: round in which each client joins; 1 for those that are there from the beginning.
        drifts: changes of angles.
        absences: when clients that have joined are away.
    """

    rounds: int
    degrees: tuple[float, ...]
    joins: tuple[int, ...]
    drifts: tuple[Drift, ...] = ()
    absences: tuple[Absence, ...] = ()

    def __post_init__(self) -> None:
        if len(self.degrees) != len(self.joins) or not self.degrees:
            raise ArgumentError(f"{len(self.degrees)} angles and {len(self.joins)} first rounds do not fit.")
        if self.rounds < 1 or min(self.joins) < 1:
            raise ArgumentError("rounds are counted from 1 on.")
        named = [one.client for one in self.drifts] + [one.client for one in self.absences]
        if any(not 0 <= client < self.n_clients for client in named):
            raise ArgumentError(f"drifts and absences are of clients 0 to {self.n_clients - 1}.")
        if any(not cohort for cohort in self.cohorts()):
            raise ArgumentError("each round needs a client that takes part.")

    @property
    def n_clients(self) -> int:
        """All that ever take part."""
        return len(self.degrees)

    def cohorts(self) -> list[list[int]]:
        """Return who takes part in each round: `cohorts=` of the estimators."""
        away = {(one.client, t) for one in self.absences for t in range(one.first, one.last + 1)}
        return [
            [i for i, joined in enumerate(self.joins) if joined <= t and (i, t) not in away]
            for t in range(1, self.rounds + 1)
        ]

    def angle(self, client: int, round_number: int) -> float:
        """Return the angle of a client's images in a round."""
        own = [one for one in self.drifts if one.client == client and one.round <= round_number]
        return max(own, key=lambda one: one.round).degrees if own else self.degrees[client]

    def phases(self, client: int) -> list[tuple[int, int, float]]:
        """Return a client's angles in order: first round, first round without it, angle."""
        changes = sorted({0, *(one.round for one in self.drifts if one.client == client)})
        ends = [*changes[1:], self.rounds + 1]
        return [(first, end, self.angle(client, first)) for first, end in zip(changes, ends, strict=True)]

    def tables(self, own: list[Images]) -> Tables:
        """Return rows with times: each client's images, turned as they are in each of its phases."""
        X, y = [], []
        for client, images in enumerate(own):
            phases = self.phases(client)
            times = [np.tile([float(first), float(end)], (len(images.rows), 1)) for first, end, _ in phases]
            turned = [images.turned(degrees) for *_, degrees in phases]
            X.append(np.vstack([np.hstack(pair) for pair in zip(turned, times, strict=True)]))
            y.append(np.tile(images.labels, len(phases)))
        return Tables(X, y)


def dynamic(
    n_clients: int,
    rounds: int,
    rng: np.random.Generator,
    *,
    newcomer_every: int | None = 10,
    drift_from: int | None = 5,
    drift_every: int = 10,
    angles: tuple[float, ...] | None = None,
) -> Scenario:
    """Return DCFL's setting: a newcomer every so many rounds, and drift of a client drawn at random.

    Args:
        n_clients: at the beginning.
        rounds: number of rounds.
        rng: draws angles and who drifts.
        newcomer_every: rounds from one newcomer to the next; None for no newcomers.
        drift_from: first round with a drift; None for no drift.
        drift_every: rounds from one drift to the next.
        angles: that clients' images are turned by, in turn; None for any angle, uniformly.
    """
    late = [] if newcomer_every is None else list(range(newcomer_every + 1, rounds + 1, newcomer_every))
    joins = (*[1] * n_clients, *late)
    degrees = tuple(_angle(rng, angles) for _ in joins)
    drifts = []
    for number in [] if drift_from is None else range(drift_from, rounds + 1, drift_every):
        there = [i for i, joined in enumerate(joins) if joined < number]
        if there:
            drifts.append(Drift(int(rng.choice(there)), number, _angle(rng, angles)))
    return Scenario(rounds=rounds, degrees=degrees, joins=joins, drifts=tuple(drifts))


def _angle(rng: np.random.Generator, angles: tuple[float, ...] | None) -> float:
    return float(rng.uniform(0.0, 360.0) if angles is None else rng.choice(angles))


def skewed(
    images: Images, n_clients: int, alpha: float, rng: np.random.Generator, test_share: float = 0.25
) -> tuple[list[Images], list[Images]]:
    """Spread images over clients, each label by a Dirichlet distribution; for training and for test.

    Args:
        images: to spread.
        n_clients: number of clients.
        alpha: of the Dirichlet distribution: smaller is more skewed.
        rng: draws.
        test_share: share of a client's images that it is not trained on.
    """
    train, test = [], []
    for own in by_dirichlet(images.labels, n_clients, alpha, rng, min_rows=MIN_IMAGES):
        order = rng.permutation(own)
        n_test = max(1, round(test_share * len(order)))
        test.append(images.some(order[:n_test]))
        train.append(images.some(order[n_test:]))
    return train, test


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Accuracies of a run.

    Args:
        accuracy: of each client after each round, float64 of shape (rounds, n_clients); NaN where it was
            away.
    """

    accuracy: FloatArray

    @property
    def final(self) -> tuple[float, float]:
        """Mean and standard deviation over the clients after the last round (table I, "Final")."""
        last = self.accuracy[-1]
        return float(np.nanmean(last)), float(np.nanstd(last))

    @property
    def average(self) -> tuple[float, float]:
        """The same of each round, averaged over the rounds (table I, "Average")."""
        means, spreads = np.nanmean(self.accuracy, axis=1), np.nanstd(self.accuracy, axis=1)
        return float(means.mean()), float(spreads.mean())


def curves(model: FederatedModel, scenario: Scenario, tests: list[Images]) -> Curves:
    """Return how well each client's model does on its test images, turned as in each round."""
    accuracy = np.full((scenario.rounds, scenario.n_clients), np.nan)
    turned: dict[tuple[int, float], FloatArray] = {}
    for t, labels in enumerate(model.labels_history_):
        for client in np.flatnonzero(labels >= 0).tolist():
            angle = scenario.angle(client, t + 1)
            if (client, angle) not in turned:
                turned[client, angle] = tests[client].turned(angle)
            found = model.classify(model.history_[t + 1][labels[client]], turned[client, angle])
            accuracy[t, client] = (found == tests[client].labels).mean()
    return Curves(accuracy)
