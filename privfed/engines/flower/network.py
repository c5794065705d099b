"""What an engine needs of a network: its nodes, and a reply or a fault of each that was sent something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from privfed.errors import ProtocolError

EXPIRED, DISCONNECTED = -1, 5
"""Faults of a node that has not replied while its message lived, and of one that is not connected."""

FAULTS = {
    EXPIRED: "no reply in time",
    0: "an unknown error",
    1: "its Flower app cannot be loaded",
    2: "its Flower app failed",
    3: "no reply in time",
    4: "its reply was lost",
    DISCONNECTED: "the node is not connected",
    6: "its Flower app refused the message",
    7: "its Flower app is damaged",
    8: "its process died",
}
"""Code of an error of Flower -> what it says, in words. The text that comes with an error is never read."""

BROKEN = frozenset({1, 6, 7})
"""Faults of the installation: every further message would have them, too."""


class RunLostError(ProtocolError):
    """The Flower run is gone, or none can be started; what its nodes remember lies in their folders."""


@dataclass(frozen=True)
class Heard:
    """What came back of one exchange.

    Args:
        replies: node -> bytes.
        faults: node -> code of what went wrong (`FAULTS`).
    """

    replies: Mapping[int, bytes] = field(default_factory=dict)
    faults: Mapping[int, int] = field(default_factory=dict)


class Network(Protocol):
    """Carries bytes to nodes and their replies back, in one exchange at a time."""

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes that are connected now."""

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        """Send each node its message; return once all replied, or after `seconds`, when messages expire.

        Raises:
            RunLostError: the network is gone; another one is sought when it is used again.
        """

    def close(self) -> None:
        """End the run. Nothing can be sent afterwards."""
