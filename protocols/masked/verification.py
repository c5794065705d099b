"""Check words of verified totals: what clients add to their answers, so that all of them can check a total.

With x_i the integers of client i's answer, r_l secret coefficients and rho_i a secret blind, client i appends

    c_i = sum_l r_l x_il + rho_i  mod 2^192

to its words, under three further words of the same masks. The server opens X = sum x_i and c = sum c_i over
U, and knows neither r nor rho. Verifiers compare c with sum_l r_l X_l + sum of rho_i over the named U. So
another X passes with probability 2^-64 (`privfed.protocols.crypto.keystream`), and another U or a multiple
of both, as (2X, 2c), no likelier than a guess of 192 bits. Who knows G learns no c_i: its words are masked.

    r   = stream of Expand(G, "check words" | place)
    rho = stream of Expand(G, "check blinds" | place), 24 bytes for each client, by position
    place = session, r, index, head, H(cohort), P, metric

No question is in a place: machines may compute floats that differ in the last bit, and who was not asked
checks the total by what its own replay asks. `head` chains the totals.

`Delivery` is what the coordinator keeps for clients: the totals that each lacks, and their secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from privfed.core.stored.encoding import Message
from privfed.errors import MessageError
from privfed.protocols.crypto.fixed_point import Grid, Words
from privfed.protocols.crypto.keys import bound, digest, expand
from privfed.protocols.crypto.keystream import CHECK_BYTES, added, check_of, keystream
from privfed.protocols.masked.masked_messages import (
    CollectRequest,
    EarlierSum,
    Invitation,
    OpenedSum,
    Relayed,
    VerifiedRequest,
)
from privfed.protocols.setup.rules import Rules
from privfed.protocols.setup.simulated import totals_kept

CHECK_WORDS = CHECK_BYTES // 8


@dataclass(frozen=True, slots=True)
class Place:
    """Says which sum a total is of.

    Args:
        session: the fit's session.
        number: number of the sum.
        index: index of the sum in the run.
        head: head of the chain of all totals before.
        cohort: H(Q), the cohort's digest.
        prepared: P, one byte for each member of the cohort.
        metric: which of the agreed metrics asks it, as in `NextQuestion`; the coordinator need not know.
    """

    session: bytes
    number: int
    index: int
    head: bytes
    cohort: bytes
    prepared: bytes
    metric: int = -1

    def key(self, secret: bytes, tag: str) -> bytes:
        """Return a key of this place under the clients' secret G."""
        parts = (self.session, self.number, self.index, self.head, self.cohort, self.prepared)
        return expand(secret, bound(tag, *parts, self.metric + 1))

    def next_head(self, contributors: bytes, words: bytes) -> bytes:
        """Return the chain's head after this sum's total.

        Args:
            contributors: U, one byte for each member of the cohort.
            words: the total as integers of the grid, little-endian.
        """
        parts = (self.head, self.number, self.index, self.cohort, self.prepared, contributors, words)
        return digest("masked chain", self.session, *parts)


def first_head(session: bytes, before: bytes) -> bytes:
    """Return the head of a set-up's chain before any total.

    Args:
        session: the set-up's session.
        before: head after the last total of an earlier set-up; empty where there was none.
    """
    return digest("masked chain", session, *([before] if before else []))


def check_words(words: Words, grid: Grid, secret: bytes, place: Place, clients: Sequence[int]) -> int:
    """Return c_i of a client's own answer, or the sum of those of a total, as one integer.

    Args:
        words: the answer, or the total, on the grid and without masks.
        grid: the grid of the sum.
        secret: the clients' secret G.
        place: the sum.
        clients: positions of those whose answers are in it.
    """
    return added(check_of(words, grid, place.key(secret, "check words")), _blinds(secret, place, clients))


def _blinds(secret: bytes, place: Place, clients: Sequence[int]) -> int:
    """Return the sum of the blinds rho_i of some clients, modulo 2^192."""
    stream = keystream(place.key(secret, "check blinds"), CHECK_WORDS * (max(clients) + 1))
    halves = stream.reshape(-1, CHECK_WORDS)[list(clients)].astype("<u8").view("<u4")
    # Each column adds at most 2^32 halves of 32 bits, so that no sum exceeds 64 bits.
    sums = halves.astype(np.uint64).sum(axis=0)
    return added(0, sum(int(one) << 32 * place for place, one in enumerate(sums)))


class Delivery:
    """Keeps opened totals until the clients have them, and what the client that leads sealed for them.

    Args:
        agreement: configuration and registry.
        session: the fit's session.
        listed: positions of the clients of the list.
        earlier: what was kept of the totals of earlier set-ups, in order.

    Attributes:
        n_totals: how many totals were opened in this set-up.
        leader: the client that drew the clients' secret; None before.
        head: that of the chain over all totals.
    """

    def __init__(
        self, agreement: Rules, session: bytes, listed: tuple[int, ...], earlier: Sequence[Relayed] = ()
    ) -> None:
        self._session, self._digest = session, agreement.digest
        self._kept = totals_kept(agreement.configuration)
        self._totals: list[OpenedSum] = []
        self.n_totals = 0
        self._heard = dict.fromkeys(listed, 0)
        self._invited: set[int] = set()
        self._boxes: dict[int, bytes] = {}
        self.leader: int | None = None
        self._earlier = tuple(one.sum for one in earlier[-self._kept :])
        self.head = first_head(session, earlier[-1].head if earlier else b"")

    def lead(self, client: int, invitations: tuple[Invitation, ...], name: str) -> None:
        """Keep what the first client that leads sealed for others.

        Raises:
            MessageError: they are not clients of the list.
        """
        if any(one.client not in self._heard for one in invitations):
            raise MessageError("an invitation of somebody else", sender=name, stage="prepare")
        if invitations and self.leader in (None, client):
            self.leader = client
            self._boxes |= {one.client: one.box for one in invitations}

    def uninvited(self, clients: Iterable[int]) -> bool:
        """Say whether a client lacks the clients' secret, and there is none to send."""
        known = {self.leader, *self._invited, *self._boxes}
        return any(client not in known for client in clients)

    def request(self, client: int, collect: CollectRequest) -> Message:
        """Return what one client is sent: the totals that it lacks, and the question."""
        behind = self.n_totals - self._heard[client]
        totals = tuple(self._totals[-behind:]) if behind else ()
        if client in self._invited:
            return VerifiedRequest(collect, self.leader or 0, b"", totals)
        return VerifiedRequest(collect, self.leader or 0, self._boxes.get(client, b""), totals, self._earlier)

    def heard(self, client: int) -> None:
        """Note that a client answered, and so has the clients' secret and all totals so far."""
        self._heard[client] = self.n_totals
        self._invited.add(client)

    def opened(self, place: Place, label: int, contributors: bytes, words: Words) -> Relayed:
        """Chain a total that was opened, keep it for the clients, and return it for another process.

        Args:
            place: which sum it is of.
            label: the cohort's label.
            contributors: U, one byte for each member of the cohort.
            words: the total on the grid, and its check words.
        """
        data = words.astype("<u8").tobytes()
        total, check = data[: -8 * CHECK_WORDS], data[-8 * CHECK_WORDS :]
        one = OpenedSum(place.number, place.index, label, place.prepared, contributors, total, check)
        self._totals, self.n_totals = [*self._totals, one][-self._kept :], self.n_totals + 1
        self.head = place.next_head(contributors, total)
        return Relayed(self._digest, EarlierSum(self._session, one), self.head)
