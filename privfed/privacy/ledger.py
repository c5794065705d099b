"""Ledgers of the privacy budget: the coordinator's, each client's own, and that of several fits.

The coordinator pays for a question before it sends it; a client pays before it answers.

A client's fits compose by the filter that its policy fixed before the first (`privfed.privacy.filters`).
Claims of different units or neighbours have nothing together: of replaced rows the number is public, which
tells whether a row is there, and a client's noise is for its rows as they are or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from privfed.core.agreed.configuration import Configuration, PrivacyTerms
from privfed.core.agreed.policy import MOST_DELTA, Claim, ClientPolicy, Usage
from privfed.core.asking.question import Question, question_from_bytes, wire_name
from privfed.core.record.records import Asked, Began, Exchanged, Summed
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import Ask, Total
from privfed.core.roles.engine import StateStore
from privfed.errors import BudgetError, PolicyError, PrivacyError
from privfed.privacy.accounting import Payment, check_delta
from privfed.privacy.filters import Filter, epsilon_of
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import SLACK, agreed_budget, agreed_on, cost, noised


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


class ClientBudget:
    """A client's own ledger under differential privacy: what is asked is paid before it is answered.

    It does not trust the coordinator's price. It computes the cost from the noise in the question, for the
    smallest number of honest clients that its sums are guaranteed to contain. A payment is final, whether or
    not the sum is opened.

    Args:
        configuration: what the client agreed to.
        store: keeps what the client has spent; stored durably before it answers.

    Raises:
        PrivacyError: the agreed budget is more than the agreed epsilon and delta allow.
    """

    def __init__(self, configuration: Configuration, store: StateStore) -> None:
        terms = configuration.privacy
        # Comparisons are such that what is no number is refused.
        if terms is not None and not terms.budget <= agreed_budget(
            terms.mechanism, terms.noise, terms.epsilon, terms.delta, terms.rows_apart
        ):
            raise PrivacyError(
                f"a budget of {terms.budget:.6g} is more than epsilon={terms.epsilon:g} and "
                f"delta={terms.delta:g} allow; do not take part in this fit."
            )
        self._configuration, self._store = configuration, store

    def __call__(self, question: Question, index: int) -> None:
        """Pay for a question.

        It is a noised one, except where the server adds the noise; then only questions whose noise was agreed
        on before the fit are answered.

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
            if not spent + share <= 1.0 + SLACK:
                raise PolicyError("policy:budget")
            transaction.save(spent + share)


STEPPED = "dp-sgd"
"""How a claim names the noise of clients that train by DP-SGD."""

ROUNDING = 1e-9
"""Relative room for rounding where figures of several fits are added."""


def claim_of(terms: PrivacyTerms, order: int | None) -> Claim:
    """Return the claim of agreed terms, under a filter of an order."""
    return Claim(
        epsilon=terms.epsilon,
        delta=terms.delta,
        unit=str(terms.unit),
        neighbours=str(terms.neighbours),
        mechanism=str(terms.mechanism) if terms.steps is None else STEPPED,
        steps=terms.steps,
        order=order,
    )


def composed_epsilon(claims: Sequence[Claim], delta: float) -> float:
    """Return the epsilon of all claims together at a total delta, by the filter that they began under.

    Args:
        claims: of fits on the same rows.
        delta: of the claim for all of them, in [1e-300, 1).

    Raises:
        PrivacyError: there is none: claims are of several units, neighbours or filters, or of noise that the
            filter does not bound.
        ArgumentError: delta is out of its bounds.
    """
    check_delta(delta)
    if len({(one.unit, one.neighbours, one.order) for one in claims}) > 1:
        raise PrivacyError("claims of several units, neighbours or filters have no epsilon together.")
    if not claims:
        return 0.0
    bound = Filter(sum(one.epsilon for one in claims), delta, claims[0].order)
    cost = sum(bound.cost(one.mechanism, one.epsilon, one.delta, one.steps) for one in claims)
    return epsilon_of(cost, delta, bound.order)


def spent_line(usage: Usage) -> str:
    """Return a line for the owner of a data set: what all claims on it come to."""
    try:
        epsilon = composed_epsilon(usage.claims, MOST_DELTA)
    except PrivacyError:
        return f"{len(usage.claims)} claims agreed, which no one filter bounds together"
    return (
        f"epsilon {epsilon:.4g} at delta {MOST_DELTA:.3g} agreed in all" if epsilon else "no guarantee spent"
    )


def refuses_fit(policy: ClientPolicy, configuration: Configuration, usage: Usage | None = None) -> str | None:
    """Return the code of a policy's refusal to join a fit, or None.

    Args:
        policy: the client's.
        configuration: what was agreed.
        usage: what the same rows have given before; None where no journal is kept.
    """
    before = Usage() if usage is None else usage
    return policy.refuses_configuration(configuration, before) or _refuses_spending(
        policy, configuration.privacy, before
    )


def _refuses_spending(policy: ClientPolicy, terms: PrivacyTerms | None, usage: Usage) -> str | None:
    most = policy.epsilon_bound
    if terms is None or most is None:
        return None
    epsilon, delta = most
    claims = (*usage.claims, claim_of(terms, policy.order))
    try:
        allowed = composed_epsilon(claims, delta) <= epsilon * (1.0 + ROUNDING)
    except PrivacyError:
        return "policy:filter"
    except (ValueError, OverflowError):
        # A claim that accounting cannot read, as a delta below 1e-300.
        allowed = False
    return None if allowed else "policy:max_epsilon"
