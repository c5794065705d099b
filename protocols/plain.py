"""Plain sums: every client sends its answer in clear. They hide nothing and are the attacks' baseline.

Reveals to the server: every client's statistics. Sums are float64, added in client order.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import StatisticsTable
from privfed.core.roles.conversation import Contributions, Total
from privfed.core.roles.engine import Answerer, ClientSide, Exchange, gather
from privfed.core.roles.secure_sum import COLLECT, Assumptions, Replay, Session, Stage, Steps, TotalReader
from privfed.core.stored.encoding import Codec, Message, Refusal, decode, encode
from privfed.core.values.domain import FloatArray, frozen
from privfed.core.values.numbers import Count, Number, check_whole
from privfed.errors import (
    MessageError,
    NotEnoughClientsError,
    PolicyError,
    PrivFedError,
    RefusedError,
)
from privfed.privacy.ledger import refuses_fit
from privfed.protocols.answering import admit, answer, check_promised, refusal_code


class PlainRequest(Message, frozen=True):
    """Carries a question to a client, with the number and index of its sum."""

    number: Number
    index: Number
    question: bytes


class Vector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """An `Array` of one axis on the wire; its bytes are read where they lie, without a copy."""

    shape: tuple[Count]
    data: memoryview


class PlainAnswer(Message, frozen=True, gc=False):
    """Carries a client's statistics to the server, as one flat vector, and how much was clipped."""

    number: Number
    vector: Vector
    clipped: Count


_REPLY = PlainAnswer | Refusal

CODEC: Codec[int] = Codec(int, "state of a client of a plain sum", 1)
"""How a state is stored on the client's own disk."""


class _Reader:
    """Decodes and admits each request once, for all simulated clients that have the same policy."""

    def __init__(self, configuration: Configuration, policy: ClientPolicy) -> None:
        self._configuration, self._policy = configuration, policy
        self.refusal = refuses_fit(policy, configuration)
        self._read: tuple[bytes, PlainRequest] | None = None
        self._admitted: tuple[PlainRequest, Question] | None = None

    def read(self, request: bytes) -> PlainRequest:
        """Return a decoded request."""
        if self._read is None or self._read[0] != request:
            self._read = request, decode(request, PlainRequest, sender="the coordinator", stage=COLLECT)
        return self._read[1]

    def admit(self, message: PlainRequest) -> Question:
        """Return a request's question, if the policy does not refuse it."""
        if self._admitted is None or self._admitted[0] is not message:
            self._admitted = message, admit(message.question, self._policy, self._configuration)
        return self._admitted[1]


class PlainClient:
    """Answers in clear, for one client. Its state is the number of the last sum that it answered.

    Args:
        configuration: what the client agreed to.
        policy: what it answers besides.
        reader: of all simulated clients with this policy; None for a client alone.
    """

    def __init__(
        self, configuration: Configuration, policy: ClientPolicy, reader: _Reader | None = None
    ) -> None:
        self._configuration = configuration
        self._reader = _Reader(configuration, policy) if reader is None else reader

    @property
    def codec(self) -> Codec[int]:
        """How its state is stored."""
        return CODEC

    def initial(self) -> int:
        """Return the state before the first request."""
        return 0

    def step(self, state: int, request: bytes, answerer: Answerer) -> tuple[int, bytes]:
        """Answer one question, each sum number once."""
        try:
            message = self._reader.read(request)
            if not state < message.number <= self._configuration.terms.max_sums:
                reason = f"sum {message.number} after {state}"
                raise MessageError(reason, sender="the coordinator", stage=COLLECT)
            if self._reader.refusal is not None:
                raise PolicyError(self._reader.refusal)
            question = self._reader.admit(message)
        except PrivFedError as error:
            return state, encode(Refusal(refusal_code(error)))
        try:
            own = answer(question, message.index, answerer)
        except PrivFedError as error:
            return message.number, encode(Refusal(refusal_code(error)))
        data = np.ascontiguousarray(own.vector, dtype="<f8").data
        return message.number, encode(
            PlainAnswer(message.number, Vector(own.vector.shape, data), own.clipped)
        )


_TRIES = 4
"""How often a resumed run asks clients again that used a sum's number before, in answers not on record."""


class PlainSession:
    """Coordinates plain sums."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration, self._name = configuration, configuration.name_of
        self._number = 0

    def open(self) -> Steps[None]:
        """Do nothing: plain sums need no keys."""
        yield from ()

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Collect every answer of the cohort and add them in client order."""
        resumed, self._number = not self._number and index, max(self._number, index) + 1
        members = self._configuration.cohort(cohort)
        read, rejected = yield from self._asked(members, question, index)
        for _ in range(_TRIES if resumed else 0):
            used = [i for i, one in read.items() if isinstance(one, Refusal) and one.code == "message"]
            if not used:
                break
            self._number += 1
            again, odd = yield from self._asked(used, question, index)
            read, rejected = {**read, **again}, {**rejected, **odd}
        answers = {i: reply for i in members if isinstance(reply := read.get(i), PlainAnswer)}
        refused = {i: reply.code for i, reply in read.items() if isinstance(reply, Refusal)}
        return self._total(
            question, members, answers, self._possible(question, answers, rejected), refused, rejected
        )

    def _asked(
        self, clients: Collection[int], question: Question, index: int
    ) -> Steps[tuple[dict[int, PlainAnswer | Refusal], dict[int, str]]]:
        """Ask some clients; return what each replied, and why replies were rejected."""
        requests = dict.fromkeys(clients, encode(PlainRequest(self._number, index, question.to_bytes())))
        replies = yield Exchange(COLLECT, self._number, requests)
        size = question.spec.size
        return gather(replies, requests, lambda client, data: self._read(client, data, size))

    def close(self) -> Steps[None]:
        """Do nothing: the server has every total."""
        yield from ()

    def _possible(
        self, question: Question, answers: dict[int, PlainAnswer], rejected: dict[int, str]
    ) -> FloatArray:
        """Return the answers that an honest client could give, read-only float64 of shape (n, size).

        Those outside the question's ranges are taken out, and noted as rejected. So are those that no honest
        client could give (`impossible`), where the total shows that there is one.
        """
        spec = question.spec
        vectors = np.frombuffer(b"".join([one.vector.data for one in answers.values()]), dtype="<f8").reshape(
            len(answers), spec.size
        )
        # All at once, and one by one only where somebody is wrong.
        every = spec.holds(vectors)
        held = np.array([every or spec.holds(one) for one in vectors], dtype=np.bool_)
        rows = self._configuration.rows_of(itertools.compress(answers, held))
        # Long answers are copied only where somebody is wrong.
        fitting = vectors if every else vectors[held]
        if impossible(question, spec.unflatten(fitting.sum(axis=0)), len(fitting), rows) is not None:
            each = [
                (spec.unflatten(one), 1, self._configuration.rows_of((i,)))
                for i, one in zip(answers, vectors, strict=True)
            ]
            held &= [impossible(question, *one) is None for one in each]
        for client in [i for i, kept in zip(answers, held, strict=True) if not kept]:
            del answers[client]
            rejected[client] = "statistics that no honest client gives"
        return vectors if held.all() else frozen(vectors[held])

    def _read(self, client: int, data: bytes, size: int) -> PlainAnswer | Refusal:
        name = self._name(client)
        reply: PlainAnswer | Refusal = decode(data, _REPLY, sender=name, stage=COLLECT)
        if isinstance(reply, Refusal):
            return reply
        if reply.number != self._number:
            raise MessageError(
                f"answers sum {reply.number}, asked was {self._number}", sender=name, stage=COLLECT
            )
        if reply.vector.shape != (size,) or len(reply.vector.data) != 8 * size:
            raise MessageError("statistics of another layout", sender=name, stage=COLLECT)
        return reply

    def _total(
        self,
        question: Question,
        members: tuple[int, ...],
        answers: Mapping[int, PlainAnswer],
        vectors: FloatArray,
        refused: Mapping[int, str],
        rejected: Mapping[int, str],
    ) -> Total:
        contributors = tuple(answers)
        missing = [self._name(i) for i in members if i not in answers]
        needed = max(1, self._configuration.terms.threshold)
        if len(contributors) < needed:
            if refused:
                raise RefusedError({self._name(i): code for i, code in refused.items()}, stage=COLLECT)
            raise NotEnoughClientsError(missing=missing, left=len(contributors), needed=needed, stage=COLLECT)
        layout = question.spec.layout
        return Total(
            # Along the first axis, so that clients are added in their order.
            statistics=question.spec.unflatten(vectors.sum(axis=0)),
            contributors=contributors,
            dropped={i: "collect" for i in members if i not in answers},
            clipped=sum(answers[i].clipped for i in contributors),
            rejected=dict(rejected),
            contributions=Contributions(contributors, lambda: StatisticsTable(layout, vectors)),
        )


class Plain:
    """Sums answers that clients send in clear.

    Args:
        threshold: fewest clients that must answer for a sum to open.
    """

    name = "plain"
    recipient: Literal["server"] = "server"
    reveals: Literal["contributions"] = "contributions"
    one_key = False
    slotted_sums = 0
    verified = False
    assumptions = Assumptions(
        honest="nobody is protected: the server reads every answer",
        colluding="clients that collude with it learn what it learns",
        besides="it is the baseline that attacks are measured on",
    )
    stages = (Stage(COLLECT, "its answer is not in the sum", answers=True),)

    def __init__(self, threshold: int = 1) -> None:
        self.threshold = threshold

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the terms of a sum that protects nobody."""
        check_whole("threshold", self.threshold, 1, smallest_cohort)
        return Terms(max_sums=max_sums, threshold=self.threshold)

    def coordinator(
        self, agreement: Agreement, identity: Signer, totals: TotalReader | None = None
    ) -> Session:
        """Return the coordinator's session; its key is not used, as nothing is hidden."""
        return PlainSession(agreement.configuration)

    def client(
        self,
        agreement: Agreement,
        position: int,
        identity: Signer,
        policy: ClientPolicy,
        replay: Replay | None = None,
    ) -> ClientSide:
        """Return one client's side.

        Raises:
            ArgumentError: the key is not the registered one.
            PolicyError: the agreement's terms promise protection, which these sums do not give.
        """
        agreement.check_client(position, identity)
        check_promised(agreement.configuration, verified=self.verified, shows=True)
        return PlainClient(agreement.configuration, policy)

    def parties(
        self, configuration: Configuration, policies: Mapping[int, ClientPolicy]
    ) -> tuple[Session, dict[int, ClientSide]]:
        """Return a session and its clients."""
        readers = {id(policy): _Reader(configuration, policy) for policy in policies.values()}
        sides: dict[int, ClientSide] = {
            i: PlainClient(configuration, policy, readers[id(policy)]) for i, policy in policies.items()
        }
        return PlainSession(configuration), sides
