"""Opening a federation of clients in this process: protocol, engine, transcript, ledgers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from privfed.core.configuration import CohortRule, Configuration
from privfed.core.domain import Domain
from privfed.core.engine import Answerer, Client
from privfed.core.federation import Federation, Watcher
from privfed.core.policy import ClientPolicy
from privfed.core.secure_sum import SecureSum
from privfed.core.transcript import Transcript
from privfed.engines.faults import Fault
from privfed.engines.in_process import InProcessEngine, Pool
from privfed.engines.logs import ClientLogs
from privfed.errors import ArgumentError
from privfed.federation.builder import configuration_of, protocol_of
from privfed.federation.clients import Clients, gather
from privfed.federation.run_dir import CLIENTS, check_fresh, check_ledgers, folder_to_resume, ledger_of
from privfed.party.guard import GuardedAnswerer
from privfed.party.state import MemoryStore
from privfed.privacy.ledger import BudgetLedger, PayingAnswerer, unopened
from privfed.privacy.privacy import Privacy


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Configures the simulation of clients in this process (`engine=` of the estimators).

    Args:
        faults: the faults to inject.
        record: "digests", or "messages" to keep masked bytes whole in the transcript.
        logs: folder of the clients' own error logs, with tracebacks. By default `clients` in the run's
            folder; without such a folder, and under differential privacy, where errors depend on rows, a
            new temporary folder `privfed-clients-...`.
    """

    faults: Sequence[Fault] = ()
    record: str = "digests"
    logs: str | Path | None = None

    def __post_init__(self) -> None:
        if self.record not in ("digests", "messages"):
            raise ArgumentError(f'record must be "digests" or "messages", got {self.record!r}.')


def simulate(
    clients: Clients,
    protocol: SecureSum,
    configuration: Configuration,
    *,
    policy: ClientPolicy | None = None,
    domain: Domain | None = None,
    run_dir: str | Path | None = None,
    simulation: Simulation | None = None,
    resume: bool = False,
    watch: Watcher | None = None,
    spare: float = 0.0,
) -> Federation:
    """Return a federation of in-process clients, with fresh identities.

    Under differential privacy each client has its own ledger, on disk where the run has a folder.
    """
    simulation = Simulation() if simulation is None else simulation
    folder = None if run_dir is None else Path(run_dir)
    transcript = _transcript(folder, simulation, resume)
    positions = range(len(clients.names))
    session, sides = protocol.parties(configuration, dict.fromkeys(positions, policy or ClientPolicy()))
    data = clients.data
    if configuration.privacy is not None and domain is not None:
        # Questions only know the bounding box of a ball, so that clients clip their rows to the ball here.
        data = tuple(own.inside(domain) for own in data)
    logs = _logs(simulation, configuration, folder)
    pool = Pool(data, clients.names, configuration.seed, [logs.of(i) for i in positions])
    policy = policy or ClientPolicy()
    members = {}
    for i in positions:
        answerer = _answerer(pool.answerer(i), configuration, folder, i)
        if policy.guards:
            answerer = GuardedAnswerer(answerer, policy, MemoryStore(), configuration)
        members[i] = Client(sides[i], MemoryStore(), answerer, logs.of(i))
    ledger = None
    if configuration.privacy is not None:
        ledger = BudgetLedger(configuration, spare=spare, unopened=unopened(transcript))
    federation = Federation(
        configuration,
        session,
        InProcessEngine(members, pool, simulation.faults, np.random.default_rng(configuration.seed)),
        transcript,
        opens_to=protocol.opens_to,
        reveals=protocol.reveals,
        domain=domain,
        ledger=ledger,
        watch=watch,
        logs=lambda: logs.where,
    )
    if resume and folder is not None and configuration.privacy is not None:
        check_ledgers(folder, configuration, transcript)
    return federation


def _transcript(folder: Path | None, simulation: Simulation, resume: bool) -> Transcript:
    record: Literal["digests", "messages"] = "messages" if simulation.record == "messages" else "digests"
    if resume:
        return Transcript.load(folder_to_resume(folder), mend=True, record=record)
    if folder is not None:
        check_fresh(folder)
    return Transcript(folder, record)


def _logs(simulation: Simulation, configuration: Configuration, folder: Path | None) -> ClientLogs:
    private = configuration.privacy is not None
    if simulation.logs is not None:
        return ClientLogs(Path(simulation.logs), silent=private)
    return ClientLogs(None if folder is None or private else folder / CLIENTS, silent=private)


def _answerer(answerer: Answerer, configuration: Configuration, folder: Path | None, client: int) -> Answerer:
    if configuration.privacy is None:
        return answerer
    if folder is None:
        return PayingAnswerer(answerer, configuration, MemoryStore())
    return PayingAnswerer(answerer, configuration, ledger_of(folder, client))


def open_over(
    X: Any,
    labels: Any = None,
    *,
    groups: Any = None,
    client_names: Iterable[Any] | None = None,
    protocol: str | SecureSum = "masked",
    domain: Domain | None = None,
    policy: ClientPolicy | None = None,
    purpose: str = "metrics",
    n_clusters: int | None = None,
    random_state: int = 0,
    privacy: Privacy | None = None,
) -> Federation:
    """Return a federation over client arrays, outside a fit (for metrics).

    Its clients count rows in cells only where a number of clusters is agreed on.
    """
    clients = gather(X, groups, labels, names=client_names, domain=domain, private=privacy is not None)
    chosen = protocol_of(protocol)
    rule = CohortRule()
    configuration = configuration_of(
        clients,
        chosen,
        algorithm=purpose,
        max_sums=1 << 16,
        n_clusters=n_clusters,
        rule=rule,
        seed=random_state if privacy is None else privacy.seeded(random_state),
        domain=domain,
        privacy=privacy,
    )
    declared = domain if privacy is None else privacy.domain
    spare = 0.0 if privacy is None else privacy.spare
    return simulate(clients, chosen, configuration, policy=policy, domain=declared, spare=spare)


def open_federation(clients: Any, labels: Any = None, **options: Any) -> Federation:
    """Return a federation over `clients`, or `clients` itself if it is a federation.

    Raises:
        ArgumentError: labels or options are passed with a federation, which has its own.
    """
    if not isinstance(clients, Federation):
        return open_over(clients, labels, **options)
    if labels is not None or options:
        given = sorted([*options, *(["labels"] if labels is not None else [])])
        raise ArgumentError(
            f"a federation keeps its own {', '.join(given)}; pass them when its clients are given."
        )
    return clients
