"""The federation: drives an algorithm's questions through a secure sum, and keeps the record of the run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.core.agreed.program import to_agreed
from privfed.core.asking.possible_totals import impossible
from privfed.core.asking.question import ClientData, Question, cost_of
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import Ended, Summed
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import (
    Algorithm,
    Ask,
    Conversation,
    Ledger,
    Setting,
    Total,
    driven,
    known_ranges,
)
from privfed.core.roles.engine import Carrier, Exchange, Replies
from privfed.core.roles.secure_sum import COLLECT, Relays, Session, Steps
from privfed.core.values.domain import Domain, FloatArray
from privfed.core.values.shown import as_table
from privfed.errors import (
    FAILED,
    FEWEST_QUANTA,
    ArgumentError,
    CoarseTotalError,
    NotEnoughClientsError,
    RefusedError,
    ResumeError,
)

if TYPE_CHECKING:
    from privfed.metrics.asked import AskedMetric

Outcome = TypeVar("Outcome")
Watcher = Callable[[int, Ask, Total], None]


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
        recipient: who can read totals, "server" or "clients".
        reveals: what the opener sees, as `SecureSum.reveals`.
        answer_stages: names of the stages in which clients answer.
        by_author: whether the secure sum is not privfed's own.
        domain: declared domain, or None.
        ledger: pays for questions and adds noise to them; needed where the configuration claims privacy.
        timeout: seconds that a client may take for one reply; None waits for all.
        watch: called after every opened sum with its index, question and total.
        logs: for simulation, returns where clients' own error logs are; empty where none was written.
        late: returns which clients were too slow in the last exchange, and what to do; empty for none.
        again: opens another federation of the same clients, with other parameters of its request.
        named: names of the metrics that may follow, where any other is an error; None where it is agreed
            on anew.
        start: total of an earlier fit's start, where the agreement names one.
        placed: returns an ask whose question states its position in the agreed program.
        unasked: returns in words what of a question the agreed program never asks.
        recording: entered before a question is recorded, and left before it is sent.
        data: simulated clients' data, with what they remember of this fit; None where it lies elsewhere.
        steps: returns the steps of the secure sum's grid, given an encoded question and how many clients it
            is asked of; None for sums without a grid.

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
        recipient: str,
        reveals: str,
        answer_stages: tuple[str, ...] = (COLLECT,),
        by_author: bool = False,
        domain: Domain | None = None,
        ledger: Ledger | None = None,
        timeout: float | None = None,
        watch: Watcher | None = None,
        logs: Callable[[], str] = str,
        late: Callable[[], str] = str,
        again: Callable[[Mapping[str, Any]], Federation] | None = None,
        named: tuple[str, ...] | None = None,
        start: Total | None = None,
        placed: Callable[[Ask], Ask] = lambda ask: ask,
        unasked: Callable[[Question], str] = lambda question: "",
        recording: Callable[[], AbstractContextManager[None]] = nullcontext,
        data: tuple[ClientData, ...] | None = None,
        steps: Callable[[bytes, int], FloatArray] | None = None,
    ) -> None:
        if (ledger is None) != (configuration.privacy is None):
            raise ArgumentError("a configuration with privacy needs a ledger, and one without needs none.")
        self.configuration = configuration
        self.transcript, self.data = transcript, data
        self.traffic = Traffic(0, {}, {})
        self._session, self._carrier, self._timeout = session, carrier, timeout
        self._domain, self.ledger, self._watch, self._logs, self._late = domain, ledger, watch, logs, late
        self._again, self._named, self._measured = again, named, tuple[int, ...]()
        self._follow = recipient == "clients" or configuration.terms.verified
        self._outcome: object = None
        self._last: Ask | None = None
        self._start, self._placed, self._recording = start, placed, recording
        self._unasked, self._steps = unasked, steps
        self.others: list[Federation] = []
        self._opened = False
        self._index = 0
        if not transcript.records:
            transcript.begin(configuration, recipient, reveals, answer_stages, by_author)
        transcript.check_agreement(configuration)
        self._replay = transcript.totals()

    _repr_html_ = as_table(
        lambda self: [
            ("secure sum", "clients", "columns", "noise", "sums", "bytes to clients", "bytes from clients"),
            (
                self.configuration.protocol,
                len(self.configuration.clients),
                self.configuration.n_features,
                "none"
                if self.configuration.privacy is None
                else f"{self.configuration.privacy.noise}{', seeded' * self.configuration.privacy.seeded}",
                len(self.transcript.of(Summed)),
                f"{sum(self.traffic.down.values()):,}",
                f"{sum(self.traffic.up.values()):,}",
            ),
        ]
    )

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

    def near_grid(
        self, total: Statistics, entries: Iterable[str] = ("distance", "square", "spread")
    ) -> CoarseTotalError | None:
        """Return the error of the last total, if one of some entries is too near the grid it was opened on.

        None without a grid, and under noise. By default those entries that indices divide: their steps
        follow the widest column, their sizes the spread of clusters.
        """
        if self._steps is None or self._last is None or self.ledger is not None:
            return None
        question, members = self._last.question, self.configuration.cohort(self._last.cohort)
        steps, ranges = self._steps(question.to_bytes(), len(members)), question.ranges
        step = {name: one.max() for name, one in question.spec.unflatten(steps).items()}
        # Rows may lie on their centers: a step far below the narrowest column that varies hides nothing.
        size = np.maximum(np.abs(ranges.low), np.abs(ranges.high))
        varies = ranges.width > 2.0**-44 * np.maximum(size, 2.0**-16 * ranges.width.max())
        narrow = float(np.min(ranges.width, where=varies, initial=np.inf)) ** 2 * 2.0**-20
        quanta, entry = min(
            (
                (float(total[one].sum() / step[one]), one)
                for one in set(entries) & set(total)
                if step[one] > narrow
            ),
            default=(np.inf, ""),
        )
        columns = self.configuration.columns or tuple(map(str, range(ranges.n_features)))
        widest = columns[int(np.argmax(ranges.width))]
        return CoarseTotalError(entry, quanta, widest) if quanta < FEWEST_QUANTA else None

    def again(self, **parameters: Any) -> Federation:
        """Open another federation of the same clients, which agree on another program.

        Args:
            **parameters: of the request that this one was opened for.

        Raises:
            ArgumentError: this federation was not opened by a request.
            PrivacyError: privacy is claimed here.
        """
        if self._again is None:
            raise ArgumentError("this federation was put together by hand; open another one in the same way.")
        self.others.append(self._again(parameters))
        return self.others[-1]

    def for_metric(self, metric: AskedMetric) -> Federation:
        """Return the federation in which a metric is asked (`measure`).

        It is this one, where its agreement has the metric and it was not asked before, or where nothing is
        declared. Otherwise it is another one of the same clients (`again`), which agree on this metric alone.
        Clients that follow the totals know the fit's own centers; about others they are asked in another one.

        Args:
            metric: declares what it asks.

        Raises:
            ArgumentError: the user named the metrics that may follow, and this one is not among them, or was
                asked already, or asks about other centers than clients know.
        """
        program = self.configuration.program
        if program is None or (self._named is None and self.configuration.privacy is not None):
            return self
        if self._place_of(metric) is not None:
            return self
        if self._named is not None:
            raise ArgumentError(
                f"clients did not agree to answer {metric.name} of {metric.n_clusters} centers after this "
                f"fit, or have answered it: metrics= names {', '.join(self._named) or 'none'}, each once. "
                "Over sums that clients verify or open, only the fit's own centers may be asked about. Fit "
                "with metrics= that has it, with its options."
            )
        parameters = {"algorithm": None, "metrics": (metric.alone(),), "rule": CohortRule()}
        return self.again(**parameters, description=metric.name, n_clusters=metric.n_clusters)

    def _place_of(self, metric: AskedMetric) -> int | None:
        """Return which of the agreed metrics one is, among those that were not asked; None for none."""
        program = self.configuration.program
        agreed = () if program is None else program.metrics
        left = [i for i in range(len(agreed)) if i not in self._measured]
        alone = [i for i in left if agreed[i] == to_agreed(metric.alone())]
        if alone or (self._follow and not self._found(metric.centers)):
            return min(alone, default=None)
        # A fit before it has found the ranges and the centers.
        after = to_agreed(replace(metric, first=False, centers=None, radius=None))
        return min((i for i in left if agreed[i] == after), default=None)

    def _found(self, centers: FloatArray | None) -> bool:
        """Say whether clients that follow the totals know what a metric asks about."""
        known = getattr(self._outcome, "centers", None)
        return centers is None or (known is not None and np.array_equal(known, centers))

    def measure(
        self, metric: AskedMetric, purpose: str = "index", divisors: tuple[str, ...] = ()
    ) -> Statistics:
        """Ask a metric that the agreement has (`for_metric`), and return its total.

        Args:
            metric: what is asked.
            purpose: what the total is for, in a word.
            divisors: entries by which it divides others (`privfed.metrics.asked.asked`).

        Raises:
            PrivacyError: under differential privacy, the question has no proven bound or is not paid for.
        """
        place = self._place_of(metric)
        if place is not None:
            self._measured = (*self._measured, place)
        ranges = None if self._last is None else known_ranges(self._last)
        options: dict[str, Any] = {"purpose": purpose, "divisors": divisors}
        total: Statistics = self.drive(metric.run(self.setting, ranges, None, **options))
        self.close()
        return total

    def run(self, algorithm: Algorithm[Outcome]) -> Outcome:
        """Run an algorithm and return its outcome.

        Raises:
            ProtocolError: a sum could not be opened; the transcript keeps the totals before it.
            ResumeError: the transcript that is replayed is of another run.
        """
        self._outcome = outcome = self.drive(algorithm.run(self.setting))
        self.close()
        return outcome

    def drive(self, conversation: Conversation[Outcome]) -> Outcome:
        """Ask what a conversation yields, send it the totals, and return its result; more may be asked after.

        Raises:
            ProtocolError: a sum could not be opened.
        """
        return driven(conversation, self.ask)

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
            ArgumentError: it costs more memory or work than any client gives.
            ImpossibleTotalError: no honest clients give such a total. It is on record, and asked no more.
        """
        cost_of(ask.question)
        index, self._index = self._index, self._index + 1
        if self.ledger is not None:
            ask = self.ledger.price(ask)
        self._last = ask = self._placed(ask)
        total = self._replayed(index, ask) if index < len(self._replay) else self._sum(index, ask)
        if self.ledger is not None:
            total = self.ledger.opened(ask.question, total)
        # After it was paid for, since clients have answered.
        there = total.contributors
        rows = self.configuration.rows_of(there)
        if (error := impossible(ask.question, total.statistics, len(there), rows)) is not None:
            raise error
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
        with self._recording():
            self.transcript.asked(index, ask, self.configuration.cohort(ask.cohort))
        if not self._opened:
            if isinstance(self._session, Relays):
                self._session.recall(self.transcript.recalled(), index)
            self._drive(self._session.open(), index)
            self._opened = True
        try:
            total = self._drive(self._session.sum(ask.question, index, ask.cohort, ask.upcoming), index)
        finally:
            self._keep(index)
        self.transcript.summed(index, total)
        return total

    def _keep(self, index: int) -> None:
        """Record what the session must not forget, before anything is sent because of it."""
        for kept in self._session.relayed() if isinstance(self._session, Relays) else ():
            self.transcript.relayed(index, kept)

    def _drive(self, steps: Steps[Outcome], index: int) -> Outcome:
        try:
            return driven(steps, lambda exchange: self._carried(exchange, index))
        except RefusedError as error:
            if FAILED not in error.codes.values():
                asked = None if self._last is None else self._last.question
                if asked is not None and asked.position is None and (why := self._unasked(asked)):
                    error.add_note(why)
                raise
            raise RefusedError(error.codes, stage=error.stage, logs=self._logs()) from None
        except NotEnoughClientsError as error:
            if not (remedy := self._late()):
                raise
            raise error.with_remedy(remedy) from None

    def _carried(self, exchange: Exchange, index: int) -> Replies:
        self._keep(index)
        began, exchange = time.process_time(), replace(exchange, metrics=self._measured)
        replies = self._carrier.exchange(exchange, self._timeout)
        traffic = self.traffic
        traffic.engine_seconds += time.process_time() - began
        traffic.exchanges += 1
        for client, data in exchange.requests.items():
            traffic.down[client] = traffic.down.get(client, 0) + len(data)
        for client, data in replies:
            traffic.up[client] = traffic.up.get(client, 0) + len(data)
        self.transcript.exchanged(index, exchange, replies)
        return replies

    @property
    def finished(self) -> bool:
        """Whether the transcript already holds the run's result."""
        return any(isinstance(record, Ended) for record in self.transcript.records)
