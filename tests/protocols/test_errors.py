"""The contract of clients' errors, over every secure sum: a coded refusal of one form, and no word of them.

An error that escaped, or that left a client's state as it was, would answer a question about its data as
often as a server asks. So does a reply whose form or length says which error it was.
"""

from __future__ import annotations

import inspect
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import privfed.protocols
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, Client, Exchange, Replies
from privfed.core.roles.secure_sum import SecureSum
from privfed.core.stored.encoding import Refusal, decode
from privfed.engines.in_process import ClientLogs
from privfed.errors import ArgumentError, DataError, MessageError, PolicyError, ProtocolError, RefusedError
from privfed.protocols import CKKS, GroupMasked, Masked, Plain, Slotted
from privfed.protocols.plain import PlainClient
from privfed.protocols.setup.setup_messages import Channel, Envelope
from tests.default_run import slow_but
from tests.protocols.federations import Sums, vectors

N, FAILING = 6, 2
SENTINEL = "the mean of my rows is 0.1234567"
QUESTION = vectors()

SUMS: dict[str, Callable[[], SecureSum]] = {
    "plain": Plain,
    "masked": lambda: Masked(losses=1000),
    "slotted": lambda: Slotted(Masked(losses=1000)),
    "group-masked": lambda: GroupMasked(losses=1000),
    "ckks": lambda: CKKS(losses=1000),
}


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError(SENTINEL)


def deeper() -> None:
    deeper()


def raising(error: BaseException) -> Callable[[Statistics], Any]:
    def fail(answer: Statistics) -> Any:
        raise error

    return fail


def warned(answer: Statistics) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.warn(SENTINEL, RuntimeWarning, stacklevel=1)


def overflowed(answer: Statistics) -> Any:
    with np.errstate(all="raise"):
        return np.float64(1e308) * np.float64(1e308)


FAILURES: dict[str, Callable[[Statistics], Any]] = {
    "error": raising(RuntimeError(SENTINEL)),
    "error of the product": raising(ArgumentError(SENTINEL)),
    "error of the data": raising(DataError(SENTINEL)),
    "error of a message": raising(MessageError(SENTINEL, sender="me", stage="collect")),
    "refusal that says more": raising(PolicyError(SENTINEL)),
    "memory": raising(MemoryError(SENTINEL)),
    "recursion": lambda answer: deeper(),
    "linear algebra": raising(np.linalg.LinAlgError(SENTINEL)),
    "warning": warned,
    "floating point": overflowed,
    "exit": raising(SystemExit(SENTINEL)),
    "error without words": raising(Unprintable()),
    "another layout": lambda answer: Statistics(other=[1.0]),
    "nothing": lambda answer: None,
}


class Failing(Sums):
    """A federation one of whose clients fails to answer, with logs of the clients' own errors."""

    failure: Callable[[Statistics], Any] | None = None
    logs: ClientLogs | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calls = 0
        if self.logs is None and self.folder is not None:
            self.logs = ClientLogs(self.folder.parent / "logs")
        for i in range(self.n):
            log = None if self.logs is None else self.logs.of(i)
            self.clients[i] = Client(self.sides[i], self.stores[i], self.answerer(i), log)

    def answerer(self, client: int) -> Answerer:
        """Return the answerer of one client; it counts looks at the data of the failing one."""
        plain = super().answerer(client)

        def answer(question: Question, index: int) -> tuple[Statistics, int]:
            statistics, clipped = plain(question, index)
            if client == FAILING:
                self.calls += 1
                if self.failure is not None:
                    return self.failure(statistics), clipped
            return statistics, clipped

        return answer

    def code(self, reply: bytes) -> str:
        """Return the code of the failing client's refusal, as the coordinator reads it."""
        refusal = decode(reply, Refusal | Envelope, sender="", stage="")
        if isinstance(refusal, Envelope):
            refusal = self.channel().up.open(refusal, Refusal, "")
        return str(refusal.code)

    def channel(self) -> Channel:
        """Return the failing client's channel, as the coordinator holds it."""
        session: Any = self.session
        for name in ("_inner", "relay"):
            session = getattr(session, name, session)
        found: Channel = session._channels[FAILING]
        return found


@pytest.fixture(params=SUMS)
def protocol(request: pytest.FixtureRequest) -> SecureSum:
    made: SecureSum = SUMS[request.param]()
    return made


@pytest.fixture(autouse=True)
def recursion_limit() -> Iterator[None]:
    # A shallow stack, so that the error of a deep one is soon there.
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(600)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("protocol", slow_but(SUMS, "masked", "group-masked"), indirect=True)
@pytest.mark.few(1)
def test_an_answer_that_fails_is_one_coded_refusal_of_one_form(protocol: SecureSum, tmp_path: Path) -> None:
    run, lengths = Failing(protocol, N, folder=tmp_path / "0" / "run", record="messages"), set()
    for name, failure in FAILURES.items():
        if FAILING in run.ask(QUESTION).dropped:
            # It is out of that fit.
            run = Failing(protocol, N, folder=tmp_path / name / "run", record="messages")
            run.ask(QUESTION)
        lengths.add(check_failure(run, failure))
    assert len(lengths) == 1
    # No word of the errors has left the client, and all of them lie with it.
    for path in tmp_path.glob("*/run/**/*"):
        assert path.is_dir() or SENTINEL[:11].encode() not in path.read_bytes()
    logs = list(tmp_path.glob("*/logs/*"))
    assert {path.name for path in logs} == {f"{FAILING}.log"}
    told = "".join(path.read_text() for path in logs)
    assert told.count("Traceback (most recent call last)") >= len(FAILURES)
    assert told.count(SENTINEL) >= len(FAILURES) - 5


def check_failure(run: Failing, failure: Callable[[Statistics], Any]) -> int:
    """Let one client fail in a sum; return the length of its reply."""
    run.failure, run.calls, replies = failure, 0, list[bytes]()

    def ask_again(exchange: Exchange, given: Replies) -> Replies:
        if exchange.stage == "collect" and not replies:
            # Also where its data would now answer, it refuses, and looks at nothing.
            run.failure, state = None, run.state(FAILING)
            replies.append(dict(given)[FAILING])
            replies.extend(run.clients[FAILING].handle(exchange.requests[FAILING]) for _ in range(2))
            assert run.state(FAILING) == state
        return given

    run.engine.change_replies = ask_again
    total = run.ask(QUESTION)
    # The others' sum goes on, and opens to exactly theirs.
    run.assert_exact(total, QUESTION)
    assert total.contributors == tuple(i for i in range(N) if i != FAILING)
    assert total.dropped == {FAILING: "collect"} and run.calls == 1
    if run.protocol.name == "plain":
        assert list(map(run.code, replies)) == ["error", "message", "message"]
    else:
        assert run.code(replies[0]) == "error" and len(set(replies)) == 1
    run.engine.change_replies = None
    return len(replies[0])


def test_who_fails_comes_back_where_lost_clients_do(protocol: SecureSum) -> None:
    run = Failing(protocol, N)
    run.ask(QUESTION)
    run.failure = FAILURES["error"]
    run.ask(QUESTION)
    run.failure = None
    total = run.ask(QUESTION)
    run.assert_exact(total, QUESTION)
    assert (FAILING in total.contributors) == (protocol.name != "group-masked")


def test_where_all_fail_the_error_names_the_log_and_no_word_of_it(
    protocol: SecureSum, tmp_path: Path
) -> None:
    run = Failing(protocol, N, folder=tmp_path / "run")
    run.federation._logs = lambda: run.logs.where  # type: ignore[union-attr]
    for i in range(N):
        run.clients[i] = Client(run.sides[i], run.stores[i], raising_answerer, run.logs.of(i))  # type: ignore[union-attr]
    with pytest.raises(ProtocolError) as caught:
        run.ask(QUESTION)
    assert isinstance(caught.value, RefusedError) and set(caught.value.codes.values()) == {"error"}
    assert f"clients: {tmp_path / 'logs' / '0.log'} and {N - 1} beside it" in str(caught.value)
    assert SENTINEL not in repr(caught.value) and caught.value.__cause__ is None
    assert SENTINEL in (tmp_path / "logs" / "0.log").read_text()


def raising_answerer(question: Question, index: int) -> tuple[Statistics, int]:
    raise RuntimeError(SENTINEL)


# --- failures within the step ---


ROOT = str(Path(privfed.protocols.__file__).parent)


@contextmanager
def failing_call(place: int) -> Iterator[list[str]]:
    """Let the call of a function of the protocols fail; yield its name once that has happened.

    Args:
        place: of the call among them all.
    """
    left, fired = [place], list[str]()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        # A generator is also called to be closed, where no error can be raised.
        skipped = code.co_name == "initial" or code.co_flags & inspect.CO_GENERATOR
        if event != "call" or fired or skipped or not code.co_filename.startswith(ROOT):
            return
        left[0] -= 1
        if left[0] < 0:
            fired.append(code.co_qualname)
            raise MemoryError(SENTINEL)

    sys.setprofile(profile)
    try:
        yield fired
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("name", slow_but(["plain", "slotted", "group-masked", "ckks"], "plain", "slotted"))
def test_a_failure_anywhere_in_a_step_is_a_reply_and_never_a_second_look(name: str) -> None:
    # Every call of every function of the client, in each kind of request that a fit has, fails once. Slotted
    # sums are masked ones within.
    run, seen = Failing(SUMS[name](), 5), dict[tuple[str, bool], tuple[Any, bytes]]()

    def keep(exchange: Exchange, client: int, request: bytes) -> bytes:
        if client == FAILING:
            state = run.state(FAILING)
            seen.setdefault((exchange.stage, state is None), (state, request))
        return request

    run.engine.change_request = keep
    run.ask(QUESTION), run.ask(QUESTION)
    logging.disable(logging.CRITICAL)
    try:
        names = {one for state, request in seen.values() for one in fail_everywhere(run, state, request)}
    finally:
        logging.disable(logging.NOTSET)
    assert {"admit", "answer"} <= names
    assert len(names) >= (4 if name == "plain" else 25)


def fail_everywhere(run: Failing, state: Any, request: bytes) -> Iterator[str]:
    """Fail at each call of a step in turn; yield the names of the functions."""
    store, client = run.stores[FAILING], run.clients[FAILING]
    place = 0
    while True:
        store._state, run.calls = state, 0  # type: ignore[attr-defined]
        if isinstance(client._side, PlainClient):
            # What it read for another client of the simulation, or just before, it need not read again.
            client._side._reader._read = client._side._reader._admitted = None
        with failing_call(place) as fired:
            reply = client.handle(request)
        if not fired:
            return
        place += 1
        assert reply and SENTINEL[:11].encode() not in reply
        looks, after = run.calls, run.state(FAILING)
        assert looks <= 1
        # Once it has looked, the same request is never answered from the data again.
        again = client.handle(request)
        if looks:
            assert run.calls == 1 and run.state(FAILING) == after
            assert run.code(again) == "message" if run.protocol.name == "plain" else again == reply
        yield fired[0]
