"""What the coordinator of masked sums does before a sum: the set-up, clients' keys, and their preparations.

Clients join by answering the list; whoever missed it gets it again with each exchange. Up to `FULL_GRAPH`
clients the list brings each the keys that it encapsulates to; above, where all share one copy of the long
list, and for cohorts that are drawn, keys come with later requests, to neighbours only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NoReturn

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.roles.engine import Exchange, gather
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.encoding import Refusal, encode
from privfed.protocols.crypto.keys import (
    CIPHERTEXT_BYTES,
    new_secret,
)
from privfed.protocols.masked.announced import Announced
from privfed.protocols.masked.messages import (
    Agreed,
    LeadRequest,
    Prepared,
    PrepareRequest,
    Relayed,
    Unmasking,
    Upload,
)
from privfed.protocols.masked.verification import Delivery
from privfed.protocols.setup.advertising import (
    with_keys,
)
from privfed.protocols.setup.graph import FULL_GRAPH
from privfed.protocols.setup.hybrid import Ahead
from privfed.protocols.setup.messages import (
    Slot,
)
from privfed.protocols.setup.parties import Coordinator
from privfed.protocols.setup.rules import Rules, needed_to_open


class Preparing(Coordinator):
    """Sets up a fit, and has clients agree on keys and prepare sums.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
    """

    def __init__(self, agreement: Agreement, identity: Signer) -> None:
        self._agreement: Rules
        super().__init__(Rules.of(agreement), identity, needed_to_open)
        self._longest = 1 << 20
        self._announced = Announced(self._agreement, b"")
        self._missed: set[int] | None = None
        self._unprepared: dict[int, str] = {}
        self._delivery: Delivery | None = None
        self._earlier: list[Relayed] = []

    # Set-up.

    def open(self) -> Steps[None]:
        """Collect keys, then relay the list of clients; the first cohorts prepare in that same exchange."""
        everyone = self._everyone
        came = yield from self._advertised(new_secret(), everyone)
        self._announced = Announced(self._agreement, self._session)
        self._is_small = len(everyone) <= FULL_GRAPH
        if self._is_small:
            for client in came:
                self._pairing.want(client, came)
        if self._agreement.configuration.terms.verified:
            self._delivery = Delivery(self._agreement, self._session, tuple(came), self._earlier)
            self._longest += 128 * len(everyone)
        self._longest += (CIPHERTEXT_BYTES + 64) * len(everyone)

    def _fail(
        self, missing: Iterable[int], n_left: int, needed: int, stage: str, refused: Mapping[int, str]
    ) -> NoReturn:
        self._announced.coming.clear()
        super()._fail(missing, n_left, needed, stage, refused)

    # Agreeing on keys, and preparing.

    def _rosters(self, clients: Iterable[int]) -> dict[int, bytes]:
        """Return the list for clients; where it is long, all share one copy, and keys come later."""
        if not self._is_small:
            return dict.fromkeys(clients, encode(self._roster)) if (clients := tuple(clients)) else {}
        return {i: encode(with_keys(self._roster, self._pairing.offered(i))) for i in clients}

    def _ahead(self, client: int, slots: tuple[Slot, ...], *, last: bool = True) -> Ahead:
        """Return what any request brings a client for sums to come.

        Args:
            client: position of the client.
            slots: the sums.
            last: whether it has to prepare them now, whatever keys it still waits for.
        """
        joined, chosen = self._channels, list[Slot]()
        for slot in self._announced.lacking(client, slots):
            if not self._is_small:
                self._pairing.want(client, self._neighbours(slot.cohort, client))
            members = self._agreement.cohort(slot.cohort).place
            if not last and self._pairing.waits(client, members, joined):
                # Blocks are prepared in their order: chains go forward only.
                break
            chosen.append(slot)
        return tuple(chosen), self._pairing.offered(client), self._pairing.capsules(client)

    def _neighbours(self, cohort: int, client: int) -> tuple[int, ...]:
        return self._agreement.neighbours(self._session, cohort, client).clients

    def _ask_to_prepare(
        self, number: int, slots: tuple[Slot, ...], others: Container[int], *, last: bool = True
    ) -> dict[int, bytes]:
        """Return requests to clients that lack a preparation, but for `others`, who get another request."""
        requests = self._rosters(i for i in self._listed if i not in self._channels and i not in others)
        for client, channel in self._channels.items():
            if client not in others:
                ahead = self._ahead(client, slots, last=last)
                if any(ahead):
                    requests[client] = channel.down.seal(number, "prepare", PrepareRequest(*ahead))
        return requests

    def _prepared(self, client: int, data: bytes, number: int) -> None:
        """Read the reply of a client that was asked to join, or to prepare."""
        if client not in self._channels:
            self._joined(client, data)
            return
        reply = self._opened(client, data, number, "prepare", Prepared)
        if isinstance(reply, Refusal):
            self._unprepared[client] = reply.code
            return
        self._take(client, reply, "prepare")
        if self._delivery is not None and reply.invitations:
            self._delivery.lead(client, reply.invitations, self._name(client))
        self._unprepared.pop(client, None)

    def _take(self, client: int, reply: Prepared | Upload | Unmasking, stage: str) -> None:
        """Keep what a reply brings for sums to come."""
        name = self._name(client)
        self._announced.keep(client, reply.preparations, name, stage)
        self._pairing.take(client, reply.capsules, name, stage)
        self._pairing.heard(client)
        if self._delivery is not None:
            self._delivery.lead(client, reply.invitations, name)

    def _joined(self, client: int, data: bytes) -> None:
        """Read the reply to the list."""
        reply = self._joining(client, data, "agree", Agreed)
        if isinstance(reply, Refusal):
            self._unprepared[client] = reply.code
        else:
            self._unprepared.pop(client, None)

    def _block(self, cohort: int, needed: int, excluded: set[int]) -> Steps[tuple[int, int]]:
        """Return a block that enough of a cohort have prepared, if need be just now, and its next number."""
        block, number = self._announced.next_of(cohort, self._channels)
        if len(self._announced.coming[block].preparations.keys() - excluded) >= needed:
            return block, number
        slots, members = (Slot(block, cohort),), self._agreement.cohort(cohort).members
        if self._missed is None or sum(i in self._channels for i in members) < needed:
            yield from self._exchanged("agree", number, self._ask_to_prepare(number, (), ()))
            self._missed = set(self._listed) - set(self._channels)
            self._require(self._channels, members, "agree", self._unprepared)
            self._announced.coming[block].joined = frozenset(self._channels)
        if not self._is_small:
            yield from self._agree(number, slots, members)
        requests = self._ask_to_prepare(number, slots, ())
        leader = min(self._channels)
        if self._delivery is not None and self._delivery.leader is None:
            requests[leader] = self._channels[leader].down.seal(
                number, "prepare", LeadRequest(*self._ahead(leader, slots))
            )
        yield from self._exchanged("prepare", number, requests)
        return block, number

    def _exchanged(self, stage: str, number: int, requests: dict[int, bytes]) -> Steps[None]:
        """Have clients agree on keys or prepare."""
        joined = set(self._channels)
        replies = yield Exchange(stage, number, requests)
        _, rejected = gather(
            replies, requests, lambda i, data: self._prepared(i, data, number if i in joined else 0)
        )
        self._rejected |= rejected

    def _agree(self, number: int, slots: tuple[Slot, ...], members: tuple[int, ...]) -> Steps[None]:
        """Have the members of a cohort agree on keys, where they lack some."""
        if self._delivery is not None and self._delivery.leader is None:
            self._pairing.want(min(self._channels), self._listed, alone=True)
        requests = {}
        for client, channel in self._channels.items():
            ahead = ((), *self._ahead(client, slots)[1:])
            if ahead[1]:
                requests[client] = channel.down.seal(number, "prepare", PrepareRequest(*ahead))
        if requests:
            yield from self._exchanged("agree", number, requests)

    def _led(self, delivery: Delivery, number: int, members: Iterable[int]) -> Steps[None]:
        """See to it that a client drew the clients' secret: another is asked where the lowest was lost.

        Raises:
            NotEnoughClientsError: none did.
        """
        for client in sorted(members):
            leader = delivery.leader
            if leader is None and not self._is_small:
                self._pairing.want(client, self._listed, alone=True)
                agreeing = PrepareRequest((), *self._ahead(client, ())[1:])
                request = self._channels[client].down.seal(number, "prepare", agreeing)
                yield from self._exchanged("agree", number, {client: request})
            if leader is None or (leader == client and delivery.uninvited(members)):
                leading = LeadRequest((), *self._ahead(client, ())[1:])
                request = self._channels[client].down.seal(number, "prepare", leading)
                yield from self._exchanged("prepare", number, {client: request})
        if delivery.leader is None:
            self._fail(self._channels, 0, 1, "prepare", self._unprepared)
