"""One budget for everything that is released of the same rows: fits, metrics, scalings, selections, models.

A budget is a file. Whoever draws from it pays there first, durably, and then asks clients. Its filter
(`privfed.privacy.filters`) is fixed with the file.

Reveals: nothing. What is paid depends on what is asked, never on rows.
"""

from __future__ import annotations

import math
import sqlite3
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from privfed.core.values.domain import Domain
from privfed.core.values.guarantee import (
    MOST_NOISE,
    MOST_ORDER,
    AnyMechanism,
    AnyNeighbours,
    AnyNoise,
    AnyUnit,
    Mechanism,
    Neighbours,
    Noise,
    SampledSteps,
    Unit,
)
from privfed.core.values.numbers import check_number, check_whole
from privfed.core.values.shown import as_table
from privfed.errors import ArgumentError, BudgetError, PrivacyError
from privfed.privacy import budget_file
from privfed.privacy.accounting import Curve, gdp_epsilon, gdp_mu
from privfed.privacy.budget_file import ROUNDING, Paid
from privfed.privacy.claim import Privacy
from privfed.privacy.filters import Filter, largest_epsilon


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a budget.

    Args:
        share: share of the whole that is left, in [0, 1].
        mu_squared: the cost that is left.
        epsilon: of one Gaussian fit that takes all of it, at `delta`; 0 where nothing is left.
        delta: of the budget.
    """

    share: float
    mu_squared: float
    epsilon: float
    delta: float

    _repr_html_ = as_table(
        lambda self: [
            ("share left", "mu^2 left", "epsilon of one fit with all of it", "at delta"),
            [f"{one:.4g}" for one in (self.share, self.mu_squared, self.epsilon, self.delta)],
        ]
    )

    def __str__(self) -> str:
        """Return it in words."""
        return (
            f"{self.share:.4g} of the budget is left (mu^2 {self.mu_squared:.4g}; one fit with all of it has "
            f"epsilon {self.epsilon:.4g} at delta {self.delta:g})"
        )


@dataclass(frozen=True)
class Draw:
    """Where a `Privacy` is paid: a share of a budget.

    Args:
        path: the budget's file.
        share: share of the budget. Steps of DP-SGD with a noise of their own pay what they come to.
        number: of the payment that was made when it was taken; None where it is paid at its first use.
        purpose: what for, in words; empty to take it from what is asked.
    """

    path: Path
    share: float
    number: int | None
    purpose: str

    def pay(
        self,
        privacy: Privacy,
        steps: SampledSteps | None,
        asked: str,
        run: str = "",
        *,
        resumed: bool = False,
        shown: str = "",
    ) -> str:
        """Pay for a run, durably, before clients are asked; return what its folder is to keep of it.

        Args:
            privacy: what the run claims.
            steps: of DP-SGD, where clients train by it.
            asked: what is asked for, in words.
            run: identifies a run that may be resumed; empty for one that cannot.
            resumed: whether it goes on: then it is not paid again.
            shown: what its folder kept of a payment; empty for nothing.

        Raises:
            PrivacyError: the claim is not what was taken: another unit, seeded noise, a larger epsilon.
            BudgetError: too little is left; or the file lacks the payment that the folder shows.
        """
        budget, purpose = PrivacyBudget.of(self.path), self.purpose or asked
        return budget._charge(self, privacy, steps, purpose, run, resumed, shown)

    def parts(self, share: float) -> tuple[Draw, Draw]:
        """Return draws for two runs: of a share of this one, and of the rest."""
        number = None
        if self.number is not None:
            with budget_file.opened(self.path) as database:
                number = budget_file.divide(database, self.number, share)
        first = Draw(self.path, share * self.share, number, self.purpose)
        return first, replace(self, share=(1.0 - share) * self.share)

    def recording(self, run: str, asked: int) -> AbstractContextManager[None]:
        """Enter that a paid run records a question, and sends it (`budget_file.recording`)."""
        return budget_file.recording(self.path, run, asked)

    def noise(self, least: float, steps: SampledSteps) -> float:
        """Return the least noise multiplier of DP-SGD, from `least` on, whose steps the share pays for.

        Raises:
            PrivacyError: no multiplier is enough, or the budget is for Gaussian noise alone.
        """
        budget = PrivacyBudget.of(self.path)

        def paid(multiplier: float) -> bool:
            tried = msgspec.structs.replace(steps, noise_multiplier=multiplier)
            cost = budget.filter.cost(Mechanism.GAUSSIAN, budget.epsilon, budget.delta, tried)
            return cost / budget.mu_squared <= self.share

        low = high = least
        while not paid(high):
            low, high = high, 2.0 * high
            if high > MOST_NOISE:
                raise PrivacyError(
                    f"a share of {self.share:g} leaves nothing for {steps.total} steps of DP-SGD; take a "
                    "larger share, or fewer rounds."
                )
        while high - low > 1e-3 * high:
            middle = (low + high) / 2.0
            low, high = (low, middle) if paid(middle) else (middle, high)
        return high


class PrivacyBudget:
    """A differential privacy budget for all releases of the same rows, kept in a file.

    Two processes may draw from one file at a time. A process that is killed loses no payment.

    Args:
        epsilon: of everything together, above 0.
        delta: of everything together, in [1e-300, 1).
        unit: what is protected, "record", "user" or "client".
        neighbours: "add-remove" or "replace-one" of that unit.
        path: the file, made where there is none. One that exists must state the same guarantee.
        order: None for Gaussian noise alone, which composes exactly. An integer from 2 to 4,096 is the order
            of a Renyi filter, which Skellam noise and DP-SGD need; Gaussian fits then get less.
        domain: of what is taken without one; the file does not keep it.

    Raises:
        ArgumentError: a parameter is out of its bounds.
        PrivacyError: the file is of another guarantee, or nothing is left at this order.
        StateError: the file is damaged, or cannot be read or written.
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        unit: AnyUnit,
        neighbours: AnyNeighbours,
        path: str | Path,
        *,
        order: int | None = None,
        domain: Domain | None = None,
    ) -> None:
        self.unit, self.neighbours = Unit.read("unit", unit), Neighbours.read("neighbours", neighbours)
        check_whole("order", order, 2, MOST_ORDER, or_none=True)
        check_number("epsilon", epsilon, "(0, inf)")
        self.epsilon, self.delta, self.order = float(epsilon), float(delta), order
        self.filter = Filter(self.epsilon, self.delta, order)
        self.path, self.mu_squared = Path(path).absolute(), self.filter.whole
        self.domain = domain
        with budget_file.opened(self.path, create=True) as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in budget_file.FORM:
                    database.execute(statement)
                budget_file.name_it(database)
                database.execute("INSERT INTO budget VALUES (1, ?, ?, ?, ?, ?)", self._stated)
            found = budget_file.stated_in(database, self.path)
        if found != self._stated:
            raise PrivacyError(
                f"{self.path} is a budget of {budget_file.words_of(*found)}, not of {self}: "
                "different guarantees do not add up. Use the one there, or another file for other rows."
            )

    @classmethod
    def of(cls, path: str | Path) -> PrivacyBudget:
        """Return the budget in a file that exists.

        Raises:
            StateError: there is none, or it is damaged.
        """
        with budget_file.opened(Path(path)) as database:
            epsilon, delta, unit, neighbours, order = budget_file.stated_in(database, Path(path))
        return cls(epsilon, delta, unit, neighbours, path, order=order)

    _repr_html_ = as_table(lambda self: [("budget", "file"), (self, self.path)])

    @property
    def _stated(self) -> tuple[Any, ...]:
        return self.epsilon, self.delta, str(self.unit), str(self.neighbours), self.order

    def __repr__(self) -> str:
        """Return the guarantee and the file."""
        return f"PrivacyBudget({self}, path={str(self.path)!r})"

    def __str__(self) -> str:
        """Return the guarantee."""
        return budget_file.words_of(*self._stated)

    @property
    def curve(self) -> Curve:
        """The whole guarantee as mu, at other deltas, and as the rates of a test's errors."""
        return Curve(
            self.epsilon, self.delta, gdp_mu(self.epsilon, self.delta) if self.order is None else None
        )

    def take(
        self,
        share: float,
        *,
        domain: Domain | None = None,
        noise: AnyNoise = Noise.DISTRIBUTED,
        mechanism: AnyMechanism = Mechanism.GAUSSIAN,
        spare: float = 0.0,
        rows_per_user: int | None = None,
        purpose: str = "",
        reserve: bool = True,
    ) -> Privacy:
        """Pay a share, and return the `Privacy` of one fit, metric, scaling, selection or model.

        Whoever uses it twice pays twice. It is spent whether or not anything is released.

        Args:
            share: share of the whole budget, in (0, 1].
            domain: as in `Privacy`; by default the budget's.
            noise: who adds it.
            mechanism: of the noise, "gaussian"; or "skellam", which needs a budget with an `order`.
            spare: share of the result that is kept for sums that have to be asked again.
            rows_per_user: as in `Privacy`, for a budget of unit "user"; it may differ from run to run.
            purpose: what for, for the log; by default what is asked.
            reserve: whether to pay now. False pays when a run begins, and nothing where a paid run goes on.

        Raises:
            ArgumentError: the share is out of its bounds.
            BudgetError: less is left; the message says how much.
            PrivacyError: the mechanism needs an `order`.
        """
        domain = self.domain if domain is None else domain
        if domain is None:
            raise ArgumentError(
                "a share needs a domain: take(share, domain=Box(...)).", parameters=["domain"]
            )
        privacy = Privacy(
            epsilon=self.epsilon_of(share, mechanism),
            delta=self.delta,
            unit=self.unit,
            domain=domain,
            neighbours=self.neighbours,
            noise=noise,
            mechanism=mechanism,
            spare=spare,
            rows_per_user=rows_per_user,
            paid_by=(draw := Draw(self.path.absolute(), float(share), None, purpose)),
        )
        if reserve:
            with budget_file.opened(self.path) as database:
                self._check_left(database, share)
                claim = budget_file.claim_in_words(privacy)
                number = budget_file.enter(database, share, purpose or "not used yet", claim, None)
            object.__setattr__(privacy, "paid_by", replace(draw, number=number))  # Another would warn again.
        return privacy

    def epsilon_of(self, share: float, mechanism: AnyMechanism = Mechanism.GAUSSIAN) -> float:
        """Return the epsilon, at the budget's delta, of one fit that takes a share; rounded down.

        Raises:
            ArgumentError: the share is out of its bounds.
            PrivacyError: the share is too small for any epsilon, or the mechanism needs an `order`.
        """
        check_number("share", share, "(0, 1]")
        mechanism, cost = Mechanism.read("mechanism", mechanism), share * self.mu_squared
        epsilon = largest_epsilon(mechanism, cost, self.delta)
        if epsilon <= 0.0:
            raise PrivacyError(f"a share of {share:g} pays for no epsilon above 0; take a larger share.")
        self.filter.cost(mechanism, epsilon, self.delta)
        return epsilon

    def remaining(self) -> Remaining:
        """Return what is left."""
        with budget_file.opened(self.path) as database:
            share = budget_file.left_in(database)
        cost = share * self.mu_squared
        return Remaining(share, cost, gdp_epsilon(math.sqrt(cost), self.delta) if share else 0.0, self.delta)

    def log(self) -> list[Paid]:
        """Return all payments, in order."""
        with budget_file.opened(self.path) as database:
            columns = "number, at, share, purpose, claim, run IS NOT NULL"
            rows = database.execute(f"SELECT {columns} FROM payments ORDER BY number").fetchall()
        return [
            Paid(number, at, share, what, claim, bool(used)) for number, at, share, what, claim, used in rows
        ]

    def _charge(
        self,
        draw: Draw,
        privacy: Privacy,
        steps: SampledSteps | None,
        purpose: str,
        run: str,
        resumed: bool,
        shown: str,
    ) -> str:
        if (privacy.unit, privacy.neighbours) != (self.unit, self.neighbours):
            raise PrivacyError(
                f'a budget for unit="{self.unit}", neighbours="{self.neighbours}" pays for no claim of '
                f'unit="{privacy.unit}", neighbours="{privacy.neighbours}": keep a budget for each.'
            )
        if privacy.noise_seed is not None:
            raise PrivacyError(
                "a seeded run protects nobody, and would void the claim of its budget; leave noise_seed out."
            )
        share = self.filter.cost(privacy.mechanism, privacy.epsilon, privacy.delta, steps) / self.mu_squared
        if steps is None and share > draw.share * (1.0 + ROUNDING):
            raise PrivacyError(
                f"this Privacy was changed after it was taken: its claim costs {share:.4g} of the budget, "
                f"{draw.share:.4g} was taken. Take as much as it needs."
            )
        share = draw.share if steps is None else share
        claim = budget_file.claim_in_words(privacy)
        with budget_file.opened(self.path) as database:
            budget_file.check_shown(database, self.path, shown, run)
            # A run that was begun without this budget is paid when it goes on with it.
            if resumed and budget_file.has_paid(database, run, share):
                return budget_file.shown_of(database, run)
            own = database.execute(
                "SELECT share FROM payments WHERE number IS ? AND run IS NULL", (draw.number,)
            ).fetchone()
            self._check_left(database, share, 0.0 if own is None else own[0])
            if own is None:
                budget_file.enter(database, share, purpose, claim, run)
            else:
                database.execute(
                    "UPDATE payments SET share = ?, purpose = ?, claim = ?, run = ? WHERE number = ?",
                    (share, purpose, claim, run, draw.number),
                )
            return budget_file.shown_of(database, run)

    def _check_left(self, database: sqlite3.Connection, share: float, returned: float = 0.0) -> None:
        left = budget_file.left_in(database)
        # Not `left + returned`: a difference of what is nearly 1 would lose the last payment to rounding.
        shares = [row[0] for row in database.execute("SELECT share FROM payments")]
        if not math.fsum([*shares, -returned, share]) <= 1.0 + ROUNDING:
            epsilon = gdp_epsilon(math.sqrt(left * self.mu_squared), self.delta) if left else 0.0
            raise BudgetError(
                f"{share:.4g} of the budget in {self.path.name} was asked for, {left + returned:.4g} is left "
                f"(one fit with all that is free has epsilon {epsilon:.4g} at delta {self.delta:g}); nothing "
                "was released. Take less, or stop: a new budget for the same rows is another claim."
            )
