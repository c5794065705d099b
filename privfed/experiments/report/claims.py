"""What each fit of a study claims, what all fits spend together, and what each party saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from privfed.core.roles.secure_sum import SIGHTS, declared
from privfed.core.values.guarantee import Mechanism, Noise, Unit
from privfed.deep.estimators.base import FederatedModel
from privfed.experiments.cells import estimator_class, secure_sum
from privfed.experiments.report.summary import Row
from privfed.privacy.accounting import gdp_epsilon, renyi_epsilon
from privfed.privacy.claim import PrivacySpent
from privfed.privacy.pricing import budget_of
from privfed.protocols.secure_sums import by_author

SCORED = "All measures are scored on the clients' rows: no claim of differential privacy covers them."


def lines_of(claims: Mapping[str, PrivacySpent]) -> list[str]:
    """Return what claims say, line by line: what some share stands once; what all share, at the end."""
    said = {
        name: [f"{what}: {fact}" for what, fact in claim.facts().items()] for name, claim in claims.items()
    }
    everywhere = [fact for fact in next(iter(said.values()), []) if all(fact in own for own in said.values())]
    common = everywhere if len(said) > 1 else []
    alike: dict[str, list[str]] = {}
    for name, facts in said.items():
        alike.setdefault("; ".join(fact for fact in facts if fact not in common), []).append(name)
    lines = [f"{' / '.join(names)}: {own}." for own, names in alike.items() if own]
    return [*lines, f"All {len(said)} of these: {'; '.join(common)}."] if common else lines


@dataclass(frozen=True)
class ComposedBudget:
    """Holds the budget of all fits under one unit and neighbouring relation on the same rows.

    Args:
        data: name of the data set; at unit "client" with the partition, which defines the clients.
        unit: what is protected.
        neighbours: neighbouring relation of that unit.
        fits: number of fits with a claim: seeded ones, active attacks in place of a fit, and fits that later
            measurements of a cell needed.
        seeded: how many of them are seeded, which protect nobody.
        open_fits: number of those on the same data without a claim; for a reader of these, no claim holds.
        epsilon: epsilon of all claims together, rounded up.
        delta: largest delta of the claims, and the sum of those of fits by DP-SGD.
    """

    data: str
    unit: str
    neighbours: str
    fits: int
    seeded: int
    open_fits: int
    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Return the budget in a few sentences."""
        return (
            f"{self.data}: {self.fits} fits and active attacks with a guarantee for each {self.unit} "
            f"({self.neighbours}) amount to epsilon {self.epsilon:.4g} at delta {self.delta:.3g} for a "
            "reader of all of them."
            + f" {self.seeded} are seeded runs: their noise repeats, and nobody is protected."
            * (self.seeded > 0)
            + f" {self.open_fits} on the same rows have none: with these, nothing holds."
            * (self.open_fits > 0)
        )


def composed_budgets(rows: Sequence[Row]) -> list[ComposedBudget]:
    """Return the composed budget of a study's fits, for each data set, unit and neighbouring relation.

    Budgets of claims for one unit add up. Fits under Gaussian noise compose exactly
    (`privfed.privacy.accounting`). If one of them has Skellam noise, the bound is that of Renyi differential
    privacy (`privfed.privacy.accounting`). Epsilon and delta of fits by DP-SGD are added (basic composition).
    """
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        claimed = row.setup.privacy
        if claimed is not None and row.asked:
            where = row.setup.labels["partition"] if claimed.unit == Unit.CLIENT else ""
            key = (row.setup.digest, where, claimed.unit, claimed.neighbours)
            groups.setdefault(key, []).append(row)
    return [_composed(key, own, rows) for key, own in groups.items()]


def _composed(key: tuple[str, str, str, str], own: Sequence[Row], rows: Sequence[Row]) -> ComposedBudget:
    digest, where, unit, neighbours = key
    fits = [(row.setup.privacy, row.asked, _by_steps(row)) for row in own if row.setup.privacy is not None]
    stepped = [(claim, n) for claim, n, steps in fits if steps]
    claims = [(claim, n) for claim, n, steps in fits if not steps]
    delta, epsilon = max((claim.delta for claim, _ in claims), default=0.0), 0.0
    # Slightly increased, to cover float64 rounding of the sum.
    cost = math.fsum(n * budget_of(one.mechanism, one.epsilon, one.delta) for one, n in claims) * (
        1.0 + 1e-12
    )
    if claims:
        gaussian = all(claim.mechanism == Mechanism.GAUSSIAN for claim, _ in claims)
        epsilon = gdp_epsilon(math.sqrt(cost), delta) if gaussian else renyi_epsilon(cost, delta)
    name = own[0].setup.labels["data"]
    return ComposedBudget(
        data=f"{name} / {where}" if where else name,
        unit=unit,
        neighbours=neighbours,
        fits=sum(n for _, n, _ in fits),
        seeded=sum(n for claim, n, _ in fits if claim.seeded),
        open_fits=sum(
            row.asked
            for row in rows
            if row.setup.privacy is None
            and row.setup.digest == digest
            and where in ("", row.setup.labels["partition"])
        ),
        epsilon=epsilon + math.fsum(n * claim.epsilon for claim, n in stepped),
        delta=delta + math.fsum(n * claim.delta for claim, n in stepped),
    )


def _by_steps(row: Row) -> bool:
    """Return whether the fits of a configuration are by DP-SGD."""
    trains = issubclass(estimator_class(row.setup.estimator), FederatedModel)
    return trains and row.setup.privacy is not None and row.setup.privacy.unit == Unit.RECORD


def saw(row: Row) -> dict[str, str]:
    """Return for each party what it saw of a run of this configuration."""
    protocol = secure_sum(row.setup)
    learnt = "models" if issubclass(estimator_class(row.setup.estimator), FederatedModel) else "centroids"
    totals = SIGHTS[row.reveals].whole if row.reveals in SIGHTS else row.reveals
    if row.recipient == "server":
        server = f"every question, and {totals}"
        clients = f"the questions, which hold the {learnt} of each round, and its own answers"
        if protocol.verified:
            clients += f"; besides, as totals are verified, {totals}"
    else:
        server = "who took part and the lengths of messages; no question, no total"
        clients = f"the questions and {totals}"
    assumed = str(protocol.assumptions)
    noise = row.setup.privacy
    if noise is not None:
        kind = "seeded noise: nobody is protected here" if noise.seeded else "claimed"
        whose = "it noised the totals itself," if noise.noise == Noise.SERVER else "answers carry noise"
        server += f"; {whose} for epsilon {noise.epsilon:g} of one {noise.unit} ({kind})"
        if protocol.reveals == "contributions":
            assumed = (
                "each client draws the whole noise by itself; its answers protect its rows by nothing else"
            )
    if by_author(protocol):
        server, clients, assumed = declared(server), declared(clients), declared(assumed)
    return {
        "the server": server,
        "a client": clients,
        "an observer": f"the final {learnt}",
        "assumed": assumed,
    }
