"""An engine whose clients are processes of their own: a stand-in for a network, without shared memory."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.connection import Connection, Engine, Members, Opening
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Exchange, Replies
from privfed.nodes.signed import Requests
from privfed.party.replay import TOTAL
from privfed.protocols.crypto.keys import Identity
from tests.nodes.client_process import Answered, Ask, Join, serve

_CONTEXT = multiprocessing.get_context("forkserver")
# What takes seconds to import is imported once, in a process that holds no rows and no keys.
_CONTEXT.set_forkserver_preload(["tests.nodes.client_process", "privfed.estimators.local_steps"])


class Process:
    """One client's process, which can be killed and started again."""

    def __init__(self, folder: Path, rows: np.ndarray) -> None:
        folder.mkdir()
        np.save(folder / "rows.npy", rows)
        self._folder = folder
        self.join: Join | None = None
        self.starts = 0
        self.start()

    def start(self) -> None:
        self._pipe, theirs = _CONTEXT.Pipe()
        self._running = _CONTEXT.Process(target=serve, args=(str(self._folder), theirs), daemon=True)
        self._running.start()
        theirs.close()
        self.starts += 1
        self.public: bytes | None = None

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        self._running.kill()
        self._running.join()
        self._pipe.close()

    def restart(self) -> None:
        """Kill the process and start another one; it has nothing but its folder."""
        self.kill()
        self.start()
        assert self.join is not None
        self.hello()
        self.tell(self.join)
        assert self.hear() == b"joined"

    def hello(self) -> bytes:
        """Return the public key that the process showed when it started."""
        if self.public is None:
            self.public = self.hear()
        return self.public

    def tell(self, message: Join | Ask) -> None:
        self._pipe.send_bytes(msgspec.msgpack.encode(message))

    def hear(self) -> bytes:
        return self._pipe.recv_bytes()


class ProcessEngine(Engine):
    """Clients in processes of their own, with their rows and keys.

    Attributes:
        restarts: (stage, number of the sum) -> client whose process is killed and started again before.
        stops: (stage, number of the sum) -> client whose process is killed before, for good.
        asked: requests so far, as bytes, by client.
    """

    record: Literal["digests"] = "digests"

    def __init__(self, rows: Sequence[np.ndarray], folder: Path) -> None:
        self._processes = [Process(folder / str(i), own) for i, own in enumerate(rows)]
        self._members = Members(tuple(str(i) for i in range(len(rows))), rows[0].shape[1])
        self._told: dict[int, Total] = {}
        self.restarts: dict[tuple[str, int], int] = {}
        self.stops: dict[tuple[str, int], int] = {}
        self.lost: set[int] = set()

    @property
    def members(self) -> Members:
        return self._members

    @property
    def starts(self) -> list[int]:
        """How often each client's process was started."""
        return [one.starts for one in self._processes]

    def connect(self, opening: Opening) -> Connection:
        assert opening.data is None
        server = Identity.generate()
        registry = Registry(tuple(one.hello() for one in self._processes), server.public)
        agreement = Agreement(opening.configuration, registry)
        for position, process in enumerate(self._processes):
            process.join = Join(agreement.to_bytes(), position)
            process.tell(process.join)
        assert {one.hear() for one in self._processes} == {b"joined"}
        self._told, self._requests = {}, Requests(agreement, server)
        session = opening.protocol.coordinator(agreement, server, self)
        return Connection(session=session, carrier=self)

    def read(self, index: int) -> Total | None:
        """Return a total that a client told."""
        return self._told.get(index)

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        at, signed = (exchange.stage, exchange.number), self._requests.signed(exchange).requests
        if at in self.restarts:
            self._processes[self.restarts.pop(at)].restart()
        if at in self.stops:
            client = self.stops.pop(at)
            self._processes[client].kill()
            self.lost.add(client)
        living = [i for i in exchange.requests if i not in self.lost]
        for i in living:
            self._processes[i].tell(Ask(signed[i]))
        return [(i, self._reply(i)) for i in living]

    def _reply(self, client: int) -> bytes:
        answered: Answered = msgspec.msgpack.decode(self._processes[client].hear(), type=Answered)
        for index, total in answered.told:
            self._told[index] = TOTAL.from_bytes(total).total()
        return answered.reply

    def close(self) -> None:
        for i, process in enumerate(self._processes):
            if i not in self.lost:
                process.kill()

    def __enter__(self) -> ProcessEngine:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
