"""A composed guarantee; apart from what composes, which takes seconds to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privfed.core.values.guarantee import Neighbours


@dataclass(frozen=True, slots=True)
class Composed:
    """An (epsilon, delta) guarantee and how it was computed.

    Args:
        epsilon: upper bound; infinite where a release has no noise.
        delta: delta of the guarantee.
        neighbours: relation for which it holds.
        method: "gdp" (exact), "pld" (within 1e-4 a release, rounded up) or "rdp" (an upper bound).
    """

    epsilon: float
    delta: float
    neighbours: Neighbours
    method: Literal["gdp", "pld", "rdp"]
