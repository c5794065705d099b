"""Parts of the attack on noised sums: chains that draw from the posterior, claims, and bounds."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from privfed import Box, DPKMeans, Privacy
from privfed.attacks.base.preparation import without_colluders
from privfed.attacks.evidence.equations import equations_of
from privfed.attacks.evidence.system import System
from privfed.attacks.posterior.chains import Chain
from privfed.attacks.posterior.noisy_differencing import (
    aligned,
    by_chance,
    claimed,
    coverage,
    mu_of,
    reconstruction_bound,
)
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray, Ranges
from tests.attacks.posterior.noisy_figures import mixed
from tests.default_run import examples
from tests.some import some

RANGES = Ranges(np.full(2, -4.0), np.full(2, 4.0), 50)
NOISE = {"sum": 0.4, "count": 0.7}


def chain(rows: FloatArray, pool: FloatArray, rng: np.random.Generator, most: int) -> Chain:
    """Return a chain that sees number and sum of some rows with the noise of `NOISE`."""
    seen = np.append(rows.sum(axis=0) + rng.normal(scale=NOISE["sum"], size=2), len(rows))

    def read(own: FloatArray) -> System:
        left = csr_array(np.vstack([own.T, np.ones(len(own))]))
        noise = np.array([NOISE["sum"] ** 2] * 2 + [1e-6])
        return System(left, seen, noise, np.ones(3), float(len(rows)), 1)

    return Chain(read, pool, RANGES, float(len(rows)), most, rng)


def test_draws_of_one_row_have_its_posterior() -> None:
    rng = np.random.default_rng(0)
    row, variances = np.array([[1.0, -0.5]]), np.array([0.25, 0.09])
    found = []
    for _ in range(60):
        one = chain(row, rng.normal([0.5, 0.5], variances**0.5, (400, 2)), np.random.default_rng(1), 1)
        one._sweep(np.geomspace(1e-2, 1.0, 8))
        found += one.sets[-2:]
    precision = 1.0 / variances + NOISE["sum"] ** -2
    seen = row[0] + np.random.default_rng(1).normal(scale=NOISE["sum"], size=2)
    mean = (np.array([0.5, 0.5]) / variances + seen / NOISE["sum"] ** 2) / precision
    np.testing.assert_allclose(np.concatenate(found).mean(axis=0), mean, atol=0.1)
    np.testing.assert_allclose(np.concatenate(found).var(axis=0), 1.0 / precision, rtol=0.5)


def test_a_chain_holds_so_many_rows_as_the_count_says_and_leaves_no_more_than_noise() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-3.0, 3.0, (5, 2))
    one = chain(rows, rng.uniform(-4.0, 4.0, (300, 2)), rng, 50)
    one.move(30)
    assert len(one.sets) == 6 and all(len(own) == 5 for own in one.sets)
    assert one.n_values == 3 and one.misfit < 4.0
    assert (np.abs(np.concatenate(one.sets)) <= 4.0).all()


def test_chains_that_miss_a_row_explain_nothing() -> None:
    rng = np.random.default_rng(0)
    one = chain(rng.uniform(-4.0, 4.0, (8, 2)), rng.uniform(-4.0, 4.0, (100, 2)), rng, 1)
    one.move(12)
    claims, fits = claimed([one], 0.1)
    assert not fits.any() and not claims.confidence.any()


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(20))
def test_alignment_undoes_the_order_of_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.arange(6.0)[:, None] * 3.0 + rng.normal(scale=0.01, size=(6, 2))
    sets = [rng.permutation(rows) + rng.normal(scale=0.01, size=rows.shape) for _ in range(20)]
    found = aligned(rows, [*sets, rows[:5]], np.full(21, 1 / 21), 0.1)
    np.testing.assert_allclose(found.points, rows, atol=0.05)
    np.testing.assert_allclose(found.confidence, np.r_[np.ones(5), 20 / 21], atol=1e-9)


def test_rows_on_which_sets_disagree_are_not_sure() -> None:
    rng = np.random.default_rng(0)
    sets = [rng.normal(size=(3, 2)) * 10.0 for _ in range(30)]
    assert aligned(sets[0], sets, np.full(30, 1 / 30), 0.1).confidence.max() < 0.3


def test_chance_of_a_hit_is_that_of_the_prior() -> None:
    draws = np.random.default_rng(0).uniform(0.0, 1.0, (20_000, 2))
    (found,) = by_chance(np.array([[0.5, 0.5]]), draws, 10, 0.05)
    assert found == pytest.approx(1.0 - 0.99**10, rel=0.1)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 8), d=st.integers(1, 3))
def test_no_balls_cover_more_than_the_bound(seed: int, n: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, d))
    centers = rows[rng.integers(60, size=n)] + rng.uniform(-0.2, 0.2, (n, d))
    covered = (np.abs(rows[:, None] - centers) <= 0.2).all(axis=2).any(axis=1).mean()
    assert covered <= coverage(rows, n, 0.2) <= 1.0


def test_the_bound_grows_with_what_was_seen() -> None:
    assert reconstruction_bound(0.1, 0.0) == pytest.approx(0.1)
    assert 0.1 < reconstruction_bound(0.1, 0.5) < reconstruction_bound(0.1, 2.0) < 1.0
    assert reconstruction_bound(1.0, 0.1) == 1.0


def test_no_guess_beats_the_bound_on_a_gaussian_release() -> None:
    # A row is one of 20 places; what is released is a noised vector of which each moves one entry by mu.
    rng, mu = np.random.default_rng(0), 1.5
    places = rng.integers(20, size=20_000)
    released = rng.normal(size=(20_000, 20)) + mu * np.eye(20)[places]
    hits = float((released.argmax(axis=1) == places).mean())
    sample = np.arange(20.0)[:, None]
    assert 0.2 < hits < reconstruction_bound(coverage(sample, 1, 0.1), mu) < 0.5


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_noise_and_mu_are_those_of_the_run(protocol: str) -> None:
    view, privacy = seen(protocol)
    claim, client = privacy.terms().budget ** 0.5, 0 if protocol == "plain" else None
    # Less than the claim where more clients share the noise than the claim counts on.
    assert mu_of(view, client) == pytest.approx(claim, rel=1e-3) if client == 0 else mu_of(view, None) < claim
    for one in some(equations_of(view)):
        own = next(shown for shown in one.shown if shown.own is (client == 0))
        total = next(shown for shown in one.shown if not shown.own)
        assert own.noise.min() > 0.0
        np.testing.assert_allclose(total.noise, own.noise * (5.0 if client == 0 else 1.0), rtol=1e-6)


def test_colluders_leave_their_noise_in_a_total() -> None:
    view, _ = seen("masked", colluding=[0])
    alone, helped = (
        [next(shown for shown in one.shown if not shown.own).noise for one in equations_of(own)]
        for own in (seen("masked")[0], without_colluders(view, {0: mixed(0, 8).clients[0]}))
    )
    for one, other in some(zip(alone, helped, strict=True)):
        np.testing.assert_allclose(one, other)


def seen(protocol: str, **words: Any) -> tuple[View, Privacy]:
    """Return what the server saw of a private fit, and its parameters."""
    scene = mixed(0, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        privacy = Privacy(
            epsilon=2.0,
            delta=1e-6,
            unit="record",
            domain=Box(-12.0, 12.0, max_rows=50),
            neighbours="add-remove",
            noise="local" if protocol == "plain" else "distributed",
            noise_seed=0,
        )
        model = DPKMeans(3, privacy=privacy, protocol=protocol, random_state=0).fit(scene.clients)
    return model.transcript_.view("server", **words), privacy
