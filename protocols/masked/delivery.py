"""What the coordinator of verified totals keeps for clients: the totals that each lacks, and their secret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from privfed.core.stored.encoding import Message
from privfed.errors import MessageError
from privfed.protocols.crypto.fixed_point import Words
from privfed.protocols.masked.messages import (
    CollectRequest,
    EarlierSum,
    Invitation,
    OpenedSum,
    Relayed,
    VerifiedRequest,
)
from privfed.protocols.masked.verification import CHECK_WORDS, Place, first_head
from privfed.protocols.setup.rules import Rules
from privfed.protocols.setup.simulated_replay import totals_kept


class Delivery:
    """Keeps opened totals until the clients have them, and what the client that leads sealed for them.

    Args:
        agreement: configuration and registry.
        session: the fit's session.
        listed: positions of the clients of the list.
        earlier: what was kept of the totals of earlier set-ups, in order.
    """

    def __init__(
        self, agreement: Rules, session: bytes, listed: tuple[int, ...], earlier: Sequence[Relayed] = ()
    ) -> None:
        self._session, self._digest = session, agreement.digest
        self._kept = totals_kept(agreement.configuration)
        self._totals: list[OpenedSum] = []
        self._n_totals = 0
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
        behind = self._n_totals - self._heard[client]
        totals = tuple(self._totals[-behind:]) if behind else ()
        if client in self._invited:
            return VerifiedRequest(collect, self.leader or 0, b"", totals)
        invitation = self._boxes.get(client, b"")
        return VerifiedRequest(collect, self.leader or 0, invitation, totals, self._earlier)

    def heard(self, client: int) -> None:
        """Note that a client answered, and so has the clients' secret and all totals so far."""
        self._heard[client] = self._n_totals
        self._invited.add(client)

    def opened(self, place: Place, label: int, contributors: bytes, words: Words) -> None:
        """Chain a total that was opened, and keep it for the clients.

        Args:
            place: which sum it is of.
            label: the cohort's label.
            contributors: U, one byte for each member of the cohort.
            words: the total on the grid, and its check words.
        """
        data = words.astype("<u8").tobytes()
        total, check = data[: -8 * CHECK_WORDS], data[-8 * CHECK_WORDS :]
        one = OpenedSum(place.number, place.index, label, place.prepared, contributors, total, check)
        self._totals, self._n_totals = [*self._totals, one][-self._kept :], self._n_totals + 1
        self.head = place.next_head(contributors, total)

    @property
    def relayed(self) -> Relayed | None:
        """What another process needs to bring the last total to clients; None before the first."""
        if not self._totals:
            return None
        return Relayed(self._digest, EarlierSum(self._session, self._totals[-1]), self.head)
