"""Prepares an attack for a run: its target, its knowledge besides the view, and the truth for scoring.

The party that prepares an attack has the clients' rows, for scoring, in a `Target`. Of these the attack
itself gets only the rows of its colluders and, for membership inference, candidates that may be members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from privfed.attacks.base.measures import IntArray
from privfed.attacks.base.prior import Prior
from privfed.attacks.base.results import Truth
from privfed.core.values.domain import FloatArray

Made = TypeVar("Made")


class Aim(Enum):
    """Says which clients an attack targets."""

    EVERYONE = "all clients together"
    ONE_CLIENT = "one client"
    SHOWN_CLIENT = "one client where the view shows its answers, else all clients together"


@dataclass(frozen=True, kw_only=True)
class Target:
    """Describes a run for the preparation of attacks.

    Args:
        clients: rows of every client, by position.
        labels: of these rows, where a run trains on them; None for other runs.
        colluding: positions of clients that help the attacker; their rows are no gain.
        helping: those of them whose answers are still in the view's totals, for the attacker to subtract.
        shows_answers: whether the view holds the answers of single clients.
        client: position of the target of attacks on one client; None leaves it to their parameters.
        public: public rows of the same kind, float64 of shape (n, n_features); None without.
        public_labels: theirs, integers of shape (n,); None without.
        ends: lowest and highest value of each feature, if they are known; None without.
        gdp_mu: mu of the run's differential privacy; None without.
        most_rows: most rows of a target, for attacks whose time grows with these.
        most_candidates: most candidates of membership inference, half of them members; None for all rows.
        seed: seed of what is drawn to prepare an attack.
    """

    clients: Sequence[FloatArray]
    labels: Sequence[IntArray] | None = None
    colluding: tuple[int, ...] = ()
    helping: tuple[int, ...] = ()
    shows_answers: bool = False
    client: int | None = None
    public: FloatArray | None = None
    public_labels: IntArray | None = None
    ends: tuple[FloatArray, FloatArray] | None = None
    gdp_mu: float | None = None
    most_rows: int = 200
    most_candidates: int | None = None
    seed: int = 0

    @property
    def prior(self) -> Prior:
        """Knowledge of the attacker."""
        low, high = self.ends or (None, None)
        rows = {i: self.clients[i] for i in self.helping}
        return Prior(sample=self.public, low=low, high=high, n_clients=len(self.clients), colluders=rows)

    @property
    def truth(self) -> Truth:
        """What attacks are scored against."""
        return Truth(self.clients, colluding=self.colluding)

    def parameters(self, aim: Aim) -> Mapping[str, Any]:
        """Return the attack's parameters that follow from its aim."""
        if self.client is None or aim is Aim.EVERYONE:
            return {}
        return {"client": self.client if aim is Aim.ONE_CLIENT or self.shows_answers else None}


@dataclass(frozen=True)
class Prepared(Generic[Made]):
    """Holds an attack that is ready to run.

    Args:
        attack: the attack with its parameters.
        prior: knowledge that it gets besides the view.
        truth: the truth that it is scored against.
    """

    attack: Made
    prior: Prior
    truth: Truth
