"""The report of a study with differential privacy, and measurements that fail."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from privfed.experiments.cells import attack_id
from privfed.experiments.measuring import Part, measure
from privfed.experiments.planning import Plan, plan
from privfed.experiments.plot import BandsDisplay
from privfed.experiments.reading import parse_study
from privfed.experiments.report.claims import composed_budgets
from privfed.experiments.report.figures import pictures
from privfed.experiments.report.page import write_report
from privfed.experiments.report.summary import Row
from privfed.experiments.report.tables import long_form
from privfed.experiments.running import Store
from tests.some import some

STUDY = """\
name = "Private"
seeds = 1
audit = 2000

[[data]]
source = "g2"
low = -1.0
high = 1.0

[[partition]]
clients = 4

[[algorithm]]
estimator = "DPKMeans"
n_clusters = 2

[[sum]]
protocol = "masked"

[[privacy]]
epsilon = [1.0, 10.0]
delta = 1e-6

[[attack]]
kind = "Differencing"

[[attack]]
kind = "Linkage"
"""


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan, list[Row]]:
    folder = tmp_path_factory.mktemp("private")
    checked, store = plan(parse_study(STUDY, "study.toml"), Path()), Store(folder)
    for setup in checked.setups:
        store.keep(setup.cell(0), setup.stored(0), measure(setup, 0, setup.parts(), Path()), 1)
    failed = {attack_id(setup.attacks[1]): Part(values={}, timing={}, error="OSError: out of luck")}
    store.keep(setup.cell(0), setup.stored(0), failed, 1)
    return folder, checked, write_report(folder, checked, store)


def test_the_price_of_privacy_is_drawn_over_epsilon(private: tuple[Path, Plan, list[Row]]) -> None:
    _, _, rows = private
    picture = pictures(rows, long_form(rows))[0]
    display = picture.panels[0]
    assert picture.name == "tradeoff" and isinstance(display, BandsDisplay)
    assert sorted(at for line in display.lines.values() for at in line) == sorted(
        row.setup.privacy.epsilon for row in rows
    )
    assert rows[0].stats["score_ratio"].mean >= rows[1].stats["score_ratio"].mean


def test_audits_stay_below_their_claims(private: tuple[Path, Plan, list[Row]]) -> None:
    for row in some(private[2]):
        assert row.setup.privacy is not None
        assert 0.0 < row.stats["audited_epsilon"].mean <= row.setup.privacy.epsilon


def test_seeded_runs_and_failures_are_told(private: tuple[Path, Plan, list[Row]]) -> None:
    text = (private[0] / "report.html").read_text(encoding="utf-8")
    assert "seeded noise: nobody is protected here" in text
    failed = text[text.index('<section id="failed">') :]
    assert len(re.findall(r"<td>linkage</td>", failed)) == 1 and "out of luck" in failed


def test_attacks_that_noise_leaves_nothing_to_read_are_no_zeros(
    private: tuple[Path, Plan, list[Row]],
) -> None:
    folder, _, rows = private
    for row in rows:
        assert row.attacks == [] and "leakage" not in row.stats
        assert not any(name.startswith("differencing") for name in row.stats)
        ((why, seeds),) = row.not_applicable["differencing"].items()
        assert "counts and sums in cells, without noise" in why and "all noised" in why and seeds == 1
    text = (folder / "report.html").read_text(encoding="utf-8")
    # That nothing was read is the weakest reason to use it, and its noise is seeded.
    assert "attacks read at most a part" in text and "not as measured" in text
    section = text[text.index('<section id="each">') : text.index('<section id="table">')]
    assert "<td>differencing</td>" in section and "<td>#1, #2</td>" in section
    document = json.loads((folder / "results.json").read_text())
    for one in document["configurations"]:
        assert one["attacks"]["differencing"]["status"] == "not applicable"
    assert "not applicable: differencing" in (folder / "table.tex").read_text()


def test_a_seeded_cell_repeats(private: tuple[Path, Plan, list[Row]]) -> None:
    folder, checked, _ = private
    setup = checked.setups[0]
    stored = Store(folder).read([setup.cell(0)])[setup.cell(0)]
    again = measure(setup, 0, setup.parts(), Path())
    assert {name: part.values for name, part in again.items()} == {
        name: part.values for name, part in stored.items()
    }


def test_what_all_fits_amount_to_is_said(private: tuple[Path, Plan, list[Row]]) -> None:
    folder, checked, _ = private
    (one,) = composed_budgets(checked.setups, Store(folder).asked())
    assert one.epsilon > 10.0
    assert str(one) in (folder / "report.html").read_text("utf-8")
    assert json.loads((folder / "results.json").read_text("utf-8"))["together"] == [dataclasses.asdict(one)]
