"""Summarises the measures of each configuration over the seeds: mean, standard deviation and number."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any

from privfed.attacks import Status
from privfed.experiments.report.claims import claim_of
from privfed.experiments.running.measure import Part
from privfed.experiments.running.planning import Plan
from privfed.experiments.running.store import Store
from privfed.experiments.study.cells import Setup, attack_id, attack_label, metric_id
from privfed.privacy.claim import PrivacySpent

COSTS = ("bytes_up", "bytes_down", "exchanges", "rounds", "sums", "client_seconds", "server_seconds")
"""Measures of cost: bytes and seconds of one client; `server_seconds` are the server's own."""

_OF_WORDS = ("ran", "remedy", "notes")
"""Values of a fit that describe it in words and are not measures."""

_OF_AN_ATTACK = ("recovered", "precision", "baseline", "bound", "advantage")


@dataclass(frozen=True)
class Stat:
    """Holds a measure over the seeds: mean, sample standard deviation (NaN for one seed), number of seeds."""

    mean: float
    sd: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Stat:
        """Return the figures for at least one value."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else math.nan, len(values))

    def __str__(self) -> str:
        """Return mean and standard deviation, with as many digits as the deviation makes significant."""
        if math.isnan(self.sd):
            return shown(self.mean)
        if self.sd == 0:
            return f"{shown(self.mean)} ± 0"
        digits = min(max(1 - math.floor(math.log10(self.sd)), 0), 4)
        return f"{self.mean:,.{digits}f} ± {self.sd:,.{digits}f}"


def shown(value: float, digits: int = 4) -> str:
    """Return a number formatted for people."""
    if value != 0 and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}" if "e" in text else text


@dataclass(frozen=True)
class Curve:
    """Holds a measure over the rounds, averaged over the seeds; a run that ended keeps its last value."""

    rounds: list[int]
    values: list[Stat]


@dataclass(frozen=True)
class Same:
    """Names an earlier configuration that another one equals.

    Args:
        id: id of the earlier configuration.
        name: name of its algorithm in the report.
        computation: whether both are the same computation; otherwise only their results are the same, to
            the last bit, on every seed.
    """

    id: str
    name: str
    computation: bool

    def __str__(self) -> str:
        """Return a remark for tables."""
        how = "is the same computation as" if self.computation else "came out to the last bit like"
        return f"{how} {self.name}"


@dataclass(frozen=True)
class Row:
    """Holds the summary of one configuration.

    Args:
        id: id of the configuration.
        setup: the configuration.
        cells: seed -> id of its cell, for cells with values.
        errors: (cell, part, error) for each measurement that failed.
        stats: name -> figures; "leakage" is the mean over seeds of the largest advantage of any attack.
        attacks: labels of the attacks that were run on at least one seed.
        not_applicable: label of each attack that had nothing to work on -> why, and on how many seeds.
        leaks: label of each attack -> its headline over the rounds.
        convergence: cost relative to central k-means over the rounds; round 0 is the start.
        opens_to: who reads the totals.
        reveals: what the sum shows to them.
        against: party -> what the claim of differential privacy says against it; empty without a claim.
        notes: warnings of the cells.
        claim: the privacy claim of each fit; None without one.
        ran: the algorithm that its estimator and parameters amount to.
        outcomes: seed -> hash of all that was measured of its fit.
        same_as: an earlier configuration that equals it; None if there is none.
        unconverged: seed -> why its fit did not converge and what helps, for fits that did not.
    """

    id: str
    setup: Setup
    cells: dict[int, str]
    errors: list[tuple[str, str, str]]
    stats: dict[str, Stat]
    attacks: list[str] = field(default_factory=list)
    not_applicable: dict[str, dict[str, int]] = field(default_factory=dict)
    leaks: dict[str, Curve] = field(default_factory=dict)
    convergence: Curve | None = None
    opens_to: str = ""
    reveals: str = ""
    against: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    claim: PrivacySpent | None = None
    unconverged: dict[int, str] = field(default_factory=dict)
    ran: str = ""
    outcomes: dict[int, str] = field(default_factory=dict)
    same_as: Same | None = None

    @property
    def label(self) -> str:
        """All axes in one line."""
        return " / ".join(self.setup.labels.values())

    @property
    def name(self) -> str:
        """Name of its algorithm in the report, and of its defence if it has one."""
        labels = self.setup.labels
        defended = "" if labels["defence"] == "none" else f", {labels['defence']}"
        return f"{labels['algorithm']}{defended}"

    def status(self, attack: str) -> Status:
        """Return how an attack ended, over all seeds on which it was run."""
        if attack not in self.attacks:
            return Status.NOT_APPLICABLE
        return Status.FOUND if self.stats[f"{attack}: advantage"].mean > 0.0 else Status.NOTHING


def summarise(plan: Plan, store: Store) -> list[Row]:
    """Return one row for each configuration, in the plan's order; cells not stored yet are left out."""
    stored = store.read(setup.cell(seed) for setup in plan.setups for seed in plan.seeds)
    return [
        _row(setup, {seed: stored.get(setup.cell(seed), {}) for seed in plan.seeds}) for setup in plan.setups
    ]


def claims_of(rows: Sequence[Row]) -> dict[str, PrivacySpent]:
    """Return the claim under each sum and guarantee that was fitted, by their names in the report."""
    found: dict[str, PrivacySpent] = {}
    for row in rows:
        if row.claim is not None and row.cells:
            found.setdefault(f"{row.setup.labels['sum']}, {row.setup.labels['privacy']}", row.claim)
    return found


def _row(setup: Setup, parts: Mapping[int, Mapping[str, Part]]) -> Row:
    fits = {s: own["fit"] for s, own in parts.items() if "fit" in own and not own["fit"].error}
    named = {attack_id(one): attack_label(one) for one in setup.attacks} | {f"audit:{setup.audit}": "audit"}
    errors = [
        (setup.cell(seed), named.get(name, name), part.error)
        for seed, own in parts.items()
        for name, part in own.items()
        if part.error and name in setup.parts()
    ]
    measured: dict[str, list[float]] = {}
    for fit in fits.values():
        for name, value in {**fit.values, **fit.timing}.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                measured.setdefault(name, []).append(float(value))
    if "bytes_up" in measured:
        pairs = zip(measured["bytes_up"], measured["bytes_down"], strict=True)
        measured["bytes"] = [up + down for up, down in pairs]
    leaks, ran, left_out = _attacked(setup, parts, measured)
    _audited(setup, parts, measured)
    _scored(setup, parts, measured)
    first = next(iter(fits.values()), None)
    return Row(
        setup.id,
        setup,
        {seed: setup.cell(seed) for seed in fits},
        errors,
        {name: Stat.of(values) for name, values in measured.items()},
        attacks=ran,
        not_applicable=left_out,
        leaks=leaks,
        convergence=_curve([(f.values["marks"], f.values["score_ratio_after"]) for f in fits.values()]),
        opens_to="" if first is None else first.values["opens_to"],
        reveals="" if first is None else first.values["reveals"],
        against={} if first is None else first.values["against"],
        notes=sorted({note for fit in fits.values() for note in fit.values.get("notes", [])}),
        claim=None if first is None else claim_of(setup, first.values),
        ran="" if first is None else first.values["ran"],
        outcomes={seed: _outcome(fit.values) for seed, fit in fits.items()},
        unconverged={seed: f.values["remedy"] for seed, f in fits.items() if f.values["converged"] is False},
    )


def _outcome(values: Mapping[str, Any]) -> str:
    """Return a hash of all that was measured of a fit: its centers to the last bit, its bytes and rounds."""
    kept = {name: value for name, value in values.items() if name not in _OF_WORDS}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _attacked(
    setup: Setup, parts: Mapping[int, Mapping[str, Part]], measured: dict[str, list[float]]
) -> tuple[dict[str, Curve], list[str], dict[str, dict[str, int]]]:
    """Add the figures of the attacks; return their curves, which were run, and why others were not."""
    largest: dict[int, float] = {}
    curves: dict[str, Curve] = {}
    left_out: dict[str, Counter[str]] = {}
    ran = []
    for attack in setup.attacks:
        label, along = attack_label(attack), []
        for seed, own in parts.items():
            part = own.get(attack_id(attack))
            if part is None or part.error:
                continue
            report = part.values["report"]
            if report["status"] == Status.NOT_APPLICABLE:
                # An attack that was not run has no figures, and does not count towards leakage.
                left_out.setdefault(label, Counter())[report["why"]] += 1
                continue
            largest[seed] = max(largest.get(seed, 0.0), report["advantage"])
            for name in _OF_AN_ATTACK:
                if report[name] is not None:
                    measured.setdefault(f"{label}: {name}", []).append(float(report[name]))
            if part.values["rounds"]:
                along.append((part.values["rounds"], part.values["recovered"]))
        if f"{label}: advantage" in measured:
            ran.append(label)
        curve = _curve(along)
        if curve is not None:
            curves[label] = curve
    if largest:
        measured["leakage"] = list(largest.values())
    return curves, ran, {label: dict(why) for label, why in left_out.items()}


def _audited(setup: Setup, parts: Mapping[int, Mapping[str, Part]], measured: dict[str, list[float]]) -> None:
    for own in parts.values():
        part = own.get(f"audit:{setup.audit}")
        if part is not None and not part.error:
            by_curve = part.values["epsilon_gdp"]
            measured.setdefault("audited_epsilon", []).append(max(part.values["epsilon"], by_curve or 0.0))


def metric_column(metric: str) -> str:
    """Return the name of a named metric among the measures, whose own names it cannot take."""
    return f"metric: {metric}"


def _scored(setup: Setup, parts: Mapping[int, Mapping[str, Part]], measured: dict[str, list[float]]) -> None:
    for metric in setup.metrics:
        for own in parts.values():
            part = own.get(metric_id(metric))
            # A metric that compares with labels has no value where the data have none.
            if part is not None and not part.error and "value" in part.values:
                measured.setdefault(metric_column(metric), []).append(part.values["value"])


def _curve(along: Iterable[tuple[list[int], list[float]]]) -> Curve | None:
    """Average curves with different rounds and lengths."""
    known = [dict(zip(rounds, values, strict=False)) for rounds, values in along]
    known = [{at: value for at, value in one.items() if value is not None} for one in known]
    known = [one for one in known if one]
    if not known:
        return None
    rounds = sorted({at for one in known for at in one})
    values = []
    for at in rounds:
        reached = [[value for when, value in one.items() if when <= at] for one in known]
        values.append(Stat.of([one[-1] for one in reached if one]))
    return Curve(rounds, values)


def plain(row: Row) -> dict[str, Any]:
    """Return a row as values for JSON, without those that differ from run to run."""
    return {
        "id": row.id,
        "labels": row.setup.labels,
        "cells": {str(seed): cell for seed, cell in row.cells.items()},
        "stats": {
            name: {"mean": stat.mean, "sd": None if math.isnan(stat.sd) else stat.sd, "n": stat.n}
            for name, stat in row.stats.items()
        },
        "attacks": {
            name: {"status": row.status(name), "why": row.not_applicable.get(name, {})}
            for name in dict.fromkeys([*row.attacks, *row.not_applicable])
        },
        "leaks": {name: _plain_curve(curve) for name, curve in row.leaks.items()},
        "convergence": None if row.convergence is None else _plain_curve(row.convergence),
        "opens_to": row.opens_to,
        "reveals": row.reveals,
        "against": row.against,
        "privacy": None if row.claim is None else row.claim.to_dict(),
        "notes": row.notes,
        "ran": row.ran,
        "same_as": None if row.same_as is None else asdict(row.same_as),
        "unconverged": {str(seed): why for seed, why in row.unconverged.items()},
        "errors": [{"cell": cell, "part": part, "error": error} for cell, part, error in row.errors],
    }


def _plain_curve(curve: Curve) -> dict[str, Any]:
    return {"rounds": curve.rounds, "means": [stat.mean for stat in curve.values]}
