"""A pre-forked ClientApp: a node's own installed app answers, in a fork of a process that imported all.

Flower starts `flwr-clientapp`, found by PATH, for every message: seconds of imports, and it runs the code
that whoever submitted the run wrote. In a node's environment that name is a stub of ours instead. It hands
its arguments to this process, which forks; the fork does what Flower's command does, except that the app is
not taken from the run: it is `privfed.engines.flower.apps`, as it is installed on this machine. A run
may call itself of another type, for which Flower's node starts another command, with the run's code: these
are stubs that do nothing.

It leans on two names in Flower's `run_clientapp` module, which are private; it is tested with `TESTED`, and
refuses to start where they are not as they were there.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privfed.core.stored.files import make_folder
from privfed.errors import ArgumentError

TESTED = "1.41.0"
"""The release of flwr that this was tested with."""

COMMAND, FOLDER, SOCKET = "flwr-clientapp", "launcher", "socket"
_LONGEST = 1 << 16

CLOSED = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")
"""Flower's commands for tasks of other types, which a run, or who runs the SuperLink, chooses."""

_MODULE = "flwr.supernode.runtime.run_clientapp"
_NAMES = {"install_from_fab": 3, "get_load_client_app_fn": 3}
"""Private names that are replaced, and how many parameters each has."""

_IMPORTED = (
    *("flwr.supernode.cli", "privfed.engines.flower.apps", "privfed.estimators.registry"),
    *("privfed.protocols.masked.masked", "privfed.protocols.group_masked.group_masked"),
    *("privfed.protocols.ckks.ckks", "privfed.protocols.slotted", "privfed.algorithms.wf_kmeans"),
    *("privfed.algorithms.fuzzy", "privfed.algorithms.fkm", "privfed.metrics.asked"),
    *("privfed.algorithms.summary", "privfed.deep.algorithms.regrouped", "privfed.deep.algorithms.mixing"),
)
TORCH = "privfed.deep.training.torch_trainer"
"""What a node imports besides that may train torch modules: it takes seconds."""

_STUB = """\
#!{python} -IS
import json, socket, sys
with socket.socket(socket.AF_UNIX) as pipe:
    pipe.connect({path!r})
    pipe.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    code = pipe.recv(1)
sys.exit(code[0] if code else 1)
"""
_CLOSED_STUB = "#!/bin/sh\nexit 1\n"


def unsupported() -> str:
    """Say why this cannot run with the flwr that is installed; empty where it can."""
    installed = version("flwr")
    if installed != TESTED:
        return f"flwr {installed} is installed, and the launcher is tested with {TESTED} only"
    module = import_module(_MODULE)
    for name, parameters in _NAMES.items():
        found = vars(module).get(name)
        if not callable(found) or len(inspect.signature(found).parameters) != parameters:
            return f"flwr {installed} has another {name}"
    if set(import_module("flwr.supercore.constant").TASK_TYPE_TO_COMMAND.values()) != {COMMAND, *CLOSED}:
        return f"flwr {installed} has other types of tasks"
    return "this system cannot fork" if sys.platform == "win32" else ""


def write_stub(folder: Path) -> Path:
    """Write the stubs of Flower's commands; return the folder that goes first on a node's PATH.

    Args:
        folder: of the launcher, one a node.

    Raises:
        ArgumentError: the path of its socket is too long for this system.
    """
    path = (folder / SOCKET).absolute()
    if len(os.fsencode(path)) > 100:
        raise ArgumentError(f"{path} is too long for a socket (100 bytes); move the party.")
    commands = folder / "bin"
    make_folder(commands)
    texts = dict.fromkeys(CLOSED, _CLOSED_STUB)
    for name, text in {**texts, COMMAND: _STUB.format(python=sys.executable, path=str(path))}.items():
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(0o700)
    return commands.absolute()


def serve(folder: Path, parent: int, also: Sequence[str] = ()) -> None:
    """Import all, then answer each call of the stub in a fork, until the node's process is gone.

    Args:
        folder: of the launcher.
        parent: process that started this one, and with which it ends.
        also: modules to import besides. Not those of the node's owner: what runs in them before a fork, as
            threads, may hang in the fork.
    """
    for name in (*_IMPORTED, *also):
        import_module(name)
    _use_own_app()
    path = folder / SOCKET
    path.unlink(missing_ok=True)
    # Ended forks are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(16)
        listening.settimeout(1.0)
        while os.getppid() == parent:
            with suppress(TimeoutError):
                _hand_over(listening)


def _hand_over(listening: socket.socket) -> None:
    pipe, _ = listening.accept()
    with pipe:
        if os.fork():
            return
        listening.close()
        pipe.settimeout(None)
        code = 1
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = _run(_arguments(pipe))
        finally:
            with suppress(OSError):
                pipe.sendall(bytes([code]))
            # Nothing of the process that was forked is ended twice.
            os._exit(code)


def _arguments(pipe: socket.socket) -> list[str]:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LONGEST:
        part = pipe.recv(4096)
        if not part:
            break
        line += part
    found = json.loads(line)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError("no arguments of a command")
    return found


def _run(arguments: list[str]) -> int:
    """Do what Flower's command does with these arguments."""
    sys.argv = [COMMAND, *arguments]
    command: Callable[[], None] = import_module("flwr.supernode.cli").flwr_clientapp
    try:
        command()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def _use_own_app() -> None:
    """Have Flower's `run_clientapp` run the installed app, and leave the code of the run where it is."""
    from privfed.engines.flower.apps import client as app

    def load(*about_the_run: str) -> Any:
        return app

    own = {"install_from_fab": lambda *_, **__: None, "get_load_client_app_fn": lambda *_, **__: load}
    vars(import_module(_MODULE)).update(own)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
