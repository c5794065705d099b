"""Views of a run, which attacks get: what one party saw. A view never contains the clients' rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import FloatArray


@dataclass(frozen=True, slots=True)
class SumView:
    """Holds what a party saw of one sum.

    Args:
        index: index of the sum in the run.
        purpose: what it was for ("range", "start", "round", "score"); empty where the question is None.
        question: what was asked; None for a server that only relays (clients open the totals), and for
            clients outside the cohort.
        cohort: positions of the clients that were asked.
        contributors: positions of the clients in the sum; empty for a party that cannot tell.
        total: the opened total; None for a party that cannot read it.
        answers: position -> statistics, for the clients whose answers the party saw.
        upload_bytes: position -> bytes that the client sent; empty unless the party is the server.
    """

    index: int
    purpose: str
    question: Question | None
    cohort: tuple[int, ...]
    contributors: tuple[int, ...]
    total: Statistics | None
    answers: Mapping[int, Statistics]
    upload_bytes: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class View:
    """Holds what a party, together with its colluders, saw of a run.

    Args:
        party: "server", "observer" or "clients".
        colluding: positions of the clients that tell the party all they know.
        clients: names of all clients, by position.
        sums: what it saw of each sum, in order.
        result: name -> array of the result ("centers"), once the run has ended; where clients open the
            totals, the server has it only from a colluder.
    """

    party: str
    colluding: tuple[int, ...]
    clients: tuple[str, ...]
    sums: tuple[SumView, ...]
    result: Mapping[str, FloatArray]
