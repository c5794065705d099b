"""What a hostile server opens, with real cryptography, from all that it ever received.

It knows every upload, every share that was given, the whole state of corrupted clients, and secrets
that it made itself. It rebuilds what it can, takes off every mask that it can compute, and adds up
what is left over so that the remaining masks cancel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import KEY_BYTES, CryptographyError, bound, digest, public_key, unseal
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.crypto.shamir import combine, lagrange
from privfed.protocols.masked import boxes, masking
from privfed.protocols.masked import client as code
from privfed.protocols.masked.messages import Preparation
from privfed.protocols.masked.state import SHARES_BYTES
from privfed.protocols.setup.bindings import part
from privfed.protocols.setup.rules import bitmap, cohort_digest
from tests.protocols.hostile.server import Answered, Collected, Fit, HostileServer
from tests.protocols.hostile.world import Words

SEED, MASK, ANSWER = range(3)
Edge = tuple[object, ...]


@dataclass(eq=False)
class Opened:
    """Uploads whose sum the server can read, and that sum."""

    uploads: tuple[Collected, ...]
    words: Words

    @property
    def clients(self) -> frozenset[int]:
        """Whose uploads they are."""
        return frozenset(one.client for one in self.uploads)

    @property
    def is_true(self) -> bool:
        """Whether the opened sum is that of the answers."""
        return bool(np.array_equal(self.words, total(one.truth for one in self.uploads)))


def total(vectors: Iterable[Words]) -> Words:
    """Return the sum modulo 2^64."""
    return np.sum(list(vectors), axis=0, dtype=np.uint64)


class Loot:
    """Everything that a server opened.

    Attributes:
        seeds: hash of a self-mask seed -> the seed.
        masks: public mask key -> the secret.
        answers: preparation -> its answer key.
    """

    def __init__(self, server: HostileServer, own: Iterable[bytes] = ()) -> None:
        self._server, self._agreement = server, server.agreement
        self.seeds: dict[bytes, bytes] = {}
        self.masks: dict[bytes, bytes] = {public_key(secret): secret for secret in own}
        self.answers: dict[Preparation, bytes] = {}
        self._shares: dict[tuple[Preparation, int], dict[int, bytes]] = defaultdict(dict)
        self._locked: list[Answered] = list(server.answered)
        self._read_corrupted()
        for one in server.answered:
            self._read_clear(one)
        while self._unlock() | self._rebuild():
            pass
        self._residuals = {id(one): self._strip(one) for one in server.collected}

    # Shares.

    def _read_corrupted(self) -> None:
        server = self._server
        for i in server.world.corrupted:
            for own in server.secrets_of(i):
                self.seeds[digest("seed", own.seed)] = own.seed
                self.masks[public_key(own.mask)] = own.mask
                self.answers[own.sent] = own.answer
            for fit in server.fits:
                listed = {one.client for one in fit.listed}
                for (_, _, j), preparation in fit.preparations.items():
                    near = self._agreement.neighbours(fit.session, preparation.cohort, j).clients
                    if i in near and i in listed:
                        self._read_box(fit, j, preparation, i)

    def _members(self, preparation: Preparation) -> tuple[int, ...]:
        return self._agreement.configuration.cohort(preparation.cohort)

    def _threshold(self, preparation: Preparation) -> int:
        # Through the client's module: a test of a weaker form may have changed it there.
        return code.threshold(len(self._members(preparation)), self._agreement.configuration.terms)

    def _read_box(self, fit: Fit, sender: int, one: Preparation, holder: int) -> None:
        server, point = self._server, self._server.abscissa_of(fit, one.cohort, sender, holder)
        box = server.box_of(fit, one, sender, holder)
        if not any(box):
            return
        session, pair = fit.session, server.pair_key(fit, holder, sender)
        data = boxes.box_binding(
            session,
            one.number,
            sender,
            holder,
            self._threshold(one),
            point,
            cohort_digest(one.cohort, self._members(one)),
            one.mask_key,
            one.seed_hash,
        )
        plain = unseal(boxes.box_key(pair, session, one.number, sender, holder), box, data)
        for kind in (SEED, MASK, ANSWER):
            self._shares[one, kind][point] = part(plain, kind, KEY_BYTES)
        assert len(plain) == SHARES_BYTES

    def _good(self, one: Answered) -> tuple[int, ...]:
        left_out = set(one.reply.left_out)
        return tuple(
            j for j in one.told.neighbours if j not in left_out and (j not in one.dead or self._both)
        )

    _both = False
    """Whether clients give the shares of the living for the dead too: a weaker form."""

    def _read_clear(self, one: Answered) -> None:
        for place, j in enumerate(self._good(one)):
            self._keep(one, j, ANSWER, part(one.reply.answer_shares, place, KEY_BYTES))

    def _keep(self, one: Answered, target: int, kind: int, data: bytes) -> None:
        preparation = one.told.used[target]
        told = one.told
        abscissa = self._server.abscissa_of(told.fit, preparation.cohort, target, told.client)
        self._shares[preparation, kind][abscissa] = data

    def _unlock(self) -> bool:
        """Open the answers whose key is known; say whether there was one."""
        left = [one for one in self._locked if not self._open(one)]
        changed = len(left) < len(self._locked)
        self._locked = left
        return changed

    def _open(self, one: Answered) -> bool:
        told, reply = one.told, one.reply
        # Where a weaker form has no lock, the key does not depend on the answer key.
        key = self.answers.get(told.own, bytes(KEY_BYTES))
        lock = code.expand(key, bound("lock", told.fit.session, told.number, told.client, told.header))
        flags = bitmap(told.neighbours, one.dead)
        try:
            plain = unseal(
                lock, reply.locked, code.lock_binding(told.header, told.client, flags, reply.left_out)
            )
        except CryptographyError:
            return False
        good = self._good(one)
        kinds = [(j, SEED) for j in good] + [(j, MASK) for j in told.neighbours if j in one.dead]
        assert len(plain) == KEY_BYTES * len(kinds)
        for place, (j, kind) in enumerate(kinds):
            self._keep(one, j, kind, part(plain, place, KEY_BYTES))
        return True

    def _rebuild(self) -> bool:
        """Rebuild the secrets of which enough shares are there; say whether one was new."""
        known, new = {SEED: self.seeds, MASK: self.masks, ANSWER: self.answers}, False
        for (one, kind), shares in self._shares.items():
            name = {SEED: one.seed_hash, MASK: one.mask_key, ANSWER: one}[kind]
            t = self._threshold(one)
            if name in known[kind] or len(shares) < t:
                continue
            points = tuple(sorted(shares))[:t]
            rows = np.frombuffer(b"".join(shares[p] for p in points), dtype=np.uint8).reshape(1, t, KEY_BYTES)
            known[kind][name] = combine(rows, lagrange(points)[None])[0].tobytes()  # type: ignore[index]
            new = True
        for name, seed in self.seeds.items():
            assert digest("seed", seed) == name
        for name, mask in self.masks.items():
            assert public_key(mask) == name
        return new

    # Masks.

    def _pairs(self, one: Collected) -> Iterator[tuple[int, bytes, bytes | None, bool]]:
        """Yield each neighbour, its mask key, a secret of one side where it is known, and whose it is."""
        for j, preparation in one.used.items():
            own = self.masks.get(one.own.mask_key)
            yield j, preparation.mask_key, own or self.masks.get(preparation.mask_key), own is not None

    def _strip(self, one: Collected) -> tuple[Words, bool, set[Edge]]:
        """Take off all masks that can be computed.

        Return what is left, whether the own mask is still on it, and the pair masks that are.
        """
        grid = grid_of(one.question, len(self._members(one.own)))
        words, masker, edges = one.words.copy(), Masker(grid), set[Edge]()
        session, number, me = one.fit.session, one.number, one.client
        seed = self.seeds.get(one.own.seed_hash)
        keys: list[tuple[bool, bytes]] = []
        # A weaker form's own mask may not depend on the seed.
        own_key = masking.self_mask_key(seed or bytes(KEY_BYTES), session, number, me, one.header)
        weak = own_key == masking.self_mask_key(bytes([1]) * KEY_BYTES, session, number, me, one.header)
        if seed is not None or weak:
            keys.append((False, own_key))
        for j, public, secret, is_own in self._pairs(one):
            if secret is None:
                low, high = sorted(((me, one.own.mask_key), (j, public)))
                edges.add((session, number, low, high, one.header))
                continue
            other = public if is_own else one.own.mask_key
            keys.append((me > j, masking.pair_mask_key(secret, other, session, number, me, j, one.header)))
        for negative, key in keys:
            (masker.add if negative else masker.subtract)(words, key)
        return words, seed is None and not weak, edges

    # Sums.

    def opened(self) -> list[Opened]:
        """Return the smallest sets of uploads whose sum is left without a mask, with the sums."""
        uploads = self._server.collected
        ends: dict[Edge, list[Collected]] = defaultdict(list)
        for one in uploads:
            for edge in self._residuals[id(one)][2]:
                ends[edge].append(one)
        seen: set[int] = set()
        found: list[Opened] = []
        for one in uploads:
            if id(one) in seen:
                continue
            group, closed = self._component(one, ends)
            seen |= {id(member) for member in group}
            if not closed:
                words = total(self._residuals[id(member)][0] for member in group)
                found.append(Opened(tuple(group), words))
        return found

    def _component(self, start: Collected, ends: dict[Edge, list[Collected]]) -> tuple[list[Collected], bool]:
        group, reached, closed = [start], {id(start)}, False
        for member in group:
            _, masked, edges = self._residuals[id(member)]
            closed |= masked
            for edge in edges:
                closed |= len({id(end) for end in ends[edge]}) != 2
                for end in ends[edge]:
                    if id(end) not in reached:
                        reached.add(id(end))
                        group.append(end)
        return group, closed

    def subsets_that_fit(self, number: int) -> set[frozenset[int]]:
        """Try all sets of a number's uploads: which sums, without the known masks, are the true ones?"""
        uploads = [one for one in self._server.collected if one.number == number]
        left = [self._residuals[id(one)][0] - one.truth for one in uploads]
        fitting: set[frozenset[int]] = set()
        sums = [np.zeros_like(left[0])] if left else []
        for vector in left:
            sums += [partial + vector for partial in sums]
        for index, partial in enumerate(sums):
            if index and not partial.any():
                fitting.add(frozenset(one.client for place, one in enumerate(uploads) if index >> place & 1))
        return fitting


class BothLoot(Loot):
    """Loot of clients that give both secrets of those called dead: a weaker form."""

    _both = True
