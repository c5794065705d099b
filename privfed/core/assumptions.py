"""What a secure sum declares of itself: what it assumes, what its opener sees, and what its stages are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

COLLECT: Final = "collect"
"""Stage in which clients answer, in all sums of privfed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What must hold for what a secure sum promises, each in words that end no sentence.

    Args:
        honest: who must follow the protocol.
        colluding: how many clients may tell the server all that they know.
        besides: what else is taken as given: identities, state, cryptography.
    """

    honest: str
    colluding: str
    besides: str

    def __str__(self) -> str:
        """Return all of it in one line, for reports."""
        return f"{self.honest}; {self.colluding}; {self.besides}"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a protocol.

    Args:
        name: as exchanges and faults name it.
        unheard: what becomes of a client whose reply does not arrive in it, in words.
        answers: whether clients answer the question in it. Under differential privacy a question is paid for
            once in every such exchange.
    """

    name: str
    unheard: str
    answers: bool = False


def answer_stages(stages: Iterable[Stage]) -> tuple[str, ...]:
    """Return the names of the stages in which clients answer."""
    return tuple(one.name for one in stages if one.answers)


@dataclass(frozen=True, slots=True)
class Sight:
    """What the opener of totals sees, in words.

    Args:
        short: for a table.
        whole: for a report.
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
"""What `SecureSum.reveals` means to people."""
