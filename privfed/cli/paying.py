"""The work of `privfed budget`: what a budget guarantees, what was spent of it, and for what."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import click
import msgspec
from rich import box
from rich.table import Table

from privfed.cli.output import echo
from privfed.cli.run_folder import pretty, write_new
from privfed.errors import ArgumentError
from privfed.experiments.report.svg import Axis, Point, Series, chart
from privfed.privacy.budget import PrivacyBudget
from privfed.privacy.budget_file import Paid
from privfed.privacy.curves import Curve

DELTAS = (1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
"""At which a Gaussian guarantee is said, too."""


SHARES = (0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Shares of which a plan says what they are worth."""

ALARMS = (0.01, 0.05, 0.1)
"""Rates of false alarms at which the trade-off curve is said."""


def new(file: Path, **given: Any) -> None:
    """Do the work of `privfed budget new`."""
    if file.exists():
        raise ArgumentError(f"{file} exists; 'privfed budget show' says what it is, or name a new file.")
    made = PrivacyBudget(path=file, **given)
    click.echo(f"made {file}: {made}. Draw from it with --budget {file} --share SHARE.")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Holds what `privfed budget show --json` prints; `other` has epsilon at other deltas."""

    epsilon: float
    delta: float
    unit: str
    neighbours: str
    order: int | None
    mu: float | None
    other: dict[str, float]
    remaining: dict[str, Any]
    payments: list[dict[str, Any]]


def show(file: Path, picture: Path | None, as_json: bool) -> None:
    """Do the work of `privfed budget show`."""
    budget, paid = PrivacyBudget.of(file), PrivacyBudget.of(file).log()
    if picture is not None:
        write_new(picture, spent_picture(budget, paid).encode())
    curve = budget.curve
    shown = Shown(
        epsilon=budget.epsilon,
        delta=budget.delta,
        unit=str(budget.unit),
        neighbours=str(budget.neighbours),
        order=budget.order,
        mu=curve.mu,
        other={f"{one:g}": curve.at(one) for one in _deltas(curve)},
        remaining=asdict(budget.remaining()),
        payments=[asdict(one) for one in paid],
    )
    if as_json:
        click.echo(pretty(shown), nl=False)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "date (UTC)", "share", "purpose", "claim"):
        table.add_column(name)
    for one in paid:
        purpose = one.purpose if one.used else f"{one.purpose} (no run yet)"
        table.add_row(str(one.number), one.date[:16], f"{one.share:.4g}", purpose, one.claim)
    echo(str(budget), *said(curve), table, str(budget.remaining()))


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a line of what `privfed budget plan` prints."""

    share: float
    left: int
    epsilon: float
    noise_of_a_count: float


def plan(file: Path, as_json: bool) -> None:
    """Do the work of `privfed budget plan`."""
    budget = PrivacyBudget.of(file)
    left = budget.remaining()
    worth = [
        Worth(
            share=one,
            left=int(left.share / one * (1.0 + 1e-9)),
            epsilon=budget.epsilon_of(one),
            noise_of_a_count=1.0 / math.sqrt(one * budget.mu_squared),
        )
        for one in SHARES
    ]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(worth), indent=2))
        return
    table = Table("share", "left", "epsilon of one", "noise (sd) of a count", box=box.SIMPLE_HEAD)
    for one in worth:
        table.add_row(
            f"{one.share:g}", str(one.left), f"{one.epsilon:.4g}", f"{one.noise_of_a_count:.3g} rows"
        )
    echo(table, str(left))


def _deltas(curve: Curve) -> tuple[float, ...]:
    """Return the deltas at which something is proven that the claim does not say by itself."""
    return () if curve.mu is None else DELTAS


def said(curve: Curve) -> list[str]:
    """Return a guarantee in other words: mu, epsilon at other deltas, and what tests for one unit miss."""
    lines = [] if curve.mu is None else [f"mu {curve.mu:.4g} (Gaussian differential privacy)"]
    known = [f"{curve.at(one):.4g} at {one:g}" for one in _deltas(curve)]
    missed = [f"{curve.missed(one):.4g} at {one:g}" for one in ALARMS]
    lines += [f"epsilon at other deltas: {', '.join(known)}"] if known else []
    return [
        *lines,
        f"a test for one unit misses it, by its rate of false alarms: {', '.join(missed)} or more",
    ]


def spent_picture(budget: PrivacyBudget, paid: list[Paid]) -> str:
    """Return an SVG file of the share that was spent after each payment."""
    sums = accumulate((one.share for one in paid), initial=0.0)
    texts = ["nothing yet", *(f"{one.date[:10]}, {one.purpose}: {one.claim}" for one in paid)]
    points = [
        Point(float(i), spent, text=text) for i, (spent, text) in enumerate(zip(sums, texts, strict=True))
    ]
    last = float(max(1, len(paid)))
    whole = Series("all", [Point(0.0, 1.0), Point(last, 1.0)], 1, line=True, dash=1)
    across, up = (
        Axis("payments", least=0.0, span=last),
        Axis("share of the budget spent", least=0.0, most=1.0),
    )
    drawing = chart(str(budget), across, up, [Series("spent", points, 0, line=True), whole])
    font = 'xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" '
    return drawing.replace("<svg ", f"<svg {font}", 1).replace('class="grid"', 'stroke="#e2e2e2"')
