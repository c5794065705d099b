"""Witnesses: other rows that give all that is shown are found where there are any, and are right."""

from itertools import product

import numpy as np
import pytest
from scipy.sparse import csr_array

from privfed import Box, DPKMeans, DWFKMeans, Privacy, attacks
from privfed.attacks import EnumeratedDomain, Membership, Prior, Status, Truth, evaluate
from privfed.attacks.evidence.exchanges import exchanged
from privfed.core.record.records import View

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
NOTHING = View("server", (), ("one",), (), {})


def all_sets(left, taken):
    """Return by enumeration in which columns the sets with the same totals differ."""
    sets = np.array(list(product((0.0, 1.0), repeat=left.shape[1])))
    same = sets[(np.abs(sets @ left.T - left @ taken) < 1e-9).all(axis=1)]
    return (same != taken).any(axis=0)


@pytest.mark.parametrize("seed", range(8))
def test_all_that_enumeration_finds_is_found_and_no_more(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 5, (14, 2 + seed % 2)).astype(float)
    cell = rng.integers(0, 2, 14)
    left = np.vstack([(cell == c) * one for c in (0, 1) for one in (np.ones(14), *rows.T)])
    taken = (np.arange(14) < 7) * 1.0
    listed = np.column_stack([rows, cell])
    found = exchanged(NOTHING, [listed[:7]], listed, taken, csr_array(left), 1.0)
    wanted = all_sets(left, taken)
    assert not found[~wanted].any()
    assert found.sum() >= 0.8 * wanted.sum()


def told(rows, n_members, policy=None, **words):
    """Return view, candidates and truth of a fit to the first rows."""
    clients = np.array_split(rows[:n_members], 4)
    model = DWFKMeans(3, random_state=0, local_iter=1, **words).fit(clients)
    return model.transcript_.view("server"), Truth(clients, members=np.arange(len(rows)) < n_members)


def reported(rows, n_members, **words):
    view, truth = told(rows, n_members, **words)
    found = Membership(rows, listed=1.0).run(view, Prior(sample=rows[::2]), np.random.default_rng(0))
    return found, evaluate(found, truth), view, truth


@pytest.mark.parametrize("protocol", ["plain", "masked"])
@pytest.mark.few(1)
def test_answers_on_a_scale_leave_many_open_and_each_status_says_so(protocol):
    rows = np.random.default_rng(0).integers(1, 6, (160, 3)).astype(float)
    found, report, _, truth = reported(rows, 80, protocol=protocol, max_iter=2, tol=0)
    open_ = found.others(truth)
    assert 0.2 < report.witness < 1.0 and report.witness == open_.mean()
    assert [one is Status.NOT_CERTAIN for one in report.statuses] == list(open_ & ~found.named)
    assert report.to_dict()["details"]["targets, not certain"] == sum(
        one is Status.NOT_CERTAIN for one in report.statuses
    )
    # Nobody who sees the totals, or the answers, can tell a row that stands inside and outside of the list.
    inside, outside = ({row.tobytes() for row in part} for part in (rows[:80], rows[80:]))
    twins = np.array([row.tobytes() in inside & outside for row in rows])
    if protocol == "masked":
        assert (open_ >= twins).mean() > 0.95
    assert not open_[found.named].any()


def test_measured_rows_have_no_other_set_and_may_be_determined():
    rows = np.random.default_rng(0).normal(size=(80, 4))
    _, report, *_ = reported(rows, 40, protocol="masked", max_iter=1, init="random")
    assert report.witness == 0.0 and Status.NOT_CERTAIN not in report.statuses
    assert Status.OPEN in report.statuses


def test_an_exchange_that_only_an_unread_sum_tells_apart_is_none():
    # Both rows lie in the same cell of each sum over rows, and beyond others of their client in one column.
    rows = np.random.default_rng(3).integers(1, 4, (60, 2)).astype(float)
    rows[0], rows[30] = (9.0, 1.0), (9.0, 1.0)
    rows[1], rows[31] = (1.0, 9.0), (8.0, 2.0)
    _, report, *_ = reported(rows, 30, protocol="masked", max_iter=1, init="random", tol=0)
    assert report.statuses[0] is Status.NOT_CERTAIN is report.statuses[30]
    assert report.statuses[1] is not Status.NOT_CERTAIN


def test_the_observer_of_a_model_has_a_witness_for_equal_rows_alone():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    rows[40] = rows[0]
    model = DWFKMeans(3, protocol="masked", random_state=0).fit(np.array_split(rows[:30], 3))
    view = model.transcript_.view("observer")
    found = Membership(rows, units=30).run(view, Prior(sample=rows[::3]), np.random.default_rng(0))
    report = evaluate(found, Truth(np.array_split(rows[:30], 3), members=np.arange(60) < 30))
    assert np.flatnonzero([one is Status.NOT_CERTAIN for one in report.statuses]).tolist() == [0, 40]


def test_pairs_with_the_same_sum_are_no_witness_for_whoever_sees_the_model_alone():
    rows = np.random.default_rng(0).integers(1, 6, (60, 2)).astype(float)
    model = DWFKMeans(3, protocol="masked", random_state=0).fit(np.array_split(rows[:30], 3))
    found = Membership(rows, units=30).run(
        model.transcript_.view("observer"), Prior(sample=rows[::3]), np.random.default_rng(0)
    )
    inside, outside = ({row.tobytes() for row in part} for part in (rows[:30], rows[30:]))
    open_ = found.others(Truth(np.array_split(rows[:30], 3), members=np.arange(60) < 30))
    twins = [row.tobytes() in (outside if i < 30 else inside) for i, row in enumerate(rows)]
    assert any(twins) and not (open_ & ~np.array(twins)).any()


@pytest.mark.filterwarnings("ignore:epsilon=1000.0 promises very little")
@pytest.mark.parametrize(("epsilon", "hidden"), [(1.0, True), (1000.0, False)])
def test_noise_is_a_witness_only_where_it_hides_a_row(epsilon, hidden):
    rows = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 2))
    claim = Privacy(
        epsilon=epsilon, delta=1e-5, unit="record", domain=Box(-1, 1), neighbours="add-remove", noise_seed=0
    )
    model = DPKMeans(3, protocol="masked", privacy=claim, random_state=0).fit(np.array_split(rows[:30], 3))
    found = Membership(rows, listed=1.0).run(
        model.transcript_.view("server"), Prior(sample=rows[::3]), np.random.default_rng(0)
    )
    open_ = found.others(Truth(np.array_split(rows[:30], 3), members=np.arange(60) < 30))
    assert open_.all() if hidden else not open_.any()


def test_possible_rows_that_are_not_claimed_have_a_witness_and_claimed_ones_none():
    values = np.array(list(product(range(1, 5), repeat=2)), dtype=float)
    rows = values[np.random.default_rng(0).integers(0, 16, 60)]
    view, truth = told(rows, 60, protocol="masked", max_iter=1, init="random", domain=Box(1.0, 4.0))
    found = EnumeratedDomain(values).run(view, Prior(), np.random.default_rng(0))
    report = evaluate(found, truth)
    assert 0.0 < report.witness < 1.0 and report.recovered + report.witness <= 1.0
    assert attacks.evaluate(found, truth).precision in (1.0, pytest.approx(np.nan, nan_ok=True))
