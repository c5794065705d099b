"""What a server keeps of set-ups, uploads and unmaskings."""

from __future__ import annotations

from dataclasses import dataclass, field

from privfed.protocols.masked.client_state import Pair
from privfed.protocols.masked.masked_messages import (
    Preparation,
    Unmasking,
)
from privfed.protocols.setup.setup_messages import (
    Capsule,
    Channel,
    Listed,
    RosterRequest,
)
from tests.protocols.hostile.world import Words


@dataclass(eq=False)
class Fit:
    """One set-up, as the server sees it."""

    fit: bytes
    key: bytes
    seed: bytes
    listed: tuple[Listed, ...]
    session: bytes
    channels: dict[int, Channel]
    roster: RosterRequest
    preparations: dict[tuple[int, int, int], Preparation] = field(default_factory=dict)
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    opened: dict[tuple[int, int, int, int], Preparation] = field(default_factory=dict)
    pairs: dict[tuple[int, int], Pair] = field(default_factory=dict)
    capsules: dict[tuple[int, int], Capsule] = field(default_factory=dict)


@dataclass(eq=False)
class Collected:
    """One upload: what the client was told, and what it sent."""

    fit: Fit
    client: int
    number: int
    cohort: int
    question: bytes
    header: bytes
    neighbours: tuple[int, ...]
    used: dict[int, Preparation]
    own: Preparation
    words: Words
    receipts: dict[int, bytes]
    truth: Words
    prepared: bytes = b""
    index: int = 0

    def used_by(self, j: int) -> Preparation | None:
        """Return what a neighbour prepared, as the server knows it, whatever this client was given."""
        return self.fit.preparations.get((self.own.block, self.cohort, j))


@dataclass(eq=False)
class Answered:
    """One unmasking: the story that the client was told, and what it gave."""

    told: Collected
    dead: frozenset[int]
    reply: Unmasking
