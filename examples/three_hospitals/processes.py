"""A federation's processes on this machine: its SuperLink and nodes, which all end together."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from privfed.core.stored.files import make_folder, open_file
from privfed.errors import ProtocolError
from privfed.nodes.deploy.processes import check_flwr, node_command
from privfed.nodes.flower.network import environment
from privfed.nodes.flower.settings import HOME, FederationFile

_LISTENING, _ENDING = 60.0, 20.0
"""Seconds until a SuperLink listens, and until an end is forced."""


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_until_open(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a SuperLink listens.

    Args:
        address: where.
        process: its process.
        log: what it writes, for the message of an error.

    Raises:
        ProtocolError: it ended, or does not within a minute.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + _LISTENING
    while time.monotonic() < until and process.poll() is None:
        try:
            with socket.create_connection((host, int(port)), timeout=1.0):
                return
        except OSError:
            time.sleep(0.2)
    raise ProtocolError(f"the SuperLink does not listen at {address}; its log is {log}.")


class Processes:
    """Flower's processes of one federation on this machine; ends them all when it is left.

    Args:
        file: of the federation.
    """

    def __init__(self, file: FederationFile) -> None:
        self.file = file
        self.superlink: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs: list[IO[bytes]] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start_superlink(self, host: str = "127.0.0.1") -> None:
        """Start the SuperLink for the nodes that were added, and wait until it listens."""
        check_flwr()
        home = self.file.folder / HOME
        make_folder(home)
        arguments = [sys.executable, "-m", "privfed.nodes.deploy.superlink", str(self.file.folder), host]
        self.superlink = self._start("superlink", arguments, environment(home))
        near = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        port = self.file.superlink.rpartition(":")[2]
        wait_until_open(f"{near}:{port}", self.superlink, home / "superlink.log")

    def start_node(self, folder: Path) -> None:
        """Start a node with the kit in its folder. The same one may be started again once it has ended."""
        make_folder(folder / HOME)
        self.nodes[folder.name] = self._start(folder.name, node_command(folder), environment(folder / HOME))

    def kill_node(self, name: str) -> None:
        """End a node at once (SIGKILL), with all its processes."""
        end(self.nodes.pop(name), signal.SIGKILL)

    def hold(self, name: str, seconds: float) -> None:
        """Stop a node's processes for some time, as if they were slow; they go on by themselves."""
        pids = [self.nodes[name].pid, *_family(self.nodes[name].pid)]
        _signal(pids, signal.SIGSTOP)
        going_on = threading.Timer(seconds, _signal, (pids, signal.SIGCONT))
        going_on.daemon = True
        going_on.start()

    def kill_superlink(self) -> None:
        """End the SuperLink at once (SIGKILL), with all its processes."""
        if self.superlink is not None:
            end(self.superlink, signal.SIGKILL)
        self.superlink = None

    def stop(self) -> None:
        """End all processes: first as they wish, then at once."""
        running = [*self.nodes.values(), *([] if self.superlink is None else [self.superlink])]
        for process in running:
            end(process)
        for log in self._logs:
            log.close()
        self.nodes, self.superlink, self._logs = {}, None, []

    def _start(self, name: str, arguments: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        folder = self.file.folder / HOME
        log = open_file(folder / f"{name}.log", "ab")
        self._logs.append(log)
        # A session of its own, so that what it starts ends with it. Not from a folder with a checkout of
        # privfed, which would hide the installed one.
        return subprocess.Popen(
            arguments,
            env=env,
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process and all that it started, each in a session of its own."""
    family = _family(process.pid)
    _signal([process.pid], how)
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        _signal([process.pid], signal.SIGKILL)
        process.wait()
    # What it started may notice late that it is alone.
    _signal(family, signal.SIGKILL)


def _signal(pids: Sequence[int], how: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, how)


def _family(pid: int) -> list[int]:
    """Return the processes that a process started, and those started; empty where there is no /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # The name, in parentheses, may hold anything.
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.parent.name))
    found, queue = list[int](), [pid]
    while queue:
        children = parents.get(queue.pop(), [])
        found += children
        queue += children
    return found
