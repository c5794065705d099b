"""What a sum that clients open is made of: how an answer is sealed, added and opened.

The frame (`client`, `relay`, `session`) does the rest: set-up, headers, chain, tags, repeats. A scheme
is stateless; both sides hold the same object, and no key is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from privfed.core.conversation import Total
from privfed.core.domain import FloatArray
from privfed.privacy.server_noise import Drawn
from privfed.protocols.answering import RangedAnswer
from privfed.protocols.client_opened.state import Group
from privfed.protocols.client_opened.sum_attempt import Posed, SumAttempt


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened total.

    Args:
        vector: the sum, float64 of shape (question.spec.size,).
        clipped: rows and entries that the contributors clipped.
        contributors: positions of those in the sum, ascending.
        integers: the total as integers, encoded; the chain runs over these.
    """

    vector: FloatArray
    clipped: int
    contributors: tuple[int, ...]
    integers: bytes


class Adder(Protocol):
    """Adds sealed answers on the coordinator, as they arrive; it learns nothing of them."""

    def add(self, client: int, body: bytes, name: str) -> None:
        """Check one sealed answer's form and add it.

        Raises:
            MessageError: it is not well formed; `name` is its sender.
        """

    def result(self) -> tuple[tuple[int, ...], bytes]:
        """Return who is in the sum, ascending, and the sealed sum; those left out do not fit the others."""


class Scheme(Protocol):
    """How answers are sealed, added and opened."""

    @property
    def whole(self) -> bool:
        """Whether every member must contribute: a sum that lacks one is asked again without it."""

    @property
    def pairwise(self) -> bool:
        """Whether each two clients need a key (`Group.pairs`); else only the leader has one with each."""

    def check(self, question: bytes, n_clients: int) -> None:
        """Check, before anybody is asked, that the total of a cohort fits the grid.

        Raises:
            ArgumentError: it does not; the message says what helps.
        """

    def draw(self) -> tuple[bytes, bytes]:
        """Return, on the leader, the scheme's own secret and what the coordinator is shown of it.

        The secret becomes `Group.extra` of every client; both are empty where G is enough.
        """

    def upload(self, group: Group, attempt: SumAttempt, own: RangedAnswer) -> bytes:
        """Return a client's sealed answer, not empty."""

    def open(self, group: Group, attempt: SumAttempt, body: bytes) -> Opened:
        """Open a sealed total, whatever bytes the coordinator sent.

        Raises:
            IntegrityError: it is not the sum of the contributions to this very attempt.
        """

    def noised(self, body: bytes, noise: Drawn, n_clients: int) -> bytes:
        """Add the coordinator's noise to the sealed sum of a cohort of so many.

        Raises:
            IntegrityError: the sum is of another layout: clients answered what was not agreed on.
        """

    def adder(self, public: bytes) -> Adder:
        """Return the coordinator's adder of one attempt; `public` is what the leader showed."""


class Replica(Protocol):
    """One client's own run of the algorithm: it knows the next question from the totals so far."""

    def ask(self, index: int) -> Posed:
        """Return what sum `index` asks.

        Raises:
            MessageError: this replica has not come to that sum.
        """

    def tell(self, index: int, total: Total) -> None:
        """Take an opened total. The same one may be told again, after a crash of the client."""
