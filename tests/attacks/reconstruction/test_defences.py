"""Defences, each against the attacks that it is said to stop."""

import math

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, EWFKMeans, Privacy, attacks
from privfed.attacks import Prior, Status, Truth, evaluate
from privfed.attacks.base.oracle import Oracle
from privfed.attacks.cohorts.disaggregation import Disaggregation
from privfed.attacks.probing.probing import Probing
from privfed.attacks.reconstruction.differencing import Differencing
from privfed.attacks.reconstruction.tomography import Tomography
from privfed.errors import PrivFedError
from privfed.federation.opening import open_over
from privfed.privacy.accounting import gdp_mu
from tests.attacks.figures import fitted
from tests.attacks.populations import mixture
from tests.attacks.reconstruction.rounding_figures import digits, rounded
from tests.undeclared import ANYTHING


def reports(model, population, *only):
    """Run passive attacks on the server's view."""
    fitted = model.fit(population.clients)
    view = fitted.transcript_.view("server")
    candidates = np.concatenate([population.rows, population.draw(len(population.rows))])
    members = np.arange(len(candidates)) < len(population.rows)
    tried = [
        Differencing(0),
        Differencing(None),
        Disaggregation(),
        Tomography(0, n_particles=500),
        Tomography(None, n_particles=500),
        attacks.FuzzyInversion(0),
        attacks.FuzzyInversion(None),
        attacks.Linkage(),
        attacks.Membership(candidates),
    ]
    found = []
    for attack in tried:
        if only and attack.name not in only:
            continue
        result = attack.run(view, Prior(sample=population.draw(400)), np.random.default_rng(0))
        found.append(evaluate(result, Truth(population.clients, members=members)))
    return {report.attack: report for report in found}


@pytest.mark.parametrize("protocol", ["group-masked", "ckks"])
def test_where_clients_open_the_server_has_nothing_to_attack(protocol):
    population = mixture(0, n_clients=5, n_rows=20)
    model = DWFKMeans(3, local_iter=1, init="kfed", protocol=protocol, max_iter=4, tol=0.0)
    found = reports(model, population)
    assert len(found) == 6
    for report in found.values():
        assert report.status == Status.NOT_APPLICABLE
        assert math.isnan(report.recovered) and report.queries == report.claims == 0
        assert "the server saw no client's answers and no totals" in report.why


def test_a_masked_sum_shows_no_single_client():
    population = mixture(0, n_clients=6, n_rows=20, concentration=0.3)
    found = reports(
        DWFKMeans(3, local_iter=1, init="kfed", max_iter=6, tol=0),
        population,
        "linkage",
        "disaggregation",
    )
    assert found["linkage"].status == Status.NOT_APPLICABLE
    told = found["disaggregation"].details
    assert told["holds rows, told right"] <= told["holds rows, the commoner answer"]


def test_hidden_number_of_rows_is_told_by_memberships_and_not_by_their_total():
    # docs/attacks/not-sufficient.md: hiding N_l alone is void; `test_fuzzy_inversion` has the other side.
    population = mixture(1, n_clients=5, n_rows=8)
    federation = open_over(population.clients, protocol="masked", policy=ANYTHING)
    result = attacks.FuzzyInversion(0).run(
        federation.transcript.view("server"), Prior(sample=population.draw(50)), np.random.default_rng(0)
    )
    assert isinstance(result, attacks.NotRun) and "of client 0 alone" in result.why


@pytest.mark.slow
def test_fixed_cohorts_leave_disaggregation_at_its_baseline():
    population = mixture(2, n_clients=8)
    cohorts = [[0, 1, 2, 3], [4, 5, 6, 7]]
    words = {"local_iter": 1, "init": "random", "tol": 0.0, "max_iter": 40, "random_state": 0}
    found = {}
    for name, schedule in (("fixed", cohorts), ("changing", None)):
        chosen = {"cohorts": schedule} if schedule else {"clients_per_round": 4}
        model = DWFKMeans(4, protocol="masked", **words, **chosen).fit(population.clients)
        result = Disaggregation().run(model.transcript_.view("server"), Prior(), np.random.default_rng(0))
        found[name] = evaluate(result, Truth(population.clients))
    fixed, changing = (found[name].details["relative error"] for name in ("fixed", "changing"))
    base = found["fixed"].details["relative error, no access"]
    assert fixed >= 0.7 * base
    assert changing < 0.7 * fixed


def test_masks_bound_to_the_question_give_inconsistency_nothing():
    population = mixture(3, n_clients=4, n_rows=10)
    for protocol, least, most in (("plain", 0.5, 1.0), ("masked", 0.0, 0.0)):
        federation = open_over(population.clients, protocol=protocol, policy=ANYTHING)
        attack = Probing(10, client=0, inconsistent=True)
        try:
            result = attack.run(Oracle(federation, 60), Prior(), np.random.default_rng(0))
        except PrivFedError:
            recovered = 0.0
        else:
            recovered = evaluate(result, Truth(population.clients)).recovered
        assert least <= recovered <= most


def test_one_epsilon_leaves_no_verified_claim():
    population = mixture(4, n_clients=5, n_rows=60)
    privacy = Privacy(
        epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25.0, 25.0, max_rows=100)
    )
    model = DPKMeans(3, privacy=privacy, protocol="masked")
    found = reports(model, population, "differencing", "fuzzy-inversion", "membership")
    assert found["differencing"].status == found["fuzzy-inversion"].status == Status.NOT_APPLICABLE
    assert "all noised" in found["differencing"].why
    allowed = gdp_mu(1.0, 1e-6)
    assert found["membership"].recovered <= 0.5 + allowed / 2.0


def test_equal_weights_hide_nothing_from_linkage():
    population = mixture(5, n_clients=6)
    found = reports(EWFKMeans(3, init="kfed", protocol="plain", max_iter=6, tol=0), population, "linkage")
    assert found["linkage"].recovered > 3 * found["linkage"].baseline


@pytest.mark.slow
def test_two_decimals_hide_nothing_of_whole_numbers():
    # docs/attacks/not-sufficient.md: a mean of below 100 whole numbers, to two decimals, gives their sum.
    clients = digits(0)
    view = fitted(clients, 10, 0, n_init=3, init="coreset").transcript_.view("server")
    found = {}
    whole = Prior(step=np.ones(64))
    for name, seen, prior in (
        ("exact", view, Prior()),
        ("rounded", rounded(view, 2), Prior()),
        ("known to be whole", rounded(view, 2), whole),
        ("one decimal", rounded(view, 1), whole),
        ("none", rounded(view, 0), whole),
    ):
        result = Differencing(client=0).run(seen, prior, np.random.default_rng(0))
        found[name] = evaluate(result, Truth(clients))
    assert found["exact"].recovered >= 0.3
    assert found["rounded"].recovered <= 0.1
    assert found["known to be whole"].recovered == found["exact"].recovered
    assert found["known to be whole"].precision == found["one decimal"].precision == 1.0
    assert found["one decimal"].recovered >= 0.2
    assert not found["none"].claims
