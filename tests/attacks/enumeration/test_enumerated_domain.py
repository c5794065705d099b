"""Possible rows that are listed: what is claimed occurs, and is most of what there is."""

from itertools import product

import numpy as np
import pytest

from privfed import DWFKMeans
from privfed.attacks import EnumeratedDomain, Prior, Truth, evaluate
from privfed.attacks.base.preparation import Target
from privfed.attacks.enumeration.enumerated_domain import least, possible_rows
from privfed.attacks.evidence.system import System
from privfed.core.asking.question import ClientData
from privfed.errors import ArgumentError


def one_hot(levels):
    """Return all rows of categories with these numbers of levels."""
    eyes = [np.eye(level) for level in levels]
    return np.array([np.concatenate(one) for one in product(*eyes)])


def drawn(levels, n, seed):
    """Draw rows of two kinds, so that columns depend on each other."""
    rng, kind = np.random.default_rng(seed), np.random.default_rng(seed).random(n) < 0.5
    columns = [
        np.where(kind, *(rng.choice(level, n, p=rng.dirichlet(np.full(level, 2.0))) for _ in range(2)))
        for level in levels
    ]
    return one_hot(levels)[np.ravel_multi_index(columns, levels)]


def attacked(levels, n, seed, client=None, protocol="masked", **words):
    rows = drawn(levels, n, seed)
    clients = np.array_split(rows, 4)
    model = DWFKMeans(6, protocol=protocol, max_iter=3, tol=0, random_state=seed, **words).fit(clients)
    view = model.transcript_.view("server")
    found = EnumeratedDomain(one_hot(levels), client=client).run(
        view, Prior(sample=drawn(levels, n, seed + 100)), np.random.default_rng(0)
    )
    return evaluate(found, Truth(clients)), found


@pytest.mark.parametrize("words", [{"local_iter": 1}, {"local_iter": 5}, {"client": 0, "protocol": "plain"}])
def test_most_rows_of_categories_are_claimed_and_all_claims_are_right(words):
    report, _ = attacked((4, 3, 2), 120, 0, **words)
    assert report.precision == 1.0
    assert report.recovered > 0.8
    assert report.recovered > report.baseline > 0.0


@pytest.mark.slow
def test_seven_hundred_kinds_of_rows():
    report, _ = attacked((6, 4, 5, 3, 2), 1000, 0)
    assert report.precision == 1.0
    assert report.recovered > report.baseline


def test_what_occurs_in_every_solution_is_claimed_and_no_more():
    # Two tables have these sums: {a, d} and {b, c}; of e there are three in both.
    left = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [1, 0, 1, 0, 0], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1]])
    assert least(left.astype(float), np.array([1.0, 1.0, 1.0, 1.0, 3.0])).tolist() == [0, 0, 0, 0, 3]


def test_whole_numbers_say_more_than_real_ones():
    # a + b = 1, b + c = 1, a + c = 1 + 1: only (1, 0, 1) is whole and not negative.
    left = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    assert least(np.vstack([left, [1.0, 0.0, 1.0]]), np.array([1.0, 1.0, 2.0])).tolist() == [1, 0, 1]


def test_rows_outside_the_list_give_no_claims():
    rows = drawn((4, 3, 2), 120, 0)
    clients = np.array_split(rows, 4)
    view = (
        DWFKMeans(6, protocol="plain", random_state=0, local_iter=1).fit(clients).transcript_.view("server")
    )
    values = one_hot((4, 3, 2))
    found = EnumeratedDomain(values[(values != rows[0]).any(axis=1)]).run(
        view, Prior(), np.random.default_rng(0)
    )
    assert not len(found.points)


def test_possible_rows_follow_from_public_ones():
    rows = np.column_stack([drawn((4, 3), 200, 0), np.random.default_rng(0).integers(1, 6, 200)])
    assert len(possible_rows(rows)) == 4 * 3 * 5
    prepared = EnumeratedDomain.prepare(Target(clients=[rows], public=rows), {})
    assert len(prepared.attack.values) == 60
    with pytest.raises(ArgumentError, match="more than 5000"):
        possible_rows(np.random.default_rng(0).normal(size=(200, 3)))
    with pytest.raises(ArgumentError, match="public rows"):
        EnumeratedDomain.prepare(Target(clients=[rows]), {})


def test_equations_that_repeat_others_are_left_out():
    rows = drawn((4, 3), 300, 1)
    model = DWFKMeans(3, protocol="plain", random_state=0).fit(np.array_split(rows, 3))
    units = [ClientData(value[None]) for value in one_hot((4, 3))]
    system = System.of(model.transcript_.view("server"), units)
    left, right = system.whole()
    assert len(left) == len(right) < len(system.right) and np.linalg.matrix_rank(left) >= 6
