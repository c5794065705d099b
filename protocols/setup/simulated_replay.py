"""One replay for a whole simulation: it stands for those of all clients, which are identical."""

from __future__ import annotations

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Total
from privfed.core.roles.secure_sum import NextQuestion, Session, Steps
from privfed.errors import MessageError

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
