"""Shift audits: how far one record or one client moves all totals of a run, in terms of its budget.

A run's questions are fixed by its totals. They are answered again, without noise, with and without one unit
(or with another in its place); the squared shifts over the noise's variance, added up over the run, must
never exceed the budget, and for the worst unit come close to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from privfed.core.agreed.configuration import Terms
from privfed.core.asking.question import question_from_bytes
from privfed.core.roles.conversation import Ask
from privfed.core.roles.engine import Exchange
from privfed.core.stored.encoding import decode, encode
from privfed.core.values.domain import Ball, Box, Domain
from privfed.federation.clients import gather
from privfed.federation.opening import open_federation
from privfed.federation.request import FederationRequest
from privfed.privacy.accounting import ROUNDING_VARIANCE, gdp_mu
from privfed.privacy.claim import Privacy
from privfed.privacy.ledger import BudgetLedger
from privfed.privacy.noised import Noised
from privfed.protocols import Plain
from privfed.protocols.plain import PlainAnswer, PlainRequest
from tests.privacy.audited import K
from tests.undeclared import ANYTHING

DELTA = 1e-6
MOST_ROWS = 1 << 12
BOX, BALL = Box(-1.0, 1.0, max_rows=MOST_ROWS), Ball(1.5, max_rows=MOST_ROWS)


def rows_of(n: int, d: int) -> np.ndarray:
    """Return rows around K centers in the domain."""
    rng = np.random.default_rng(d)
    centers = rng.uniform(-0.6, 0.6, (K, d))
    rows: np.ndarray = centers[rng.integers(K, size=n)] + 0.1 * rng.standard_normal((n, d))
    return rows


class Trusted(Plain):
    """Plain sums that count on every client's share of the noise, as masked ones can."""

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        return Terms(max_sums=max_sums, threshold=1, honest=clients)


def claim(epsilon: float, neighbours: str, unit: str, domain: Domain = BOX) -> Privacy:
    """Return a claim whose noise repeats."""
    return Privacy(
        epsilon=epsilon,
        delta=DELTA,
        unit=unit,  # type: ignore[arg-type]
        domain=domain,
        neighbours=neighbours,  # type: ignore[arg-type]
        noise_seed=1,
    )


def budget(privacy: Privacy) -> float:
    """Return mu^2 of a claim."""
    return gdp_mu(privacy.epsilon, privacy.delta) ** 2


class Recorder:
    """Writes down what coordinators' ledgers price, as it travels; and then switches all noise off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._asked: list[tuple[BudgetLedger, Noised]] = []
        price = BudgetLedger.price

        def priced(ledger: BudgetLedger, ask: Ask) -> Ask:
            paid = price(ledger, ask)
            question = question_from_bytes(paid.question.to_bytes())
            assert isinstance(question, Noised)
            self._asked.append((ledger, question))
            return paid

        monkeypatch.setattr(BudgetLedger, "price", priced)

    def runs(self) -> list[list[Noised]]:
        """Return the questions of each ledger, in order."""
        ledgers = list({id(ledger): ledger for ledger, _ in self._asked}.values())
        return [[question for own, question in self._asked if own is ledger] for ledger in ledgers]

    def silence(self) -> None:
        """Answer without noise from now on."""

        def zeros(self: Noised, n: int, generators: object) -> np.ndarray:
            return np.zeros((n, self.inner.spec.size))

        self._patch.setattr(Noised, "_noise", zeros)


class Counting(Plain):
    """Plain sums that count on so many shares of the noise, however few clients there are."""

    def __init__(self, counted: int) -> None:
        super().__init__()
        self._counted = counted

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        return Terms(max_sums=max_sums, threshold=1, honest=self._counted)


def answers(
    asked: Sequence[Noised], variants: Sequence[np.ndarray], privacy: Privacy, counted: int = 1
) -> np.ndarray:
    """Return what a client would answer to a whole run, for each of several tables of raw rows.

    The way is the one that a fit goes, from the rows that a user passes to the replies that leave a client.

    Returns:
        In standard deviations of the noise of so many counted shares, (n_variants, n_values).
    """
    clients = gather(
        list(variants), y=[np.zeros(len(rows), dtype=np.int64) for rows in variants], private=True
    )
    request = FederationRequest(
        clients=clients,
        description="audit",
        max_sums=len(asked),
        protocol=Counting(counted),
        seed=privacy.unseeded(0),
        privacy=privacy,
        policy=ANYTHING,
    )
    engine = open_federation(request)._carrier
    found = []
    for number, question in enumerate(asked, start=1):
        request = encode(PlainRequest(number, number - 1, question.to_bytes()))
        replies = dict(
            engine.exchange(Exchange("collect", number, dict.fromkeys(range(len(variants)), request)))
        )
        read = [decode(replies[i], PlainAnswer, sender="", stage="") for i in range(len(variants))]
        std = question._per_value(np.sqrt(question.sigma**2 - ROUNDING_VARIANCE) * question.steps)
        found.append(np.stack([np.frombuffer(one.vector.data) for one in read]) / (std * np.sqrt(counted)))
    return np.concatenate(found, axis=1)


def largest_shift(with_unit: np.ndarray, without: np.ndarray, neighbours: str) -> float:
    """Return the largest squared distance of answers with a unit from those without, or with another."""
    if neighbours == "add-remove":
        return float(np.square(with_unit - without).sum(axis=1).max())
    return max(float(np.square(with_unit - one).sum(axis=1).max()) for one in with_unit)


def odd_rows(domain: Domain, d: int) -> np.ndarray:
    """Return rows on the border and a last bit or more on either side, next to nothing, and far outside."""
    border = domain.ends[1].max() * np.eye(d)[0]
    even = domain.ends[1].max() * np.full(d, d**-0.5)
    near = [
        row * (1.0 + off) for row in (border, even) for off in (0.0, -1e-13, 1e-13, 1e-12, 1e-9, 2.0**-52)
    ]
    small = [np.full(d, value) for value in (5e-324, -5e-324, -0.0, 1e-310, 1e-165)]
    return np.vstack([near, small, 1e200 * border, -1e200 * even, np.full((1, d), 1.7e308)])


def worst_records(centers: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield records: far out, outside the domain, on the centers and on both sides of each."""
    d = centers.shape[1]
    for _ in range(8):
        corner = rng.choice([-1.0, 1.0], d)
        yield from (corner, -corner, 1e200 * corner, rng.uniform(-1, 1, d))
    for center in centers:
        yield center
        for length in (0.03, 0.06, 0.12, 0.2, 0.3, 0.45, 0.65, 0.9):
            direction = rng.standard_normal(d)
            direction *= length / np.linalg.norm(direction)
            yield from (center + direction, center - direction)


def shift_of_a_record(
    asked: Sequence[Noised], rows: np.ndarray, centers: np.ndarray, privacy: Privacy
) -> float:
    """Return what the worst record that was found costs over a run."""
    # What a record adds does not depend on the other rows (test_records_alone.py).
    odd = odd_rows(privacy.domain, rows.shape[1])
    records = [*worst_records(centers, np.random.default_rng(6)), *odd[::4]]
    few = np.vstack([rows[:20], odd])
    variants = [few, *(np.vstack([few, one]) for one in records)]
    found = answers(asked, variants, privacy)
    return largest_shift(found[1:], found[0], privacy.neighbours)


def worst_clients(centers: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield whole clients: single rows, many equal ones, one in each cluster, far outside, too many."""
    d = centers.shape[1]
    for copies in (1, 10, 40, MOST_ROWS):
        corner = rng.choice([-1.0, 1.0], d)
        yield np.tile(corner, (copies, 1))
        yield np.tile(1e200 * corner, (copies, 1))
        direction = rng.standard_normal(d)
        for length in (0.02, 0.1, 0.4, 0.9):
            yield np.tile(centers[0] + length * direction / np.linalg.norm(direction), (copies, 1))
        yield np.tile(centers[-1], (copies, 1))
    yield centers
    yield rng.uniform(-1, 1, (300, d))


def shift_of_a_client(asked: Sequence[Noised], centers: np.ndarray, privacy: Privacy, counted: int) -> float:
    """Return what the worst client that was found costs over a run."""
    variants = [*worst_clients(centers, np.random.default_rng(7)), odd_rows(privacy.domain, centers.shape[1])]
    found = answers(asked, variants, privacy, counted)
    # Without a client, its answers are those of no rows: zeros.
    return largest_shift(found, np.zeros(found.shape[1]), privacy.neighbours)
