"""One attempt at a sum, as each client computes it from what its replay of the algorithm asks."""

from __future__ import annotations

from dataclasses import dataclass

from privfed.core.agreed.configuration import Configuration
from privfed.core.roles.secure_sum import NextQuestion
from privfed.protocols.client_opened.bindings import lost_clients, members_of, sum_header
from privfed.protocols.client_opened.state import Group


@dataclass(frozen=True, slots=True)
class SumAttempt:
    """Describes one attempt at a sum, as each client computes it for itself.

    Args:
        header: hash that all masks and checks are bound to, 32 bytes; never the same twice.
        me: the client's position.
        cohort: positions of the clients that the question goes to, ascending.
        members: those of them that may contribute, because they are not out of the fit.
        question: the encoded question.
        contributed: whether this client has contributed to this attempt; set when a total is opened.
    """

    header: bytes
    me: int
    cohort: tuple[int, ...]
    members: tuple[int, ...]
    question: bytes
    contributed: bool = False


def attempt_of(
    configuration: Configuration,
    group: Group,
    me: int,
    expected: NextQuestion,
    number: int,
    index: int,
    lost: bytes,
) -> SumAttempt:
    """Return the attempt `number` at sum `index`, after the totals that the group has chained.

    Raises:
        MessageError: `lost` is not one byte 0 or 1 for each client.
    """
    cohort = configuration.cohort(expected.cohort)
    members = members_of(cohort, lost_clients(configuration, lost))
    where = (group.session, number, index, group.head, expected.cohort, cohort, members)
    header = sum_header(*where, expected.metric)
    return SumAttempt(header, me, cohort, members, expected.question, group.pending == number)
