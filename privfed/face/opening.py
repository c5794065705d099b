"""Opens a federation over client data in this process: configuration, protocol, engine, transcript."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from privfed.core.configuration import ClientPolicy, CohortRule, Configuration, Terms
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain
from privfed.core.door import set_opener
from privfed.core.engine import Answerer, Client
from privfed.core.federation import Federation, Watcher
from privfed.core.files import make_folder
from privfed.core.guard import GuardedAnswerer
from privfed.core.messages import Array
from privfed.core.secure_sum import SecureSum
from privfed.core.transcript import Transcript
from privfed.engines.faults import Fault
from privfed.engines.in_process import InProcessEngine, Pool
from privfed.engines.state import FileStore, MemoryStore
from privfed.errors import ArgumentError
from privfed.face.clients import Clients, gather
from privfed.privacy.claim import PrivacySpent, claimed
from privfed.privacy.ledger import BudgetLedger, PayingAnswerer, unopened
from privfed.privacy.privacy import Privacy
from privfed.privacy.server_noise import scheduled
from privfed.protocols import by_name

SPARE_SUMS = 64
"""Sums beyond the algorithm's own that clients agree to answer: repeated ones, and metrics after the fit."""


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """How clients are simulated in this process (`engine=` of the estimators).

    Args:
        faults: what goes wrong.
        record: "digests", or "messages" to keep masked bytes whole in the transcript.
    """

    faults: Sequence[Fault] = ()
    record: str = "digests"

    def __post_init__(self) -> None:
        if self.record not in ("digests", "messages"):
            raise ArgumentError(f'record must be "digests" or "messages", got {self.record!r}.')


def protocol_of(protocol: str | SecureSum) -> SecureSum:
    """Return the secure sum of a name, or the configured object itself.

    Raises:
        ArgumentError: no such protocol.
    """
    if isinstance(protocol, str):
        return by_name(protocol)
    if isinstance(protocol, type) or not all(hasattr(protocol, one) for one in ("name", "terms", "parties")):
        raise ArgumentError(f"protocol must be a name or an object of privfed.protocols, got {protocol!r}.")
    return protocol


def cohort_rule(
    n_clients: int, clients_per_round: int | None, cohorts: Sequence[Sequence[int]] | None, seed: int
) -> CohortRule:
    """Return the rule that names each round's clients.

    Raises:
        ArgumentError: both are given, or one is out of bounds.
    """
    if clients_per_round is not None and cohorts is not None:
        raise ArgumentError("pass clients_per_round or cohorts, not both.")
    if cohorts is not None:
        return CohortRule(kind="schedule", rounds=_schedule(cohorts, n_clients))
    if clients_per_round is None or clients_per_round == n_clients:
        return CohortRule()
    if not 1 <= clients_per_round <= n_clients:
        raise ArgumentError(
            f"clients_per_round must lie in [1, {n_clients}], the clients, got {clients_per_round}."
        )
    return CohortRule(kind="sampled", size=clients_per_round, seed=seed)


def _schedule(cohorts: Sequence[Sequence[int]], n_clients: int) -> tuple[tuple[int, ...], ...]:
    try:
        rounds = tuple(tuple(sorted(index(i) for i in members)) for members in cohorts)
    except TypeError:
        raise ArgumentError("cohorts must be a sequence of lists of client positions.") from None
    if not rounds:
        raise ArgumentError("cohorts needs at least one list of client positions.")
    for number, members in enumerate(rounds, start=1):
        if not members or len(set(members)) != len(members) or not set(members) <= set(range(n_clients)):
            raise ArgumentError(
                f"cohorts, round {number}: positions must differ, in [0, {n_clients - 1}], got {members}."
            )
    return rounds


def configuration_of(
    clients: Clients,
    protocol: SecureSum,
    *,
    algorithm: str,
    max_sums: int,
    rule: CohortRule,
    seed: int,
    domain: Domain | None,
    privacy: Privacy | None = None,
    runs: Algorithm[Any] | None = None,
) -> Configuration:
    """Return what the parties of a fit agree on.

    Args:
        clients: with their rows.
        protocol: the secure sum.
        algorithm: canonical text of what will run.
        max_sums: most sums that it asks for.
        rule: names each round's clients.
        seed: of the clients' simulation randomness.
        domain: declared domain, or None.
        privacy: what is claimed, or None.
        runs: what will run, where one algorithm asks everything; noise of the server needs it.

    Raises:
        ArgumentError: the protocol cannot protect so few clients, privacy declares another domain, or
            the server would noise sums that it opens.
        PrivacyError: the server would noise sums that are not fixed before.
    """
    if privacy is not None:
        if domain is not None and domain is not privacy.domain:
            raise ArgumentError("with privacy, declare the domain there: Privacy(domain=...).")
        domain = privacy.domain
    low, high = (None, None) if domain is None else domain.bounds(clients.n_features)
    configuration = Configuration(
        protocol=protocol.name,
        algorithm=algorithm,
        clients=clients.names,
        n_features=clients.n_features,
        cohorts=rule,
        terms=_terms(clients, protocol, rule, max_sums + SPARE_SUMS),
        seed=seed,
        low=None if low is None else Array.of(low),
        high=None if high is None else Array.of(high),
        max_rows=None if domain is None else domain.max_rows,
        privacy=None if privacy is None else privacy.terms(),
    )
    if privacy is None or privacy.noise != "server":
        return configuration
    if protocol.opens_to != "clients":
        raise ArgumentError(
            f'noise="server" protects nobody from the server, which opens {protocol.name!r} sums; use '
            'noise="distributed", or protocol="ckks" or "group-masked", whose sums it cannot read.'
        )
    return scheduled(configuration, runs, privacy.domain, privacy.spare)


def _terms(clients: Clients, protocol: SecureSum, rule: CohortRule, max_sums: int) -> Terms:
    """Return the sum's terms for these clients; a single one is told how several are passed.

    Raises:
        ArgumentError: the protocol cannot protect so few clients.
    """
    n_clients = len(clients.names)
    try:
        return protocol.terms(n_clients, min(n_clients, rule.smallest(n_clients)), max_sums)
    except ArgumentError:
        if n_clients > 1:
            raise
    of_one, without = (
        "a list of one array was given",
        "one array was given, without groups of several clients",
    )
    raise ArgumentError(
        f"{of_one if clients.rows is None else without}: protocol {protocol.name!r} cannot protect a single "
        "client. Pass a list with one array a client, or one array with groups=, the client of each row; or "
        'use protocol="plain", which hides nothing.'
    )


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

    Under differential privacy each client has a ledger of its own, on disk where the run has a folder.
    """
    simulation = Simulation() if simulation is None else simulation
    positions = range(len(clients.names))
    session, sides = protocol.parties(configuration, dict.fromkeys(positions, policy or ClientPolicy()))
    data = clients.data
    if configuration.privacy is not None and domain is not None:
        # Questions know the box around a ball: each client moves its own rows onto the ball.
        data = tuple(own.inside(domain) for own in data)
    pool = Pool(data, clients.names, configuration.seed)
    folder = None if run_dir is None else Path(run_dir)
    if resume:
        if folder is None:
            raise ArgumentError("resume needs run_dir, the folder of the run that is to be finished.")
        transcript = Transcript.load(folder, mend=True)
    else:
        transcript = Transcript(folder, "messages" if simulation.record == "messages" else "digests")
    policy = policy or ClientPolicy()
    members = {}
    for i in positions:
        answerer = _answerer(pool.answerer(i), configuration, folder, i)
        if policy.guards:
            answerer = GuardedAnswerer(answerer, policy, MemoryStore())
        members[i] = Client(sides[i], MemoryStore(), answerer)
    ledger = None
    if configuration.privacy is not None:
        ledger = BudgetLedger(configuration, spare=spare, unopened=unopened(transcript))
    return Federation(
        configuration,
        session,
        InProcessEngine(members, pool, simulation.faults, np.random.default_rng(configuration.seed)),
        transcript,
        opens_to=protocol.opens_to,
        reveals=protocol.reveals,
        domain=domain,
        ledger=ledger,
        watch=watch,
    )


def _answerer(answerer: Answerer, configuration: Configuration, folder: Path | None, client: int) -> Answerer:
    if configuration.privacy is None:
        return answerer
    if folder is None:
        return PayingAnswerer(answerer, configuration, MemoryStore())
    path = folder / "clients" / f"{client}.ledger"
    make_folder(path.parent)
    store = FileStore(path, lambda spent: repr(spent).encode(), float)
    return PayingAnswerer(answerer, configuration, store)


def claim_of(federation: Federation, protocol: SecureSum) -> PrivacySpent | None:
    """Return what a run says of its differential privacy, a rehearsal included; None without any."""
    ledger = federation.ledger
    if not isinstance(ledger, BudgetLedger):
        return None
    one_key = getattr(protocol, "one_key", False)
    return claimed(federation.configuration, tuple(ledger.payments), one_key=one_key)


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
    random_state: int = 0,
    privacy: Privacy | None = None,
) -> Federation:
    """Return a federation over client arrays, for questions of their own (metrics)."""
    clients = gather(X, groups, labels, names=client_names, domain=domain, private=privacy is not None)
    chosen = protocol_of(protocol)
    rule = CohortRule()
    configuration = configuration_of(
        clients,
        chosen,
        algorithm=purpose,
        max_sums=1 << 16,
        rule=rule,
        seed=random_state if privacy is None else privacy.seeded(random_state),
        domain=domain,
        privacy=privacy,
    )
    declared = domain if privacy is None else privacy.domain
    spare = 0.0 if privacy is None else privacy.spare
    return simulate(clients, chosen, configuration, policy=policy, domain=declared, spare=spare)


def seed_from(random_state: Any) -> int:
    """Return an integer seed from an int, a numpy generator or RandomState, or None (a fresh one)."""
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if (
        isinstance(random_state, int | np.integer)
        and not isinstance(random_state, bool)
        and 0 <= random_state < 2**63
    ):
        return int(random_state)
    raise ArgumentError(
        f"random_state must be None, a number in [0, 2**63) or a generator, got {random_state!r}."
    )


set_opener(open_over)
