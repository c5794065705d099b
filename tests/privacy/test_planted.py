"""Bugs that broke other people's claims, planted here: each is caught by one of three audits.

By what else a run shows (`test_interference.compared`), by a client's replay on its own rows (`audit_rows`),
or by clients that hold each row to its bound (`privfed.privacy.contributions`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import DPKMeans, DWFKMeans
from privfed.attacks.audits import RowsAudit, audit_rows
from privfed.core.asking.question import ClientData
from privfed.core.roles.conversation import Ask
from privfed.core.roles.engine import Admitting
from privfed.core.values.domain import Ranges
from privfed.errors import DataError, PrivacyError
from privfed.extend import ClientPolicy, open_over
from privfed.privacy import ledger, noised, pricing
from privfed.privacy.bounds import RecordBounded
from privfed.privacy.ledger import BudgetLedger, ClientBudget
from privfed.privacy.noised import Noised
from privfed.privacy.sampler import SeededBits
from privfed.questions.bounded.bounded_metrics import BoundedInertia
from privfed.questions.bounded.bounded_sums import CenterSum, FromPoint
from tests.privacy.audited import Run, centers_for, estimator
from tests.privacy.tapes import BASE, BOX, MOST_ROWS, NEIGHBOURS, privacy_for, rows_of
from tests.privacy.test_interference import FAR, compared
from tests.privacy.unheld import unheld

Patch = pytest.MonkeyPatch
CORNERS = np.vstack([rows_of(0, 20), np.ones((1, 3)), -np.ones((1, 3)), [[50.0, -50.0, 3.0]]])
"""A client's rows, of which some lie at the ends of the domain and beyond."""

RUN: Run = estimator(DPKMeans(2))
CUBE = Ranges(np.full(3, -1.0), np.ones(3), MOST_ROWS)
CENTER_SUM = CenterSum(ranges=CUBE, radius=0.5, center=np.zeros(3))
ONLY = NEIGHBOURS["its only one"]


def replayed(neighbours: str = "add-remove", unit: str = "record") -> RowsAudit:
    """Return what a client reads of a run on its own rows."""
    privacy = privacy_for("plain", BOX, unit, neighbours)
    kind = DPKMeans(2) if unit == "record" else DWFKMeans(2, max_iter=1)
    model = estimator(kind)([CORNERS, rows_of(1, 20), rows_of(2, 20)], privacy=privacy, protocol="plain")
    return audit_rows(model.transcript_, ClientData(CORNERS))


def asked(*weights: float) -> RowsAudit:
    """Return what a client reads of a run that asks for the same sum with each of these weights."""
    clients = [CORNERS, rows_of(1, 20), rows_of(2, 20)]
    privacy, policy = privacy_for("plain", BOX, "record"), ClientPolicy(undeclared=True)
    federation = open_over(clients, privacy=privacy, policy=policy, protocol="plain")
    for weight in weights:
        federation.ask(Ask(CENTER_SUM, weights={"sum": weight}))
    return audit_rows(federation.transcript, ClientData(CORNERS))


def test_without_a_bug_nothing_is_caught(tmp_path: Path) -> None:
    for number, pair in enumerate((FAR, ONLY, (BASE, BASE))):
        assert compared(RUN, "record", tmp_path / str(number), pair)
    assert {replayed(one).verdict for one in ("add-remove", "replace-one")} == {"not refuted"}
    assert replayed(unit="client").verdict == asked(0.4, 0.6).verdict == "not refuted"


def a_row_outside_the_domain_is_refused(patch: Patch) -> None:
    def inside(data: ClientData, domain: Any) -> ClientData:
        if not np.array_equal(domain.clip(data.features), data.features):
            raise DataError("a row lies outside the domain.")
        return data

    patch.setattr(ClientData, "inside", inside)


def clipped_rows_are_counted_for_all(patch: Patch) -> None:
    silent = Admitting.__init__
    patch.setattr(ClientData, "inside", lambda data, domain: data)
    patch.setattr(
        Admitting, "__init__", lambda self, answerer, checks, **words: silent(self, answerer, checks)
    )


def a_warning_tells_of_rows_far_out(patch: Patch) -> None:
    inside = ClientData.inside

    def warns(data: ClientData, domain: Any) -> ClientData:
        if np.abs(data.features).max(initial=0.0) > 100.0:
            warnings.warn("some rows lie far out", stacklevel=1)
        return inside(data, domain)

    patch.setattr(ClientData, "inside", warns)


def an_attribute_holds_the_number_of_rows(patch: Patch) -> None:
    fit = DPKMeans.fit

    def counting(self: DPKMeans, clients: Any, *rest: Any, **words: Any) -> DPKMeans:
        fitted = fit(self, clients, *rest, **words)
        fitted.n_rows_ = sum(map(len, clients))
        return fitted

    patch.setattr(DPKMeans, "fit", counting)


def a_client_without_rows_does_not_answer(patch: Patch) -> None:
    patch.setattr(Noised, "asks_all_clients", False)


def noise_repeats_in_each_run(patch: Patch) -> None:
    patch.setattr(noised, "noise_source", lambda generator: SeededBits(np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("plant", "pair"),
    [
        (a_row_outside_the_domain_is_refused, FAR),
        (clipped_rows_are_counted_for_all, FAR),
        (a_warning_tells_of_rows_far_out, FAR),
        (an_attribute_holds_the_number_of_rows, FAR),
        (a_client_without_rows_does_not_answer, ONLY),
        (noise_repeats_in_each_run, (BASE, BASE)),
    ],
)
def test_what_else_a_run_shows_is_caught(
    plant: Callable[[Patch], None], pair: tuple[np.ndarray, np.ndarray], tmp_path: Path, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        compared(RUN, "record", tmp_path, pair)


def clipping_and_the_check_are_forgotten(patch: Patch) -> RowsAudit:
    unheld(patch)
    patch.setattr("privfed.questions.bounded.bounded_sums.HAIR", 1e9)
    return replayed()


def limits_of_clients_are_forgotten(patch: Patch) -> RowsAudit:
    unheld(patch)
    patch.setattr(noised, "shortened", lambda vectors, limit: 9.0 * vectors)
    return replayed(unit="client")


def a_record_is_replaced_at_the_price_of_one_more(patch: Patch) -> RowsAudit:
    patch.setattr(pricing, "_worst", lambda costs, bounds, terms: float(costs.sum()))
    return replayed("replace-one")


def counts_are_left_out_of_the_sensitivity(patch: Patch) -> RowsAudit:
    patch.setattr(pricing, "_worst", lambda costs, bounds, terms: float(costs.max()))
    return replayed()


def noise_is_for_a_third_of_the_bound(patch: Patch) -> RowsAudit:
    sigma, cost = pricing.discrete_gaussian_sigma, pricing.discrete_gaussian_cost
    patch.setattr(pricing, "discrete_gaussian_sigma", lambda reach, costs: sigma(reach / 3, costs))
    patch.setattr(pricing, "discrete_gaussian_cost", lambda reach, noise: cost(reach / 3, noise))
    return replayed()


def the_whole_budget_is_spent_twice(patch: Patch) -> RowsAudit:
    patch.setattr(ledger, "SLACK", 9.0)
    return asked(1.0, 1.0)


def rows_are_measured_from_their_own_mean(patch: Patch) -> RowsAudit:
    patch.setattr(FromPoint, "offsets", lambda self, rows: rows - rows.mean(axis=0))
    return asked(1.0)


@pytest.mark.parametrize(
    "plant",
    [
        clipping_and_the_check_are_forgotten,
        limits_of_clients_are_forgotten,
        a_record_is_replaced_at_the_price_of_one_more,
        counts_are_left_out_of_the_sensitivity,
        noise_is_for_a_third_of_the_bound,
        the_whole_budget_is_spent_twice,
        rows_are_measured_from_their_own_mean,
    ],
)
def test_what_moves_a_total_further_than_was_charged_is_caught(
    plant: Callable[[Patch], RowsAudit], monkeypatch: Patch
) -> None:
    assert plant(monkeypatch).verdict == "violated"


def test_a_question_that_nobody_pays_for_is_caught(monkeypatch: Patch) -> None:
    monkeypatch.setattr(BudgetLedger, "price", lambda ledger, ask: ask)
    monkeypatch.setattr(BudgetLedger, "opened", lambda ledger, question, total: total)
    monkeypatch.setattr(ClientBudget, "__call__", lambda budget, question, index: None)
    with pytest.raises(PrivacyError, match=r"CenterSum.*was asked without noise"):
        asked(1.0)


@pytest.mark.parametrize(
    ("place", "question"),
    [("bounded_sums", CENTER_SUM), ("bounded_metrics", BoundedInertia(ranges=CUBE, centers=centers_for(3)))],
)
def test_a_forgotten_clip_is_caught_before_noise(
    place: str, question: RecordBounded, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(f"privfed.questions.bounded.{place}.HAIR", 4.0)
    rows = [ClientData(CUBE.clip(row[None])) for row in CORNERS]
    for answer in question.answer_all(rows, [np.random.default_rng(0)] * len(rows)):
        for name, bound in question.bounds.items():
            assert np.linalg.norm(answer[name]) <= bound.l2
    assert any("beyond their bound" in str(error) for one in rows for error in one.errors)
    assert not all(one.errors for one in rows)
