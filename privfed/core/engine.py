"""Who carries the bytes: engines, and clients that answer requests."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from privfed.core.question import Question
from privfed.core.statistics import Statistics
from privfed.errors import MessageError

Reply = TypeVar("Reply")

Replies = list[tuple[int, bytes]]
"""What came back: (position, bytes), in order of arrival; a client may be missing or repeated."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange: a request to each of some clients, and their replies.

    Args:
        stage: name of the protocol's stage.
        number: number of the sum, 0 for the set-up.
        requests: position of the client -> bytes.
        answering: in a simulation, who will be asked for an answer, where others get requests too; it is
            never sent. None for all who get one.
    """

    stage: str
    number: int
    requests: Mapping[int, bytes]
    answering: tuple[int, ...] | None = None


class Engine(Protocol):
    """Carries requests to clients and their replies back. A missing reply is a dropout."""

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        """Deliver the requests; return what came back within `timeout` seconds."""


Answerer = Callable[[Question, int], tuple[Statistics, int]]
"""Answers a question for one client, given the index of the sum in the run.

Returns the statistics and how many rows were clipped into the question's ranges.
"""


class ClientSide(Protocol):
    """A secure sum's client: a pure step from state and request to state and reply."""

    def initial(self) -> Any:
        """Return the state before the first request."""

    def step(self, state: Any, request: bytes, answerer: Answerer) -> tuple[Any, bytes]:
        """Return the next state and the reply; errors become coded refusals, never exceptions."""


class StateStore(Protocol):
    """Keeps one client's state between messages."""

    def transaction(self) -> AbstractContextManager[StateTransaction]:
        """Lock the state for one check, store and reply: two processes would be two answers."""


class StateTransaction(Protocol):
    """A locked state."""

    def load(self) -> Any | None:
        """Return the stored state, or None before the first message."""

    def save(self, state: Any) -> None:
        """Store the state durably. Returns only when it would survive a crash."""


class Client:
    """One client: its protocol side, its state store and its answerer."""

    def __init__(self, side: ClientSide, store: StateStore, answerer: Answerer) -> None:
        self._side = side
        self._store = store
        self._answerer = answerer

    def handle(self, request: bytes) -> bytes:
        """Answer one request. The new state is stored before the reply is returned."""
        with self._store.transaction() as transaction:
            state = transaction.load()
            if state is None:
                state = self._side.initial()
            state, reply = self._side.step(state, request, self._answerer)
            transaction.save(state)
        return reply


def gather(
    replies: Replies, asked: Container[int], read: Callable[[int, bytes], Reply]
) -> tuple[dict[int, Reply], dict[int, str]]:
    """Read each client's first well-formed reply.

    Args:
        replies: what came back, in order of arrival.
        asked: the clients that were asked.
        read: checks and reads one reply, or raises `MessageError`.

    Returns:
        What was read, by client; and why replies were thrown away, by client.
    """
    accepted: dict[int, Reply] = {}
    raw: dict[int, bytes] = {}
    rejected: dict[int, str] = {}
    for client, data in replies:
        if client not in asked:
            rejected[client] = "was not asked"
        elif client in accepted:
            if data != raw[client]:
                rejected[client] = "answered twice, differently"
        else:
            try:
                accepted[client], raw[client] = read(client, data), data
            except MessageError as error:
                rejected[client] = error.reason
    return accepted, rejected
