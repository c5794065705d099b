"""Sums that clients open, for every way of sealing answers: their base class, and their session.

The process that drives a run uses the session, which joins two parts. `Relay` is the coordinator; an `Opener`
acts for the clients' side. In a simulation that is `CommonReplay`: one replay of the algorithm in place of
those of all clients, which are identical. If the clients are on other machines it is `Told`, which gets each
total from one of them. The relay's exchanges go out unchanged and contain nothing of what the opener knows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.roles.conversation import Total, changed
from privfed.core.roles.engine import ClientSide
from privfed.core.roles.secure_sum import NextQuestion, Replay, Session, Steps, TotalReader
from privfed.errors import ArgumentError, IntegrityError, ProtocolError, RefusedError
from privfed.protocols.answering import check_promised
from privfed.protocols.client_opened.group_client import GroupClient, total_of
from privfed.protocols.client_opened.relay import NothingAskedError, Relay, Relayed
from privfed.protocols.client_opened.scheme import Group, Scheme, Sealed, attempt_of, next_head
from privfed.protocols.setup.simulated import MAX_BEHIND, SimulatedReplay, fresh_agreement

MOST_TOLD = 2**32 - 1
"""What a client says that has all totals, however many there are."""


class Opener(Protocol):
    """Acts for the clients' side of a run: it poses questions and returns opened totals."""

    def announce(self, index: int, expected: NextQuestion) -> None:
        """Record what the algorithm asks in sum `index`.

        Raises:
            ArgumentError: the total would not fit the scheme's grid.
        """

    def known(self, index: int) -> Total | None:
        """Return the total of sum `index` where clients opened it in an earlier run, which was stopped."""

    def open(self, sealed: Sealed) -> Total | None:
        """Return a total; None if no client has passed it on yet."""


class Told:
    """Gets each total from a client that opened it, and has no key itself.

    Args:
        configuration: what the parties agreed on.
        scheme: the scheme, whose grid a total must fit.
        totals: reads totals that a client passes on; None for a session that only relays.
    """

    def __init__(self, configuration: Configuration, scheme: Scheme, totals: TotalReader | None) -> None:
        self._configuration, self._scheme, self._totals = configuration, scheme, totals
        self._asked: tuple[int, NextQuestion] | None = None

    def announce(self, index: int, expected: NextQuestion) -> None:
        """Check that the total fits the grid; the clients' own replays pose the question.

        Raises:
            ArgumentError: it does not fit, or no client passes on totals.
        """
        if self._totals is None:
            raise ArgumentError(
                "these clients open the totals themselves, and none passes them on to this run: give the "
                "coordinator totals=, or read the result where the clients are."
            )
        self._scheme.check(expected.question, len(self._configuration.cohort(expected.cohort)))
        self._asked = index, expected

    def known(self, index: int) -> Total | None:
        """Return the total of sum `index` where a client has passed it on already; None otherwise.

        Raises:
            IntegrityError: it is no total of what is asked.
        """
        try:
            total = None if self._totals is None else self._totals.read(index)
            if total is not None and self._asked is not None and self._asked[0] == index:
                self._check(total, self._asked[1])
        except (ArgumentError, ValueError):
            raise IntegrityError(
                f"what a client passed on as the total of sum {index} is no total of what was asked; begin a "
                "new fit."
            ) from None
        return total

    def open(self, sealed: Sealed) -> Total | None:
        """Return the total that the client passed on for this sum; None if it passed on none."""
        return self.known(sealed.index)

    def _check(self, total: Total, asked: NextQuestion) -> None:
        question_from_bytes(asked.question).spec.check(total.statistics)
        members = self._configuration.cohort(asked.cohort)
        if not (np.isfinite(total.statistics.vector).all() and set(total.contributors) <= set(members)):
            raise ArgumentError("a total of no numbers, or of others.")


class CommonReplay(SimulatedReplay):
    """Stands for the replays of all clients: it knows the questions and opens the totals.

    It opens each total as soon as the coordinator has it; a real client waits for the next request. No total
    of an earlier set-up is missing, as whoever drives the run has them all.
    """

    def __init__(self, configuration: Configuration, scheme: Scheme) -> None:
        super().__init__(MAX_BEHIND)
        self.told = MOST_TOLD
        self._configuration, self._scheme = configuration, scheme
        self._group: Group | None = None

    def join(self, group: Group) -> None:
        """Take the keys of a newly set-up group; each set-up begins a new hash chain."""
        if self._group is None or self._group.session != group.session:
            self._group = group

    def announce(self, index: int, expected: NextQuestion) -> None:
        """Record what the algorithm asks in sum `index`.

        Raises:
            ArgumentError: the total would not fit the scheme's grid.
        """
        self._scheme.check(expected.question, len(self._configuration.cohort(expected.cohort)))
        super().announce(index, expected)
        self.told = MOST_TOLD

    def known(self, index: int) -> Total | None:
        """Return None: replays in this process know no earlier run."""
        return None

    def open(self, sealed: Sealed) -> Total:
        """Open a total and add it to the hash chain.

        Raises:
            IntegrityError: it is not the total of this sum.
        """
        group = self._group
        if group is None:
            raise IntegrityError("a total came before any client had the group's secret; begin a new fit.")
        where = (sealed.number, sealed.index, sealed.lost)
        attempt = attempt_of(self._configuration, group, group.leader, self.ask(sealed.index), *where)
        opened = self._scheme.open(group, attempt, sealed.body)
        self._group = msgspec.structs.replace(group, head=next_head(attempt.header, opened.integers))
        return total_of(attempt, opened)


class GroupSession:
    """Runs both parts: the coordinator, and the opener that acts for the clients' side.

    Args:
        configuration: what the parties agreed on.
        relay: the coordinator.
        opener: the clients' side.
    """

    def __init__(self, configuration: Configuration, relay: Relay, opener: Opener) -> None:
        self._configuration, self.relay, self.opener = configuration, relay, opener
        self._ahead: dict[int, Relayed | ProtocolError] = {}

    def open(self) -> Steps[None]:
        """Set up the group."""
        self._ahead = {}
        return self.relay.open()

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Pose a question on the clients' side, let the coordinator add, and open on the clients' side."""
        self.opener.announce(index, NextQuestion(question.to_bytes(), cohort))
        members = self._configuration.cohort(cohort)
        # One client may say that it has any total: it takes as many as a sum needs.
        known = self.opener.known(index) if index < self.relay.told else None
        if known is not None:
            return known
        relayed = yield from self._relayed(index, members)
        total = self.opener.open(relayed.sealed)
        if total is None:
            # A client opens a total when it gets it with the next request. That one goes out at once: the
            # clients know what is asked next, and the coordinator need not.
            yield from self._ask_ahead(index + 1)
            total = self.opener.open(relayed.sealed)
        if total is None:
            yield from self.relay.close()
            total = self.opener.open(relayed.sealed)
        if total is None:
            if isinstance(refused := self._ahead.get(index + 1), RefusedError):
                raise refused
            raise ProtocolError(
                f"only the clients have the total of sum {index}, and the one that passes totals on to this "
                "run was lost; resume the run."
            )
        return replace(total, dropped=relayed.dropped, rejected=relayed.rejected, attempts=relayed.attempts)

    def _relayed(self, index: int, members: tuple[int, ...]) -> Steps[Relayed]:
        """Return a sum that was asked ahead, or ask it now.

        Raises:
            ProtocolError: it failed, now or when it was asked ahead.
        """
        known = self._ahead.pop(index, None)
        if isinstance(known, ProtocolError):
            raise known
        if known is not None:
            return known
        # The engine is told whose data will be asked; the coordinator does not know.
        steps = changed(self._added(index), lambda exchange: replace(exchange, answering=members))
        return (yield from steps)

    def _ask_ahead(self, index: int) -> Steps[None]:
        """Ask the next sum, where the clients' own runs ask one. That it fails is an error once it is asked.

        Raises:
            IntegrityError: the clients' hash chains of totals differ.
        """
        try:
            self._ahead[index] = yield from self._added(index)
        except NothingAskedError:
            return
        except IntegrityError:
            raise
        except ProtocolError as error:
            self._ahead[index] = error

    def _added(self, index: int) -> Steps[Relayed]:
        """Ask a sum, of which no client can have had the total before.

        Raises:
            IntegrityError: one passed on a total, which nobody can contradict before it is read.
        """
        self._check_new(index)  # Before anybody answers: a run that stopped may have left a total with some.
        relayed = yield from self.relay.sum(index)
        self._check_new(index)
        return relayed

    def _check_new(self, index: int) -> None:
        if self.opener.known(index) is not None:
            raise IntegrityError(
                f"a client has a total of sum {index} that too few others have: it is made up, or the "
                "earlier run stopped before they got it; begin a new fit."
            )

    def close(self) -> Steps[None]:
        """Deliver the last total."""
        return self.relay.close()


class ClientOpenedSum(ABC):
    """A secure sum whose totals the clients open; a subclass says how answers are sealed, and what for."""

    one_key: bool

    @abstractmethod
    def scheme(self, configuration: Configuration) -> Scheme:
        """Return what seals, adds and opens the answers of a fit."""

    def coordinator(
        self, agreement: Agreement, identity: Signer, totals: TotalReader | None = None
    ) -> Session:
        """Return the coordinator's session, which relays, and may get totals from a client through `totals`.

        Raises:
            ArgumentError: the key is not the registered one.
        """
        agreement.check_coordinator(identity)
        configuration = agreement.configuration
        scheme = self.scheme(configuration)
        return GroupSession(
            configuration, Relay(agreement, identity, scheme), Told(configuration, scheme, totals)
        )

    def client(
        self,
        agreement: Agreement,
        position: int,
        identity: Signer,
        policy: ClientPolicy,
        replay: Replay | None = None,
    ) -> ClientSide:
        """Return one client's side, with its own run of the algorithm.

        Raises:
            ArgumentError: the key is not the registered one, or there is no replay.
            PolicyError: the terms promise fewer than two honest clients, or colluders who all have the key,
                or a cohort has two clients.
        """
        configuration = agreement.configuration
        check_promised(configuration, verified=False, one_key=self.one_key)
        agreement.check_client(position, identity)
        if replay is None:
            raise ArgumentError(
                f"a client of {configuration.protocol!r} sums opens the totals, and needs its own run of the "
                "algorithm to know what comes next: pass replay=."
            )
        return GroupClient(position, agreement, identity, policy, self.scheme(configuration), replay)

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients, with fresh identities in a registry that all of them hold.

        One replay stands for those of all clients, which are identical.

        Raises:
            ArgumentError: the scheme cannot carry what was agreed on.
        """
        agreement, server, identities = fresh_agreement(configuration, policies)
        scheme = self.scheme(configuration)
        common = CommonReplay(configuration, scheme)
        sides: dict[int, ClientSide] = {
            i: GroupClient(i, agreement, identity, policies[i], scheme, common, common.join)
            for i, identity in identities.items()
        }
        return GroupSession(configuration, Relay(agreement, server, scheme), common), sides
