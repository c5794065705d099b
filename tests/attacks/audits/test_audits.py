"""Audits against mechanisms whose epsilon is known, and against mistakes planted in them."""

import json
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from privfed import Box, DPKMeans, DWFKMeans, Privacy, attacks
from privfed.attacks.audits import (
    Claim,
    audit_noises,
    audit_one_run,
    audit_pmf,
    audit_rows,
    audit_run,
    audit_samples,
    exact_epsilon,
    hockey_stick,
)
from privfed.attacks.audits.confidence import Rate
from privfed.attacks.audits.samples import one_run_epsilon, one_run_p_value
from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.records import Asked, Summed
from privfed.core.stored.encoding import Array
from privfed.deep import FedAvg
from privfed.errors import ArgumentError, DataError
from privfed.privacy.accounting import gdp_delta, gdp_epsilon, gdp_mu
from tests.attacks.populations import mixture
from tests.deep.population import clients as population
from tests.seeded import seeded

DELTA = 1e-5
MU = gdp_mu(1.0, DELTA)


def gaussian(rng, sensitivity=1.0):
    """Return a mechanism that adds noise for epsilon = 1 to its input times `sensitivity`."""
    return lambda value, trials: value * sensitivity + rng.normal(scale=1.0 / MU, size=trials)


def audited(mechanism, trials, **words):
    return attacks.audit(mechanism, 1.0, 0.0, epsilon=1.0, delta=DELTA, trials=trials, **words)


@given(st.floats(0.01, 20.0), st.sampled_from([1e-12, 1e-6, 1e-3]))
def test_curve_and_its_inverses_agree(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    assert gdp_delta(epsilon, mu) == pytest.approx(delta, rel=1e-6)
    assert gdp_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


def test_curve_is_that_of_shifted_bells():
    grid = np.linspace(-12.0, 12.0, 400_001)
    above = np.maximum(norm.pdf(grid, 1.3) - np.exp(0.7) * norm.pdf(grid), 0.0).sum() * (grid[1] - grid[0])
    assert gdp_delta(0.7, 1.3) == pytest.approx(above, rel=1e-6)


@given(st.integers(0, 400), st.sampled_from([0.001, 0.01, 0.05]))
def test_limits_cover_with_their_probability(hits, alpha):
    rate = Rate(hits, 400)
    low, high = rate.low(alpha), rate.high(alpha)
    assert low <= hits / 400 <= high
    # At its own limit an outcome as extreme has probability alpha: the definition of the interval.
    assert hits == 0 or binom.sf(hits - 1, 400, low) == pytest.approx(alpha)
    assert hits == 400 or binom.cdf(hits, 400, high) == pytest.approx(alpha)


def test_bound_comes_near_the_true_epsilon():
    found = audited(gaussian(np.random.default_rng(0)), 1_000_000)
    assert 0.95 <= found.epsilon_gdp <= 1.0
    assert 0.6 <= found.epsilon <= 1.0
    assert found.verdict == "not refuted"


def test_no_false_alarm_in_twenty():
    rng = np.random.default_rng(1)
    assert sum(audited(gaussian(rng), 20_000).verdict == "violated" for _ in range(20)) == 0


@pytest.mark.parametrize(
    ("sensitivity", "trials", "least"),
    [
        pytest.param(2**0.5, 20_000, 10, id="count left out of the sensitivity, or half of the shares lost"),
        pytest.param(0.8**-0.5, 100_000, 9, id="two of ten shares of the noise lost"),
        pytest.param(3 / 2**0.5, 20_000, 10, id="rows of three times the norm are not clipped"),
        pytest.param(10**0.5, 20_000, 10, id="ten rounds without splitting the budget"),
    ],
)
@pytest.mark.few(2)
def test_planted_mistakes_are_caught(sensitivity, trials, least):
    rng = np.random.default_rng(2)
    caught = [audited(gaussian(rng, sensitivity), trials).verdict == "violated" for _ in range(10)]
    assert sum(caught) >= least


def test_noise_on_a_mean_for_an_assumed_count_is_caught():
    # Noise that fits the mean of 50 rows is added to the mean of a single one.
    rng = np.random.default_rng(3)
    for _ in range(10):
        found = audited(gaussian(rng, 50.0), 20_000)
        assert found.epsilon > 5.0
        assert found.verdict == "violated"


def test_releases_of_many_values_are_projected_on_what_tells_them_apart():
    rng = np.random.default_rng(4)
    shift = np.array([0.6, -0.8, 0.0, 0.0, 0.0])
    scales = np.array([1.0, 1.0, 1.0, 50.0, 0.0])

    def mechanism(value, trials):
        return value * shift + rng.normal(size=(trials, 5)) * scales / MU

    assert 0.85 <= audited(mechanism, 100_000).epsilon_gdp <= 1.0


def test_a_claim_of_laplace_noise_is_tested_by_events_only():
    rng = np.random.default_rng(5)

    def laplace(value, trials):
        return value + rng.laplace(size=trials)

    found = audited(laplace, 100_000, noise="any")
    assert found.epsilon_gdp is None
    assert 0.85 <= found.epsilon <= 1.0
    assert found.verdict == "not refuted"
    # Taken for Gaussian it would be refuted: its curve is another one.
    assert audited(laplace, 100_000).verdict == "violated"


def truncated_pmf(sigma, cut):
    """Return probabilities of Gaussian noise cut to an integer: "towards zero" or "to the nearest"."""
    k = np.arange(-int(12 * sigma), int(12 * sigma) + 1)
    if cut == "nearest":
        edges = norm.cdf(np.append(k - 0.5, k[-1] + 0.5) / sigma)
    else:
        # Zero collects (-1, 1), a positive k [k, k + 1), a negative one (k - 1, k].
        return norm.cdf(np.where(k < 0, k, k + 1) / sigma) - norm.cdf(np.where(k > 0, k, k - 1) / sigma)
    return np.diff(edges)


# Noise of FastLloyd's counts on 10,000 rows in 2 dimensions at epsilon = 0.1, as its code computes it.
SIGMA, FAST = 103.5, Claim(epsilon=0.1, delta=1.09e-5)


def test_noise_cut_towards_zero_is_caught_exactly():
    exact = audit_pmf(truncated_pmf(SIGMA, "towards zero"), 1, claim=FAST)
    assert exact.violated
    assert exact.delta == pytest.approx(3.5e-3, rel=0.02)
    assert not audit_pmf(truncated_pmf(SIGMA, "nearest"), 1, claim=FAST).violated


def test_noise_cut_towards_zero_is_caught_from_releases():
    rng = np.random.default_rng(6)
    for cut, wanted in ((np.trunc, "violated"), (np.rint, "not refuted")):
        releases = [np.asarray(cut(rng.normal(scale=SIGMA, size=200_000))) for _ in range(2)]
        found = audit_samples(releases[0] + 1.0, releases[1], claim=FAST)
        assert found.verdict == wanted
        assert found.epsilon_gdp < FAST.epsilon


def test_hockey_stick_of_discrete_gaussian_is_near_the_curve():
    k = np.arange(-200, 201)
    pmf = np.exp(-(k**2) / (2 * 10.0**2))
    pmf /= pmf.sum()
    assert hockey_stick(pmf, 3, 0.5) == pytest.approx(gdp_delta(0.5, 0.3), abs=1e-4)
    assert exact_epsilon(pmf, 3, 1e-5) == pytest.approx(gdp_epsilon(0.3, 1e-5), abs=0.02)


def test_two_noises_of_one_seed_are_caught():
    # FastLloyd makes the generators of its sums and of its counts from the same seed each round.
    sums = [np.random.default_rng(round_number).normal(scale=103.5, size=10) for round_number in range(1, 8)]
    counts = [np.random.default_rng(round_number).normal(scale=20.0, size=5) for round_number in range(1, 8)]
    found = audit_noises({"sums": np.array(sums), "counts": np.trunc(counts)})
    assert [(one.first, one.second) for one in found] == [("sums", "counts")]
    assert found[0].correlation > 0.99


def test_noise_that_repeats_in_every_run_is_caught():
    once = np.random.default_rng(0).normal(size=10)
    found = audit_noises({"round 0": np.stack([once] * 6)})
    assert [(one.first, one.second) for one in found] == [("round 0", "round 0")]


def test_independent_noises_are_left_alone():
    rng = np.random.default_rng(7)
    for _ in range(20):
        noises = {f"round {t}": rng.normal(size=(20, 12)) for t in range(6)}
        assert audit_noises(noises) == []


def test_many_pairs_of_independent_noises_are_seldom_taken_for_dependent() -> None:
    # Of 66 pairs, each at a level of .05, nearly every list would name one. Together, one list in twenty
    # does.
    rng, named = np.random.default_rng(0), 0
    for _ in range(40):
        noises = {str(i): rng.normal(size=(3, 50)) for i in range(12)}
        named += bool(audit_noises(noises, confidence=0.95))
    assert named <= 8


def test_one_run_p_value_is_that_of_the_paper():
    # The listing of appendix D, written out as there: m=1000, r=100, v=80, epsilon=1, delta=1e-5.
    chance = 1.0 / (1.0 + np.exp(-1.0))
    steepest = total = 0.0
    for i in range(1, 81):
        total += binom.pmf(80 - i, 100, chance)
        steepest = max(steepest, total / i)
    expected = binom.sf(79, 100, chance) + steepest * 1e-5 * 2 * 1000
    assert one_run_p_value(1000, 100, 80, 1.0, 1e-5) == pytest.approx(expected)


def canaries(rng, number, mu):
    included = rng.random(number) < 0.5
    return included * mu + rng.normal(size=number), included


@pytest.mark.parametrize(
    ("epsilon", "least", "least_gdp"), [(1.0, 0.3, 0.55), pytest.param(4.0, 1.6, 3.2, marks=pytest.mark.slow)]
)
def test_one_run_bounds_stay_below_the_truth(epsilon, least, least_gdp):
    rng, mu = np.random.default_rng(8), gdp_mu(epsilon, DELTA)
    claim = Claim(epsilon=epsilon, delta=DELTA)
    found = [audit_one_run(*canaries(rng, 10_000, mu), claim=claim) for _ in range(4)]
    assert {one.verdict for one in found} == {"not refuted"}
    assert least <= np.mean([one.epsilon for one in found])
    assert least_gdp <= np.mean([one.epsilon_gdp for one in found])


def test_one_run_catches_noise_that_is_far_too_small():
    rng = np.random.default_rng(9)
    found = audit_one_run(*canaries(rng, 2000, 3 * MU), claim=Claim(epsilon=1.0, delta=DELTA))
    assert found.verdict == "violated"
    assert one_run_epsilon(1000, 100, 100, DELTA, 0.05) > 3.0


def test_audit_prints_its_verdict_and_writes_plain_values():
    found = audited(gaussian(np.random.default_rng(10), 3.0), 10_000)
    assert str(found).splitlines()[-1].startswith("verdict: violated: epsilon >= ")
    plain = found.to_dict()
    assert plain["verdict"] == "violated"
    assert plain["claim"] == {"epsilon": 1.0, "delta": DELTA, "noise": "gaussian"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audited(gaussian(np.random.default_rng(0)), 10), "got trials=10"),
        (lambda: audit_samples(np.zeros(200), np.zeros(300), claim=FAST), "got (200,) and (300,)"),
        (lambda: audit_samples([np.nan] * 200, [0.0] * 200, claim=FAST), "must be finite"),
        (lambda: audited(gaussian(np.random.default_rng(0)), 200, confidence=1.5), "got confidence=1.5"),
        (lambda: Claim(epsilon=0.0, delta=0.5), "got epsilon=0.0"),
        (lambda: Claim(epsilon=1.0, delta=0.0), "got delta=0.0"),
        (lambda: audit_one_run(np.zeros(50), np.zeros(50), claim=FAST), "all in or all out"),
        (lambda: audit_one_run(np.zeros(5), np.ones(5), claim=FAST), "at least 40"),
        (lambda: hockey_stick([0.5, 0.6], 1, 0.1), "got a sum of 1.1"),
        (lambda: hockey_stick([1.0], 0, 0.1), "shift must not be zero"),
        (lambda: audit_noises({"a": [1.0, 2.0], "b": [1.0, 2.0]}), "at least 4 values"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ArgumentError) as error:
        call()
    assert message in str(error.value)


PRIVACY = Privacy(
    epsilon=1.0, delta=1e-6, unit="record", neighbours="add-remove", domain=Box(-25.0, 25.0, max_rows=100)
)


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_noise_of_a_real_run_is_as_declared(protocol):
    clients = mixture(0, n_clients=5, n_rows=60).clients
    privacy = replace(PRIVACY, noise="local") if protocol == "plain" else PRIVACY
    model = DPKMeans(3, privacy=privacy, protocol=protocol).fit(clients)
    found = audit_run(model.transcript_, clients)
    assert found.verdict == "not refuted"
    assert found.ratio == pytest.approx(1.0, abs=5 * (2 / found.values) ** 0.5)
    assert json.loads(json.dumps(found.to_dict()))["verdict"] == "not refuted"


def test_the_noise_in_updates_is_found_by_training_again_on_the_labels():
    X, y = population(24)
    y = [(own - i) % 3 for i, own in enumerate(y)]  # All alike: updates add up.
    with pytest.warns(UserWarning, match="promises very little"):  # At 10 one run in 25 has room for others.
        privacy = Privacy(
            **{"epsilon": 40.0, "delta": 1e-6, "unit": "client", "neighbours": "add-remove"},
            noise="local",
            domain=Box(0.0, 1.0),
        )
    words = {"rounds": 2, "epochs": 4, "max_update_norm": 0.1, "protocol": "plain"}
    model = FedAvg(n_classes=3, privacy=privacy, **words).fit(X, y)
    found = audit_run(model.transcript_, X, y)
    assert found.verdict == "not refuted"
    assert found.ratio == pytest.approx(1.0, abs=5 * (2 / found.values) ** 0.5)
    for audit in (partial(audit_run, clients=X), partial(audit_rows, data=ClientData(X[0]))):
        with pytest.raises(ArgumentError, match="trained models on labels: name their column with --label"):
            audit(model.transcript_)
    # Other labels give other updates: what is left of the run's would count as noise.
    with pytest.raises(DataError, match="nothing was audited"):
        audit_run(model.transcript_, X, [(own + 1) % 3 for own in y])


def test_a_run_with_too_little_or_repeated_noise_is_caught():
    clients = mixture(0, n_clients=5, n_rows=60).clients
    model = DPKMeans(3, privacy=PRIVACY).fit(clients)
    exact = seeded(0)
    records = model.transcript_.records
    for number, record in enumerate(records):
        if isinstance(record, Summed):
            asked = next(r for r in records if isinstance(r, Asked) and r.index == record.index)
            question = question_from_bytes(asked.question)
            silent = replace(question, sigma=np.full_like(question.sigma, 1e-3))
            answers = silent.answer_all([ClientData(rows) for rows in clients], [exact] * 5)
            declared, drawn = question.noise_std(5), np.random.default_rng(7)
            statistics = {
                name: Array.from_numpy(
                    sum(one[name] for one in answers) + 0.5 * declared[name] * drawn.normal(size=shape)
                )
                for name, shape in question.spec.layout
            }
            records[number] = msgspec.structs.replace(record, statistics=statistics)
    found = audit_run(model.transcript_, clients)
    assert found.verdict == "violated"
    assert found.ratio < 0.5
    # Each total's noise came from a generator of the same seed.
    assert max(one.correlation for one in found.dependent) > 0.99


def test_a_run_without_noise_cannot_be_audited():
    clients = mixture(0, n_clients=3, n_rows=20).clients
    model = DPKMeans(3, privacy=PRIVACY).fit(mixture(0, n_clients=5, n_rows=60).clients)
    with pytest.raises(ArgumentError, match="has 5 clients, rows of 3"):
        audit_run(model.transcript_, clients)
    plain = DWFKMeans(3, protocol="plain", max_iter=2).fit(clients)
    with pytest.raises(ArgumentError, match="no noised totals"):
        audit_run(plain.transcript_, clients)
