"""Ledgers of fits in which each client trains by DP-SGD, with its noise in the steps and not in totals.

The budget is the number of agreed steps; a training costs its share of them. What clients answer is made of
what they trained, and is sent as it is: a question that may depend on rows in another way is refused.

A client trains once in each round that it is asked in, and twice in one that it joins in: then it was not
asked in the round before. So its trainings never outnumber the rounds that began.
"""

from __future__ import annotations

from dataclasses import replace

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.declaration import Trained
from privfed.core.asking.question import Question, question_from_bytes, wire_name
from privfed.core.asking.statistics import Statistics
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import Answerer, StateStore
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.core.values.steps import SampledSteps
from privfed.errors import ArgumentError, BudgetError, PolicyError, PrivacyError
from privfed.privacy.ledger import Payment, payments_of
from privfed.privacy.pricing import SLACK


def agreed_steps(configuration: Configuration) -> SampledSteps:
    """Return the steps that clients of a configuration train by.

    Raises:
        ArgumentError: they do not train by DP-SGD.
    """
    terms = configuration.privacy
    if terms is None or terms.steps is None:
        raise ArgumentError("this configuration names no steps of DP-SGD.")
    return terms.steps


def trained(question: Question, steps: SampledSteps) -> Trained:
    """Return what a question makes a client train.

    Raises:
        PrivacyError: it may depend on rows in another way, or by other steps than was agreed.
    """
    declared = question.declaration
    found = None if declared is None else declared.trained
    if found is None:
        raise PrivacyError(
            f"{type(question).__name__} may depend on rows in another way than by DP-SGD, for which alone "
            "this fit has a budget: ask it in a fit of its own."
        )
    if (found.steps is not None and found.steps != steps) or (found.steps is None) != (found.number == 0):
        raise PrivacyError(f"{type(question).__name__} trains by other steps than was agreed.")
    return found


class SteppedLedger:
    """The coordinator's ledger of a fit by DP-SGD: one payment a round.

    Args:
        configuration: states the guarantee and the steps.
    """

    def __init__(self, configuration: Configuration) -> None:
        self._steps = agreed_steps(configuration)
        self._number = 0
        self.payments: list[Payment] = []

    @property
    def spent(self) -> float:
        """Share of the budget that was paid."""
        return len(self.payments) / self._steps.trainings

    def price(self, ask: Ask) -> Ask:
        """Return the ask as it is, and pay if it makes clients train once more.

        Raises:
            PrivacyError: it may depend on rows in another way.
            BudgetError: it is one training too many.
        """
        if ask.weights is not None:
            raise PrivacyError("totals of a fit by DP-SGD are not noised, and have no weights.")
        found = trained(ask.question, self._steps)
        if found.number > self._number:
            self._pay(ask, found.number)
        return ask

    def _pay(self, ask: Ask, number: int) -> None:
        if number > self._steps.trainings:
            raise BudgetError(
                f"training {number} costs more than what is left: {self._steps.trainings} were agreed on; "
                "nothing was sent."
            )
        self._number = number
        sigma = {"gradient": self._steps.noise_multiplier * self._steps.max_grad_norm}
        share = 1.0 / self._steps.trainings
        self.payments.append(Payment(ask.purpose, wire_name(type(ask.question)), share, sigma))

    def opened(self, question: Question, total: Total) -> Total:
        """Return the total as it is: to ask again makes no client train again."""
        return replace(total, noise_std=None)


def all_payments_of(transcript: Transcript) -> tuple[Payment, ...]:
    """Return the payments of a transcript's run, whether totals are noised or clients train by DP-SGD."""
    terms = transcript.configuration.privacy
    if terms is None or terms.steps is None:
        return payments_of(transcript)
    ledger = SteppedLedger(transcript.configuration)
    for asked, _ in transcript.totals():
        ledger.price(Ask(question_from_bytes(asked.question), asked.cohort, purpose=asked.purpose))
    return tuple(ledger.payments)


class SteppedAnswerer:
    """A client's answerer of a fit by DP-SGD: it checks the agreed steps, and pays before it trains.

    Args:
        answerer: answers questions on the client's data.
        configuration: what the client agreed to.
        store: keeps what the client has spent; stored durably before it trains.
        memory: keeps what the client remembers of its last training, and which that was (`Memories`); None
            where it remembers that as long as this answerer is there, and no longer.

    Raises:
        PrivacyError: the agreed steps are more than the agreed epsilon and delta allow.
    """

    def __init__(
        self,
        answerer: Answerer,
        configuration: Configuration,
        store: StateStore,
        memory: StateStore | None = None,
    ) -> None:
        # Imported where it is needed: it takes long, and few clients train.
        from privfed.privacy.sampled import epsilon_of_fit

        terms, self._steps = configuration.privacy, agreed_steps(configuration)
        words = None if terms is None else (terms.unit, terms.neighbours, terms.noise, terms.mechanism)
        proven = (Unit.RECORD, Neighbours.ADD_REMOVE, Noise.LOCAL, Mechanism.GAUSSIAN)
        if terms is None or words != proven or terms.budget != self._steps.total:
            raise PrivacyError(
                "DP-SGD protects records, added or removed, by Gaussian noise of each client alone, and its "
                "budget is the number of its steps; do not take part in this fit."
            )
        spent = epsilon_of_fit(self._steps, terms.delta)
        if spent > terms.epsilon:
            raise PrivacyError(
                f"the agreed steps come to epsilon={spent:.6g}, more than the agreed epsilon="
                f"{terms.epsilon:g} at delta={terms.delta:g}; do not take part in this fit."
            )
        self._answerer, self._store, self._memory, self._number = answerer, store, memory, 0

    @property
    def _trained(self) -> int:
        """Number of the last training that the client remembers."""
        if self._memory is None:
            return self._number
        with self._memory.transaction() as transaction:
            kept = transaction.load()
        return 0 if kept is None else int(kept.trained)

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Return the statistics, and 0 as the number of clipped rows, which would depend on the data.

        Raises:
            PolicyError: the question is not covered by the agreed steps, or not paid for; the text is the
                code of the refusal.
        """
        try:
            found = trained(question, self._steps)
        except PrivacyError:
            raise PolicyError("policy:noise") from None
        before = self._trained
        if 0 < found.number < before:
            # What it trained then is forgotten: it would train anew, unpaid.
            raise PolicyError("policy:budget")
        if found.number > before:
            # After a round that it was not asked in, a client may join anew, and train twice.
            self._pay(2 if found.number > before + 1 else 1, found.number)
            self._number = found.number
        return self._answerer(question, index)[0], 0

    def _pay(self, trainings: int, number: int) -> None:
        with self._store.transaction() as transaction:
            before = transaction.load() or 0.0
            spent = before + trainings / self._steps.trainings
            # A first training of its own may cost more than the others, and is done once.
            if spent > 1.0 + SLACK or (self._steps.first_steps and number == 1 and before > 0.0):
                raise PolicyError("policy:budget")
            transaction.save(spent)
