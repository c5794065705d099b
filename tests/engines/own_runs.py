"""A simulation in which each client has its own run of the algorithm, as clients on other machines have."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.connection import Connection, Opening
from privfed.core.roles.conversation import Algorithm, Setting
from privfed.core.roles.engine import ClientSide
from privfed.core.roles.secure_sum import SecureSum, Session
from privfed.core.values.domain import Domain
from privfed.federation.simulation import Simulation
from privfed.party.replay import ProgramReplay
from privfed.party.state import MemoryStore
from privfed.privacy.ledger import BudgetLedger
from privfed.protocols.setup.simulated import fresh_agreement


class _WithRuns:
    """A secure sum whose simulated clients each run the algorithm."""

    def __init__(self, inner: SecureSum, algorithm: Algorithm[Any], domain: Domain | None) -> None:
        self._inner, self._algorithm, self._domain = inner, algorithm, domain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        agreement, server, identities = fresh_agreement(configuration, policies)
        sides = {
            i: self._inner.client(agreement, i, identity, policies[i], self._run(configuration))
            for i, identity in identities.items()
        }
        return self._inner.coordinator(agreement, server), sides

    def _run(self, agreed: Configuration) -> ProgramReplay[Any]:
        words: dict[str, Any] = {"privacy": agreed.privacy, "noising": agreed.noising}
        setting = Setting(agreed.clients, agreed.n_features, self._domain, **words)
        ledger = None if agreed.privacy is None else BudgetLedger(agreed)
        return ProgramReplay(deepcopy(self._algorithm), setting, MemoryStore(), ledger=ledger)


class OwnRuns(Simulation):
    """Simulates clients that each run the algorithm on the totals that they verified."""

    def connect(self, opening: Opening) -> Connection:
        assert opening.algorithm is not None
        protocol: Any = _WithRuns(opening.protocol, opening.algorithm, opening.domain)
        return super().connect(replace(opening, protocol=protocol))
