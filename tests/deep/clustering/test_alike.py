"""Whether clients differ by more than few rows explain: alike ones do not, kinds and one stray client do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from privfed.core.values.domain import Ranges
from privfed.deep import DCFL
from privfed.deep.clustering.alike import Spreads, differ, spread
from privfed.deep.training.local import Training
from privfed.deep.training.rounds import SketchedUpdates
from privfed.errors import ArgumentError

N, SIZE = 20, 40


def seen(kinds: np.ndarray, rng: np.random.Generator, rounds: int = 9) -> tuple[np.ndarray, Spreads]:
    """Return updates of clients that know their kinds' goals by few rows, and the spreads of rounds."""
    rows = kinds + rng.normal(size=kinds.shape)
    spreads, apart = Spreads(), np.zeros_like(rows)
    for number in range(1, rounds + 1):
        half = number % 3
        apart = rng.normal(size=rows.shape) if half == 1 else -apart
        spreads = spreads.followed(0.9**number * (rows + apart if half else rows), half)
    return rows, spreads


@pytest.mark.parametrize("seed", range(20))
def test_alike_clients_do_not_differ_and_kinds_and_one_stray_client_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    goals = 1.5 * rng.normal(size=(4, SIZE))
    assert not differ(*explained(np.zeros((N, SIZE)), rng))
    assert differ(*explained(goals[np.arange(N) % 4], rng))
    assert differ(*explained(3.0 * rng.normal(size=(N, SIZE)), rng))  # Each of a kind of its own.
    stray = np.where(np.arange(N)[:, None] == 7, 2.0, 0.0) * np.ones(SIZE)
    assert differ(*explained(stray, rng))


def explained(kinds: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    updates, spreads = seen(kinds, rng)
    return 0.9**9 * updates, spreads.few_rows


def test_variance_of_few_rows_is_known_after_both_halves_and_all_rows_only() -> None:
    updates, rng = np.eye(5), np.random.default_rng(0)  # Of spread 1.
    one = Spreads().followed(2.0 * updates, 1)
    both = one.followed(math.sqrt(6.0) * updates, 2)
    assert all(math.isinf(early.few_rows) for early in (Spreads(), one, both, one.followed(updates, 0)))
    known = both.followed(updates, 0)
    assert known.few_rows == pytest.approx(4.0)
    assert math.isinf(known.followed(updates, 1).few_rows)
    # A round whose turn it is not changes nothing.
    assert known.followed(updates, 0).few_rows == pytest.approx(4.0)
    assert both.followed(math.sqrt(6.0) * updates, 2).followed(updates, 0) == known
    assert not differ(rng.normal(size=(5, 3)), math.inf)
    equal = np.ones((3, 2))
    assert math.isinf(Spreads().followed(equal, 1).followed(equal, 2).followed(equal, 0).few_rows)


@pytest.mark.parametrize("seed", range(5))
def test_what_halves_have_in_common_is_no_variance_of_few_rows(seed: int) -> None:
    """The mean of both spreads tells it exactly, of a few clients, too."""
    rng = np.random.default_rng(seed)
    rows, apart = 5.0 * rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    found = Spreads().followed(rows + apart, 1).followed(rows - apart, 2).followed(rows, 0)
    assert found.few_rows == pytest.approx(spread(apart))


def test_equal_updates_do_not_differ_by_what_rounding_leaves() -> None:
    equal = [
        np.tile(np.random.default_rng(seed).normal(size=size), (7, 1)) for seed, size in ((0, 3), (1, 19))
    ]
    assert not any(differ(one, 0.9 * spread(one)) for one in equal)


@pytest.mark.parametrize("seed", range(5))
def test_one_strays_beyond_what_the_covariance_of_the_others_allows(seed: int) -> None:
    """As by each other's covariance, computed anew."""
    rng, found = np.random.default_rng(seed), set()
    for far in np.linspace(0.0, 30.0, 60):
        rows = rng.normal(size=(12, 6)) * [4.0, 2.0, 1.0, 1.0, 1.0, 1.0]
        rows[3, 2] += far
        found.add(by_covariances(rows))
        assert differ(rows, 0.9 * spread(rows)) == by_covariances(rows)
    assert found == {True, False}


def by_covariances(rows: np.ndarray) -> bool:
    n = len(rows)
    for own in range(n):
        others = np.cov(np.delete(rows, own, axis=0), rowvar=False)
        trace, free = np.trace(others), n - 2
        unbiased = (np.square(others).sum() - trace**2 / free) * free**2 / ((free - 1) * (free + 2))
        p = max(1.0, trace**2 / unbiased) if unbiased > 0.0 else math.inf
        x, squared = math.log(n / 0.01), np.square(rows[own] - rows.mean(axis=0)).sum() * n / (n - 1)
        if squared > trace * (1.0 + 2.0 * math.sqrt(x / p) + 2.0 * x / p):
            return True
    return False


@pytest.mark.parametrize("way", [{"protocol": "plain", "merge": "gathered"}, {"protocol": "masked"}])
def test_dcfl_leaves_alike_clients_one_cluster(way: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    X = [rng.uniform(size=(40, 4)) for _ in range(12)]
    y = [(one[:, :3] + 0.5 * rng.normal(size=(40, 3))).argmax(axis=1) for one in X]
    model = DCFL(n_classes=3, rounds=10, random_state=3, learning_rate=0.3, **way)
    assert not model.fit(X, y).labels_.any()
    # As published they are clustered in round 1.
    assert model.set_params(cluster_after=0, rounds=1).fit(X, y).labels_.any()


def asked(training: Training, n_models: int, halves: bool = True) -> SketchedUpdates:
    ranges, models = Ranges(np.zeros(4), np.ones(4), 40), np.zeros((n_models, 15))
    return SketchedUpdates(ranges=ranges, training=training, models=models, size=15, seed=0, halves=halves)


def test_halves_and_all_rows_take_turns_with_one_model() -> None:
    training = Training(model="softmax", n_classes=3)
    assert [asked(training.at(number), 1).half for number in range(1, 8)] == [1, 2, 0, 1, 2, 0, 1]
    assert not (asked(training.at(1), 2).half or asked(training.at(1), 1, halves=False).half)
    noised: dict[str, Any] = {"noise_multiplier": 1.0, "rows_per_client": 9, "trainings": 1}
    with pytest.raises(ArgumentError, match="without halves"):
        asked(Training(model="softmax", n_classes=3, **noised), 1)
