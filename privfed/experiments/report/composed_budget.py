"""The composed privacy budget of all fits of a study, for a reader of the whole report.

Each fit keeps its own budget, but a study that clusters the same rows many times spends all of them: the
budgets of claims for one unit add up. Fits under Gaussian noise compose exactly
(`privfed.privacy.accounting`). If one of them has Skellam noise, the bound is that of Renyi differential
privacy (`privfed.privacy.renyi`). The curve of a fit by DP-SGD is none of these: its epsilon and delta are
added as they are (basic composition).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privfed.core.values.guarantee import Mechanism, Unit
from privfed.deep.estimators.base import FederatedModel
from privfed.experiments.report.summary import Row
from privfed.experiments.study.factories import estimator_class
from privfed.privacy.accounting import gdp_epsilon
from privfed.privacy.pricing import budget_of
from privfed.privacy.renyi import renyi_epsilon


@dataclass(frozen=True)
class ComposedBudget:
    """Holds the budget of all fits under one unit and neighbouring relation on the same rows.

    Args:
        data: name of the data set; at unit "client" with the partition, which defines the clients.
        unit: what is protected.
        neighbours: neighbouring relation of that unit.
        fits: number of fits with a claim, or with a rehearsal of one.
        rehearsed: how many of them are rehearsals, which protect nobody.
        open_fits: number of fits on the same data without a claim; for a reader of these, no claim holds.
        epsilon: epsilon of all claims together, rounded up.
        delta: largest delta of the claims, and the sum of those of fits by DP-SGD.
    """

    data: str
    unit: str
    neighbours: str
    fits: int
    rehearsed: int
    open_fits: int
    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Return the budget in one or two sentences."""
        text = (
            f"{self.data}: {self.fits} fits with a guarantee for each {self.unit} ({self.neighbours}) amount "
            f"to epsilon {self.epsilon:.4g} at delta {self.delta:.3g} for a reader of all of them."
        )
        if self.rehearsed:
            text += f" {self.rehearsed} are rehearsals: their noise repeats, and nobody is protected."
        if self.open_fits:
            text += f" {self.open_fits} fits on the same rows have none: with these, nothing holds."
        return text


def composed_budgets(rows: Sequence[Row]) -> list[ComposedBudget]:
    """Return the composed budget of a study's fits, for each data set, unit and neighbouring relation."""
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        claimed = row.setup.privacy
        if claimed is not None and row.cells:
            where = row.setup.labels["partition"] if claimed.unit == Unit.CLIENT else ""
            key = (row.setup.digest, where, claimed.unit, claimed.neighbours)
            groups.setdefault(key, []).append(row)
    return [_of(key, own, rows) for key, own in groups.items()]


def _of(key: tuple[str, str, str, str], own: Sequence[Row], rows: Sequence[Row]) -> ComposedBudget:
    digest, where, unit, neighbours = key
    noised = [row for row in own if not _by_steps(row)]
    claims = [(row.setup.privacy, len(row.cells)) for row in noised if row.setup.privacy is not None]
    stepped = [(row.setup.privacy, len(row.cells)) for row in own if row.setup.privacy and _by_steps(row)]
    delta = max((claim.delta for claim, _ in claims), default=0.0)
    budgets = [fits * budget_of(claim.mechanism, claim.epsilon, claim.delta) for claim, fits in claims]
    # Slightly increased, to cover float64 rounding of the sum.
    cost = math.fsum(budgets) * (1.0 + 1e-12)
    gaussian = all(claim.mechanism == Mechanism.GAUSSIAN for claim, _ in claims)
    beside = [row for row in rows if row.setup.privacy is None and row.setup.digest == digest]
    beside = [row for row in beside if where in ("", row.setup.labels["partition"])]
    together = 0.0
    if claims:
        together = gdp_epsilon(math.sqrt(cost), delta) if gaussian else renyi_epsilon(cost, delta)
    name = own[0].setup.labels["data"]
    return ComposedBudget(
        data=f"{name} / {where}" if where else name,
        unit=unit,
        neighbours=neighbours,
        fits=sum(fits for _, fits in (*claims, *stepped)),
        rehearsed=sum(fits for claim, fits in (*claims, *stepped) if claim.rehearsal),
        open_fits=sum(len(row.cells) for row in beside),
        epsilon=together + math.fsum(fits * claim.epsilon for claim, fits in stepped),
        delta=delta + math.fsum(fits * claim.delta for claim, fits in stepped),
    )


def _by_steps(row: Row) -> bool:
    """Say whether the fits of a configuration are by DP-SGD."""
    claimed = row.setup.privacy
    trains = issubclass(estimator_class(row.setup.estimator), FederatedModel)
    return trains and claimed is not None and claimed.unit == Unit.RECORD
