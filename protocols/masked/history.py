"""The history of masked sums: who was in each, chained into the header of the next.

    head = H(head, session, number, index, H(Q), P, U)

A client adds the entry of a sum that it helps to open, before its shares leave. A request brings the others,
by which it extends its own head. The coordinator has an entry stored before it sends what the entry says, so
that a crash leaves one head. What this bounds: `privfed.protocols.setup.losses`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from privfed.core.stored.encoding import digest
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.shamir import Flags
from privfed.protocols.masked import checks
from privfed.protocols.masked.masked_messages import SumEntry
from privfed.protocols.setup import losses
from privfed.protocols.setup.losses import Losses
from privfed.protocols.setup.rules import Rules


def flags_of(bits: bytes, n: int) -> Flags:
    """Return which of n members bits name, bool of shape (n,).

    Raises:
        MessageError: they are more or fewer bits.
    """
    flags = np.unpackbits(np.frombuffer(bits, dtype=np.uint8)).astype(np.bool_)
    if len(flags) != n + -n % 8 or flags[n:].any():
        raise MessageError("not a bit for each member", sender="the coordinator", stage="collect")
    return flags[:n]


def after(known: Losses, entry: SumEntry, rules: Rules) -> Losses:
    """Return what a client knows after one more entry.

    Raises:
        MessageError: the entry is malformed.
        PolicyError: its cohort is none of the agreement.
    """
    checks.check_label(rules.configuration, entry.cohort)
    cohort, members = rules.cohort(entry.cohort), rules.cohort(entry.cohort).members
    prepared = flags_of(entry.prepared, len(members))
    if entry.survivors:
        there = flags_of(entry.survivors, len(members))
        if (there & ~prepared).any():
            raise MessageError("clients that prepared nothing", sender="the coordinator", stage="collect")
        before, lost = known, np.array(members)[~there].tolist()
        known = losses.after_total(known, cohort.place, lost)
        again = entry.index <= before.asked and (entry.index, known.away) != (before.asked, before.away)
        counts = {"repeats": before.repeats + again, "asked": max(before.asked, entry.index)}
        known = msgspec.structs.replace(known, **counts)
    head, last = next_head(known.head, entry, rules), (entry.session, entry.number)
    return msgspec.structs.replace(known, head=head, last=last)


def next_head(head: bytes, entry: SumEntry, rules: Rules) -> bytes:
    """Return the head of the history after an entry, 32 bytes; it is empty before the first."""
    place = (entry.session, entry.number, entry.index, rules.cohort(entry.cohort).digest)
    return digest("history", head, *place, entry.prepared, entry.survivors)


def extended(known: Losses, entries: tuple[SumEntry, ...], head: bytes, rules: Rules) -> Losses:
    """Return what a client knows after the last of the entries that a request brings, as many as it lacks.

    Args:
        known: what it knew.
        entries: what the request brings, the latest last.
        head: the head that others have, as the request says; the client compares its own with it.
        rules: the agreement.

    Raises:
        MessageError: an entry is malformed.
        PolicyError: no entries lead from what the client knew to this head, or more clients were lost than
            was agreed.
    """
    has = [place for place, one in enumerate(entries, 1) if (one.session, one.number) == known.last]
    for one in entries[max(has, default=0) :]:
        known = after(known, one, rules)
    if known.head == head:
        return losses.checked(known, rules.configuration)
    raise PolicyError("history")


def told(known: Losses, entry: SumEntry, rules: Rules) -> Losses:
    """Return what a client knows once it hears who is in a sum that it then helps to open.

    Raises:
        MessageError: the entry is malformed.
        PolicyError: more clients were lost than was agreed, or others may have heard of sets that join to one
            more.
    """
    counted, most = after(known, entry, rules), rules.configuration.most_losses
    if counted.sets == known.sets and counted.count == most and losses.joins(counted.sets):
        raise PolicyError(losses.REFUSED)
    return losses.checked(counted, rules.configuration)


class History:
    """Keeps the entries of the sums of an agreement on the coordinator, and which of them each client has.

    Args:
        rules: the agreement.
        entries: those of earlier processes, in order.
    """

    def __init__(self, rules: Rules, entries: Iterable[SumEntry] = ()) -> None:
        self._rules, self._entries, self._heads = rules, list[SumEntry](), [b""]
        self._has: dict[int, int] = {}
        self._running: SumEntry | None = None
        for one in entries:
            self.begin(one)
        self.close()

    @property
    def head(self) -> bytes:
        """The hash over all entries but that of the sum that runs."""
        return self._heads[-1]

    def joined(self, heads: Mapping[int, bytes]) -> set[int]:
        """Note where clients stand that join, before a sum; return those that no known entry leads on.

        If the entries of earlier processes are lost, the coordinator goes on from where most clients stand.
        """
        most = Counter(heads.values()).most_common(1)
        if most and not self._has and most[0][0] not in self._heads:
            self._entries, self._heads = [], [most[0][0]]
        for client, head in heads.items():
            if head in self._heads:
                self._has.setdefault(client, self._heads.index(head))
        return heads.keys() - self._has.keys()

    def begin(self, entry: SumEntry) -> None:
        """Add the entry of a sum that begins; another one of the same sum takes its place."""
        where = self._running and (self._running.session, self._running.number)
        if where != (entry.session, entry.number):
            self.close()
        self._running = entry

    def close(self) -> None:
        """End the sum that runs: nothing more is sent of it."""
        if self._running is not None:
            self._heads.append(next_head(self.head, self._running, self._rules))
            self._entries.append(self._running)
            self._running = None

    def anew(self) -> None:
        """Begin another set-up, whose clients may stand anywhere."""
        self.close()
        self._has = {}

    def lacking(self, client: int) -> tuple[SumEntry, ...]:
        """Return the entries that a client may lack, but that of the sum that runs."""
        return tuple(self._entries[self._has[client] :])

    def heard(self, client: int, *, opens: bool) -> None:
        """Note that a client answered; where it helped to open the sum that runs, it has its entry."""
        self._has[client] = len(self._entries) + opens
