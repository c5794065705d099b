"""What a client remembers between the questions of a fit: its cluster and its last update. None of it leaves.

Clients on machines of their own keep it on their disk (`privfed.core.asking.declaration`). A simulation that
is resumed rebuilds it: each client answers the recorded questions again, to itself
(`privfed.deep.estimators.resuming`). With DP-SGD that would be another, unpaid release: there a simulated
client joins anew, and pays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from privfed.core.asking.declaration import Remembered
from privfed.core.asking.question import ClientData
from privfed.core.stored.encoding import Array, Codec
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
        start: that model.
        sketch: size, seed and sketch of `update`, where it sent one.
        first: its update of the first round.
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
    start: FloatArray | None = None
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


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A memory, as it is stored: `start` and all that follow are arrays."""

    structure: int
    label: int
    round: int
    origin: int
    trainings: int
    labels: dict[int, int]
    update: Array | None
    start: Array | None
    first: Array | None
    mean: Array | None
    mass: float
    shown: Array | None
    sketch: tuple[int, int, Array] | None

    def __repr__(self) -> str:
        return "_Stored(...)"


_CODEC: Codec[_Stored] = Codec(_Stored, "memory of a client that trains", 2)


class MemoryCodec:
    """How a memory is stored on the client's own disk."""

    def to_bytes(self, value: Memory) -> bytes:
        """Return a memory as bytes."""
        own = {name: _stored(one) for name, one in vars(value).items()}
        return _CODEC.to_bytes(_Stored(**own))

    def from_bytes(self, data: bytes) -> Memory:
        """Return the memory that `to_bytes` wrote; raises as `Codec.from_bytes`."""
        stored = _CODEC.from_bytes(data)
        return Memory(**{name: _remembered(one) for name, one in msgspec.structs.asdict(stored).items()})


def _stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_stored, value))
    return Array.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def _remembered(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_remembered, value))
    return value.to_numpy() if isinstance(value, Array) else value


TRAINED: Remembered[Memory] = Remembered("privfed.deep", Memory, MemoryCodec())
"""What questions that train have a client remember."""


def memory_of(client: ClientData) -> Memory:
    """Return a client's memory, empty at first."""
    return TRAINED.of(client.memory)
