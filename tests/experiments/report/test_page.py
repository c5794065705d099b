"""The report: every number can be computed again from the stored cells, and a browser shows the page."""

import json
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest

from privfed import experiments
from privfed.experiments.cells import attack_id
from privfed.experiments.measuring import measure
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import parse_study
from privfed.experiments.report.page import PAGE, write_report
from privfed.experiments.running import Store, missing
from tests.experiments.small import SMALL

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Reader(HTMLParser):
    """Collects the numbers of a page, and whatever would ask for something outside."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[dict[str, str]] = []
        self.outside: list[str] = []
        self.ids: list[str] = []
        self.rows_without_data: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        words = {name: value or "" for name, value in attrs}
        if tag == "data":
            self.numbers.append(words)
        if "id" in words:
            self.ids.append(words["id"])
        for name in ("src", "href", "action", "srcset", "poster"):
            value = words.get(name, "#")
            if not value.startswith(("#", "data:")):
                self.outside.append(value)


@pytest.fixture(scope="module")
def text(finished: Path) -> str:
    return (finished / PAGE).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def recomputed(number: dict[str, str], small: Plan, store: Store) -> float:
    """Compute a number of the page again, from nothing but what is stored of its cells."""
    setup = next(one for one in small.setups if one.id == number["data-id"])
    cells = store.read([setup.cell(seed) for seed in small.seeds])
    assert set(number["title"].split(": ")[1].split()) == set(cells)
    fits = [parts["fit"].values | parts["fit"].timing for parts in cells.values()]
    _, _, name = number["data-name"].partition(".")
    attacks = {one.title: [parts[attack_id(one)].values for parts in cells.values()] for one in setup.attacks}
    if name == "leakage":
        (only,) = attacks.values()
        return fmean(one["report"]["advantage"] for one in only)
    if name.startswith("leakage: "):
        return fmean(one["report"]["advantage"] for one in next(iter(attacks.values())))
    if name == "bytes":
        return fmean(one["bytes_up"] + one["bytes_down"] for one in fits)
    if ": " in name:
        attack, word = name.split(": ")
        # Precision is of claims: fits without any have none.
        each = (one["report"][word] for one in attacks[attack])
        return fmean(value for value in each if value is not None)
    return fmean(one[name] for one in fits)


def test_numbers_of_several_fits_are_drawn_and_advice_says_what_they_come_to(tmp_path: Path) -> None:
    text = SMALL.replace("seeds = 2", "seeds = 1\nfits = [1, 2]").replace("n_init = [1, 2]", "n_init = [1]")
    several, store = plan(parse_study(text, "study.toml"), tmp_path), Store(tmp_path)
    for setup in several.setups:
        store.keep(setup.cell(0), setup.stored(0), measure(setup, 0, setup.parts(), tmp_path), 1)
    write_report(tmp_path, several, store)
    assert "on 2 fits of the same rows" in (tmp_path / PAGE).read_text(encoding="utf-8")
    drawn = pl.read_csv(tmp_path / "figures" / "fits.csv")
    assert set(drawn["fits seen"]) == {1.0, 2.0} and set(drawn["n"]) == {1}
    setup = several.setups[0]
    (attack,) = setup.pooling
    stored = store.read([setup.cell(0)])[setup.cell(0)][setup.fits_id(attack)].values
    expected = [report["recovered"] for report in stored["reports"]]
    own = drawn.filter(pl.col("panel").str.starts_with(attack.title))
    assert set(expected) <= set(own["median"])


def test_every_number_is_that_of_its_cells(read: Reader, small: Plan, finished: Path) -> None:
    store = Store(finished)
    assert len(read.numbers) > 60
    assert {number["data-id"] for number in read.numbers} == {setup.id for setup in small.setups}
    kinds = {re.split(r"[.:]", number["data-name"])[0] for number in read.numbers}
    assert kinds == {"stats"}
    for number in read.numbers:
        assert float(number["value"]) == pytest.approx(recomputed(number, small, store), rel=1e-12)


def test_the_table_has_a_row_for_each_fit_and_the_figures_its_numbers(small: Plan, finished: Path) -> None:
    frame, store = experiments.read(finished), Store(finished)
    assert len(frame) == len(small.setups) * len(small.seeds)
    for row in frame.iter_rows(named=True):
        fit = store.read([row["cell"]])[row["cell"]]["fit"].values
        assert (row["cost ratio"], row["bytes up [B]"]) == (fit["score_ratio"], fit["bytes_up"])
        assert row["epsilon"] == math.inf and row["delta"] is None and row["seed"] in small.seeds
    for name in ("leakage-against-cost", "rounds", "convergence"):
        assert (finished / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert "<text" in (finished / "figures" / f"{name}.svg").read_text()
    drawn = pl.read_csv(finished / "figures" / "convergence.csv")
    assert set(drawn["n"]) == {2} and (drawn["low"] <= drawn["median"]).all()
    setup = small.setups[0]
    ends = [
        one["fit"].values["score_ratio_after"][-1]
        for one in store.read(map(setup.cell, small.seeds)).values()
    ]
    assert any(value == pytest.approx(fmean(ends)) for value in drawn["median"])


def test_the_page_asks_for_nothing_outside(read: Reader, text: str) -> None:
    assert read.outside == []
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttp", text)


def test_every_section_of_this_study_is_there(read: Reader) -> None:
    for name in ("use", "more", "table", "saw", "attacks", "origin"):
        assert name in read.ids
    assert "failed" not in read.ids and "together" not in read.ids


def test_a_figure_and_what_was_found_open_the_page(text: str) -> None:
    body = text[text.index("<body>") :]
    assert (
        body.index("<img") < body.index("the cost ratio is") < body.index('id="use"') < body.index("<table")
    )


def test_the_study_stands_in_the_page_and_beside_it(text: str, finished: Path) -> None:
    assert (finished / "study.toml").read_text() == SMALL
    assert "Three flowers &lt;of&gt; iris &amp; co." in text and "<of>" not in text


def test_a_report_that_is_written_again_is_the_same(small: Plan, finished: Path, text: str) -> None:
    write_report(finished, small, Store(finished))
    assert (finished / PAGE).read_text(encoding="utf-8") == text
    assert not missing(small, Store(finished))


def test_tables_agree_with_each_other(finished: Path) -> None:
    frame = experiments.read(finished)
    document = json.loads((finished / "results.json").read_text())
    for one in document["configurations"]:
        own = frame.filter(pl.col("cell").is_in(list(one["cells"].values())))
        assert own["cost ratio"].mean() == pytest.approx(one["stats"]["score_ratio"]["mean"])
        assert len(own) == one["stats"]["score_ratio"]["n"]
    latex = (finished / "table.tex").read_text().splitlines()
    rows = [line for line in latex if line.endswith("\\\\")]
    assert len(rows) == 5 and len({line.count(" & ") for line in rows}) == 1


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.few(1)
def test_a_browser_shows_the_page_without_an_error(finished: Path, tmp_path: Path, width: int) -> None:
    """Run the page's script in Chromium, sort and filter its table, and look for what it complains about."""
    script = """
    <script>
      {
      const told = [];
      const buttons = [...table.tHead.querySelectorAll("button")];
      const column = buttons.findIndex((button) => button.textContent === "bytes up");
      const value = (row) => Number(row.cells[column].querySelector("data").value);
      buttons[column].click();
      told.push([...table.tBodies[0].rows].map(value));
      document.getElementById("filter").value = "masked n_init";
      document.getElementById("filter").dispatchEvent(new Event("input"));
      told.push([...table.tBodies[0].rows].filter((row) => !row.hidden).length);
      told.push(document.documentElement.scrollWidth <= window.innerWidth);
      console.log("TOLD " + JSON.stringify(told));
      }
    </script></body>"""
    page = tmp_path / "page.html"
    page.write_text(
        (finished / PAGE).read_text(encoding="utf-8").replace("</body>", script), encoding="utf-8"
    )
    picture = tmp_path / "page.png"
    shown = subprocess.run(
        [
            BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},2000",
            f"--screenshot={picture}", page.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    console = [line for line in shown.stderr.splitlines() if "CONSOLE" in line]
    assert len(console) == 1, console
    found = re.search(r"TOLD (\[.*\])\"", console[0])
    assert found, console
    order, kept, fits = json.loads(found.group(1))
    assert order == sorted(order) and len(order) == 4
    assert kept == 2
    assert fits
    assert picture.read_bytes().startswith(b"\x89PNG")
