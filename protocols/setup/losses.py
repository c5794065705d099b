"""How a client counts lost clients, which a lying server can invent, from a history that all clients share.

Two totals over sets of clients that differ show the difference to whoever reads both: a single client's
answer, where one was lost in between. A client cannot tell a loss from a lie. So the number of sets is
bounded, and it counts them before it gives anything for a further one.

Where the server opens, each sum has an entry in a history: its number, index and cohort, who was prepared,
and whose answers are in it. The head is a hash over all entries. It enters the header of the next sum, and so
every mask. Clients that heard different entries share no mask after that. A client adds the entry of a sum
that it helped to open by itself, before its shares leave. The others come with the next request. The client
extends its own head by them, and takes no head from anybody. The history goes on over all set-ups.

Property: the count is a function of the history: the sets of clients in its totals, less one, and one for
each sum that was opened again over another set, since the same question on both sides shows the difference
exactly. Over one agreed cohort, on the full graph, all totals of an agreement are over at most `losses` + 1
sets of clients.

Proof, on the full graph (docs/specifications/masked.md, section 9): what opens after a sum needs more than
half of the honest clients with one head. Sums before it are open over just the sets that this head contains.
Of the last sum each client heard a set that it counted. Where the number is used up, these join to no other.

Where clients open, each request or total names who is lost, under a header of its own: a client counts whom a
request calls lost before it answers, or, where answers just add up, who is not in an opened total, before it
answers again: there one set more is opened than counted. A journal that refuses such a count keeps it,
so that it is one over all fits (`ShowsLosses`).

Other fits may have everybody. So the count over all fits has each set that lacks somebody (`losses_so_far`).
Cohorts that are agreed to differ do not count.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from itertools import combinations

import msgspec

from privfed.core.agreed.configuration import Configuration
from privfed.errors import PolicyError

REFUSED = "policy:losses"
"""Code of the refusal of a fit in which too many clients were lost."""


class Losses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Holds what a client heard of who was lost in the sums of an agreement, over all its set-ups.

    Args:
        away: clients that were lost in the last sum that they belonged to; None before the first set-up.
        sets: the values of `away` after each opened sum, each once.
        repeats: how many sums were opened again, of other clients than before.
        asked: index of the last opened sum, -1 before.
        head: head of the history, 32 bytes; empty before its first entry.
        last: session and number of its last entry.
        gone: clients that take part no more, in any fit, since their journals went back. Whoever reads totals
            without them has no later ones with them.
    """

    away: tuple[int, ...] | None = None
    sets: tuple[tuple[int, ...], ...] = ()
    repeats: int = 0
    asked: int = -1
    head: bytes = b""
    last: tuple[bytes, int] = (b"", 0)
    gone: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """How many sets of clients were in totals, besides the first, and how many sums were repeated."""
        return max(len(self.sets), 1) - 1 + self.repeats

    @property
    def over_fits(self) -> int:
        """What counts over all fits on the same rows, some of which may have everybody."""
        lacking = [set(one or ()).difference(self.gone) for one in self.sets or (self.away,)]
        return sum(map(bool, lacking)) + self.repeats


def begun(losses: Losses, absent: Collection[int], gone: tuple[int, ...] = ()) -> Losses:
    """Return the count at a set-up. Clients that the first list leaves out are in no total yet."""
    away = tuple(sorted(absent)) if losses.away is None else losses.away
    return msgspec.structs.replace(losses, away=away, gone=gone)


def after_total(losses: Losses, cohort: Collection[int], lost: Collection[int]) -> Losses:
    """Return the count once a sum of a cohort is opened without some clients, however many.

    Args:
        losses: so far.
        cohort: members of the cohort; a mapping where they are many, since they are looked up.
        lost: those who are not in the sum.
    """
    away = tuple(sorted({j for j in losses.away or () if j not in cohort} | set(lost)))
    sets = losses.sets if away in losses.sets else (*losses.sets, away)
    return msgspec.structs.replace(losses, away=away, sets=sets)


@lru_cache(maxsize=4)
def joins(sets: tuple[tuple[int, ...], ...]) -> bool:
    """Say whether three of the sets agree, client by client and two against one, on a further set.

    Of the last sum a server can tell each client another of these sets. What opens is what most of them heard
    of each client.
    """
    found = {frozenset(one) for one in sets}
    return any((a & b | a & c | b & c) not in found for a, b, c in combinations(found, 3))


def checked(losses: Losses, configuration: Configuration) -> Losses:
    """Return a count that is within what was agreed.

    Raises:
        PolicyError: more clients were lost; the text is the code of the refusal.
    """
    most = configuration.most_losses
    if most is not None and losses.count > most:
        raise PolicyError(REFUSED)
    return losses
