"""Federations for questions asked one by one, as metrics do: over arrays, an engine, or an open one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.phases import Metric
from privfed.core.connection import Engine
from privfed.core.federation import Federation
from privfed.core.roles.conversation import Algorithm
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.values.domain import Domain
from privfed.errors import ArgumentError
from privfed.federation.builder import FederationRequest, open_federation
from privfed.federation.clients import gathered
from privfed.privacy.privacy import Privacy


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
    engine: Engine | None = None,
    metric: Metric | None = None,
    algorithm: Algorithm[Any] | None = None,
) -> Federation:
    """Return a federation over client arrays, or over an engine's clients, outside a fit (for metrics).

    Clients answer what `metric` or `algorithm` declares; where both are None, only those do whose `policy`
    says `undeclared=True`, and they answer anything within it. Clients count rows in cells only where a
    number of clusters is agreed on.
    """
    words: dict[str, Any] = {"names": client_names, "domain": domain, "private": privacy is not None}
    return open_federation(
        FederationRequest(
            clients=gathered(engine, X, groups, labels, **words),
            description=purpose,
            max_sums=1 << 16,
            algorithm=algorithm,
            metrics=() if metric is None else (metric.alone(),),
            protocol=protocol,
            n_clusters=n_clusters,
            seed=random_state,
            domain=domain,
            privacy=privacy,
            engine=engine,
            policy=policy,
        )
    )


def federation_over(
    clients: Any, labels: Any = None, *, metric: Metric | None = None, **options: Any
) -> Federation:
    """Return a federation over `clients`, in which a metric may be asked.

    Args:
        clients: list of tables, or a federation. Of one whose agreement does not have the metric (any more),
            the clients agree anew, on this metric alone.
        labels: list of integer codes, one array a client; None with a federation.
        metric: declares what will be asked; None only for clients that answer what is not declared.
        **options: of `open_over`.

    Raises:
        ArgumentError: labels or options are passed with a federation, which has its own.
    """
    if not isinstance(clients, Federation):
        return open_over(clients, labels, metric=metric, **options)
    if labels is not None or options:
        given = sorted([*options, *(["labels"] if labels is not None else [])])
        raise ArgumentError(
            f"a federation keeps its own {', '.join(given)}; pass them when its clients are given."
        )
    return clients if metric is None else clients.for_metric(metric)
