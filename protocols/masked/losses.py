"""How a client of masked sums counts lost clients, which a lying server can invent.

A total with a client and one without it show that client's answer to whoever reads both. A client cannot tell
a loss from a lie, so that it counts what it is told, before it gives anything because of it:

- a client that is in a sum's cohort and not in the sum, once until it returns;
- clients that return, if fewer than c + 2 do so together: c colluders and a single honest one would show it;
- a sum that this client answered, and of which it heard no more: whom it left out is not known.

In sparse graphs a client hears of its neighbours' deaths only. Each exclusion is heard by at least t - c
honest neighbours, so that a fit has at most losses * n / (t - c) of them (docs/protocols/masked.md).

Not counted: clients that were in no list from the beginning, and cohorts that are agreed to differ.
"""

from __future__ import annotations

from collections.abc import Collection

from privfed.core.agreed.configuration import Configuration
from privfed.errors import PolicyError
from privfed.protocols.masked.state import Losses

REFUSED = "policy:losses"
"""Code of the refusal of a fit in which too many clients were lost."""


def begun(losses: Losses, absent: Collection[int]) -> Losses:
    """Return the count at a set-up. Clients that the first list leaves out are in no total yet."""
    return Losses(losses.count, tuple(sorted(absent))) if losses.away is None else losses


def after_sum(
    losses: Losses, cohort: Collection[int], lost: Collection[int], configuration: Configuration
) -> Losses:
    """Return the count once a sum of a cohort is opened without some clients.

    Args:
        losses: so far.
        cohort: members of the cohort.
        lost: those who are not in the sum, as far as this client hears.
        configuration: what was agreed.

    Raises:
        PolicyError: they are more than was agreed; the text is the code of the refusal.
    """
    away = set(losses.away or ())
    new, back = set(lost) - away, (away & set(cohort)) - set(lost)
    few = len(back) if len(back) < configuration.terms.colluders + 2 else 0
    found = Losses(losses.count + len(new) + few, tuple(sorted((away - set(cohort)) | set(lost))))
    return checked(found, configuration)


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
