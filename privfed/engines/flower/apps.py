"""The two apps of a Flower run, and the exchanges over Flower's Grid. Only this module imports flwr.

The ClientApp runs on a node: bytes in, bytes out, and no text of any error. The ServerApp of a simulation
relays for the process that started it; a deployment runs none. Each message is matched to its reply by the
message that it replies to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from privfed.core.stored.encoding import Refusal, encode
from privfed.engines.flower.network import DISCONNECTED, EXPIRED, Heard, relay
from privfed.engines.flower.node import answered
from privfed.engines.flower.settings import PARTITION, PARTY
from privfed.errors import FAILED, ArgumentError, MessageError

QUERY = "query"
"""Type of all messages, one of those that Flower knows."""

_RECORD, _ARRAY, _SHORT = "privfed", "bytes", 1 << 20
_FIRST_WAIT, _LONGEST_WAIT, _SHARE = 0.05, 0.5, 0.1
"""Seconds between two looks for replies: at least, at most, and as share of the time since the question."""


def packed(data: bytes) -> RecordDict:
    """Return bytes as the content of a message. Long ones are an array, which Flower sends in pieces.

    Each record, array and piece is a request of its own, for the sender and for the receiver.
    """
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


def folder_of(context: Context, folders: tuple[Path, ...] = ()) -> Path:
    """Return the folder of the party that a node is.

    It follows from the node's own configuration, never from the run's, which whoever submits the run writes.

    Args:
        context: of the message.
        folders: of all parties, in a simulation.

    Raises:
        ArgumentError: the node's configuration names none.
    """
    own = context.node_config
    if not folders and isinstance(own.get(PARTY), str):
        return Path(str(own[PARTY]))
    place = own.get(PARTITION)
    if folders and isinstance(place, int) and 0 <= place < len(folders):
        return folders[place]
    raise ArgumentError("this node's configuration names no party: start it with privfed flower node.")


def client_app(folders: tuple[Path, ...] = ()) -> ClientApp:
    """Return a ClientApp that answers from its party's folder.

    Args:
        folders: of all parties, in a simulation; empty where each node's configuration names its own.
    """

    def answer(message: Message, context: Context) -> Message:
        return _replied(message, context, folders)

    app = ClientApp()
    app.query()(answer)
    return app


def _replied(message: Message, context: Context, folders: tuple[Path, ...]) -> Message:
    """Return the reply to a message. Ray copies inner functions with all that they name, so this is none."""
    try:
        reply = answered(folder_of(context, folders), unpacked(message.content))
    except Exception:
        # Flower would send the text of this error to the server.
        reply = encode(Refusal(FAILED))
    return Message(packed(reply), reply_to=message)


client = client_app()
"""What an app's pyproject.toml names."""


def server_app(path: str) -> ServerApp:
    """Return a ServerApp that relays.

    Args:
        path: of the driving process's socket.
    """

    def main(grid: Grid, context: Context) -> None:
        if not path:
            raise RuntimeError("no process drives this app: privfed flower superlink relays by itself")
        with Client(path, family="AF_UNIX") as pipe:
            relay(GridNetwork(grid), pipe)

    app = ServerApp()
    app.main()(main)
    return app


server = server_app("")
"""What an app's pyproject.toml must name; it does nothing."""
