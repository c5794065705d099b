"""What to use, against whom: whole small studies, from rows to the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from privfed.attacks import Status
from privfed.experiments.measuring import measure
from privfed.experiments.planning import Plan, plan
from privfed.experiments.reading import parse_study
from privfed.experiments.report.advice import (
    BOUNDS,
    Evidence,
    Sees,
    adversaries,
    advise,
    answers,
    barred,
    measured,
    sees,
    to_run,
    without_implied,
)
from privfed.experiments.report.curves import Stat
from privfed.experiments.report.page import write_report
from privfed.experiments.report.summary import Adversary, Row
from privfed.experiments.running import Store
from tests.some import some

SERVER, HELPED, CLIENTS, OBSERVER = Adversary

STUDY = """\
name = "Whom to trust"
seeds = 1

[[data]]
source = "iris"
low = 0.0
high = 8.0
public = 0.3

[[partition]]
clients = 4

[[algorithm]]
estimator = "DWFKMeans"
local_iter = 1
n_clusters = 3
max_iter = 4
tol = 0

[[sum]]
protocol = "plain"

[[sum]]
protocol = "masked"

[[sum]]
protocol = "group-masked"

[[privacy]]
epsilon = inf

[[privacy]]
epsilon = 10.0
delta = 1e-5

[[privacy]]
epsilon = 11.0
delta = 1e-5
seeded = false

[[attack]]
kind = "differencing"
client = 0

[[attack]]
kind = "membership"
party = "observer"

[[attack]]
kind = "differencing"
name = "with a client"
colluding = [1]

[[attack]]
kind = "differencing"
name = "curious"
party = "clients"
colluding = [1]
"""


def written(text: str, folder: Path) -> tuple[Plan, list[Row]]:
    checked, store = plan(parse_study(text, "study.toml"), folder), Store(folder)
    for setup in checked.setups:
        for seed in checked.seeds:
            store.keep(setup.cell(seed), setup.stored(seed), measure(setup, seed, setup.parts(), folder), 1)
    return checked, write_report(folder, checked, store)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan, list[Row]]:
    folder = tmp_path_factory.mktemp("advice")
    return folder, *written(STUDY, folder)


def named(row: Row | None) -> str:
    return "" if row is None else f"{row.setup.labels['sum']}, {row.setup.labels['privacy']}"


def test_every_adversary_gets_its_own_answer(study: tuple[Path, Plan, list[Row]]) -> None:
    _, checked, rows = study
    told = answers(checked, rows)
    assert {one.adversary for one in told} == set(Adversary) == set(adversaries(rows))
    for adversary in Adversary:
        assert any(one.row is not None for one in told if one.adversary is adversary), adversary
    # The server that sees nothing is beaten by none that sees totals; an observer sees what all runs show it.
    # Which of its two runs, with noise or without, depends on the noise, which no seed fixes there.
    servers = [one.row for one in told if one.adversary is SERVER]
    assert {row.setup.protocol for row in servers if row is not None} == {"group-masked"}


def test_what_shows_every_answer_is_never_advised_and_seeded_noise_is_never_run_as_measured(
    study: tuple[Path, Plan, list[Row]],
) -> None:
    """Whatever the bounds, and although plain sums have the fewest bytes."""
    rows = study[2]
    least = min(rows, key=lambda row: row.stats["bytes"].mean)
    assert least.setup.protocol == "plain"
    for adversary in Adversary:
        for leakage, ratio in (*BOUNDS, (1.0, 1e9)):
            row = advise(rows, adversary, leakage, ratio).row
            if row is None:
                continue
            assert sees(row, adversary) is not Sees.ANSWERS
    plain = [row for row in rows if row.setup.protocol == "plain"]
    assert all(barred(row, SERVER) and barred(row, HELPED) for row in some(plain))
    seeded = [row for row in rows if row.setup.privacy is not None and row.setup.privacy.seeded]
    assert len(seeded) == 3
    assert all("seeded = false" in to_run(row) for row in some(seeded))
    assert {to_run(row) for row in rows if row not in seeded} == {"as measured"}
    assert advise(plain, SERVER, 1.0, 1e9).row is None
    hidden = [row for row in seeded if row not in plain]
    told = advise(hidden, OBSERVER, 1.0, 1e9)
    assert told.row in hidden and told.plain()["run"] == to_run(told.row)


def test_what_no_attack_read_stands_below_found_nothing(study: tuple[Path, Plan, list[Row]]) -> None:
    """An attack on one client has nothing to read in totals: that nobody attacked them is no evidence."""
    rows = {named(row): row for row in study[2]}
    masked = rows["masked, none"]
    found = measured(masked, SERVER)
    assert found is not None and found.evidence is Evidence.IN_PART and found.leakage is None
    assert not found.attacks and found.not_applicable == ("differencing",)
    assert "LloydSums (round)" in found.unread
    hidden = measured(rows["group-masked, none"], SERVER)
    assert hidden is not None and hidden.evidence is Evidence.NOTHING_SHOWN
    told = advise([masked], SERVER, 0.0, 99.0)
    assert told.row is masked and told.evidence is Evidence.IN_PART
    assert any("no attack read" in one and "LloydSums" in one for one in told.caveats)
    # What attacks read without finding anything comes before it, however many its bytes.
    read = attacked(masked, SERVER, 0.0)
    dear = replace(read, stats={**read.stats, "bytes": Stat(1e9, 0.0, 1)})
    best = advise([masked, dear], SERVER, 0.5, 99.0)
    assert best.row is dear and best.evidence is Evidence.OPEN


def test_the_page_the_file_and_the_command_say_against_whom(study: tuple[Path, Plan, list[Row]]) -> None:
    folder, checked, rows = study
    text = (folder / "report.html").read_text(encoding="utf-8")
    section = text[text.index('<section id="use">') : text.index('<section id="more">')]
    assert "never advised: the server sees every answer" in section
    assert "may I run it?" in section
    for one in Adversary:
        assert f"<td>{one}</td>" in section and f"<th>{one}</th>" in section
    document = json.loads((folder / "results.json").read_text())
    ids = {row.id: row for row in rows}
    assert document["advice"] and len(document["advice"]) == len(answers(checked, rows))
    for said in document["advice"]:
        row = ids.get(said["configuration"])
        assert said["adversary"] in set(Adversary)
        assert row is None or said["evidence"] in set(Evidence)
        assert row is None or not barred(row, Adversary(said["adversary"]))
    # What no attack read is listed, of each configuration.
    assert "Shown, and read by no attack" in text
    private = next(
        one for one in document["configurations"] if one["labels"]["privacy"] == "epsilon 11, record"
    )
    assert private["unread"] and not any(one["read_by"] for one in private["unread"])


def test_a_study_of_plain_sums_alone_advises_nothing_against_a_server(tmp_path: Path) -> None:
    text = STUDY.replace('[[sum]]\nprotocol = "group-masked"\n', "").replace(
        "[[privacy]]\nepsilon = 10.0\ndelta = 1e-5\nseeded = false\n", ""
    )
    text = text.replace('[[sum]]\nprotocol = "masked"\n', "")
    checked, rows = written(text, tmp_path)
    told = [one for one in answers(checked, rows) if one.adversary in (SERVER, HELPED)]
    assert told and all(one.row is None for one in told)
    assert "None of the measured settings meets these limits." in (tmp_path / "report.html").read_text()


def test_one_key_opens_all_to_a_server_with_a_client(study: tuple[Path, Plan, list[Row]]) -> None:
    pytest.importorskip("tenseal")
    import msgspec

    row = study[2][0]
    ckks = replace(row, setup=msgspec.structs.replace(row.setup, protocol="ckks", privacy=None))
    assert sees(ckks, SERVER) is Sees.NOTHING and sees(ckks, HELPED) is Sees.ANSWERS
    assert sees(ckks, CLIENTS) is Sees.TOTALS and sees(ckks, OBSERVER) is Sees.MODEL


# --- bounds, ties and caveats, on rows of one configuration ---


def attacked(row: Row, adversary: Adversary, leakage: float, sd: float = 0.0, **stats: float) -> Row:
    """Return a row on which an attack by the adversary read everything, with this leakage."""
    report: dict[str, Any] = {"status": "may be determined", "read": [], "not_read": [], "links_only": False}
    figures = {f"leakage: {adversary}": Stat(leakage, sd, 5), "score_ratio": Stat(1.0, 0.0, 5)}
    figures |= {name: Stat(value, 0.0, 5) for name, value in stats.items()}
    (label,) = (name for name in row.reports if name in ("differencing",))
    return replace(
        row,
        id=f"{leakage} {stats}",
        stats={**row.stats, **figures},
        reports={label: {0: report}},
        same_as=None,
    )


@pytest.fixture
def masked(study: tuple[Path, Plan, list[Row]]) -> Row:
    return next(row for row in study[2] if named(row) == "masked, none")


def test_the_cheapest_within_both_bounds_is_named(masked: Row) -> None:
    figures = [(0.5, 1.0, 1.0), (0.1, 1.2, 30.0), (0.05, 1.1, 20.0)]
    rows = [attacked(masked, SERVER, leak, score_ratio=cost, bytes=size) for leak, cost, size in figures]
    assert advise(rows, SERVER, 0.1, 1.3).row is rows[2]
    assert advise(rows, SERVER, 0.6, 1.3).row is rows[0]
    assert advise(rows, SERVER, 0.01, 1.3).row is None
    assert advise([replace(rows[0], stats={})], SERVER, 1.0, 9.0).row is None
    assert advise([replace(rows[0], reports={})], SERVER, 1.0, 9.0).row is None


def test_caveats_say_what_the_answer_rests_on(masked: Row) -> None:
    sure = advise([attacked(masked, SERVER, 0.1)], SERVER, 0.5, 1.1).caveats
    close = advise([attacked(masked, SERVER, 0.49, sd=0.1)], SERVER, 0.5, 1.1).caveats
    assert any("only differencing was tried" in one for one in sure)
    assert any("no differential privacy" in one for one in sure)
    assert set(close) - set(sure) == {"its leakage exceeds the bound within one standard deviation"}


def test_what_was_left_unread_on_any_seed_is_not_read(masked: Row) -> None:
    row = attacked(masked, SERVER, 0.0)
    ((label, first),) = row.reports.items()
    kind = {"question": "LloydSums", "purpose": "round", "shown": "totals", "sums": [3]}
    later = {**first[0], "status": "not read", "not_read": [kind]}
    found = measured(replace(row, reports={label: {0: first[0], 1: later}}), SERVER)
    assert found is not None and found.evidence is Evidence.IN_PART and "LloydSums" in found.unread


def test_answers_that_say_no_more_than_stricter_ones_are_left_out(masked: Row) -> None:
    good = attacked(masked, SERVER, 0.05, score_ratio=1.1, bytes=20.0)
    cheap = attacked(masked, SERVER, 0.3, score_ratio=1.0, bytes=1.0)
    bounds = [(0.1, 1.2), (0.01, 1.05), (0.01, 1.5), (0.2, 1.2), (0.5, 1.05)]
    told = [advise([good, cheap], SERVER, *each) for each in bounds]
    kept = [(one.leakage, one.score_ratio, one.row) for one in without_implied(told)]
    assert kept == [(0.1, 1.2, good), (0.01, 1.5, None), (0.5, 1.05, cheap)]
    assert [one.leakage for one in without_implied(told, wanted=(0.2, 1.2))] == [0.1, 0.01, 0.2, 0.5]
    # What holds against one adversary says nothing of another.
    other = [replace(one, adversary=OBSERVER) for one in told[3:4]]
    assert len(without_implied([*told[:1], *other])) == 2


def test_a_helped_server_is_judged_by_attacks_of_its_own(masked: Row) -> None:
    """One without help reads other totals: nothing found in these says nothing of what is left of them."""
    alone = [one for one in masked.setup.attacks if not one.colluding]
    unhelped = replace(masked, setup=msgspec.structs.replace(masked.setup, attacks=alone))
    assert measured(unhelped, HELPED) is None and measured(unhelped, SERVER) is not None
    assert measured(masked, HELPED) is not None
    assert advise([unhelped], HELPED, 1.0, 1e9).row is None


@pytest.mark.parametrize(
    ("options", "low", "asked"),
    [
        ({}, 0.0, False),
        ({"scale": "range"}, 0.0, False),
        ({"scale": "range"}, None, True),
        ({"scale": "standard"}, 0.0, True),
    ],
)
def test_sums_that_found_a_scale_are_read_by_no_attack(
    options: dict[str, Any], low: float | None, asked: bool, masked: Row
) -> None:
    row = attacked(masked, SERVER, 0.0)
    data = msgspec.structs.replace(row.setup.data, low=low, high=None if low is None else 8.0)
    parameters = {**row.setup.parameters, **options}
    row = replace(row, setup=msgspec.structs.replace(row.setup, data=data, parameters=parameters))
    found = measured(row, SERVER)
    assert found is not None and ("FederatedScaler" in found.unread) is asked
    assert (found.evidence is Evidence.IN_PART) is asked
    assert any("FederatedScaler" in one["question"] for one in row.unread) is asked


def test_an_attack_that_failed_did_not_find_nothing(masked: Row) -> None:
    row = attacked(masked, SERVER, 0.0)
    found = measured(row, SERVER)
    assert found is not None and found.evidence is Evidence.OPEN
    (label,) = row.reports
    failed = measured(replace(row, errors=[("cell", label, "MemoryError: ")]), SERVER)
    assert failed is not None and failed.evidence is Evidence.IN_PART


@pytest.mark.parametrize("status", [Status.OPEN, Status.NOT_CERTAIN])
def test_advice_says_what_may_be_determined(status: Status, masked: Row) -> None:
    row = attacked(masked, SERVER, 0.0)
    row = replace(
        row,
        reports={
            name: {seed: {**one, "status": status.value} for seed, one in each.items()}
            for name, each in row.reports.items()
        },
    )
    found = advise([row], SERVER, 1.0, 10.0)
    assert found.row is row
    assert any("may be determined" in one for one in found.caveats) is (status is Status.OPEN)
