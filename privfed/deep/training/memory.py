"""What a client remembers between the questions of a fit: its cluster and its last update. None of it leaves.

Clients on machines of their own keep it on their disk (`privfed.core.asking.declaration`). A simulation that
is resumed rebuilds it: each client answers the recorded questions again, to itself. With DP-SGD that would be
another, unpaid release: there a simulated client joins anew, and pays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privfed.core.asking.declaration import Remembered
from privfed.core.asking.question import ClientData
from privfed.core.stored.encoding import Codec
from privfed.core.values.domain import FloatArray


@dataclass
class Memory:
    """What one client remembers.

    Args:
        structure: number of the clustering that `label` is of; -1 before the first.
        label: the client's cluster in it.
        round: last round in which it trained.
        origin: cluster whose model it trained from then.
        update: how far training moved that model, clipped.
        sketch: size, seed and sketch of `update`, where it sent one.
        first: its update of the first round, for algorithms of one's own.
        mean: of its updates, later ones weighing more.
        mass: sum of the weights in `mean`.
        shown: what stands for `update` in sketches, where that is `mean`.
        trainings: how often it trained with DP-SGD, joining included.
        labels: round -> its cluster at the end of the round.
    """

    structure: int = -1
    label: int = -1
    round: int = -1
    origin: int = -1
    update: FloatArray | None = None
    sketch: tuple[int, int, FloatArray] | None = None
    first: FloatArray | None = None
    mean: FloatArray | None = None
    mass: float = 0.0
    shown: FloatArray | None = None
    trainings: int = 0
    labels: dict[int, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Memory(...)"

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        """Arrays are shared: nobody writes to one that is remembered."""
        return replace(self, labels=dict(self.labels))

    def averages(self, decay: float) -> None:
        """Take the last update into the running mean, once a round: what is shown from then on.

        Args:
            decay: in (0, 1): how much each update weighs beside the next one.
        """
        if self.update is None or self.shown is not None:
            return
        self.mass = decay * self.mass + 1.0
        mean = np.zeros_like(self.update) if self.mean is None else self.mean
        self.mean = self.shown = mean + (self.update - mean) / self.mass


TRAINED: Remembered[Memory] = Remembered(
    "privfed.deep", Memory, Codec(Memory, "memory of a client that trains", 4)
)
"""What questions that train have a client remember."""


def memory_of(client: ClientData) -> Memory:
    """Return a client's memory, empty at first."""
    return TRAINED.of(client.memory)
