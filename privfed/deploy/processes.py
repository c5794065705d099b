"""Flower's own processes, started offline: a SuperLink that knows its nodes, and a node's SuperNode."""

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
from privfed.deploy.certificates import CERTIFICATES, NODE_KEY, SERVER, SERVER_KEY
from privfed.engines.flower.federation_file import HOME, FederationFile
from privfed.engines.flower.running import CONNECTION, command, environment, write_connection
from privfed.engines.flower.settings import PARTY
from privfed.errors import ArgumentError, ProtocolError

_PATIENCE = 60.0
_ENDING = 20.0


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def superlink_words(file: FederationFile, host: str) -> list[str]:
    """Return the command of a SuperLink for a federation.

    It takes the federation's certificates and knows nodes by their keys; without certificates it serves this
    machine only.

    Args:
        file: of the federation.
        host: address to listen on.

    Raises:
        ArgumentError: it would serve other machines without TLS.
    """
    port = file.superlink.rpartition(":")[2]
    words = [command("flower-superlink"), "--host", host, "--port", port]
    words += ["--disable-runtime-dependency-installation"]
    if file.root_certificates is None:
        if host != "127.0.0.1":
            raise ArgumentError(f"without certificates a SuperLink serves 127.0.0.1 only, got host={host!r}.")
        return [*words, "--insecure"]
    folder = file.folder / CERTIFICATES
    words += ["--ssl-ca-certfile", str(file.root_certificates), "--ssl-certfile", str(folder / SERVER)]
    return [*words, "--ssl-keyfile", str(folder / SERVER_KEY), "--enable-supernode-auth"]


def node_words(folder: Path, superlink: str, root_certificates: Path | None, port: int) -> list[str]:
    """Return the command of a node's SuperNode.

    Args:
        folder: of the party.
        superlink: address of the SuperLink.
        root_certificates: of the authority that signed its certificate; None without TLS.
        port: of this machine, for the node's own processes.
    """
    words = [command("flower-supernode"), "--superlink", superlink, "--port", str(port)]
    words += ["--node-config", f'{PARTY}="{folder.absolute()}"']
    if root_certificates is None:
        return [*words, "--insecure"]
    key = ["--auth-supernode-private-key", str(folder.absolute() / NODE_KEY)]
    return [*words, "--root-certificates", str(root_certificates.absolute()), *key]


def register(file: FederationFile, keys: Sequence[Path]) -> None:
    """Tell a SuperLink the keys of its nodes. A key that it knows already is left.

    Raises:
        ProtocolError: it does not take one.
    """
    home = write_connection(file)
    for key in keys:
        words = [command("flwr"), "supernode", "register", str(key.absolute()), CONNECTION]
        done = subprocess.run(
            words, env=environment(home), cwd=home, capture_output=True, text=True, check=False
        )
        said = " ".join((done.stdout + done.stderr).split())
        if "uccessfully" not in said and "already" not in said:
            raise ProtocolError(f"the SuperLink does not take the key {key}: {said[-400:]}")


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
    until = time.monotonic() + _PATIENCE
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
        """Start the SuperLink, wait until it listens, and tell it its nodes' keys."""
        home = self.file.folder / HOME
        make_folder(home)
        self.superlink = self._start("superlink", superlink_words(self.file, host), environment(home))
        wait_until_open(self.file.superlink, self.superlink, home / "superlink.log")
        register(self.file, keys)

    def start_node(self, folder: Path, *, launcher: bool = True, checked: bool = True) -> None:
        """Start a node. The same one may be started again once it has ended.

        Args:
            folder: of the party.
            launcher: whether the installed app runs, pre-forked, whatever app a run brings.
            checked: whether the folder is checked first, with the list of parties.
        """
        root = "" if self.file.root_certificates is None else str(self.file.root_certificates)
        how = ("launcher" if launcher else "plain") if checked else "unchecked"
        words = [sys.executable, "-m", "privfed.deploy.node", str(folder.absolute())]
        words += [self.file.superlink, root, how]
        make_folder(folder / HOME)
        self.nodes[folder.name] = self._start(folder.name, words, environment(folder / HOME))

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

    def _start(self, name: str, words: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
        folder = self.file.folder / HOME
        log = open_file(folder / f"{name}.log", "ab")
        self._logs.append(log)
        # A session of its own, so that what it starts ends with it. Not from a folder with a checkout of
        # privfed, which would hide the installed one.
        return subprocess.Popen(
            words,
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
