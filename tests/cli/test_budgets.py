"""Budgets on the command line: what is made, drawn, shown, and refused before anything is asked."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from privfed import Box, PrivacyBudget
from privfed.privacy.accounting import Curve, gdp_delta, gdp_mu
from tests.cli.test_claims import LOST, stopping
from tests.cli.wide import run

WHOLE = ("--epsilon", 4, "--delta", "1e-6", "--unit", "record", "--neighbours", "add-remove")
DOMAIN = ("--group", "g", "--clients", "a,b,c,d", "--low", -1, "--high", 1, "--protocol", "plain")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.6, 0.6, (3, 2))[rng.integers(3, size=240)] + rng.uniform(-0.1, 0.1, (240, 2))
    lines = [f"{'abcd'[i % 4]},{a:.4f},{b:.4f}" for i, (a, b) in enumerate(rows.tolist())]
    (tmp_path / "t.csv").write_text("g,a,b\n" + "\n".join(lines) + "\n")
    run("budget", "new", tmp_path / "b.db", *WHOLE)
    return tmp_path


def test_commands_draw_from_a_budget_until_it_is_spent(home: Path) -> None:
    table, paying = home / "t.csv", ("--budget", home / "b.db", "--share")
    first = ("fit", table, *DOMAIN, "--algorithm", "dp", "-k", 2, *paying)
    said = run(*first, 0.5, "--purpose", "a first map", "--out", home / "r")
    run("summary", table, *DOMAIN, *paying, 0.2)
    chosen = ("--algorithm", "dp", "--min-k", 2, "--max-k", 3, "--out", home / "s")
    run("select-k", table, *DOMAIN, *chosen, *paying, 0.25)
    budget = PrivacyBudget.of(home / "b.db")
    assert f"epsilon {budget.epsilon_of(0.5):g}, delta 1e-06" in said.output
    assert f"{np.sqrt(0.5) * gdp_mu(4.0, 1e-6):.4g} (Gaussian differential privacy" in said.output
    assert [one.share for one in budget.log()] == [0.5, 0.2, 0.25]
    assert [one.purpose for one in budget.log()] == ["a first map", "FederatedSummary", "DPKMeans"]
    # Too large a share asks nothing and leaves no folder; a finished run goes on unpaid.
    refused = run(*first, 0.3, "--out", home / "r2", exit_code=2).stderr
    assert "0.3 of the budget in b.db was asked for, 0.05 is left" in refused and not (home / "r2").exists()
    run("resume", home / "r")
    assert len(budget.log()) == 3
    found = json.loads(run("budget", "show", home / "b.db", "--json").stdout)
    assert found["remaining"]["share"] == pytest.approx(0.05) and len(found["payments"]) == 3
    shown = run("budget", "show", home / "b.db", "--out", home / "p.svg").stdout
    assert "a first map" in shown and f"mu {gdp_mu(4.0, 1e-6):.4g}" in shown and "0.05 of the budget" in shown
    drawn = ElementTree.fromstring((home / "p.svg").read_text())
    (spent,) = (one for one in drawn.iter() if one.get("id") == "spent")
    assert sum(one.tag.endswith("use") for one in spent.iter()) == 4


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--budget", "b.db"), "--budget and --share go together"),
        (("--share", 0.1), "--budget and --share go together"),
        (("--budget", "b.db", "--share", 0.1, "--epsilon", 1), "leave them out"),
        (("--budget", "b.db", "--share", 1.1), "--share must be a number in (0, 1]"),
        (("--budget", "none.db", "--share", 0.1), "none.db is missing"),
        (("--budget", "b.db", "--share", 0.1, "--mechanism", "skellam"), "privfed budget new --order 6"),
    ],
)
def test_what_is_wrong_costs_nothing(
    home: Path, words: tuple[object, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    said = run("fit", "t.csv", *DOMAIN, "--algorithm", "dp", *words, "--out", "r", exit_code=2).stderr
    assert why in said
    assert PrivacyBudget.of("b.db").log() == [] and not Path("r").exists()


def test_a_plan_asks_and_pays_nothing(home: Path) -> None:
    words = ("fit", home / "t.csv", *DOMAIN, "-k", 3, "--budget", home / "b.db", "--share", 0.2)
    said = run(*words, "--algorithm", "dp", "--plan", 5000, "--out", home / "r").stdout
    privacy = PrivacyBudget.of(home / "b.db").take(0.2, domain=Box(-1, 1), reserve=False)
    # Over plain sums each of the four clients adds the whole noise.
    assert said.strip() == str(privacy.plan(5000, 3, 2, copies=4)) and not (home / "r").exists()
    ranged = replace(privacy, domain=Box(0, 1)).plan(5000, 3, 2, copies=4)
    words = (*words, "--algorithm", "dp")
    assert run(*words, "--scale", "range", "--plan", 5000).stdout.strip() == str(ranged)
    assert "--scale range alone" in run(*words, "--scale", "robust", "--plan", 5000, exit_code=2).stderr
    words = (*words[:-2], "--algorithm", "dwf")
    assert "dp under a claim" in run(*words, "--plan", 5000, exit_code=2).stderr
    shares = json.loads(run("budget", "plan", home / "b.db", "--json").stdout)
    assert [(one["share"], one["left"]) for one in shares][::3] == [(0.01, 100), (0.2, 5), (1.0, 1)]
    assert shares[3]["epsilon"] == privacy.epsilon and shares[-1]["epsilon"] == pytest.approx(4.0)
    assert "noise (sd) of a count" in run("budget", "plan", home / "b.db").stdout
    assert PrivacyBudget.of(home / "b.db").log() == []


def test_a_budget_is_made_once(home: Path) -> None:
    assert "exists" in run("budget", "new", home / "b.db", *WHOLE, exit_code=2).stderr


def test_a_guarantee_is_the_same_in_all_its_forms() -> None:
    mu = gdp_mu(1.0, 1e-6)
    exact, point = Curve(1.0, 1e-6, mu), Curve(1.0, 1e-6)
    for delta in (1e-9, 1e-5, 1e-3):
        assert gdp_delta(exact.at(delta), mu) == pytest.approx(delta, rel=1e-6)
    assert exact.at(1e-6) == point.at(1e-6) == point.at(1e-3) == 1.0 and point.at(1e-9) == np.inf
    for alarms in np.linspace(0.0, 1.0, 21).tolist():
        # The whole curve says at least as much as one point of it, and its delta is its own conjugate.
        assert 1.0 - alarms >= exact.missed(alarms) >= point.missed(alarms) - 1e-9
    rates = np.linspace(1e-4, 1.0, 20_000)
    missed = np.array([exact.missed(one) for one in rates.tolist()])
    at = exact.at(1e-3)
    assert (1.0 - missed - np.exp(at) * rates).max() == pytest.approx(1e-3, rel=0.05)
    assert Curve(np.inf, 1.0).missed(0.3) == 0.0


@pytest.mark.parametrize("name", ["fit", "select-k"])
def test_a_command_that_goes_on_is_paid_once(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = {"fit": "privfed.estimators.fitting", "select-k": "privfed.estimators.selection"}[name]
    own = ("-k", 2) if name == "fit" else ("--min-k", 2, "--max-k", 3)
    # The whole budget, of which nothing is left to pay a second time.
    words = (
        name,
        home / "t.csv",
        *DOMAIN,
        "--algorithm",
        "dp",
        *own,
        "--budget",
        home / "b.db",
        "--share",
        1,
    )
    with monkeypatch.context() as stopped:
        stopped.setattr(f"{module}.open_federation", stopping(2, LOST))
        run(*words, "--out", home / "r", exit_code=2)
    budget = PrivacyBudget.of(home / "b.db")
    assert budget.remaining().share == 0.0
    run(*(("resume", home / "r") if name == "fit" else (*words, "--out", home / "r")))
    assert [one.used for one in budget.log()] == [True]


def test_a_run_whose_folder_was_moved_is_not_paid_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("fit", home / "t.csv", *DOMAIN, "--algorithm", "dp", "-k", 2, "--budget", home / "b.db")
    with monkeypatch.context() as stopped:
        stopped.setattr("privfed.estimators.fitting.open_federation", stopping(2, LOST))
        run(*words, "--share", 0.3, "--out", home / "r", exit_code=2)
    shutil.copytree(home / "r", home / "copy")
    (home / "r").rename(home / "moved")
    run("resume", home / "moved")
    assert [one.share for one in PrivacyBudget.of(home / "b.db").log()] == [0.3]
    # What a copy asked would be a second release.
    assert "it is an older copy" in run("resume", home / "copy", exit_code=2).stderr
    kept = home / "copy" / "payment"
    kept.write_text("named" + kept.read_text())
    assert "nothing was paid again. Begin a new run" in run("resume", home / "copy", exit_code=2).stderr
    assert len(PrivacyBudget.of(home / "b.db").log()) == 1


def test_another_runs_payment_does_not_pay_for_a_larger_share(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("fit", home / "t.csv", *DOMAIN, "--algorithm", "dp", "-k", 2, "--budget", home / "b.db")
    with monkeypatch.context() as stopped:
        stopped.setattr("privfed.estimators.fitting.open_federation", stopping(2, LOST))
        for name, share in (("large", 0.3), ("small", 0.1)):
            run(*words, "--share", share, "--out", home / name, exit_code=2)
    shutil.copy(home / "small" / "payment", home / "large" / "payment")
    assert "it is another run's" in run("resume", home / "large", exit_code=2).stderr
    run("resume", home / "small")
    assert [one.share for one in PrivacyBudget.of(home / "b.db").log()] == [0.3, 0.1]
