"""Carriers, which bring bytes from the coordinator to clients and back, and clients, which answer requests.

Property (`tests/protocols/test_errors.py`): whatever fails in a client, its reply is a coded refusal that
looks the same for every error, and no request makes it read its data twice. An error that reached the server
would tell it about the data. So would an error that left the client's state unchanged, as often as it asks.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from privfed.core.asking.question import ERRORS, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.stored.encoding import CODE, Refusal, StateCodec, encode
from privfed.errors import FAILED, MessageError, PolicyError, StateError

Reply = TypeVar("Reply")

Replies = list[tuple[int, bytes]]
"""Replies as (position of the client, bytes), in order of arrival; a client may be missing or repeated."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange: a request to each of some clients, and their replies.

    Args:
        stage: name of the protocol's stage.
        number: number of the sum, 0 for the set-up.
        requests: position of the client -> bytes.
        answering: for simulation, the positions of the clients that will be asked for an answer, if not all
            that get a request; never sent. None for all.
        metrics: which agreed metrics were asked so far, in order, by their place in the agreement; sent with
            each request to clients that run the program themselves.
    """

    stage: str
    number: int
    requests: Mapping[int, bytes]
    answering: tuple[int, ...] | None = None
    metrics: tuple[int, ...] = ()


class Carrier(Protocol):
    """Carries requests to clients and their replies back. A missing reply is a dropout."""

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        """Deliver the requests; return the replies that arrive within `timeout` seconds."""


Answerer = Callable[[Question, int], tuple[Statistics, int]]
"""Answers a question for one client, given the index of the sum in the run.

Returns the statistics and how many rows were clipped into the question's ranges.
"""


Check = Callable[[Question, int], None]
"""Admits a question as the sum with an index in the run, and keeps what follows from that before an answer.

Raises `PolicyError` where it does not; the text is the code of the refusal. It depends on no row.
"""


class ClientSide(Protocol):
    """A secure sum's client, as a pure function from state and request to next state and reply."""

    @property
    def codec(self) -> StateCodec:
        """How its state is stored between messages."""

    def initial(self) -> Any:
        """Return the state before the first request."""

    def step(self, state: Any, request: bytes, answerer: Answerer) -> tuple[Any, bytes]:
        """Return the next state and the reply. A refusal is a coded reply, never an exception.

        Everything that depends on messages only is checked before the answerer is called. Calling it closes
        the sum: where the answerer refuses, the next state is the same as after an answer.
        """


@runtime_checkable
class CountsLosses(Protocol):
    """A client's state that says how often clients were lost in its fit."""

    @property
    def losses_so_far(self) -> int:
        """How often, over all set-ups."""


@runtime_checkable
class ShowsLosses(CountsLosses, Protocol):
    """The state of a client that opens totals, and hears only from them who was lost."""

    @property
    def losses_shown(self) -> int:
        """How often in totals that were opened: these losses count also where the state is not kept."""


class StateStore(Protocol):
    """Keeps one client's state between messages."""

    def transaction(self) -> AbstractContextManager[StateTransaction]:
        """Lock the state for one load and save; without it, two processes could answer the same sum twice."""


class StateTransaction(Protocol):
    """A locked state."""

    def load(self) -> Any | None:
        """Return the stored state, or None before the first message."""

    def save(self, state: Any) -> None:
        """Store the state durably: once this returns, it survives a crash."""


class Admitting:
    """A client's answerer of what all of its checks admit: the only way from a question to its rows.

    Args:
        answerer: answers from the client's rows.
        checks: asked in order, each before the next: what one refuses, those after it do not keep.
        silent: return 0 as the number of clipped rows, which would depend on rows under differential privacy.
    """

    def __init__(self, answerer: Answerer, checks: Sequence[Check], *, silent: bool = False) -> None:
        self._answerer, self._checks, self._silent = answerer, tuple(checks), silent

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer a question that every check admits.

        Raises:
            PolicyError: one does not; the text is the code of the refusal.
        """
        for check in self._checks:
            check(question, index)
        statistics, clipped = self._answerer(question, index)
        return statistics, 0 if self._silent else clipped


class ErrorLog(Protocol):
    """A client's own log of its errors. It stays with the client; nothing of it is ever sent."""

    def note(self, error: BaseException) -> None:
        """Record an error with its traceback."""


class PythonLog:
    """Logs a client's errors in its own process, by the Python logger `privfed.client`."""

    def note(self, error: BaseException) -> None:
        """Record an error with its traceback."""
        logging.getLogger("privfed.client").error("an error in this client's own code", exc_info=error)


def note(log: ErrorLog, error: BaseException) -> None:
    """Record an error in a client's log, ignoring errors of the log itself."""
    with suppress(Exception):
        log.note(error)


class Client:
    """One client: its protocol side, its state store, its answerer and its own log of errors."""

    def __init__(
        self, side: ClientSide, store: StateStore, answerer: Answerer, log: ErrorLog | None = None
    ) -> None:
        self._side, self._store, self._answerer = side, store, answerer
        self._log = PythonLog() if log is None else log

    def handle(self, request: bytes) -> bytes:
        """Answer one request. A new state is stored before the reply is returned.

        Raises:
            StateError: the client's state or ledger cannot be read or stored, and no reply is sent. This
                depends on its disk, never on its rows.
        """
        try:
            with self._store.transaction() as transaction:
                state = transaction.load()
                if state is None:
                    state = self._side.initial()
                after, reply = self._step(state, request)
                # A message that changes nothing, as one that is refused, leaves no trace.
                if after != state:
                    transaction.save(after)
            return reply
        except PolicyError as error:
            # The store refuses the new state, as a journal with too many losses: nothing of it was kept.
            return encode(Refusal(str(error)))

    def _step(self, state: Any, request: bytes) -> tuple[Any, bytes]:
        """Return the next state and the reply; after an error, those of a client that refuses to answer."""
        for answerer in (self._answer, _refuse):
            try:
                return self._side.step(state, request, answerer)
            except (StateError, KeyboardInterrupt):
                raise
            except ERRORS as error:
                note(self._log, error)
        return state, encode(Refusal(FAILED))

    def _answer(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer a question.

        Raises:
            PolicyError: the policy refuses, or the answer failed; the text is the code of the refusal.
        """
        try:
            statistics, clipped = self._answerer(question, index)
            question.spec.check(statistics)
            return statistics, clipped
        except (StateError, KeyboardInterrupt):
            raise
        except ERRORS as error:
            if isinstance(error, PolicyError) and re.fullmatch(CODE, str(error)):
                raise
            note(self._log, error)
            raise PolicyError(FAILED) from None


def _refuse(question: Question, index: int) -> tuple[Statistics, int]:
    """Refuse to answer, without reading the data."""
    raise PolicyError(FAILED)


def gather(
    replies: Replies, asked: Container[int], read: Callable[[int, bytes], Reply]
) -> tuple[dict[int, Reply], dict[int, str]]:
    """Read each client's first well-formed reply.

    Args:
        replies: what came back, in order of arrival.
        asked: the clients that were asked.
        read: checks and reads one reply, or raises `MessageError`.

    Returns:
        What was read, by client; and why replies were rejected, by client.
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


def client_generator(seed: int, name: str, index: int) -> np.random.Generator:
    """Return the simulation generator of one client for one sum, seeded by its name, not its position."""
    key = hashlib.sha256(f"privfed client generator|{seed}|{index}|{name}".encode()).digest()
    return np.random.default_rng(np.frombuffer(key, dtype=np.uint32))
