"""The default engine: all clients in this process. A simulation: there is no boundary of trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.together import in_one_stack
from privfed.core.connection import Connection, Engine, Members, Opening
from privfed.core.record.transcript import Kept
from privfed.core.roles.engine import Client
from privfed.core.roles.secure_sum import SecureSum
from privfed.engines.faults import Fault
from privfed.engines.in_process import InProcessEngine, Pool
from privfed.engines.logs import ClientLogs
from privfed.errors import ArgumentError, PolicyError, ResumeError
from privfed.federation.run_dir import CLIENTS, check_ledgers, ledger_of, moves_of
from privfed.party.client import Stores, assembled, rows_in_domain
from privfed.party.crowd import Crowd
from privfed.party.program import Program, agreed_program
from privfed.party.readings import Followed
from privfed.party.state import MemoryStore


@dataclass(frozen=True, kw_only=True)
class Simulation(Engine):
    """Configures the simulation of clients in this process (`engine=` of the estimators).

    Args:
        faults: the faults to inject.
        record: "digests"; "messages" to keep masked bytes whole in the transcript; or "totals" to keep only
            digests of the answers in clear, too, as suits long runs over plain sums that nobody attacks.
        logs: folder of the clients' own error logs, with tracebacks. By default `clients` in the run's
            folder; without such a folder, and under differential privacy, where errors depend on rows, a
            new temporary folder `privfed-clients-...`.
    """

    faults: Sequence[Fault] = ()
    record: Kept = "digests"
    logs: str | Path | None = None

    def __post_init__(self) -> None:
        if self.record not in get_args(Kept):
            known = ", ".join(map(repr, get_args(Kept)))
            raise ArgumentError(f"record must be one of {known}, got {self.record!r}.")

    @property
    def members(self) -> Members | None:
        """None: rows are passed to `fit`."""
        return None

    def connect(self, opening: Opening) -> Connection:
        """Build the clients in this process, with fresh identities.

        Raises:
            ArgumentError: no rows were passed.
            RunFolderError: of a run that is resumed, a client has forgotten what its answers cost.
        """
        if opening.data is None:
            raise ArgumentError("clients in this process need rows: pass X.")
        self._check_faults(opening.protocol)
        configuration, policy = opening.configuration, opening.policy or ClientPolicy()
        private = configuration.privacy is not None
        positions = range(len(configuration.clients))
        session, sides = opening.protocol.parties(configuration, dict.fromkeys(positions, policy))
        data = in_one_stack([rows_in_domain(own, configuration, opening.domain) for own in opening.data])
        logs = self._logs(configuration, opening.folder)
        program = agreed_program(configuration, opening.domain, opening.algorithm)
        followed = None if program is None else _followed(program, opening)
        pool = Pool(data, configuration.clients, configuration.seed, [logs.of(i) for i in positions])
        stores = [_stores(opening.folder, i, followed) for i in positions]
        clients: dict[int, Client] = {}
        for i in positions:
            own = (pool.answerer(i), configuration, policy, stores[i], logs.of(i))
            clients[i] = assembled(sides[i], *own, program=program)
        crowd = Crowd.of(sides, stores, program, pool.together, configuration, policy)
        if private and opening.folder is not None and opening.transcript.records:
            check_ledgers(opening.folder, configuration, opening.transcript)
        rng = np.random.default_rng(configuration.seed)
        carrier = InProcessEngine(clients, pool, self.faults, rng, crowd)
        return Connection(session=session, carrier=carrier, logs=lambda: logs.where)

    def _check_faults(self, protocol: SecureSum) -> None:
        """Check that faults are in stages that the secure sum has.

        Raises:
            ArgumentError: one is in another, so that nothing would ever fail.
        """
        known = [one.name for one in protocol.stages]
        for fault in self.faults:
            if fault.stage is not None and fault.stage not in known:
                raise ArgumentError(
                    f"a fault's stage must be one of {', '.join(known)} over {protocol.name!r}, or None for "
                    f"any; got {fault.stage!r}."
                )

    def _logs(self, configuration: Configuration, folder: Path | None) -> ClientLogs:
        private = configuration.privacy is not None
        if self.logs is not None:
            return ClientLogs(Path(self.logs), silent=private)
        return ClientLogs(None if folder is None or private else folder / CLIENTS, silent=private)


def _stores(folder: Path | None, client: int, followed: Followed | None) -> Stores:
    """Return where a client keeps what it must not forget; in the run's folder what a resumed run needs."""
    stores = Stores(followed=MemoryStore(followed))
    if folder is None:
        return stores
    return replace(stores, ledger=ledger_of(folder, client), moves=moves_of(folder, client))


def _followed(program: Program, opening: Opening) -> Followed:
    """Return where clients of a run stand that is resumed: they have answered the sums on record.

    Raises:
        ResumeError: these are not of the agreed program.
    """
    try:
        return program.followed((one.index, one.question) for one, _ in opening.transcript.totals())
    except PolicyError:
        raise ResumeError(
            "the transcript holds questions that the agreed program does not ask: it is of another run, or "
            "of another version of privfed. Begin a new run in another folder."
        ) from None
