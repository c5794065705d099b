"""Builds the parties of a simulation in one process, as on several machines, with fresh identities.

One replay serves a whole simulation: it stands for those of all clients, which are identical.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from privfed.core.agreed.agreement import Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import ClientSide
from privfed.core.roles.secure_sum import NextQuestion, SecureSum, Session, Steps
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.setup.rules import Rules


def fresh_agreement(
    configuration: Configuration, positions: Iterable[int]
) -> tuple[Rules, Identity, dict[int, Identity]]:
    """Return an agreement with fresh identities in its registry: the coordinator's, and one per position."""
    server = Identity.generate()
    identities = {i: Identity.generate() for i in sorted(positions)}
    registry = Registry(tuple(identity.public for identity in identities.values()), server.public)
    return Rules(configuration, registry), server, identities


def simulated(
    protocol: SecureSum, configuration: Configuration, policies: Mapping[int, ClientPolicy]
) -> tuple[Session, dict[int, ClientSide]]:
    """Return a session and its clients, for a sum that the server opens."""
    agreement, server, identities = fresh_agreement(configuration, policies)
    sides = {i: protocol.client(agreement, i, identity, policies[i]) for i, identity in identities.items()}
    return protocol.coordinator(agreement, server), sides


MAX_BEHIND = 8
"""Totals kept for a client that did not answer, where all clients are asked each time."""

MAX_BEHIND_COHORTS = 256
"""Totals kept for a client that is in few cohorts; one that missed more is out of the fit."""


def totals_kept(configuration: Configuration) -> int:
    """Return how many totals are kept for clients that did not get them."""
    return MAX_BEHIND if configuration.cohorts.kind == "all" else MAX_BEHIND_COHORTS


class SimulatedReplay:
    """Knows what the algorithm asks from whoever drives the run, in the same process.

    Args:
        kept: questions kept for clients that are behind, besides the latest.

    Attributes:
        told: how many totals came before the first sum of this simulation.
        ended: False: it never knows of an end.
    """

    ended = False

    def __init__(self, kept: int = MAX_BEHIND) -> None:
        self._kept, self._announced = kept, dict[int, NextQuestion]()
        self.told = 0

    def announce(self, index: int, expected: NextQuestion) -> None:
        """Record what the algorithm asks in sum `index`; some earlier ones are kept for clients behind."""
        if not self._announced:
            # A resumed run begins where it was: all before is known to whoever drives it.
            self.told = index
        kept = sorted(self._announced)[-self._kept :]
        self._announced = {i: self._announced[i] for i in kept} | {index: expected}

    def ask(self, index: int) -> NextQuestion:
        """Return what sum `index` asks.

        Raises:
            MessageError: the run has not come to it.
        """
        if index not in self._announced:
            raise MessageError("a sum that is not asked", sender="the coordinator", stage="collect")
        return self._announced[index]

    def tell(self, index: int, total: Total) -> None:
        """Do nothing: whoever drives the run has the total."""


class AnnouncingSession:
    """A session of a simulation that tells the clients' replay what the algorithm asks, before it is asked.

    Args:
        session: the coordinator's.
        replay: stands for those of all clients.
    """

    def __init__(self, session: Session, replay: SimulatedReplay) -> None:
        self.session, self.replay = session, replay

    def open(self) -> Steps[None]:
        """Set up the session."""
        return self.session.open()

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Pose the question on the clients' side, then ask it."""
        self.replay.announce(index, NextQuestion(question.to_bytes(), cohort))
        return self.session.sum(question, index, cohort, upcoming)

    def close(self) -> Steps[None]:
        """Deliver what clients still wait for."""
        return self.session.close()
