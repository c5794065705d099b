"""Running means and the variance of their noise: what noise alone passes for, and what it hides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.core.asking.question import ClientData, question_from_bytes
from privfed.core.record.records import Asked
from privfed.core.values.domain import Box
from privfed.deep import DCFL
from privfed.deep.algorithms.regrouped import Updates
from privfed.deep.algorithms.rules import PropagationRule
from privfed.deep.clustering.clusterings import Propagation
from privfed.deep.clustering.distances import update_distances
from privfed.deep.clustering.noise import (
    SHORTEST,
    TOLD,
    MeanNoise,
    explains_more,
    moved,
    never_joined,
    reach,
    shortest_decay,
    without_noise,
)
from privfed.deep.training.local import Training
from privfed.deep.training.memory import Memory
from privfed.deep.training.rounds import SketchedUpdates
from privfed.errors import PrivacyError
from privfed.privacy.claim import Privacy
from tests.deep.population import clients, kinds, same
from tests.raised import parameter_refused

TRUE = np.arange(20) % 4
ONE = np.zeros(20, dtype=np.intp)
WORDS: dict[str, Any] = {"n_classes": 3, "rounds": 8, "random_state": 3}
NOISED: dict[str, Any] = {
    **WORDS,
    "rows_per_client": 60,
    "sample_rate": 0.5,
    "learning_rate": 1.0,
    "privacy": Privacy(
        epsilon=10.0,
        delta=1e-5,
        unit="record",
        domain=Box(0, 1),
        neighbours="add-remove",
        noise="local",
        noise_seed=3,
    ),
}


def noisy(seed: int, apart: float, size: int = 200) -> np.ndarray:
    """Return 20 rows of four groups, so far apart, with noise of variance 1."""
    rng = np.random.default_rng(seed)
    goals = rng.normal(size=(4, size))
    return apart * (goals / np.linalg.norm(goals, axis=1, keepdims=True))[TRUE] + rng.normal(size=(20, size))


def test_noise_alone_seldom_reaches_as_far_as_is_said() -> None:
    longest = [np.linalg.norm(noisy(seed, 0.0), ord=2) for seed in range(300)]
    assert np.mean(np.array(longest) > reach(20, 200, 1.0, chance=0.05)) <= 0.05
    assert np.mean(longest) <= reach(20, 200, 1.0) < 1.1 * float(np.mean(longest))


@pytest.mark.parametrize("seed", range(20))
def test_clusters_of_noise_alone_explain_nothing(seed: int) -> None:
    rows = noisy(seed, 0.0)
    found = Propagation().cluster(update_distances(np.zeros_like(rows), rows), 0)
    for labels in (TRUE,) if found is None else (TRUE, found.labels):
        assert not explains_more(rows, ONE, labels, 1.0)
    assert not explains_more(rows, TRUE, TRUE, 1.0)


@pytest.mark.parametrize("seed", range(5))
def test_true_clusters_explain_more_and_wrong_ones_are_corrected(seed: int) -> None:
    rows, wrong = noisy(seed, 14.0), TRUE.copy()
    wrong[0] = 1
    assert explains_more(rows, ONE, TRUE, 1.0) and explains_more(rows, wrong, TRUE, 1.0)
    assert not explains_more(rows, TRUE, wrong, 1.0) and not explains_more(rows, TRUE, ONE, 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_rows_move_to_their_own_cluster_and_none_for_noise_alone(seed: int) -> None:
    wrong = TRUE.copy()
    wrong[[0, 7]] = 1, 2
    assert np.array_equal(moved(noisy(seed, 14.0), wrong, 1.0), TRUE)
    # Twenty rows, three other clusters each: 2.5 standard deviations are passed .006 times in a comparison.
    assert (moved(noisy(seed, 0.0), TRUE, 1.0) != TRUE).sum() <= 2
    alone = np.where(np.arange(20) == 4, 4, TRUE)
    assert moved(noisy(seed, 14.0), alone, 1.0)[4] == 4
    assert np.array_equal(moved(noisy(seed, 14.0), wrong, 0.0), wrong)
    assert np.array_equal(moved(noisy(seed, 14.0), ONE, 1.0), ONE)


@pytest.mark.parametrize("seed", range(5))
def test_rows_without_noise_are_nearer_to_what_they_are_of(seed: int) -> None:
    rows, exact = noisy(seed, 14.0), 14.0 * (noisy(seed, 1.0) - noisy(seed, 0.0))
    cleared = without_noise(rows, 1.0)
    assert np.linalg.norm(cleared - exact) < 0.6 * np.linalg.norm(rows - exact)
    assert np.array_equal(
        without_noise(noisy(seed, 0.0), 4.0), np.tile(noisy(seed, 0.0).mean(axis=0), (20, 1))
    )
    assert np.allclose(without_noise(rows, 0.0), rows)


@given(st.floats(0.0, 0.99), st.integers(1, 12))
def test_the_variance_of_a_running_mean_is_that_of_its_weights(decay: float, rounds: int) -> None:
    rng, noise, memory = np.random.default_rng(0), MeanNoise(), Memory()
    updates = rng.normal(size=(rounds, 3))
    for update in updates:
        memory.update, memory.shown = update, None
        memory.averages(decay)
        memory.averages(decay)  # A question that is asked twice changes nothing.
        noise = noise.followed(2.0, decay)
    weights = decay ** np.arange(rounds)[::-1]
    weights /= weights.sum()
    assert memory.shown == pytest.approx(weights @ updates)
    assert noise.variance == pytest.approx(2.0 * float((weights**2).sum()))


def test_the_variance_of_an_update_is_that_of_a_client_without_rows() -> None:
    words = Training(
        model="softmax",
        n_classes=10,
        timed=False,
        round=1,
        epochs=2,
        batch_size=None,
        learning_rate=0.7,
        max_update_norm=1e6,
        seed=0,
        noise_multiplier=1.3,
        sample_rate=0.25,
        max_grad_norm=0.5,
        rows_per_client=30,
        trainings=1,
    )
    empty = ClientData(np.zeros((0, 400)), np.zeros(0, dtype=np.int64))
    update = words.update(empty, np.zeros(4010), np.random.default_rng(0))
    assert update.var() == pytest.approx(words.noise_variance, rel=0.1)


def test_means_are_as_short_as_the_nearest_clusters_allow() -> None:
    apart = np.diag([30.0, 40.0, 60.0, 80.0])[TRUE]
    decay = shortest_decay(apart, TRUE, 0.0, 40.0)
    # The nearest are 50 apart; in the long run a mean has this share of an update's variance.
    assert TOLD * np.sqrt(40.0 * (1.0 - decay) / (1.0 + decay)) == pytest.approx(25.0)
    assert shortest_decay(apart, TRUE, 0.0, 80.0) > decay > shortest_decay(2.0 * apart, TRUE, 0.0, 40.0)
    assert shortest_decay(apart, ONE, 0.0, 40.0) == 1.0
    found = [shortest_decay(noisy(seed, 0.0), TRUE, 1.0, 19.0) for seed in range(20)]
    assert min(found) > 0.9  # What lies apart by noise alone is told apart by no short means.


def test_running_means_show_what_no_single_round_shows() -> None:
    exact = 5.5 * (noisy(0, 1.0) - noisy(0, 0.0))
    rule, noise = PropagationRule(decay=0.9), MeanNoise()
    memories = [Memory() for _ in TRUE]
    found: list[np.ndarray] = []
    for number in range(1, 21):
        rows = exact + noisy(number, 0.0)
        assert not explains_more(rows, ONE, TRUE, 1.0)
        for memory, row in zip(memories, rows, strict=True):
            memory.update, memory.shown = row, None
            memory.averages(rule.decay)
        noise = noise.followed(1.0, rule.decay)
        means = np.stack([np.zeros(200) if one.shown is None else one.shown for one in memories])
        decided = rule.decide(Updates(np.zeros_like(means), means, ONE, 1, noise.variance), number, 0)
        found += [] if decided.labels is None else [decided.labels]
    assert 0 < len(found) < 20 and same(found[-1], TRUE)


def test_clusters_are_not_joined_because_their_updates_look_alike() -> None:
    found = np.where(np.arange(20) == 5, 1, 0)
    clusters = never_joined(TRUE, found, 4)
    assert len(np.unique(clusters)) == 5 and (clusters == clusters[5]).sum() == 1
    assert np.array_equal(np.delete(clusters, 5), np.delete(TRUE, 5))
    elsewhere = np.where(np.arange(20) == 5, 2, TRUE)
    assert np.array_equal(never_joined(TRUE, (elsewhere + 1) % 4, 4), elsewhere)
    assert same(never_joined(ONE, TRUE, 1), TRUE)
    # A cluster that nobody was in keeps its number, and new ones get the next.
    assert set(never_joined(np.where(TRUE == 3, 0, TRUE), TRUE, 4)) in ({0, 1, 2, 4},)


@pytest.mark.parametrize("words", [{"protocol": "plain", "merge": "gathered"}, {}], ids=["gathered", "slots"])
def test_clusters_under_dp_sgd_are_of_one_kind_and_stay(words: dict[str, Any]) -> None:
    X, y = clients(12, rows=60, seed=3)
    fitted = DCFL(**NOISED, **words).fit(X, y)
    assert same(fitted.labels_, kinds(12))
    assert sum(one.changed for one in fitted.regrouped_) == 1


def asked_decays(fitted: Any) -> list[float]:
    questions = [question_from_bytes(one.question) for one in fitted.transcript_.of(Asked)]
    inner = [getattr(one, "inner", one) for one in questions]
    return [one.decay for one in inner if isinstance(one, SketchedUpdates)]


@pytest.mark.parametrize(
    "words",
    [{"protocol": "plain", "merge": "gathered"}, pytest.param({}, marks=pytest.mark.slow)],
    ids=["gathered", "slots"],
)
def test_once_clusters_last_means_are_shorter_and_a_change_is_followed(words: dict[str, Any]) -> None:
    X, y = clients(12, rows=60, seed=3)
    times = [np.tile(one, (60, 1)) for one in ([0.0, 99.0], [0.0, 14.0], [14.0, 99.0])]
    timed = [np.hstack([rows, times[0]]) for rows in X]
    timed[0] = np.vstack([np.hstack([X[0], times[1]]), np.hstack([X[1], times[2]])])
    fitted = DCFL(**{**NOISED, "rounds": 20}, timed=True, **words).fit(timed, [np.concatenate(y[:2]), *y[1:]])
    decays, (first, *later) = asked_decays(fitted), [one.round for one in fitted.regrouped_ if one.changed]
    assert decays[: first + 10] == [0.9] * (first + 10)
    assert all(SHORTEST <= one < 0.9 for one in decays[first + 10 : later[0]])
    # With means of one length it is so from round 19 on.
    assert (fitted.labels_history_[16:, 0] == fitted.labels_history_[16:, 1]).all()


def test_where_a_decay_does_not_help_it_is_refused() -> None:
    noised = Privacy(epsilon=8.0, delta=1e-6, unit="client", domain=Box(0, 1), neighbours="add-remove")
    with pytest.raises(PrivacyError, match="decay=0"):
        DCFL(**WORDS, decay=0.5, privacy=noised).fit(*clients(6))
    with parameter_refused("decay"):
        DCFL(**WORDS, decay=1.0, domain=Box(0, 1)).fit(*clients(6))
