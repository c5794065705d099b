"""The federation: it sends an algorithm's questions to clients through a secure sum, and records the totals.

All that leaves a client passes through it: no algorithm, metric or attack reaches clients in another way.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from privfed.core.agreed.assumptions import COLLECT
from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.core.agreed.program import written
from privfed.core.asking.phases import Metric
from privfed.core.record.transcript import Asked, Ended, Transcript
from privfed.core.roles.conversation import Algorithm, Ask, Conversation, Ledger, Setting, Total
from privfed.core.roles.engine import Carrier
from privfed.core.roles.secure_sum import Relays, Session, Steps
from privfed.core.values.domain import Domain
from privfed.errors import FAILED, ArgumentError, RefusedError, ResumeError

Outcome = TypeVar("Outcome")
Watcher = Callable[[int, Ask, Total], None]


def client_generator(seed: int, name: str, index: int) -> np.random.Generator:
    """Return the simulation generator of one client for one sum, seeded by its name, not its position."""
    key = hashlib.sha256(f"privfed client generator|{seed}|{index}|{name}".encode()).digest()
    return np.random.default_rng(np.frombuffer(key, dtype=np.uint32))


@dataclass
class Traffic:
    """Counts the exchanges and bytes of a run.

    Args:
        exchanges: number of exchanges so far, including the set-up.
        down: bytes sent to each client, by position.
        up: bytes received from each client, by position.
        engine_seconds: CPU seconds of this process in the engine, which include the clients' work where
            they are simulated in this process.
    """

    exchanges: int
    down: dict[int, int]
    up: dict[int, int]
    engine_seconds: float = 0.0


class Federation:
    """Clients behind a secure sum. Every number that leaves a client passes through `ask`.

    Args:
        configuration: what the parties agreed on.
        session: the secure sum's session on the coordinator.
        carrier: what carries the bytes.
        transcript: the record of the run; the totals of one loaded from disk are replayed first.
        opens_to: who can read totals, "server" or "clients".
        reveals: what the opener sees, as `SecureSum.reveals`.
        answer_stages: names of the stages in which clients answer.
        domain: declared domain, or None.
        ledger: pays for questions and adds noise to them; needed where the configuration claims privacy.
        timeout: seconds that a client may take for one reply; None waits for all.
        watch: called after every opened sum with its index, question and total.
        logs: for simulation, returns where clients' own error logs are; empty where none was written.
        again: opens another federation of the same clients, with these words of its request.
        named: names of the metrics that may follow, where any other is an error; None where it is agreed
            on anew.
        start: total of an earlier fit's start, where the agreement names one.

    Attributes:
        others: federations that were opened from this one (`again`), in order.
    """

    def __init__(
        self,
        configuration: Configuration,
        session: Session,
        carrier: Carrier,
        transcript: Transcript,
        *,
        opens_to: str,
        reveals: str,
        answer_stages: tuple[str, ...] = (COLLECT,),
        domain: Domain | None = None,
        ledger: Ledger | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
        logs: Callable[[], str] = str,
        again: Callable[[Mapping[str, Any]], Federation] | None = None,
        named: tuple[str, ...] | None = None,
        start: Total | None = None,
    ) -> None:
        if (ledger is None) != (configuration.privacy is None):
            raise ArgumentError("a configuration with privacy needs a ledger, and one without needs none.")
        self.configuration = configuration
        self.transcript = transcript
        self.traffic = Traffic(0, {}, {})
        self._session, self._carrier, self._timeout = session, carrier, timeout
        self._domain, self.ledger, self._watch, self._logs = domain, ledger, watch, logs
        self._again, self._named, self._measured = again, named, set[int]()
        self._start = start
        self.others: list[Federation] = []
        self._opened = False
        self._replay = self._begin(opens_to, reveals, answer_stages)
        self._index = 0

    def _begin(
        self, opens_to: str, reveals: str, answer_stages: tuple[str, ...]
    ) -> list[tuple[Asked, Total]]:
        if not self.transcript.records:
            self.transcript.begin(self.configuration, opens_to, reveals, answer_stages)
            return []
        self.transcript.check_agreement(self.configuration)
        return self.transcript.totals()

    def __getstate__(self) -> object:
        """Refuse to be pickled or copied.

        Raises:
            ArgumentError: always, since a federation refers to live clients with their rows and keys.
        """
        raise ArgumentError(
            "a federation refers to live clients and their rows: it cannot be pickled or copied; keep the "
            "model (save, or pickle), or the federation's transcript."
        )

    @property
    def setting(self) -> Setting:
        """The public facts that an algorithm starts from."""
        agreed = self.configuration
        return Setting(
            agreed.clients,
            agreed.n_features,
            self._domain,
            privacy=agreed.noising_terms,
            noising=agreed.noising,
            start=self._start,
        )

    def again(self, **words: Any) -> Federation:
        """Open another federation of the same clients, which agree on another program.

        Args:
            **words: of the request that this one was opened for.

        Raises:
            ArgumentError: this federation was not opened by a request.
            PrivacyError: privacy is claimed here.
        """
        if self._again is None:
            raise ArgumentError("this federation was put together by hand; open another one in the same way.")
        self.others.append(self._again(words))
        return self.others[-1]

    def for_metric(self, metric: Metric) -> Federation:
        """Return the federation in which a metric is asked.

        It is this one, where its agreement has the metric and it was not asked before, or where nothing is
        declared; otherwise another one of the same clients (`again`), which agree on this metric alone.

        Args:
            metric: declares what it asks.

        Raises:
            ArgumentError: the user named the metrics that may follow, and this one is not among them, or was
                asked already.
        """
        program = self.configuration.program
        if program is None or (self._named is None and self.configuration.privacy is not None):
            return self
        agreed = written(metric.after_a_fit())
        places = {i for i, one in enumerate(program.metrics) if one == agreed} - self._measured
        if places:
            self._measured.add(min(places))
            return self
        if self._named is not None:
            raise ArgumentError(
                f"a question {metric.name} about {metric.n_clusters} centers is not what the clients agreed "
                "to be asked after this fit, or it was asked already: metrics= names "
                f"{', '.join(self._named) or 'none'}, each once. Fit with metrics= that has it, with its "
                "options."
            )
        words = {"algorithm": None, "metrics": (metric.alone(),), "rule": CohortRule()}
        return self.again(**words, description=metric.name, n_clusters=metric.n_clusters)

    def run(self, algorithm: Algorithm[Outcome]) -> Outcome:
        """Run an algorithm and return its outcome.

        Raises:
            ProtocolError: a sum could not be opened; the transcript keeps the totals before it.
            ResumeError: the transcript that is replayed is of another run.
        """
        outcome = self.drive(algorithm.run(self.setting))
        self.close()
        return outcome

    def drive(self, conversation: Conversation[Outcome]) -> Outcome:
        """Ask what a conversation yields, send it the totals, and return its result; more may be asked after.

        Raises:
            ProtocolError: a sum could not be opened.
        """
        try:
            ask = next(conversation)
            while True:
                ask = conversation.send(self.ask(ask))
        except StopIteration as finished:
            outcome: Outcome = finished.value
            return outcome

    def close(self) -> None:
        """Deliver the last total to clients that open totals themselves; more may be asked afterwards.

        `run` does this at its end; callers of `ask` do it after their last question.

        Raises:
            ProtocolError: clients opened different totals.
        """
        if self._opened:
            self._drive(self._session.close(), self._index - 1)

    def ask(self, ask: Ask) -> Total:
        """Ask a cohort one question and return the total, from the transcript where it has the total.

        Where clients open totals, they receive this one with the next question, or with `close`.

        Raises:
            PrivacyError: under differential privacy, the question has no proven bound or is not paid for.
        """
        index, self._index = self._index, self._index + 1
        if self.ledger is not None:
            ask = self.ledger.price(ask)
        total = self._replayed(index, ask) if index < len(self._replay) else self._sum(index, ask)
        if self.ledger is not None:
            total = self.ledger.opened(ask.question, total)
        if self._watch is not None:
            self._watch(index, ask, total)
        return total

    def _replayed(self, index: int, ask: Ask) -> Total:
        asked, total = self._replay[index]
        if (asked.question, asked.cohort) != (ask.question.to_bytes(), ask.cohort):
            raise ResumeError(
                f"sum {index} of the transcript answers another question than the run asks now: the run "
                "began with other data, or with another version of privfed. Resume it with those, or begin a "
                "new one in another folder."
            )
        return total

    def _sum(self, index: int, ask: Ask) -> Total:
        self.transcript.asked(index, ask, self.configuration.cohort(ask.cohort))
        if not self._opened:
            if isinstance(self._session, Relays):
                self._session.recall(self.transcript.recalled())
            self._drive(self._session.open(), index)
            self._opened = True
        total = self._drive(self._session.sum(ask.question, index, ask.cohort, ask.upcoming), index)
        kept = self._session.relayed() if isinstance(self._session, Relays) else None
        if kept is not None:
            self.transcript.relayed(index, kept)
        self.transcript.summed(index, total)
        return total

    def _drive(self, steps: Steps[Outcome], index: int) -> Outcome:
        try:
            exchange = next(steps)
            while True:
                began = time.process_time()
                replies = self._carrier.exchange(exchange, self._timeout)
                self.traffic.engine_seconds += time.process_time() - began
                self._count(exchange.requests.items(), replies)
                self.transcript.exchanged(index, exchange, replies)
                exchange = steps.send(replies)
        except StopIteration as finished:
            outcome: Outcome = finished.value
            return outcome
        except RefusedError as error:
            if FAILED not in error.codes.values():
                raise
            raise RefusedError(error.codes, stage=error.stage, logs=self._logs()) from None

    def _count(self, requests: Iterable[tuple[int, bytes]], replies: Iterable[tuple[int, bytes]]) -> None:
        self.traffic.exchanges += 1
        for client, data in requests:
            self.traffic.down[client] = self.traffic.down.get(client, 0) + len(data)
        for client, data in replies:
            self.traffic.up[client] = self.traffic.up.get(client, 0) + len(data)

    @property
    def finished(self) -> bool:
        """Whether the transcript already holds the run's result."""
        return any(isinstance(record, Ended) for record in self.transcript.records)
