"""Figures over the seeds, and curves of them over rounds or over fits of the same rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from statistics import fmean, stdev
from typing import Any

from privfed.attacks import Status


@dataclass(frozen=True)
class Stat:
    """Holds a measure over the seeds: mean, sample standard deviation (NaN for one seed), number, values."""

    mean: float
    sd: float
    n: int
    values: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, values: Sequence[float]) -> Stat:
        """Return the figures for at least one value."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else math.nan, len(values), tuple(values))

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
    """Holds a measure over rounds or fits, averaged over the seeds; a run that ended keeps its last value."""

    rounds: list[int]
    values: list[Stat]


def curve_of(along: Iterable[tuple[list[int], list[float]]]) -> Curve | None:
    """Average curves with different rounds and lengths."""
    known = [
        {at: value for at, value in zip(rounds, values, strict=False) if value is not None}
        for rounds, values in along
    ]
    rounds = sorted({at for one in known for at in one})
    values = [
        Stat.of(
            [
                next(one[when] for when in reversed(one) if when <= at)
                for one in known
                if one and min(one) <= at
            ]
        )
        for at in rounds
    ]
    return Curve(rounds, values) if rounds else None


def over_fits(together: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[str, Curve]:
    """Return leakage, each attack's headline, and the share of joined rows found, over the number of fits.

    Args:
        together: title of each attack -> seed -> what is stored of it, from `attack_fits`.
    """
    found: dict[str, Curve | None] = {"leakage": None}
    largest: dict[int, dict[int, float]] = defaultdict(dict)
    for title, own in together.items():
        each = [(one["fits"], one["reports"], one.get("joined")) for one in own.values()]
        found[title] = curve_of((fits, [one["recovered"] for one in reports]) for fits, reports, _ in each)
        found[f"{title}: rows that joined"] = curve_of((fits, joined) for fits, _, joined in each if joined)
        for seed, (fits, reports, joined) in zip(own, each, strict=True):
            for at, report, share in zip(fits, reports, joined or repeat(0.0), strict=False):
                if report["status"] != Status.NOT_APPLICABLE:
                    largest[seed][at] = max(largest[seed].get(at, 0.0), report["advantage"], share or 0.0)
    found["leakage"] = curve_of((list(own), list(own.values())) for own in largest.values())
    return {title: curve for title, curve in found.items() if curve is not None}
