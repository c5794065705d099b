"""A federation's SuperLink: Flower's side of its nodes, in a process that runs nobody's code.

Flower's own SuperLink serves three interfaces at one port: the nodes' (`/v1/fleet`), one to submit, list,
read and stop runs, and one for the processes that run what was submitted. Whoever reaches the port may use
the second, since it has no accounts; what they submit then runs as this user. So this process serves the
first alone. It makes one run itself, which lasts as long as the process. Processes of the coordinator reach
that run through a socket in the federation's folder, which only their user can open; it is relayed.

Nodes are admitted by their cards, files of a folder that is read again every few seconds: to add one
stops nothing, and all are there after a restart.

It leans on parts of Flower that are private (`privfed.deploy.processes.TESTED`).
"""

from __future__ import annotations

import hashlib
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from fastapi import FastAPI
from flwr.cli.build import build_fab_from_disk
from flwr.common.constant import (
    HEARTBEAT_DEFAULT_INTERVAL,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
)
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID, NodeStatus, TaskType
from flwr.supercore.error import http_error_translator
from flwr.supercore.fab import Fab
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from privfed.core.stored.files import make_folder
from privfed.deploy.adding import MEMBERS
from privfed.deploy.certificates import CERTIFICATES, SERVER, SERVER_KEY
from privfed.deploy.folders import read_card
from privfed.engines.flower.apps import GridNetwork
from privfed.engines.flower.network import relay, socket_of
from privfed.engines.flower.settings import APP, FederationFile
from privfed.errors import PrivFedError

_TICK = 2.0
_DONE = {
    "GetNodes": runtime_handlers.get_nodes,
    "PushMessages": runtime_handlers.push_messages,
    "PushObject": runtime_handlers.push_object,
    "PullMessages": runtime_handlers.pull_messages,
    "PullObject": runtime_handlers.pull_object,
    "ConfirmMessageReceived": runtime_handlers.confirm_message_received,
}
"""What a run asks of Flower's interface for it -> what is called instead, in this process."""


class _Direct:
    def __init__(self, state: LinkState, task: Task) -> None:
        self._state, self._task = state, task

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        handler = _DONE[name]
        return lambda request: handler(request, self._state, self._task)


class OwnGrid(HttpGrid):  # type: ignore[misc]  # Flower is not typed here.
    """The grid of this process's own run, without HTTP."""

    def __init__(self, state: LinkState, run_id: int) -> None:
        super().__init__(token="none")
        (run,) = state.get_run_info(run_ids=[run_id])
        self.set_run(run)
        self._client = _Direct(state, Task(task_id=run.primary_task_id, run_id=run_id))


class OwnRun:
    """The one run of this process.

    Args:
        state: of Flower's side of the nodes.
        app: folder of the thin app; nodes take no notice of it.
    """

    def __init__(self, state: LinkState, app: Path) -> None:
        self._state = state
        content = build_fab_from_disk(app)
        fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
        described: tuple[Any, ...] = (
            "privfed/privfed-app",
            "1",
            state.store_fab(fab),
            {},
            NOOP_FEDERATION_ID,
            None,
        )
        self.number = state.create_run(*described, NOOP_FLWR_AID, TaskType.SERVER_APP)
        (run,) = state.get_run_info(run_ids=[self.number])
        self._task = run.primary_task_id
        state.claim_task(self._task)
        state.activate_task(self._task)
        TaskIdentity.task_id, TaskIdentity.run_id = self._task, self.number
        TaskIdentity.node_id = SUPERLINK_NODE_ID

    def keep_alive(self) -> None:
        """Tell Flower that the run goes on."""
        self._state.acknowledge_task_heartbeat(self._task)

    def serve(self, pipe: Connection) -> None:
        """Relay for a process of the coordinator until it ends."""
        with pipe:
            relay(GridNetwork(OwnGrid(self._state, self.number)), pipe)


class Admission:
    """The nodes whose cards are in the list.

    Args:
        state: of Flower's side of the nodes.
        folder: of the cards.
    """

    def __init__(self, state: LinkState, folder: Path) -> None:
        self._state, self._folder = state, folder
        self._nodes: dict[bytes, int] = {}
        self._there: set[str] = set()

    def read(self) -> None:
        """Admit the nodes of cards that are new, and no more those whose cards are gone; say who is there."""
        keys = dict[bytes, str]()
        for path in self._folder.glob("*.pub"):
            with suppress(PrivFedError):
                card = read_card(path)
                keys[public_key_to_bytes(load_ssh_public_key(card.node))] = card.party.name
        for key in self._nodes.keys() - keys.keys():
            self._state.delete_node(NOOP_FLWR_AID, self._nodes.pop(key))
        for key in keys.keys() - self._nodes.keys():
            who = (NOOP_FLWR_AID, NOOP_ACCOUNT_NAME)
            try:
                self._nodes[key] = self._state.create_node(*who, key, HEARTBEAT_DEFAULT_INTERVAL)
            except ValueError:
                # Flower takes a key once; who was taken off the list comes back with another process.
                self._nodes[key] = 0
                _say("waiting", f"{keys[key]} is back in the list; your move: start the SuperLink again")
        online = self._state.get_node_info(statuses=[NodeStatus.ONLINE])
        there = {keys[bytes(one.public_key)] for one in online if bytes(one.public_key) in keys}
        for name in sorted(there ^ self._there):
            _say("connected" if name in there else "gone", f"{name}; {len(there)} of {len(keys)} are there")
        self._there = there


def _say(word: str, text: str) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} superlink {word}: {text}", flush=True)


def fleet_app(factory: Any, *, authenticated: bool) -> FastAPI:
    """Return Flower's interface for nodes, and no other.

    Args:
        factory: of the state.
        authenticated: whether nodes must have an admitted key.
    """
    between = [
        Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
        Middleware(ProtobufTranslationMiddleware),
        Middleware(NodeAuthMiddleware),
    ]
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, middleware=between)
    app.state.linkstate_factory, app.state.enable_supernode_auth = factory, authenticated
    app.include_router(fleet)
    return app


def serve(file: FederationFile, host: str) -> None:
    """Be the SuperLink of a federation until this process is ended.

    Args:
        file: of the federation.
        host: address to listen on.
    """
    authenticated = file.root_certificates is not None
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # What it says of strangers has no end.
    _, factory = get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, get_federation_manager())
    state = factory.state()
    run, admission = OwnRun(state, file.folder / APP), Admission(state, file.folder / MEMBERS)
    tls: dict[str, Any] = {}
    if authenticated:
        folder = file.folder / CERTIFICATES
        tls = {"ssl_certfile": folder / SERVER, "ssl_keyfile": folder / SERVER_KEY}
    port = int(file.superlink.rpartition(":")[2])
    app = fleet_app(factory, authenticated=authenticated)
    admission.read()
    with _listening(file) as listening:
        threading.Thread(target=_accept, args=(listening, run, admission), daemon=True).start()
        options: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 5, **tls}
        _Server(uvicorn.Config(app, host=host, port=port, **options)).run()


class _Server(uvicorn.Server):  # type: ignore[misc]  # uvicorn is not typed here.
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say that it listens once it does."""
        await super().startup(sockets)
        if self.started:
            _say("listening", f"at {self.config.host}:{self.config.port}; stop with Ctrl-C")


def _listening(file: FederationFile) -> socket.socket:
    path = socket_of(file)
    make_folder(path.parent)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    path.chmod(0o600)
    listening.listen(16)
    listening.settimeout(_TICK)
    return listening


def _accept(listening: socket.socket, run: OwnRun, admission: Admission) -> None:
    """Serve processes of the coordinator, each in a thread; look for keys every now and then."""
    looked = 0.0
    while True:
        try:
            connected, _ = listening.accept()
        except TimeoutError:
            pass
        except OSError:
            return
        else:
            connected.settimeout(None)
            pipe = Connection(connected.detach())
            threading.Thread(target=run.serve, args=(pipe,), daemon=True).start()
        if time.monotonic() - looked > _TICK:
            looked = time.monotonic()
            run.keep_alive()
            admission.read()


if __name__ == "__main__":
    serve(FederationFile.read(Path(sys.argv[1])), sys.argv[2])
