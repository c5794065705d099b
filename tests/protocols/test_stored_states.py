"""The state of every sum's client is stored as bytes between any two messages, and comes back the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from privfed.core.codec import StateCodec
from privfed.core.engine import Client
from privfed.core.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.protocols import CKKS, GroupMasked, Masked, Plain, Slotted
from tests.protocols.federations import Sums, vectors

SUMS = [Plain(), Masked(), GroupMasked(), CKKS(), Slotted(Masked())]


class Bytes:
    """A store that keeps what a disk would: bytes."""

    def __init__(self, codec: StateCodec) -> None:
        self.codec, self.data = codec, b""

    @contextmanager
    def transaction(self) -> Iterator[Bytes]:
        yield self

    def load(self) -> Any:
        return self.codec.from_bytes(self.data) if self.data else None

    def save(self, state: Any) -> None:
        self.data = self.codec.to_bytes(state)
        assert self.codec.to_bytes(self.codec.from_bytes(self.data)) == self.data


@pytest.mark.parametrize("protocol", SUMS, ids=lambda one: one.name)
def test_a_run_over_stored_bytes_opens_the_same_sums(protocol: SecureSum) -> None:
    run = Sums(protocol, 6)
    stores = {i: Bytes(run.sides[i].codec) for i in range(run.n)}
    for i in range(run.n):
        run.clients[i] = Client(run.sides[i], stores[i], run.answerer(i))
    for _ in range(3):
        question = vectors()
        run.assert_exact(run.ask(question), question)
    assert all(store.data for store in stores.values())
    kept = stores[0].data
    with pytest.raises(ArgumentError, match="these bytes are no state of a client"):
        run.sides[0].codec.from_bytes(kept[:-1])
    other = next(one for one in SUMS if one.name != protocol.name and one.opens_to == "server")
    with pytest.raises(ArgumentError, match="these bytes are no state of a client"):
        Sums(other, 6).sides[0].codec.from_bytes(kept)
