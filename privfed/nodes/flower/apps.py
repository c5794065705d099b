"""Exchanges over Flower's Grid: bytes in messages, each matched to its reply by what it replies to."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from privfed.errors import MessageError
from privfed.nodes.flower.network import DISCONNECTED, EXPIRED, Heard

QUERY = "query"
"""Type of messages, one of those that Flower knows."""

_NOTHING: Mapping[int, RecordDict] = {}

_RECORD, _ARRAY, _SHORT, _NONCE = "privfed", "bytes", 1 << 20, 16
_FIRST_WAIT, _LONGEST_WAIT, _SHARE = 0.05, 0.5, 0.1
"""Seconds between two looks for replies: at least, at most, and as share of the time since the question."""


def packed(data: bytes) -> RecordDict:
    """Return bytes as the content of a message. Long ones are an array, which Flower sends in pieces.

    Each record, array and piece is a request of its own, for the sender and for the receiver. A nonce is in
    each: Flower stores content by its hash, and takes that of one message away with another's like it.
    """
    data += os.urandom(_NONCE)
    if len(data) <= _SHORT:
        return RecordDict({_RECORD: ConfigRecord({_ARRAY: data})})
    array = Array(dtype="uint8", shape=(len(data),), stype="bytes", data=data)
    return RecordDict({_RECORD: ArrayRecord({_ARRAY: array})})


def unpacked(content: RecordDict) -> bytes:
    """Return the bytes of a message's content.

    Raises:
        MessageError: there are none.
    """
    try:
        found = content[_RECORD][_ARRAY]
        data = found.data if isinstance(found, Array) else found
    except (KeyError, AttributeError, TypeError):
        data = None
    if not isinstance(data, bytes):
        raise MessageError("no bytes of privfed", sender="a node", stage="flower")
    return data[:-_NONCE]


class GridNetwork:
    """The nodes of a Flower run.

    Args:
        grid: what Flower gives a ServerApp.
        kind: type of all messages.
    """

    def __init__(self, grid: Grid, kind: str = QUERY) -> None:
        self._grid, self._kind = grid, kind

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes that are connected now."""
        return tuple(sorted(self._grid.get_node_ids()))

    def send(
        self, messages: Mapping[int, bytes], seconds: float, besides: Mapping[int, RecordDict] = _NOTHING
    ) -> Heard:
        """Send each node its message; return once all replied, or after `seconds`, when messages expire.

        Args:
            messages: by node.
            seconds: until they expire.
            besides: other records for a node, in the same message.
        """
        whole = {
            node: RecordDict({**besides.get(node, {}), **packed(data)}) for node, data in messages.items()
        }
        sent = [Message(one, node, self._kind, ttl=seconds) for node, one in whole.items()]
        # Where a message could not be pushed, its id is None: that node has a fault at once.
        ids = list(self._grid.push_messages(sent)) or [None] * len(sent)
        waiting = {one: node for one, node in zip(ids, messages, strict=True) if one is not None}
        faults = {node: DISCONNECTED for one, node in zip(ids, messages, strict=True) if one is None}
        replies: dict[int, bytes] = {}
        began = time.monotonic()
        while waiting and (passed := time.monotonic() - began) < seconds:
            found = list(self._grid.pull_messages(list(waiting)))
            for reply in found:
                _sort(reply, waiting, replies, faults)
            if not found:
                time.sleep(min(_LONGEST_WAIT, max(_FIRST_WAIT, _SHARE * passed)))
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
