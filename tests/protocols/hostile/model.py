"""A symbolic model of what a story opens: who gives which share is asked of the real client code.

A story says, for one number, what each honest client was told in the first exchange, whether it
uploaded, and what it was told in the second. Shares of corrupted clients count as given. The model
runs the client's own checks and its own unmasking over labelled shares, so that it cannot drift from
the code; what follows from the shares is a fixpoint of a few lines:

- a_i, or e_j, or b_j opens with t shares;
- shares of b and of e can be read once the a of their giver is open;
- the masks left on the uploads make a graph; a set of uploads opens where none leads out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from privfed.core.agreed.agreement import Registry
from privfed.core.agreed.configuration import CohortRule, Configuration, Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.errors import MessageError, PolicyError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    RECEIPT_BYTES,
    Identity,
    bound,
    digest,
    unseal,
)
from privfed.protocols.masked import bindings, checks
from privfed.protocols.masked import masked_client as code
from privfed.protocols.masked.client_state import Fit, Pending
from privfed.protocols.masked.masked_client import MaskedClient
from privfed.protocols.masked.masked_messages import CollectRequest, UnmaskRequest
from privfed.protocols.setup.rules import Rules, bitmap, cohort_digest, sum_header
from privfed.protocols.setup.setup_messages import part

Clients = frozenset[int]
SELF, RECOVERY, ANSWER = range(3)
_NOBODY: Clients = frozenset()


@dataclass(frozen=True)
class Asked:
    """What a client is told in the first exchange: a question, and who is prepared (P)."""

    question: int
    prepared: Clients


@dataclass(frozen=True)
class Told:
    """What a client is told in the second exchange: the dead, and whose receipts are withheld or forged."""

    dead: Clients
    withheld: Clients = _NOBODY
    forged: Clients = _NOBODY


@dataclass(frozen=True)
class Story:
    """What a server tells the honest clients of a cohort for one number; absent is never asked."""

    asked: Mapping[int, Asked] = field(default_factory=dict)
    told: Mapping[int, Told] = field(default_factory=dict)


@dataclass(frozen=True)
class Given:
    """Whose shares a client gives: of a and b (good), and of e (dead)."""

    good: Clients
    dead: Clients
    forged: Clients = _NOBODY
    """Of the good, those whose receipt the server made: it needs their e, or the client's own."""


class Model:
    """The clients of one cohort of everyone, of which some are corrupted.

    Args:
        n: how many.
        terms: what they were promised.
        corrupted: whose shares and receipts the server makes itself.
        lock: whether answers are locked, as they are.
    """

    def __init__(self, n: int, terms: Terms, corrupted: Iterable[int] = (), *, lock: bool = True) -> None:
        names = tuple(str(i) for i in range(n))
        configuration = Configuration(
            protocol="masked", algorithm="", clients=names, n_features=1, cohorts=CohortRule(), terms=terms
        )
        keys = tuple(digest("nobody", i) for i in range(n))
        self.agreement = Rules(configuration, Registry(keys, digest("nobody", n)))
        self.members, self.corrupted, self.lock = tuple(range(n)), frozenset(corrupted), lock
        self.honest = tuple(i for i in self.members if i not in self.corrupted)
        self.threshold = code.threshold(n, terms)
        self.promise = self.threshold - len(self.corrupted) + 1
        self._cohort = cohort_digest(0, self.members)
        self.asks = lru_cache(maxsize=None)(self._asks)
        self.gives = lru_cache(maxsize=None)(self._gives)

    def header(self, asked: Asked) -> bytes:
        """Return H of what a client is told."""
        prepared = bitmap(self.members, asked.prepared)
        return sum_header(bytes(KEY_BYTES), 1, 0, bytes([asked.question]), self._cohort, prepared)

    def _asks(self, me: int, asked: Asked) -> tuple[int, ...] | None:
        """Return the neighbours that a client masks with, or None where it refuses."""
        session, flags = bytes(KEY_BYTES), bitmap(self.members, asked.prepared)
        brought = bytes(len(asked.prepared - {me}))
        request = CollectRequest(0, 0, (), b"", bytes([asked.question]), flags, brought, b"", ())
        neighbours = self.agreement.neighbours(session, 0, me)
        try:
            slots, _ = checks.check_prepared(self.agreement, neighbours, me, request)
        except PolicyError:
            return None
        return tuple(neighbours.clients[slot] for slot in slots)

    def _gives(self, me: int, asked: Asked, told: Told, under: tuple[tuple[int, Asked], ...]) -> Given | None:
        """Return whose shares a client gives, or None where it refuses.

        Args:
            me: the client.
            asked: what it was told before.
            told: what it is told now.
            under: what the others were told before, who made receipts of it.
        """
        prepared = self.asks(me, asked)
        if prepared is None:
            return None
        shares = b"".join(_label(kind, j) for j in prepared for kind in (SELF, RECOVERY, ANSWER))
        answer, header = digest("answer"), self.header(asked)
        expected = b"".join(self._receipt(j, me, asked) for j in prepared)
        flags = np.array([j in asked.prepared for j in self.members])
        pending = Pending(1, header, 0, prepared, shares, answer, expected, 0, np.packbits(flags).tobytes())
        fit = Fit(bytes(KEY_BYTES), bytes(KEY_BYTES), {}, last=1, pending=pending)
        others, receipts = dict(under), []
        for j in prepared:
            if j in told.dead:
                continue
            made_under = asked if j in self.corrupted or j in told.forged else others.get(j)
            made = made_under is not None and j not in told.withheld
            receipts.append(self._receipt(j, me, made_under) if made else bytes(RECEIPT_BYTES))
        dead = bitmap(prepared, told.dead)
        client = MaskedClient(me, self.agreement, Identity(bytes(KEY_BYTES)), ClientPolicy())
        try:
            _, reply = client._unmask(fit, 1, UnmaskRequest(dead, b"".join(receipts), ()))
        except (PolicyError, MessageError):
            return None
        lock = code.lock_key(answer, bytes(KEY_BYTES), 1, me, header)
        story = bound("locked", header, me, dead)
        given = _labels(reply.answer_shares) | _labels(unseal(lock, reply.locked, story))
        own, lost, answers = ({j for kind, j in given if kind == k} for k in (SELF, RECOVERY, ANSWER))
        assert own == answers
        return Given(frozenset(own), frozenset(lost), told.forged & own)

    def _receipt(self, sender: int, receiver: int, asked: Asked) -> bytes:
        low, high = sorted((sender, receiver))
        prefix = bindings.pair_prefix(self.header(asked))
        (stream,) = bindings.pair_streams(digest("pair", low, high), prefix, low, (high,), 1)
        return stream[bindings.receipt_from(sender, receiver)]

    def uploads(self, story: Story) -> dict[int, tuple[int, ...]]:
        """Return the neighbours that each client masks with, of the clients that do."""
        asked = {i: self.asks(i, asked) for i, asked in story.asked.items()}
        return {i: prepared for i, prepared in asked.items() if prepared is not None}

    def given(self, story: Story) -> dict[int, Given]:
        """Return whose shares each client gives, of the clients that answer."""
        uploads = self.uploads(story)
        under = tuple(sorted((i, story.asked[i]) for i in uploads))
        answers = {
            i: self.gives(i, story.asked[i], told, under) for i, told in story.told.items() if i in uploads
        }
        return {i: given for i, given in answers.items() if given is not None}

    def secrets(self, given: Mapping[int, Given]) -> tuple[Clients, Clients, Clients]:
        """Return whose b, e and a open: the fixpoint."""
        enough = self.threshold - len(self.corrupted)

        def open_(shares: Iterable[Clients]) -> Clients:
            counted = list(shares)
            return frozenset(j for j in self.honest if sum(j in one for one in counted) >= enough)

        # Answer shares travel in clear, so that one pass is the fixpoint.
        answers = open_(one.good for one in given.values())
        readable = [one for i, one in given.items() if i in answers or not self.lock]
        return open_(one.good for one in readable), open_(one.dead for one in readable), answers

    def opened(self, story: Story) -> list[Clients]:
        """Return the smallest sets of honest clients whose sum opens."""
        uploads = self.uploads(story)
        seeds, masks, _ = self.secrets(self.given(story))
        # What is left on an upload: a mask of its own (None), or one with an honest neighbour.
        partners: dict[int, set[int | None]] = {}
        for i, prepared in uploads.items():
            left: set[int | None] = set() if i in seeds else {None}
            for j in prepared:
                if j not in self.corrupted and i not in masks and j not in masks:
                    cancels = j in uploads and story.asked[j] == story.asked[i]
                    left.add(j if cancels else None)
            partners[i] = left
        sets, seen = [], set[int]()
        for start in uploads:
            if start in seen:
                continue
            group: list[int | None] = [start]
            for i in group:
                group += [] if i is None else [j for j in sorted(partners[i], key=str) if j not in group]
            members = frozenset(i for i in group if i is not None)
            seen |= members
            if None not in group:
                sets.append(members)
        return sets


def _label(kind: int, client: int) -> bytes:
    return bytes([kind, client]) * (KEY_BYTES // 2)


def _labels(data: bytes) -> set[tuple[int, int]]:
    rows = [part(data, place, KEY_BYTES) for place in range(len(data) // KEY_BYTES)]
    assert all(row == _label(row[0], row[1]) for row in rows)
    return {(row[0], row[1]) for row in rows}


def unions(sets: Iterable[Clients]) -> set[Clients]:
    """Return all unions of one or more disjoint sets: every sum that follows from the smallest."""
    found: set[Clients] = {_NOBODY}
    for one in sets:
        found |= {one | other for other in found}
    return found - {_NOBODY}
