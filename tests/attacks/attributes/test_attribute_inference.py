"""Attribute inference: beyond what the population says, and only of rows that took part."""

import numpy as np
import pytest
from sklearn import datasets
from sklearn.preprocessing import scale

from privfed import Box, DPKMeans, DWFKMeans, Privacy
from privfed.attacks import AttributeInference, Prior, Truth, evaluate, pooled
from privfed.attacks.attributes.attribute_inference import explained, regressed
from privfed.attacks.base.preparation import Target
from privfed.errors import ArgumentError
from tests.raised import parameter_refused


def prepared(seed, n_rows=100):
    """Return clients with part of wine, and the attack on their last column."""
    rows = np.random.default_rng(seed).permutation(scale(datasets.load_wine().data))
    clients = np.array_split(rows[:n_rows], 4)
    target = Target(clients=clients, public=rows[n_rows:], most_candidates=30, seed=seed)
    return clients, AttributeInference.prepare(target, {})


def seen(clients, seed):
    model = DWFKMeans(10, protocol="masked", local_iter=1, max_iter=4, tol=0, random_state=seed)
    return model.fit(clients).transcript_.view("server")


def test_three_fits_tell_values_of_those_who_took_part_and_not_of_others():
    clients, made = prepared(0)
    views = [seen(clients, seed) for seed in range(3)]
    one, three = (
        evaluate(made.attack.run(pooled(some), made.prior, np.random.default_rng(0)), made.truth)
        for some in (views[:1], views)
    )
    assert three.precision == one.precision == 1.0
    assert three.recovered > max(one.recovered, 0.5) and one.recovered > one.baseline
    assert three.details["controls within .01 sd"] < 0.1
    assert three.details["R2"] > three.details["R2, no access"] + 0.2
    assert three.linked


def test_one_default_fit_tells_most_of_a_column_of_all_rows_together():
    """One row at a time, R2 was .64 of wine, and .42 without access."""
    rows = np.random.default_rng(0).permutation(scale(datasets.load_wine().data))
    clients, public = np.array_split(rows[:89], 5), rows[89:]
    view = DWFKMeans(10, protocol="masked", random_state=0).fit(clients).transcript_.view("server")
    result = AttributeInference(rows[:89]).run(view, Prior(sample=public), np.random.default_rng(0))
    report = evaluate(result, Truth(clients))
    assert report.details["R2"] > 0.75 and report.precision == 1.0


def test_the_unknown_column_is_not_read():
    clients, made = prepared(1)
    hidden = made.attack.records.copy()
    hidden[:, -1] = np.random.default_rng(0).normal(size=len(hidden))
    views = seen(clients, 1)
    found = [
        AttributeInference(rows, column=-1).run(views, made.prior, np.random.default_rng(0)).values
        for rows in (made.attack.records, hidden)
    ]
    np.testing.assert_array_equal(*found)


def test_with_colluders_their_answers_are_taken_out():
    clients, made = prepared(2)
    model = DWFKMeans(10, protocol="masked", local_iter=1, max_iter=4, tol=0, random_state=0).fit(clients)
    prior = Prior(sample=made.prior.sample, colluders={0: clients[0]})
    view = model.transcript_.view("server", colluding=[0])
    result = AttributeInference(clients[1]).run(view, prior, np.random.default_rng(0))
    report = evaluate(result, Truth(clients, colluding=(0,)))
    assert report.recovered > report.baseline


def test_noise_gives_the_attack_nothing_to_read():
    clients, made = prepared(3)
    privacy = Privacy(
        epsilon=8.0, delta=1e-5, unit="record", domain=Box(-6, 6), neighbours="add-remove", noise_seed=0
    )
    model = DPKMeans(3, privacy=privacy, protocol="masked", random_state=0).fit(clients)
    result = made.attack.run(model.transcript_.view("server"), made.prior, np.random.default_rng(0))
    assert evaluate(result, made.truth).status == "not applicable"


def test_the_regression_is_that_of_the_public_rows():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 3))
    rows[:, 2] = 2 * rows[:, 0] - rows[:, 1] + 0.1 * rng.normal(size=500)
    guess, deviation = regressed(rows[250:], rows[:250], 2)
    assert explained(rows[250:, 2], guess) > 0.98 and deviation == pytest.approx(0.1, rel=0.3)


def test_what_is_lacking_is_named():
    clients, made = prepared(4)
    with parameter_refused("column"):
        AttributeInference(made.attack.records, column=40)
    with pytest.raises(ArgumentError, match="public rows"):
        AttributeInference.prepare(Target(clients=clients), {})
    with pytest.raises(ArgumentError, match="Prior"):
        made.attack.run(seen(clients, 0), Prior(), np.random.default_rng(0))
    result = AttributeInference(made.attack.records + 1.0).run(
        seen(clients, 0), made.prior, np.random.default_rng(0)
    )
    with pytest.raises(ArgumentError, match="must be rows of the clients"):
        evaluate(result, made.truth)
