"""What each fit of a study claims, what all fits spend together, and what each party saw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.roles.secure_sum import SIGHTS, declared
from privfed.core.values.guarantee import Mechanism, Noise, Unit
from privfed.deep.estimators.base import FederatedModel
from privfed.errors import PrivFedError
from privfed.experiments.cells import CellPrivacy, Setup, estimator_class, secure_sum
from privfed.experiments.report.summary import Row
from privfed.privacy.accounting import budget_of, gdp_epsilon, renyi_epsilon
from privfed.privacy.claim import PrivacySpent
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
        data: names of the data sets that are read from these rows; at unit "client" with the partition, which
            defines the clients.
        unit: what is protected.
        neighbours: neighbouring relation of that unit.
        fits: number of fits with a claim, seeded ones and active attacks in place of a fit among them.
        seeded: how many of them are seeded, which protect nobody.
        open_fits: number of those on the same rows without this kind of claim; for a reader of these, no
            claim holds.
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
            + f" {self.open_fits} fits on the same rows have no guarantee, or one of another kind. Together "
            "with them, no guarantee holds." * (self.open_fits > 0)
        )


Asked = Sequence[tuple[Mapping[str, Any], int]]
"""The contents of cells (`Setup.stored`), and how often each was asked."""


def composed_budgets(setups: Sequence[Setup], asked: Asked) -> list[ComposedBudget]:
    """Return what was ever asked in a study's folder, for all rows, units and neighbouring relations.

    Fits count that a study no longer has, and those that were made again for a part that came later. So does
    whatever was read from the same rows under another name or scale.

    Budgets of claims for one unit add up. Fits under Gaussian noise compose exactly
    (`privfed.privacy.accounting`). If one of them has Skellam noise, the bound is that of Renyi differential
    privacy (`privfed.privacy.accounting`). Epsilon and delta of fits by DP-SGD are added (basic composition).

    Args:
        setups: configurations of the study, which name data and partitions.
        asked: from its store.
    """
    rows = _same_rows(asked)
    kinds = dict.fromkeys(filter(None, (_kind(content, rows) for content, _ in asked)))
    return [_composed(kind, setups, asked, rows) for kind in kinds]


_Rows = Mapping[str, frozenset[str]]
"""Source -> all sources and hashes of data that are of the same rows."""


def _same_rows(asked: Asked) -> _Rows:
    """Return which sources are of the same rows: those that gave equal data, as where a folder was moved."""
    groups = list[frozenset[str]]()
    for content, _ in asked:
        own = frozenset((content["source"], content["data"]))
        groups = [one for one in groups if not one & own] + [own.union(*(one for one in groups if one & own))]
    return {name: group for group in groups for name in group}


_Kind = tuple[frozenset[str], str, str, str]


def _kind(content: Mapping[str, Any], rows: _Rows) -> _Kind | None:
    """Return rows, clients, unit and neighbours of a claim; None without one."""
    if content["privacy"] is None:
        return None
    claim = msgspec.convert(content["privacy"], CellPrivacy)
    clients = _text(content["partition"]) if claim.unit == Unit.CLIENT else ""
    return rows[content["source"]], clients, claim.unit, claim.neighbours


def _text(partition: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in partition.items() if value not in (None, 0, ""))


def _composed(kind: _Kind, setups: Sequence[Setup], asked: Asked, rows: _Rows) -> ComposedBudget:
    same, clients, unit, neighbours = kind
    own = [
        (msgspec.convert(content["privacy"], CellPrivacy), n, _by_steps(content))
        for content, n in asked
        if _kind(content, rows) == kind
    ]
    others = [(content, n) for content, n in asked if _kind(content, rows) != kind]
    stepped = [(claim, n) for claim, n, steps in own if steps]
    claims = [(claim, n) for claim, n, steps in own if not steps]
    delta, epsilon = max((claim.delta for claim, _ in claims), default=0.0), 0.0
    # Slightly increased, to cover float64 rounding of the sum.
    cost = math.fsum(n * budget_of(one.mechanism, one.epsilon, one.delta) for one, n in claims) * (
        1.0 + 1e-12
    )
    if claims:
        gaussian = all(claim.mechanism == Mechanism.GAUSSIAN for claim, _ in claims)
        epsilon = gdp_epsilon(math.sqrt(cost), delta) if gaussian else renyi_epsilon(cost, delta)
    alike = [one for one in setups if same & {one.source, one.digest}]
    files = (Path(content["source"]).name for content, _ in asked if content["source"] in same)
    data = ", ".join(dict.fromkeys(one.labels["data"] for one in alike)) or next(files)
    named = {_text(one.content["partition"]): one.labels["partition"] for one in alike}
    return ComposedBudget(
        data=f"{data} / {named.get(clients, clients)}" if clients else data,
        unit=unit,
        neighbours=neighbours,
        fits=sum(n for _, n, _ in own),
        seeded=sum(n for claim, n, _ in own if claim.seeded),
        open_fits=sum(n for content, n in others if content["source"] in same),
        epsilon=epsilon + math.fsum(n * claim.epsilon for claim, n in stepped),
        delta=delta + math.fsum(n * claim.delta for claim, n in stepped),
    )


def _by_steps(content: Mapping[str, Any]) -> bool:
    """Return whether a fit is by DP-SGD; so is one whose class is gone, as what holds then holds always."""
    try:
        trains = issubclass(estimator_class(content["estimator"]), FederatedModel)
    except PrivFedError:
        return True
    return trains and content["privacy"]["unit"] == Unit.RECORD


def saw(row: Row) -> dict[str, str]:
    """Return for each party what it saw of a run of this configuration."""
    protocol = secure_sum(row.setup)
    learnt = "models" if issubclass(estimator_class(row.setup.estimator), FederatedModel) else "centroids"
    totals = SIGHTS[row.reveals].whole if row.reveals in SIGHTS else row.reveals
    besides = f"; besides, as totals are verified, {totals}" if protocol.verified else ""
    server, clients = (
        (
            f"every question, and {totals}",
            f"the questions, which hold the {learnt} of each round, and its own answers{besides}",
        )
        if row.recipient == "server"
        else (
            "who took part and the lengths of messages; no question, no total",
            f"the questions and {totals}",
        )
    )
    noise, assumed = row.setup.privacy, str(protocol.assumptions)
    if noise is not None and protocol.reveals == "contributions":
        assumed = "each client draws the whole noise by itself; its answers protect its rows by nothing else"
    if noise is not None:
        kind = "seeded noise: nobody is protected here" if noise.seeded else "claimed"
        whose = "it noised the totals itself," if noise.noise == Noise.SERVER else "answers carry noise"
        server += f"; {whose} for epsilon {noise.epsilon:g} of one {noise.unit} ({kind})"
    if by_author(protocol):
        server, clients, assumed = declared(server), declared(clients), declared(assumed)
    return {
        "the server": server,
        "a client": clients,
        "an observer": f"the final {learnt}",
        "assumed": assumed,
    }
