"""A Flower simulation of a federation whose parties are all on this machine: Ray's actors in place of nodes.

The same apps, folders and journals as in a deployment; what is missing is the network, and with it TLS and
authenticated nodes. Ray listens on all interfaces of this machine while it runs.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from privfed.core.stored.files import make_folder, open_file
from privfed.deploy.local import nodes_of
from privfed.engines.flower.network import DrivenRun, environment
from privfed.engines.flower.settings import HOME, FederationFile
from privfed.errors import ArgumentError, ProtocolError

_START, _GRACE = 180.0, 30.0


class SimulatedRun(DrivenRun):
    """The nodes of a simulation, which starts when they are first needed, and ends with this object's use.

    Args:
        start: starts a process whose ServerApp connects to the socket at a path.
    """

    def __init__(self, start: Callable[[Path], subprocess.Popen[bytes]]) -> None:
        super().__init__(self._started)
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """End the simulation; another one is started when nodes are asked again."""
        super().close()
        if self._process is not None:
            try:
                self._process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _started(self) -> Connection:
        folder = tempfile.mkdtemp(prefix="privfed-")  # Its owner's alone.
        try:
            with socket.socket(socket.AF_UNIX) as listening:
                path = Path(folder) / "relay"
                listening.bind(str(path))
                listening.listen(1)
                listening.settimeout(_START)
                self._process = self._start(path)
                connected, _ = listening.accept()
            connected.settimeout(None)
            return Connection(connected.detach())
        except TimeoutError:
            raise ProtocolError(f"the simulation did not start within {_START:.0f} s; see its log.") from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def simulated(file: FederationFile) -> Callable[[Path], subprocess.Popen[bytes]]:
    """Return what starts a simulation of a federation, given the path of the driving process's socket.

    Raises:
        ArgumentError: it has no nodes on this machine.
    """
    if not nodes_of(file.folder):
        raise ArgumentError(
            f"{file.folder} has no nodes on this machine to simulate: privfed flower local makes some."
        )

    def submit(path: Path) -> subprocess.Popen[bytes]:
        home = file.folder / HOME
        make_folder(home)
        arguments = [
            sys.executable,
            "-m",
            "privfed.deploy.simulating",
            str(file.folder.absolute()),
            str(path),
        ]
        with open_file(home / "simulation.log", "ab") as log:
            return subprocess.Popen(
                arguments, env=environment(home), cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    return submit


def simulate(folder: Path, path: str) -> None:
    """Run the simulation in this process until the driving process ends it."""
    from flwr.simulation import run_simulation

    from privfed.engines.flower.apps import client_app, server_app

    nodes = nodes_of(folder)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app(path), client_app(nodes), len(nodes), backend_config=resources)


if __name__ == "__main__":
    simulate(Path(sys.argv[1]), sys.argv[2])
