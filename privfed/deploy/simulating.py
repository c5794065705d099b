"""A Flower simulation of a federation whose parties are all on this machine: Ray's actors in place of nodes.

The same apps, folders and journals as in a deployment; what is missing is the network, and with it TLS and
authenticated nodes. Ray listens on all interfaces of this machine while it runs.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from privfed.core.stored.files import make_folder, open_file
from privfed.deploy.folders import nodes_of
from privfed.engines.flower.federation_file import HOME, FederationFile
from privfed.engines.flower.running import environment
from privfed.errors import ArgumentError


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
        words = [sys.executable, "-m", "privfed.deploy.simulating", str(file.folder.absolute()), str(path)]
        with open_file(home / "simulation.log", "ab") as log:
            return subprocess.Popen(
                words, env=environment(home), cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    return submit


def simulate(folder: Path, path: str) -> None:
    """Run the simulation in this process until the driving process ends it."""
    from flwr.simulation import run_simulation

    from privfed.engines.flower.client_app import client_app
    from privfed.engines.flower.server_app import server_app

    nodes = nodes_of(folder)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app(path), client_app(nodes), len(nodes), backend_config=resources)


if __name__ == "__main__":
    simulate(Path(sys.argv[1]), sys.argv[2])
