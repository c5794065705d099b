"""The report: every number can be computed again from the stored cells, and a browser shows the page."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest

from privfed.experiments.cells import attack_id
from privfed.experiments.measuring import measure
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import parse_study
from privfed.experiments.report.page import PAGE, write_report
from privfed.experiments.running import Store, missing
from tests.experiments.small import SMALL

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Reader(HTMLParser):
    """Collects the numbers and marks of a page, and whatever would ask for something outside."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: list[dict[str, str]] = []
        self.marks: list[dict[str, str]] = []
        self.outside: list[str] = []
        self.ids: list[str] = []
        self.rows_without_data: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        words = {name: value or "" for name, value in attrs}
        if tag == "data":
            self.numbers.append(words)
        if words.get("class") == "mark":
            self.marks.append(words)
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
    kind, _, name = number["data-name"].partition(".")
    attacks = {one.title: [parts[attack_id(one)].values for parts in cells.values()] for one in setup.attacks}
    if kind == "convergence":
        return fmean(_at(one["marks"], one["score_ratio_after"], int(name)) for one in fits)
    if kind == "leaks":
        attack, at = name.rsplit(".", 1)
        return fmean(_at(one["rounds"], one["recovered"], int(at)) for one in attacks[attack])
    if kind == "fits":
        attack, at = name.rsplit(".", 1)
        named = {one.title: setup.fits_id(one) for one in setup.pooling}
        word = "advantage" if attack == "leakage" else "recovered"
        attack = next(iter(named)) if attack == "leakage" else attack
        each = [parts[named[attack]].values for parts in cells.values()]
        return fmean(one["reports"][one["fits"].index(int(at))][word] for one in each)
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


def _at(rounds: list[int], values: list[float], at: int) -> float:
    return [value for when, value in zip(rounds, values, strict=True) if when <= at][-1]


def test_numbers_of_several_fits_are_those_of_their_cells_and_advice_says_what_they_come_to(
    tmp_path: Path,
) -> None:
    text = SMALL.replace("seeds = 2", "seeds = 1\nfits = [1, 2]").replace("n_init = [1, 2]", "n_init = [1]")
    several, store = plan(parse_study(text, "study.toml"), tmp_path), Store(tmp_path)
    for setup in several.setups:
        store.keep(setup.cell(0), setup.stored(0), measure(setup, 0, setup.parts(), tmp_path), 1)
    write_report(tmp_path, several, store)
    page, reader = (tmp_path / PAGE).read_text(encoding="utf-8"), Reader()
    reader.feed(page)
    own = [one for one in reader.numbers if one["data-name"].startswith("fits.")]
    assert {one["data-name"] for one in own} == {
        f"fits.{title}.{at}" for title in ("leakage", "membership") for at in (1, 2)
    }
    for number in own:
        assert float(number["value"]) == pytest.approx(recomputed(number, several, store), rel=1e-12)
    assert "on 2 fits of the same rows" in page and "<th>1 fit</th><th>2 fits</th>" in page


def test_every_number_is_that_of_its_cells(read: Reader, small: Plan, finished: Path) -> None:
    store = Store(finished)
    assert len(read.numbers) > 100
    assert {number["data-id"] for number in read.numbers} == {setup.id for setup in small.setups}
    kinds = {re.split(r"[.:]", number["data-name"])[0] for number in read.numbers}
    assert kinds == {"stats", "leaks", "convergence"}
    for number in read.numbers:
        assert float(number["value"]) == pytest.approx(recomputed(number, small, store), rel=1e-12)


def test_every_mark_of_a_picture_stands_in_the_text_too(read: Reader) -> None:
    told = {(number["data-id"], number["value"]) for number in read.numbers}
    assert len(read.marks) > 20
    for mark in read.marks:
        assert mark["data-id"]
        assert (mark["data-id"], mark.get("data-y", mark["data-x"])) in told


def test_the_page_asks_for_nothing_outside(read: Reader, text: str) -> None:
    assert read.outside == []
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttp", text)


def test_every_section_of_this_study_is_there(read: Reader) -> None:
    for name in ("use", "tradeoff", "leakage", "cost", "convergence", "table", "saw", "attacks", "origin"):
        assert name in read.ids
    assert "failed" not in read.ids and "privacy" not in read.ids


def test_the_study_stands_in_the_page_and_beside_it(text: str, finished: Path) -> None:
    assert (finished / "study.toml").read_text() == SMALL
    assert "Three flowers &lt;of&gt; iris &amp; co." in text and "<of>" not in text


def test_a_report_that_is_written_again_is_the_same(small: Plan, finished: Path, text: str) -> None:
    write_report(finished, small, Store(finished))
    assert (finished / PAGE).read_text(encoding="utf-8") == text
    assert not missing(small, Store(finished))


def test_tables_agree_with_each_other(finished: Path) -> None:
    parquet = pl.read_parquet(finished / "results.parquet")
    document = json.loads((finished / "results.json").read_text())
    for row, one in zip(parquet.iter_rows(named=True), document["configurations"], strict=True):
        assert row["id"] == one["id"]
        for name, stat in one["stats"].items():
            assert (row[name], row[f"{name} (n)"]) == (stat["mean"], stat["n"])
    assert pl.read_csv(finished / "results.csv").shape == parquet.shape
    markdown = (finished / "table.md").read_text().splitlines()
    latex = (finished / "table.tex").read_text().splitlines()
    assert len(markdown) == 2 + 4 + 2
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
