"""One client as a process of its own: all that reaches it are bytes, and its rows lie in its own folder.

Its folder has `rows.npy`, and a party's folder within: its identity and its journal.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Client
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.domain import Box
from privfed.party.client import Stores, own_client
from privfed.party.identity import OwnIdentity, read_identity, write_identity
from privfed.party.journal import Journal
from privfed.party.replica import TOTAL, OpenedTotal
from privfed.party.verified import own_run, reads_totals
from privfed.protocols import Slotted, by_name
from privfed.protocols.slotted import PREFIX

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


def secure_sum(configuration: Configuration) -> SecureSum:
    """Return the agreed secure sum."""
    name, terms = configuration.protocol, configuration.terms
    if name.startswith(PREFIX):
        inner = by_name(name.removeprefix(PREFIX))
        return Slotted(inner, sums=terms.slotted, contributors=terms.slot_contributors)
    return by_name(name)


class Party:
    """A client with what it keeps in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "party"
        if not self._folder.exists():
            own = OwnIdentity.generate(folder.name)
            Journal.create(self._folder, own)
            write_identity(self._folder, own)
        own = read_identity(self._folder)
        self.identity, self._journal = own.key, Journal(self._folder, own)
        self._rows = ClientData(np.load(folder / "rows.npy"))
        self._client: Client | None = None
        self._told: list[tuple[int, bytes]] = []

    def join(self, message: Join) -> bytes:
        """Build this client's side of a fit, or find it as it was left."""
        agreement = Agreement.from_bytes(message.agreement)
        configuration = agreement.configuration
        fit = self._journal.begin(agreement, message.position, "rows", ClientPolicy())
        protocol = secure_sum(configuration)
        replica = None
        if reads_totals(protocol.opens_to, configuration):
            replica = own_run(configuration, fit.opened, tells=self._tell)
        side = protocol.client(agreement, message.position, self.identity, ClientPolicy(), replica)
        stores = Stores.in_journal(fit, side)
        words: Any = (side, message.position, self._rows, configuration, ClientPolicy(), stores)
        self._client = own_client(*words, domain=None if configuration.privacy is None else DOMAIN)
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
    party = Party(Path(folder))
    pipe.send_bytes(party.identity.public)
    while True:
        try:
            message = msgspec.msgpack.decode(pipe.recv_bytes(), type=Join | Ask)
        except EOFError:
            return
        pipe.send_bytes(party.join(message) if isinstance(message, Join) else party.ask(message))
