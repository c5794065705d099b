"""A federation's SuperLink: Flower's side of its nodes, in a process that runs nobody's code.

Flower's own SuperLink serves three interfaces at one port: the nodes' (`/v1/fleet`), one to submit, list,
read and stop runs, and one for the processes that run what was submitted. Whoever reaches the port may use
the second, since it has no accounts; what they submit then runs as this user. So this process serves the
first alone. It makes one run itself, which lasts as long as the process. Processes of the coordinator reach
that run through a socket in the federation's folder, which only their user can open; it is relayed.

Nodes are admitted by their cards, files of a folder that is read again every few seconds: to add one
stops nothing, and all are there after a restart.

It leans on parts of Flower that are private (`privfed.nodes.deploy.processes.TESTED`).
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from fastapi import FastAPI
from flwr.common.constant import (
    HEARTBEAT_DEFAULT_INTERVAL,
    NOOP_ACCOUNT_NAME,
    NOOP_FLWR_AID,
    SUPERLINK_NODE_ID,
    SYSTEM_TIME_TOLERANCE,
    TIMESTAMP_HEADER,
    TIMESTAMP_TOLERANCE,
)
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import LinkState
from flwr.supercore.constant import (
    FLEET_HTTP_PUBLIC_KEY_HEADER,
    FLEET_HTTP_SIGNATURE_HEADER,
    FLWR_IN_MEMORY_DB_NAME,
    NOOP_FEDERATION_ID,
    NodeStatus,
    TaskType,
)
from flwr.supercore.error import http_error_translator
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, public_key_to_bytes, verify_signature
from flwr.supercore.protobuf.translation import ProtobufTranslationMiddleware
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.config_loader import get_federation_manager, get_objectstore_linkstate_factories
from flwr.superlink.grid.http_grid import HttpGrid
from flwr.superlink.routers.fleet.node_auth import NodeAuthMiddleware
from flwr.superlink.routers.fleet.router import router as fleet
from flwr.superlink.servicer.runtime import runtime_handlers
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse

from privfed.core.stored.files import make_folder
from privfed.errors import PrivFedError
from privfed.nodes.deploy.adding import MEMBERS
from privfed.nodes.deploy.certificates import CERTIFICATES, SERVER, SERVER_KEY
from privfed.nodes.deploy.folders import read_card
from privfed.nodes.deploy.node import METRICS, Says
from privfed.nodes.flower.apps import GridNetwork
from privfed.nodes.flower.network import relay, socket_of
from privfed.nodes.flower.settings import HOME, FederationFile

MOST = 1 << 24
"""Most bytes of a request's body: an array travels in pieces of 5 MiB."""

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


def _called(handler: Callable[..., Any], state: LinkState, task: Task, request: Any) -> Any:
    return handler(request, state, task)


class OwnGrid(HttpGrid):  # type: ignore[misc]  # Flower is not typed here.
    """The grid of this process's own run, without HTTP."""

    def __init__(self, state: LinkState, run_id: int) -> None:
        super().__init__(token="none")
        (run,) = state.get_run_info(run_ids=[run_id])
        self.set_run(run)
        task = Task(task_id=run.primary_task_id, run_id=run_id)
        calls = {name: partial(_called, handler, state, task) for name, handler in _DONE.items()}
        self._client = SimpleNamespace(**calls)


class OwnRun:
    """The one run of this process.

    Args:
        state: of Flower's side of the nodes.
    """

    def __init__(self, state: LinkState) -> None:
        self._state = state
        none: tuple[Any, ...] = (None, None, None, {})
        about = (*none, NOOP_FEDERATION_ID, None, NOOP_FLWR_AID, TaskType.SERVER_APP)
        self.number = state.create_run(*about)
        (run,) = state.get_run_info(run_ids=[self.number])
        self._task = run.primary_task_id
        state.claim_task(self._task)
        state.activate_task(self._task)
        TaskIdentity.task_id, TaskIdentity.run_id = self._task, self.number
        TaskIdentity.node_id = SUPERLINK_NODE_ID

    def keep_alive(self) -> None:
        """Tell Flower that the run goes on."""
        self._state.acknowledge_task_heartbeat(self._task)

    def serve(self, pipe: Connection, admission: Admission) -> None:
        """Relay for a process of the coordinator until it ends."""
        with pipe:
            relay(GridNetwork(OwnGrid(self._state, self.number)), pipe, lambda: admission.parties)


class Admission:
    """The nodes whose cards are in the list.

    Args:
        state: of Flower's side of the nodes.
        folder: of the cards.
        says: hears who comes and goes.
    """

    def __init__(self, state: LinkState, folder: Path, says: Says) -> None:
        self._state, self._folder, self._says = state, folder, says
        self._nodes: dict[bytes, int] = {}
        self.names: dict[bytes, str] = {}
        self.parties: dict[str, str] = {}

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
                self._says(
                    "waiting", f"{keys[key]} is back in the list; your move: start the SuperLink again"
                )
        self.names, before = keys, self._says.there
        online = {bytes(one.public_key) for one in self._state.get_node_info(statuses=[NodeStatus.ONLINE])}
        self._says.there = there = {name: key in online for key, name in keys.items()}
        self.parties = {name: self.parties.get(name, "not seen since the SuperLink began") for name in there}
        moved = sorted(name for name, here in there.items() if here != before.get(name, False))
        for name in moved:
            word = "connected" if there[name] else "gone"
            why = "" if there[name] else f": no sign for {HEARTBEAT_DEFAULT_INTERVAL} s, or it was stopped"
            self.parties[name] = f"{word} since {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}{why}"
        away = "; ".join(f"{name} {self.parties[name]}" for name, here in sorted(there.items()) if not here)
        for name in moved:
            word, counted = self.parties[name].split()[0], f"{sum(there.values())} of {len(there)} are there"
            self._says(word, f"{name}; {counted}{', without ' if away else ''}{away}")


class Front:
    """Looks at a request's headers before a byte of its body is read: at its path, size, signature and time.

    Args:
        app: what is behind.
        admission: the nodes that are admitted.
    """

    def __init__(self, app: Any, admission: Admission) -> None:
        self._app, self._admission = app, admission

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request that is refused, or hand it on."""
        behind = self._app
        if scope["type"] == "http" and (code := self._refusal(scope["path"], Headers(scope=scope))):
            behind = JSONResponse({"detail": HTTPStatus(code).phrase}, code, {"connection": "close"})
        await behind(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> int:
        """Return the HTTP status with which a request is refused; 0 for none."""
        if not path.startswith("/v1/fleet/"):
            return 404
        try:
            key, stamp = b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER]), headers[TIMESTAMP_HEADER]
            name, signature = self._admission.names[key], b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER])
            if not verify_signature(bytes_to_public_key(key), stamp.encode("ascii"), signature):
                return 401
            ahead = (datetime.fromisoformat(stamp) - datetime.now(UTC)).total_seconds()
            if not -TIMESTAMP_TOLERANCE <= ahead <= SYSTEM_TIME_TOLERANCE:
                self._admission.parties[name] = f"refused: its clock is {ahead:+.0f} s from the SuperLink's"
                return 401
            return 413 if int(headers["content-length"]) > MOST else 0
        except (KeyError, ValueError, TypeError):
            return 401


def fleet_app(factory: Any, admission: Admission) -> FastAPI:
    """Return Flower's interface for nodes, and no other.

    Args:
        factory: of the state.
        admission: the nodes that are admitted.
    """
    between = [
        Middleware(Front, admission),
        Middleware(BaseHTTPMiddleware, dispatch=http_error_translator),
        Middleware(ProtobufTranslationMiddleware),
        Middleware(NodeAuthMiddleware),
    ]
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, middleware=between)
    app.state.linkstate_factory, app.state.enable_supernode_auth = factory, True
    app.include_router(fleet)
    return app


def serve(file: FederationFile, host: str) -> None:
    """Be the SuperLink of a federation until this process is ended.

    Args:
        file: of the federation.
        host: address to listen on.
    """
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # What it says of strangers has no end.
    _, factory = get_objectstore_linkstate_factories(FLWR_IN_MEMORY_DB_NAME, get_federation_manager())
    state, says = factory.state(), Says("superlink", metrics=file.folder / HOME / METRICS)
    run, admission = OwnRun(state), Admission(state, file.folder / MEMBERS, says)
    folder = file.folder / CERTIFICATES
    tls = {"ssl_certfile": folder / SERVER, "ssl_keyfile": folder / SERVER_KEY}
    port = int(file.superlink.rpartition(":")[2])
    app = fleet_app(factory, admission)
    admission.read()
    with _listening(file) as listening:
        threading.Thread(target=_accept, args=(listening, run, admission), daemon=True).start()
        options: dict[str, Any] = {"log_level": "warning", "timeout_graceful_shutdown": 5, **tls}
        server = _Server(uvicorn.Config(app, host=host, port=port, **options))
        server.says = says
        server.run()


class _Server(uvicorn.Server):  # type: ignore[misc]  # uvicorn is not typed here.
    says: Says

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say that it listens once it does."""
        await super().startup(sockets)
        if self.started:
            self.says("listening", f"at {self.config.host}:{self.config.port}; stop with Ctrl-C")


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
            threading.Thread(target=run.serve, args=(pipe, admission), daemon=True).start()
        if time.monotonic() - looked > _TICK:
            looked = time.monotonic()
            run.keep_alive()
            admission.read()


if __name__ == "__main__":
    serve(FederationFile.read(Path(sys.argv[1])), sys.argv[2])
