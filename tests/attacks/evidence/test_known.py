"""Known rows are taken out of totals; what is left is of the others."""

import numpy as np
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.attacks import Differencing, Membership, Prior, Truth, evaluate, without_known
from privfed.attacks.membership.scores import area
from privfed.core.asking.question import ClientData
from privfed.errors import ArgumentError
from privfed.numerics.microaggregation import microaggregated
from tests.attacks.figures import real
from tests.raised import parameter_refused


def seen(clients, **words):
    model = DWFKMeans(10, **{"protocol": "masked", "local_iter": 1, "random_state": 0, **words})
    return model.fit(clients).transcript_.view("server")


def test_totals_are_those_of_the_rows_that_are_not_known():
    rows = np.concatenate(real("wine", 0))
    view = seen(np.array_split(rows, 5))
    left = without_known(view, rows[:100])
    assert any(one.total is not None for one in left.sums)
    for one in left.sums:
        if one.total is not None:
            data = ClientData(rows[100:]).within(one.question.ranges)[0]
            others = one.question.answer(data, np.random.default_rng(0))
            for name, values in one.total.items():
                np.testing.assert_allclose(values, others[name], atol=1e-4)


def test_who_knows_most_rows_finds_most_of_the_others():
    rows = np.concatenate(real("wine", 0))
    view, known, others = seen(np.array_split(rows, 5)), rows[:160], [rows[160:]]
    alone, helped = (
        evaluate(Differencing().run(one, Prior(), np.random.default_rng(0)), Truth(others, tolerance=1e-4))
        for one in (view, without_known(view, known))
    )
    assert helped.precision >= 0.98
    assert helped.recovered >= 0.5 > alone.recovered


def test_local_steps_are_left_out_and_single_answers_too():
    rows = np.concatenate(real("iris", 0))
    left = without_known(seen(np.array_split(rows, 5), protocol="plain", local_iter=3), rows[:50])
    assert not any(one.answers for one in left.sums)
    rounds = [one for one in left.sums if type(one.question).__name__ == "WeightedCentroids"]
    assert rounds and all(one.total is None for one in rounds)


def test_rows_that_did_not_take_part_and_other_columns_are_errors():
    rows = np.concatenate(real("iris", 0))
    view = seen(np.array_split(rows, 5))
    with pytest.raises(ArgumentError, match="did not take part"):
        without_known(view, np.repeat(rows[:1], 160, axis=0))
    with pytest.raises(ArgumentError, match="3 columns"):
        without_known(view, rows[:, :3])


def in_groups(clients):
    """Return the view of clients in groups of five, and the rows of each group."""
    groups = []
    for rows in clients:
        order, ends = microaggregated(rows, 5)
        groups += [rows[own] for own in np.split(order, ends[:-1])]
    return seen(clients, policy=ClientPolicy(group_size=5)), groups


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
def test_who_knows_all_rows_of_a_group_but_one_learns_that_one():
    rows = np.random.default_rng(1).permutation(np.concatenate(real("breast_cancer", 0)))
    view, groups = in_groups(np.array_split(rows[:285], 5))
    known, last = [own[1:] for own in groups], np.array([own[0] for own in groups])
    found = Differencing().run(view, Prior(known=known, sample=rows[285:]), np.random.default_rng(0))
    report = evaluate(found, Truth([last]))
    assert report.claims >= 5 and report.precision == 1.0
    nothing = Differencing().run(view, Prior(), np.random.default_rng(0))
    assert not len(nothing.points)


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
def test_who_knows_all_rows_but_one_learns_that_one_whatever_the_groups():
    rows = np.concatenate(real("wine", 0))
    view, _ = in_groups(np.array_split(rows, 5))
    report = evaluate(
        Differencing().run(view, Prior(known=[rows[1:]]), np.random.default_rng(0)), Truth([rows[:1]])
    )
    assert report.recovered == report.precision == 1.0


@pytest.mark.filterwarnings("ignore:arrays are grouped anew")
def test_known_rows_of_unknown_groups_tell_nothing_false_and_name_those_beside_them():
    rows = np.concatenate(real("wine", 0))
    view, groups = in_groups(np.array_split(rows[:100], 5))
    known = [own[0] for own in groups]
    found = Differencing().run(view, Prior(known=[np.array(known)]), np.random.default_rng(0))
    assert not len(found.points)
    rest = np.array([row for own in groups for row in own[1:]])
    attack = Membership(np.concatenate([rest, rows[100:140]]), listed=1.0)
    prior = Prior(sample=rows[140:], known=[np.array(known)])
    scores = attack.run(view, prior, np.random.default_rng(0))
    alone = attack.run(view, Prior(sample=rows[140:]), np.random.default_rng(0))
    members = np.arange(len(rest) + 40) < len(rest)
    assert scores.named[members].sum() >= 4 and not scores.named[~members].any()
    assert not alone.named.any()
    told, before = (area(one.scores[members], one.scores[~members]) for one in (scores, alone))
    assert told > before


def test_known_tables_of_another_form_are_errors():
    rows = np.concatenate(real("iris", 0))
    for odd in (rows, [rows[0]], [rows[:0]], *([rows[:9] * far] for far in (np.nan, np.inf, -1e200))):
        with parameter_refused("known"):
            Prior(known=odd)
    view = seen(np.array_split(rows, 5))
    with pytest.raises(ArgumentError):
        Differencing().run(view, Prior(known=[rows[:9, :3]]), np.random.default_rng(0))
