"""What options declare of rows and claim of a run: domain, differential privacy, and the budget that pays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from privfed.core.values.domain import Box
from privfed.core.values.guarantee import Mechanism, Noise, Unit
from privfed.errors import ArgumentError
from privfed.privacy.claim import Privacy

Known = TypeVar("Known")

_NEEDED = ("epsilon", "delta", "unit", "neighbours")
"""What a claim needs; a budget says it for its shares."""

_CHOSEN = ("noise", "mechanism", "spare", "rows_per_user")
"""Further parameters of `Privacy`, which has their defaults."""


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the declared domain and the claimed differential privacy.

    Args:
        low: lowest value of each feature, or one for all; None without a declared domain.
        high: highest value of each feature, or one for all.
        max_rows: public bound on the rows of one client, or of each by name.
        clip: whether values outside the domain become its nearest end, also without differential privacy.
        epsilon: epsilon of the claim; None without differential privacy.
        delta: delta of the claim.
        unit: "record", "user" or "client".
        rows_per_user: most rows of a user that count, at unit "user".
        neighbours: "add-remove" or "replace-one".
        noise: who adds the noise, by default "distributed"; see `Privacy`.
        mechanism: distribution of the noise, by default "gaussian".
        spare: share of the budget kept for sums that have to be asked again, by default 0.
        budget: absolute path of the `PrivacyBudget` that pays; the claim above is then that of `share`.
        share: of that budget.
        purpose: what for, in that budget's log.
    """

    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    max_rows: int | dict[str, int] | None = None
    clip: bool = False
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None
    rows_per_user: int | None = None
    neighbours: str | None = None
    noise: str | None = None
    mechanism: str | None = None
    spare: float | None = None
    budget: str | None = None
    share: float | None = None
    purpose: str | None = None

    def domain(self) -> Box | None:
        """Return the declared domain, or None.

        Raises:
            ArgumentError: only a part of the domain is declared.
        """
        low, high = self.low, self.high
        if (low is None) != (high is None):
            raise ArgumentError("--low and --high go together; give both, or none.")
        if low is None or high is None:
            if self.clip:
                raise ArgumentError("--clip moves values to --low and --high; give both, or a schema.")
            if self.max_rows is not None:
                raise ArgumentError("--max-rows goes with --low and --high; give all three, or none.")
            return None
        return Box(
            low[0] if len(low) == 1 else low, high[0] if len(high) == 1 else high, max_rows=self.max_rows
        )

    @property
    def claims(self) -> bool:
        """Whether differential privacy is claimed, perhaps not in full."""
        return any(getattr(self, name) is not None for name in (*_NEEDED, *_CHOSEN, "budget"))

    def check_claim(self, *others: str) -> None:
        """Check that a claim, where there is one, has all that it needs.

        Args:
            *others: further options that the claim needs, and that are missing.

        Raises:
            ArgumentError: something is missing; the message names all of it.
        """
        missing = [name for name in _NEEDED if getattr(self, name) is None]
        missing += ["rows-per-user"] if self.unit == Unit.USER and self.rows_per_user is None else []
        missing += ["low", "high"] if self.domain() is None else []
        if self.claims and (missing or others):
            listed = ", ".join([*(f"--{name}" for name in missing), *others])
            raise ArgumentError(
                f"differential privacy needs all options of a claim; missing: {listed}."
                + " They must be declared, because what is read from the rows reveals it." * bool(others)
            )

    def privacy(self) -> Privacy | None:
        """Return the claimed privacy, or None.

        Raises:
            ArgumentError: only a part of the claim is given, or no domain is declared.
        """
        self.check_claim()
        domain = self.domain()
        if not self.claims or domain is None:
            return None
        given = {name: getattr(self, name) for name in (*_NEEDED, *_CHOSEN)}
        chosen = {name: value for name, value in given.items() if value is not None}
        if self.budget is not None and self.share is not None:
            # Imported here, as in `declared_of`: commands without a budget start without its libraries.
            from privfed.privacy.budget import Draw

            chosen["paid_by"] = Draw(Path(self.budget), self.share, None, self.purpose or "")
        return Privacy(domain=domain, **chosen)

    def scaling(self, scale: str | None) -> dict[str, str]:
        """Return the estimator's `scale`: what --scale says, or a default.

        Under a claim columns of different ranges are scaled by their quartiles. By ranges in which values are
        plausible alone, a column would count the less the wider its range is beside its spread.
        """
        widths = {high - low for low, high in zip(self.low or (), self.high or (), strict=False)}
        if scale is None and self.claims and self.noise != Noise.SERVER and len(widths) > 1:
            # Imported here: most commands scale nothing.
            from privfed.estimators.scaling import SHARES

            scale = "robust"
            click.echo(
                "privfed: the declared ranges differ, so columns are scaled by their quartiles, with "
                f"{100 * SHARES[scale]:.0f} % of the budget. Without it: --scale range, or --scale none.",
                err=True,
            )
        return {} if scale in (None, "none") else {"scale": str(scale)}

    def parameters(self) -> dict[str, Any]:
        """Return the estimator's parameters for what is declared."""
        privacy = self.privacy()
        return {"domain": self.domain()} if privacy is None else {"privacy": privacy}


def declared_of(given: dict[str, Any]) -> Declared:
    """Remove the declared domain and privacy from the given options, and return them.

    Raises:
        ArgumentError: a budget goes without a share, or beside a claim of its own.
        PrivacyError: the share pays for no claim.
        StateError: there is no such budget.
    """
    found: Declared = taken(Declared, given, given)
    if found.budget is None or found.share is None:
        if (found.budget, found.share, found.purpose) != (None, None, None):
            raise ArgumentError(
                "--budget and --share go together, and --purpose goes with both; add what is missing."
            )
        return found
    if {found.epsilon, found.delta, found.unit, found.neighbours} != {None}:
        raise ArgumentError(
            "the budget says what --epsilon, --delta, --unit and --neighbours would; leave them out."
        )
    from privfed.privacy.budget import PrivacyBudget

    budget = PrivacyBudget.of(found.budget)
    return msgspec.structs.replace(
        found,
        budget=str(Path(found.budget).absolute()),
        epsilon=budget.epsilon_of(found.share, Mechanism(found.mechanism or "gaussian")),
        delta=budget.delta,
        unit=str(budget.unit),
        neighbours=str(budget.neighbours),
    )


def taken(kind: Callable[..., Known], values: dict[str, Any], given: dict[str, Any]) -> Known:
    """Remove the fields of a kind of values from the given options, and return them."""
    names = kind.__struct_fields__  # type: ignore[attr-defined]
    found = {name: values[name] for name in names if name in values}
    for name in found:
        given.pop(name, None)
    return kind(**found)
