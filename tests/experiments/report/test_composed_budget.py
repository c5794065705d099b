"""What all fits of a study amount to together."""

import json
import math
from pathlib import Path

import msgspec
import pytest

from privfed.experiments.cells import CellPrivacy, Setup
from privfed.experiments.measuring import Part
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import StudyError, parse_study
from privfed.experiments.report.claims import ComposedBudget, composed_budgets
from privfed.experiments.report.page import write_report
from privfed.experiments.running import Store, missing, run
from privfed.experiments.study import Attack
from privfed.privacy.accounting import gdp_epsilon, gdp_mu
from tests.experiments.small import silent


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


Asked = tuple[Setup, int]


def row(small: Plan, privacy: CellPrivacy | None, fits: int, **labels: str) -> Asked:
    setup = small.setups[0]
    if labels:
        how = msgspec.structs.replace(setup.partition, clients=len(labels["partition"]) + 5)
        setup = msgspec.structs.replace(setup, partition=how, labels=setup.labels | labels)
    return msgspec.structs.replace(setup, privacy=privacy), fits


def composed(*asked: Asked) -> list[ComposedBudget]:
    return composed_budgets(
        [setup for setup, _ in asked],
        [(json.loads(json.dumps(setup.stored(0))), n) for setup, n in asked],
    )


def test_one_fit_amounts_to_its_own_claim(small: Plan) -> None:
    (one,) = composed(row(small, claim(2.0), 1))
    assert one.epsilon == pytest.approx(2.0, rel=1e-9)
    assert (one.fits, one.seeded, one.open_fits, one.delta) == (1, 0, 0, 1e-6)


def test_the_costs_of_fits_add_up(small: Plan) -> None:
    (one,) = composed(row(small, claim(1.0), 3), row(small, claim(4.0), 2))
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


def test_with_skellam_noise_the_bound_is_of_renyi_differential_privacy(small: Plan) -> None:
    (alone,) = composed(row(small, claim(mechanism="skellam"), 1))
    assert alone.epsilon == pytest.approx(1.0, rel=1e-6)
    (mixed,) = composed(row(small, claim(mechanism="skellam"), 1), row(small, claim(), 9))
    (gaussian,) = composed(row(small, claim(), 10))
    # 3.7549 by the Renyi bounds of the ten budgets, which the exact curve of ten Gaussian fits is below.
    assert gaussian.epsilon < mixed.epsilon == pytest.approx(3.7549, abs=1e-3)


def test_clients_are_units_of_their_partition_and_rows_of_their_data(small: Plan) -> None:
    rows = [
        row(small, claim(unit=unit), 1, partition=how) for unit in ("record", "client") for how in ("a", "bb")
    ]
    found = {one.data: (one.fits, one.open_fits) for one in composed(*rows)}
    data = small.setups[0].labels["data"]
    assert found == {data: (2, 2), f"{data} / a": (1, 3), f"{data} / bb": (1, 3)}


def test_fits_without_a_guarantee_and_seeded_runs_are_said(small: Plan) -> None:
    (one,) = composed(row(small, claim(seeded=True), 2), row(small, None, 3))
    assert (one.seeded, one.open_fits) == (2, 3)
    assert "nobody is protected" in str(one)
    assert "3 fits on the same rows have no guarantee" in str(one)


def test_a_study_without_privacy_claims_nothing(small: Plan) -> None:
    assert composed(row(small, None, 3)) == []


STUDY = """\
name = "Claimed"
seeds = 1
metrics = ["score_ratio"]

[[data]]
name = "as it is"
source = "rows.csv"
low = 0.0
high = 10.0
public = 0.1

[[partition]]
clients = 5

[[algorithm]]
estimator = "DPKMeans"
n_clusters = 2

[[sum]]
protocol = "masked"

[[privacy]]
epsilon = 1.0
delta = 1e-6
seeded = false
"""
SCALED = """
[[data]]
name = "halved"
source = "rows.csv"
unit = 2.0
low = 0.0
high = 5.0
public = 0.1
"""
ATTACK = """
[[attack]]
kind = "membership"
"""


@pytest.mark.slow
def test_whatever_a_folder_ever_asked_of_the_same_rows_is_counted(tmp_path: Path) -> None:
    """A part that comes later fits anew. Another scale, and what was taken out, are of the same rows."""
    numbers = [f"{i % 7},{i % 3}" for i in range(60)]
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *numbers]))
    store = Store(tmp_path / "out")
    for text, fits in (
        (STUDY, 1),
        (STUDY, 1),
        (STUDY + ATTACK, 2),
        (STUDY + SCALED + ATTACK, 3),
        (STUDY.replace("epsilon = 1.0", "epsilon = 1.5"), 4),
    ):
        study = plan(parse_study(text, "study.toml"), tmp_path)
        run(study, store, missing(study, store), 1, silent)
        (one,) = composed_budgets(study.setups, store.asked())
        assert one.fits == fits
    write_report(tmp_path / "out", study, store)
    assert str(one) in (tmp_path / "out" / "report.html").read_text("utf-8")
    mu = math.sqrt(3 * gdp_mu(1.0, 1e-6) ** 2 + gdp_mu(1.5, 1e-6) ** 2)
    assert one.epsilon == pytest.approx(gdp_epsilon(mu, 1e-6), rel=1e-9)


def test_a_folder_that_was_moved_is_of_the_same_rows(small: Plan) -> None:
    before, after = row(small, claim(1.0), 1), row(small, claim(1.5), 1)
    moved = msgspec.structs.replace(after[0], source="/elsewhere/rows.csv")
    (one,) = composed(before, (moved, 1), row(small, None, 1))
    mu = math.hypot(gdp_mu(1.0, 1e-6), gdp_mu(1.5, 1e-6))
    assert one.epsilon == pytest.approx(gdp_epsilon(mu, 1e-6), rel=1e-9)
    assert (one.data, one.open_fits) == (small.setups[0].labels["data"], 1)


def test_a_part_that_failed_was_asked_all_the_same(small: Plan, tmp_path: Path) -> None:
    store, (setup, _) = Store(tmp_path), row(small, claim(), 1)
    store.keep(setup.cell(0), setup.stored(0), {"fit": Part(values={}, timing={}, error="it failed")}, 1)
    (one,) = composed_budgets([setup], store.asked())
    assert one.fits == 1


def test_what_is_scaled_by_its_own_rows_is_claimed_by_no_study(tmp_path: Path) -> None:
    text = STUDY.replace('"rows.csv"', '"iris"').replace("public = 0.1", "public = 0.1\nstandardise = true")
    with pytest.raises(StudyError, match="standardise scales by the pooled rows"):
        plan(parse_study(text, "study.toml"), tmp_path)
    plan(parse_study(text.replace("seeded = false", "seeded = true"), "study.toml"), tmp_path)


def test_what_exact_sums_told_a_schema_is_claimed_by_no_study(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("\n".join(["x,y", *(f"{i % 7},{i % 3}" for i in range(60))]))
    text, column = (
        STUDY.replace('"rows.csv"', '"rows.csv"\nschema = "s.toml"'),
        'kind = "number"\nmissing = 3\n',
    )
    schema = tmp_path / "s.toml"
    schema.write_text(f"[columns.x]\n{column}[columns.y]\n{column}")
    plan(parse_study(text, "study.toml"), tmp_path)
    schema.write_text(f"[columns.x]\n{column}[columns.y]\n{column}provenance = 'exact'\n")
    with pytest.raises(StudyError, match=r"exact sums gave numbers of 'y' in s\.toml"):
        plan(parse_study(text, "study.toml"), tmp_path)
    plan(parse_study(text.replace("seeded = false", "seeded = true"), "study.toml"), tmp_path)
