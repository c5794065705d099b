"""Membership: measured against theory, against the curve of differential privacy, and against chance."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn import datasets
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.preprocessing import scale

from privfed import DWFKMeans, attacks
from privfed.attacks import Prior, Truth, evaluate
from privfed.attacks.base.preparation import Target
from privfed.attacks.evidence.system import System
from privfed.attacks.membership.scores import MembershipScores, area, chance
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import SumView, View
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError
from privfed.questions.lloyd import LloydSums
from tests.attacks.populations import mixture

# Few rounds leave clusters without rows, and the attack reads the totals all the same.
pytestmark = pytest.mark.filterwarnings("ignore:no row lies at")

RANGES = Ranges([-40.0, -40.0], [40.0, 40.0], 10_000)


def view_of(rows, partitions, noise=None):
    """Return what a server sees of exact totals over `rows` for given centroids."""
    sums = []
    for index, centers in enumerate(partitions):
        question = LloydSums(ranges=RANGES, centers=centers)
        total = question.answer(ClientData(rows), np.random.default_rng(0))
        if noise is not None:
            total = Statistics(**{name: array + noise(array.shape) for name, array in total.items()})
        sums.append(SumView(index, "round", question, (0, 1), (0, 1), total, {}, {}))
    return View("server", (), ("a", "b"), tuple(sums), {})


def trials(n_trials, n_rows, n_partitions, seed):
    """Score all members and as many others of many draws of the data, over the same partitions."""
    population = mixture(seed)
    partitions = [population.draw(5) for _ in range(n_partitions)]
    prior = Prior(sample=population.draw(2500))
    areas, expected = [], []
    for _ in range(n_trials):
        rows = population.draw(n_rows)
        attack = attacks.Membership(np.concatenate([rows, population.draw(n_rows)]), listed=1.0)
        result = attack.run(view_of(rows, partitions), prior, np.random.default_rng(0))
        areas.append(area(result.scores[:n_rows], result.scores[n_rows:]))
        expected.append(np.nanmean(norm.cdf(result.mu / np.sqrt(2.0))))
    return np.mean(areas), np.mean(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_trials", "n_rows", "n_partitions"), [(100, 50, 1), (25, 500, 1), (25, 500, 5), (25, 500, 20)]
)
def test_area_is_at_least_what_each_candidate_by_itself_would_show(n_trials, n_rows, n_partitions):
    """Theory is of one candidate among unknown rows; together, those of a complete list tell more."""
    found, expected = trials(n_trials, n_rows, n_partitions, seed=n_partitions)
    assert expected - 0.01 <= found <= 1.0


@pytest.mark.parametrize(("n_runs", "within"), [(2, 0.05), pytest.param(6, 0.03, marks=pytest.mark.slow)])
def test_one_run_of_the_real_thing_comes_near_theory(n_runs, within):
    found, expected = [], []
    for seed in range(n_runs):
        population = mixture(seed, n_clients=4, n_rows=75)
        rows = population.rows
        model = DWFKMeans(
            5, local_iter=1, init="kfed", protocol="masked", max_iter=5, tol=0, random_state=seed
        )
        view = model.fit(population.clients).transcript_.view("server")
        attack = attacks.Membership(np.concatenate([rows, population.draw(len(rows))]))
        result = attack.run(view, Prior(sample=population.draw(1500)), np.random.default_rng(0))
        report = evaluate(result, Truth(population.clients, members=np.arange(2 * len(rows)) < len(rows)))
        found.append(report.recovered)
        expected.append(norm.cdf(result.mu[np.isfinite(result.mu)] / np.sqrt(2.0)).mean())
    # Six runs leave an uncertainty of about .01, two of .02.
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=within)
    assert np.mean(found) > 0.52


def halves(name, seed):
    """Return clients, public rows and the attack on a real data set, three tenths of which are public."""
    rows = getattr(datasets, f"load_{name}")().data
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    order = np.random.default_rng(seed).permutation(len(rows))
    n_public = 3 * len(rows) // 10
    clients = np.array_split(rows[order[n_public:]], 5)
    target = Target(clients=clients, public=rows[order[:n_public]], most_candidates=400, seed=seed)
    return clients, attacks.Membership.prepare(target, {})


@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_where_rows_are_excluded_no_theory_is_printed_and_the_number_of_rows_is_read_off(name):
    """Exclusion orders candidates by more than their ratios, so that theory of these would be none of it."""
    clients, made = halves(name, 0)
    view = DWFKMeans(5, protocol="masked", max_iter=5, tol=0, random_state=0).fit(clients).transcript_
    view = view.view("server")
    result = made.attack.run(view, made.prior, np.random.default_rng(0))
    report = evaluate(result, made.truth)
    rows = [ClientData(row[None]) for row in made.attack.candidates]
    assert System.of(view, rows).units == sum(map(len, clients))
    assert result.contradicted.any() and report.details["members excluded"] == 0.0
    assert "auc, theory" not in report.details and "theory" not in report.scenes
    assert "tpr at fpr 0.01, theory" not in report.details


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_where_a_theory_is_printed_scores_are_as_it_says(seed):
    """Under the theory z is N(0, 1) without a row; a filter of rare cells once made it 5 times as wide."""
    population = mixture(seed, n_clients=10, n_rows=50)
    model = DWFKMeans(5, local_iter=1, init="kfed", protocol="masked", max_iter=5, tol=0, random_state=seed)
    view = model.fit(population.clients).transcript_.view("server")
    others = population.draw(2000)
    result = attacks.Membership(others).run(
        view, Prior(sample=population.draw(3000)), np.random.default_rng(0)
    )
    assert np.isfinite(result.mu).all() and result.mu.max() < 3.0
    shown = result.scores / result.mu + result.mu / 2
    assert 0.6 < shown.std() < 1.6 and abs(shown.mean()) < 0.5


@pytest.mark.slow
def test_over_many_splits_the_area_is_not_below_theory():
    """Of 24 mixtures, pooled: the printed theory is within three standard errors."""
    gaps = []
    for seed in range(24):
        population = mixture(seed, n_clients=4, n_rows=75)
        rows = population.rows
        model = DWFKMeans(5, init="kfed", protocol="masked", max_iter=5, tol=0, random_state=seed)
        view = model.fit(population.clients).transcript_.view("server")
        attack = attacks.Membership(np.concatenate([rows, population.draw(len(rows))]))
        result = attack.run(view, Prior(sample=population.draw(1500)), np.random.default_rng(0))
        if np.isfinite(result.mu).all():
            expected = norm.cdf(result.mu / np.sqrt(2.0)).mean()
            scores = result.scores
            gaps.append(area(scores[: len(rows)], scores[len(rows) :]) - expected)
    assert len(gaps) > 12
    assert abs(np.mean(gaps)) < 3.0 * np.std(gaps) / np.sqrt(len(gaps))


@pytest.mark.slow
def test_more_partitions_tell_more():
    areas = [trials(2, 200, number, seed=3)[0] for number in (1, 20)]
    assert areas[1] > areas[0] + 0.03


def test_number_of_rows_is_read_off_the_totals():
    population = mixture(0)
    reference, partitions = population.draw(2000), [population.draw(5)]
    attack = attacks.Membership(population.draw(3))
    told = attacks.Membership(attack.candidates, units=137)
    view, prior = view_of(population.draw(137), partitions), Prior(sample=reference)
    results = [one.run(view, prior, np.random.default_rng(0)) for one in (attack, told)]
    np.testing.assert_allclose(results[0].scores, results[1].scores)


COMPLETE = {"wine": load_wine, "diabetes": load_diabetes, "breast_cancer": load_breast_cancer}


@pytest.mark.parametrize("name", [*COMPLETE])
@pytest.mark.few(2)
def test_one_default_fit_tells_every_member_of_a_complete_list(name):
    """One by one, .66 to .86 of these were told; together there are more equations than candidates."""
    view, members, others, public = fitted(name, 0)
    candidates, told = np.concatenate([members, others]), np.arange(len(members) + len(others)) < len(members)
    for listed in (1.0, None):
        attack = attacks.Membership(candidates, listed=listed)
        result = attack.run(view, Prior(sample=public), np.random.default_rng(0))
        assert area(result.scores[told], result.scores[~told]) > 0.99


def fitted(name, seed, **words):
    """Return the view of a fit to half of a data set, these rows, a quarter of others, and public rows."""
    rows = scale(COMPLETE[name]().data)
    members, others, public = np.split(
        np.random.default_rng(seed).permutation(rows), [len(rows) // 2, len(rows) // 2 + len(rows) // 4]
    )
    model = DWFKMeans(10, protocol="masked", random_state=seed, **words).fit(np.array_split(members, 5))
    return model.transcript_.view("server"), members, others, public


@pytest.mark.parametrize("share", [0.75, 0.5])
@pytest.mark.few(1)
def test_a_list_that_misses_members_tells_more_than_its_excluded_rows(share):
    view, members, others, public = fitted("diabetes", 1)
    n = int(share * len(members))
    for listed in (share, None):
        attack = attacks.Membership(np.concatenate([members[:n], others]), listed=listed)
        result = attack.run(view, Prior(sample=public), np.random.default_rng(0))
        excluded = result.contradicted > 0
        assert not excluded[:n].any()
        assert area(result.scores[:n], result.scores[n:]) > 0.5 + excluded[n:].mean() / 2 + 0.05


@pytest.mark.parametrize("listed", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_of_the_members_lies_between_0_and_1(listed):
    with pytest.raises(ArgumentError) as error:
        attacks.Membership(np.zeros((2, 2)), listed=listed)
    assert error.value.parameters == ("listed",)


@pytest.mark.filterwarnings("ignore:no row lies:sklearn.exceptions.ConvergenceWarning")
def test_the_observer_of_final_centroids_tells_members_too():
    inside, outside = [], []
    for seed in range(10):
        population = mixture(seed, n_clients=2, n_rows=25)
        model = DWFKMeans(5, local_iter=1, init="kfed", protocol="plain", random_state=seed)
        view = model.fit(population.clients).transcript_.view("observer")
        assert view.sums == ()
        candidates = np.concatenate([population.rows, population.draw(50)])
        attack = attacks.Membership(candidates)
        result = attack.run(view, Prior(sample=population.draw(1000)), np.random.default_rng(0))
        assert np.isnan(result.mu).all()
        inside.append(result.scores[:50])
        outside.append(result.scores[50:])
    assert np.mean([area(a, b) for a, b in zip(inside, outside, strict=True)]) > 0.55


@pytest.mark.parametrize("n_runs", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_clients_are_told_by_their_whole_answers(n_runs):
    areas = []
    for seed in range(n_runs):
        everyone = mixture(seed, n_clients=80, n_rows=30).clients
        inside, outside, reference = everyone[:10], everyone[10:20], everyone[20:]
        model = DWFKMeans(5, init="kfed", protocol="masked", max_iter=3, tol=0, random_state=seed).fit(inside)
        attack = attacks.Membership(inside + outside, reference=reference)
        view = model.transcript_.view("server")
        result = attack.run(view, Prior(), np.random.default_rng(0))
        areas.append(area(result.scores[:10], result.scores[10:]))
    assert np.mean(areas) > 0.6


@pytest.mark.parametrize("mu", [pytest.param(mu, marks=pytest.mark.slow) for mu in (0.27, 1.0, 2.0)])
def test_scores_under_noise_keep_below_the_curve_that_privacy_allows(mu):
    # The worst case: the attacker knows all other rows, so that only the noise hides the candidate.
    rng = np.random.default_rng(5)
    answer = np.array([0.0, 1.0, 0.0, 0.0, 5.0, 3.0])
    scale, n = np.linalg.norm(answer) / mu, 2000
    totals = np.repeat([answer, np.zeros(6)], n, axis=0) + rng.normal(scale=scale, size=(2 * n, 6))
    left = csr_array(np.column_stack([answer, rng.normal(size=(6, 100))]))
    found = [
        System(left, one, np.full(6, scale**2), np.ones(6), 1.0, 1).posterior(np.arange(1), 1.0, 0.5, 1)
        for one in totals
    ]
    np.testing.assert_allclose([one.mu[0] for one in found], mu, rtol=1e-3)
    scores = np.array([one.ratio[0] for one in found])
    result = MembershipScores(attack="Membership", scores=scores, mu=np.full(2 * n, mu), gdp_mu=mu)
    report = evaluate(result, Truth([answer[None]], members=np.arange(2 * n) < n))
    # One record and one that took no part are compared: the bound is that of pairs of which one took part.
    assert report.recovered == pytest.approx(norm.cdf(mu / np.sqrt(2.0)), abs=0.025)
    assert report.recovered < report.bound


def test_without_totals_there_is_nothing_to_score():
    population = mixture(1)
    view = view_of(population.rows, [population.draw(5)])
    blind = View("server", (), view.clients, (), {})
    attack = attacks.Membership(population.rows[:20])
    result = attack.run(blind, Prior(sample=population.draw(100)), np.random.default_rng(0))
    report = evaluate(result, Truth(population.clients, members=np.arange(20) < 10))
    assert report.status == "not applicable"
    assert np.isnan(report.recovered)


def test_a_population_is_needed():
    population = mixture(1)
    view = view_of(population.rows, [population.draw(5)])
    with pytest.raises(ArgumentError, match=r"Prior\(sample="):
        attacks.Membership(np.zeros((2, 2))).run(view, Prior(), np.random.default_rng(0))
    with pytest.raises(ArgumentError, match="reference="):
        attacks.Membership([np.zeros((2, 2))]).run(view, Prior(), np.random.default_rng(0))


def test_truth_must_name_members_and_others():
    result = MembershipScores(attack="Membership", scores=np.zeros(3), mu=np.zeros(3))
    with pytest.raises(ArgumentError, match="need Truth"):
        evaluate(result, Truth([np.zeros((1, 1))]))
    with pytest.raises(ArgumentError, match="members and others"):
        evaluate(result, Truth([np.zeros((1, 1))], members=np.ones(3, dtype=bool)))


@pytest.mark.parametrize(("n_members", "n_others"), [(20, 20), (8, 60)])
def test_chance_is_what_areas_of_alike_candidates_exceed_once_in_twenty(
    n_members: int, n_others: int
) -> None:
    rng = np.random.default_rng(0)
    areas = [area(*np.split(rng.normal(size=n_members + n_others), [n_members])) for _ in range(4_000)]
    margin = chance(np.arange(n_members + n_others) < n_members)
    assert np.mean(np.array(areas) - 0.5 > margin) == pytest.approx(0.05, abs=0.012)
