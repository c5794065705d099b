"""Ledgers of the privacy budget: the coordinator's, and each client's own.

The coordinator pays for a question before it sends it; a client pays before it answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import Question, question_from_bytes, wire_name
from privfed.core.asking.statistics import Statistics
from privfed.core.record.transcript import Asked, Began, Exchanged, Summed, Transcript
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import Answerer, StateStore
from privfed.errors import BudgetError, PolicyError, PrivacyError
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import SLACK, agreed_budget, cost, noised
from privfed.privacy.server_noise import agreed_on


@dataclass(frozen=True, slots=True)
class Payment:
    """One line of a ledger.

    Args:
        purpose: what the question was for.
        question: wire name of the question.
        share: share of the budget that was paid.
        sigma: entry -> standard deviation of the noise that is guaranteed to be in the total.
    """

    purpose: str
    question: str
    share: float
    sigma: dict[str, float]


class BudgetLedger:
    """The coordinator's ledger of one fit.

    Args:
        configuration: states the guarantee.
        unopened: questions of an interrupted run that were sent but not opened; they are paid and lost.
    """

    def __init__(self, configuration: Configuration, *, unopened: Iterable[Noised] = ()) -> None:
        terms = configuration.privacy
        self._configuration, self._share = configuration, 1.0 - (0.0 if terms is None else terms.spare)
        self._asked = 0
        self.payments: list[Payment] = []
        for question in unopened:
            self._pay(question, "lost")

    @property
    def spent(self) -> float:
        """Share of the budget that was paid."""
        return sum(payment.share for payment in self.payments)

    def price(self, ask: Ask) -> Ask:
        """Return the ask with as much noise as its weights pay for, and pay for it.

        Raises:
            PrivacyError: it has no weights or no proven bound, or was not agreed on for noise of the server.
            BudgetError: it costs more than what is left.
        """
        index, self._asked = self._asked, self._asked + 1
        if ask.weights is None:
            raise PrivacyError(
                f"{type(ask.question).__name__} ({ask.purpose}) has no share of the privacy budget: this "
                "algorithm or index asks it without differential privacy only. Use DPKMeans, or privacy=None."
            )
        question = noised(ask.question, ask.weights, ask.limits, self._configuration, self._share)
        share = cost(question, self._configuration)
        if self.spent + share > 1.0 + SLACK:
            raise BudgetError(
                f"{type(question.inner).__name__} ({ask.purpose}) costs {share:.4g} of the privacy budget, "
                f"{max(0.0, 1.0 - self.spent):.4g} is left; nothing was sent. A sum that is asked again "
                "is paid again: keep a share for that with Privacy(spare=...)."
            )
        if not agreed_on(question, self._configuration, index):
            raise PrivacyError(
                f"{type(question.inner).__name__} ({ask.purpose}) was not agreed on for sum {index}: the "
                "server, which adds the noise, must know all sums before. Ask it with "
                'noise="distributed", or with a budget of its own.'
            )
        self._pay(question, ask.purpose)
        return replace(ask, question=question)

    def _pay(self, question: Noised, purpose: str) -> None:
        share = cost(question, self._configuration)
        sigma = question.noise_std(self._configuration.noising)
        self.payments.append(Payment(purpose, wire_name(type(question.inner)), share, dict(sigma)))

    def replayed(self, question: Noised, purpose: str, total: Total) -> None:
        """Enter a question of a replayed transcript that was paid and opened."""
        self._pay(question, purpose)
        self._pay_repeats(question, total)

    def _pay_repeats(self, question: Noised, total: Total) -> None:
        for _ in range(total.attempts - 1):
            self._pay(question, "repeat")

    def opened(self, question: Question, total: Total) -> Total:
        """Pay for repeated attempts, and return the total with the standard deviations of its noise.

        Clients have paid for each attempt at the sum, and so does this ledger. What is left may then be
        too little for the next question, but no client has spent more than its budget.
        """
        if not isinstance(question, Noised):
            raise PrivacyError(f"{type(question).__name__} was asked without noise.")
        self._pay_repeats(question, total)
        return replace(total, noise_std=question.noise_std(len(total.contributors)))


def unopened(transcript: Transcript) -> list[Noised]:
    """Return the questions of a transcript that were sent but not opened, once for each time of sending."""
    lost: list[bytes] = []
    sent: list[bytes] = []
    attempts, stages = 0, set[str]()
    for record in transcript.records:
        if isinstance(record, Asked):
            lost, sent, attempts = lost + sent, [record.question], 0
        elif isinstance(record, Summed):
            sent = []
        elif isinstance(record, Began):
            stages = set(record.answer_stages)
        elif isinstance(record, Exchanged) and record.stage in stages:
            attempts += 1
            sent = sent[:1] * attempts
    questions = [question_from_bytes(question) for question in lost + sent]
    return [question for question in questions if isinstance(question, Noised)]


def payments_of(transcript: Transcript) -> tuple[Payment, ...]:
    """Return the payments of a transcript's run, in the order of the ledger of a resumed run."""
    ledger = BudgetLedger(transcript.configuration, unopened=unopened(transcript))
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        if isinstance(question, Noised):
            ledger.replayed(question, asked.purpose, total)
    return tuple(ledger.payments)


class PayingAnswerer:
    """A client's answerer under differential privacy: it pays from its own ledger, then answers.

    It does not trust the coordinator's price. It computes the cost from the noise in the question, for the
    smallest number of honest clients that its sums are guaranteed to contain. A payment is final, whether or
    not the sum is opened.

    Args:
        answerer: answers questions on the client's data.
        configuration: what the client agreed to.
        store: keeps what the client has spent; stored durably before it answers.

    Raises:
        PrivacyError: the agreed budget is more than the agreed epsilon and delta allow.
    """

    def __init__(self, answerer: Answerer, configuration: Configuration, store: StateStore) -> None:
        terms = configuration.privacy
        if terms is not None and terms.budget > agreed_budget(
            terms.mechanism, terms.noise, terms.epsilon, terms.delta
        ):
            raise PrivacyError(
                f"a budget of {terms.budget:.6g} is more than epsilon={terms.epsilon:g} and "
                f"delta={terms.delta:g} allow; do not take part in this fit."
            )
        self._answerer, self._configuration, self._store = answerer, configuration, store

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Return the statistics, and 0 as the number of clipped rows, which would depend on the data.

        The statistics are noised, except where the server adds the noise; then only questions whose noise
        was agreed on before the fit are answered.

        Raises:
            PolicyError: the question is not noised, or not paid for; the text is the code of the refusal.
        """
        if not isinstance(question, Noised):
            raise PolicyError("policy:noise")
        try:
            share = cost(question, self._configuration)
            agreed = agreed_on(question, self._configuration, index)
        except PrivacyError:
            raise PolicyError("policy:noise") from None
        if not agreed:
            raise PolicyError("policy:noise")
        with self._store.transaction() as transaction:
            spent = transaction.load() or 0.0
            if spent + share > 1.0 + SLACK:
                raise PolicyError("policy:budget")
            transaction.save(spent + share)
        return self._answerer(question, index)[0], 0
