"""A study says what its fits find about themselves: which did not converge, why, and what helps."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from privfed.experiments.measuring import Measured, _part, measure
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import parse_study
from privfed.experiments.report.advice import advise
from privfed.experiments.report.page import page, write_report
from privfed.experiments.report.summary import Adversary, Row
from privfed.experiments.running import Store
from tests.experiments.small import SMALL

STUDY = SMALL.replace("max_iter = 6\ntol = 0", "init = 'random'").replace(
    "grid = { n_init = [1, 2] }", "grid = { max_iter = [1, 100] }"
)


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan, list[Row]]:
    """Return a study with fits of one round, and of as many as it takes."""
    folder, checked = tmp_path_factory.mktemp("short"), plan(parse_study(STUDY, "study.toml"), Path())
    store = Store(folder)
    for setup in checked.setups:
        if setup.protocol == "masked":
            for seed in checked.seeds:
                store.keep(
                    setup.cell(seed), setup.stored(seed), measure(setup, seed, setup.parts(), Path()), 1
                )
    return folder, checked, write_report(folder, checked, store)


def test_rows_know_which_seeds_and_what_helps(short: tuple[Path, Plan, list[Row]]) -> None:
    cut, whole = short[2]
    assert cut.unconverged == [0, 1] and whole.unconverged == []
    assert all("max_iter=1" in own["unconverged"] for own in cut.findings.values())
    # It is told of by itself, and no warning of the run beside.
    assert cut.notes == whole.notes == []


def test_files_and_page_say_it(short: tuple[Path, Plan, list[Row]]) -> None:
    folder, _, (cut, _) = short
    one, other = json.loads((folder / "results.json").read_text())["configurations"]
    assert one["findings"] == {str(seed): own for seed, own in cut.findings.items()}
    assert "unconverged" not in str(other["findings"])
    told = "2 of 2 fits did not converge"
    assert pl.read_csv(folder / "study.csv")["remarks"].to_list() == [told, told, "", ""]
    for name in ("table.tex", "report.html"):
        assert (folder / name).read_text(encoding="utf-8").count(told) >= 1, name
    text = (folder / "report.html").read_text(encoding="utf-8")
    section = text[text.index('<section id="findings">') :]
    assert "<td>2 of 4</td>" in section and "raise max_iter=1" in section


def test_the_page_has_the_commonest_findings_once(short: tuple[Path, Plan, list[Row]]) -> None:
    _, checked, rows = short
    rare, most = ["clipped", "of-an-extension"], ["coarse", "empty", "few-rows", "unconverged", "off-means"]
    told = [
        replace(row, findings={0: {code: f"{code} {row.id}" for code in codes}})
        for row, codes in zip(rows, ([*rare, *most], most), strict=True)
    ]
    section = (
        page(checked, told, [], [], {}).partition('<section id="findings">')[2].partition("</section>")[0]
    )
    lines = re.findall("<tr><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>", section)
    assert lines == [(code.replace("-", " "), "2 of 4", f"{code} {rows[0].id}", "#1, #2") for code in most]


def test_what_fits_find_about_themselves_is_no_warning_beside() -> None:
    text = STUDY.replace("n_clusters = 3", "n_clusters = 100")
    checked = plan(parse_study(text, "study.toml"), Path())
    fit = measure(checked.setups[1], 0, ["fit"], Path())["fit"]
    assert "of 100 centers" in fit.values["findings"]["empty"] and "notes" not in fit.values

    def measured() -> Measured:
        for said in ("found", "another"):
            warnings.warn(said, stacklevel=2)
        return {"findings": {"clipped": "found"}}, {}

    assert _part(measured).values["notes"] == ["another"]


def test_advice_says_it(short: tuple[Path, Plan, list[Row]]) -> None:
    cut, whole = short[2]
    assert "2 of its 2 fits did not converge" in advise([cut], Adversary.SERVER, 1.0, 99.0).caveats
    assert not any("converge" in one for one in advise([whole], Adversary.SERVER, 1.0, 99.0).caveats)
