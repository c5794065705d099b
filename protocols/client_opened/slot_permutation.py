"""Moves a client's answer to its secret slot, by a permutation that only clients know, fresh for each sum.

Only for sums that the server opens: the party that opens a total must not know the permutation.
"""

from __future__ import annotations

import numpy as np

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.values.domain import frozen
from privfed.errors import PolicyError
from privfed.privacy.noised import Noised
from privfed.protocols.crypto.keys import bound, expand
from privfed.protocols.crypto.keystream import keystream
from privfed.questions.gathered import Slots


def check_slots(question: Question, configuration: Configuration, answered: int) -> Slots | None:
    """Return the question if it has slots and may be answered, None if it has none.

    Args:
        question: what is asked.
        configuration: what the parties agreed on.
        answered: how many questions with slots were answered in this fit.

    Raises:
        PolicyError: the agreed number of such sums is spent, sums open over too few clients, or the number
            of slots is not that of clients.
    """
    if isinstance(question, Noised):
        # Noise is alike in all slots: moving it with what it hides changes nothing about it.
        question = question.inner
    if not isinstance(question, Slots):
        return None
    terms = configuration.terms
    if answered >= terms.slotted or terms.threshold < terms.slot_contributors:
        raise PolicyError("policy:slots")
    if question.slots != len(configuration.clients):
        raise PolicyError("policy:slots")
    return question


def slot_key(secret: bytes, *context: bytes) -> bytes:
    """Return the key of a sum's permutation, from the group's secret and what identifies the sum."""
    return expand(secret, bound("slots", *context))


def moved(statistics: Statistics, key: bytes, slots: int, client: int) -> Statistics:
    """Move the content of the first slot to the client's slot in the permutation drawn from `key`."""
    # Sorting uniform words gives a uniform permutation.
    slot = int(np.argsort(keystream(key, slots))[client])
    parts = [one for a in statistics.values() for one in (a[slots - slot :], a[: slots - slot])]
    vector = np.concatenate([one.ravel() for one in parts])
    return Statistics.of(statistics.layout, frozen(vector))
