"""The differential-privacy claim of a run, and its wording.

Python, the command line, stored results and studies all print `PrivacySpent.facts` or `PrivacySpent.line`,
so that they all state the same claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from privfed.core.agreed.configuration import Configuration, PrivacyTerms
from privfed.core.values.guarantee import Mechanism, Neighbours, Noise, Unit
from privfed.privacy.ledger import Payment

COMPOSED = {
    Mechanism.GAUSSIAN: "exact Gaussian differential privacy over all releases, discretisation charged",
    Mechanism.SKELLAM: "Renyi differential privacy of Skellam noise over all releases, "
    "at an order fixed before",
}
"""Mechanism -> description of how its releases are composed."""

COMPOSED_STEPS = (
    "privacy-loss distribution of Poisson-sampled Gaussian steps over all agreed trainings of a client, "
    "discretisation and rounding charged"
)
"""How the steps of clients that train by DP-SGD are composed."""

_UNITS = {Unit.RECORD: "one record (a row of one client)", Unit.CLIENT: "one client (all its rows)"}
_NEIGHBOURS = {Neighbours.ADD_REMOVE: "added or removed", Neighbours.REPLACE_ONE: "replaced by another"}
_NOISE = {
    Noise.DISTRIBUTED: "the clients of a sum share it",
    Noise.LOCAL: "each client adds all of it by itself",
    Noise.SERVER: "the server adds it to sums that it cannot read",
}
_MECHANISMS = {Mechanism.GAUSSIAN: "discrete Gaussian", Mechanism.SKELLAM: "Skellam"}
_REHEARSED = "none: a rehearsal, whose noise can be computed again"


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
        rehearsal: whether noise repeats with a seed; then nothing is claimed, and nobody is protected.
        composed: how the releases were composed.
        against: adversary -> the guarantee against it.
        payments: the ledger, one payment a question.
    """

    epsilon: float
    delta: float
    unit: Unit
    neighbours: Neighbours
    noise: Noise
    mechanism: Mechanism
    rehearsal: bool
    composed: str
    against: dict[str, str]
    payments: tuple[Payment, ...] = field(repr=False)

    def facts(self) -> dict[str, str]:
        """Return the statements of the claim, as topic -> statement."""
        bounds = f"epsilon {self.epsilon:g}, delta {self.delta:g}"
        if self.rehearsal:
            bounds = f"not private: a rehearsal of {bounds}; its noise repeats, and nobody is protected"
        unit, neighbours = _UNITS[self.unit], _NEIGHBOURS[self.neighbours]
        who, kind = _NOISE[self.noise], _MECHANISMS[self.mechanism]
        # A rehearsal protects from nobody: one statement replaces those for each adversary.
        against = self.against if not self.rehearsal else {"anybody": _REHEARSED}
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
    configuration: Configuration, payments: tuple[Payment, ...], *, one_key: bool
) -> PrivacySpent | None:
    """Return the claim of a run, a rehearsal's included; None without differential privacy.

    Args:
        configuration: what the parties agreed on.
        payments: the coordinator's ledger.
        one_key: whether one client's key opens every upload (as with one CKKS key for all).
    """
    terms = configuration.privacy
    if terms is None:
        return None
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
        rehearsal=terms.rehearsal,
        composed=f"{composed}; computational, since masks and noise come from keyed generators",
        against=_against(terms, configuration, one_key),
        payments=payments,
    )


def unless_rehearsed(claim: PrivacySpent | None) -> PrivacySpent | None:
    """Return a claim, or None for a rehearsal, which claims nothing."""
    return None if claim is None or claim.rehearsal else claim


def _against(terms: PrivacyTerms, configuration: Configuration, one_key: bool) -> dict[str, str]:
    claim = f"({terms.epsilon:g}, {terms.delta:g})"
    c, local = configuration.terms.colluders, terms.noise == Noise.LOCAL or configuration.noising == 1
    colluding = f"{claim} with at most {c} of the clients" if c else "none claimed"
    reads = "; it reads every noised total" if configuration.terms.verified else ""
    against = {
        "readers of the model": claim,
        "a client": (claim if local or c else "none claimed: it knows its own share of the noise") + reads,
        "the server": claim,
        "the server with clients": f"{claim} each client alone" if local else colluding,
    }
    if terms.noise == Noise.SERVER:
        against |= {
            "readers of the model": f"{claim} if the server adds the noise honestly",
            "a client": f"{claim} if the server adds the noise honestly",
            "the server": "ciphertext only: none once it learns a total or the model",
            "the server with clients": "none: it knows the noise, and they know the totals",
        }
    elif one_key and not local:
        against["the server with clients"] = "none: one client's key opens every upload"
    return dict.fromkeys(against, _REHEARSED) if terms.rehearsal else against
