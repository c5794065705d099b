"""A party with its journal, agreements for it, and one question."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from privfed import Box, ClientPolicy, Privacy
from privfed.core.agreed.agreement import Agreement, Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import ClientData
from privfed.core.roles.engine import Client, Exchange
from privfed.core.stored.encoding import Array, encode
from privfed.core.values.domain import Ranges
from privfed.nodes.identity import OwnIdentity, write_identity
from privfed.nodes.journal import Journal
from privfed.nodes.signed import Requests, SignedSide
from privfed.party.client import own_client
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import noised
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.plain import PlainClient, PlainRequest
from privfed.questions.bounded.bounded_sums import RelativeSums
from privfed.questions.lloyd import LloydSums
from tests.undeclared import ANYTHING

SERVER = Identity(bytes(range(32)))
DOMAIN = Box(-3.0, 3.0, max_rows=64)


def new_party(folder: Path) -> tuple[OwnIdentity, Journal]:
    own = OwnIdentity.generate("a")
    journal = Journal.create(folder, own)
    write_identity(folder, own)
    return own, journal


def agreement(own: OwnIdentity, seed: int = 0, epsilon: float | None = None, **words: object) -> Agreement:
    if epsilon is not None:
        low, high = DOMAIN.bounds(2)
        claim = Privacy(epsilon=epsilon, delta=1e-6, unit="record", domain=DOMAIN, neighbours="add-remove")
        words |= {
            "privacy": claim.terms(),
            "low": Array.from_numpy(low),
            "high": Array.from_numpy(high),
            "max_rows": 64,
        }
    known = {"protocol": "plain", "algorithm": "", "clients": ("a",), "n_features": 2, "seed": seed}
    configuration = Configuration(**{**known, **words})  # type: ignore[arg-type]
    return Agreement(configuration, Registry((own.key.public,), SERVER.public))


def question(center: float = 0.0) -> LloydSums:
    return LloydSums(ranges=Ranges([-3.0, -3.0], [3.0, 3.0], 64), centers=np.array([[center, 0.0]]))


def noised_question(agreed: Agreement) -> Noised:
    """Return a question that costs .35 of the budget."""
    centers = np.array([[0.0, 0.0], [1.0, 1.0]])
    sums = RelativeSums(ranges=Ranges([-3.0, -3.0], [3.0, 3.0], 64), centers=centers, radius=0.7)
    return noised(sums, {"count": 0.1, "sum": 0.2, "distance": 0.05}, None, agreed.configuration)


def request(number: int, index: int, asked: bytes | None = None) -> bytes:
    return encode(PlainRequest(number, index, question().to_bytes() if asked is None else asked))


class Asked:
    """A client as its coordinator asks it, which signs each request."""

    def __init__(self, client: Client, agreed: Agreement, position: int = 0) -> None:
        self._client, self._requests, self._me = client, Requests(agreed, SERVER), position

    def handle(self, request: bytes) -> bytes:
        signed = self._requests.signed(Exchange("collect", 1, {self._me: request}))
        return self._client.handle(signed.requests[self._me])


def client(journal: Journal, agreed: Agreement, policy: ClientPolicy | None = None) -> Asked:
    """Return the party's client as a new process would: from its journal alone."""
    policy = policy or ANYTHING
    fit = journal.begin(agreed, 0, "rows", policy)
    side = SignedSide(PlainClient(agreed.configuration, policy), agreed, 0)
    rows = ClientData(np.random.default_rng(0).normal(size=(9, 2)))
    stores = fit.stores(side)
    domain = None if agreed.configuration.privacy is None else DOMAIN
    own = own_client(side, 0, rows, agreed.configuration, policy, stores, domain=domain)
    return Asked(own, agreed)
