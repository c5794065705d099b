"""Between the process that drives a run and its Flower run: bytes over a socket of this machine.

`flwr run` starts a ServerApp in a process of its own. That one only relays, so that whoever fits, with keys,
transcript and run folder, stays in the user's own process, and survives the SuperLink.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

from privfed.core.stored.messages import Message, decode, encode
from privfed.engines.flower.network import Heard, Network
from privfed.errors import MessageError


class List(Message, frozen=True):
    """To the relay: which nodes are connected?"""


class Send(Message, frozen=True):
    """To the relay: send each node its message, which expires after that many seconds."""

    messages: tuple[tuple[int, bytes], ...]
    seconds: float


class End(Message, frozen=True):
    """To the relay: end the run."""


class Nodes(Message, frozen=True):
    """From the relay: the nodes that are connected."""

    nodes: tuple[int, ...]


class Back(Message, frozen=True):
    """From the relay: what came back."""

    replies: tuple[tuple[int, bytes], ...]
    faults: tuple[tuple[int, int], ...]


def relay(network: Network, pipe: Any) -> None:
    """Do what the driving process says until it ends the run, or is gone.

    Args:
        network: the nodes.
        pipe: a `multiprocessing.connection.Connection` to the driving process; only bytes go through it.
    """
    while True:
        try:
            said = decode(pipe.recv_bytes(), List | Send | End, sender="the driver", stage="relay")
        except (EOFError, OSError):
            return
        if isinstance(said, End):
            return
        if isinstance(said, List):
            pipe.send_bytes(encode(Nodes(network.nodes())))
        else:
            heard = network.send(dict(said.messages), said.seconds)
            pipe.send_bytes(encode(Back(tuple(heard.replies.items()), tuple(heard.faults.items()))))


def told(pipe: Connection, message: Message, expected: Any, seconds: float) -> Any:
    """Send a message to the relay and return its answer.

    Raises:
        EOFError: the relay is gone, or gives no answer within `seconds`.
    """
    try:
        pipe.send_bytes(encode(message))
        if not pipe.poll(seconds):
            raise EOFError
        return decode(pipe.recv_bytes(), expected, sender="the relay", stage="relay")
    except (OSError, MessageError):
        raise EOFError from None


def heard_of(back: Back) -> Heard:
    """Return what came back of an exchange."""
    return Heard(dict(back.replies), dict(back.faults))
