"""The interface of a sum that clients open: how an answer is sealed, added and opened.

`client`, `relay` and `session` do the rest: set-up, headers, hash chain, tags, repeats. A scheme is
stateless and holds no key; both sides use the same object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from privfed.core.values.domain import FloatArray
from privfed.privacy.pricing import Drawn
from privfed.protocols.answering import RangedAnswer
from privfed.protocols.client_opened.state import Group
from privfed.protocols.client_opened.sum_attempt import SumAttempt


@dataclass(frozen=True, slots=True)
class Opened:
    """Holds an opened total.

    Args:
        vector: the sum, float64 of shape (question.spec.size,).
        clipped: rows and entries that the contributors clipped.
        contributors: positions of the clients in the sum, ascending.
        integers: the total as encoded integers, which the hash chain runs over.
    """

    vector: FloatArray
    clipped: int
    contributors: tuple[int, ...]
    integers: bytes


class Adder(Protocol):
    """Adds sealed answers on the coordinator, as they arrive, without learning anything of them."""

    def add(self, client: int, body: bytes | memoryview, name: str) -> None:
        """Check one sealed answer's form and add it.

        Raises:
            MessageError: it is not well formed; `name` is its sender.
        """

    def result(self) -> tuple[tuple[int, ...], bytes]:
        """Return the positions of the clients in the sum, ascending, and the sealed sum.

        Clients whose answers do not fit the others' are left out.
        """


class Scheme(Protocol):
    """Seals, adds and opens answers."""

    @property
    def whole(self) -> bool:
        """Whether every member must contribute; if one does not, the sum is asked again without it."""

    @property
    def pairwise(self) -> bool:
        """Whether every two clients need a shared key (`Group.pairs`); else only the leader shares keys."""

    def check(self, question: bytes, n_clients: int) -> None:
        """Check, before any client is asked, that the total of a cohort fits the grid.

        Raises:
            ArgumentError: it does not; the message says what helps.
        """

    def draw(self) -> tuple[bytes, bytes]:
        """Draw, on the leader, the scheme's own secret; return it and what the coordinator is shown of it.

        The secret becomes `Group.extra` of every client; both are empty if the group's secret G is enough.
        """

    def upload(self, group: Group, attempt: SumAttempt, own: RangedAnswer) -> bytes:
        """Return a client's sealed answer, which is never empty."""

    def open(self, group: Group, attempt: SumAttempt, body: bytes) -> Opened:
        """Open a sealed total; any bytes that the coordinator sends are either valid or refused.

        Raises:
            IntegrityError: it is not the sum of the contributions to this attempt.
        """

    def noised(self, body: bytes, noise: Drawn, n_clients: int) -> bytes:
        """Add the coordinator's noise to the sealed sum of a cohort of `n_clients`.

        Raises:
            IntegrityError: the sum has another layout, so the clients did not answer the agreed question.
        """

    def adder(self, public: bytes) -> Adder:
        """Return the coordinator's adder for one attempt; `public` is what the leader showed it."""
