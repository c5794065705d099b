"""The coordinator's part where clients agree on keys: who encapsulates to whom, and what waits for whom.

It relays signed keys and ciphertexts, and learns none of the keys that they give.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping

from privfed.errors import MessageError
from privfed.protocols.setup.messages import Capsule, Offered, Slot

Ahead = tuple[tuple[Slot, ...], tuple[Offered, ...], tuple[Capsule, ...]]
"""What a request brings for sums to come: which, keys to encapsulate to, and what others encapsulated."""


def encapsulates(one: int, other: int) -> bool:
    """Say whether the first of two clients encapsulates: each does to about half of the others."""
    return (one < other) == ((one + other) % 2 == 0)


class Pairing:
    """Keeps which pairs of clients are to agree on keys, and brings each what it needs for that.

    Args:
        keys: by position, the ML-KEM-768 keys of the listed clients.
    """

    def __init__(self, keys: Mapping[int, bytes]) -> None:
        self._keys = keys
        self._wanted: dict[int, set[int]] = {client: set() for client in keys}
        self._made_by: dict[int, dict[int, int]] = {client: {} for client in keys}
        self._waiting: dict[int, dict[int, Capsule]] = {client: {} for client in keys}
        self._sent: dict[int, tuple[int, ...]] = {}

    def want(self, client: int, others: Iterable[int], *, alone: bool = False) -> None:
        """Have a client agree on a key with each of `others` that is listed; a pair agrees once.

        Args:
            client: position of the client.
            others: positions of the others.
            alone: whether it encapsulates to all with whom no key was wanted before.
        """
        wanted = self._wanted[client]
        for j in others:
            if j in self._keys and j != client and j not in wanted:
                maker = client if alone or encapsulates(client, j) else j
                for one, other in ((client, j), (j, client)):
                    self._wanted[one].add(other)
                    self._made_by[one][other] = maker

    def offered(self, client: int) -> tuple[Offered, ...]:
        """Return the keys of those that a client is to encapsulate to, or has, with the ciphertext lost."""
        lacking = sorted(self._made_by[client].items())
        return tuple([Offered(j, self._keys[j]) for j, maker in lacking if maker == client])

    def waits(self, client: int, members: Collection[int], joined: Container[int]) -> bool:
        """Say whether a key with a joined member of a cohort waits for what that one encapsulates."""
        lacking = self._made_by[client].items()
        return any(j == maker and j in members and j in joined for j, maker in lacking)

    def capsules(self, client: int) -> tuple[Capsule, ...]:
        """Return what others encapsulated to a client, until it has answered."""
        waiting = self._waiting[client]
        self._sent[client] = tuple(waiting)
        return tuple(waiting.values())

    def heard(self, client: int) -> None:
        """Note that a client answered the request that brought it what waited."""
        for sender in self._sent.pop(client, ()):
            self._waiting[client].pop(sender, None)

    def take(self, client: int, capsules: tuple[Capsule, ...], name: str, stage: str) -> None:
        """Keep what a client encapsulated.

        Raises:
            MessageError: it was not asked for it.
        """
        if any(one.client not in self._wanted[client] for one in capsules):
            raise MessageError("a capsule that was not asked for", sender=name, stage=stage)
        for one in capsules:
            if self._made_by[client].get(one.client) == client:
                del self._made_by[client][one.client], self._made_by[one.client][client]
                self._waiting[one.client][client] = Capsule(client, one.ciphertext, one.tag)
