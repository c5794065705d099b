"""Asks a metric's question; under differential privacy its bounded form, for the whole budget.

`privfed.questions.bounded.bounded_metrics` has the bounded forms and their bounds; at unit "client",
questions are asked in the form of `privfed.questions.bounded.whole_clients`.
"""

from __future__ import annotations

import numpy as np

from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.federation import Federation
from privfed.core.roles.conversation import Ask, Total
from privfed.core.values.domain import Ball
from privfed.core.values.guarantee import Neighbours, Unit
from privfed.privacy.bounds import RecordBounded
from privfed.questions.bounded.whole_clients import SIZES_SHARE, AsOneRecord
from privfed.questions.client_sizes import typical_size


def _alone(federation: Federation, ask: Ask) -> Total:
    """Ask one question outside a run, and deliver its total to clients that open totals themselves."""
    total = federation.ask(ask)
    federation.close()
    return total


def asked(
    federation: Federation, question: Question, purpose: str = "index", divisors: tuple[str, ...] = ()
) -> Statistics:
    """Ask a metric's question and return its total.

    Under differential privacy negative values of statistics that cannot be negative are taken as zero, and so
    is what the metric divides by, where it is below two standard deviations of its noise.

    Args:
        federation: whose clients are asked.
        question: the metric's.
        purpose: what the total is for.
        divisors: entries that the metric divides others by, such as the counts of clusters.

    Raises:
        PrivacyError: the question has no bound for the unit, or the budget is spent.
    """
    terms = federation.setting.privacy
    if terms is None:
        return _alone(federation, Ask(question, purpose=purpose)).statistics
    limits, size, share = question.client_limits, 1.0, 1.0 - 1e-9
    if limits is None or terms.unit == Unit.RECORD:
        domain = federation.setting.domain
        bounded = question.bounded(domain.radius if isinstance(domain, Ball) else None)
        question = bounded
        if terms.unit == Unit.CLIENT and isinstance(bounded, RecordBounded):
            share -= SIZES_SHARE
            size = federation.drive(typical_size(question.ranges, SIZES_SHARE))
            question = AsOneRecord(ranges=question.ranges, inner=bounded, rows=size)
            limits = question.limits
    weights = dict.fromkeys(_names(question), share / len(_paid(question, terms)))
    total = _alone(federation, Ask(question, purpose=purpose, weights=weights, limits=limits))
    noise, found = total.noise_std or {}, dict(total.statistics)
    signed = {entry.name for entry in question.spec.entries if np.min(np.asarray(entry.low)) < 0.0}
    for name in set(weights) - signed:
        least = 2.0 * noise[name] if name in divisors else 0.0
        found[name] = np.where(found[name] >= least, np.maximum(found[name], 0.0), 0.0)
    return Statistics(**{name: size * found[name] for name in weights})


def _names(question: Question) -> list[str]:
    return [entry.name for entry in question.spec.entries]


def _paid(question: Question, terms: PrivacyTerms) -> list[str]:
    """Return the entries that share the budget; an entry that does not differ between neighbours is free."""
    if not isinstance(question, RecordBounded) or terms.neighbours == Neighbours.ADD_REMOVE:
        return _names(question)
    return [name for name, bound in question.bounds.items() if bound.stay or bound.move]
