"""Mutated messages of sums that clients open: never a wrong sum, never an error outside our tree."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from privfed.core.roles.engine import Exchange, Replies
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.stored.encoding import decode, encode
from privfed.errors import PrivFedError
from privfed.protocols import CKKS, GroupMasked
from privfed.protocols.client_opened.scheme import Contribution, Joined, OpenRequest
from privfed.protocols.setup.setup_messages import Channel, Envelope
from tests.protocols.federations import Sums, vectors

QUESTION = vectors(4)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few changed, cut off, doubled or put in."""
    kind, place = rng.randrange(4), rng.randrange(len(data) + 1)
    if kind == 0:
        return data[:place] + rng.randbytes(rng.randint(1, 3)) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data + data[place:]
    return data[:place] + bytes([data[place % len(data)] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


class Mutator:
    """Changes messages on their way: whole, or inside their envelope, as a party with its keys can."""

    def __init__(self, run: Sums, rng: random.Random, share: float) -> None:
        self._run, self._rng, self._share = run, rng, share
        self.count = 0
        run.engine.change_request = self.request
        run.engine.change_replies = self.replies

    def _inside(self, client: int, data: bytes, down: bool) -> bytes:
        channel: Channel = self._run.session.relay._channels[client]  # type: ignore[attr-defined]
        envelope = decode(data, Envelope, sender="", stage="")
        way = channel.down if down else channel.up
        message: Any = way.open(envelope, OpenRequest | Contribution | Joined)
        raw = msgspec.Raw(mutated(encode(message), self._rng))
        return way.seal(envelope.number, envelope.stage, raw)  # type: ignore[arg-type]

    def _changed(self, client: int, data: bytes, down: bool) -> bytes:
        if self._rng.random() >= self._share:
            return data
        self.count += 1
        try:
            return self._inside(client, data, down) if self._rng.random() < 0.5 else mutated(data, self._rng)
        except (PrivFedError, KeyError):
            return mutated(data, self._rng)

    def request(self, exchange: Exchange, client: int, data: bytes) -> bytes:
        return self._changed(client, data, True)

    def replies(self, exchange: Exchange, replies: Replies) -> Replies:
        return [(client, self._changed(client, data, False)) for client, data in replies]


def play(seed: int, share: float, protocol: SecureSum) -> tuple[int, int, int]:
    """Run some sums with mutated messages; return how many were mutated, opened and refused."""
    rng = random.Random(seed)
    run = Sums(protocol, 6)
    mutator, opened, refused = Mutator(run, rng, share), 0, 0
    for _ in range(4):
        try:
            total = run.ask(QUESTION)
        except PrivFedError:
            refused += 1
            continue
        run.assert_exact(total, QUESTION)
        opened += 1
    return mutator.count, opened, refused


@pytest.mark.parametrize("protocol", [GroupMasked(), pytest.param(CKKS(), marks=pytest.mark.slow)])
def test_mutated_messages_never_give_a_wrong_sum(protocol: SecureSum) -> None:
    results = [play(seed, (0.02, 0.1)[seed % 2], protocol) for seed in range(30)]
    mutations, opened, refused = (sum(column) for column in zip(*results, strict=True))
    # Keys are fresh in each run, so that a bound close to what was seen would fail at times.
    assert mutations > 50 and opened > 25 and refused > 10


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("protocol", "most"), [(GroupMasked(), 100_000), (CKKS(), 10_000)])
def test_a_hundred_thousand_mutated_messages_never_give_a_wrong_sum(protocol: SecureSum, most: int) -> None:
    mutations, seed = 0, 10_000
    while mutations < most:
        mutations += play(seed, (0.1, 0.5)[seed % 2], protocol)[0]
        seed += 1
