"""What a SuperLink or a node needs to start on this machine: the tested flwr, a command, ends by signals."""

from __future__ import annotations

import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

from privfed.errors import ArgumentError

TESTED = ("1.41.", "1.42.")
"""The releases of flwr that nodes and SuperLinks were tested with, since they lean on private parts of it."""


def check_flwr() -> None:
    """Check that the flwr that is installed is of a release that this was tested with.

    Raises:
        ArgumentError: it is another one, or there is none.
    """
    try:
        installed = version("flwr")
    except PackageNotFoundError:
        raise ArgumentError("flwr is not installed: pip install 'privfed[flower]'.") from None
    if not installed.startswith(TESTED):
        raise ArgumentError(
            f"flwr {installed} is installed, and privfed is tested with 1.41 and 1.42: "
            "pip install 'privfed[flower]'."
        )


def stop_by_signals() -> None:
    """Have Ctrl-C and SIGTERM end this process by an exception, so that it takes leave; that is no error."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, stop)


def node_command(folder: Path) -> list[str]:
    """Return the command of a node whose folder was checked.

    Raises:
        ArgumentError: flwr is missing or another one.
    """
    check_flwr()
    return [sys.executable, "-m", "privfed.nodes.deploy.node", str(folder.absolute())]
