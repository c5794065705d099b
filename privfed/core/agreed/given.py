"""What a client has given before, over all its fits on one data set: what a policy bounds besides one fit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Counts what one data set has given, from a party's journal.

    Args:
        fits: fits that began.
        sums: sums that were answered.
        starts: in how many different sets of cells rows were counted.
        losses: how often clients were lost in those fits.
        epsilon: sum of the fits' agreed epsilons (basic composition). Fits that claimed no guarantee are
            not in it: nothing bounds what those gave.
        delta: sum of their deltas.
        unprotected: fits that claimed no guarantee.
    """

    fits: int = 0
    sums: int = 0
    starts: int = 0
    losses: int = 0
    epsilon: float = 0.0
    delta: float = 0.0
    unprotected: int = 0
