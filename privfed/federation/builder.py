"""The federation builder: opens every federation, for fits, metrics, scalers, selections and studies.

From clients and parameters to what the parties agree on, an engine that connects them, a transcript and a
ledger.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import index
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from privfed.algorithms.starts.kept import StartTotal
from privfed.core.agreed.assumptions import answer_stages
from privfed.core.agreed.bounds import check_size
from privfed.core.agreed.configuration import CohortRule, Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.agreed.program import AgreedProgram
from privfed.core.asking.phases import Phased
from privfed.core.connection import Engine, Opening
from privfed.core.federation import Federation, Watcher
from privfed.core.record.transcript import Kept, Transcript
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.secure_sum import DECLARED, SecureSum
from privfed.core.stored.messages import Array
from privfed.core.values.domain import Domain
from privfed.core.values.guarantee import Noise
from privfed.core.values.steps import SampledSteps
from privfed.errors import ArgumentError, PrivacyError
from privfed.federation.clients import Clients
from privfed.federation.run_dir import check_fresh, folder_to_resume
from privfed.federation.simulation import Simulation
from privfed.federation.starting import check_start, start_in
from privfed.numerics.known_answers import known_answers
from privfed.privacy.ledger import BudgetLedger, unopened
from privfed.privacy.privacy import Privacy
from privfed.privacy.server_noise import scheduled
from privfed.privacy.stepped import SteppedLedger
from privfed.protocols.registry import by_name

NONCE_BYTES = 16
"""Bytes of an agreement's nonce: two fits with equal parameters are two agreements."""

SPARE_SUMS = 64
"""Additional sums that clients agree to answer, for repeated ones and for metrics after the fit."""


def protocol_of(protocol: str | SecureSum) -> SecureSum:
    """Return the secure sum with a name, or the configured object itself.

    Raises:
        ArgumentError: there is no such protocol, or what was named or given is no secure sum.
    """
    found = by_name(protocol) if isinstance(protocol, str) else protocol
    if isinstance(found, type):
        raise ArgumentError(f"protocol must be a name or an object of privfed.protocols, got {protocol!r}.")
    missing = [name for name in DECLARED if not hasattr(found, name)]
    if missing:
        raise ArgumentError(
            f"protocol must be a name or an object of privfed.protocols, got {protocol!r}, which declares no "
            f"{missing[0]}: all that a secure sum declares is in privfed.core.roles.secure_sum.SecureSum."
        )
    return found


def cohort_rule(
    n_clients: int, clients_per_round: int | None, cohorts: Sequence[Sequence[int]] | None, seed: int
) -> CohortRule:
    """Return the rule that determines each round's clients.

    Raises:
        ArgumentError: both `clients_per_round` and `cohorts` are given, or one is out of bounds.
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


@dataclass(frozen=True, kw_only=True)
class FederationRequest:
    """What a federation is opened for, whoever asks: a fit, a metric, a scaler, a selection.

    Args:
        clients: the clients, with their rows or without (`Members`).
        description: what is asked for, as text for people.
        max_sums: most sums that the algorithm asks for.
        protocol: the secure sum, or its name.
        algorithm: the algorithm, if a single one asks all questions; noise of the server needs it, and so do
            clients elsewhere that open the totals.
        metrics: what may be asked after it, or alone; values like `privfed.metrics.phases.AskedMetric`.
        named: how the user named `metrics`, to whom any other is then an error; None where another one is
            agreed on anew.
        n_clusters: number of clusters of the fit, or of a client's own clustering; None without any.
        rule: determines each round's clients.
        seed: of the clients' simulation randomness; a rehearsal's noise follows from it.
        domain: declared domain, or None; with privacy it is declared there.
        privacy: the guarantee that is claimed, or None.
        steps: of DP-SGD, where clients train by it and totals are not noised.
        engine: where the clients are; None for clients in this process.
        policy: policy of clients in this process.
        run_dir: folder of the run, or None.
        resume: whether to go on with the run that it holds.
        watch: called after every opened sum with its index, question and total.
        start: an earlier fit's start total, where the algorithm begins from it.
    """

    clients: Clients
    description: str
    max_sums: int
    protocol: str | SecureSum = "masked"
    algorithm: Algorithm[Any] | None = None
    metrics: tuple[Phased, ...] = ()
    named: tuple[str, ...] | None = None
    n_clusters: int | None = None
    rule: CohortRule = field(default_factory=CohortRule)
    seed: int = 0
    domain: Domain | None = None
    privacy: Privacy | None = None
    steps: SampledSteps | None = None
    engine: Engine | None = None
    policy: ClientPolicy | None = None
    run_dir: str | Path | None = None
    resume: bool = False
    watch: Watcher | None = None
    start: StartTotal | None = None

    @cached_property
    def secure_sum(self) -> SecureSum:
        """The secure sum."""
        return protocol_of(self.protocol)

    @property
    def declared(self) -> Domain | None:
        """The declared domain, wherever it was declared."""
        return self.domain if self.privacy is None else self.privacy.domain

    def agreed(self) -> Configuration:
        """Return what the parties agree on.

        Raises:
            ArgumentError: the protocol cannot protect so few clients, privacy declares another domain, the
                server would add noise to sums that it can read, or a number is too large to be agreed on.
            PrivacyError: the server would add noise to sums that are not fixed before the first.
        """
        configuration = self._agreed()
        check_size(configuration)
        privacy = self.privacy
        if privacy is None or privacy.noise != Noise.SERVER:
            return configuration
        if self.secure_sum.opens_to != "clients":
            raise ArgumentError(
                f'noise="server" protects nobody from the server, which opens {self.secure_sum.name!r} sums; '
                'use noise="distributed", or protocol="ckks" or "group-masked", whose sums it cannot read.'
            )
        return scheduled(configuration, self.algorithm, privacy.domain)

    def _agreed(self) -> Configuration:
        clients, privacy, domain = self.clients, self.privacy, self.declared
        if privacy is not None and self.domain is not None and self.domain is not privacy.domain:
            raise ArgumentError("with privacy, declare the domain there: Privacy(domain=...).")
        low, high = (None, None) if domain is None else domain.bounds(clients.n_features)
        terms = _terms(clients, self.secure_sum, self.rule, self.max_sums + SPARE_SUMS)
        replicas = self.secure_sum.opens_to == "clients" or terms.verified
        if self.start is not None:
            check_start(self.start, clients.names, self.secure_sum.name, replicas)
        return Configuration(
            protocol=self.secure_sum.name,
            algorithm=self.description,
            clients=clients.names,
            n_features=clients.n_features,
            n_clusters=self.n_clusters,
            cohorts=self.rule,
            terms=terms,
            seed=self.seed if privacy is None else privacy.seeded(self.seed),
            low=None if low is None else Array.of(low),
            high=None if high is None else Array.of(high),
            max_rows=None if domain is None else domain.max_rows,
            privacy=None if privacy is None else privacy.terms(self.steps),
            numerics=known_answers() if replicas else "",
            program=self._program(),
        )

    def _program(self) -> AgreedProgram | None:
        """Return what runs; None where nothing is declared of what will be asked."""
        declared = self.algorithm is None or isinstance(self.algorithm, Phased)
        if not declared or (self.algorithm is None and not self.metrics):
            return None
        return AgreedProgram.of(self.algorithm, self.metrics)


def open_federation(request: FederationRequest) -> Federation:
    """Open a federation: agree, connect the clients, and keep the record and the coordinator's ledger.

    Under differential privacy each client has a ledger of its own besides.

    Raises:
        ArgumentError: see `FederationRequest.agreed`; or the rows and the engine do not fit together.
        RunFolderError: the folder holds another run, or none that can be resumed.
        ResumeError: the run there is of other clients or parameters.
    """
    engine: Engine = Simulation() if request.engine is None else request.engine
    _check_rows_lie_where(engine, request)
    configuration = request.agreed()
    if engine.members is not None:
        configuration = msgspec.structs.replace(configuration, nonce=secrets.token_bytes(NONCE_BYTES))
    folder = None if request.run_dir is None else Path(request.run_dir)
    transcript = _transcript(folder, engine.record, request.resume)
    if request.resume:
        configuration = msgspec.structs.replace(configuration, nonce=transcript.configuration.nonce)
        transcript.check_agreement(configuration)
    connection = engine.connect(
        Opening(
            configuration=configuration,
            protocol=request.secure_sum,
            transcript=transcript,
            algorithm=request.algorithm,
            domain=request.declared,
            policy=request.policy,
            data=request.clients.data,
            folder=folder,
        )
    )
    return Federation(
        configuration,
        connection.session,
        connection.carrier,
        transcript,
        opens_to=request.secure_sum.opens_to,
        reveals=request.secure_sum.reveals,
        answer_stages=answer_stages(request.secure_sum.stages),
        domain=request.declared,
        ledger=_ledger(request, configuration, transcript),
        timeout=connection.timeout,
        watch=request.watch,
        logs=connection.logs,
        again=partial(_again, request),
        named=request.named,
        start=start_in(configuration, request.start),
    )


def _again(request: FederationRequest, words: Mapping[str, Any]) -> Federation:
    """Open another federation of the same clients, which agree on another program.

    Raises:
        PrivacyError: privacy is claimed: another federation would have a budget of its own.
    """
    if request.privacy is not None:
        raise PrivacyError(
            "under differential privacy a fit's federation asks what was agreed on, within its budget; pass "
            "the clients' arrays and privacy=, which is another claim on the same rows."
        )
    return open_federation(replace(request, **words, run_dir=None, resume=False, watch=None))


def _check_rows_lie_where(engine: Engine, request: FederationRequest) -> None:
    """Check that rows are where the engine's clients are.

    Raises:
        ArgumentError: they are not, or a policy is given for clients that have their own.
    """
    members, clients = engine.members, request.clients
    if members is None and clients.data is None:
        raise ArgumentError("the clients of this engine have no rows of their own: pass them.")
    if members is None:
        return
    if clients.data is not None or clients.names != members.names:
        raise ArgumentError(
            f"this engine's {len(members.names)} clients have their rows: call fit() without X, groups and "
            "client_names."
        )
    if request.policy is not None:
        raise ArgumentError("this engine's clients have policies of their own; leave policy out.")


def _transcript(folder: Path | None, record: Kept, resume: bool) -> Transcript:
    if resume:
        return Transcript.load(folder_to_resume(folder), mend=True, record=record)
    if folder is not None:
        check_fresh(folder)
    return Transcript(folder, record)


def _ledger(
    request: FederationRequest, configuration: Configuration, transcript: Transcript
) -> BudgetLedger | SteppedLedger | None:
    if request.privacy is None:
        return None
    if request.steps is not None:
        return SteppedLedger(configuration)
    return BudgetLedger(configuration, unopened=unopened(transcript))


def _terms(clients: Clients, protocol: SecureSum, rule: CohortRule, max_sums: int) -> Terms:
    """Return the secure sum's terms for these clients.

    Raises:
        ArgumentError: the protocol cannot protect so few clients; for a single client, the message says how
            to pass several.
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


def seed_of_fit(random_state: Any, privacy: Privacy | None, run_dir: str | Path | None, resume: bool) -> int:
    """Return the seed of a fit; for a resumed one, the seed that was agreed on.

    Args:
        random_state: of the estimator.
        privacy: of the estimator.
        run_dir: of the estimator.
        resume: whether the fit in `run_dir` goes on.
    """
    if not resume:
        return seed_from(random_state)
    agreed = Transcript.load(folder_to_resume(run_dir)).configuration.seed
    return agreed if privacy is None else privacy.unseeded(agreed)


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
