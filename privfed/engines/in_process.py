"""The in-process engine, which simulates all clients in this process, without a trust boundary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import numpy as np

from privfed.core.asking.question import ERRORS, ClientData, Question
from privfed.core.asking.statistics import Statistics, StatisticsSpec, StatisticsTable, table_of
from privfed.core.roles.engine import Answerer, Client, ErrorLog, Exchange, PythonLog, Replies
from privfed.engines.faults import Fault
from privfed.party.answerer import Answer, answered_alone, in_order
from privfed.party.crowd import Crowd


class AnswerError(Exception):
    """A question's code failed on a client's rows; the cause goes to that client's own log only."""


class Pool:
    """The data of all simulated clients; answers a question for all clients of an exchange in one pass.

    Args:
        data: each client's data, by position.
        names: each client's name, by position; it seeds the client's generator.
        seed: of the clients' simulation randomness.
        logs: each client's own error log, by position; by default the process's log.
    """

    def __init__(
        self,
        data: Sequence[ClientData],
        names: Sequence[str],
        seed: int,
        logs: Sequence[ErrorLog] | None = None,
    ) -> None:
        self._data, self._names, self._seed = data, names, seed
        self._logs = [PythonLog()] * len(data) if logs is None else logs
        self._members: tuple[int, ...] = ()
        self._question: Question | None = None
        self._index = -1
        self._answers: dict[int, Answer | BaseException] = {}

    def expect(self, members: Iterable[int]) -> None:
        """Set the clients that will be asked the next questions."""
        self._members = tuple(members)

    def together(
        self, question: Question, index: int, members: tuple[int, ...]
    ) -> tuple[StatisticsTable, list[int]] | None:
        """Answer for several clients, as a table in the question's ranges, and their numbers of clipped rows.

        Returns:
            None where the answers are no such table; the clients' answerers then have what was found.
        """
        found = self._in_order(question, index, members)
        if found is not None:
            answers, moved = found
            table = _table(answers, question.spec)
            if table is not None and table.holds(question.spec):
                return table, moved
            self._answers = dict(zip(members, zip(answers, moved, strict=True), strict=True))
        else:
            self._answers = {i: self._alone(question, index, i) for i in members}
        self._question, self._index = question, index
        return None

    def answerer(self, client: int) -> Answerer:
        """Return the answerer of one client."""

        def answer(question: Question, index: int) -> tuple[Statistics, int]:
            if question is not self._question or index != self._index or client not in self._answers:
                members = self._members if client in self._members else (client,)
                self._answers = self._answer_all(question, index, members)
                self._question, self._index = question, index
            # Each answer is used once, so that a sum that is asked again gets fresh noise.
            found = self._answers.pop(client)
            if isinstance(found, BaseException):
                raise AnswerError("this client's answer failed") from found
            return found

        return answer

    def _answer_all(
        self, question: Question, index: int, members: tuple[int, ...]
    ) -> dict[int, Answer | BaseException]:
        found = self._in_order(question, index, members)
        if found is None:
            # Clients are asked again one by one, so that an error affects that client only.
            return {i: self._alone(question, index, i) for i in members}
        return dict(zip(members, zip(*found, strict=True), strict=True))

    def _in_order(
        self, question: Question, index: int, members: tuple[int, ...]
    ) -> tuple[Sequence[Statistics], list[int]] | None:
        """Answer for several clients in one pass; None where that failed."""
        names, data = [self._names[i] for i in members], [self._data[i] for i in members]
        try:
            return in_order(question, index, names, data, self._seed, [self._logs[i] for i in members])
        except KeyboardInterrupt:
            raise
        except ERRORS:
            return None

    def _alone(self, question: Question, index: int, client: int) -> Answer | BaseException:
        name, log = self._names[client], self._logs[client]
        try:
            return answered_alone(question, index, name, self._data[client], self._seed, log)
        except KeyboardInterrupt:
            raise
        except ERRORS as error:
            return error


def _table(answers: Sequence[Statistics], spec: StatisticsSpec) -> StatisticsTable | None:
    """Return answers as one table; None where some have another layout than the question's."""
    if isinstance(answers, StatisticsTable):
        return answers
    return table_of(answers) if all(one.layout == spec.layout for one in answers) else None


class InProcessEngine:
    """Delivers requests to clients in this process, and injects faults.

    Args:
        clients: the clients, by position.
        pool: the clients' data, if it answers for several clients in one pass; None if each holds its own.
        faults: the faults to inject.
        rng: source of the bytes of "garbage" faults.
        crowd: the clients as a whole, if they can answer in one pass; not used where there are faults.
    """

    def __init__(
        self,
        clients: Mapping[int, Client],
        pool: Pool | None = None,
        faults: Sequence[Fault] = (),
        rng: np.random.Generator | None = None,
        crowd: Crowd | None = None,
    ) -> None:
        self._clients, self._pool, self._faults = clients, pool, faults
        self._rng = np.random.default_rng(0) if rng is None else rng
        self._late: Replies = []
        self._crowd = None if faults else crowd

    def exchange(self, exchange: Exchange, timeout: float | None = None) -> Replies:
        """Deliver the requests in order; late replies of the last exchange arrive first."""
        replies = None if self._crowd is None else self._crowd.replies(exchange.requests)
        if replies is not None:
            return replies
        if self._pool is not None:
            asked = exchange.requests if exchange.answering is None else exchange.answering
            # Whom a request never reaches looks at no data, and remembers nothing of it.
            self._pool.expect(client for client in asked if "drop" not in self._kinds(client, exchange))
        replies, self._late = self._late, []
        for client, request in exchange.requests.items():
            kinds = self._kinds(client, exchange)
            if "drop" in kinds:
                continue
            self._deliver(client, self._clients[client].handle(request), kinds, replies)
        return replies

    def _kinds(self, client: int, exchange: Exchange) -> Set[str]:
        """Return what goes wrong for a client in an exchange."""
        if not self._faults:
            return frozenset()
        return {
            fault.kind for fault in self._faults if fault.strikes(client, exchange.stage, exchange.number)
        }

    def _deliver(self, client: int, reply: bytes, kinds: Set[str], replies: Replies) -> None:
        if not kinds:
            replies.append((client, reply))
            return
        if "lost-reply" in kinds:
            return
        if "garbage" in kinds:
            reply = self._rng.bytes(len(reply))
        if "truncate" in kinds:
            reply = reply[: len(reply) // 2]
        if kinds & {"late", "twice"}:
            self._late.append((client, reply))
        if "late" not in kinds:
            replies.append((client, reply))
