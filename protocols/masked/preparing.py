"""What the coordinator of masked sums does before a sum: the set-up, clients' keys, and their preparations.

Clients join by answering the list; whoever missed it gets it again with each exchange. Up to `FULL_GRAPH`
clients the list brings each the keys that it encapsulates to; above, where all share one copy of the long
list, and for cohorts that are drawn, keys come with later requests, to neighbours only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

import numpy as np

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.roles.engine import Exchange, gather
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.encoding import Refusal, encode
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import KEY_BYTES, new_secret
from privfed.protocols.crypto.shamir import Flags, rows
from privfed.protocols.masked.client_state import box_bytes
from privfed.protocols.masked.history import History
from privfed.protocols.masked.masked_messages import (
    Agreed,
    LeadRequest,
    Preparation,
    Prepared,
    PrepareRequest,
    Relayed,
    Unmasking,
    Upload,
)
from privfed.protocols.masked.verification import Delivery
from privfed.protocols.setup.advertising import with_keys
from privfed.protocols.setup.ceilings import MOST_SLOTS
from privfed.protocols.setup.graph import FULL_GRAPH, Places
from privfed.protocols.setup.hybrid import Ahead
from privfed.protocols.setup.parties import Coordinator
from privfed.protocols.setup.rules import Cohort, Rules, needed_to_open
from privfed.protocols.setup.setup_messages import Slot, part


@dataclass
class Coming:
    """Holds a block's cohort, and what its members prepared and were brought.

    Args:
        cohort: the clients that prepare it.
        label: the cohort's label.
        neighbours: places of the neighbours of each, of shape (n, d).
        back: the column in which each stands in its neighbours' rows, of shape (n, d).
        numbers: the block's numbers.
        preparations: what has arrived, by client.
        awaited: client -> those whose capsules it still waited for when it was first asked to prepare.
        used: its highest number that was asked.
    """

    cohort: Cohort
    label: int
    neighbours: Places
    back: Places
    numbers: range
    preparations: dict[int, Preparation] = field(default_factory=dict)
    awaited: dict[int, frozenset[int]] = field(default_factory=dict)
    used: int = 0

    @cached_property
    def brought(self) -> Flags:
        """Whether a member has the box of a neighbour, bool of shape (n, d)."""
        return np.zeros(self.neighbours.shape, dtype=np.bool_)

    @cached_property
    def made(self) -> Flags:
        """Whether a member made a box for a neighbour, bool of shape (n, d)."""
        return np.zeros(self.neighbours.shape, dtype=np.bool_)

    def keep(self, client: int, one: Preparation) -> None:
        """Keep what a member prepared; the first counts."""
        if client not in self.preparations:
            self.preparations[client] = one
            boxes = rows(one.boxes, box_bytes(len(self.numbers)))
            self.made[self.cohort.place[client]] = boxes[:, :KEY_BYTES].any(axis=1)

    def without_box(self, joined: Container[int]) -> Iterator[tuple[int, int]]:
        """Return pairs of clients that joined, of which the first prepared and made no box for the second."""
        for place, column in np.argwhere(~self.made).tolist():
            one, other = (self.cohort.members[i] for i in (place, self.neighbours[place, column]))
            if one in self.preparations and other in joined:
                yield one, other

    @property
    def lengths(self) -> tuple[int, ...]:
        """How long boxes, R, commitments and hashes of keys of a preparation have to be."""
        d, count = self.neighbours.shape[1], len(self.numbers)
        return d * box_bytes(count), d * count * KEY_BYTES, 2 * count * KEY_BYTES, d * KEY_BYTES

    def boxes_for(self, place: int, columns: Places) -> bytes:
        """Return the boxes that neighbours of a member made for it."""
        size, makers, back = box_bytes(len(self.numbers)), self.neighbours[place], self.back[place]
        return b"".join(
            [
                part(self.preparations[self.cohort.members[maker]].boxes, column, size)
                for maker, column in zip(makers[columns].tolist(), back[columns].tolist(), strict=True)
            ]
        )


class Announced:
    """Numbers blocks of future sums, and keeps what clients prepare for them.

    Args:
        agreement: configuration and registry.
        session: the fit's session.

    Attributes:
        coming: number of a block -> what was prepared for it.
        late: clients that came too late for a block, which was given up for that.
    """

    def __init__(self, agreement: Rules, session: bytes) -> None:
        self._agreement, self._session, self._highest = agreement, session, 0
        self.coming, self.late = dict[int, Coming](), set[int]()

    def slots(self, labels: Iterable[int]) -> tuple[Slot, ...]:
        """Give each cohort that may come next a block, unless it has one."""
        have = {coming.label for coming in self.coming.values()}
        for label in dict.fromkeys(labels):
            if label not in have and len(have) < MOST_SLOTS - 1:
                have.add(label)
                self._begin(label)
        return tuple(Slot(block, coming.label) for block, coming in self.coming.items())

    def _begin(self, label: int) -> int:
        """Return a block that no sum had before: clients bind each block to the cohort they prepared."""
        self._highest += 1
        cohort, numbers = self._agreement.cohort(label), self._agreement.numbers(self._highest)
        graph = self._agreement.graph(self._session, label).rows(np.arange(len(cohort.members)))
        self.coming[self._highest] = Coming(cohort, label, *graph, numbers)
        return self._highest

    def next_of(self, cohort: int) -> tuple[int, int]:
        """Return the lowest block that a cohort has, else a new one, and the number of its next sum."""
        known = [block for block, coming in self.coming.items() if coming.label == cohort]
        block = min(known) if known else self._begin(cohort)
        coming = self.coming[block]
        return block, max(coming.used + 1, coming.numbers[0])

    def taken(self, block: int, number: int) -> Coming:
        """Return what was prepared for a sum that begins; blocks that it closes are announced no more."""
        taken = self.coming[block]
        taken.used = number
        self.coming = {b: one for b, one in self.coming.items() if b >= block}
        if number == taken.numbers[-1]:
            self.coming.pop(block)
        return taken

    def lacking(self, client: int, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the blocks whose cohort a client is in and that it has not prepared."""
        return tuple(
            slot
            for slot in slots
            if client not in self.coming[slot.block].preparations
            and client in self._agreement.cohort(slot.cohort).place
        )

    def keep(self, client: int, preparations: tuple[Preparation, ...], name: str, stage: str) -> None:
        """Keep a client's preparations.

        Raises:
            MessageError: one was not asked for, or has another length.
        """
        for one in preparations:
            coming = self.coming.get(one.block)
            is_asked = coming is not None and coming.label == one.cohort and client in coming.cohort.place
            if (
                coming is None
                or not is_asked
                or coming.lengths
                != tuple(map(len, (one.boxes, one.recovery, one.commitments, one.key_hashes)))
            ):
                raise MessageError("a preparation that was not asked for", sender=name, stage=stage)
        for one in preparations:
            self.coming[one.block].keep(client, one)


class Preparing(Coordinator):
    """Sets up a fit, and has clients agree on keys and prepare sums.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
    """

    def __init__(self, agreement: Agreement, identity: Signer) -> None:
        self._agreement: Rules
        super().__init__(Rules.of(agreement), identity, needed_to_open)
        self._announced = Announced(self._agreement, b"")
        self._missed: set[int] | None = None
        self._unprepared: dict[int, str] = {}
        self._delivery: Delivery | None = None
        self._earlier: list[Relayed] = []
        self._history, self._stand = History(self._agreement), dict[int, bytes]()

    # Set-up.

    def open(self) -> Steps[None]:
        """Collect keys, then relay the list of clients; the first cohorts prepare in that same exchange."""
        everyone = [i for i in self._everyone if i not in self._out]
        came = yield from self._advertised(new_secret(), everyone)
        self._announced = Announced(self._agreement, self._session)
        self._history.anew()
        self._stand = {}
        self._is_small = len(self._everyone) <= FULL_GRAPH
        if self._is_small:
            for client in came:
                self._pairing.want(client, came)
        if self._agreement.configuration.terms.verified:
            self._delivery = Delivery(self._agreement, self._session, tuple(came), self._earlier)

    def _fail(
        self, missing: Iterable[int], n_left: int, needed: int, stage: str, refused: Mapping[int, str]
    ) -> NoReturn:
        self._announced.coming.clear()
        super()._fail(missing, n_left, needed, stage, refused)

    # Agreeing on keys, and preparing.

    def _ahead(self, client: int, slots: tuple[Slot, ...], *, last: bool = True) -> Ahead:
        """Return what any request brings a client for sums to come.

        Args:
            client: position of the client.
            slots: the sums.
            last: whether it has to prepare them now, whatever keys it still waits for.
        """
        chosen = list[Slot]()
        for slot in self._announced.lacking(client, slots):
            members = self._agreement.cohort(slot.cohort).place
            if not self._is_small:
                self._pairing.want(client, self._neighbours(slot.cohort, client))
            awaited = self._pairing.awaited(client)
            if not last and any(j in members and j in self._channels for j in awaited):
                # Blocks are prepared in their order: chains go forward only.
                break
            chosen.append(slot)
            self._announced.coming[slot.block].awaited.setdefault(client, awaited)
        return tuple(chosen), self._pairing.offered(client), self._pairing.capsules(client)

    def _neighbours(self, cohort: int, client: int) -> tuple[int, ...]:
        return self._agreement.neighbours(self._session, cohort, client).clients

    def _ask_to_prepare(
        self, number: int, slots: tuple[Slot, ...], others: Container[int], *, last: bool = True
    ) -> dict[int, bytes]:
        """Return requests to clients that lack a preparation, but for `others`, who get another request."""
        absent = [i for i in self._listed if i not in self._channels and i not in others]
        if self._is_small:
            requests = {i: encode(with_keys(self._roster, self._pairing.offered(i))) for i in absent}
        else:
            # Where the list is long, all share one copy, and keys come later.
            requests = dict.fromkeys(absent, encode(self._roster)) if absent else {}
        for client, channel in self._channels.items():
            if client not in others:
                ahead = self._ahead(client, slots, last=last)
                if any(ahead):
                    requests[client] = channel.down.seal(number, "prepare", PrepareRequest(*ahead))
        return requests

    def _prepared(self, client: int, data: bytes, number: int) -> None:
        """Read the reply of a client that was asked to join, or to prepare."""
        if client not in self._channels:
            joining = self._joining(client, data, "agree", Agreed)
            if isinstance(joining, Refusal):
                self._unprepared[client] = joining.code
            else:
                self._unprepared.pop(client, None)
                self._stand[client] = joining.head
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

    def _block(self, cohort: int, needed: int, excluded: set[int]) -> Steps[tuple[int, int]]:
        """Return a block that enough of a cohort have prepared, if need be just now, and its next number."""
        block, number = self._announced.next_of(cohort)
        if len(self._announced.coming[block].preparations.keys() - excluded) >= needed:
            return block, number
        slots, members = (Slot(block, cohort),), self._agreement.cohort(cohort).members
        if self._missed is None or sum(i in self._channels for i in members) < needed:
            out = len(self._out)
            yield from self._exchanged("agree", number, self._ask_to_prepare(number, (), ()))
            if len(self._out) > out:
                yield from self.open()
                return (yield from self._block(cohort, needed, excluded))
            self._missed = set(self._listed) - set(self._channels)
            self._require(self._channels, members, "agree", self._unprepared)
        if not self._is_small:
            yield from self._agree(number, cohort)
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

    def _agree(self, number: int, cohort: int) -> Steps[None]:
        """Have the members of a cohort agree on keys, where they lack some."""
        if self._delivery is not None and self._delivery.leader is None:
            self._pairing.want(min(self._channels), self._listed, alone=True)
        requests = {}
        for client, channel in self._channels.items():
            if client in self._agreement.cohort(cohort).place:
                self._pairing.want(client, self._neighbours(cohort, client))
            ahead = self._ahead(client, ())
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
