"""How metrics ask: a question as it is, or under differential privacy its twin, for the whole budget.

The twins are in `privfed.metrics.private`, which also has their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np

from privfed.core.conversation import Ask, Total
from privfed.core.federation import Federation
from privfed.core.question import Question
from privfed.core.statistics import Statistics
from privfed.errors import PrivacyError

TWINS: dict[type[Question], Callable[..., Question]] = {}
"""Question -> the same one with a proven bound for one record."""

OF_CLIENTS: dict[type[Question], dict[str, float]] = {}
"""Questions to which a client gives one answer as a whole -> L2 limit of each entry."""

SIGNED = {"offset"}
"""Entries that may be negative without noise."""


def _alone(federation: Federation, ask: Ask) -> Total:
    """Ask outside a run: clients that open totals themselves hear this one before the next question."""
    total = federation.ask(ask)
    federation.close()
    return total


def asked(federation: Federation, question: Question, purpose: str = "index") -> Statistics:
    """Ask a metric's question and return its total.

    Under differential privacy noised counts of clusters below twice their noise are no rows, and nothing
    is negative that could not be without noise.

    Raises:
        PrivacyError: the question has no bound for the unit, or the budget is spent.
    """
    privacy = federation.setting.privacy
    if privacy is None:
        return _alone(federation, Ask(question, purpose=purpose)).statistics
    limits = OF_CLIENTS.get(type(question))
    if (limits is None) != (privacy.unit == "record"):
        raise PrivacyError(
            f"{type(question).__name__} has a bound for one {'record' if limits is None else 'client'}, not "
            f'for unit="{privacy.unit}"; claim that unit.'
        )
    if type(question) in TWINS:
        words = {one.name: getattr(question, one.name) for one in fields(question)}
        question = TWINS[type(question)](**words)
    names = [entry.name for entry in question.spec.entries]
    weights = dict.fromkeys(names, (1.0 - 1e-9) / len(names))
    total = _alone(federation, Ask(question, purpose=purpose, weights=weights, limits=limits))
    noise, found = total.noise_std or {}, dict(total.statistics)
    for name in set(names) - SIGNED:
        least = 2.0 * noise[name] if name == "count" else 0.0
        found[name] = np.where(found[name] >= least, np.maximum(found[name], 0.0), 0.0)
    return Statistics(**{name: found[name] for name in names})
