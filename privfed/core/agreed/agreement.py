"""What a party was given before a fit, and not by the server: the configuration and everybody's public key.

It is public. Parties exchange it as bytes and compare its digest among themselves: whoever writes it alone
decides who takes part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, Self, runtime_checkable

import msgspec

from privfed.core.agreed.configuration import Configuration
from privfed.core.stored.codec import Codec
from privfed.core.stored.hashing import digest
from privfed.errors import ArgumentError

PUBLIC_KEY_BYTES = 32
"""Bytes of an Ed25519 public key."""


class Signer(Protocol):
    """A party's long-term key."""

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """Return a signature, 64 bytes."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a party's journal stands: what it shows others, who notice an older copy.

    Args:
        counter: number of entries; 0 where no journal is kept.
        head: hash that chains them, 32 bytes.
    """

    counter: int = 0
    head: bytes = bytes(32)


@runtime_checkable
class Remembering(Protocol):
    """A long-term key whose party keeps a journal over all its fits."""

    def standing(self) -> Standing:
        """Return where the party's journal stands now."""

    def meets(self, peers: Mapping[bytes, Standing], since: int) -> bytes | None:
        """Remember where the journals of others stand; return the key of one that stands further back.

        Args:
            peers: public key -> where that party's journal stood at a set-up, as it signed.
            since: number of entries that this party's own journal had at that set-up. What it met only after
                may have been shown there later: several set-ups may run at once.
        """


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists the public keys of all parties, which they exchanged before the fit.

    Whoever writes the registry decides who takes part, so the parties compare its digest with each other.

    Args:
        clients: public key of each client, by position.
        server: public key of the coordinator.
    """

    clients: tuple[bytes, ...]
    server: bytes

    def __post_init__(self) -> None:
        if any(len(key) != PUBLIC_KEY_BYTES for key in (*self.clients, self.server)):
            raise ArgumentError("a registry needs Ed25519 public keys of 32 bytes.")
        if len(set(self.clients)) != len(self.clients):
            raise ArgumentError("a registry names each client's key once.")

    def digest(self) -> bytes:
        """Return SHA-256 of the registry, 32 bytes."""
        return digest("registry", self.server, *self.clients)


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """An agreement as it is stored and handed over."""

    configuration: Configuration
    registry: Registry
    part: str


@dataclass(frozen=True)
class Agreement:
    """What a party was given before the fit: configuration and registry.

    Args:
        configuration: everything that the parties agree on.
        registry: their public keys, by position.
        part: which of several set-ups under the same keys this is for; empty for the only one. What is signed
            for one part holds for no other.

    Raises:
        ArgumentError: the registry is not of the configuration's clients.
    """

    configuration: Configuration
    registry: Registry
    part: str = ""

    def __post_init__(self) -> None:
        clients, keys = len(self.configuration.clients), len(self.registry.clients)
        if clients != keys:
            raise ArgumentError(f"a registry of {keys} clients does not fit a configuration of {clients}.")

    @cached_property
    def digest(self) -> bytes:
        """What advertisements are signed over, 32 bytes."""
        parts = [self.configuration.digest(), self.registry.digest()]
        return digest("agreement", *parts, *([self.part.encode()] if self.part else []))

    def check_client(self, position: int, identity: Signer) -> None:
        """Check that a key is the registered one of a position.

        Raises:
            ArgumentError: it is another one; what it signs would be refused by all.
        """
        known = self.registry.clients
        if not 0 <= position < len(known) or known[position] != identity.public:
            raise ArgumentError(
                f"the key given is not the one that the agreement's registry has for position {position} of "
                f"{len(known)} clients; take the identity whose public key was exchanged."
            )

    def check_coordinator(self, identity: Signer) -> None:
        """Check that a key is the coordinator's registered one.

        Raises:
            ArgumentError: it is another one.
        """
        if self.registry.server != identity.public:
            raise ArgumentError(
                "the key given is not the one that the agreement's registry has for the coordinator; take "
                "the identity whose public key was exchanged."
            )

    def of_part(self, part: str) -> Agreement:
        """Return the same agreement for another set-up under the same keys."""
        return Agreement(self.configuration, self.registry, part)

    def to_bytes(self) -> bytes:
        """Return the agreement as bytes, the same for all who hold it."""
        return _CODEC.to_bytes(_Written(self.configuration, self.registry, self.part))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the agreement that `to_bytes` wrote.

        Raises:
            ArgumentError: damaged, not an agreement, a registry that does not fit, or clients that do not.
            FormatError: of another version.
        """
        read = _CODEC.from_bytes(data)
        read.configuration.check_clients()
        return cls(read.configuration, read.registry, read.part)


_CODEC: Codec[_Written] = Codec(_Written, "agreement", 2)
