"""The domain and the differential privacy that are declared on the command line."""

from __future__ import annotations

from typing import Any

import msgspec

from privfed.core.values.domain import Box
from privfed.errors import ArgumentError
from privfed.privacy.privacy import Privacy


class Declared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the declared domain and the claimed differential privacy.

    Args:
        low: lowest value of each feature, or one for all; None without a declared domain.
        high: highest value of each feature, or one for all.
        max_rows: public bound on the rows of one client.
        epsilon: epsilon of the claim; None without differential privacy.
        delta: delta of the claim.
        unit: "record" or "client".
        neighbours: "add-remove" or "replace-one".
        noise: who adds the noise, by default "distributed"; see `Privacy`.
        mechanism: distribution of the noise, by default "gaussian".
        spare: share of the budget kept for sums that have to be asked again, by default 0.
    """

    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None
    max_rows: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None
    neighbours: str | None = None
    noise: str | None = None
    mechanism: str | None = None
    spare: float | None = None

    def domain(self) -> Box | None:
        """Return the declared domain, or None.

        Raises:
            ArgumentError: only a part of the domain is declared.
        """
        low, high = self.low, self.high
        if (low is None) != (high is None):
            raise ArgumentError("--low and --high go together; give both, or none.")
        if low is None or high is None:
            if self.max_rows is not None:
                raise ArgumentError("--max-rows goes with --low and --high; give all three, or none.")
            return None
        return Box(
            low[0] if len(low) == 1 else low, high[0] if len(high) == 1 else high, max_rows=self.max_rows
        )

    def privacy(self) -> Privacy | None:
        """Return the claimed privacy, or None.

        Raises:
            ArgumentError: only a part of the claim is given, or no domain is declared.
        """
        parts = {name: getattr(self, name) for name in ("epsilon", "delta", "unit", "neighbours")}
        missing = [f"--{name}" for name, value in parts.items() if value is None]
        chosen = {name: getattr(self, name) for name in ("noise", "mechanism", "spare")}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        if len(missing) == len(parts) and not chosen:
            return None
        domain = self.domain()
        missing += [] if domain is not None else ["--low", "--high"]
        if missing or domain is None:
            raise ArgumentError(
                f"differential privacy is claimed in full or not at all; missing: {', '.join(missing)}."
            )
        return Privacy(domain=domain, **parts, **chosen)

    def words(self) -> dict[str, Any]:
        """Return the estimator's parameters for what is declared."""
        privacy = self.privacy()
        return {"domain": self.domain()} if privacy is None else {"privacy": privacy}
