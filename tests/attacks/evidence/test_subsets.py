"""Few listed rows that add up to a total are named; where others might, nobody is."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from privfed import FKM, KFED, Box, ClientPolicy, DPKMeans, DWFKMeans, Privacy, attacks
from privfed.attacks.evidence.subsets import named

pytestmark = pytest.mark.filterwarnings("ignore:arrays are grouped anew")


def listed(rows, seed):
    """Return members, and the list of members and of half as many others."""
    order = np.random.default_rng(seed).permutation(rows)
    half = len(order) // 2
    return order[:half], order[: half + half // 2]


def view_of(members, kind=DWFKMeans, fits=1, **words):
    clients = np.array_split(members, 5)
    return attacks.pooled(
        [
            kind(10, protocol="masked", random_state=seed, **words).fit(clients).transcript_.view("server")
            for seed in range(fits)
        ]
    )


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("words", "least"),
    [
        ({"policy": ClientPolicy(group_size=5), "fits": 3}, 30),
        ({"kind": KFED}, 20),
        ({"kind": FKM}, 20),
        ({}, 40),
    ],
)
def test_rows_of_small_totals_are_named_whatever_put_them_together(words, least):
    members, candidates = listed(scale(load_wine().data), 0)
    found = np.flatnonzero(named(view_of(members, **words), candidates)[0])
    assert len(found) >= least and found.max() < len(members)


@pytest.mark.parametrize("words", [{"kind": KFED}, {}])
@pytest.mark.few(1)
def test_half_of_the_members_unlisted_is_no_reason_for_a_false_claim(words):
    members, candidates = listed(scale(load_wine().data), 1)
    left = candidates[len(members) // 2 :]
    found = np.flatnonzero(named(view_of(members, **words), left)[0])
    assert len(found) and found.max() < len(members) - len(members) // 2


@pytest.mark.parametrize("decimals", [1, 2])
@pytest.mark.parametrize("n_columns", [1, 2])
def test_where_many_subsets_fit_nobody_is_named_by_chance(n_columns, decimals):
    """In two columns the first subset that fits is the true one in two cases of three."""
    rows = np.round(np.random.default_rng(0).normal(size=(160, n_columns)), decimals)
    members, candidates = listed(rows, 0)
    found = np.flatnonzero(named(view_of(members), candidates)[0])
    alike = (candidates[found][:, None] == members[None]).all(axis=2).any(axis=1)
    assert alike.all()


def test_categories_and_rows_that_occur_twice_are_not_named():
    rng = np.random.default_rng(0)
    kinds = np.hstack([np.eye(4)[rng.integers(4, size=160)], np.eye(3)[rng.integers(3, size=160)]])
    members, candidates = listed(kinds, 0)
    assert not named(view_of(members), candidates)[0].any()
    members, candidates = listed(scale(load_wine().data), 0)
    twice = np.concatenate([candidates, candidates])
    assert not named(view_of(members), twice)[0].any()


def test_sums_with_noise_name_nobody():
    members, candidates = listed(scale(load_wine().data), 0)
    privacy = Privacy(epsilon=8, delta=1e-5, unit="record", domain=Box(-5, 5), neighbours="add-remove")
    assert not named(view_of(members, DPKMeans, privacy=privacy), candidates)[0].any()
