"""What a client remembers between the questions of a fit: its cluster and its last update. None of it leaves.

It lies in the cache of the client's data. A run that is resumed rebuilds it: each client answers the recorded
questions again, to itself (`privfed.deep.estimators.base`). With DP-SGD that would be another, unpaid
release: there a client joins anew, and pays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from privfed.core.asking.question import ClientData
from privfed.core.values.domain import FloatArray

_KEY = "privfed.deep"


@dataclass
class Memory:
    """What one client remembers.

    Args:
        structure: number of the clustering that `label` is of; -1 before the first.
        label: the client's cluster in it.
        round: last round in which it trained.
        origin: cluster whose model it trained from then.
        update: how far training moved that model, clipped.
        start: that model.
        sketch: size, seed and sketch of `update`, where it sent one.
        first: its update of the first round.
        trainings: how often it trained with DP-SGD, joining included.
        labels: round -> its cluster at the end of the round.
    """

    structure: int = -1
    label: int = -1
    round: int = -1
    origin: int = -1
    update: FloatArray | None = None
    start: FloatArray | None = None
    sketch: tuple[int, int, FloatArray] | None = None
    first: FloatArray | None = None
    trainings: int = 0
    labels: dict[int, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Memory(...)"


def memory_of(client: ClientData) -> Memory:
    """Return a client's memory, empty at first."""
    kept = client.cache.setdefault(_KEY, Memory())
    if not isinstance(kept, Memory):
        raise TypeError("the cache holds something else")
    return kept
