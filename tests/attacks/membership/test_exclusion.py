"""Exclusion: who took part contradicts no sum, whatever was asked; most others contradict one."""

import numpy as np
import pytest

from privfed import Box, ClientPolicy, DPKMeans, DWFKMeans, FederatedFuzzyCMeans, Privacy, attacks
from privfed.attacks import Prior, Truth, evaluate
from privfed.attacks.evidence.equations import equations_of
from privfed.attacks.membership.scores import contradictions
from tests.attacks.populations import mixture

# Few rounds leave clusters without rows, and the attack reads the totals all the same.
pytestmark = pytest.mark.filterwarnings("ignore:no row lies at")


def fitted(kind, clients, **words):
    model = kind(12, random_state=0, **{"protocol": "masked", "max_iter": 3, "tol": 0, **words})
    return model.fit(clients)


def contradicted(model, rows, party="server"):
    view = model.transcript_.view(party)
    return contradictions(rows, equations_of(view), len(view.clients))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (DWFKMeans, {"local_iter": 1}),
        (DWFKMeans, {"local_iter": 5}),
        (DWFKMeans, {"local_iter": 1, "protocol": "plain", "clients_per_round": 2}),
        (DWFKMeans, {"local_iter": 1, "init": "nested"}),
        (FederatedFuzzyCMeans, {}),
    ],
)
def test_no_row_that_took_part_is_excluded_and_others_are(kind, words):
    population = mixture(0, n_clients=4, n_rows=25, d=6, components=1)
    model = fitted(kind, population.clients, **words)
    assert not contradicted(model, population.rows).any()
    if kind is DWFKMeans:
        assert (contradicted(model, population.draw(200)) > 0).mean() > 0.3


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_rows_of_a_client_that_was_away_contradict_no_sum_without_it():
    population = mixture(1, n_clients=4, n_rows=15)
    model = fitted(DWFKMeans, population.clients, local_iter=1, clients_per_round=2, protocol="plain")
    view = model.transcript_.view("server")
    away = [one for one in view.sums if 3 not in (one.contributors or one.cohort)]
    assert away
    assert not contradicted(model, population.clients[3]).any()


def test_a_row_alone_in_its_cell_is_its_sum_and_no_other():
    rows = np.array([[0.0, 0.0], [0.2, 0.1], [9.0, 9.0]])
    model = DWFKMeans(2, local_iter=1, protocol="plain", random_state=0).fit([rows[:2], rows[2:]])
    near = rows[2] + [[0.0, 0.0], [0.01, 0.0], [-0.01, -0.01]]
    assert (contradicted(model, near) > 0).tolist() == [False, True, True]


def test_under_noise_nobody_is_excluded():
    population = mixture(2, n_clients=4, n_rows=20)
    privacy = Privacy(
        epsilon=8.0, delta=1e-5, unit="record", domain=Box(-40, 40), neighbours="add-remove", noise_seed=0
    )
    model = DPKMeans(5, privacy=privacy, protocol="plain", random_state=0)
    view = model.fit(population.clients).transcript_.view("server")
    candidates = np.concatenate([population.rows, population.draw(50)])
    found = attacks.Membership(candidates).run(
        view, Prior(sample=population.draw(100)), np.random.default_rng(0)
    )
    assert not found.contradicted.any()
    assert np.isfinite(found.mu).all() and np.isfinite(found.scores).all()


def test_candidates_together_tell_more_than_exclusion_and_fits_add_up():
    population = mixture(3, n_clients=5, n_rows=10, d=8, components=1)
    others = population.draw(50)
    views = [
        DWFKMeans(3, protocol="masked", max_iter=2, tol=0, random_state=seed)
        .fit(population.clients)
        .transcript_.view("server")
        for seed in range(2)
    ]
    attack = attacks.Membership(np.concatenate([population.rows, others]))
    truth = Truth(population.clients, members=np.arange(100) < 50)
    prior = Prior(sample=population.draw(100))
    one, two = (
        evaluate(attack.run(attacks.pooled(seen), prior, np.random.default_rng(0)), truth)
        for seen in (views[:1], views)
    )
    assert one.precision == two.precision == 1.0
    assert one.details["members excluded"] == 0.0
    excluded = [report.details["others excluded"] for report in (one, two)]
    assert 0.3 < excluded[0] <= excluded[1]
    assert one.recovered > 0.99 and two.recovered > 0.99


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
def test_groups_of_rows_exclude_nobody():
    population = mixture(0, n_clients=4, n_rows=25, d=6, components=1)
    policy = ClientPolicy(group_size=5)
    model = fitted(DWFKMeans, population.clients, local_iter=1, policy=policy)
    assert not contradicted(model, np.concatenate([population.rows, population.draw(50)])).any()
