"""The declarations of a secure sum: its assumptions, what the opener of totals sees, and its stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

COLLECT: Final = "collect"
"""Stage in which clients answer, in all sums of privfed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Holds the assumptions behind a secure sum's promises, each as text without a full stop.

    Args:
        honest: who must follow the protocol.
        colluding: how many clients may share all that they know with the server.
        besides: other assumptions, on identities, state and cryptography.
    """

    honest: str
    colluding: str
    besides: str

    def __str__(self) -> str:
        """Return all assumptions in one line, for reports."""
        return f"{self.honest}; {self.colluding}; {self.besides}"


@dataclass(frozen=True, slots=True)
class Stage:
    """Describes one stage of a protocol.

    Args:
        name: name of the stage in exchanges and faults.
        unheard: what happens to a client whose reply does not arrive in this stage, in words.
        answers: whether clients answer the question in this stage. Under differential privacy, every such
            exchange pays for the question once.
    """

    name: str
    unheard: str
    answers: bool = False


def answer_stages(stages: Iterable[Stage]) -> tuple[str, ...]:
    """Return the names of the stages in which clients answer."""
    return tuple(one.name for one in stages if one.answers)


def declared(promise: str) -> str:
    """Return what a secure sum promises that is not privfed's own, marked as its author's word."""
    return f"{promise} (what the secure sum promises, declared by its author)"


@dataclass(frozen=True, slots=True)
class Sight:
    """Describes in words what the opener of totals sees.

    Args:
        short: text for a table.
        whole: text for a report.
    """

    short: str
    whole: str


SIGHTS = {
    "sums": Sight(
        "totals only", "totals over the clients that answered, and who they were; no single client's answer"
    ),
    "unlinked contributions": Sight(
        "every answer, but not whose", "every client's answer, but not whose it was"
    ),
    "contributions": Sight("every answer", "every single client's answer, in clear"),
}
"""The values of `SecureSum.reveals`, explained."""
