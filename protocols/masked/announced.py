"""The blocks of future sums that the coordinator announced, and what clients prepared for each.

Reconstruction of secrets from clients' shares, on the coordinator of a masked sum.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privfed.errors import MessageError
from privfed.protocols.crypto.keys import KEY_BYTES
from privfed.protocols.crypto.shamir import Bytes, combine, interpolation, lagrange
from privfed.protocols.masked.client import MAX_PREPARED
from privfed.protocols.masked.messages import Preparation
from privfed.protocols.masked.state import box_bytes
from privfed.protocols.setup.graph import Places
from privfed.protocols.setup.messages import Slot
from privfed.protocols.setup.rules import Cohort, Rules

Accept = Callable[[int, bytes], bool]
Flags = npt.NDArray[np.bool_]
_TRIES = 200
_BLOCK = 256


@dataclass(frozen=True)
class Shares:
    """Holds shares of one kind of secret: a row for each owner of a secret, a column for each neighbour.

    Args:
        given: whether the neighbour gave its share, bool of shape (n, d).
        values: the shares, uint8 of shape (n, d, 32); column q holds the shares at abscissa q + 1.
        threshold: how many shares open a secret.
    """

    given: Flags
    values: Bytes
    threshold: int

    def open(self, targets: Iterable[int], accept: Accept) -> tuple[dict[int, bytes], list[int]]:
        """Open the secrets of some rows; return them, and the rows whose shares do not suffice.

        `accept` says whether an opened secret is the right one. If it is not, some neighbour gave a wrong
        share, and other subsets of neighbours are tried.
        """
        rows = np.array(list(targets), dtype=np.int64)
        enough = self.given[rows].sum(axis=1) >= self.threshold
        right: dict[int, bytes] = {}
        for start in range(0, len(rows[enough]), _BLOCK):
            block = rows[enough][start : start + _BLOCK]
            for row, secret in zip(block.tolist(), self._opened(block), strict=True):
                if accept(row, secret):
                    right[row] = secret
        failed: list[int] = []
        for row in rows.tolist():
            if row not in right:
                other = self._open_one(row, accept)
                if other is None:
                    failed.append(row)
                else:
                    right[row] = other
        return right, failed

    def _opened(self, rows: npt.NDArray[np.int64]) -> list[bytes]:
        """Open some rows, each from its first shares."""
        columns = np.argsort(~self.given[rows], axis=1, kind="stable")[:, : self.threshold]
        points = (columns + 1).astype(np.uint8)
        if (points == points[0]).all():
            # Nobody is lost: all rows use the same columns, and so the same coefficients.
            coefficients = np.broadcast_to(lagrange(tuple(points[0].tolist())), points.shape)
        else:
            coefficients = interpolation(points, np.zeros(len(rows), dtype=np.uint8))
        return [secret.tobytes() for secret in combine(self.values[rows[:, None], columns], coefficients)]

    def _open_one(self, row: int, accept: Accept) -> bytes | None:
        columns = np.flatnonzero(self.given[row]).tolist()
        if len(columns) < self.threshold:
            return None
        choices = secrets.SystemRandom()
        for _ in range(_TRIES):
            chosen = sorted(choices.sample(columns, self.threshold))
            coefficients = lagrange(tuple(column + 1 for column in chosen))
            secret: bytes = combine(self.values[row, chosen][None], coefficients[None])[0].tobytes()
            if accept(row, secret):
                return secret
        return None


@dataclass
class Coming:
    """Holds a block's cohort, and what its members prepared and were brought.

    Args:
        cohort: the clients that prepare it.
        label: the cohort's label.
        neighbours: places of the neighbours of each, of shape (n, d).
        back: the column in which each stands in its neighbours' rows, of shape (n, d).
        numbers: the block's numbers.
        joined: clients that took part when the block was prepared first.
        preparations: what has arrived, by client.
        used: its highest number that was asked.
    """

    cohort: Cohort
    label: int
    neighbours: Places
    back: Places
    numbers: range
    joined: frozenset[int]
    preparations: dict[int, Preparation] = field(default_factory=dict)
    used: int = 0

    @cached_property
    def brought(self) -> Flags:
        """Whether a member has the box of a neighbour, bool of shape (n, d)."""
        return np.zeros(self.neighbours.shape, dtype=np.bool_)

    @cached_property
    def made(self) -> Flags:
        """Whether a member made a box for a neighbour, bool of shape (n, d)."""
        return np.zeros(self.neighbours.shape, dtype=np.bool_)

    def keep(self, client: int, one: Preparation) -> None:
        """Keep what a member prepared; the first counts."""
        if client not in self.preparations:
            self.preparations[client] = one
            boxes = np.frombuffer(one.boxes, dtype=np.uint8).reshape(-1, box_bytes(len(self.numbers)))
            self.made[self.cohort.place[client]] = boxes[:, :KEY_BYTES].any(axis=1)

    def boxes_for(self, place: int, columns: Places) -> bytes:
        """Return the boxes that neighbours of a member made for it."""
        size, makers, back = box_bytes(len(self.numbers)), self.neighbours[place], self.back[place]
        return b"".join(
            [
                self.preparations[self.cohort.members[maker]].boxes[size * column : size * (column + 1)]
                for maker, column in zip(makers[columns].tolist(), back[columns].tolist(), strict=True)
            ]
        )

    def recovery_of(self, client: int, number: int) -> Bytes:
        """Return R of a member for a number, uint8 of shape (d, 32)."""
        rows = np.frombuffer(self.preparations[client].recovery, dtype=np.uint8)
        found: Bytes = rows.reshape(len(self.numbers), -1, KEY_BYTES)[self.numbers.index(number)]
        return found

    def commitment_of(self, client: int, number: int, kind: int) -> bytes:
        """Return the hash of a member's b (kind 0) or e (kind 1) for a number."""
        place = 2 * self.numbers.index(number) + kind
        return self.preparations[client].commitments[KEY_BYTES * place : KEY_BYTES * (place + 1)]


class Announced:
    """Numbers blocks of future sums, and keeps what clients prepare for them.

    Args:
        agreement: configuration and registry.
        session: the fit's session.
    """

    def __init__(self, agreement: Rules, session: bytes) -> None:
        self._agreement, self._session, self._highest = agreement, session, 0
        self.coming: dict[int, Coming] = {}

    def slots(self, labels: Iterable[int], joined: Iterable[int]) -> tuple[Slot, ...]:
        """Give each cohort that may come next a block, unless it has one.

        Args:
            labels: the cohorts.
            joined: clients that take part.
        """
        have = {coming.label for coming in self.coming.values()}
        for label in dict.fromkeys(labels):
            if label not in have and len(have) < MAX_PREPARED - 1:
                have.add(label)
                self._begin(label, joined)
        return tuple(Slot(block, coming.label) for block, coming in self.coming.items())

    def _begin(self, label: int, joined: Iterable[int]) -> int:
        """Return a block that no sum had before: clients bind each block to the cohort they prepared."""
        self._highest += 1
        cohort, numbers = self._agreement.cohort(label), self._agreement.blocks.numbers(self._highest)
        rows = self._agreement.graph(self._session, label).rows(np.arange(len(cohort.members)))
        self.coming[self._highest] = Coming(cohort, label, *rows, numbers, frozenset(joined))
        return self._highest

    def next_of(self, cohort: int, joined: Iterable[int]) -> tuple[int, int]:
        """Return the lowest block that a cohort has, else a new one, and the number of its next sum."""
        known = [block for block, coming in self.coming.items() if coming.label == cohort]
        block = min(known) if known else self._begin(cohort, joined)
        coming = self.coming[block]
        return block, max(coming.used + 1, coming.numbers[0])

    def taken(self, block: int, number: int) -> Coming:
        """Return what was prepared for a sum that begins; blocks that it closes are announced no more."""
        taken = self.coming[block]
        taken.used = number
        self.coming = {b: one for b, one in self.coming.items() if b >= block}
        if number == taken.numbers[-1]:
            self.leave(block)
        return taken

    def leave(self, block: int) -> None:
        """Ask no more sums of a block."""
        self.coming.pop(block, None)

    def lacking(self, client: int, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the blocks whose cohort a client is in and that it has not prepared."""
        return tuple(
            slot
            for slot in slots
            if client not in self.coming[slot.block].preparations
            and client in self._agreement.cohort(slot.cohort).place
        )

    def keep(self, client: int, preparations: tuple[Preparation, ...], name: str, stage: str) -> None:
        """Keep a client's preparations.

        Raises:
            MessageError: one was not asked for, or has another length.
        """
        for one in preparations:
            coming = self.coming.get(one.block)
            if coming is None or coming.label != one.cohort or not self._fits(client, one, coming):
                raise MessageError("a preparation that was not asked for", sender=name, stage=stage)
        for one in preparations:
            self.coming[one.block].keep(client, one)

    def _fits(self, client: int, one: Preparation, coming: Coming) -> bool:
        """Say whether a client is in its preparation's cohort and sent as much as it should."""
        d, count = coming.neighbours.shape[1], len(coming.numbers)
        lengths = {
            len(one.boxes) - d * box_bytes(count),
            len(one.recovery) - d * count * KEY_BYTES,
            len(one.commitments) - 2 * count * KEY_BYTES,
        }
        return client in coming.cohort.place and lengths == {0}
