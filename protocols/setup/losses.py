"""How a client counts lost clients, which a lying server can invent.

Two totals over sets of clients that differ show the difference to whoever reads both: a single client's
answer, where one was lost in between. A client cannot tell a loss from a lie, so that it counts what it is
told, before it gives anything because of it: one for each sum in which other clients are lost than before,
unless all are back that the fit began with; and one for each sum that it answered and of which it heard no
more, or that it is asked again. That bounds how many clients are singled out, and not in how many questions:
all that are asked on both sides. A sum that is asked again is the same question on both sides, whoever else
checks what is asked: to single a client out in it costs two, a repeat and a loss, and not one. A loss serves
two such sums at most, since a full return is free: one that loses the client, and one that has it back.

Property: the totals of a fit are over at most count + 1 sets of clients, of those that were asked. So their
differences tell at most `count` clients apart, however many were lost at once.

Proof: who is away after a sum is as the fit began, or as before that sum, or it counts. So at most `count`
other sets are ever away, and each cohort's totals are over it without one of these. A return in two steps, or
in a cohort that lacks somebody who is away, leaves a set of its own away, and counts. What a return costs no
more is a second pair of neighbouring sums that show one client: at most 2 `count` such pairs are opened.

A client of masked sums counts whom it is told to be lost before it gives a share. Where clients open, it
counts whom a request calls lost before it answers, or, where answers just add up, who is not in an opened
total, before it answers again: there one set more is opened than counted. A journal that refuses
such a count keeps it, so that it is one over all fits (`ShowsLosses`).

Clients that the first list of a fit leaves out are in none of its totals, and may be in those of other fits:
the count over all fits has one for them (`losses_so_far`). Cohorts that are agreed to differ do not count.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from privfed.core.agreed.configuration import Configuration
from privfed.errors import PolicyError

REFUSED = "policy:losses"
"""Code of the refusal of a fit in which too many clients were lost."""


class Losses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts in how many sums of a fit other clients were lost than before, over all its set-ups.

    Args:
        count: so far.
        away: clients that were lost in the last sum that they belonged to; None before the first set-up.
        unlisted: clients that the first list left out, which other fits may have.
        asked: index of the last sum that was answered, -1 before.
    """

    count: int = 0
    away: tuple[int, ...] | None = None
    unlisted: tuple[int, ...] = ()
    asked: int = -1

    @property
    def over_fits(self) -> int:
        """What counts over all fits on the same rows."""
        return self.count + bool(self.unlisted)


def begun(losses: Losses, absent: Collection[int]) -> Losses:
    """Return the count at a set-up. Clients that the first list leaves out are in no total yet."""
    if losses.away is not None:
        return losses
    first = tuple(sorted(absent))
    return msgspec.structs.replace(losses, away=first, unlisted=first)


def after_total(losses: Losses, cohort: Collection[int], lost: Collection[int]) -> Losses:
    """Return the count once a sum of a cohort is opened without some clients, however many.

    Args:
        losses: so far.
        cohort: members of the cohort; a mapping where they are many, since they are looked up.
        lost: those who are not in the sum, as far as this client hears.
    """
    before = losses.away or ()
    away = tuple(sorted({j for j in before if j not in cohort} | set(lost)))
    count = losses.count + (away not in (before, losses.unlisted))
    return msgspec.structs.replace(losses, count=count, away=away)


def before_answer(losses: Losses, index: int, pending: bool, configuration: Configuration) -> Losses:
    """Return the count once a sum is to be answered; raises as `checked`.

    Args:
        losses: so far.
        index: of the sum.
        pending: whether the last answer was never opened for this client.
        configuration: what was agreed.
    """
    count = losses.count + (pending or index <= losses.asked)
    counted = msgspec.structs.replace(losses, count=count, asked=max(losses.asked, index))
    return checked(counted, configuration)


def closed(losses: Losses, pending: bool) -> Losses:
    """Return the count at the end of a set-up.

    A last answer that was never opened for this client counts here, and not again where it is asked again.
    """
    return msgspec.structs.replace(losses, count=losses.count + pending, asked=losses.asked - pending)


def checked(losses: Losses, configuration: Configuration) -> Losses:
    """Return a count that is within what was agreed.

    Raises:
        PolicyError: more clients were lost; the text is the code of the refusal.
    """
    most = configuration.most_losses
    if most is not None and losses.count > most:
        raise PolicyError(REFUSED)
    return losses
