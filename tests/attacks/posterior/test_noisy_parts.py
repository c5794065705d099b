"""Parts of the attack on noised sums: what rows leave in sums, chains that keep their books, bounds."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed import Box, DPKMeans, Privacy
from privfed.attacks.base.preparation import without_colluders
from privfed.attacks.posterior.chains import Chains, Moves, coverage, reconstruction_bound
from privfed.attacks.posterior.evidence import NoisyEvidence, Release, RowPrior, noisy_evidence_of
from privfed.attacks.posterior.noisy_differencing import aligned, by_chance, explains, slots_for
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import FloatArray, Ranges
from privfed.questions.bounded.bounded_sums import (
    CenterSum,
    GridSums,
    HashSums,
    OffsetSums,
    RelativeSums,
    SizeSums,
)
from privfed.questions.bounded.shells import DistanceHistogram
from tests.attacks.posterior.noisy_figures import mixed
from tests.default_run import examples
from tests.some import some

RANGES = Ranges(np.full(2, -4.0), np.full(2, 4.0), 50)
MIDDLE = np.zeros(2)
CENTERS = np.array([[-2.0, 0.0], [1.0, 1.0], [2.0, -2.0]])
QUESTIONS: list[OffsetSums] = [
    SizeSums(ranges=RANGES, center=MIDDLE, radius=3.0),
    CenterSum(ranges=RANGES, center=MIDDLE, radius=3.0),
    DistanceHistogram(ranges=RANGES, center=MIDDLE, radius=4.0, n_bins=6),
    HashSums(ranges=RANGES, center=MIDDLE, radius=2.0, normals=np.array([[1.0, 0.5], [0.0, 1.0]])),
    GridSums(ranges=RANGES, per_axis=3, radius=2.0),
    RelativeSums(ranges=RANGES, centers=CENTERS, radius=1.5),
]
NOISE = {"count": 0.7, "sum": 0.4, "distance": 1.3}


def evidence(rows: FloatArray, questions: list[OffsetSums], rng: np.random.Generator | None) -> NoisyEvidence:
    """Return what clients of these rows answer, with noise of `NOISE` unless there is no generator."""
    releases = []
    for question in questions:
        exact = question.answer(ClientData(rows), np.random.default_rng(0))
        noise = {name: NOISE[name] for name in question.asks}
        if rng is not None:
            exact = exact + type(exact)(
                **{name: rng.normal(scale=NOISE[name], size=exact[name].shape) for name in exact}
            )
        releases.append(Release(question, exact, noise))
    return NoisyEvidence.of(releases)


def left(seen: NoisyEvidence, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return cells and distances less what rows leave in them."""
    of = seen.traces(rows)
    blocks = seen.blocks.copy()
    np.subtract.at(blocks, of.cells, of.blocks)
    return blocks, seen.lengths - of.lengths.sum(axis=0)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 20))
def test_traces_of_rows_add_up_to_the_clients_answer(seed: int, n: int) -> None:
    rows = np.random.default_rng(seed).uniform(-4.0, 4.0, (n, 2))
    for rest in some(left(evidence(rows, QUESTIONS, None), rows)):
        np.testing.assert_allclose(rest, 0.0, atol=1e-4)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(10))
def test_moves_keep_the_books(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = evidence(rng.uniform(-4.0, 4.0, (5, 2)), QUESTIONS, rng)
    chains = Chains(seen, RowPrior.of(None, RANGES, rng), 6, 0.8, (2, 3), rng)
    moves = Moves(chains)
    for power in (0.01, 0.3, 1.0):
        chains.raise_to(power)
        moves.sweep()
    squares = chains.misfit() * seen.n_values
    for rows, held, square in some(zip(chains.rows, chains.held, squares, strict=True)):
        blocks, lengths = left(seen, rows[held])
        assert square == pytest.approx(np.square(blocks).sum() + np.square(lengths).sum())


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(20))
def test_a_rows_gain_is_what_it_adds_to_the_log_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = evidence(rng.uniform(-4.0, 4.0, (4, 2)), QUESTIONS, rng)
    chains = Chains(seen, RowPrior.of(None, RANGES, rng), 3, 1.0, (1, 4), rng)
    chains.power = 0.5
    with_it = chains.misfit() * seen.n_values
    chains.take_out(1)
    without = chains.misfit() * seen.n_values
    of = chains.of.at((chains.each, 1))
    np.testing.assert_allclose(
        chains.gain(of.cells, of.blocks, of.lengths), 0.5 * (without - with_it) / 2.0, rtol=1e-9, atol=1e-7
    )


def drawn(seen: NoisyEvidence, prior: RowPrior, n_slots: int, rng: np.random.Generator) -> FloatArray:
    """Return rows of many chains after some sweeps at full likelihood, (n_draws, n_slots, n_features)."""
    chains = Chains(seen, prior, n_slots, 1.0, (1, 400), rng)
    moves = Moves(chains)
    chains.power = 1.0
    for _ in range(15):
        moves.sweep()
    kept = []
    for _ in range(5):
        moves.sweep()
        kept.append(chains.rows.copy())
    return np.concatenate(kept)


def test_draws_of_one_row_have_its_posterior() -> None:
    rng = np.random.default_rng(0)
    question = CenterSum(ranges=RANGES, center=MIDDLE, radius=100.0)
    seen = evidence(np.array([[1.0, -0.5]]), [question], rng)
    prior = RowPrior(np.ones(1), np.array([[0.5, 0.5]]), np.eye(2), np.array([0.25, 0.09]))
    rows = drawn(seen, prior, 1, rng)[:, 0]
    precision = 1.0 / prior.variances + NOISE["sum"] ** -2
    mean = (prior.means[0] / prior.variances + seen.blocks[0, 1:] / NOISE["sum"]) / precision
    np.testing.assert_allclose(rows.mean(axis=0), mean, atol=0.03)
    np.testing.assert_allclose(rows.var(axis=0), 1.0 / precision, rtol=0.15)


def test_draws_of_two_rows_have_the_posterior_of_their_sum_and_difference() -> None:
    rng = np.random.default_rng(1)
    question = CenterSum(ranges=RANGES, center=MIDDLE, radius=100.0)
    seen = evidence(np.array([[1.0, -0.5], [-0.5, 0.3]]), [question], rng)
    prior = RowPrior(np.ones(1), np.zeros((1, 2)), np.eye(2), np.full(2, 0.36))
    rows = drawn(seen, prior, 2, rng)
    precision = 1.0 / 0.72 + NOISE["sum"] ** -2
    total = seen.blocks[0, 1:] / NOISE["sum"] / precision
    np.testing.assert_allclose(rows.sum(axis=1).mean(axis=0), total, atol=0.04)
    np.testing.assert_allclose(rows.sum(axis=1).var(axis=0), 1.0 / precision, rtol=0.15)
    np.testing.assert_allclose((rows[:, 0] - rows[:, 1]).var(axis=0), 0.72, rtol=0.15)


def test_chains_that_miss_a_row_explain_nothing() -> None:
    rng = np.random.default_rng(0)
    rows = rng.uniform(-4.0, 4.0, (8, 2))
    chains = Chains(evidence(rows, QUESTIONS, rng), RowPrior.of(None, RANGES, rng), 1, 1.0, (2, 2), rng)
    assert not explains(chains).any()


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
    view = model.transcript_.view("server")
    claim = privacy.terms().budget ** 0.5
    seen = noisy_evidence_of(view, 0 if protocol == "plain" else None)
    assert seen is not None
    assert len(seen.releases) == len(view.sums)
    # Less than the claim where more clients share the noise than the claim counts on.
    assert seen.mu == pytest.approx(claim, rel=1e-3) if protocol == "plain" else seen.mu < claim
    rows, slots = slots_for(seen, 1)
    assert 1.0 <= rows <= slots <= 50


def test_colluders_leave_their_noise_in_a_total() -> None:
    scene = mixed(0, 8)
    privacy = Privacy(
        epsilon=2.0,
        delta=1e-6,
        unit="record",
        domain=Box(-12.0, 12.0, max_rows=50),
        neighbours="add-remove",
        noise_seed=0,
    )
    model = DPKMeans(3, privacy=privacy, protocol="masked", random_state=0).fit(scene.clients)
    alone = noisy_evidence_of(model.transcript_.view("server"), None)
    view = model.transcript_.view("server", colluding=[0])
    helped = noisy_evidence_of(without_colluders(view, {0: scene.clients[0]}), None)
    assert alone is not None
    assert helped is not None
    np.testing.assert_allclose(alone.weights, helped.weights)
    assert alone.count()[0] - helped.count()[0] == pytest.approx(8.0, abs=0.01)
