"""The attack on noised sums: real where noise is weak, nothing beyond chance where it is strong."""

import re

import numpy as np
import pytest
from scipy.stats import binom

from privfed import DPKMeans, DWFKMeans
from privfed.attacks import Differencing, NoisyDifferencing, NotRun, Prior, Truth, evaluate
from privfed.attacks.base.report import matches, spread
from privfed.attacks.posterior.chains import drawn
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError
from tests.attacks.figures import fitted
from tests.attacks.posterior.noisy_figures import Scene, attacked, iris, mixed, viewed
from tests.raised import parameter_refused

STRONG, WEAK = 1.0, 1e4


@pytest.mark.slow
def test_weak_noise_gives_rows_that_the_exact_attack_cannot_claim() -> None:
    right = claims = 0.0
    for seed in (2, 3):
        scene = mixed(seed, 12, clusters=12)
        view, truth = viewed(scene, WEAK, 1), Truth(scene.clients, tolerance=0.05)
        exact = Differencing(0).run(view, Prior(), np.random.default_rng(0))
        assert isinstance(exact, NotRun)
        found = NoisyDifferencing(0).run(view, Prior(sample=scene.public), np.random.default_rng(seed))
        report = evaluate(found, truth)
        assert report.linked
        assert found.confidence is not None
        assert (found.confidence >= 0.8).all()
        claims, right = claims + report.claims, right + report.recovered * 12
    assert claims >= 4
    assert right / claims >= 0.75


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_rows", "seeds"),
    [(6, (3,)), (12, (3, 4))],
    ids=["6 rows", "12 rows"],
)
def test_less_noise_brings_guesses_nearer(n_rows: int, seeds: tuple[int, ...]) -> None:
    reports = [
        [attacked(mixed(seed, n_rows), epsilon, seed, n_sweeps=15) for seed in seeds]
        for epsilon in (STRONG, 1000.0)
    ]
    errors = [np.mean([one.details["matched rmse / sd, all rows"] for one in same]) for same in reports]
    assert errors[0] > 1.5 * errors[1]


def beyond_chance(scene: Scene, right: float, client: int | None) -> bool:
    """Say whether so many right guesses are beyond the band of guesses from the prior alone."""
    rows, _ = Truth(scene.clients).rows(client)
    ranges = Ranges(*scene.domain.bounds(rows.shape[1]), 1)
    rng, near = np.random.default_rng(0), 0.05 * spread(rows)
    draws = drawn(scene.public, ranges, 200 * len(rows), rng).reshape(200, len(rows), -1)
    chance = float(np.mean([(matches(one, rows, near) >= 0).mean() for one in draws]))
    return bool(right > binom.ppf(0.999, len(rows), chance))


@pytest.mark.parametrize(
    ("scene", "kind", "client", "words"),
    [
        pytest.param(mixed(0, 6), DPKMeans, 0, {"n_sweeps": 10}, id="local noise, 6 rows"),
        *(
            pytest.param(scene, kind, client, words, id=name, marks=pytest.mark.slow)
            for name, scene, kind, client, words in [
                ("local noise, 20 rows", mixed(0), DPKMeans, 0, {"n_sweeps": 15}),
                ("DWF, local noise", iris(0), DWFKMeans, 0, {"n_sweeps": 15}),
                (
                    "masked totals",
                    iris(1)._replace(clients=iris(1).clients[:3]),
                    DPKMeans,
                    None,
                    {"n_sweeps": 10},
                ),
            ]
        ),
    ],
)
def test_one_epsilon_leaves_no_claim_beyond_chance(scene, kind, client, words) -> None:  # type: ignore[no-untyped-def]
    report = attacked(scene, STRONG, 0, client=client, kind=kind, **words)
    n = report.details["rows"]
    right = report.details["recovered within .05 sd, all rows"] * n
    assert report.details["matched rmse / sd, all rows"] > 0.0
    assert not beyond_chance(scene, right, client)
    assert right <= binom.ppf(0.999, int(n), report.bound)
    assert report.bound < 1.0
    assert not beyond_chance(scene, report.recovered * n, client)
    assert report.claims == 0


def test_the_band_of_chance_is_narrow_enough_to_be_left() -> None:
    scene = mixed(0)
    assert beyond_chance(scene, 20.0, 0)
    assert beyond_chance(scene, 8.0, 0)


def test_a_public_number_of_rows_is_taken_as_it_is() -> None:
    scene = mixed(0, 6)
    attack = NoisyDifferencing(0, confidence=0.0, n_sweeps=10)
    view = viewed(scene, 10.0, 1, neighbours="replace-one")
    found = attack.run(view, Prior(sample=scene.public), np.random.default_rng(0))
    assert len(found.points) == 6


@pytest.mark.slow
def test_without_public_rows_the_domain_is_the_prior() -> None:
    scene = mixed(0, 6)
    view = viewed(scene, 1000.0, 1)
    attack = NoisyDifferencing(0, confidence=0.0, n_sweeps=20)
    found = attack.run(view, Prior(), np.random.default_rng(0))
    report = evaluate(found, Truth(scene.clients))
    assert report.details["matched rmse / sd"] < 0.5 * report.details["matched rmse / sd, no access"]


def test_sums_without_noise_are_left_to_the_exact_attack() -> None:
    scene = mixed(0, 6)
    view = fitted(scene.clients, 3, 0, max_iter=2, tol=0).transcript_.view("server")
    found = NoisyDifferencing(0).run(view, Prior(sample=scene.public), np.random.default_rng(0))
    report = evaluate(found, Truth(scene.clients))
    assert (report.claims, report.queries) == (0, 0)
    assert np.isnan(report.bound)


@pytest.mark.slow
def test_the_same_generator_gives_the_same_claims() -> None:
    scene = mixed(0, 6)
    view = viewed(scene, 100.0, 1)
    twice = [
        NoisyDifferencing(0, confidence=0.0, n_sweeps=10)
        .run(view, Prior(sample=scene.public), np.random.default_rng(4))
        .points
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*twice)


def test_words_out_of_bounds_and_unknown_clients_are_errors() -> None:
    with pytest.raises(ArgumentError, match=r"confidence=1\.0"):
        NoisyDifferencing(confidence=1.0)
    with pytest.raises(ArgumentError, match="n_sweeps=9"):
        NoisyDifferencing(n_sweeps=9)
    with pytest.raises(ArgumentError, match="most_rows=0"):
        NoisyDifferencing(most_rows=0)
    view = viewed(mixed(0, 6), 100.0, 1)
    with parameter_refused("client"):
        NoisyDifferencing(9).run(view, Prior(), np.random.default_rng(0))


def test_a_target_of_too_many_rows_is_not_attacked() -> None:
    view = viewed(mixed(0, 6), 100.0, 1)
    found = NoisyDifferencing(0, most_rows=3).run(view, Prior(), np.random.default_rng(0))
    assert isinstance(found, NotRun)
    assert re.search(r"about \d rows, more than most_rows=3", found.why)
