"""How a client counts lost clients, which a lying server can invent.

A total with a client and one without it show that client's answer to whoever reads both. A client cannot tell
a loss from a lie, so that it counts what it is told, before it gives anything because of it. That bounds how
many clients are singled out, and not in how many questions: all that are asked on both sides of a loss.

- a client that is in a sum's cohort and not in the sum, once until it returns;
- clients that return, if fewer than c + 2 do so together: c colluders and a single honest one would show it;
- a sum that this client answered, and of which it heard no more: whom it left out is not known.

A client of masked sums counts whom it is told to be lost before it gives a share. Where clients open, it
counts whom a request calls lost before it answers, or, where answers just add up, who is not in an opened
total, before it answers again.

Not counted: clients that were in no list from the beginning, and cohorts that are agreed to differ.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil

import msgspec

from privfed.core.agreed.configuration import Configuration
from privfed.errors import PolicyError

FEWEST_LOSSES = 3
"""Losses that a fit allows at least, where nothing else is said."""

REFUSED = "policy:losses"
"""Code of the refusal of a fit in which too many clients were lost."""


class Losses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts how often clients were lost in a fit, over all its set-ups.

    Args:
        count: so far.
        away: clients that were lost in the last sum that they belonged to; None before the first set-up.
    """

    count: int = 0
    away: tuple[int, ...] | None = None


def default_losses(clients: int) -> int:
    """Return how often clients may be lost in a fit of so many, where nothing else is said."""
    return max(FEWEST_LOSSES, ceil(clients / 10))


def begun(losses: Losses, absent: Collection[int]) -> Losses:
    """Return the count at a set-up. Clients that the first list leaves out are in no total yet."""
    return Losses(losses.count, tuple(sorted(absent))) if losses.away is None else losses


def after_sum(
    losses: Losses, cohort: Collection[int], lost: Collection[int], configuration: Configuration
) -> Losses:
    """Return the count once a sum of a cohort is to be opened without some clients; see `after_total`.

    Args:
        losses: so far.
        cohort: members of the cohort; a mapping where they are many, since they are looked up.
        lost: those who are not in the sum, as far as this client hears.
        configuration: what was agreed.

    Raises:
        PolicyError: they are more than was agreed; the text is the code of the refusal.
    """
    return checked(after_total(losses, cohort, lost, configuration), configuration)


def after_total(
    losses: Losses, cohort: Collection[int], lost: Collection[int], configuration: Configuration
) -> Losses:
    """Return the count once a sum of a cohort was opened without some clients, however many."""
    away, absent = set(losses.away or ()), set(lost)
    new, back = absent - away, {j for j in away if j in cohort and j not in absent}
    few = len(back) if len(back) < configuration.terms.colluders + 2 else 0
    return Losses(losses.count + len(new) + few, tuple(sorted({j for j in away if j not in cohort} | absent)))


def unopened(losses: Losses, configuration: Configuration) -> Losses:
    """Return the count after a sum that was answered and never opened; raises as `after_sum`."""
    return checked(Losses(losses.count + 1, losses.away), configuration)


def checked(losses: Losses, configuration: Configuration) -> Losses:
    """Return a count that is within what was agreed.

    Raises:
        PolicyError: more clients were lost; the text is the code of the refusal.
    """
    most = configuration.most_losses
    if most is not None and losses.count > most:
        raise PolicyError(REFUSED)
    return losses
