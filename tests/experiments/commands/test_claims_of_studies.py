"""Studies say what their fits claim, in the words of a single fit; a seeded run says it is not private."""

import html
import json
from pathlib import Path

import polars as pl
import pytest

from privfed.experiments.measuring import measure
from privfed.experiments.planning import plan
from privfed.experiments.reading import parse_study
from privfed.experiments.report.claims import SCORED, lines_of
from privfed.experiments.running import Store
from privfed.privacy.claim import PrivacySpent
from tests.cli.wide import run

STUDY = """\
name = "Private"
seeds = 1

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
protocol = "plain"

[[privacy]]
epsilon = 1.0
delta = 1e-6

[[privacy]]
epsilon = 2.0
delta = 1e-6
seeded = false
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a study, `study.toml`, and its stored cells."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(STUDY)
    checked, store = plan(parse_study(STUDY, "study.toml"), folder), Store(folder)
    for setup in checked.setups:
        store.keep(setup.cell(0), setup.stored(0), measure(setup, 0, setup.parts(), folder), 1)
    return folder


def test_a_study_says_what_each_guarantee_claims_and_that_seeded_runs_are_not_private(study: Path) -> None:
    said = run("tradeoff", study / "study.toml", "--out", study).stdout
    rows = json.loads((study / "results.json").read_text())["configurations"]
    claims = [PrivacySpent.from_dict(row["privacy"]) for row in rows]
    assert [(claim.epsilon, claim.seeded) for claim in claims] == [(1.0, True), (2.0, False)]
    assert "not private: a seeded run of epsilon 1" in claims[0].line
    page = html.unescape((study / "report.html").read_text())
    frame = pl.read_csv(study / "study.csv")
    assert frame["privacy claim"].to_list() == [claim.line for claim in claims]
    for claim in claims:
        assert f"plain, epsilon {claim.epsilon:g}, record: differential privacy: " in said
        assert all(f"{what}: {fact}" in said for what, fact in claim.facts().items())
        assert claim.line in (study / "table.tex").read_text().replace("\\", "")
        assert all(f"<dt>{what}</dt><dd>{fact}</dd>" in page for what, fact in claim.facts().items())
    assert all(SCORED in text for text in (said, page, (study / "table.tex").read_text()))
    assert "are seeded runs: their noise repeats, and nobody is protected" in said


def test_what_all_claims_say_is_said_once_and_nothing_is_left_out(study: Path) -> None:
    run("tradeoff", study / "study.toml", "--out", study, "--quiet")
    rows = json.loads((study / "results.json").read_text())["configurations"]
    seeded, claimed = (PrivacySpent.from_dict(row["privacy"]) for row in rows)
    assert lines_of({}) == []
    assert lines_of({"one": claimed}) == [f"one: {claimed.line}."]
    assert lines_of({"one": claimed, "two": claimed})[-1] == f"All 2 of these: {claimed.line}."
    lines = lines_of({"one": claimed, "two": seeded, "three": seeded})
    assert [line.split(":")[0] for line in lines] == ["one", "two / three", "All 3 of these"]
    for line, claim in zip(lines, (claimed, seeded), strict=False):
        facts = [f"{what}: {fact}" for what, fact in claim.facts().items()]
        assert all((fact in line) != (fact in lines[-1]) for fact in facts)


def test_studies_that_are_compared_say_their_claims(study: Path, tmp_path: Path) -> None:
    run("tradeoff", study / "study.toml", "--out", study, "--quiet")
    rows = json.loads((study / "results.json").read_text())
    lines = [row["privacy"]["summary"] for row in rows["configurations"]]
    said = run("compare", study, study).stdout
    assert all(said.count(line) == 1 for line in lines) and SCORED in said
    (tmp_path / "study.csv").write_text((study / "study.csv").read_text().replace("data hash", "hash"))
    assert "of another privfed" in run("compare", study, tmp_path, exit_code=2).stderr
