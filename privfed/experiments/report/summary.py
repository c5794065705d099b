"""Summarises the measures of each configuration over the seeds: mean, standard deviation and number."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from privfed.attacks import Status
from privfed.attacks.base.reading import read_by, unread
from privfed.experiments.cells import Setup, attack_id, metric_id
from privfed.experiments.measuring import Part
from privfed.experiments.planning import Plan
from privfed.experiments.report.curves import Curve, Stat, curve_of, over_fits
from privfed.experiments.running import Store
from privfed.experiments.study import Attack
from privfed.privacy.claim import PrivacySpent

COSTS = ("bytes_up", "bytes_down", "exchanges", "rounds", "sums", "client_seconds", "server_seconds")
"""Measures of cost: bytes and seconds of one client; `server_seconds` are the server's own."""

_TEXTS = ("ran", "findings", "notes")
"""Texts about a fit, which are no measures."""

_OF_AN_ATTACK = ("recovered", "precision", "baseline", "bound", "advantage")

_OWN_NAMES = ("estimator", "parameters")
"""Parts of a configuration that describe its algorithm by the study's own name and parameters."""


Measured = dict[int, dict[str, float]]
"""Seed -> measure -> value."""


class Adversary(StrEnum):
    """Names who attacks."""

    SERVER = "the server"
    HELPED = "the server with colluding clients"
    CLIENTS = "colluding clients"
    OBSERVER = "an observer of the model"


def adversary_of(attack: Attack) -> Adversary:
    """Return who carries out an attack of a study."""
    server = Adversary.HELPED if attack.colluding else Adversary.SERVER
    return {"server": server, "clients": Adversary.CLIENTS, "observer": Adversary.OBSERVER}[attack.party]


def attacks_by(adversary: Adversary, attacks: Sequence[Attack]) -> list[str]:
    """Return the titles of the attacks that an adversary can carry out; a helped server has its own too."""
    own = {adversary} | ({Adversary.SERVER} if adversary is Adversary.HELPED else set())
    return [one.title for one in attacks if adversary_of(one) in own]


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
        stats: name -> figures. "leakage" is the mean over seeds of the largest advantage of any attack. With
            the name of an adversary after it, it is that of any attack by this adversary.
        reports: label of each attack -> its report on each seed, from `attacks.Report.to_dict`.
        attacks: labels of the attacks that were run on at least one seed.
        not_applicable: label of each attack that had nothing to work on -> why, and on how many seeds.
        leaks: label of each attack -> its headline over the rounds.
        fits: label of each attack -> its headline over the number of fits of the same rows that it read.
        convergence: cost relative to central k-means over the rounds; round 0 is the start.
        recipient: who reads the totals.
        reveals: what the sum shows to them.
        against: party -> what the claim of differential privacy says against it; empty without a claim.
        notes: warnings of the cells.
        claim: the privacy claim of each fit; None without one.
        ran: the algorithm that its estimator and parameters amount to.
        outcomes: seed -> hash of all that was measured of its fit.
        measured: seed -> name -> value; `stats` are their figures.
        same_as: an earlier configuration that equals it; None if there is none.
        findings: seed -> code -> what its fit says against its own result, and what helps.
    """

    id: str
    setup: Setup
    cells: dict[int, str]
    errors: list[tuple[str, str, str]]
    stats: dict[str, Stat]
    reports: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict, repr=False)
    attacks: list[str] = field(default_factory=list)
    not_applicable: dict[str, dict[str, int]] = field(default_factory=dict)
    leaks: dict[str, Curve] = field(default_factory=dict)
    fits: dict[str, Curve] = field(default_factory=dict)
    convergence: Curve | None = None
    recipient: str = ""
    reveals: str = ""
    against: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    claim: PrivacySpent | None = None
    findings: dict[int, dict[str, str]] = field(default_factory=dict)
    ran: str = ""
    outcomes: dict[int, str] = field(default_factory=dict)
    measured: dict[int, dict[str, float]] = field(default_factory=dict, repr=False)
    same_as: Same | None = None

    @property
    def name(self) -> str:
        """Name of its algorithm in the report, and of its defence if it has one."""
        labels = self.setup.labels
        defended = "" if labels["defence"] == "none" else f", {labels['defence']}"
        return f"{labels['algorithm']}{defended}"

    @property
    def unconverged(self) -> list[int]:
        """Seeds whose fits did not converge."""
        return [seed for seed, own in self.findings.items() if "unconverged" in own]

    def status(self, attack: str) -> Status:
        """Return how an attack ended, over all seeds on which it was run."""
        if attack not in self.attacks:
            return Status.NOT_APPLICABLE
        if self.stats[f"{attack}: advantage"].mean > 0.0:
            return Status.FOUND
        ended = {one["status"] for one in self.reports.get(attack, {}).values()}
        return next((one for one in (Status.NOT_READ, Status.OPEN) if one in ended), Status.NOT_CERTAIN)

    @property
    def unread(self) -> list[Mapping[str, Any]]:
        """What was shown and read by no attack on it, on the first seed that was attacked."""
        seed = next((seed for each in self.reports.values() for seed in each), None)
        said = {name: each[seed] for name, each in self.reports.items() if seed in each}
        return [*unread(read_by(said)), *scaled(self.setup)] if said else []


def scaled(setup: Setup) -> list[Mapping[str, Any]]:
    """Return the sums that found a configuration's scale, as `unread` does: attacks read the fit alone.

    Where ranges are declared, "range" asks none.
    """
    how = setup.parameters.get("scale")
    if how is None or (how == "range" and setup.data.low is not None):
        return []
    return [{"question": "FederatedScaler", "purpose": "before the fit", "sums": [], "shown": "all its sums"}]


def summarise(plan: Plan, store: Store) -> list[Row]:
    """Return one row for each configuration with a stored part, in the plan's order, and mark equal ones."""
    stored = store.read(setup.cell(seed) for setup in plan.setups for seed in plan.seeds)
    rows = [
        _row(setup, {seed: stored.get(setup.cell(seed), {}) for seed in plan.seeds}) for setup in plan.setups
    ]
    return marked([row for row in rows if row.cells or row.errors])


def _row(setup: Setup, parts: Mapping[int, Mapping[str, Part]]) -> Row:
    known = {
        seed: {name: one.values for name, one in own.items() if not one.error} for seed, own in parts.items()
    }
    fits = {seed: own["fit"] for seed, own in known.items() if "fit" in own}
    measured: Measured = defaultdict(dict)
    for seed, fit in fits.items():
        for name, value in {**fit, **parts[seed]["fit"].timing}.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                measured[seed][name] = float(value)
        measured[seed]["bytes"] = float(fit["bytes_up"] + fit["bytes_down"])
    first: Mapping[str, Any] = next(iter(fits.values()), {})
    named = {attack_id(one): one.title for one in setup.attacks} | {f"audit:{setup.audit}": "audit"}
    found = {
        one.title: {seed: own[attack_id(one)] for seed, own in known.items() if attack_id(one) in own}
        for one in setup.attacks
    }
    reports = {title: {seed: one["report"] for seed, one in each.items()} for title, each in found.items()}
    not_applicable = _add_attacks(reports, measured)
    _add_leakage(setup, reports, measured)
    _add_parts(setup, known, measured)
    curves = {
        title: curve_of((one["rounds"], one["recovered"]) for one in each.values())
        for title, each in found.items()
    }
    together = {
        one.title: {seed: own[setup.fits_id(one)] for seed, own in known.items() if setup.fits_id(one) in own}
        for one in setup.pooling
    }
    named |= {setup.fits_id(one): f"{one.title}, several fits" for one in setup.pooling}
    return Row(
        setup.id,
        setup,
        {seed: setup.cell(seed) for seed in fits},
        [
            (setup.cell(seed), named.get(name, name), part.error)
            for seed, own in parts.items()
            for name, part in own.items()
            if part.error and name in setup.parts()
        ],
        {
            name: Stat.of([own[name] for own in measured.values() if name in own])
            for name in dict.fromkeys(name for own in measured.values() for name in own)
        },
        reports=reports,
        attacks=[
            title for title in reports if any(f"{title}: advantage" in own for own in measured.values())
        ],
        not_applicable=not_applicable,
        leaks={title: curve for title, curve in curves.items() if curve is not None},
        fits=over_fits(together),
        convergence=curve_of((fit["marks"], fit["score_ratio_after"]) for fit in fits.values()),
        recipient=first.get("recipient", ""),
        reveals=first.get("reveals", ""),
        against=first.get("against", {}),
        notes=sorted({note for fit in fits.values() for note in fit.get("notes", [])}),
        claim=None if not first or first["claim"] is None else PrivacySpent.from_dict(first["claim"]),
        ran=first.get("ran", ""),
        outcomes={seed: _outcome(fit) for seed, fit in fits.items()},
        measured=dict(measured),
        findings={seed: fit["findings"] for seed, fit in fits.items() if fit.get("findings")},
    )


def _outcome(values: Mapping[str, Any]) -> str:
    """Return a hash of all that was measured of a fit: its centers to the last bit, its bytes and rounds."""
    kept = {name: value for name, value in values.items() if name not in _TEXTS}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def _add_attacks(
    reports: Mapping[str, Mapping[int, Mapping[str, Any]]], measured: Measured
) -> dict[str, dict[str, int]]:
    """Add the figures of the attacks that were run; return why others were not, and on how many seeds."""
    left_out: dict[str, dict[str, int]] = {}
    for title, each in reports.items():
        why = Counter(one["why"] for one in each.values() if one["status"] == Status.NOT_APPLICABLE)
        left_out |= {title: dict(why)} if why else {}
        for seed, report in each.items():
            # An attack that was not run has no figures, and does not count towards leakage.
            for name in _OF_AN_ATTACK if report["status"] != Status.NOT_APPLICABLE else ():
                if report[name] is not None:
                    measured[seed][f"{title}: {name}"] = float(report[name])
    return left_out


def _add_leakage(
    setup: Setup, reports: Mapping[str, Mapping[int, Mapping[str, Any]]], measured: Measured
) -> None:
    """Add leakage: on each seed the largest advantage of any attack, and of those by each adversary."""
    kinds = {"leakage": list(reports)}
    kinds |= {f"leakage: {one}": attacks_by(one, setup.attacks) for one in Adversary}
    for name, titles in kinds.items():
        for seed, report in (pair for title in titles for pair in reports[title].items()):
            if report["status"] != Status.NOT_APPLICABLE:
                measured[seed][name] = max(measured[seed].get(name, 0.0), report["advantage"])


def _add_parts(
    setup: Setup, known: Mapping[int, Mapping[str, Mapping[str, Any]]], measured: Measured
) -> None:
    """Add the audit and the named metrics."""
    for seed, own in known.items():
        if audit := own.get(f"audit:{setup.audit}"):
            measured[seed]["audited_epsilon"] = max(audit["epsilon"], audit["epsilon_gdp"] or 0.0)
        for metric in setup.metrics:
            # A metric that compares with labels has no value where the data have none.
            if "value" in own.get(metric_id(metric), {}):
                measured[seed][metric_column(metric)] = own[metric_id(metric)]["value"]


def metric_column(metric: str) -> str:
    """Return the name of a named metric among the measures, whose own names it cannot take."""
    return f"metric: {metric}"


def computation(setup: Setup, ran: str) -> str:
    """Return a configuration as text, with the algorithm that actually ran."""
    content = {name: value for name, value in setup.content.items() if name not in _OWN_NAMES}
    return json.dumps({**content, "ran": ran}, sort_keys=True)


def marked(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, marking those that equal an earlier one of the same data, sum and guarantee."""
    first: dict[Hashable, Row] = {}
    found = []
    for row in rows:
        results = (computation(row.setup, ""), *sorted(row.outcomes.items())) if row.outcomes else None
        computed = computation(row.setup, row.ran) if row.ran else None
        equal = [(first.setdefault(key, row), key is computed) for key in (computed, results) if key]
        same = (Same(other.id, other.name, exact) for other, exact in equal if other is not row)
        found.append(replace(row, same_as=next(same, None)))
    return found


def claims_of(rows: Sequence[Row]) -> dict[str, PrivacySpent]:
    """Return the claim under each sum and guarantee that was fitted, by their names in the report."""
    found: dict[str, PrivacySpent] = {}
    for row in rows:
        if row.claim is not None and row.cells:
            found.setdefault(f"{row.setup.labels['sum']}, {row.setup.labels['privacy']}", row.claim)
    return found


def plain(row: Row) -> dict[str, Any]:
    """Return a row as values for JSON, without those that differ from run to run."""
    return {
        "id": row.id,
        "labels": row.setup.labels,
        "data": row.setup.digest,
        "cells": {str(seed): cell for seed, cell in row.cells.items()},
        "stats": {
            name: {"mean": stat.mean, "sd": None if math.isnan(stat.sd) else stat.sd, "n": stat.n}
            for name, stat in row.stats.items()
        },
        "attacks": {
            name: {"status": row.status(name), "why": row.not_applicable.get(name, {})}
            for name in dict.fromkeys([*row.attacks, *row.not_applicable])
        },
        "unread": row.unread,
        "leaks": {name: _plaincurve_of(curve) for name, curve in row.leaks.items()},
        "fits": {name: _plaincurve_of(curve, "fits") for name, curve in row.fits.items()},
        "convergence": None if row.convergence is None else _plaincurve_of(row.convergence),
        "recipient": row.recipient,
        "reveals": row.reveals,
        "against": row.against,
        "privacy": None if row.claim is None else row.claim.to_dict(),
        "notes": row.notes,
        "ran": row.ran,
        "same_as": None if row.same_as is None else asdict(row.same_as),
        "findings": {str(seed): own for seed, own in row.findings.items()},
        "errors": [{"cell": cell, "part": part, "error": error} for cell, part, error in row.errors],
    }


def _plaincurve_of(curve: Curve, over: str = "rounds") -> dict[str, Any]:
    return {over: curve.rounds, "means": [stat.mean for stat in curve.values]}
