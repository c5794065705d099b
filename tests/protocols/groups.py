"""A federation under a group mask whose coordinator a test may play: what it sees, and what it may send."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from privfed.core.roles.secure_sum import NextQuestion
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.protocols.client_opened.client_opened import CommonReplay, GroupSession
from privfed.protocols.client_opened.relay import Relay
from privfed.protocols.client_opened.scheme import (
    Contribution,
    Group,
    OpenRequest,
    Sealed,
    SumAttempt,
    attempt_of,
)
from privfed.protocols.crypto.fixed_point import Grid, Words
from privfed.protocols.group_masked.group_masked import GroupMasked, MaskedWords
from privfed.protocols.setup.setup_messages import Envelope
from tests.protocols.federations import Sums, Vectors, vectors

QUESTION = vectors()


class Played:
    """A group of clients and what their coordinator holds, with which a test does as it likes.

    Attributes:
        run: the federation; its session is that of an honest coordinator.
    """

    def __init__(self, n: int = 5, sums: int = 1, rounds: Any = (), **options: Any) -> None:
        self.run = Sums(GroupMasked(**{"losses": 9, **options}), n, rounds)
        for _ in range(sums):
            self.run.ask(QUESTION)

    @property
    def relay(self) -> Relay:
        """The coordinator."""
        assert isinstance(self.run.session, GroupSession)
        return self.run.session.relay

    @property
    def standing(self) -> CommonReplay:
        """The replay on the clients' side."""
        assert isinstance(self.run.session, GroupSession)
        assert isinstance(self.run.session.opener, CommonReplay)
        return self.run.session.opener

    def group(self, client: int) -> Group:
        """Return what a client holds; a colluder shows it to the coordinator."""
        group: Group = self.run.state(client).group
        return group

    def announce(self, index: int, question: Vectors = QUESTION, label: int = 0) -> None:
        """Let the clients' algorithm come to a sum, with fresh answers."""
        self.standing.announce(index, NextQuestion(question.to_bytes(), label))
        self.run.draw(question)

    def attempt(self, client: int, number: int, index: int, lost: bytes | None = None) -> SumAttempt:
        """Return an attempt at the sum after those that are open, as a client computes it."""
        group = self.standing._group
        assert group is not None
        lost = self.relay._lost_bitmap() if lost is None else lost
        expected = self.standing.ask(index)
        return attempt_of(self.run.configuration, group, client, expected, number, index, lost)

    def request(self, number: int, index: int, **changed: Any) -> OpenRequest:
        """Return what an honest coordinator would send next, with changes."""
        relay = self.relay
        totals = tuple(relay._totals[-1:])
        honest = OpenRequest(index, True, relay._lost_bitmap(), totals)
        return msgspec.structs.replace(honest, **changed)

    def ask(self, client: int, number: int, request: OpenRequest) -> Contribution | Refusal:
        """Send one client a request; return its reply."""
        channel = self.relay._channels[client]
        data = self.run.clients[client].handle(channel.down.seal(number, "collect", request))
        reply = decode(data, Envelope | Refusal, sender="client", stage="collect")
        if isinstance(reply, Refusal):
            return reply
        opened: Contribution | Refusal = channel.up.open(reply, Contribution | Refusal, "client")
        return opened

    def code(self, client: int, number: int, request: OpenRequest) -> str:
        """Return the code of a refusal, or "" for an answer."""
        reply = self.ask(client, number, request)
        return reply.code if isinstance(reply, Refusal) else ""

    def collect(self, number: int, index: int, **changed: Any) -> dict[int, Contribution]:
        """Ask all clients that were not lost; return their replies."""
        request = self.request(number, index, **changed)
        lost = request.lost
        replies = {i: self.ask(i, number, request) for i in range(self.run.n) if not lost[i]}
        return {i: one for i, one in replies.items() if isinstance(one, Contribution)}

    def sealed(self, number: int, index: int, replies: dict[int, Contribution], lost: bytes) -> Sealed:
        """Add replies as an honest coordinator does."""
        adder = self.relay._scheme.adder()
        for client, reply in replies.items():
            adder.add(client, reply.body, "client")
        return Sealed(number, index, lost, adder.result()[1])


def words_of(body: bytes) -> Words:
    """Return the masked words of an upload or a total."""
    sealed: MaskedWords = decode(body, MaskedWords, sender="client", stage="collect")
    return sealed.to_numpy()


def with_words(body: bytes, words: Words) -> bytes:
    """Return an upload or a total with other words."""
    sealed: MaskedWords = decode(body, MaskedWords, sender="client", stage="collect")
    return encode(msgspec.structs.replace(sealed, words=words.astype("<u8").tobytes()))


def encoded(played: Played, client: int, question: Vectors = QUESTION) -> Words:
    """Return a client's true answer on the grid of its sum."""
    inside = np.clip(played.run.values[client], question.low, question.high)
    return Grid(question.spec, played.run.n).encode(inside, played.run.moved[client])
