"""Flower's processes, started offline: a SuperLink, and nodes, which are started again where they end."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import IO

from privfed.core.stored.files import make_folder, open_file
from privfed.deploy.folders import NODE_KEY, admit
from privfed.deploy.launcher import FOLDER, SOCKET, TORCH, unsupported, write_stub
from privfed.engines.flower.network import command, environment
from privfed.engines.flower.node import check_node
from privfed.engines.flower.settings import HOME, PARTY, SETTINGS, FederationFile, NodeSettings
from privfed.errors import ArgumentError, ProtocolError

GIVEN_UP = (
    "without the launcher whoever may submit a run chooses the code that reads this node's rows, and each "
    "message costs seconds of imports"
)
"""What a node gives up that runs Flower's command as it is."""

_AGAIN, _LAUNCHING, _LISTENING, _ENDING = 5.0, 120.0, 60.0, 20.0
"""Seconds before a node is started again, and those that a launcher, a SuperLink and an end may take."""

_LOG = logging.getLogger("privfed")


def run_node(
    folder: Path,
    superlink: str,
    root_certificates: Path | None,
    *,
    launcher: bool = True,
    checked: bool = True,
) -> None:
    """Be a node until this process is ended.

    Flower's SuperNode ends where its last lease still holds, as after a crash, or where the SuperLink does
    not know its key: it is started again after a few seconds.

    Args:
        folder: of the party.
        superlink: address of the SuperLink.
        root_certificates: of the authority that signed its certificate; None without TLS.
        launcher: whether the installed app runs, pre-forked, whatever app a run brings.
        checked: whether the folder is checked first, with the list of parties.

    Raises:
        ArgumentError: the folder cannot serve as a node, or the launcher cannot run with this flwr.
        DataError: its rows cannot be read.
    """
    name = check_node(folder) if checked else folder.name
    home = folder / HOME
    make_folder(home)
    # A signal becomes an exception, so that what was started is ended.
    signal.signal(signal.SIGTERM, stop)
    started: list[subprocess.Popen[bytes]] = []
    try:
        env = environment(home)
        if launcher:
            env["PATH"] = os.pathsep.join([str(_launch(home, started, _also(folder))), env["PATH"]])
        else:
            _LOG.warning("node %s: %s.", name, GIVEN_UP)
        arguments = node_arguments(folder, superlink, root_certificates, free_port())
        while True:
            started.append(subprocess.Popen(arguments, env=env, cwd=home))
            started[-1].wait()
            started.pop()
            time.sleep(_AGAIN)
    finally:
        for process in started:
            end(process)


def _also(folder: Path) -> list[str]:
    """Return what the launcher of a node imports besides: where it has labels, what trains torch modules."""
    trains = (folder / SETTINGS).exists() and NodeSettings.read(folder).labels is not None
    return [TORCH] if trains and find_spec("torch") and find_spec("opacus") else []


def _launch(home: Path, started: list[subprocess.Popen[bytes]], also: list[str]) -> Path:
    """Start the launcher; return the folder of its stub once it has imported all."""
    if why := unsupported():
        raise ArgumentError(f"{why}: install flwr as privfed's lock has it, or use --plain ({GIVEN_UP}).")
    folder = (home / FOLDER).absolute()
    commands = write_stub(folder)
    (folder / SOCKET).unlink(missing_ok=True)
    arguments = [sys.executable, "-m", "privfed.deploy.launcher", str(folder), str(os.getpid()), *also]
    process = subprocess.Popen(arguments, env=environment(home), cwd=home)
    started.append(process)
    until = time.monotonic() + _LAUNCHING
    while not (folder / SOCKET).exists():
        if process.poll() is not None or time.monotonic() > until:
            raise ArgumentError("the launcher of this node's app did not start.")
        time.sleep(0.1)
    return commands


def stop(number: int, frame: FrameType | None) -> None:
    """Handle a signal: end this process by an exception, so that what it started is ended, too."""
    raise SystemExit(0)


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def superlink_arguments(file: FederationFile, host: str) -> list[str]:
    """Return the command of a SuperLink for a federation.

    It takes the federation's certificates and knows nodes by their keys; without certificates it serves this
    machine only.

    Args:
        file: of the federation.
        host: address to listen on.

    Raises:
        ArgumentError: it would serve other machines without TLS.
    """
    if file.root_certificates is None and host != "127.0.0.1":
        raise ArgumentError(f"without certificates a SuperLink serves 127.0.0.1 only, got host={host!r}.")
    return [sys.executable, "-m", "privfed.deploy.superlink", str(file.folder), host]


def node_arguments(folder: Path, superlink: str, root_certificates: Path | None, port: int) -> list[str]:
    """Return the command of a node's SuperNode.

    Args:
        folder: of the party.
        superlink: address of the SuperLink.
        root_certificates: of the authority that signed its certificate; None without TLS.
        port: of this machine, for the node's own processes.
    """
    arguments = [command("flower-supernode"), "--superlink", superlink, "--port", str(port)]
    arguments += ["--node-config", f'{PARTY}="{folder.absolute()}"']
    if root_certificates is None:
        return [*arguments, "--insecure"]
    key = ["--auth-supernode-private-key", str(folder.absolute() / NODE_KEY)]
    return [*arguments, "--root-certificates", str(root_certificates.absolute()), *key]


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

    def start_superlink(self, keys: Sequence[Path] = (), host: str = "127.0.0.1") -> None:
        """Start the SuperLink for the nodes that are admitted, these besides, and wait until it listens."""
        if why := unsupported():
            raise ArgumentError(f"{why}: install flwr as privfed's lock has it.")
        home = self.file.folder / HOME
        make_folder(home)
        admit(self.file.folder, keys)
        self.superlink = self._start("superlink", superlink_arguments(self.file, host), environment(home))
        wait_until_open(self.file.superlink, self.superlink, home / "superlink.log")

    def start_node(self, folder: Path, *, launcher: bool = True, checked: bool = True) -> None:
        """Start a node. The same one may be started again once it has ended.

        Args:
            folder: of the party.
            launcher: whether the installed app runs, pre-forked, whatever app a run brings.
            checked: whether the folder is checked first, with the list of parties.
        """
        root = "" if self.file.root_certificates is None else str(self.file.root_certificates)
        how = ("launcher" if launcher else "plain") if checked else "unchecked"
        arguments = [sys.executable, "-m", "privfed.deploy.node", str(folder.absolute())]
        arguments += [self.file.superlink, root, how]
        make_folder(folder / HOME)
        self.nodes[folder.name] = self._start(folder.name, arguments, environment(folder / HOME))

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
    # What Flower starts notices late that it is alone.
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


if __name__ == "__main__":
    where, address, root, how = sys.argv[1:]
    options = {"launcher": how != "plain", "checked": how != "unchecked"}
    run_node(Path(where), address, Path(root) if root else None, **options)
