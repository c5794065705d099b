"""The guarantee that users ask for. `privfed.privacy.claim` says what a run claims of it."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.values.domain import Ball, Box, Domain, check_private
from privfed.core.values.guarantee import (
    AnyMechanism,
    AnyNeighbours,
    AnyNoise,
    AnyUnit,
    Mechanism,
    Neighbours,
    Noise,
    Unit,
    Word,
)
from privfed.core.values.numbers import check_share, check_whole
from privfed.core.values.steps import SampledSteps
from privfed.errors import ArgumentError
from privfed.privacy.pricing import agreed_budget

_WORDS: dict[str, type[Word]] = {
    "unit": Unit,
    "neighbours": Neighbours,
    "noise": Noise,
    "mechanism": Mechanism,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Privacy:
    """An (epsilon, delta) guarantee of differential privacy for everything that a fit releases.

    None of the first five parameters has a default, since each is part of the guarantee.

    Args:
        epsilon: above 0.
        delta: in (0, 1); a value above 1e-5 gives a warning.
        unit: what is protected: "record" (one row of one client) or "client" (all its rows).
        domain: `Box` or `Ball`, chosen without looking at the data; rows outside are clipped to it. Its
            numbers are at most 2^200 in magnitude, and at least one feature is 2^-200 wide or wider.
        neighbours: "add-remove" or "replace-one" of that unit.
        noise: who adds it. "distributed": the shares of the honest clients that every sum contains suffice
            together; "local": each client's share suffices alone (`protocol="plain"` always needs this);
            "server": the server adds one draw to each sum, which only clients can open (`protocol="ckks"` or
            "group-masked"). The last protects nobody from the server once it learns a total or the model, so
            that all it sees must be fixed before (docs/decisions/010-noise-of-the-server.md).
        mechanism: distribution of the noise: "gaussian" (discrete), or "skellam", whose shares add up
            exactly, but whose standard deviation must be 4 to 9 % larger (docs/privacy/mechanisms.md).
        spare: share of the budget that is kept for sums that have to be asked again.
        noise_seed: makes the run a rehearsal: noise repeats with this seed, nothing is claimed and nobody is
            protected.
    """

    epsilon: float
    delta: float
    unit: AnyUnit
    domain: Domain
    neighbours: AnyNeighbours
    noise: AnyNoise = Noise.DISTRIBUTED
    mechanism: AnyMechanism = Mechanism.GAUSSIAN
    spare: float = 0.0
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        _check_number("epsilon", self.epsilon, math.inf)
        _check_number("delta", self.delta, 1.0)
        for name, kind in _WORDS.items():
            object.__setattr__(self, name, kind.read(name, getattr(self, name)))
        if not isinstance(self.domain, Box | Ball):
            raise ArgumentError(f"privacy needs a declared domain, Box or Ball, got domain={self.domain!r}.")
        check_private(*self.domain.ends)
        if self.noise == Noise.SERVER and self.mechanism == Mechanism.SKELLAM:
            raise ArgumentError(
                'mechanism="skellam" is for shares that add up; with noise="server", one draw a sum, '
                'use mechanism="gaussian".'
            )
        check_share("spare", self.spare)
        check_whole("noise_seed", self.noise_seed, 0, or_none=True)
        if self.epsilon > 10:
            warnings.warn(f"epsilon={self.epsilon} promises very little; usual are 0.1 to 10.", stacklevel=3)
        if self.delta > 1e-5:
            warnings.warn(
                f"delta={self.delta} lets a unit be exposed with that probability; choose it far below one "
                "over the number of units.",
                stacklevel=3,
            )

    def seeded(self, seed: int) -> int:
        """Return the seed of the clients' randomness, which also determines a rehearsal's noise."""
        return seed if self.noise_seed is None else (seed + (self.noise_seed << 32)) % 2**63

    def unseeded(self, seed: int) -> int:
        """Return the seed that `seeded` turned into this one, the inverse of `seeded`."""
        return (seed - self.seeded(0)) % 2**63

    def check_delta(self, n_rows: float, n_clients: int) -> None:
        """Warn if delta is at least one over the number of units.

        Args:
            n_rows: number of rows of all clients; noised, unless it is public.
            n_clients: number of clients.
        """
        n_units = n_rows if self.unit == Unit.RECORD else n_clients
        # With neighbours that replace a row, the number of rows is public.
        noised = " (noised)" if self.unit == Unit.RECORD and self.neighbours == Neighbours.ADD_REMOVE else ""
        if self.delta * n_units >= 1.0:
            warnings.warn(
                f"delta={self.delta:g} times about {n_units:.0f} units{noised} is at least 1: the claim "
                f"allows that every fit exposes one; choose delta far below {1.0 / n_units:.2g}.",
                stacklevel=2,
            )

    def terms(self, steps: SampledSteps | None = None) -> PrivacyTerms:
        """Return the guarantee in the form that the parties agree on.

        Args:
            steps: of DP-SGD, where clients train by it.
        """
        budget = agreed_budget(Mechanism(self.mechanism), Noise(self.noise), self.epsilon, self.delta)
        return PrivacyTerms(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            unit=Unit(self.unit),
            neighbours=Neighbours(self.neighbours),
            noise=Noise(self.noise),
            budget=budget if steps is None else float(steps.total),
            rehearsal=self.noise_seed is not None,
            mechanism=Mechanism(self.mechanism),
            steps=steps,
            spare=float(self.spare),
        )


def _check_number(name: str, value: Any, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < high:
        raise ArgumentError(f"{name} must lie in (0, {high}), got {name}={value!r}.")
