"""An attack that has nothing to work on says so: it was not run, and that is no 0."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, EWFKMeans, Privacy, attacks
from privfed.attacks import (
    Differencing,
    NoisyDifferencing,
    NotRun,
    Prior,
    Probing,
    Report,
    Status,
    Tomography,
    Truth,
    evaluate,
)
from privfed.attacks.base.oracle import Oracle
from privfed.core.record.records import View
from privfed.federation.opening import open_over
from tests.attacks.populations import mixture
from tests.raised import parameter_refused
from tests.undeclared import ANYTHING

POPULATION = mixture(0, n_clients=4, n_rows=15)
CLIENTS = POPULATION.clients
PRIVACY = Privacy(
    epsilon=2.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25, 25), noise_seed=0
)


def seen(kind: Any = DWFKMeans, party: str = "server", **words: Any) -> View:
    """Return what a party saw of a short fit."""
    if kind is not DPKMeans:
        words = {"max_iter": 2, "tol": 0, **words}
    return kind(3, **words).fit(CLIENTS).transcript_.view(party)


def tried(attack: Any, view: View) -> Report:
    found = attack.run(view, Prior(sample=POPULATION.draw(60)), np.random.default_rng(0))
    members = np.arange(8) < 4
    return evaluate(found, Truth(CLIENTS, members=members))


def test_one_client_over_masked_sums_is_not_attacked_and_not_a_zero(tmp_path: Path) -> None:
    found = Differencing(0).run(seen(protocol="masked"), Prior(), np.random.default_rng(0))
    assert isinstance(found, NotRun)
    report = evaluate(found, Truth(CLIENTS))
    assert report.status == Status.NOT_APPLICABLE == "not applicable"
    assert math.isnan(report.recovered) and math.isnan(report.advantage)
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["status"] == "not applicable"
    assert plain["recovered"] is plain["precision"] is plain["bound"] is plain["advantage"] is None
    assert "of client 0 alone" in plain["why"] and "the server saw totals only" in plain["why"]
    assert "not applicable" in str(report) and "recovered" not in str(report)
    report.picture(tmp_path / "report.png")
    assert (tmp_path / "report.png").stat().st_size > 1000


def test_what_was_run_and_found_nothing_is_a_zero() -> None:
    # Three counts and sums of 60 rows: there is something to work on, and nothing comes of it.
    report = tried(Differencing(), seen(protocol="masked", local_iter=1, init="random", max_iter=1))
    assert (report.recovered, report.why) == (0.0, "")
    # Linear algebra determines no row, so that each may move a little against another of its cell.
    assert (report.bound, report.witness) == (0.0, 1.0)


def test_what_was_found_says_so() -> None:
    report = tried(attacks.Linkage(), seen(protocol="plain", max_iter=6))
    assert report.status == "found"
    assert report.advantage == pytest.approx((report.recovered - 0.25) / 0.75)


STEPS: dict[str, Any] = {"local_iter": 3, "init": "random", "protocol": "plain"}
READ = [
    (Differencing(0), {**STEPS}, True),
    (Differencing(0), {"kind": EWFKMeans, **STEPS}, False),
    (Differencing(0), {"kind": EWFKMeans, **STEPS, "init": "kfed"}, True),
    (Differencing(), {"kind": EWFKMeans, **STEPS, "init": "kfed"}, False),
    (Tomography(), {"kind": EWFKMeans, **STEPS}, False),
    (Tomography(), {"protocol": "masked"}, True),
    (Differencing(), {"kind": DPKMeans, "privacy": PRIVACY}, False),
    (NoisyDifferencing(), {"protocol": "plain"}, False),
    (attacks.EqualWeightCounts(1), {"kind": EWFKMeans, "protocol": "plain"}, True),
    (attacks.EqualWeightCounts(1), {"kind": EWFKMeans, "protocol": "masked"}, False),
    (attacks.Disaggregation(), {"protocol": "plain", "local_iter": 1}, True),
    (attacks.Disaggregation(), {"protocol": "plain", "local_iter": 3}, True),
    (attacks.Disaggregation(), {"kind": EWFKMeans, "protocol": "plain"}, False),
    (attacks.FuzzyInversion(), {"protocol": "plain"}, False),
    (attacks.Membership(POPULATION.draw(8)), {"protocol": "masked"}, True),
    (attacks.Membership(POPULATION.draw(8)), {"party": "observer"}, True),
    (attacks.Membership(POPULATION.draw(8)), {"protocol": "group-masked"}, False),
]


@pytest.mark.parametrize(("attack", "words", "runs"), READ, ids=lambda one: type(one).__name__)
@pytest.mark.few(5)
def test_attacks_are_run_where_the_view_shows_what_they_read(attack: Any, words: Any, runs: bool) -> None:
    report = tried(attack, seen(**words))
    assert (report.status != Status.NOT_APPLICABLE) is runs
    assert (report.why == "") is runs and math.isfinite(report.recovered) is runs


def test_linking_needs_a_question_that_is_asked_again() -> None:
    view = seen(protocol="plain", max_iter=1)
    assert "none was asked again" in tried(attacks.Linkage(), view).why


@pytest.mark.parametrize("attack", [Differencing(7), NoisyDifferencing(7), attacks.EqualWeightCounts(7)])
def test_a_client_that_is_not_there_is_an_error_all_the_same(attack: Any) -> None:
    with parameter_refused("client"):
        attack.run(seen(protocol="masked"), Prior(), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("protocol", "words", "why"),
    [
        ("masked", {"client": 1}, "of client 1 alone"),
        ("group-masked", {}, "the clients pose the questions"),
        ("group-masked", {"client": 1, "inconsistent": True}, "the clients pose the questions"),
    ],
)
def test_a_server_that_cannot_ask_does_not_attack(protocol: str, words: Any, why: str) -> None:
    oracle = Oracle(open_over(CLIENTS, protocol=protocol, policy=ANYTHING), 20)
    found = Probing(6, **words).run(oracle, Prior(), np.random.default_rng(0))
    assert isinstance(found, NotRun) and why in found.why
    assert oracle.asked == 0
    assert math.isnan(evaluate(found, Truth(CLIENTS)).recovered)


def test_a_server_that_masks_have_stopped_has_asked() -> None:
    oracle = Oracle(open_over(CLIENTS, protocol="masked", policy=ANYTHING), 20)
    found = Probing(6, client=1, inconsistent=True).run(oracle, Prior(), np.random.default_rng(0))
    report = evaluate(found, Truth(CLIENTS))
    assert (report.status, report.recovered) == ("may be determined", 0.0) and oracle.asked > 0


def test_under_noise_other_rows_give_the_same_totals_and_the_bound_holds_for_pairs() -> None:
    attack = attacks.Membership(POPULATION.draw(8), listed=0.5, gdp_mu=1.0)
    found = attack.run(
        seen(DPKMeans, privacy=PRIVACY), Prior(sample=POPULATION.draw(60)), np.random.default_rng(0)
    )
    report = evaluate(found, Truth(CLIENTS, members=np.arange(8) < 4))
    assert report.witness == 1.0 and report.status in (Status.NOT_CERTAIN, Status.FOUND, Status.NOT_READ)
    assert report.bound == pytest.approx(0.8413, abs=1e-4)
    assert report.details["auc, most that privacy allows one record"] == pytest.approx(0.7602, abs=1e-4)
    assert "8 candidates" in report.given and "0.5 of the members" in report.given
    exact = tried(attacks.Membership(POPULATION.draw(8)), seen(protocol="masked"))
    assert exact.witness == 0.0 and exact.status is not Status.NOT_CERTAIN
