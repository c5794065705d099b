"""Real clients of a masked sum, each with numbers of its own to hide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from privfed.core.agreed.agreement import Registry
from privfed.core.agreed.configuration import CohortRule, Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import AdditiveOver, ClientData, Question, register
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.roles.engine import Answerer, Client
from privfed.core.values.domain import Ranges
from privfed.party.state import MemoryStore
from privfed.protocols.crypto.keys import APART, Identity, Shared
from privfed.protocols.masked.client_state import State
from privfed.protocols.masked.masked_client import MaskedClient
from privfed.protocols.setup.graph import sizes
from privfed.protocols.setup.rules import Rules, default_terms

Words = npt.NDArray[np.uint64]
ONE_COLUMN = Ranges(np.zeros(1), np.ones(1), 1)


@register
@dataclass(frozen=True, kw_only=True, eq=False)
class HostileNumbers(Question):
    """Ask for a client's secret numbers; each tag is another question with another answer."""

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.CLIENTS
    tag: int

    @property
    def spec(self) -> StatisticsSpec:
        """Three integers."""
        return StatisticsSpec(Entry("x", (3,), -1000.0, 1000.0, 1.0))

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Not used: the world's answerers know their numbers."""
        raise NotImplementedError


def numbers_question(tag: int) -> bytes:
    """Return the encoded question of a tag."""
    return HostileNumbers(ranges=ONE_COLUMN, tag=tag).to_bytes()


def numbers_of(client: int, tag: int) -> npt.NDArray[np.float64]:
    """Return the secret that a client answers to a tag."""
    return np.random.default_rng([77, client, tag]).integers(-1000, 1001, 3).astype(np.float64)


def numbers_answerer(client: int) -> Answerer:
    """Return the answerer of one client."""

    def answer(question: Question, index: int) -> tuple[Statistics, int]:
        assert isinstance(question, HostileNumbers)
        return Statistics(x=numbers_of(client, question.tag)), 0

    return answer


def terms_of(n: int, colluders: int | None = None, honest: int | None = None, **more: int) -> Terms:
    """Return the terms that `Masked` gives cohorts of n."""
    c, m = default_terms(n, colluders=colluders, honest=honest)
    return Terms(min_clients=n, colluders=c, honest=m, **more)


def what_clients_share() -> Shared:
    """Return what the clients of a world take from each other: nothing, unless a test says otherwise."""
    return APART


class World:
    """Real clients with their own stores.

    Args:
        n: how many.
        terms: what they were promised; by default those of `Masked()`.
        corrupted: clients whose whole state the server reads.
        rule: cohorts.
        side: class of the clients; a test of a weaker form passes a weaker one.
        store: makes the store of a client.
        answerer: makes the answerer of a client.
        n_features: number of columns.
        client: class that stores and replies.
        policy: what the clients answer.
        impostors: clients whose identity is not the one in the registry.
    """

    def __init__(
        self,
        n: int,
        *,
        terms: Terms | None = None,
        corrupted: Iterable[int] = (),
        rule: CohortRule | None = None,
        side: type[MaskedClient] = MaskedClient,
        store: Callable[[int], Any] = lambda i: MemoryStore(),
        answerer: Callable[[int], Answerer] = numbers_answerer,
        n_features: int = 1,
        client: type[Client] = Client,
        policy: ClientPolicy | None = None,
        impostors: Iterable[int] = (),
    ) -> None:
        rule = rule or CohortRule()
        terms = terms or terms_of(rule.smallest(n))
        self.corrupted = frozenset(corrupted)
        self.server_identity = Identity.generate()
        self.identities = [Identity.generate() for _ in range(n)]
        names = tuple(f"client {i}" for i in range(n))
        configuration = Configuration(
            protocol="masked", algorithm="", clients=names, n_features=n_features, cohorts=rule, terms=terms
        )
        registry = Registry(tuple(one.public for one in self.identities), self.server_identity.public)
        self.agreement = Rules(configuration, registry)
        for i in impostors:
            self.identities[i] = Identity.generate()
        self.answerers = [answerer(i) for i in range(n)]
        self.stores = [store(i) for i in range(n)]
        shared = what_clients_share()
        self.sides = [
            side(i, self.agreement, self.identities[i], policy or ClientPolicy(), None, shared)
            for i in range(n)
        ]
        self.clients = [client(self.sides[i], self.stores[i], self.answerers[i]) for i in range(n)]
        self.replies: dict[int, set[bytes]] = {i: set() for i in range(n)}
        self.spied: dict[int, list[State]] = {i: [] for i in self.corrupted}

    @property
    def terms(self) -> Terms:
        """What the clients were promised."""
        return self.agreement.configuration.terms

    def ask(self, client: int, request: bytes) -> bytes:
        """Deliver a request; of a corrupted client the server keeps the state as well."""
        reply = self.clients[client].handle(request)
        self.replies[client].add(reply)
        if client in self.corrupted:
            self.spied[client].append(self.stores[client].load())
        return reply

    def promise(self, cohort: int = 0) -> int:
        """Return how many honest clients an opened sum has, says the proof; t - c + 1 on the full graph."""
        return sizes(len(self.agreement.cohort(cohort).members), self.terms).honest
