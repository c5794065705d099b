"""The in-process engine, which simulates all clients and their faults in this process.

There is no boundary of trust between simulated clients.

`ClientLogs` are logs of clients' own errors, which a real client keeps on its own machine. An error in a
client's own code (a question, a user's weighting, its disk) leaves the client only as the code of a refusal.
These logs show developers which error it was.
"""

from __future__ import annotations

import logging
import tempfile
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from privfed.core.asking.question import ERRORS, ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, Client, ErrorLog, Exchange, PythonLog, Replies
from privfed.core.stored.files import make_folder, open_file
from privfed.core.values.numbers import check_word
from privfed.party.answerer import Answer, answered_alone, in_order, remembering_again

Kind = Literal["drop", "lost-reply", "late", "twice", "garbage", "truncate"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One client's fault.

    Args:
        client: position of the client.
        stage: stage in which it fails, one of those that the secure sum declares (`SecureSum.stages`, which
            say what becomes of the client); None for any.
        kind: type of the fault. "drop": the request never arrives. "lost-reply": the client answers, but the
            reply is lost. "late": the reply arrives in the next exchange. "twice": it arrives in this
            exchange and in the next. "garbage": random bytes replace it. "truncate": its first half arrives.
        sums: numbers of the sums in which it fails; None for all.
    """

    client: int
    stage: str | None = None
    kind: Kind = "drop"
    sums: frozenset[int] | None = None

    def __post_init__(self) -> None:
        check_word("kind", self.kind, get_args(Kind))

    def strikes(self, client: int, stage: str, number: int) -> bool:
        """Say whether the fault happens to a client in a stage of a sum."""
        here = self.client == client and self.stage in (None, stage)
        return here and (self.sums is None or number in self.sums)


class AnswerError(Exception):
    """A question's code failed on a client's rows; the cause goes to that client's own log only."""


class Pool:
    """The data of all simulated clients; answers a question for all clients of an exchange in one pass.

    Args:
        data: each client's data, by position.
        names: each client's name, by position; it seeds the client's generator.
        seed: of the clients' simulation randomness.
        logs: each client's own error log, by position; by default the process's log.
        seeded: whether noise repeats with the seed, as the signed terms say; it protects nobody.
    """

    def __init__(
        self,
        data: Sequence[ClientData],
        names: Sequence[str],
        seed: int,
        logs: Sequence[ErrorLog] | None = None,
        *,
        seeded: bool = False,
    ) -> None:
        logs = [PythonLog()] * len(data) if logs is None else logs
        self._clients = list(zip(names, data, logs, strict=True))
        self._seed, self._seeded = seed, seeded
        self._members: tuple[int, ...] = ()
        self._asked: tuple[Question, int] | None = None
        self._answers: dict[int, Answer | BaseException] = {}

    def expect(self, members: Iterable[int]) -> None:
        """Set the clients that will be asked the next questions."""
        self._members = tuple(members)

    def answerer(self, client: int) -> Answerer:
        """Return the answerer of one client."""

        def answer(question: Question, index: int) -> tuple[Statistics, int]:
            asked = self._asked
            if asked is None or question is not asked[0] or index != asked[1] or client not in self._answers:
                self._answer_all(question, index, self._members if client in self._members else (client,))
            # Each answer is used once, so that a sum that is asked again gets fresh noise.
            found = self._answers.pop(client)
            if isinstance(found, BaseException):
                raise AnswerError("this client's answer failed") from found
            return found

        return answer

    def _answer_all(self, question: Question, index: int, members: tuple[int, ...]) -> None:
        """Answer for several clients in one pass; where that fails, for each by itself."""
        names, data, logs = zip(*(self._clients[i] for i in members), strict=True)
        answers: Iterable[Answer | BaseException]
        as_before = remembering_again(question, data)
        try:
            answers = zip(
                *in_order(question, index, names, data, self._seed, logs, seeded=self._seeded), strict=True
            )
        except KeyboardInterrupt:
            raise
        except ERRORS:
            # Clients are asked again one by one, so that an error affects that client only.
            as_before()
            answers = [self._alone(question, index, i) for i in members]
        self._asked, self._answers = (question, index), dict(zip(members, answers, strict=True))

    def _alone(self, question: Question, index: int, client: int) -> Answer | BaseException:
        name, data, log = self._clients[client]
        try:
            return answered_alone(question, index, name, data, self._seed, log, seeded=self._seeded)
        except KeyboardInterrupt:
            raise
        except ERRORS as error:
            return error


class InProcessEngine:
    """Delivers requests to clients in this process, and injects faults.

    Args:
        clients: the clients, by position.
        pool: the clients' data, if it answers for several clients in one pass; None if each holds its own.
        faults: the faults to inject.
        rng: source of the bytes of "garbage" faults.
    """

    def __init__(
        self,
        clients: Mapping[int, Client],
        pool: Pool | None = None,
        faults: Sequence[Fault] = (),
        rng: np.random.Generator | None = None,
    ) -> None:
        self._clients, self._pool, self._faults = clients, pool, faults
        self._rng = np.random.default_rng(0) if rng is None else rng
        self._late: Replies = []

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        """Deliver the requests in order; late replies of the last exchange arrive first."""
        stage, number = exchange.stage, exchange.number
        asked = exchange.requests if exchange.answering is None else exchange.answering
        faults = {
            client: {one.kind for one in self._faults if one.strikes(client, stage, number)}
            for client in {*exchange.requests, *asked}
        }
        if self._pool is not None:
            # Whom a request never reaches looks at no data, and remembers nothing of it.
            self._pool.expect(client for client in asked if "drop" not in faults[client])
        replies, self._late = self._late, []
        for client, request in exchange.requests.items():
            struck = faults[client]
            if "drop" in struck:
                continue
            reply = self._clients[client].handle(request)
            if "lost-reply" in struck:
                continue
            if "garbage" in struck:
                reply = self._rng.bytes(len(reply))
            if "truncate" in struck:
                reply = reply[: len(reply) // 2]
            if struck & {"late", "twice"}:
                self._late.append((client, reply))
            if "late" not in struck:
                replies.append((client, reply))
        return replies


MOST_BYTES = 1 << 20
"""Length above which a log takes no more errors, so that a coordinator cannot fill a client's disk."""

_LOG = logging.getLogger("privfed")


class ClientLogs:
    """The error logs of one federation's clients, each a file that only its owner may read.

    Files are made at the first error, and have times and tracebacks.

    Args:
        folder: folder with a file for each client; None for a new temporary folder.
        silent: do not mention errors in the process's log, since under differential privacy whether there
            was one depends on rows.
    """

    def __init__(self, folder: Path | None, *, silent: bool = False) -> None:
        self._folder, self._silent = folder, silent
        self._written: dict[Path, None] = {}

    def of(self, client: int) -> FileLog:
        """Return the log of the client at a position."""
        return FileLog(self, client)

    @property
    def where(self) -> str:
        """The first file that was written, and how many more there are; empty if there is none.

        It is also empty for silent logs, since the coordinator's errors must not depend on rows.
        """
        if self._silent or not self._written:
            return ""
        first, *others = self._written
        return f"{first}{f' and {len(others)} beside it' * bool(others)}"

    def note(self, client: int, error: BaseException) -> None:
        """Record an error of the client at a position; mention the first one in the process's log."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="privfed-clients-"))
        make_folder(self._folder)
        path = self._folder / f"{client}.log"
        lines = [f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n", *traceback.format_exception(error), "\n"]
        with open_file(path, "a", encoding="utf-8", errors="backslashreplace") as file:
            if file.tell() < MOST_BYTES:
                file.writelines(lines)
        if not self._written and not self._silent:
            _LOG.warning("an error in a client's own code; it is in that client's own log, %s", path)
        self._written[path] = None


@dataclass(frozen=True, slots=True)
class FileLog:
    """One client's error log.

    Args:
        logs: the federation's logs.
        client: position of the client.
    """

    logs: ClientLogs
    client: int

    def note(self, error: BaseException) -> None:
        """Record an error with its traceback."""
        self.logs.note(self.client, error)
