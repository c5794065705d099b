"""Nodes without a network: each message is answered at once, from nothing but a party's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from privfed.nodes.flower.network import Heard
from privfed.nodes.flower.node import answered


class Folders:
    """The nodes of a federation's folders, asked in this process.

    Attributes:
        trips: number of exchanges.
        faults: (number of the exchange, node) -> fault that happens then.
        gone: nodes that are not connected.
        down: all messages to nodes.
        up: all messages from nodes.
    """

    def __init__(self, folders: tuple[Path, ...]) -> None:
        self.folders = dict(enumerate(folders, start=100))
        self.trips = 0
        self.faults: dict[tuple[int, int], int] = {}
        self.gone: set[int] = set()
        self.down: list[bytes] = []
        self.up: list[bytes] = []

    def nodes(self) -> tuple[int, ...]:
        return tuple(node for node in self.folders if node not in self.gone)

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        self.trips += 1
        faults = {node: code for (trip, node), code in self.faults.items() if trip == self.trips}
        faults |= dict.fromkeys(self.gone & set(messages), 5)
        replies = {
            node: answered(self.folders[node], data) for node, data in messages.items() if node not in faults
        }
        self.down += messages.values()
        self.up += replies.values()
        return Heard(replies, {node: code for node, code in faults.items() if node in messages})

    def close(self) -> None:
        pass
