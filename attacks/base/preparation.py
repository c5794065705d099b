"""How an attack is set up on a run: whom it goes for, what it knows beside the view, what it is scored with.

Who sets an attack up has the clients' rows, for scoring: a `Target` holds them. Of these the attack itself
gets those of its colluders, and, to tell members from others, candidates that are members or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from privfed.attacks.base.prior import Prior
from privfed.attacks.base.results import Truth
from privfed.core.domain import FloatArray

Made = TypeVar("Made")


class Aim(Enum):
    """Whom an attack goes for."""

    EVERYONE = "all clients together"
    ONE_CLIENT = "one client"
    SHOWN_CLIENT = "one client where the view shows its answers, else all clients together"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A run, as attacks are set up on it.

    Args:
        clients: rows of every client, by position.
        colluding: positions of clients that help the attacker; their rows are no gain.
        helping: those of them whose part is still in the view's totals: the attacker takes it out by itself.
        shows_answers: whether the view holds the answers of single clients.
        client: position of the client that attacks on one client go for; None leaves it to their words.
        public: public rows of the same kind, float64 of shape (n, n_features); None without.
        ends: lowest and highest value of each feature, where they are known; None without.
        gdp_mu: mu of the run's differential privacy; None without.
        most_rows: of a target that an attack takes on whose time grows with them.
        most_candidates: that are told apart, half of them members; None for all rows.
        seed: of what is drawn to set an attack up.
    """

    clients: Sequence[FloatArray]
    colluding: tuple[int, ...] = ()
    helping: tuple[int, ...] = ()
    shows_answers: bool = False
    client: int | None = None
    public: FloatArray | None = None
    ends: tuple[FloatArray, FloatArray] | None = None
    gdp_mu: float | None = None
    most_rows: int = 200
    most_candidates: int | None = None
    seed: int = 0

    @property
    def prior(self) -> Prior:
        """What the attacker brings."""
        low, high = self.ends or (None, None)
        rows = {i: self.clients[i] for i in self.helping}
        return Prior(sample=self.public, low=low, high=high, n_clients=len(self.clients), colluders=rows)

    @property
    def truth(self) -> Truth:
        """What attacks are scored against."""
        return Truth(self.clients, colluding=self.colluding)

    def words(self, aim: Aim) -> Mapping[str, Any]:
        """Return the constructor's words that follow from whom an attack goes for."""
        if self.client is None or aim is Aim.EVERYONE:
            return {}
        return {"client": self.client if aim is Aim.ONE_CLIENT or self.shows_answers else None}


@dataclass(frozen=True)
class Prepared(Generic[Made]):
    """An attack that is set up.

    Args:
        attack: with its words.
        prior: what it is given beside the view.
        truth: what it is scored against.
    """

    attack: Made
    prior: Prior
    truth: Truth
