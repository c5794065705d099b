"""The nodes of a Flower run, as the process that drives it reaches them: by a socket of this machine.

The SuperLink only relays bytes between that socket and the nodes. So whoever fits, with keys, transcript and
run folder, stays in the user's own process, and survives the SuperLink.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import msgspec

from privfed.core.stored.encoding import Message, decode, encode
from privfed.errors import ArgumentError, MessageError, ProtocolError
from privfed.nodes.flower.settings import HOME, FederationFile

EXPIRED, DISCONNECTED = -1, 5
"""Faults of a node that has not replied while its message lived, and of one that is not connected."""

FAULTS = {
    EXPIRED: "no reply in time (timeout in federation.toml)",
    0: "an unknown error",
    3: "no reply in time",
    4: "its reply was lost",
    DISCONNECTED: "the node is not connected",
    8: "its process died",
}
"""Code of an error of Flower -> its description. The text that comes with an error is never read."""


class RunLostError(ProtocolError):
    """The Flower run is gone, or none can be started; what its nodes remember lies in their folders."""


class Heard(Message, frozen=True):
    """What came back of one exchange.

    Args:
        replies: node -> bytes.
        faults: node -> code of what went wrong (`FAULTS`).
    """

    replies: dict[int, bytes] = msgspec.field(default_factory=dict)
    faults: dict[int, int] = msgspec.field(default_factory=dict)


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


class List(Message, frozen=True):
    """To the relay: which nodes are connected?"""


class Send(Message, frozen=True):
    """To the relay: send each node its message, which expires after that many seconds."""

    messages: dict[int, bytes]
    seconds: float


class Nodes(Message, frozen=True):
    """From the relay: the nodes that are connected, and of each party whether it is, or why not."""

    nodes: tuple[int, ...]
    parties: dict[str, str]


def relay(network: Network, pipe: Any, parties: Callable[[], dict[str, str]] = dict) -> None:
    """Do what the driving process says until it closes the pipe, or is gone.

    Args:
        network: the nodes.
        pipe: a `multiprocessing.connection.Connection` to the driving process; only bytes go through it.
        parties: says of each party of the list whether it is there.
    """
    while True:
        try:
            said = decode(pipe.recv_bytes(), List | Send, sender="the driver", stage="relay")
        except (EOFError, OSError):
            return
        if isinstance(said, List):
            pipe.send_bytes(encode(Nodes(network.nodes(), parties())))
        else:
            pipe.send_bytes(encode(network.send(said.messages, said.seconds)))


OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Without these Flower and Ray call their makers' servers, and a run installs packages from an index."""

_GRACE = 30.0
SOCKET = "superlink"
"""In the folder that Flower keeps for itself: how a coordinator's process reaches its SuperLink."""

LONGEST = 100
"""Most bytes of a socket's path."""


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's commands: offline, with its files in `home`."""
    # Flower finds its own commands by PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**os.environ, **OFFLINE, "PATH": path, "FLWR_HOME": str(home.absolute())}


def socket_of(file: FederationFile) -> Path:
    """Return the path of the socket by which a federation's coordinator reaches its SuperLink.

    Raises:
        ArgumentError: it is too long for this system.
    """
    path = (file.folder / HOME / SOCKET).absolute()
    if len(os.fsencode(path)) > LONGEST:
        raise ArgumentError(f"{path} is too long for a socket ({LONGEST} bytes); move the federation.")
    return path


def linked(file: FederationFile) -> Callable[[], Connection]:
    """Return what connects to the SuperLink of a federation, which runs on this machine."""

    def connect() -> Connection:
        path = socket_of(file)
        try:
            with socket.socket(socket.AF_UNIX) as pipe:
                pipe.connect(str(path))
                return Connection(pipe.detach())
        except OSError:
            raise RunLostError(
                f"no SuperLink of {file.folder} runs on this machine, as this user: start it with "
                f"privfed flower superlink {file.folder}."
            ) from None

    return connect


class DrivenRun:
    """The nodes of a Flower run that this process reaches when it first needs them, and again once lost.

    Args:
        connect: returns a pipe to the run's relay.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._pipe: Connection | None = None

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes that are connected now."""
        return self.listed().nodes

    def listed(self) -> Nodes:
        """Return the nodes that are connected now, and what the SuperLink says of each party of the list."""
        found: Nodes = self._asked(List(), Nodes, 0.0)
        return found

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        """Send each node its message; return once all replied, or after `seconds`, when messages expire."""
        heard: Heard = self._asked(Send(dict(messages), seconds), Heard, seconds)
        return heard

    def close(self) -> None:
        """Leave the run; it is sought again when nodes are asked again."""
        if self._pipe is not None:
            self._pipe.close()
        self._pipe = None

    def _asked(self, message: List | Send, expected: type[Message], seconds: float) -> Any:
        if self._pipe is None:
            self._pipe = self._connect()
        try:
            self._pipe.send_bytes(encode(message))
            if self._pipe.poll(seconds + _GRACE):
                return decode(self._pipe.recv_bytes(), expected, sender="the relay", stage="relay")
        except (EOFError, OSError, MessageError):
            pass
        self.close()
        raise RunLostError(
            "the SuperLink ended. What was opened is kept: start it again, and resume the fit (run_dir=)."
        )
