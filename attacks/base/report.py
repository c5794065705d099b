"""The report of an attack: one headline figure, what it is compared with, a table and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from privfed.attacks.base.coverage import Coverage, in_words
from privfed.core.stored.files import replaced
from privfed.core.values.domain import FloatArray


class Status(StrEnum):
    """Says how an attack ended: what was not read was not found to be safe."""

    NOT_APPLICABLE = "not applicable"
    NOT_READ = "not read"
    IN_PART = "read in part"
    NOTHING = "found nothing"
    FOUND = "found"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Reports how successful an attack was. Fractions lie in [0, 1]; NaN if a figure has no meaning.

    Args:
        attack: name of the attack.
        goal: what `recovered` is a fraction of, in words.
        recovered: the headline figure; NaN if the attack was not run.
        why: why the attack was not run; empty if it was.
        chance: margin by which chance alone lifts the headline above the baseline in one case of twenty.
        precision: fraction of claims that are right.
        claims: number of claims.
        linked: whether claims name the client that they are about; then a claim that matches another
            client's row is wrong.
        baseline: the headline of the same attacker without access to the run; NaN without a prior.
        bound: the largest headline that the reasoning in `bound_of` could reach on the same view; NaN
            without one.
        bound_of: the reasoning that `bound` limits, in words. Other reasoning may exceed it.
        queries: questions asked by an active attack, sums seen by a passive one.
        seconds: run time of the attack.
        coverage: which of the sums that the view showed were read.
        details: further figures by name.
        scenes: arrays to draw, by name: "rows" and "claims" (n, 2), or curves (n, 2).
    """

    attack: str
    goal: str
    recovered: float
    why: str = ""
    chance: float = 0.0
    precision: float = math.nan
    claims: int = 0
    linked: bool = False
    baseline: float = math.nan
    bound: float = math.nan
    bound_of: str = ""
    queries: int = 0
    seconds: float = math.nan
    coverage: Coverage = field(default=Coverage(), repr=False)
    details: Mapping[str, float] = field(default_factory=dict)
    scenes: Mapping[str, FloatArray] = field(default_factory=dict, repr=False)

    @property
    def advantage(self) -> float:
        """What was found beyond baseline and chance, as a share of what the baseline leaves to find.

        (recovered - chance - baseline) / (1 - baseline), at least 0: 0 for an attack that does no better
        than without access, 1 for one that finds everything. NaN if the attack was not run.
        """
        if math.isnan(self.recovered):
            return math.nan
        baseline = 0.0 if math.isnan(self.baseline) else self.baseline
        gained = self.recovered - self.chance - baseline
        return 0.0 if baseline >= 1.0 else max(0.0, gained) / (1.0 - baseline)

    @property
    def status(self) -> Status:
        """Whether the attack was run, found more than without access, and else read all that was shown."""
        if self.why:
            return Status.NOT_APPLICABLE
        if self.advantage > 0.0:
            return Status.FOUND
        if not self.coverage.unread:
            return Status.NOTHING
        return Status.IN_PART if self.coverage.read else Status.NOT_READ

    def to_dict(self) -> dict[str, Any]:
        """Return all but the scenes as plain values for JSON, with None for NaN and infinity."""
        names = ("attack", "goal", "status", "why", "recovered", "precision", "claims", "linked", "baseline")
        flat = {
            name: _plain(getattr(self, name)) for name in (*names, "advantage", "bound", "queries", "seconds")
        }
        texts = {
            "bound_of": self.bound_of if math.isfinite(self.bound) else None,
            "remark": self.remark or None,
        }
        details = {name: _plain(value) for name, value in self.details.items()}
        return {**flat, **texts, **self.coverage.to_dict(), "details": details}

    @property
    def remark(self) -> str:
        """Warning to show if `recovered` lies above `bound`; empty otherwise."""
        if not self.recovered > self.bound + 1e-9:
            return ""
        return f"recovered lies above bound, which limits no reasoning but this: {self.bound_of}"

    def __str__(self) -> str:
        """Return the report as a table of two columns."""
        plain = self.to_dict()
        details, left = plain.pop("details"), in_words(plain.pop("not_read"))
        rows = [*plain.items(), ("read", in_words(plain["read"])), ("not read", left), *details.items()]
        shown = [
            (name, _shown(value))
            for name, value in rows
            if not isinstance(value, list) and value not in (None, "")
        ]
        width = max(len(name) for name, _ in shown)
        return "\n".join(f"{name:<{width}}  {value}" for name, value in shown)

    def picture(self, path: str | Path) -> None:
        """Draw the headline beside baseline and bound, and the scenes, into a PNG, PDF or SVG file.

        The scenes may contain rows, so only its owner may read the file.
        """
        from matplotlib.figure import Figure

        # All labels are known, so the margins are given: to search for a layout takes as long as to draw.
        margins = {"left": 0.06, "right": 0.99, "bottom": 0.13, "top": 0.87, "wspace": 0.23}
        figure = Figure(figsize=(10, 4))
        left, right = figure.subplots(1, 2, width_ratios=(1, 2), gridspec_kw=margins)
        bars = {
            "no access": self.baseline,
            "recovered": self.recovered,
            "precision": self.precision,
            "bound": self.bound,
        }
        known = {name: value for name, value in bars.items() if math.isfinite(value)}
        left.bar(list(known), list(known.values()), color="tab:blue")
        left.set_ylim(min([0.0, *known.values()]), 1.0)
        figure.suptitle(f"{self.attack}: {self.goal}", x=margins["left"], ha="left")
        left.tick_params(axis="x", labelsize="small")
        marks = {"rows": ("o", "0.75"), "claims": ("x", "tab:red")}
        for name, points in self.scenes.items():
            if name in marks:
                marker, color = marks[name]
                right.scatter(*points.T, s=24, marker=marker, color=color, label=name)
                right.set(xlabel="first principal direction", ylabel="second principal direction")
                # Large and small coordinates are written with one power of ten, as the margin is given.
                right.ticklabel_format(scilimits=(-2, 3))
            else:
                right.plot(*points.T, label=name)
        if self.scenes:
            right.legend()
        else:
            right.set_axis_off()
        if self.why:
            right.text(0.0, 0.5, f"{self.status}: {self.why}", wrap=True, transform=right.transAxes)
        # A path without an extension becomes a PNG file, as in matplotlib.
        path = Path(path) if Path(path).suffix else Path(path).with_suffix(".png")
        with replaced(path) as fresh:
            figure.savefig(fresh)


def projected(*tables: FloatArray) -> list[FloatArray]:
    """Project tables onto the first table's two principal directions, for drawing; (n, 2) each."""
    origin = tables[0].mean(axis=0)
    if tables[0].shape[1] == 1:
        return [np.column_stack([one, np.zeros(len(one))]) for one in tables]
    directions = np.linalg.svd(tables[0] - origin, full_matrices=False)[2][:2]
    if len(directions) < 2:
        directions = np.eye(tables[0].shape[1])[:2]
    return [(one - origin) @ directions.T for one in tables]


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
