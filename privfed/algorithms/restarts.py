"""What all runs with restarts begin and end with: where the rows lie, and the best of several outcomes."""

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


def best_of(n_init: int, restart: Callable[[], Conversation[Outcome]]) -> Conversation[Outcome]:
    """Run restarts, and return the outcome of the lowest score; the first of those.

    Raises:
        ArgumentError: there is to be none.
    """
    if n_init < 1:
        raise ArgumentError(f"n_init must be at least 1, got n_init={n_init}.")
    best = yield from restart()
    for _ in range(n_init - 1):
        outcome = yield from restart()
        if outcome.score < best.score:
            best = outcome
    return best


def restart_phases(n_init: int, seed: int, one: Callable[[np.random.Generator | None], Phases]) -> Phases:
    """Return what `best_of` asks.

    Args:
        n_init: number of restarts.
        seed: of the run.
        one: phases of one restart, given the generator as it finds it; None for later restarts, which find
            it in a state that depends on totals.
    """
    first = one(np.random.default_rng(seed))
    if n_init < 2:
        return first
    # What stays the same within a restart, and is another in the next.
    forgets = ("start points", "round points", "round centers")
    return (*first, Cycle(one(None), n_init - 1, n_init - 1, forgets))
