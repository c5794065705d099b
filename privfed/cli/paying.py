"""The work of `privfed budget`: what a budget guarantees, what was spent of it, and for what."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from privfed.cli.output import answer, table
from privfed.errors import ArgumentError
from privfed.privacy.accounting import Curve
from privfed.privacy.budget import PrivacyBudget

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


def show(file: Path, out: Path | None, as_json: bool) -> None:
    """Do the work of `privfed budget show`."""
    budget, paid = PrivacyBudget.of(file), PrivacyBudget.of(file).log()
    if out is not None:
        # Imported here, as matplotlib takes long to load.
        from privfed.plot import BudgetDisplay, figure_of, save

        if out.exists():
            raise ArgumentError(f"{out} is there already and is never replaced; name another place.")
        save(figure_of(BudgetDisplay.of(budget), title=str(budget)), out)
    curve = budget.curve
    shown = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "unit": budget.unit,
        "neighbours": budget.neighbours,
        "order": budget.order,
        "mu": curve.mu,
        "other": {f"{one:g}": curve.at(one) for one in DELTAS if curve.mu is not None},
        "remaining": budget.remaining(),
        "payments": paid,
    }
    lines = (
        (
            str(one.number),
            one.date[:16],
            f"{one.share:.4g}",
            one.purpose if one.used else f"{one.purpose} (no run yet)",
            one.claim,
        )
        for one in paid
    )
    payments = table(("", "date (UTC)", "share", "purpose", "claim"), lines)
    written = [] if out is None else [f"Written: {out}"]
    answer(shown, as_json, str(budget), *said(curve), payments, str(budget.remaining()), *written)


def plan(file: Path, as_json: bool) -> None:
    """Do the work of `privfed budget plan`."""
    budget = PrivacyBudget.of(file)
    left = budget.remaining()
    worth = [
        {
            "share": one,
            "left": int(left.share / one * (1.0 + 1e-9)),
            "epsilon": budget.epsilon_of(one),
            "noise_of_a_count": 1.0 / math.sqrt(one * budget.mu_squared),
        }
        for one in SHARES
    ]
    lines = (
        (f"{share:g}", str(left), f"{epsilon:.4g}", f"{noise:.3g} rows")
        for share, left, epsilon, noise in (one.values() for one in worth)
    )
    head = ("share", "times", "epsilon of one", "noise (sd) of a count")
    answer(worth, as_json, table(head, lines), str(left))


def said(curve: Curve) -> list[str]:
    """Return a guarantee in other words: mu, epsilon at other deltas, and what tests for one unit miss."""
    lines = [] if curve.mu is None else [f"mu {curve.mu:.4g} (Gaussian differential privacy)"]
    known = [f"{curve.at(one):.4g} at {one:g}" for one in DELTAS if curve.mu is not None]
    missed = [f"{curve.missed(one):.4g} at {one:g}" for one in ALARMS]
    lines += [f"epsilon at other deltas: {', '.join(known)}"] if known else []
    return [
        *lines,
        f"a test for one unit misses it, by its rate of false alarms: {', '.join(missed)} or more",
    ]
