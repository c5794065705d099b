"""One replica for a whole simulation: it stands for those of all clients, which are identical."""

from __future__ import annotations

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Total
from privfed.core.roles.secure_sum import Posed, Session, Steps
from privfed.errors import MessageError

MAX_BEHIND = 8
"""Totals kept for a client that did not answer, where all clients are asked each time."""

MAX_BEHIND_COHORTS = 256
"""Totals kept for a client that is in few cohorts; one that missed more is out of the fit."""


def totals_kept(configuration: Configuration) -> int:
    """Return how many totals are kept for clients that did not get them."""
    return MAX_BEHIND if configuration.cohorts.kind == "all" else MAX_BEHIND_COHORTS


class PosedReplica:
    """Knows what the algorithm asks from whoever drives the run, in the same process.

    Args:
        kept: questions kept for clients that are behind, besides the latest.

    Attributes:
        told: how many totals came before the first sum of this simulation.
        ended: False: it never knows of an end.
    """

    ended = False

    def __init__(self, kept: int = MAX_BEHIND) -> None:
        self._kept, self._posed = kept, dict[int, Posed]()
        self.told = 0

    def pose(self, index: int, posed: Posed) -> None:
        """Record what the algorithm asks in sum `index`; some earlier ones are kept for clients behind."""
        if not self._posed:
            # A resumed run begins where it was: all before is known to whoever drives it.
            self.told = index
        kept = sorted(self._posed)[-self._kept :]
        self._posed = {i: self._posed[i] for i in kept} | {index: posed}

    def ask(self, index: int) -> Posed:
        """Return what sum `index` asks.

        Raises:
            MessageError: the run has not come to it.
        """
        if index not in self._posed:
            raise MessageError("a sum that is not asked", sender="the coordinator", stage="collect")
        return self._posed[index]

    def tell(self, index: int, total: Total) -> None:
        """Do nothing: whoever drives the run has the total."""


class PosingSession:
    """A session of a simulation that tells the clients' replica what the algorithm asks, before it is asked.

    Args:
        session: the coordinator's.
        replica: stands for those of all clients.
    """

    def __init__(self, session: Session, replica: PosedReplica) -> None:
        self.session, self.replica = session, replica

    def open(self) -> Steps[None]:
        """Set up the session."""
        return self.session.open()

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Pose the question on the clients' side, then ask it."""
        self.replica.pose(index, Posed(question.to_bytes(), cohort))
        return self.session.sum(question, index, cohort, upcoming)

    def close(self) -> Steps[None]:
        """Deliver what clients still wait for."""
        return self.session.close()
