"""What a federation is opened for: parameters and clients become what the parties agree on."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from pathlib import Path
from types import UnionType
from typing import Any, get_args

import numpy as np

from privfed.algorithms.starts import StartTotal
from privfed.core.agreed.agreement import check_built, check_size, size_of
from privfed.core.agreed.configuration import CohortRule, Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.agreed.program import AgreedProgram
from privfed.core.connection import Engine
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Algorithm, Phased
from privfed.core.roles.secure_sum import DECLARED, SecureSum
from privfed.core.stored.encoding import Array
from privfed.core.values.domain import Ball, Box, Domain
from privfed.core.values.guarantee import Noise, SampledSteps
from privfed.core.values.numbers import check_whole
from privfed.errors import ArgumentError, PrivacyError
from privfed.federation.clients import Clients
from privfed.federation.driver import Watcher
from privfed.federation.simulation import check_no_privacy, folder_to_resume
from privfed.numerics.kmeans import known_answers
from privfed.party.program import setting_of
from privfed.privacy.claim import Privacy
from privfed.privacy.pricing import scheduled
from privfed.protocols.secure_sums import by_name

SPARE_SUMS = 64
"""Additional sums that clients agree to answer, for repeated ones and for metrics after the fit."""


def protocol_of(protocol: str | SecureSum) -> SecureSum:
    """Return the secure sum with a name, or the configured object itself.

    Raises:
        ArgumentError: there is no such protocol, or what was named or given is no secure sum.
    """
    found = by_name(protocol) if isinstance(protocol, str) else protocol
    if isinstance(found, type):
        raise ArgumentError(
            f"protocol must be a name or an object of privfed.protocols, got {protocol!r}.",
            parameters=["protocol"],
        )
    missing = [name for name in DECLARED if not hasattr(found, name)]
    if missing:
        raise ArgumentError(
            f"protocol must be a name or an object of privfed.protocols, got {found!r}, which "
            f"declares no {missing[0]}: all that a secure sum declares is in "
            "privfed.core.roles.secure_sum.SecureSum.",
            parameters=["protocol"],
        )
    return found


KINDS: dict[str, type | UnionType] = {
    "engine": Engine,
    "policy": ClientPolicy,
    "domain": Box | Ball,
    "run_dir": str | Path,
    "privacy": Privacy,
    "watch": Callable,  # type: ignore[dict-item]
}
"""Parameters that say where and how something runs -> what each is, unless it is None."""


def check_kinds(params: Mapping[str, Any]) -> None:
    """Check the parameters that say where and how something runs; others are left alone.

    Raises:
        ArgumentError: one has another type.
    """
    for name in KINDS.keys() & params.keys():
        kind = KINDS[name]
        if params[name] is not None and not isinstance(params[name], kind):
            wanted = " or ".join(one.__name__ for one in get_args(kind) or (kind,))
            raise ArgumentError(
                f"{name} must be None or of type {wanted}, got {name}={params[name]!r}.", parameters=[name]
            )


def cohort_rule(
    n_clients: int, clients_per_round: int | None, cohorts: Sequence[Sequence[int]] | None, seed: int
) -> CohortRule:
    """Return the rule that determines each round's clients.

    Raises:
        ArgumentError: both `clients_per_round` and `cohorts` are given, or one is out of bounds.
    """
    if clients_per_round is not None and cohorts is not None:
        raise ArgumentError("pass clients_per_round or cohorts, not both.", parameters=["clients_per_round"])
    if cohorts is not None:
        return CohortRule(kind="schedule", rounds=_schedule(cohorts, n_clients))
    if clients_per_round is None or clients_per_round == n_clients:
        return CohortRule()
    check_whole("clients_per_round", clients_per_round, 1, n_clients)
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
        metrics: what may be asked after it, or alone; values like `privfed.metrics.asked.AskedMetric`.
        named: how the user named `metrics`, to whom any other is then an error; None where another one is
            agreed on anew.
        n_clusters: number of clusters of the fit, or of a client's own clustering; None without any.
        rule: determines each round's clients.
        seed: of the clients' simulation randomness; a seeded run's noise follows from it.
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

    @cached_property
    def declared(self) -> Domain | None:
        """The declared domain, wherever it was declared; of bounds on rows by name those of these clients."""
        domain = self.domain if self.privacy is None else self.privacy.domain
        if domain is None or not isinstance(domain.max_rows, Mapping):
            return domain
        # The ranges of questions follow from the largest, which may be of a client that is not asked.
        return replace(domain, max_rows={one: domain.rows_of(one) for one in self.clients.names})  # type: ignore[misc]

    def agreed(self) -> Configuration:
        """Return what the parties agree on.

        Raises:
            ArgumentError: the protocol cannot protect so few clients, privacy declares another domain, or a
                number is too large to be agreed on. Or the server would add noise to sums that it can read.
            PrivacyError: the server would add noise to sums that are not fixed before the first, or clients
                answer from groups of rows; or the number of rows is public and depends on what they hold.
        """
        if self.policy is not None:
            check_no_privacy(self.policy.group_size, self.privacy is not None)
        configuration = self._agreed()
        terms = configuration.privacy
        if terms is not None and terms.rows_are_public and self.clients.leaves_out:
            raise PrivacyError(
                "with neighbours that replace a record the number of rows is public, and these tables leave "
                "rows out for what they hold: a missing value or id. Declare a value for gaps (missing=) and "
                'leave the column of ids out, or claim neighbours="add-remove".'
            )
        check_size(configuration)
        check_built(size_of(self.algorithm, setting_of(configuration, self.declared)), totals=False)
        privacy = self.privacy
        if privacy is None or privacy.noise != Noise.SERVER:
            return configuration
        if self.secure_sum.recipient != "clients":
            raise ArgumentError(
                f'noise="server" protects nobody from the server, which opens {self.secure_sum.name!r} sums; '
                'use noise="distributed", or protocol="ckks" or "group-masked", whose sums it cannot read.'
            )
        return scheduled(configuration, self.algorithm, self.declared)  # type: ignore[arg-type]

    def _agreed(self) -> Configuration:
        clients, privacy, domain = self.clients, self.privacy, self.declared
        check_one_domain(privacy, self.domain)
        low, high = (None, None) if domain is None else domain.bounds(clients.n_features)
        rows: Any = None if domain is None else domain.max_rows
        rows = tuple(rows.values()) if isinstance(rows, Mapping) else rows
        terms = _terms(clients, self.secure_sum, self.rule, self.max_sums + SPARE_SUMS)
        replays = self.secure_sum.recipient == "clients" or terms.verified
        if self.start is not None:
            check_start(self.start, clients.names, self.secure_sum.name, replays)
        return Configuration(
            protocol=self.secure_sum.name,
            algorithm=self.description,
            clients=clients.names,
            n_features=clients.n_features,
            columns=clients.columns,
            n_clusters=self.n_clusters,
            cohorts=self.rule,
            terms=terms,
            seed=self.seed if privacy is None else privacy.seeded(self.seed),
            low=None if low is None else Array.from_numpy(low),
            high=None if high is None else Array.from_numpy(high),
            max_rows=rows,
            privacy=None if privacy is None else privacy.terms(self.steps),
            numerics=known_answers() if replays else "",
            program=self._program(),
        )

    def _program(self) -> AgreedProgram | None:
        """Return what runs; None where nothing is declared of what will be asked."""
        declared = self.algorithm is None or isinstance(self.algorithm, Phased)
        if not declared or (self.algorithm is None and not self.metrics):
            return None
        return AgreedProgram.of(self.algorithm, self.metrics)


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
    if clients.data is None:
        raise ArgumentError(
            f"{clients.names[0]!r} is the only client: protocol {protocol.name!r} cannot protect a single "
            "one. Add further ones first."
        )
    of_one, without = (
        "a list of one array was given",
        "one array was given, without the groups of several clients",
    )
    raise ArgumentError(
        f"{of_one if clients.rows is None else without}: protocol {protocol.name!r} cannot protect a single "
        "client. Pass a list with one array a client, of two axes (array.reshape(-1, 1) for one feature); or "
        'one array with groups=, the client of each row; or use protocol="plain", which hides nothing.'
    )


def check_one_domain(privacy: Privacy | None, domain: Domain | None) -> None:
    """Check that no other domain is declared beside that of a claim.

    Raises:
        ArgumentError: one is.
    """
    if privacy is not None and domain is not None and domain is not privacy.domain:
        raise ArgumentError("with privacy, declare the domain there: Privacy(domain=...).")


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
        f"random_state must be None, a number in [0, 2**63) or a generator, got {random_state!r}.",
        parameters=["random_state"],
    )


def check_start(start: StartTotal, clients: tuple[str, ...], protocol: str, verified: bool) -> None:
    """Check that clients know a start total to be what they summed, and that it is of these clients.

    Args:
        start: the start total.
        clients: names of the fit's clients.
        protocol: name of its secure sum.
        verified: whether its clients verify or open totals.

    Raises:
        ArgumentError: the clients verify no totals, or the total is over others.
    """
    if not verified:
        raise ArgumentError(
            f"clients of {protocol!r} sums verify no totals, and could not tell a start total of an earlier "
            'fit from numbers of the server\'s choice. Use init="nested", or "masked-verified", '
            '"group-masked" or "ckks" sums in both fits.'
        )
    if start.clients != frozenset(clients):
        besides, without = sorted(start.clients - set(clients)), sorted(set(clients) - start.clients)
        raise ArgumentError(
            "a start total must be over exactly the fit's clients; this one is "
            f'also over {besides or "none"}, and not over {without or "none"}: use init="nested", which asks '
            "anew."
        )


def as_agreed(clients: Clients, run_dir: str | Path | None) -> Clients:
    """Return the clients of a run that is resumed: by now an engine's list may name more of them.

    Args:
        clients: those that the engine knows; others are returned as they are.
        run_dir: folder of the run.
    """
    if clients.data is not None or run_dir is None:
        return clients
    agreed = Transcript.load(Path(run_dir)).configuration.clients
    return replace(clients, names=agreed) if set(agreed) <= set(clients.names) else clients
