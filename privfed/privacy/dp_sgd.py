"""Fits in which each client trains by DP-SGD: what the steps cost, and the ledgers of trainings.

Noise is in the steps and not in totals. The budget is the number of agreed steps; a training costs its share
of them. What clients answer is made of what they trained, and is sent as it is. A question that may depend on
rows in another way is refused.

A client trains once in each round that it is asked in. It trains twice in a round that it joins in, since it
was not asked in the round before. So its trainings never outnumber the rounds that began.

Each step is a Poisson-sampled Gaussian, with records added or removed as neighbours. Steps compose by their
privacy-loss distribution (dp-accounting). Each loss is rounded up to a multiple of `INTERVAL`, so that
epsilon is an upper bound. Opacus' accountants give the same epsilon up to their own error
(`tests/deep/torch/test_torch_trainer.py`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.declaration import Trained
from privfed.core.asking.question import Question, question_from_bytes, wire_name
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import StateStore
from privfed.core.values.guarantee import (
    LEAST_NOISE,
    MOST_NOISE,
    Mechanism,
    Neighbours,
    Noise,
    SampledSteps,
    Unit,
)
from privfed.errors import ArgumentError, BudgetError, PolicyError, PrivacyError
from privfed.privacy.accounting import Payment, gdp_epsilon
from privfed.privacy.ledger import BudgetLedger, unopened
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import SLACK

if TYPE_CHECKING:
    from dp_accounting import SelfComposedDpEvent


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


def payments_of(transcript: Transcript) -> tuple[Payment, ...]:
    """Return the payments of a transcript's run, in the order of the ledger of a resumed run."""
    configuration = transcript.configuration
    if configuration.privacy is not None and configuration.privacy.steps is not None:
        steps = SteppedLedger(configuration)
        for asked, _ in transcript.totals():
            steps.price(Ask(question_from_bytes(asked.question), asked.cohort, purpose=asked.purpose))
        return tuple(steps.payments)
    ledger = BudgetLedger(configuration, unopened=unopened(transcript))
    for asked, total in transcript.totals():
        question = question_from_bytes(asked.question)
        if isinstance(question, Noised):
            ledger.replayed(question, asked.purpose, total)
    return tuple(ledger.payments)


class ClientSteps:
    """A client's own ledger of a fit by DP-SGD: it checks the agreed steps, and pays before it trains.

    Args:
        configuration: what the client agreed to.
        store: keeps what the client has spent; stored durably before it trains.
        memory: keeps what the client remembers of its last training, and which that was (`Memories`); None
            where it remembers that as long as this answerer is there, and no longer.

    Raises:
        PrivacyError: the agreed steps are more than the agreed epsilon and delta allow.
    """

    def __init__(
        self, configuration: Configuration, store: StateStore, memory: StateStore | None = None
    ) -> None:
        terms, self._steps = configuration.privacy, agreed_steps(configuration)
        agreed = None if terms is None else (terms.unit, terms.neighbours, terms.noise, terms.mechanism)
        proven = (Unit.RECORD, Neighbours.ADD_REMOVE, Noise.LOCAL, Mechanism.GAUSSIAN)
        if terms is None or agreed != proven or terms.budget != self._steps.total:
            raise PrivacyError(
                "DP-SGD protects records, added or removed, by Gaussian noise of each client alone, and its "
                "budget is the number of its steps; do not take part in this fit."
            )
        spent = epsilon_of_fit(self._steps, terms.delta)
        if not spent <= terms.epsilon:  # What is no number is refused.
            raise PrivacyError(
                f"the agreed steps come to epsilon={spent:.6g}, more than the agreed epsilon="
                f"{terms.epsilon:g} at delta={terms.delta:g}; do not take part in this fit."
            )
        self._store, self._memory, self._number = store, memory, 0

    @property
    def _trained(self) -> int:
        """Number of the last training that the client remembers."""
        if self._memory is None:
            return self._number
        with self._memory.transaction() as transaction:
            kept = transaction.load()
        return 0 if kept is None else int(kept.trained)

    def __call__(self, question: Question, index: int) -> None:
        """Pay for the training that a question makes the client do, if any.

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

    def _pay(self, trainings: int, number: int) -> None:
        with self._store.transaction() as transaction:
            before = transaction.load() or 0.0
            spent = before + trainings / self._steps.trainings
            # A first training of its own may cost more than the others, and is done once.
            if spent > 1.0 + SLACK or (self._steps.first_steps and number == 1 and before > 0.0):
                raise PolicyError("policy:budget")
            transaction.save(spent)


INTERVAL = 1e-3
"""Grid of privacy losses; ten times finer lowers an epsilon of 10 by less than 2e-5."""

COARSE = 2e-2
"""A grid on which a search begins: its epsilons are larger, so that what they allow is allowed."""

PRECISION = 1e-3
"""Noise multipliers are rounded up by less than this share."""


MOST_EPSILON = 2.0**10
"""Largest epsilon that is computed: memory and time grow with it, and it protects nobody."""

_Steps = tuple[float, float, int]
"""Noise multiplier, sampling rate and number of equal steps."""


@lru_cache(maxsize=4096)
def epsilon_of(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, interval: float = INTERVAL
) -> float:
    """Return the epsilon that so many steps of DP-SGD guarantee for one record; inf beyond `MOST_EPSILON`.

    Args:
        noise_multiplier: ratio of the noise's standard deviation to the clipping norm.
        sample_rate: chance of each record to be in a step's batch.
        steps: in all rounds together; 0 for none.
        delta: of the claim.
        interval: grid of privacy losses.
    """
    if steps == 0:
        return 0.0
    if sample_rate == 1.0:
        return gdp_epsilon(steps**0.5 / noise_multiplier, delta)
    return _composed([(noise_multiplier, sample_rate, steps)], delta, interval)


@lru_cache(maxsize=4096)
def epsilon_of_fit(steps: SampledSteps, delta: float, interval: float = INTERVAL) -> float:
    """Return the epsilon that all agreed steps and choices guarantee for one record; inf beyond a largest.

    A client that joins after the first round never does the first training, so that the larger one counts
    of the fits with and without it.

    Args:
        steps: that clients agreed on.
        delta: of the claim.
        interval: grid of privacy losses.
    """
    noise, rate = steps.noise_multiplier, steps.sample_rate
    if not (steps.first_steps or steps.choice_noise):
        return epsilon_of(noise, rate, steps.total, delta, interval)
    chosen = [(steps.choice_noise, 1.0, steps.trainings)] if steps.choice_noise else []
    fits = [[(noise, rate, steps.steps * steps.trainings), *chosen]]
    if steps.first_steps:
        first = noise, steps.first_rate, steps.first_steps
        fits.append([first, (noise, rate, steps.steps * (steps.trainings - 1)), *chosen])
    return max(_composed([one for one in events if one[-1]], delta, interval) for events in fits)


def _event(noise: float, rate: float, count: int) -> SelfComposedDpEvent:
    # Imported where it is needed: it takes long, and few clients train.
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    gaussian = GaussianDpEvent(noise)
    return SelfComposedDpEvent(gaussian if rate == 1.0 else PoissonSampledDpEvent(rate, gaussian), count)


@lru_cache(maxsize=1)
def _quadrature() -> Any:
    """Return nodes and weights of Gauss and Hermite, found when a fit first needs them."""
    return np.polynomial.hermite_e.hermegauss(200)


def _loss(noise: float, rate: float, count: int) -> tuple[float, float]:
    """Return mean and variance of the privacy loss of so many steps, for a record that is removed."""
    nodes, weights = _quadrature()
    drawn = np.array([[0.0], [1.0]]) + noise * nodes
    with np.errstate(divide="ignore"):
        losses = np.logaddexp(np.log1p(-rate), np.log(rate) + (drawn - 0.5) / noise**2)
    shares = np.outer([1.0 - rate, rate], weights / weights.sum())
    mean = float((shares * losses).sum())
    return count * mean, count * float((shares * np.square(losses - mean)).sum())


def _composed(steps: list[_Steps], delta: float, interval: float) -> float:
    # Of a loss above epsilon + 1 with probability 3/4 (Chebyshev), delta is above .47.
    means, variances = zip(*(_loss(*one) for one in steps), strict=True)
    if sum(means) - 2.0 * sum(variances) ** 0.5 > MOST_EPSILON + 1.0:
        return inf
    events = [_event(*one) for one in steps]
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval)
    for event in events:
        accountant.compose(event)
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def noise_of_fit(epsilon: float, delta: float, steps: SampledSteps) -> float:
    """Return the least noise multiplier of a fit's steps under a claim; the steps' own does not matter.

    Raises:
        PrivacyError: no multiplier up to `MOST_NOISE` is enough.
    """
    return _least(epsilon, delta, steps, INTERVAL, 0.0, _least(epsilon, delta, steps, COARSE, 0.0, 0.5))


def _least(
    epsilon: float, delta: float, steps: SampledSteps, interval: float, low: float, high: float
) -> float:
    def allowed(multiplier: float) -> bool:
        return (
            epsilon_of_fit(msgspec.structs.replace(steps, noise_multiplier=multiplier), delta, interval)
            <= epsilon
        )

    while not allowed(high):
        low, high = high, 2.0 * high
        if high > MOST_NOISE:
            raise PrivacyError(
                f"epsilon={epsilon:g} and delta={delta:g} leave nothing for {steps.total} steps of DP-SGD; "
                "take fewer rounds or epochs, or claim a larger epsilon."
            )
    # What a coarser grid allowed is close: small steps down first, as little noise takes long to account.
    step = 1.0 / 64.0
    while low == 0.0 and step < 1.0 and high > LEAST_NOISE:
        smaller = max(LEAST_NOISE, high * (1.0 - step))
        if allowed(smaller):
            high, step = smaller, 2.0 * step
        else:
            low = smaller
    low = max(low, LEAST_NOISE)
    while high - low > PRECISION * high:
        middle = (low + high) / 2.0
        low, high = (low, middle) if allowed(middle) else (middle, high)
    return high
