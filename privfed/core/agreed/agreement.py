"""What a party was given before a fit, and not by the server: the configuration and everybody's public key.

It is public. Parties exchange it as bytes and compare its digest among themselves: whoever writes it alone
decides who takes part.

What it names has absolute bounds, checked before anything is built from it. An agreement is a short text, and
what follows from it need not be: phases and geometry for each restart, a direction for each column, shares of
a budget for each cluster. Whoever writes one could have all who join it fill their memory. Each number is
compared before an algorithm is built; so is that a client's own rows have as many columns as agreed. What
follows from products of these numbers, an algorithm says itself (`Sized`), before its phases or its run are
made. Property (`tests/party/test_largest.py`): whatever whole numbers an agreement names, singly and all
together, to join takes at most 640 MiB and a minute, or is refused by one code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from privfed.core.agreed.configuration import MOST_BYTES, Configuration
from privfed.core.agreed.program import Listed, Of, Value, values_of
from privfed.core.stored.encoding import Codec, digest
from privfed.core.values.numbers import Items
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
class JournalCounter:
    """A party's journal counter: it shows it to others, who notice an older copy.

    Args:
        counter: number of entries; 0 where no journal is kept.
        head: hash that chains them, 32 bytes.
        at: when the party showed it, in nanoseconds, by a clock of its own that only goes forward.
    """

    counter: int = 0
    head: bytes = bytes(32)
    at: int = 0

    def contradicts(self, other: JournalCounter) -> bool:
        """Say whether no journal shows both that only goes on: one of them is of an older copy."""
        if self.counter == other.counter or 0 in (self.counter, other.counter):
            return self.head != other.head
        return (self.counter < other.counter) != (self.at < other.at)


@runtime_checkable
class Remembering(Protocol):
    """A long-term key whose party keeps a journal over all its fits."""

    def journal_counter(self) -> JournalCounter:
        """Return the party's journal counter as it is now, and remember when it was shown."""

    def meets(self, peers: Mapping[bytes, tuple[JournalCounter, bytes]]) -> dict[bytes, tuple[bytes, bytes]]:
        """Remember the journal counters of others, and for good which of them contradicted an earlier one.

        Args:
            peers: public key -> that party's journal counter at a set-up, and the statement that it signed.

        Returns:
            Public key of each party whose journal ever went back -> two of its statements that show it.
        """


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists the public keys of all parties, which they exchanged before the fit.

    Whoever writes the registry decides who takes part, so the parties compare its digest with each other.

    Args:
        clients: public key of each client, by position.
        server: public key of the coordinator.
    """

    clients: Items[bytes]
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


_CODEC: Codec[_Written] = Codec(_Written, "agreement", 3, most=MOST_BYTES)


MOST_CLUSTERS = 1 << 14
"""Most clusters of an algorithm; all candidates of a selection together."""

N_CLUSTERS = ("n_clusters", "n_local_clusters", "candidates")
"""Parameters of algorithms that are numbers of clusters."""

MOST_RESTARTS = 1 << 12

MOST_COLUMNS = 1 << 20

MOST_DIRECTIONS = 1 << 20
"""Most restarts times columns: each restart has a few directions in all columns, or 128 MiB of them."""

MOST_NUMBER = 1 << 20
"""Most of all other whole numbers of an algorithm, but for those of which nothing is built."""

MOST_METRICS = 64
"""Most metrics that may follow."""

MOST_BUILT = 1 << 25
"""Most numbers of eight bytes of all models that an algorithm begins with: 256 MiB."""

MOST_KEPT = 10**9 // 8
"""Most numbers of the totals that a client of verified sums keeps: a journal holds no larger value."""

_OWN = {"rounds": 1 << 14, "n_classes": 1 << 12}
"""Parameters for each of which forms, or parts of a model, are built."""

_FREE = ("seed", "index", "rows", "rows_per_client")


class Size(NamedTuple):
    """How large an algorithm is, in numbers of eight bytes.

    Args:
        built: what its phases hold, or its run before the first total.
        kept: all totals of its run, where these are known to be as many before it.
    """

    built: int
    kept: int = 0


@runtime_checkable
class Sized(Protocol):
    """An algorithm whose phases or run hold products of its numbers."""

    def size(self, setting: Any) -> Size:
        """Return how large it is; nothing of that size is made for it."""


def size_of(algorithm: object, setting: Any) -> Size:
    """Return what an algorithm says of its size; nothing for one whose own numbers bound it."""
    return algorithm.size(setting) if isinstance(algorithm, Sized) else Size(0)


def check_built(size: Size, *, totals: bool) -> None:
    """Check that an algorithm is not too large to be followed.

    Args:
        size: its own.
        totals: whether its totals are kept, as by a client of verified sums.

    Raises:
        ArgumentError: it is.
    """
    _check("the numbers of all models together", size.built, MOST_BUILT)
    if totals:
        _check("the numbers of all totals together", size.kept, MOST_KEPT)


def check_size(configuration: Configuration) -> None:
    """Check that nothing that is agreed on is too large to be built by every client.

    Raises:
        ArgumentError: something is.
    """
    agreed = None if configuration.program is None else configuration.program.algorithm
    restarts = max(_whole(values_of(agreed, "n_init")), default=1)
    clusters = max(sum(_whole(values_of(agreed, *N_CLUSTERS))), configuration.n_clusters or 0)
    _check("n_features", configuration.n_features, MOST_COLUMNS)
    _check("n_init", restarts, MOST_RESTARTS)
    _check("n_init times n_features", restarts * configuration.n_features, MOST_DIRECTIONS)
    _check("the numbers of clusters together", clusters, MOST_CLUSTERS)
    metrics = () if configuration.program is None else configuration.program.metrics
    _check("metrics", len(metrics), MOST_METRICS)
    for one in (agreed, *metrics):
        for name, number in _numbers(one):
            _check(name, number, _OWN.get(name, MOST_NUMBER))


def _check(name: str, number: int, most: int) -> None:
    if number > most:
        raise ArgumentError(
            f"{name} must be at most {most} in an agreement, which every client builds before it joins; got "
            f"{number}. Take fewer.",
            parameters=[name],
        )


def _whole(values: Iterator[Value]) -> list[int]:
    return [one for one in values if type(one) is int]


def _numbers(value: Value, name: str = "") -> Iterator[tuple[str, int]]:
    """Yield the whole numbers in a value, by the name of their field; an array is as large as its bytes."""
    if isinstance(value, Of):
        for field, one in value.fields.items():
            yield from _numbers(one, field)
    elif isinstance(value, Listed):
        for one in value.items:
            yield from _numbers(one, name)
    elif type(value) is int and name not in _FREE:
        yield name, abs(value)
