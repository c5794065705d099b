"""A guarantee in three forms: (epsilon, delta) at any delta, mu, and the rates of errors of any test."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privfed.errors import ArgumentError
from privfed.privacy.accounting import check_delta, gdp_epsilon


@dataclass(frozen=True, slots=True)
class Curve:
    """Holds what is proven of a claim.

    Args:
        epsilon: that is claimed at `delta`; inf where nothing is.
        delta: of the claim.
        mu: of Gaussian differential privacy (Dong, Roth and Su 2022, arXiv 1905.02383), where all noise is
            Gaussian and no rows are sampled; else None, and only one point of the curve is known.
    """

    epsilon: float
    delta: float
    mu: float | None = None

    def at(self, delta: float) -> float:
        """Return epsilon at another delta, rounded up; inf where none is proven.

        Args:
            delta: in [1e-300, 1).

        Raises:
            ArgumentError: delta is out of its bounds.
        """
        check_delta(delta)
        if self.mu is not None and delta != self.delta:
            return gdp_epsilon(self.mu, delta)
        return self.epsilon if delta >= self.delta else math.inf

    def missed(self, alarms: float) -> float:
        """Return the least rate at which any test for one unit misses it, with this rate of false alarms.

        Args:
            alarms: in [0, 1].

        Raises:
            ArgumentError: it is not.
        """
        if not 0.0 <= alarms <= 1.0:
            raise ArgumentError(f"a rate lies in [0, 1], got alarms={alarms!r}.", parameters=["alarms"])
        if self.mu is not None:
            # Imported here: commands that state no curve do without.
            from scipy.special import ndtr, ndtri

            return float(ndtr(-ndtri(alarms) - self.mu))
        # Wasserman and Zhou 2010 (arXiv 0811.2501): both lines of the tests that (epsilon, delta) allows.
        steep = 1.0 - self.delta - alarms * math.exp(min(self.epsilon, 700.0))
        return max(0.0, steep, math.exp(-self.epsilon) * (1.0 - self.delta - alarms))
