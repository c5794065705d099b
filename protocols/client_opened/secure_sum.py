"""The two sides of sums that the clients open, for every way of sealing answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.roles.engine import ClientSide
from privfed.core.roles.secure_sum import Replay, Session, TotalReader
from privfed.protocols.answering import check_promised
from privfed.protocols.client_opened.scheme import Scheme
from privfed.protocols.client_opened.session import group_client, group_coordinator, group_parties


class ClientOpenedSum(ABC):
    """A secure sum whose totals the clients open; a subclass says how answers are sealed, and what for."""

    one_key: bool

    @abstractmethod
    def scheme(self, configuration: Configuration) -> Scheme:
        """Return what seals, adds and opens the answers of a fit."""

    def coordinator(
        self, agreement: Agreement, identity: Signer, totals: TotalReader | None = None
    ) -> Session:
        """Return the coordinator's session, which relays, and may get totals from a client through `totals`.

        Raises:
            ArgumentError: the key is not the registered one.
        """
        return group_coordinator(agreement, identity, self.scheme(agreement.configuration), totals)

    def client(
        self,
        agreement: Agreement,
        position: int,
        identity: Signer,
        policy: ClientPolicy,
        replay: Replay | None = None,
    ) -> ClientSide:
        """Return one client's side, with its own run of the algorithm.

        Raises:
            ArgumentError: the key is not the registered one, or there is no replay.
            PolicyError: the terms promise fewer than two honest clients, or colluders who all have the key,
                or a cohort has two clients.
        """
        check_promised(agreement.configuration, one_key=self.one_key)
        scheme = self.scheme(agreement.configuration)
        return group_client(agreement, position, identity, policy, scheme, replay)

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients, with fresh identities in a registry that all of them hold.

        Raises:
            ArgumentError: the scheme cannot carry what was agreed on.
        """
        return group_parties(configuration, policies, self.scheme(configuration))
