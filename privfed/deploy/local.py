"""A federation whose parties are all on this machine: for simulations, trials and tests.

A Flower simulation of it has Ray's actors in place of nodes. The same apps, folders and journals as in a
deployment; what is missing is the network, and with it TLS and authenticated nodes. Ray listens on all
interfaces of this machine while it runs.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from privfed.core.names import ALGORITHMS
from privfed.core.stored.files import make_folder, open_file
from privfed.core.values.domain import FloatArray
from privfed.data.table import LabelArray
from privfed.deploy.adding import add, approve
from privfed.deploy.certificates import AUTHORITY, CERTIFICATES, certify
from privfed.deploy.folders import COORDINATOR, new_party, write_app, write_card, write_node
from privfed.engines.flower.network import DrivenRun, environment
from privfed.engines.flower.settings import HOME, FederationFile
from privfed.errors import ArgumentError, ProtocolError

NODES = "nodes"
"""In its folder: those of the nodes."""


def make_local(
    folder: Path,
    rows: Mapping[str, FloatArray],
    columns: Sequence[str],
    labels: Mapping[str, LabelArray] | None = None,
    classes: int | None = None,
    approved: Mapping[str, Any] | None = None,
    ids: Mapping[str, Sequence[Any]] | None = None,
    modules: Sequence[str] = (),
    **settings: Any,
) -> FederationFile:
    """Make a federation whose parties are all on this machine: for simulations, trials and tests.

    Args:
        folder: to make.
        rows: name of each client -> its rows.
        columns: names of the columns.
        labels: name of each client -> its rows' classes, integers from 0; None for none.
        classes: how many classes there are; None for as many as the labels of all clients tell apart.
        approved: what each node's owner approves; None for every algorithm that is registered here.
        ids: name of each client -> whose each of its rows is, as text; None where each stands for itself.
        modules: modules of this machine that register what the nodes run besides privfed's own.
        **settings: fields of `FederationFile`.

    Raises:
        ArgumentError: a client's name, which may come from a table, cannot be that of a folder.
    """
    for name in rows:
        if name in ("", ".", "..") or any(one in name for one in "/\\\0"):
            raise ArgumentError(
                f"each client gets a folder of its name, which {name!r} cannot be; rename it."
            )
    certify(folder / CERTIFICATES, ["127.0.0.1", "localhost"])
    write_app(folder, columns, root_certificates=Path(CERTIFICATES) / AUTHORITY, **settings)
    new_party(folder / COORDINATOR, "coordinator")
    cards = []
    for name, table in rows.items():
        own = folder / NODES / name
        new_party(own, name)
        arrays: dict[str, Any] = {"X": table} if labels is None else {"X": table, "y": labels[name]}
        if ids is not None:
            arrays["id"] = np.array(["" if one is None else str(one) for one in ids[name]], dtype=np.str_)
        np.savez(own / "rows.npz", **arrays)
        labelled: dict[str, Any] = (
            {} if labels is None else {"labels": "y", "classes": classes or _classes(labels)}
        )
        allowed = {"algorithms": ALGORITHMS.names()} if approved is None else approved
        named = None if ids is None else "id"
        more: dict[str, Any] = {"id": named, "modules": modules, "tells": True, "approved": allowed}
        write_node(own, "rows.npz", "rows", **labelled, **more)
        cards.append(write_card(own))
    kit = add(folder, cards, columns=columns).kit
    for name in rows:
        approve(folder / NODES / name, kit)
    return FederationFile.read(folder)


def _classes(labels: Mapping[str, LabelArray]) -> int:
    return max(2, *(int(one.max(initial=0)) + 1 for one in labels.values()))


def nodes_of(folder: Path) -> tuple[Path, ...]:
    """Return the folders of the nodes that are on this machine, by name."""
    return tuple(sorted(one for one in (folder / NODES).glob("*") if one.is_dir()))


_LOOK, _START, _GRACE = 0.5, 180.0, 30.0
"""Seconds between two looks at a process that starts, and until it must have started, and have ended."""

_LOG = "simulation.log"


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
                listening.settimeout(_LOOK)
                self._process = self._start(path)
                connected = self._accepted(listening)
            connected.settimeout(None)
            return Connection(connected.detach())
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _accepted(self, listening: socket.socket) -> socket.socket:
        """Return the connection of the process, once it is there.

        Raises:
            ProtocolError: the process has ended, or takes too long.
        """
        late = time.monotonic() + _START
        while True:
            try:
                return listening.accept()[0]
            except TimeoutError:
                ended = self._process is not None and self._process.poll() is not None
                if ended or time.monotonic() > late:
                    why = "ended before it connected" if ended else f"did not connect within {_START:.0f} s"
                    raise ProtocolError(
                        f"the simulation {why}; {HOME}/{_LOG} in the federation's folder says more."
                    ) from None


def simulated(file: FederationFile) -> Callable[[Path], subprocess.Popen[bytes]]:
    """Return what starts a simulation of a federation, given the path of the driving process's socket.

    Raises:
        ArgumentError: Flower or Ray is not installed, or the federation has no nodes on this machine.
    """
    for needed in ("flwr", "ray"):
        if find_spec(needed) is None:
            raise ArgumentError(f"{needed} is not installed: pip install 'privfed[flower]'.")
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
            "privfed.deploy.local",
            str(file.folder.absolute()),
            str(path),
        ]
        with open_file(home / _LOG, "ab") as log:
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
