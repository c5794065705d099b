"""All stories of a small cohort: each client's options come from the real code, their product from numpy.

Only stories that open the most need looking at. What a server knows grows with every share, so that

- each honest client is asked in both exchanges;
- whoever has a matching receipt is called dead or alive, and its receipt is passed on: to leave it out
  gives no share of it;
- whoever has not (another question, another list, no upload) is called dead;
- at most one group of clients that were told the same can answer: each answer needs t - c honest
  others of the group, and two groups of t - c + 1 are more than all.

So a story is: a list P, the group told of it that uploads, and for each of the group whom it calls dead.
`unreduced` drops all four reductions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.protocols.hostile.model import Asked, Clients, Given, Model, Told

Packed = npt.NDArray[np.uint64]
Options = list[Given]
_ONES = 0x0101010101010101
_BLOCK = 1 << 14


def subsets(items: Clients, at_least: int = 0) -> Iterator[Clients]:
    """Yield all subsets of a size and above."""
    pool = sorted(items)
    for size in range(at_least, len(pool) + 1):
        yield from map(frozenset, combinations(pool, size))


def options(model: Model, me: int, prepared: Clients, group: Clients) -> Options:
    """Return what a client gives for each story that it accepts; who is not in the group is dead."""
    asked, others = Asked(0, prepared), prepared - {me} - model.corrupted
    under = tuple((i, asked) for i in sorted(group))
    answers = (
        model.gives(me, asked, Told(dead | (others - group)), under) for dead in subsets(others & group)
    )
    return [given for given in answers if given is not None]


def three_way(model: Model, me: int, asked: dict[int, Asked], *, forging: bool = False) -> list[Given | None]:
    """Return what a client gives for each story at all, no answer last; alike ones once.

    A client that refuses where all are called alive refuses every story: each other has fewer good.

    Args:
        model: the clients.
        me: the client.
        asked: what each was told before.
        forging: whether receipts of clients that made none are forged, in all ways.
    """
    others = asked[me].prepared - {me}
    without = {j for j in others - model.corrupted if asked.get(j) != asked[me]} if forging else frozenset()
    under = tuple(sorted(asked.items()))
    found: dict[Given, None] = {}
    if model.gives(me, asked[me], Told(frozenset(), forged=frozenset(without)), under) is None:
        return [None]
    for dead in subsets(others):
        for withheld in subsets(others - dead):
            for forged in subsets(frozenset(without) - dead - withheld):
                given = model.gives(me, asked[me], Told(dead, withheld, forged), under)
                if given is not None:
                    found[given] = None
    return [*found, None]


def _pack(clients: Clients) -> int:
    return sum(1 << 8 * j for j in clients)


def _at_least(counts: Packed, need: int) -> Packed:
    """Return 1 in each byte whose count is at least `need`, for counts and needs below 128."""
    return ((counts + np.uint64(_ONES * (0x80 - need))) >> np.uint64(7)) & np.uint64(_ONES)


class Enumerator:
    """All stories in which the same clients were told the same in the first exchange.

    Args:
        model: whose threshold and corrupted clients count.
        groups: honest clients of a list, and those told of it, for each list and question.
        answers: what each client that was told can give, by client; None for no answer.
        weights: for how many stories each answer of the first client stands; by default one.
    """

    def __init__(
        self,
        model: Model,
        groups: Sequence[tuple[Clients, Clients]],
        answers: Mapping[int, Sequence[Given | None]],
        weights: Sequence[int] = (),
    ) -> None:
        self._need = model.threshold - len(model.corrupted)
        self._lock = model.lock
        self._groups = [(np.uint64(_pack(prepared)), np.uint64(_pack(told))) for prepared, told in groups]
        self._clients = sorted(answers)
        own = [answers[i] for i in self._clients]
        self._lengths = [len(one) for one in own]
        self._tables = [
            [_column([one.good if one else frozenset() for one in each]) for each in own],
            [_column([one.dead if one else frozenset() for one in each]) for each in own],
            [np.array([one is not None for one in each], dtype=np.uint64) for each in own],
            [_column([one.forged if one else frozenset() for one in each]) for each in own],
        ]
        self._weights = tuple(weights) or (1,) * self._lengths[0]
        self.stories = prod(self._lengths[1:]) * sum(self._weights)

    def sizes(self) -> Counter[int]:
        """Return how many stories open a set of which size; a story may open several."""
        inner = len(self._lengths) - 1
        while inner > 1 and prod(self._lengths[inner - 1 :]) <= _BLOCK:
            inner -= 1
        rows = np.indices(self._lengths[inner:]).reshape(len(self._lengths) - inner, -1)
        found: Counter[int] = Counter()
        for outer in product(*map(range, self._lengths[:inner])):
            sizes = self._block([*outer, *rows])
            found += Counter({size: self._weights[outer[0]] * count for size, count in sizes.items()})
        return found

    def drawn(self, rng: np.random.Generator, count: int) -> Counter[int]:
        """Return the same for stories drawn at random."""
        return self._block([rng.integers(length, size=count) for length in self._lengths])

    def _block(self, chosen: Sequence[Any]) -> Counter[int]:
        good, dead, answers, forged = (
            [column[one] for column, one in zip(table, chosen, strict=True)] for table in self._tables
        )
        keys = _at_least(_sum(good), self._need)
        readable = [
            (keys >> np.uint64(8 * i)) & flag if self._lock else flag
            for i, flag in zip(self._clients, answers, strict=True)
        ]
        seeds = _at_least(_sum([one * flag for one, flag in zip(good, readable, strict=True)]), self._need)
        masks = _at_least(_sum([one * flag for one, flag in zip(dead, readable, strict=True)]), self._need)
        # A receipt is forged with the secret of two clients, which R of either gives once its e is open.
        possible = np.ones(masks.shape, dtype=np.bool_)
        for i, one in zip(self._clients, forged, strict=True):
            possible &= ((one & ~masks) == 0) | ((masks >> np.uint64(8 * i)) & np.uint64(1) == 1)
        found: Counter[int] = Counter()
        for prepared, told in self._groups:
            # On the full graph all of a list whose mask keys are closed hang together.
            closed, opened = prepared & ~masks, told & seeds
            together = np.where(((closed & ~opened) == 0) & possible, np.bitwise_count(closed), 0)
            found += _count(together)
            found += Counter({1: int(np.bitwise_count(opened & masks)[possible].sum())})
        return found


def _count(sizes: npt.NDArray[Any]) -> Counter[int]:
    counts = np.bincount(sizes.ravel().astype(np.int64), minlength=2)
    return Counter({size: int(count) for size, count in enumerate(counts) if size and count})


def _column(sets: list[Clients]) -> Packed:
    return np.array([_pack(one) for one in sets], dtype=np.uint64)


def _sum(parts: list[Packed]) -> Packed:
    total = parts[0]
    for one in parts[1:]:
        total = total + one
    return np.atleast_1d(total)


def reduced(model: Model) -> Iterator[Enumerator]:
    """Yield all stories, up to names: each size of list and group, and all stories of deaths."""
    honest = model.honest
    for n_prepared in range(2, len(honest) + 1):
        prepared = frozenset(honest[:n_prepared])
        for n_group in range(1, n_prepared + 1):
            group = frozenset(honest[:n_group])
            own = {i: options(model, i, prepared | model.corrupted, group) for i in group}
            if all(own.values()):
                yield Enumerator(model, [(prepared, group)], *_up_to_names(own, n_prepared == n_group))


def _up_to_names(own: dict[int, Options], all_alike: bool) -> tuple[dict[int, Options], list[int]]:
    """Keep one answer of the first client for each number of deaths, where the others are alike."""
    first = min(own)
    by_size: dict[int, Options] = {}
    for one in own[first]:
        by_size.setdefault(len(one.dead) if all_alike else len(by_size), []).append(one)
    return own | {first: [ones[0] for ones in by_size.values()]}, [len(ones) for ones in by_size.values()]


Kind = tuple[tuple[Clients, Clients], tuple[Clients, Clients]]


def kinds(model: Model) -> Iterator[Kind]:
    """Yield, up to names, two lists and who was told of each; some clients are told nothing."""
    honest, everyone = model.honest, frozenset(model.honest)
    for one in range(len(honest) + 1):
        for other in range(len(honest) - one + 1):
            groups = frozenset(honest[:one]), frozenset(honest[one : one + other])
            for lists in product(*(subsets_above(group, everyone) for group in groups)):
                yield (lists[0], groups[0]), (lists[1], groups[1])


def stories_of(model: Model, kind: Kind, *, forging: bool = False) -> Enumerator | None:
    """Return all stories of a kind, also those that leave clients out; None where nobody answers any."""
    asked = {
        i: Asked(question, prepared | model.corrupted)
        for question, (prepared, group) in enumerate(kind)
        for i in group
    }
    answers = {i: three_way(model, i, asked, forging=forging) for i in asked}
    return Enumerator(model, kind, answers) if any(len(own) > 1 for own in answers.values()) else None


def unreduced(model: Model, *, forging: bool = False) -> Iterator[Enumerator]:
    """Yield all stories of at most two things told, up to names."""
    every = (stories_of(model, kind, forging=forging) for kind in kinds(model))
    return (one for one in every if one is not None)


def subsets_above(inner: Clients, outer: Clients) -> Iterator[Clients]:
    """Yield all sets between two."""
    return (inner | more for more in subsets(outer - inner))
