"""Stories: drawn at random, and built to break a form without receipts or without locks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tests.protocols.hostile.model import Asked, Clients, Model, Story, Told


def _chosen(rng: np.random.Generator, items: Iterable[int], count: int) -> Clients:
    pool = sorted(items)
    return frozenset(int(i) for i in rng.choice(pool, size=min(count, len(pool)), replace=False))


def random_story(model: Model, rng: np.random.Generator) -> Story:
    """Draw lies about questions, lists, deaths and receipts, most of which the clients accept."""
    classes = [
        Asked(int(rng.integers(2)), _list(model, rng))
        for _ in range(rng.choice([1, 2, 3], p=[0.6, 0.3, 0.1]))
    ]
    loss = rng.choice([0.0, 0.0, 0.2])
    asked: dict[int, Asked] = {}
    for i in model.honest:
        one = classes[int(rng.integers(len(classes)))] if rng.random() < 0.3 else classes[0]
        if rng.random() >= loss:
            asked[i] = Asked(one.question, one.prepared | {i})
    told = {i: _story_of(model, rng, i, asked) for i in asked if rng.random() < 0.95}
    return Story(asked, told)


def _list(model: Model, rng: np.random.Generator) -> Clients:
    count = len(model.members) - int(rng.choice([0, 0, 0, 1, 2]))
    return _chosen(rng, model.members, count)


def _story_of(model: Model, rng: np.random.Generator, me: int, asked: dict[int, Asked]) -> Told:
    others = asked[me].prepared - {me}
    matching = {j for j in others if j in model.corrupted or asked.get(j) == asked[me]}
    slack = max(0, len(matching) - model.threshold)
    # One in ten stories is told whether the client accepts it or not.
    most = slack if rng.random() < 0.9 else len(matching)
    lost = _chosen(rng, matching, int(rng.integers(0, most + 1)) if rng.random() < 0.5 else most)
    withheld = frozenset(j for j in lost if rng.random() < 0.15)
    foreign = frozenset(j for j in others - matching if rng.random() < 0.8)
    return Told((lost - withheld) | foreign, withheld)


def spread_deaths(n: int, threshold: int, alive: int) -> Story:
    """Tell different clients of different deaths, so that all but `alive` are called dead often enough.

    Without locks the sum of `alive` clients opens; nobody was told of fewer than `threshold` living.
    """
    everyone = Asked(0, frozenset(range(n)))
    targets, most = list(range(alive, n)), n - 1 - threshold
    calls = dict.fromkeys(targets, 0)
    told = {}
    for i in range(n):
        mine = sorted((j for j in targets if j != i), key=lambda j: (calls[j], (j - i) % n))[:most]
        for j in mine:
            calls[j] += 1
        told[i] = Told(frozenset(mine))
    assert min(calls.values(), default=threshold) >= threshold
    return Story(dict.fromkeys(range(n), everyone), told)


def two_lists(n: int, threshold: int, inside: int, edge: int) -> Story:
    """Tell the first `inside` clients a list without the last ones, who are told of everyone.

    Without receipts the sum of `inside` opens though answers are locked: the outsiders' answers can be
    read, so their mask keys stay closed, but the insiders never masked with them; the `edge` clients
    between are called dead by all outsiders, and in turn by the insiders.
    """
    everyone, short = frozenset(range(n)), frozenset(range(inside + edge))
    edges = list(range(inside, inside + edge))
    spare = inside - 1 + edge - threshold
    calls = dict.fromkeys(edges, 0)
    told = {}
    for i in range(inside):
        mine = sorted(edges, key=lambda j: calls[j])[:spare]
        for j in mine:
            calls[j] += 1
        told[i] = Told(frozenset(mine))
    told |= {i: Told(frozenset()) for i in edges}
    told |= {i: Told(frozenset(edges)) for i in range(inside + edge, n)}
    asked = {i: Asked(0, short if i < inside else everyone) for i in range(n)}
    return Story(asked, told)
