"""What all runs with restarts begin and end with: where the rows lie, and the best of several outcomes.

What is public of a restart (cells' hyperplanes, seeds of the clients' own clusterings) follows from the seed
and the restart's number alone, so that clients can check it without totals (`geometry`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from privfed.algorithms.outcome import ClusteringOutcome
from privfed.core.asking.phases import Cycle, Phases
from privfed.core.roles.conversation import Conversation, Setting
from privfed.errors import ArgumentError
from privfed.questions.ranges import Located, locate

Outcome = TypeVar("Outcome", bound=ClusteringOutcome)


def locate_enough(setting: Setting, n_clusters: int, upcoming: tuple[int, ...]) -> Conversation[Located]:
    """Find the ranges of the rows, and that there are as many rows as clusters.

    Raises:
        ArgumentError: there are fewer.
    """
    located = yield from locate(setting, upcoming=upcoming)
    if n_clusters > located.n_rows:
        raise ArgumentError(
            f"n_clusters={n_clusters} is more than all rows together, n_samples={located.n_rows}."
        )
    return located


def geometry(seed: int, restart: int) -> np.random.Generator:
    """Return the generator of a restart's public geometry, which no total moves.

    Args:
        seed: of the run.
        restart: its number, from 0. The first one's is the generator of a run without restarts.
    """
    return np.random.default_rng((seed, restart) if restart else seed)


def best_of(n_init: int, restart: Callable[[int], Conversation[Outcome]]) -> Conversation[Outcome]:
    """Run restarts, and return the outcome of the lowest score; the first of those.

    Args:
        n_init: number of restarts.
        restart: runs the restart of a number, from 0.

    Raises:
        ArgumentError: there is to be none.
    """
    if n_init < 1:
        raise ArgumentError(f"n_init must be at least 1, got n_init={n_init}.")
    best = yield from restart(0)
    for number in range(1, n_init):
        outcome = yield from restart(number)
        if outcome.score < best.score:
            best = outcome
    return best


def restart_phases(n_init: int, seed: int, one: Callable[[int, np.random.Generator], Phases]) -> Phases:
    """Return what `best_of` asks.

    Args:
        n_init: number of restarts.
        seed: of the run.
        one: phases of a restart, given its number and the generator of its geometry.
    """
    # What stays the same within a restart, and is another in the next.
    forgets = ("start points", "round points", "round centers")
    later = (Cycle(one(number, geometry(seed, number)), 1, 1, forgets) for number in range(1, n_init))
    return (*one(0, geometry(seed, 0)), *later)
