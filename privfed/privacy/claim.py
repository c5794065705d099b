"""The guarantee that users ask for (`Privacy`), what a run claims of it (`PrivacySpent`), and its wording.

Python, the command line, stored results and studies all print `PrivacySpent.facts` or `PrivacySpent.line`, so
that they all state the same claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, cast

import msgspec

from privfed.core.agreed.configuration import Configuration, PrivacyTerms
from privfed.core.names import imported
from privfed.core.values.domain import Ball, Box, Domain, check_private
from privfed.core.values.guarantee import (
    AnyMechanism,
    AnyNeighbours,
    AnyNoise,
    AnyUnit,
    Mechanism,
    Neighbours,
    Noise,
    SampledSteps,
    Unit,
    Word,
)
from privfed.core.values.numbers import check_number, check_whole
from privfed.core.values.origin import check_origins
from privfed.core.values.shown import as_table
from privfed.errors import ArgumentError, warn
from privfed.privacy.accounting import Curve, Payment, budget_of, totals_epsilon
from privfed.privacy.adversaries import PAGE, SEEDED, against_whom, lemmas_of
from privfed.privacy.plan import Plan

COMPOSED = {
    Mechanism.GAUSSIAN: "all releases together, by Gaussian differential privacy, rounding included",
    Mechanism.SKELLAM: "all releases together, by Renyi differential privacy at an order fixed before",
}
"""Mechanism -> description of how its releases are composed."""

COMPOSED_STEPS = (
    "all agreed trainings of a client together, by the privacy loss of Poisson-sampled Gaussian steps, "
    "rounding included"
)
"""How the steps of clients that train by DP-SGD are composed."""

_UNITS = {
    Unit.RECORD: "one record (a row of one client)",
    Unit.USER: "one user (all rows under one id at one client, of which it uses at most {})",
    Unit.CLIENT: "one client (all its rows)",
}
_NEIGHBOURS = {Neighbours.ADD_REMOVE: "added or removed", Neighbours.REPLACE_ONE: "replaced by another"}
_NOISE = {
    Noise.DISTRIBUTED: "the clients of a sum share it",
    Noise.LOCAL: "each client adds all of it by itself",
    Noise.SERVER: "the server adds it to sums that it cannot read",
}
_MECHANISMS = {Mechanism.GAUSSIAN: "discrete Gaussian", Mechanism.SKELLAM: "Skellam"}


@dataclass(frozen=True)
class PrivacySpent:
    """The claim of a run: the whole budget, even if it stopped early, since its length depends on totals.

    Args:
        epsilon: of the claim.
        delta: of the claim.
        unit: what is protected.
        neighbours: which changes of that unit the guarantee compares.
        noise: who adds it.
        mechanism: distribution of the noise.
        seeded: whether noise repeats with a seed; then nothing is claimed, and nobody is protected.
        composed: how the releases were composed.
        against: adversary -> the guarantee against it.
        payments: the ledger, one payment a question.
        rows_per_user: at unit "user" the most rows of a user that a client uses; 0 at other units.
        alone: whether each client adds all of the noise, as over sums in which its own answer is seen.
    """

    epsilon: float
    delta: float
    unit: Unit
    neighbours: Neighbours
    noise: Noise
    mechanism: Mechanism
    seeded: bool
    composed: str
    against: dict[str, str]
    payments: tuple[Payment, ...] = field(repr=False)
    rows_per_user: int = 0
    alone: bool = False

    _repr_html_ = as_table(lambda self: [("topic", "statement"), *self.facts().items()])

    def facts(self) -> dict[str, str]:
        """Return the statements of the claim, as topic -> statement."""
        bounds = f"epsilon {self.epsilon:g}, delta {self.delta:g}"
        if self.seeded:
            bounds = f"not private: a seeded run of {bounds}; its noise repeats, and nobody is protected"
        unit, neighbours = _UNITS[self.unit].format(self.rows_per_user), _NEIGHBOURS[self.neighbours]
        who, kind = _NOISE[Noise.LOCAL if self.alone else self.noise], _MECHANISMS[self.mechanism]
        # A seeded run protects from nobody: one statement replaces those for each adversary.
        against = self.against if not self.seeded else {"anybody": SEEDED}
        return {
            "differential privacy": bounds,
            "protected": f"{unit}, {neighbours} ({self.unit}, {self.neighbours})",
            "noise": f"{kind}; {who} ({self.mechanism}, {self.noise})",
            **{f"against {party}": holds for party, holds in against.items()},
            "composed": self.composed,
        }

    @property
    def rows_are_public(self) -> bool:
        """Whether all neighbours have equally many rows, so that the number of rows is public."""
        return (self.unit, self.neighbours) == (Unit.RECORD, Neighbours.REPLACE_ONE)

    @property
    def line(self) -> str:
        """All facts in one line."""
        return one_line(self)

    @property
    def short(self) -> str:
        """The claim against readers of the model, in one sentence."""
        if self.seeded:
            return "Not private: this noise repeats with a seed, and nobody is protected."
        bounds, _, given = self.against["readers of the model"].partition(") ")
        unit = f"one {self.unit} {_NEIGHBOURS[self.neighbours]}"
        return " ".join(f"{bounds.rstrip(')')})-differential privacy for {unit} {given}".split()) + "."

    @property
    def curve(self) -> Curve:
        """The claim as mu, at other deltas, and as the rates of a test's errors."""
        if self.seeded:
            return Curve(math.inf, 1.0)
        if self.composed.startswith(COMPOSED_STEPS):
            return Curve(self.epsilon, self.delta)
        cost = budget_of(self.mechanism, self.epsilon, self.delta)
        mu = math.sqrt(cost) if self.mechanism == Mechanism.GAUSSIAN else None
        return Curve(self.epsilon, self.delta, mu=mu, rho=cost / 2.0)

    def __str__(self) -> str:
        """Return all facts, one a line."""
        return "\n".join(f"{name}: {what}" for name, what in self.facts().items())

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as JSON types, with all facts in one line as `summary`."""
        return {**asdict(self), "summary": self.line}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> PrivacySpent:
        """Return the claim of which `to_dict` made `plain`.

        Raises:
            msgspec.ValidationError: a field is missing, or of another type.
        """
        return msgspec.convert(plain, cls)


def facts_of(claim: PrivacySpent | None) -> dict[str, str]:
    """Return the statements of a claim, or that there is none."""
    return {"differential privacy": "none claimed"} if claim is None else claim.facts()


def one_line(claim: PrivacySpent | None) -> str:
    """Return the statements of a claim, or that there is none, in one line."""
    return "; ".join(f"{name}: {what}" for name, what in facts_of(claim).items())


def noised_mark(claim: PrivacySpent | None) -> str:
    """Return the mark to print after a number computed from totals: whether it is noised."""
    return "" if claim is None else " (noised)"


def rows_mark(claim: PrivacySpent | None) -> str:
    """Return the mark to print after a number of rows: whether it is public or noised."""
    public = claim is not None and claim.rows_are_public
    return " (public: neighbours replace a row)" if public else noised_mark(claim)


def noised_fields(claim: PrivacySpent | None, *names: str) -> tuple[str, ...]:
    """Return which of the named results, all computed from totals, contain noise."""
    if claim is None:
        return ()
    return tuple(name for name in names if name != "rows" or not claim.rows_are_public)


def claimed(
    configuration: Configuration,
    payments: tuple[Payment, ...],
    *,
    one_key: bool,
    by_author: bool = False,
    before: PrivacySpent | None = None,
) -> PrivacySpent | None:
    """Return the claim of a run, seeded or not; None without differential privacy.

    Args:
        configuration: what the parties agreed on.
        payments: the coordinator's ledger.
        one_key: whether one client's key opens every upload (as with one CKKS key for all).
        by_author: whether the secure sum is not privfed's own: what rests on it, only its author says.
        before: the claim of a run before, on the same rows, that had the other part of one claim. What is
            returned is that of both together.
    """
    terms = configuration.privacy
    if terms is None:
        return None
    if before is not None:
        costs = [budget_of(one.mechanism, one.epsilon, one.delta) for one in (before, terms)]
        # Slightly increased, to cover float64 rounding of the sum.
        whole = totals_epsilon(terms.mechanism, sum(costs) * (1.0 + 1e-12), terms.delta)
        terms = msgspec.structs.replace(terms, epsilon=whole)
        configuration = msgspec.structs.replace(configuration, privacy=terms)
        each = zip((before.payments, payments), costs, strict=True)
        shares = [(paid, part / sum(costs)) for own, part in each for paid in own]
        payments = tuple(replace(paid, share=paid.share * part) for paid, part in shares)
    composed = COMPOSED[terms.mechanism] if terms.steps is None else COMPOSED_STEPS
    if terms.noise == Noise.SERVER and one_key:
        composed += "; what floats lose in encryption is estimated, not proven"
    return PrivacySpent(
        epsilon=terms.epsilon,
        delta=terms.delta,
        unit=terms.unit,
        neighbours=terms.neighbours,
        noise=terms.noise,
        mechanism=terms.mechanism,
        seeded=terms.seeded,
        composed=f"{composed}; holds while the keyed generators of masks and noise are not broken; "
        f"proof: {', '.join([PAGE, *lemmas_of(terms)])}",
        against=against_whom(terms, configuration, one_key, by_author),
        payments=payments,
        rows_per_user=terms.rows_per_user,
        alone=terms.noise == Noise.DISTRIBUTED and configuration.noising == 1,
    )


def unless_seeded(claim: PrivacySpent | None) -> PrivacySpent | None:
    """Return a claim, or None for a seeded run, which claims nothing."""
    return None if claim is None or claim.seeded else claim


_WORDS: dict[str, type[Word]] = {
    "unit": Unit,
    "neighbours": Neighbours,
    "noise": Noise,
    "mechanism": Mechanism,
}


class Paying(Protocol):
    """Pays for runs before clients are asked (`privfed.privacy.budget.Draw`)."""

    def pay(
        self,
        privacy: Privacy,
        steps: SampledSteps | None,
        asked: str,
        run: str = "",
        *,
        resumed: bool = False,
        shown: str = "",
    ) -> str:
        """Pay for a run, which shows what its folder keeps; return what it is to keep."""

    def parts(self, share: float) -> tuple[Paying, Paying]:
        """Return what pays for two runs, a share of this, and the rest."""

    def recording(self, run: str, asked: int) -> AbstractContextManager[None]:
        """Enter that a paid run records a question, of so many, and sends it."""

    def noise(self, least: float, steps: SampledSteps) -> float:
        """Return the noise multiplier, from `least` on, with which it pays for steps of DP-SGD."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Privacy:
    """An (epsilon, delta) guarantee of differential privacy for everything that a fit releases.

    None of the first five parameters has a default, since each is part of the guarantee.

    Args:
        epsilon: above 0.
        delta: in (0, 1); a value above 1e-5 gives a warning.
        unit: what is protected: "record" (one row of one client), "user" (all rows under one id at one
            client, which needs tables with ids) or "client" (all its rows).
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
        noise_seed: makes the run seeded: noise repeats with this seed, nothing is claimed and nobody is
            protected.
        rows_per_user: at unit "user", and only there: the most rows of a user that a client uses. It chooses
            them by a keyed hash of id and row. All noise grows with this number, twice as much under
            replace-one.
        paid_by: where each run is paid before it begins; `PrivacyBudget.take` sets it. None for a claim that
            stands alone: what several of them say together, nobody adds up.
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
    rows_per_user: int | None = None
    paid_by: Paying | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, "(0, inf)")
        check_number("delta", self.delta, "(0, 1)")
        for name, kind in _WORDS.items():
            object.__setattr__(self, name, kind.read(name, getattr(self, name)))
        if not isinstance(self.domain, Box | Ball):
            raise ArgumentError(f"privacy needs a declared domain, Box or Ball, got domain={self.domain!r}.")
        check_private(*self.domain.ends)
        if self.noise_seed is None:
            check_origins(domain=self.domain.origin)
        if self.noise == Noise.SERVER and self.mechanism == Mechanism.SKELLAM:
            raise ArgumentError(
                'mechanism="skellam" is for shares that add up; with noise="server", one draw a sum, '
                'use mechanism="gaussian".'
            )
        check_number("spare", self.spare, "[0, 1)")
        check_whole("noise_seed", self.noise_seed, 0, or_none=True)
        check_whole("rows_per_user", self.rows_per_user, 1, or_none=True)
        if (self.unit == Unit.USER) != (self.rows_per_user is not None):
            raise ArgumentError(
                'unit="user" needs rows_per_user, the most rows of a user that count, and no other unit has '
                f'it; got unit="{self.unit}", rows_per_user={self.rows_per_user}.',
                parameters=["rows_per_user"],
            )
        drawn = self.paid_by is not None
        if self.epsilon > 10:
            said = (
                f"share=... is worth epsilon {self.epsilon:g}, which" if drawn else f"epsilon={self.epsilon}"
            )
            warn(f"{said} promises very little; usual are 0.1 to 10.")
        if self.delta > 1e-5:
            said = f"the budget's delta, {self.delta:g}," if drawn else f"delta={self.delta}"
            much = "choose it far below one over the number of units"
            warn(f"{said} lets a unit be exposed with that probability; {much}.")

    def seeded(self, seed: int) -> int:
        """Return the seed of the clients' randomness, which also determines a seeded run's noise."""
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
        n_units = n_rows if Unit(self.unit).of_rows else n_clients
        # With neighbours that replace a row, the number of rows is public.
        public = (self.unit, self.neighbours) == (Unit.RECORD, Neighbours.REPLACE_ONE)
        noised = " (noised)" if Unit(self.unit).of_rows and not public else ""
        if self.delta * n_units >= 1.0:
            warn(
                f"delta={self.delta:g} times about {n_units:.0f} units{noised} is at least 1: the claim "
                f"allows that every fit exposes one; choose delta far below {1.0 / n_units:.2g}.",
            )

    def plan(
        self, n_rows: int, n_clusters: int, n_features: int, *, distance: float | None = None, copies: int = 1
    ) -> Plan:
        """Return what noise `DPKMeans` will have, from public numbers alone: nothing is asked.

        Args:
            n_rows: about how many rows all clients have.
            n_clusters: number of clusters.
            n_features: number of columns.
            distance: about how far a row lies from its center; None for clusters that fill the domain.
            copies: how often a total contains the noise that the claim needs: over `protocol="plain"` and
                with `noise="local"` the number of clients, else about 1.

        Raises:
            ArgumentError: a number is out of its bounds.
            PrivacyError: the unit is a client.
        """
        planned: Any = imported("privfed.algorithms.private.planning:planned")
        return cast(Plan, planned(self, n_rows, n_clusters, n_features, distance, copies))

    def terms(self, steps: SampledSteps | None = None) -> PrivacyTerms:
        """Return the guarantee in the form that the parties agree on.

        Args:
            steps: of DP-SGD, where clients train by it.
        """
        terms = PrivacyTerms(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            unit=Unit(self.unit),
            neighbours=Neighbours(self.neighbours),
            noise=Noise(self.noise),
            budget=1.0 if steps is None else float(steps.total),
            seeded=self.noise_seed is not None,
            mechanism=Mechanism(self.mechanism),
            steps=steps,
            spare=float(self.spare),
            rows_per_user=self.rows_per_user or 0,
        )
        if steps is not None:
            return terms
        of_claim = (terms.mechanism, terms.noise, terms.epsilon, terms.delta, terms.rows_apart)
        # Imported here: who reads a claim prices nothing, and starts sooner.
        from privfed.privacy.pricing import agreed_budget

        return msgspec.structs.replace(terms, budget=agreed_budget(*of_claim))
