"""One client as a process of its own: all that reaches it are bytes, and its rows lie in its own folder.

Its folder has `rows.npy`, and a party's folder within: its identity and its journal.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Client
from privfed.core.values.domain import Box
from privfed.nodes.identity import OwnIdentity, write_identity
from privfed.nodes.journal import Journal
from privfed.nodes.party import Party
from privfed.party.replay import TOTAL, OpenedTotal
from privfed.protocols.secure_sums import agreed_sum

DOMAIN = Box(-12.0, 12.0, max_rows=100)
"""What these clients declare where differential privacy is claimed."""


class Join(msgspec.Struct, frozen=True, tag=True):
    """Down: take part in a fit."""

    agreement: bytes
    position: int


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Down: one request of the secure sum."""

    request: bytes


class Answered(msgspec.Struct, frozen=True, tag=True):
    """Up: the reply, and the totals that this client opened with the request."""

    reply: bytes
    told: tuple[tuple[int, bytes], ...] = ()


class Joined:
    """A party, and its client in the fit that it joined last."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "party").exists():
            own = OwnIdentity.generate(folder.name)
            Journal.create(folder / "party", own)
            write_identity(folder / "party", own)
        self.party = Party(folder / "party")
        self._rows = ClientData(np.load(folder / "rows.npy"))
        self._client: Client | None = None
        self._told: list[tuple[int, bytes]] = []

    def join(self, message: Join) -> bytes:
        """Build this client's side of a fit, or find it as it was left."""
        agreement = Agreement.from_bytes(message.agreement)
        assert self.party.position(agreement) == message.position
        self._client = self.party.join(
            agreement,
            agreed_sum(agreement.configuration),
            self._rows,
            # A data set is exact or private for life; here the same rows go by two names.
            data_set="rows" if agreement.configuration.privacy is None else "private rows",
            policy=ClientPolicy(max_losses=9),
            domain=None if agreement.configuration.privacy is None else DOMAIN,
            tells=self._tell,
        )
        return b"joined"

    def _tell(self, index: int, total: OpenedTotal) -> None:
        self._told.append((index, TOTAL.to_bytes(total)))

    def ask(self, message: Ask) -> bytes:
        """Answer one request."""
        assert self._client is not None
        reply = self._client.handle(message.request)
        told, self._told = tuple(self._told), []
        return msgspec.msgpack.encode(Answered(reply, told))


def serve(folder: str, pipe: Connection) -> None:
    """Answer what comes through a pipe until its other end closes."""
    joined = Joined(Path(folder))
    pipe.send_bytes(joined.party.own.key.public)
    while True:
        try:
            message = msgspec.msgpack.decode(pipe.recv_bytes(), type=Join | Ask)
        except EOFError:
            return
        pipe.send_bytes(joined.join(message) if isinstance(message, Join) else joined.ask(message))
