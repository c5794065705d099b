"""What a SuperLink or a node needs to start on this machine: the tested flwr, a command, ends by signals."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from privfed.engines.flower.settings import FederationFile
from privfed.errors import ArgumentError

TESTED = "1.41.0"
"""The release of flwr that nodes and SuperLinks were tested with, since they lean on private parts of it."""


def check_flwr() -> None:
    """Check that the flwr that is installed is the one that this was tested with.

    Raises:
        ArgumentError: it is another one, or there is none.
    """
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        raise ArgumentError("flwr is not installed: pip install 'privfed[flower]'.") from None
    if installed != TESTED:
        raise ArgumentError(
            f"flwr {installed} is installed, and privfed is tested with {TESTED} only: install flwr as "
            "privfed's lock has it."
        )


def stop_by_signals() -> None:
    """Have Ctrl-C and SIGTERM end this process by an exception, so that it takes leave; that is no error."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, stop)


def check_superlink(file: FederationFile, host: str) -> None:
    """Check that a SuperLink can serve a federation on an address of this machine.

    Raises:
        ArgumentError: it would serve other machines without TLS, or flwr is missing or another one.
    """
    check_flwr()
    if file.root_certificates is None and host != "127.0.0.1":
        raise ArgumentError(f"without certificates a SuperLink serves 127.0.0.1 only, got host={host!r}.")


def node_command(folder: Path) -> list[str]:
    """Return the command of a node whose folder was checked.

    Raises:
        ArgumentError: flwr is missing or another one.
    """
    check_flwr()
    return [sys.executable, "-m", "privfed.deploy.node", str(folder.absolute())]
