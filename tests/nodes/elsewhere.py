"""An engine whose clients keep nothing but their folders: each connection finds them as after a restart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from privfed import ClientPolicy
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.asking.question import ClientData
from privfed.core.connection import Connection, Engine, Members, Opening
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Client, Exchange, Replies
from privfed.nodes.identity import OwnIdentity, write_identity
from privfed.nodes.journal import Journal
from privfed.nodes.party import Party
from privfed.nodes.signed import Requests
from privfed.party.replay import OpenedTotal
from tests.nodes.journals import SERVER


class Elsewhere(Engine):
    """Clients with folders of their own, under identities that stay.

    Attributes:
        silent: says which clients do not hear an exchange.
        lies: changes the coordinator's session once it is made.
        told: totals that clients opened themselves and told the coordinator's process.
    """

    record: Literal["digests"] = "digests"

    def __init__(
        self,
        folder: Path,
        rows: Sequence[np.ndarray],
        policy: ClientPolicy | None = None,
        labels: Sequence[np.ndarray] | None = None,
        users: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self._folder, self._rows = folder, rows
        self._labels = [None] * len(rows) if labels is None else labels
        self._users = [None] * len(rows) if users is None else users
        self._policy = ClientPolicy() if policy is None else policy
        self.silent: Callable[[Exchange, int], bool] = lambda exchange, client: False
        self.lies: Callable[[object], None] = lambda session: None
        self._clients: list[Client] = []
        self.told: dict[int, Total] = {}
        self._agreed = b""
        for name in self.members.names:
            own = OwnIdentity.generate(name)
            Journal.create(folder / name, own)
            write_identity(folder / name, own)

    @property
    def members(self) -> Members:
        return Members(tuple(f"c{i}" for i in range(len(self._rows))), self._rows[0].shape[1])

    def party(self, client: int) -> Party:
        """Return a client's party, as a new process would."""
        return Party(self._folder / f"c{client}")

    def connect(self, opening: Opening) -> Connection:
        parties = [self.party(i) for i in range(len(self._rows))]
        registry = Registry(tuple(one.own.key.public for one in parties), SERVER.public)
        agreement = Agreement(opening.configuration, registry)
        if agreement.digest != self._agreed:  # Another fit than the one before, and not one that is resumed.
            self.told, self._agreed = {}, agreement.digest
        self._clients = [
            one.join(
                agreement,
                opening.protocol,
                ClientData(rows, labels, users=users),
                data_set="rows",
                policy=self._policy,
                domain=opening.domain,
                tells=self._hear,
            )
            for one, rows, labels, users in zip(parties, self._rows, self._labels, self._users, strict=True)
        ]
        session = opening.protocol.coordinator(agreement, SERVER, self)
        self.lies(session)
        self._requests = Requests(agreement, SERVER)
        return Connection(session=session, carrier=self)

    def _hear(self, index: int, total: OpenedTotal) -> None:
        self.told[index] = total.total()

    def read(self, index: int) -> Total | None:
        """Return a total that a client told, also before the coordinator was stopped."""
        return self.told.get(index)

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        signed = self._requests.signed(exchange).requests
        heard = [(i, data) for i, data in signed.items() if not self.silent(exchange, i)]
        return [(i, self._clients[i].handle(data)) for i, data in heard]
