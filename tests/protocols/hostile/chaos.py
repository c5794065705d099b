"""Hostile servers drawn at random: every lie that the messages have room for, told to real clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

import msgspec
import numpy as np

from privfed.core.agreed.configuration import CohortRule
from privfed.core.stored.encoding import Refusal, decode
from privfed.errors import MessageError
from privfed.protocols.crypto.keys import new_secret
from privfed.protocols.masked.masked_messages import Preparation, Prepared
from privfed.protocols.setup.setup_messages import Envelope
from tests.protocols.hostile.kept import Fit
from tests.protocols.hostile.loot import Loot, Opened
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import World, terms_of


class Chaos:
    """One hostile server, its clients and its lies.

    Args:
        n: how many clients.
        rng: draws everything but keys.
    """

    def __init__(self, n: int, rng: np.random.Generator) -> None:
        self._rng = rng
        rule = _rule(n, rng)
        terms = terms_of(rule.smallest(n), threshold=int(rng.choice([0] * 9 + [rule.smallest(n) - 1])))
        bad = [int(i) for i in rng.permutation(n)[: terms.colluders]]
        n_corrupted = int(rng.integers(len(bad) + 1))
        self.forked = frozenset(bad[n_corrupted:])
        """Clients whose state is restored at will; they count among the colluders."""
        self.world = World(n, terms=terms, corrupted=bad[:n_corrupted], rule=rule)
        self.server = HostileServer(self.world)
        self._called = Counter[tuple[int, int]]()

    def run(self, n_sums: int) -> list[Opened]:
        """Lie for some sums over two set-ups; return what opens from everything together."""
        fit, last = self.server.open(), 0
        for place in range(n_sums):
            if place == n_sums // 2:
                fit, last = self._set_up(), int(self._rng.integers(2))
            last += int(self._rng.integers(1, 3))
            # Clients that hear different stories share no mask later: most sums tell most clients one.
            self._apart = 1.0 if place == n_sums - 1 else self._rng.choice([0.0, 0.0, 0.1, 1.0])
            last = self._sum(fit, last)
            self._replay()
        return Loot(self.server).opened()

    def violations(self, found: Iterable[Opened]) -> list[str]:
        """Return what among the opened sums breaks the promise."""
        broken, seen = [], set[tuple[bytes, int]]()
        for one in found:
            told = one.uploads[0]
            honest = one.clients - self.forked - self.world.corrupted
            promise = self.world.promise(told.cohort)
            if not one.is_true:
                broken.append("not the sum")
            if len(honest) < promise:
                broken.append(f"{len(honest)} of {promise}")
            if {other.header for other in one.uploads} != {told.header}:
                broken.append("told different things")
            if (told.fit.session, told.number) in seen:
                broken.append("two sums for one number")
            seen.add((told.fit.session, told.number))
        return broken

    # Set-ups.

    def _set_up(self) -> Fit:
        """Begin again, sometimes with two lists for two halves."""
        server, rng = self.server, self._rng
        if rng.random() < 0.5:
            return server.open()
        fit = new_secret()
        listed = [server.advertise(i, fit) for i in server.everyone]
        gone = {int(i) for i in rng.permutation(len(listed))[: max(1, len(listed) // 5)]}
        one, other = (
            server.fit_of(fit, listed),
            server.fit_of(fit, [x for x in listed if x.client not in gone]),
        )
        for i in server.everyone:
            if i in gone or rng.random() < 0.1:
                assert server.join(one, i) == ""
            else:
                assert server.join(other, i) == ""
        return other

    # Sums.

    def _ahead(self, fit: Fit, number: int, label: int) -> int:
        """Return a number whose block was not prepared for another cohort, most of the time."""
        server, block = self.server, self.server.block_of(number)
        labels = {named for place, named, _ in fit.preparations if place == block}
        if labels <= {label} or self._rng.random() < 0.2:
            return number
        highest = max(place for place, _, _ in fit.preparations)
        return server.agreement.numbers(highest)[-1] + 1

    def _sum(self, fit: Fit, number: int) -> int:
        rng, server, world = self._rng, self.server, self.world
        label = int(rng.choice([0, 0, 1, 2, 3]))
        number = self._ahead(fit, number, label)
        members = world.agreement.configuration.cohort(label)
        here = self._together([i for i in members if self._is_in(fit, i)])
        server.prepare(fit, number, label, here)
        if rng.random() < 0.3:
            server.prepare(fit, number, label + 1, self._some(here, 2))
            server.prepare(fit, number + 1, int(rng.integers(4)), self._some(here, 3))
        block = server.block_of(number)
        ready = frozenset(i for i in here if (block, label, i) in fit.preparations)
        order = self._some(ready - world.corrupted, len(ready))
        slack = max(0, len(ready) - 1 - server.agreement.threshold(label))
        # Colluders hold shares too: so many others can be called dead by enough clients, one by one.
        needed = max(1, server.agreement.threshold(label) - len(ready & world.corrupted))
        asked = self._lists(ready, order, len(order) * slack // needed)
        late = [i for i in order if rng.random() < self._lateness]
        for i in [j for j in order if j not in late]:
            self._collect(fit, i, number, label, *asked[i])
        self._common = frozenset(self._some(self._targets, int(rng.integers(slack + 1))))
        for i in order:
            if i in self._common and rng.random() < 0.9:
                continue
            self._unmask(fit, i, number)
            if rng.random() < 0.1:
                self._collect(fit, i, number, label, 1 - asked[i][0], asked[i][1])
        for i in late:
            self._collect(fit, i, number, label, *asked[i])
            self._unmask(fit, i, number)
        return number

    def _lists(
        self, ready: frozenset[int], order: list[int], dying: int
    ) -> dict[int, tuple[int, frozenset[int]]]:
        """Choose what each client is told in the first exchange, and whom to call dead in the second."""
        rng, n = self._rng, len(order)
        mode = self._mode = rng.choice(["spread", "two lists", "mixed"])
        self._lateness = rng.choice([0.0, 0.0, 0.1])
        self._greed = rng.choice([0.7, 1.0])
        alive = int(rng.integers(1, max(2, n // 2))) if rng.random() < 0.5 else max(1, n - dying)
        self._targets = order[alive:]
        if mode == "two lists":
            alive, edge = max(1, n // 2 - int(rng.integers(3))), int(rng.integers(2, max(3, n // 3)))
            self._targets = order[alive : alive + edge]
            short = ready - set(order[alive + edge :])
            return {i: (0, short if i in order[:alive] else ready) for i in order}
        apart = rng.choice([0.1, 0.5]) if mode == "mixed" else 0.0
        lists = [ready - set(self._some(ready, int(k))) for k in rng.choice([0, 0, 1], size=2)]
        kinds = {i: int(rng.random() < apart) for i in order}
        return {i: (int(rng.random() < apart / 3), lists[kinds[i]] | {i}) for i in order}

    def _together(self, here: list[int]) -> list[int]:
        """Return the clients that one history leads on, most of the time, or all of these."""
        stories = {i: tuple(self.server.heard[i]) for i in here}
        most = Counter(stories.values()).most_common(1)[0][0]
        same = [i for i in here if stories[i] == most[: len(stories[i])]]
        return here if self._rng.random() < 0.1 else same

    def _is_in(self, fit: Fit, client: int) -> bool:
        state = self.world.stores[client].load()
        return state.keys is not None and state.keys.session == fit.session

    def _some(self, items: Iterable[int], count: int) -> list[int]:
        return [int(i) for i in self._rng.permutation(sorted(items))[:count]]

    def _collect(
        self, fit: Fit, i: int, number: int, label: int, question: int, prepared: frozenset[int]
    ) -> None:
        told = {"question": question, "prepared": prepared, "cohort": label}
        if self._rng.random() < 0.05 and prepared != {i}:
            self.server.collect(fit, i, number, **told, swap=self._wrong(fit, number, label, prepared - {i}))
        self.server.collect(fit, i, number, **told)

    def _wrong(self, fit: Fit, number: int, label: int, clients: frozenset[int]) -> dict[int, Preparation]:
        """Return for one client a preparation of another block, set-up or client, or with spoiled boxes."""
        rng = self._rng
        (j,) = self._some(clients, 1)
        of_cohort = [
            one
            for each in self.server.fits
            for (_, cohort, _), one in each.preparations.items()
            if cohort == label
        ]
        other = of_cohort[int(rng.integers(len(of_cohort)))]
        own = self.server.prepared(fit, j, number, label)
        foreign = msgspec.structs.replace(own, boxes=own.boxes[::-1])
        return {j: foreign if rng.random() < 0.5 else other}

    def _unmask(self, fit: Fit, i: int, number: int) -> None:
        server, world = self.server, self.world
        copy = world.stores[i].load()
        for _ in range(2 if i in self.forked or self._rng.random() < 0.2 else 1):
            if i in self.forked:
                world.stores[i].save(copy)
            dead, withheld = self._story(fit, i, number)
            server.unmask(fit, i, number, dead, withheld)

    def _story(self, fit: Fit, i: int, number: int) -> tuple[frozenset[int], frozenset[int]]:
        rng, told = self._rng, self.server.upload_of(fit, i, number)
        if told is None:
            return frozenset(), frozenset()
        uploads = {j: self.server.upload_of(fit, j, number) for j in told.neighbours}
        matching = [
            j
            for j, upload in uploads.items()
            if j in self.world.corrupted or (upload is not None and upload.header == told.header)
        ]
        if rng.random() >= self._apart:
            return (self._common - {i}) | (frozenset(told.neighbours) - set(matching)), frozenset()
        t = self.world.agreement.threshold(told.cohort)
        slack = max(0, len(matching) - t)
        count = (
            slack if rng.random() < self._greed else int(rng.integers(slack + 1)) + int(rng.random() < 0.1)
        )
        shuffled = self._some(matching, len(matching))
        lost = sorted(shuffled, key=lambda j: (j not in self._targets, self._called[number, j]))[:count]
        if self._mode == "two lists":
            lost = [j for j in lost if j in self._targets]
        self._called.update((number, j) for j in lost)
        withheld = frozenset(j for j in lost if rng.random() < 0.02)
        return frozenset(lost) - withheld | (frozenset(told.neighbours) - set(matching)), withheld

    def _replay(self) -> None:
        """Send old requests again: what is answered is a refusal, or the very reply of before."""
        rng, world = self._rng, self.world
        for fit in self.server.fits:
            for place in rng.integers(len(fit.requests), size=5) if fit.requests else ():
                client, request = fit.requests[int(place)]
                if b"RosterRequest" in request[:32]:
                    continue
                before = set(world.replies[client])
                reply = world.ask(client, request)
                assert client in self.forked or reply in before or self._is_nothing_new(client, reply)

    def _is_nothing_new(self, client: int, reply: bytes) -> bool:
        """Say whether a reply is a refusal, or preparations that were sent before."""
        message = decode(reply, Envelope | Refusal, sender="client", stage="")
        for fit in self.server.fits:
            if isinstance(message, Envelope) and client in fit.channels:
                with suppress(MessageError):
                    message = fit.channels[client].up.open(message, Prepared | Refusal, "client")
                    known = fit.preparations.values()
        return isinstance(message, Refusal) or all(one in known for one in message.preparations)


def _rule(n: int, rng: np.random.Generator) -> CohortRule:
    if n < 8 or rng.random() < 0.5:
        return CohortRule()
    size = int(rng.integers(max(5, n // 2), n))
    if rng.random() < 0.5:
        return CohortRule(kind="sampled", size=size, seed=int(rng.integers(1 << 30)))
    rounds = tuple(tuple(sorted(int(i) for i in rng.permutation(n)[:size])) for _ in range(3))
    return CohortRule(kind="schedule", rounds=rounds)
