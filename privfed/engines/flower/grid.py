"""Exchanges over Flower's Grid: one message a node, matched to its reply by the message it replies to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.serverapp import Grid

from privfed.engines.flower.network import DISCONNECTED, EXPIRED, Heard
from privfed.errors import MessageError

QUERY = "query"
"""Type of all messages, one of those that Flower knows."""

_RECORD, _ARRAY = "privfed", "bytes"
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 0.5


def packed(data: bytes) -> RecordDict:
    """Return bytes as the content of a message. As an array they are sent in pieces where they are long."""
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    return RecordDict({_RECORD: ArrayRecord({_ARRAY: array})})


def unpacked(content: RecordDict) -> bytes:
    """Return the bytes of a message's content.

    Raises:
        MessageError: there are none.
    """
    try:
        data = content[_RECORD][_ARRAY].data
    except (KeyError, AttributeError, TypeError):
        data = None
    if not isinstance(data, bytes):
        raise MessageError("no bytes of privfed", sender="a node", stage="flower")
    return data


class GridNetwork:
    """The nodes of a Flower run.

    Args:
        grid: what Flower gives a ServerApp.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes that are connected now."""
        return tuple(sorted(self._grid.get_node_ids()))

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        """Send each node its message; return once all replied, or after `seconds`, when messages expire."""
        sent = [Message(packed(data), node, QUERY, ttl=seconds) for node, data in messages.items()]
        # Where a message could not be pushed, its id is None: that node has a fault at once.
        ids = list(self._grid.push_messages(sent)) or [None] * len(sent)
        waiting = {one: node for one, node in zip(ids, messages, strict=True) if one is not None}
        faults = {node: DISCONNECTED for one, node in zip(ids, messages, strict=True) if one is None}
        replies: dict[int, bytes] = {}
        until, wait = time.monotonic() + seconds, _FIRST_WAIT
        while waiting and time.monotonic() < until:
            found = list(self._grid.pull_messages(list(waiting)))
            for reply in found:
                _sort(reply, waiting, replies, faults)
            if not found:
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
        return Heard(replies, faults | dict.fromkeys(waiting.values(), EXPIRED))

    def close(self) -> None:
        """Do nothing: the run ends when the ServerApp returns."""


def _sort(reply: Any, waiting: dict[str, int], replies: dict[int, bytes], faults: dict[int, int]) -> None:
    """Put a reply where it belongs. Errors come from the SuperLink: only what is replied to names a node."""
    node = waiting.pop(reply.metadata.reply_to_message_id, None)
    if node is None:
        return
    if reply.has_error():
        faults[node] = int(reply.error.code)
        return
    try:
        replies[node] = unpacked(reply.content)
    except MessageError:
        faults[node] = 0
