"""A session of sums that clients open, for a simulation in one process.

It joins two parts that would run on different machines. `Relay` is the coordinator. `Standing` is on the
clients' side: one replica of the algorithm that stands for those of all clients, which are identical.
The relay's exchanges go out unchanged and contain nothing of what that replica knows.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

import msgspec

from privfed.core.configuration import Configuration
from privfed.core.conversation import Total
from privfed.core.engine import ClientSide, Exchange, Replies
from privfed.core.policy import ClientPolicy
from privfed.core.question import Question
from privfed.core.secure_sum import Session, Steps
from privfed.errors import IntegrityError, MessageError
from privfed.protocols.client_opened.bindings import next_head
from privfed.protocols.client_opened.client import GroupClient, total_of
from privfed.protocols.client_opened.messages import Sealed
from privfed.protocols.client_opened.relay import MAX_BEHIND, Relay, Relayed
from privfed.protocols.client_opened.scheme import Scheme
from privfed.protocols.client_opened.state import Group
from privfed.protocols.client_opened.sum_attempt import Posed, attempt_of
from privfed.protocols.crypto.keys import Identity, Registry
from privfed.protocols.setup.rules import Agreement


class Standing:
    """Stands for the replicas of all clients: it poses the questions and opens the totals.

    It opens each total as soon as the coordinator has it; a real client waits for the next request.
    """

    def __init__(self, configuration: Configuration, scheme: Scheme) -> None:
        self._configuration, self._scheme = configuration, scheme
        self._posed: dict[int, Posed] = {}
        self._group: Group | None = None

    def join(self, group: Group) -> None:
        """Take the keys of a newly set-up group; each set-up begins a new hash chain."""
        if self._group is None or self._group.session != group.session:
            self._group = group

    def pose(self, index: int, posed: Posed) -> None:
        """Record what the algorithm asks in sum `index`; earlier ones are kept for clients that are behind.

        Raises:
            ArgumentError: the total would not fit the scheme's grid.
        """
        self._scheme.check(posed.question, len(self._configuration.cohort(posed.cohort)))
        kept = sorted(self._posed)[-MAX_BEHIND:]
        self._posed = {i: self._posed[i] for i in kept} | {index: posed}

    def ask(self, index: int) -> Posed:
        """Return what sum `index` asks."""
        if index not in self._posed:
            raise MessageError("a sum that is not asked", sender="the coordinator", stage="collect")
        return self._posed[index]

    def tell(self, index: int, total: Total) -> None:
        """Do nothing: this replica has opened the total itself."""

    def open(self, sealed: Sealed) -> Total:
        """Open a total and add it to the hash chain.

        Raises:
            IntegrityError: it is not the total of this sum.
        """
        group = self._group
        if group is None:
            raise IntegrityError("a total came before any client had the group's secret; begin a new fit.")
        posed, me = self.ask(sealed.index), group.leader
        attempt = attempt_of(self._configuration, group, me, posed, sealed.number, sealed.index, sealed.lost)
        opened = self._scheme.open(group, attempt, sealed.body)
        self._group = msgspec.structs.replace(group, head=next_head(attempt.header, opened.integers))
        return total_of(attempt, opened)


class GroupSession:
    """Runs both parts of a simulation: the coordinator, and the replica that asks and opens.

    Args:
        configuration: what the parties agreed on.
        relay: the coordinator.
        standing: the replica.
    """

    def __init__(self, configuration: Configuration, relay: Relay, standing: Standing) -> None:
        self._configuration, self.relay, self.standing = configuration, relay, standing

    def open(self) -> Steps[None]:
        """Set up the group."""
        return self.relay.open()

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Pose a question on the clients' side, let the coordinator add, and open on the clients' side."""
        self.standing.pose(index, Posed(question.to_bytes(), cohort))
        members = self._configuration.cohort(cohort)
        relayed: Relayed = yield from _for(members, self.relay.sum(index))
        total = self.standing.open(relayed.sealed)
        return replace(total, dropped=relayed.dropped, rejected=relayed.rejected, attempts=relayed.attempts)

    def close(self) -> Steps[None]:
        """Deliver the last total."""
        return self.relay.close()


def _for(members: tuple[int, ...], steps: Steps[Relayed]) -> Generator[Exchange, Replies, Relayed]:
    """Tell the engine which clients' data will be asked, which the coordinator does not know."""
    exchange = next(steps)
    while True:
        replies = yield replace(exchange, answering=members)
        try:
            exchange = steps.send(replies)
        except StopIteration as finished:
            relayed: Relayed = finished.value
            return relayed


def group_parties(
    configuration: Configuration, policies: Mapping[int, ClientPolicy], scheme: Scheme
) -> tuple[Session, dict[int, ClientSide]]:
    """Return a session and its clients, with fresh identities in a registry that all of them hold."""
    server = Identity.generate()
    identities = {i: Identity.generate() for i in sorted(policies)}
    registry = Registry(tuple(identity.public for identity in identities.values()), server.public)
    agreement = Agreement(configuration, registry)
    standing = Standing(configuration, scheme)
    sides: dict[int, ClientSide] = {
        i: GroupClient(i, agreement, identity, policies[i], scheme, standing, standing.join)
        for i, identity in identities.items()
    }
    return GroupSession(configuration, Relay(agreement, server, scheme), standing), sides
