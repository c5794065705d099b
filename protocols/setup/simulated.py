"""Builds the parties of a simulation in one process, as on several machines, with fresh identities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from privfed.core.agreed.agreement import Registry
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.roles.engine import ClientSide
from privfed.core.roles.secure_sum import SecureSum, Session
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.setup.rules import Rules


def fresh_agreement(
    configuration: Configuration, positions: Iterable[int]
) -> tuple[Rules, Identity, dict[int, Identity]]:
    """Return an agreement with fresh identities in its registry: the coordinator's, and one per position."""
    server = Identity.generate()
    identities = {i: Identity.generate() for i in sorted(positions)}
    registry = Registry(tuple(identity.public for identity in identities.values()), server.public)
    return Rules(configuration, registry), server, identities


def simulated(
    protocol: SecureSum, configuration: Configuration, policies: Mapping[int, ClientPolicy]
) -> tuple[Session, dict[int, ClientSide]]:
    """Return a session and its clients, for a sum that the server opens."""
    agreement, server, identities = fresh_agreement(configuration, policies)
    sides = {i: protocol.client(agreement, i, identity, policies[i]) for i, identity in identities.items()}
    return protocol.coordinator(agreement, server), sides
