"""The future sums that the coordinator announced, and the preparations that have arrived for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from privfed.errors import MessageError
from privfed.protocols.crypto.keys import CryptographyError, check_public_key
from privfed.protocols.masked.client import MAX_PREPARED
from privfed.protocols.masked.messages import Preparation
from privfed.protocols.masked.state import BOX_BYTES
from privfed.protocols.setup.messages import Slot
from privfed.protocols.setup.rules import Rules
from privfed.protocols.setup.sizes import sizes


@dataclass
class Coming:
    """Holds a future sum's cohort, and the preparations that have arrived for it."""

    cohort: int
    preparations: dict[int, Preparation] = field(default_factory=dict)


class Announced:
    """Numbers future sums, and keeps what clients prepare for them.

    Args:
        agreement: configuration and registry.
    """

    def __init__(self, agreement: Rules) -> None:
        self._agreement, self._highest = agreement, 0
        self.coming: dict[int, Coming] = {}

    def slots(self, labels: Iterable[int], above: int) -> tuple[Slot, ...]:
        """Give each cohort that may come next a number above `above`, unless it has one."""
        have = {coming.cohort for number, coming in self.coming.items() if number > above}
        for label in dict.fromkeys(labels):
            if label not in have and len(have) < MAX_PREPARED - 1:
                have.add(label)
                self.coming[self._next_number()] = Coming(label)
        return tuple(Slot(number, coming.cohort) for number, coming in self.coming.items() if number > above)

    def _next_number(self) -> int:
        """Return a number that no sum had before: clients bind each number to the cohort they prepared."""
        self._highest += 1
        return self._highest

    def number_of(self, cohort: int) -> int:
        """Return the lowest number that a cohort has; one without gets the next."""
        known = [r for r, coming in self.coming.items() if coming.cohort == cohort]
        number = min(known) if known else self._next_number()
        self.coming.setdefault(number, Coming(cohort))
        return number

    def taken(self, number: int) -> dict[int, Preparation]:
        """Return the preparations for a sum that begins; it and earlier ones are announced no more."""
        arrived = self.coming.pop(number).preparations
        self.coming = {r: coming for r, coming in self.coming.items() if r > number}
        return arrived

    def lacking(self, client: int, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the future sums whose cohort a client is in and that it has not prepared for."""
        return tuple(
            slot
            for slot in slots
            if client not in self.coming[slot.number].preparations
            and client in self._agreement.cohort(slot.cohort).place
        )

    def keep(self, client: int, preparations: tuple[Preparation, ...], name: str, stage: str) -> None:
        """Keep a client's preparations.

        Raises:
            MessageError: one was not asked for, or its key is unusable.
        """
        for one in preparations:
            coming = self.coming.get(one.number)
            if coming is None or coming.cohort != one.cohort or not self._is_in(client, one):
                raise MessageError("a preparation that was not asked for", sender=name, stage=stage)
            try:
                check_public_key(one.mask_key)
            except CryptographyError as error:
                raise MessageError(str(error), sender=name, stage=stage) from None
        for one in preparations:
            self.coming[one.number].preparations.setdefault(client, one)

    def _is_in(self, client: int, one: Preparation) -> bool:
        """Say whether a client is in its preparation's cohort and sent a box for each neighbour."""
        cohort = self._agreement.cohort(one.cohort)
        degree = sizes(len(cohort.members), self._agreement.configuration.terms).neighbours
        return client in cohort.place and len(one.boxes) == BOX_BYTES * degree
