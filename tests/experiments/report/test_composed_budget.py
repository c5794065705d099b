"""What all fits of a study amount to together."""

import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from privfed.experiments.cells import CellPrivacy
from privfed.experiments.measuring import measure
from privfed.experiments.planning import Plan
from privfed.experiments.report.claims import composed_budgets
from privfed.experiments.report.summary import Row, summarise
from privfed.experiments.running import Store, missing
from privfed.experiments.study import Attack
from privfed.privacy.accounting import gdp_epsilon, gdp_mu


def claim(
    epsilon: float = 1.0, *, unit: str = "record", seeded: bool = False, mechanism: str = "gaussian"
) -> CellPrivacy:
    return CellPrivacy(
        epsilon=epsilon,
        delta=1e-6,
        unit=unit,
        neighbours="add-remove",
        noise="distributed",
        seeded=seeded,
        mechanism=mechanism,
    )


def row(small: Plan, privacy: CellPrivacy | None, fits: int, **labels: str) -> Row:
    setup = small.setups[0]
    setup = msgspec.structs.replace(setup, privacy=privacy, labels=setup.labels | labels)
    return Row(f"{privacy} {labels}", setup, {seed: str(seed) for seed in range(fits)}, [], {}, fits)


def test_one_fit_amounts_to_its_own_claim(small: Plan) -> None:
    (one,) = composed_budgets([row(small, claim(2.0), 1)])
    assert one.epsilon == pytest.approx(2.0, rel=1e-9)
    assert (one.fits, one.seeded, one.open_fits, one.delta) == (1, 0, 0, 1e-6)


def test_the_costs_of_fits_add_up(small: Plan) -> None:
    (one,) = composed_budgets([row(small, claim(1.0), 3), row(small, claim(4.0), 2)])
    mu = math.sqrt(3 * gdp_mu(1.0, 1e-6) ** 2 + 2 * gdp_mu(4.0, 1e-6) ** 2)
    assert one.fits == 5
    assert one.epsilon == pytest.approx(gdp_epsilon(mu, 1e-6), rel=1e-9)
    assert one.epsilon >= gdp_epsilon(mu, 1e-6)


def test_fits_that_attacks_read_together_pay_too_and_active_attacks_under_a_claim_of_their_own(
    small: Plan,
) -> None:
    attacks = [*small.setups[0].attacks, Attack(kind="probing")]
    setup = msgspec.structs.replace(small.setups[0], privacy=claim(1.0), fits=[1, 5], attacks=attacks)
    membership, probing, several = setup.parts()[1:4]
    for parts, times in ([], 1), ([membership], 1), ([several], 5), ([probing], 2), (setup.parts(), 6):
        assert setup.asked(["fit", *parts]) == times


def test_a_part_that_is_measured_later_asks_for_another_fit(small: Plan, tmp_path: Path) -> None:
    """Its noise is drawn anew, and a reader of all results has seen both."""
    setup = msgspec.structs.replace(small.setups[0], privacy=claim(1.0))
    noised, store = replace(small, setups=[setup], seeds=[0]), Store(tmp_path)
    for parts in (["fit"], setup.parts()[1:]):
        assert missing(noised, store)[0].parts[0] == parts[0]
        found = measure(setup, 0, parts, Path())
        store.keep(setup.cell(0), setup.content, found, setup.asked(parts))
    assert missing(noised, store) == []
    (one,) = composed_budgets(summarise(noised, store))
    assert one.fits == 2
    assert one.epsilon == pytest.approx(gdp_epsilon(math.sqrt(2) * gdp_mu(1.0, 1e-6), 1e-6), rel=1e-9)


def test_with_skellam_noise_the_bound_is_of_renyi_differential_privacy(small: Plan) -> None:
    (alone,) = composed_budgets([row(small, claim(mechanism="skellam"), 1)])
    assert alone.epsilon == pytest.approx(1.0, rel=1e-6)
    (mixed,) = composed_budgets([row(small, claim(mechanism="skellam"), 1), row(small, claim(), 9)])
    (gaussian,) = composed_budgets([row(small, claim(), 10)])
    # 3.7549 by the Renyi bounds of the ten budgets, which the exact curve of ten Gaussian fits is below.
    assert gaussian.epsilon < mixed.epsilon == pytest.approx(3.7549, abs=1e-3)


def test_clients_are_units_of_their_partition_and_rows_of_their_data(small: Plan) -> None:
    rows = [row(small, claim(unit=unit), 1, partition=how) for unit in ("record", "client") for how in "ab"]
    found = {one.data: one.fits for one in composed_budgets(rows)}
    data = small.setups[0].labels["data"]
    assert found == {data: 2, f"{data} / a": 1, f"{data} / b": 1}


def test_fits_without_a_guarantee_and_seeded_runs_are_said(small: Plan) -> None:
    (one,) = composed_budgets([row(small, claim(seeded=True), 2), row(small, None, 3)])
    assert (one.seeded, one.open_fits) == (2, 3)
    assert "nobody is protected" in str(one)
    assert "3 on the same rows have none" in str(one)


def test_a_study_without_privacy_claims_nothing(small: Plan) -> None:
    assert composed_budgets([row(small, None, 3)]) == []
