"""What a hostile server opens, with real cryptography, from all that it ever received.

It knows every upload, every share that was given, the whole state of corrupted clients, and secrets
that it made itself. It rebuilds what it can, takes off every mask that it can compute, and adds up
what is left over so that the remaining masks cancel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import KEY_BYTES, CryptographyError, unseal
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.crypto.shamir import combine, lagrange
from privfed.protocols.masked import bindings, blocks
from privfed.protocols.masked import masked_client as code
from privfed.protocols.masked.bindings import BOTH_RECEIPTS, commitment
from privfed.protocols.masked.client_state import SECRET_BYTES
from privfed.protocols.masked.masked_messages import Preparation
from privfed.protocols.setup.rules import bitmap, cohort_digest
from privfed.protocols.setup.setup_messages import part
from tests.protocols.hostile.kept import Answered, Collected, Fit
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import Words

SELF, RECOVERY, ANSWER = range(3)
Name = tuple[Preparation, int]
"""A preparation, and the place of a number in its block."""

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
        known: kind of secret -> whose it is, for which number -> the secret.
        lost: position of a lost client, session and number -> its secrets with others, by their position.
    """

    def __init__(self, server: HostileServer) -> None:
        self._server, self._agreement = server, server.agreement
        self.known: dict[int, dict[Name, bytes]] = {SELF: {}, RECOVERY: {}, ANSWER: {}}
        self.lost: dict[tuple[int, bytes, int], dict[int, bytes]] = {}
        self._shares: dict[tuple[Name, int], dict[int, bytes]] = defaultdict(dict)
        self._locked: list[Answered] = list(server.answered)
        self._session_of = {one: fit.session for fit in server.fits for one in fit.preparations.values()}
        self._made_by = {
            one: client for fit in server.fits for (_, _, client), one in fit.preparations.items()
        }
        self._preparations_of: dict[int, list[Preparation]] = defaultdict(list)
        for one, client in self._made_by.items():
            self._preparations_of[client].append(one)
        self._read_corrupted()
        for one in server.answered:
            self._read_clear(one)
        while self._unlock() | self._rebuild() | self._same():
            pass
        self._open_recovery()
        self._residuals = {id(one): self._strip(one) for one in server.collected}

    def _numbers(self, one: Preparation) -> range:
        return self._agreement.numbers(one.block)

    # Shares.

    def _read_corrupted(self) -> None:
        server = self._server
        for i in server.world.corrupted:
            fits = {fit.session: fit for fit in server.fits}
            for session, place, block in server.blocks_of(i):
                prepared = fits[session].preparations.get((place, block.cohort, i))
                for r, secrets in block.own.items() if prepared is not None else ():
                    assert prepared is not None
                    name = prepared, self._numbers(prepared).index(r)
                    for kind in (SELF, RECOVERY, ANSWER):
                        self.known[kind][name] = part(secrets, kind, KEY_BYTES)
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
        derived = server.secrets_with(fit, holder, sender, one.block, one.cohort)
        numbers, digest = self._numbers(one), cohort_digest(one.cohort, self._members(one))
        where = (fit.session, one.block, len(numbers), sender, holder)
        data = blocks.box_binding(*where, self._threshold(one), point, digest)
        plain = unseal(derived[blocks.sending(sender, holder)], box, data)
        assert len(plain) == SECRET_BYTES * len(numbers)
        for place in range(len(numbers)):
            for kind in (SELF, RECOVERY, ANSWER):
                self._shares[(one, place), kind][point] = part(plain, 3 * place + kind, KEY_BYTES)

    def _good(self, one: Answered) -> tuple[int, ...]:
        return tuple(j for j in one.told.neighbours if j not in one.dead or self._both)

    _both = False
    """Whether clients give the shares of the living for the dead too: a weaker form."""

    def _read_clear(self, one: Answered) -> None:
        for place, j in enumerate(self._good(one)):
            self._keep(one, j, ANSWER, part(one.reply.answer_shares, place, KEY_BYTES))

    def _keep(self, one: Answered, target: int, kind: int, data: bytes) -> None:
        told = one.told
        preparation, place = told.used[target], self._numbers(told.own).index(told.number)
        abscissa = self._server.abscissa_of(told.fit, preparation.cohort, target, told.client)
        self._shares[(preparation, place), kind][abscissa] = data

    def _unlock(self) -> bool:
        """Open the answers whose key is known; say whether there was one."""
        left = [one for one in self._locked if not self._open(one)]
        changed = len(left) < len(self._locked)
        self._locked = left
        return changed

    def _open(self, one: Answered) -> bool:
        told, reply = one.told, one.reply
        # Where a weaker form has no lock, the key does not depend on the answer key.
        name = told.own, self._numbers(told.own).index(told.number)
        key = self.known[ANSWER].get(name, bytes(KEY_BYTES))
        lock = code.lock_key(key, told.fit.session, told.number, told.client, told.header)
        flags = bitmap(told.neighbours, one.dead)
        try:
            plain = unseal(lock, reply.locked, code.lock_binding(told.header, told.client, flags))
        except CryptographyError:
            return False
        good = self._good(one)
        kinds = [(j, SELF) for j in good] + [(j, RECOVERY) for j in told.neighbours if j in one.dead]
        assert len(plain) == KEY_BYTES * len(kinds)
        for place, (j, kind) in enumerate(kinds):
            self._keep(one, j, kind, part(plain, place, KEY_BYTES))
        return True

    def _rebuild(self) -> bool:
        """Rebuild the secrets of which enough shares are there; say whether one was new."""
        new = False
        for (name, kind), shares in self._shares.items():
            t = self._threshold(name[0])
            if name in self.known[kind] or len(shares) < t:
                continue
            points = tuple(sorted(shares))[:t]
            rows = np.frombuffer(b"".join(shares[p] for p in points), dtype=np.uint8).reshape(1, t, KEY_BYTES)
            self.known[kind][name] = combine(rows, lagrange(points)[None])[0].tobytes()
            new = True
            if kind != ANSWER:
                assert self._is(self.known[kind][name], name, kind)
        return new

    def _same(self) -> bool:
        """Find secrets that are committed to elsewhere too; say whether there was one."""
        before = sum(map(len, self.known.values()))
        for kind in (SELF, RECOVERY):
            for (one, _), secret in list(self.known[kind].items()):
                for other in self._preparations_of[self._made_by[one]]:
                    for place in range(len(self._numbers(other))) if other != one else ():
                        if self._is(secret, (other, place), kind):
                            self.known[kind][other, place] = secret
        return sum(map(len, self.known.values())) > before

    def _is(self, secret: bytes, name: Name, kind: int) -> bool:
        """Say whether a secret is what was committed to."""
        one, place = name
        number, client, session = self._numbers(one)[place], self._made_by[one], self._session_of[one]
        made = commitment(("self", "recovery")[kind], secret, session, number, client)
        return made == part(one.commitments, 2 * place + kind, KEY_BYTES)

    # Masks.

    def _open_recovery(self) -> None:
        """Open R of those whose e is known: their secrets with all others, for one number."""
        for (one, place), secret in self.known[RECOVERY].items():
            number, client, session = self._numbers(one)[place], self._made_by[one], self._session_of[one]
            near = self._agreement.neighbours(session, one.cohort, client).clients
            pad = blocks.recovery_pad(secret, session, number, client, len(near))
            rows = np.frombuffer(one.recovery, dtype=np.uint8).reshape(-1, len(near), KEY_BYTES)
            seeds = (rows[place] ^ pad).tobytes()
            self.lost[client, session, number] = {j: part(seeds, at, KEY_BYTES) for at, j in enumerate(near)}

    def _seed(self, one: Collected, other: int) -> bytes | None:
        """Return the secret of two clients for a number, where the server has it."""
        for me, them in ((one.client, other), (other, one.client)):
            found = self.lost.get((me, one.fit.session, one.number), {})
            if them in found:
                return found[them]
            if me in self._server.world.corrupted:
                return self._server.seed_of(one.fit, me, them, one.number, one.cohort)
        return self._unhidden(one, other)

    def _unhidden(self, one: Collected, other: int) -> bytes | None:
        """Return the same where R hides nothing: a weaker form, whose pad does not depend on e."""
        bound_to = (one.fit.session, one.number, one.client, len(one.neighbours))
        if blocks.recovery_pad(bytes(32), *bound_to).tobytes() != bytes(KEY_BYTES * len(one.neighbours)):
            return None
        near = self._agreement.neighbours(one.fit.session, one.cohort, one.client).clients
        rows = np.frombuffer(one.own.recovery, dtype=np.uint8).reshape(-1, len(near), KEY_BYTES)
        return bytes(rows[self._numbers(one.own).index(one.number), near.index(other)])

    def _strip(self, one: Collected) -> tuple[Words, bool, set[Edge]]:
        """Take off all masks that can be computed.

        Return what is left, whether the own mask is still on it, and the pair masks that are.
        """
        grid = grid_of(one.question, len(self._members(one.own)))
        words, masks, adds, edges = one.words.copy(), list[bytes](), list[bool](), set[Edge]()
        session, number, me = one.fit.session, one.number, one.client
        seed = self.known[SELF].get((one.own, self._numbers(one.own).index(number)))
        # A weaker form's own mask may not depend on the secret.
        own, weak = (
            bindings.self_stream(secret, session, number, me, one.header, grid.size)
            for secret in (seed or bytes(KEY_BYTES), bytes([1]) * KEY_BYTES)
        )
        is_off = seed is not None or own == weak
        # A weaker form's masks may not depend on the header.
        prefix = bindings.pair_prefix(one.header)
        if is_off:
            masks.append(own)
            adds.append(False)
        for j in one.neighbours:
            shared, low, high = self._seed(one, j), min(me, j), max(me, j)
            if shared is None:
                edges.add((session, number, low, high, prefix))
                continue
            (stream,) = bindings.pair_streams(shared, prefix, me, (j,), grid.size)
            masks.append(stream[BOTH_RECEIPTS:])
            adds.append(me > j)
        Masker(grid).apply(words, masks, np.array(adds, dtype=np.bool_))
        return words, not is_off, edges

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
