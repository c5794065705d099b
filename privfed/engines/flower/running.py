"""A Flower run that this process drives: `flwr run` starts its ServerApp, which relays to the nodes."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from privfed.core.stored.files import make_folder, open_file
from privfed.engines.flower.federation_file import APP, HOME, FederationFile
from privfed.engines.flower.network import Heard, RunLostError
from privfed.engines.flower.relay import Back, End, List, Nodes, Send, heard_of, told
from privfed.errors import ArgumentError, ProtocolError

OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Without these Flower and Ray call their makers' servers, and a run installs packages from an index."""

_POLLING = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25"}
"""Seconds after which Flower looks for the next message, by default 1."""

_START, _GRACE = 180.0, 30.0
CONNECTION = "privfed"


def command(name: str) -> str:
    """Return the path of one of Flower's commands, that of this Python where it has one.

    Raises:
        ArgumentError: it is not installed.
    """
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ArgumentError(f"{name} is not installed: pip install 'privfed[flower]'.")
    return found


def environment(home: Path) -> dict[str, str]:
    """Return the environment of Flower's commands: offline, with its files in `home`."""
    # Flower finds its own commands by PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {**_POLLING, **os.environ, **OFFLINE, "PATH": path, "FLWR_HOME": str(home.absolute())}


def write_connection(file: FederationFile) -> Path:
    """Write where the SuperLink is into the folder that Flower's commands read, and return that folder."""
    home = file.folder / HOME
    make_folder(home)
    lines = [f"[superlink.{CONNECTION}]", f'address = "{file.superlink}"']
    if file.root_certificates is None:
        lines.append("insecure = true")
    else:
        lines.append(f'root-certificates = "{file.root_certificates}"')
    with open_file(home / "config.toml", "w", encoding="utf-8") as config:
        config.write("\n".join(lines) + "\n")
    return home


def submitted(file: FederationFile) -> Callable[[Path], subprocess.Popen[bytes] | None]:
    """Return what submits a run of a federation's app to its SuperLink, given the path of a socket."""

    def submit(path: Path) -> None:
        home = write_connection(file)
        app = str((file.folder / APP).absolute())
        words = [command("flwr"), "run", app, CONNECTION, "--run-config", f'relay="{path}"']
        # Not from a folder with a checkout of privfed, which would hide the installed one.
        done = subprocess.run(
            words, env=environment(home), cwd=home, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = " ".join(re.sub("[\u2500-\u257f]", " ", done.stdout + done.stderr).split())[-600:]
            raise RunLostError(f"flwr run started none at the SuperLink {file.superlink}: {said}")

    return submit


Answer = TypeVar("Answer", Nodes, Back)


class DrivenRun:
    """The nodes of a Flower run that this process starts when it first needs it, and again once it is lost.

    Args:
        submit: starts a run whose ServerApp connects to the socket at a path; may return a process that
            ends with the run.
    """

    def __init__(self, submit: Callable[[Path], subprocess.Popen[bytes] | None]) -> None:
        self._submit = submit
        self._pipe: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes that are connected now."""
        return self._told(List(), Nodes, 0.0).nodes

    def send(self, messages: Mapping[int, bytes], seconds: float) -> Heard:
        """Send each node its message; return once all replied, or after `seconds`, when messages expire."""
        return heard_of(self._told(Send(tuple(messages.items()), seconds), Back, seconds))

    def close(self) -> None:
        """End the run; another one is started when nodes are asked again."""
        if self._pipe is not None:
            with suppress(EOFError):
                told(self._pipe, End(), Back, 0.0)
            self._pipe.close()
        if self._process is not None:
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._pipe = self._process = None

    def _told(self, message: List | Send, expected: type[Answer], seconds: float) -> Answer:
        if self._pipe is None:
            self._pipe = self._started()
        try:
            answer: Answer = told(self._pipe, message, expected, seconds + _GRACE)
            return answer
        except EOFError:
            self.close()
            raise RunLostError(
                "the Flower run ended, as when the SuperLink stops or the run is stopped there. What was "
                "opened is kept: resume the fit (with run_dir=), which starts another run."
            ) from None

    def _started(self) -> Connection:
        folder = tempfile.mkdtemp(prefix="privfed-")  # Its owner's alone.
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                path = Path(folder) / "relay"
                listening.bind(str(path))
                listening.listen(1)
                listening.settimeout(_START)
                self._process = self._submit(path)
                connected, _ = listening.accept()
            connected.settimeout(None)
            return Connection(connected.detach())
        except TimeoutError:
            raise ProtocolError(
                f"the SuperLink took the run, but its ServerApp did not start within {_START:.0f} s: it must "
                "run on this machine, as this user, with privfed installed; see its log (flwr log)."
            ) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
