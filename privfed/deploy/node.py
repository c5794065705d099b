"""A node in the foreground: Flower's SuperNode, started again where it ends, and the launcher of its app."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from privfed.core.stored.files import make_folder
from privfed.deploy.launcher import FOLDER, SOCKET, TORCH, unsupported, write_stub
from privfed.deploy.processes import end, free_port, node_words
from privfed.engines.flower.federation_file import HOME
from privfed.engines.flower.node import check_node
from privfed.engines.flower.running import environment
from privfed.engines.flower.settings import SETTINGS, NodeSettings
from privfed.errors import ArgumentError

GIVEN_UP = (
    "without the launcher whoever may submit a run chooses the code that reads this node's rows, and each "
    "message costs seconds of imports"
)
"""What a node gives up that runs Flower's command as it is."""

_AGAIN, _PATIENCE = 5.0, 120.0
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
        words = node_words(folder, superlink, root_certificates, free_port())
        while True:
            started.append(subprocess.Popen(words, env=env, cwd=home))
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
    words = [sys.executable, "-m", "privfed.deploy.launcher", str(folder), str(os.getpid()), *also]
    process = subprocess.Popen(words, env=environment(home), cwd=home)
    started.append(process)
    until = time.monotonic() + _PATIENCE
    while not (folder / SOCKET).exists():
        if process.poll() is not None or time.monotonic() > until:
            raise ArgumentError("the launcher of this node's app did not start.")
        time.sleep(0.1)
    return commands


def stop(number: int, frame: FrameType | None) -> None:
    """Handle a signal: end this process by an exception, so that what it started is ended, too."""
    raise SystemExit(0)


if __name__ == "__main__":
    where, address, root, how = sys.argv[1:]
    words = {"launcher": how != "plain", "checked": how != "unchecked"}
    run_node(Path(where), address, Path(root) if root else None, **words)
