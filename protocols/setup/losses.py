"""How a client counts lost clients, which a lying server can invent.

Two totals over sets of clients that differ show the difference to whoever reads both: a single client's
answer, where one was lost in between. A client cannot tell a loss from a lie, so that it counts what it is
told, before it gives anything because of it: one for each sum in which other clients are lost than before,
whether more were lost or some are back, and one for each sum that it answered and of which it heard no more.
That bounds how many clients are singled out, and not in how many questions: all that are asked on both sides.

Law: the totals of a fit are over at most count + 1 sets of clients, of those that were asked. So their
differences tell at most `count` clients apart, however many were lost at once.

A client of masked sums counts whom it is told to be lost before it gives a share. Where clients open, it
counts whom a request calls lost before it answers, or, where answers just add up, who is not in an opened
total, before it answers again: there one set more is opened than counted.

Clients that the first list of a fit leaves out are in none of its totals, and may be in those of other fits:
the count over all fits has one for them (`losses_so_far`). Cohorts that are agreed to differ do not count.
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
    """Counts in how many sums of a fit other clients were lost than before, over all its set-ups.

    Args:
        count: so far.
        away: clients that were lost in the last sum that they belonged to; None before the first set-up.
        unlisted: whether the first list left clients out, which other fits may have.
    """

    count: int = 0
    away: tuple[int, ...] | None = None
    unlisted: bool = False

    @property
    def over_fits(self) -> int:
        """What counts over all fits on the same rows."""
        return self.count + self.unlisted


def default_losses(clients: int) -> int:
    """Return in how many sums of a fit other clients may be lost than before, where nothing else is said."""
    return max(FEWEST_LOSSES, ceil(clients / 10))


def begun(losses: Losses, absent: Collection[int]) -> Losses:
    """Return the count at a set-up. Clients that the first list leaves out are in no total yet."""
    if losses.away is not None:
        return losses
    return Losses(losses.count, tuple(sorted(absent)), unlisted=bool(absent))


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
    return checked(after_total(losses, cohort, lost), configuration)


def after_total(losses: Losses, cohort: Collection[int], lost: Collection[int]) -> Losses:
    """Return the count once a sum of a cohort was opened without some clients, however many."""
    away, absent = set(losses.away or ()), set(lost)
    elsewhere = {j for j in away if j not in cohort}
    count = losses.count + (absent != away - elsewhere)
    return msgspec.structs.replace(losses, count=count, away=tuple(sorted(elsewhere | absent)))


def unopened(losses: Losses, configuration: Configuration) -> Losses:
    """Return the count after a sum that was answered and never opened; raises as `after_sum`."""
    return checked(msgspec.structs.replace(losses, count=losses.count + 1), configuration)


def checked(losses: Losses, configuration: Configuration) -> Losses:
    """Return a count that is within what was agreed.

    Raises:
        PolicyError: more clients were lost; the text is the code of the refusal.
    """
    most = configuration.most_losses
    if most is not None and losses.count > most:
        raise PolicyError(REFUSED)
    return losses
