"""Clients that are away, and rows that join: totals of the same question are subtracted."""

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, Privacy
from privfed.attacks import Differencing, Prior, Truth, evaluate, joined, pooled
from privfed.attacks.evidence.pooling import with_answers
from tests.attacks.figures import real

DOMAIN = Box(-6, 6)


def seen(data, seed=0, **words):
    """Return what the server saw of a masked fit with nested cells over a declared domain."""
    words = {"init": "nested", "protocol": "masked", "max_iter": 2, "tol": 0, "domain": DOMAIN, **words}
    model = DWFKMeans(10, random_state=seed, **words)
    return model.fit(list(data.values()), client_names=list(data)).transcript_.view("server")


def named(clients):
    return {f"c{i}": np.clip(rows, -6, 6) for i, rows in enumerate(clients)}


@pytest.mark.parametrize("name", ["wine", pytest.param("diabetes", marks=pytest.mark.slow)])
def test_one_absence_of_each_client_shows_its_rows_linked_and_right(name):
    clients = named(real(name, 0))
    views = [seen({other: rows for other, rows in clients.items() if other != one}) for one in clients]
    alone = Differencing(client=0).run(pooled(views[1:2]), Prior(), np.random.default_rng(0))
    assert evaluate(alone, Truth(list(clients.values()))).status == "not applicable"
    together, truth = pooled([seen(clients), *views]), Truth(list(clients.values()), tolerance=1e-4)
    assert together.clients == tuple(clients)
    found = [
        evaluate(Differencing(client=i).run(together, Prior(), np.random.default_rng(0)), truth)
        for i in range(len(clients))
    ]
    rows = np.array([len(one) for one in clients.values()])
    assert all(one.precision == 1.0 and one.linked for one in found)
    assert np.average([one.recovered for one in found], weights=rows) > 0.3


def test_answers_that_follow_are_those_that_the_clients_gave():
    clients = named(real("iris", 1))
    away = {name: rows for name, rows in clients.items() if name != "c2"}
    masked, plain = (
        pooled([seen(clients, protocol=protocol), seen(away, protocol=protocol)])
        for protocol in ("masked", "plain")
    )
    derived = [one for one in masked.sums if one.answers]
    assert derived and all(set(one.answers) == {2} for one in derived)
    for one in derived:
        given = plain.sums[one.index].answers[2]
        for name, values in one.answers[2].items():
            np.testing.assert_allclose(values, given[name], atol=1e-5)


def test_cohorts_without_a_solution_give_no_answer():
    clients = named(real("iris", 0))
    twice = [
        seen({name: clients[name] for name in pair}) for pair in (("c0", "c1", "c2"), ("c2", "c3", "c4"))
    ]
    assert not any(one.answers for one in pooled(twice).sums)


def test_noise_is_not_subtracted():
    privacy = Privacy(
        epsilon=4.0, delta=1e-5, unit="record", domain=DOMAIN, neighbours="add-remove", noise_seed=0
    )
    clients = list(named(real("iris", 0)).values())
    views = []
    for data in (clients, clients[:-1]):
        model = DPKMeans(3, privacy=privacy, protocol="masked", random_state=0)
        views.append(model.fit(data).transcript_.view("server"))
    assert not any(one.answers for one in with_answers(pooled(views)).sums)
    assert not joined(*reversed(views)).sums


def test_rows_that_joined_between_two_fits_are_read_off_their_difference():
    everyone = real("wine", 0)
    new = np.concatenate([rows[:2] for rows in everyone]).clip(-6, 6)
    before, after = seen(named([rows[2:] for rows in everyone])), seen(named(everyone))
    result = Differencing().run(joined(before, after), Prior(), np.random.default_rng(0))
    report = evaluate(result, Truth([new], tolerance=1e-4))
    assert report.precision == 1.0
    assert report.recovered >= 0.6


@pytest.mark.parametrize("init", ["coreset", "kfed"])
@pytest.mark.parametrize("protocol", ["masked", "masked-verified"])
def test_a_row_that_joins_alone_is_the_difference_of_number_and_sum(init, protocol):
    """Whatever the start, each fit asks for both: cells that move with the rows hide nothing."""
    everyone = real("wine", 0)
    words = {"init": init, "domain": None, "local_iter": 2, "protocol": protocol}
    before = seen(named([everyone[0][1:], *everyone[1:]]), **words)
    after, truth = seen(named(everyone), **words), Truth([everyone[0][:1].clip(-6, 6)], tolerance=1e-4)
    report = evaluate(Differencing().run(joined(before, after), Prior(), np.random.default_rng(0)), truth)
    assert (report.recovered, report.precision, report.claims) == (1.0, 1.0, 1)
    two = seen(named([everyone[0][2:], *everyone[1:]]), **words)
    of_two = Differencing().run(joined(two, after), Prior(), np.random.default_rng(0))
    assert "number and sum of one row: here is neither" in evaluate(of_two, truth).why
