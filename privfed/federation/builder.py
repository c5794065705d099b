"""Building the configuration that the parties of a fit agree on, from an estimator's parameters."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from privfed.core.configuration import CohortRule, Configuration, Terms
from privfed.core.conversation import Algorithm
from privfed.core.domain import Domain
from privfed.core.messages import Array
from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.federation.clients import Clients
from privfed.privacy.privacy import Privacy
from privfed.privacy.server_noise import scheduled
from privfed.protocols.registry import by_name

SPARE_SUMS = 64
"""Additional sums that clients agree to answer, for repeated ones and for metrics after the fit."""


def protocol_of(protocol: str | SecureSum) -> SecureSum:
    """Return the secure sum with a name, or the configured object itself.

    Raises:
        ArgumentError: there is no such protocol.
    """
    if isinstance(protocol, str):
        return by_name(protocol)
    if isinstance(protocol, type) or not all(hasattr(protocol, one) for one in ("name", "terms", "parties")):
        raise ArgumentError(f"protocol must be a name or an object of privfed.protocols, got {protocol!r}.")
    return protocol


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


def configuration_of(
    clients: Clients,
    protocol: SecureSum,
    *,
    algorithm: str,
    max_sums: int,
    n_clusters: int | None = None,
    rule: CohortRule,
    seed: int,
    domain: Domain | None,
    privacy: Privacy | None = None,
    runs: Algorithm[Any] | None = None,
) -> Configuration:
    """Return what the parties of a fit agree on.

    Args:
        clients: the clients.
        protocol: the secure sum.
        algorithm: the algorithm and its parameters, as canonical text.
        max_sums: most sums that the algorithm asks for.
        n_clusters: number of clusters of the fit, or of a client's own clustering; None without any.
        rule: determines each round's clients.
        seed: of the clients' simulation randomness.
        domain: declared domain, or None.
        privacy: the guarantee that is claimed, or None.
        runs: the algorithm, if a single one asks all questions; noise of the server needs it.

    Raises:
        ArgumentError: the protocol cannot protect so few clients, privacy declares another domain, or
            the server would add noise to sums that it can read.
        PrivacyError: the server would add noise to sums that are not fixed before the first.
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
        n_clusters=n_clusters,
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
