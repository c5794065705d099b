"""Rebuilding what clients remembered, when a run is resumed in a new process."""

from __future__ import annotations

from collections.abc import Sequence

from privfed.core.asking.question import ClientData, parts_of, question_from_bytes
from privfed.core.roles.engine import client_generator
from privfed.deep.training.rounds import ClusterSizes, Round
from privfed.federation.driver import Federation


def remembered(
    federation: Federation, names: Sequence[str], clients: Sequence[ClientData], seed: int
) -> None:
    """Have each client answer the recorded questions again, to itself: nothing is sent.

    Training repeats to the last bit, so that a client remembers what it did before.

    Args:
        federation: whose transcript is replayed.
        names: the clients', by position.
        clients: what they train on.
        seed: of the clients' randomness.
    """
    for index, (asked, total) in enumerate(federation.transcript.totals()):
        for question in parts_of(question_from_bytes(asked.question)):
            if isinstance(question, Round | ClusterSizes):
                for i in total.contributors:
                    data, _ = clients[i].within(question.ranges)
                    question.answer(data, client_generator(seed, names[i], index))
