"""Rounds that ask of clusters in halves: the same steps, and centers that move to where they save more."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privfed.algorithms.private.coreset import count_share
from privfed.algorithms.private.halves import (
    LEAST_ROUNDS,
    Seats,
    asked_in,
    first_axes,
    halved_round,
    may,
    next_axes,
    pays,
    traded,
)
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.noised_rounds import State, lloyd_round, started
from privfed.algorithms.private.points import Coreset
from privfed.algorithms.private.scale import Frame, Scale
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.core.values.domain import Box, Ranges
from privfed.core.values.guarantee import Unit
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.questions.bounded.bounded_sums import RelativeSums
from tests.some import some


def scale_of(d: int, n_rows: float, budget: float = 1.0) -> Scale:
    ranges = Ranges(np.full(d, -1.0), np.full(d, 1.0), 1 << 20)
    frame = Frame(ranges, np.zeros(d), float(np.sqrt(d)))
    return Scale(frame, budget, False, n_rows, np.zeros(d), 1.0, 0.065)


def answered(conversation: Any, answer: Callable[[Ask], Total]) -> tuple[Any, list[Ask]]:
    asks = [next(conversation)]
    try:
        while True:
            asks.append(conversation.send(answer(asks[-1])))
    except StopIteration as finished:
        return finished.value, asks


def with_noise(rows: np.ndarray, std: float, seed: int = 0) -> Callable[[Ask], Total]:
    rng = np.random.default_rng(seed)

    def answer(ask: Ask) -> Total:
        exact = ask.question.answer(ClientData(rows), rng)
        noised = {name: exact[name] + std * rng.standard_normal(exact[name].shape) for name in exact}
        return Total(Statistics(**noised), (0,), noise_std={name: std for name in exact})

    return answer


def seats_of(scale: Scale, points: np.ndarray, k: int, hashed: bool = True, sliced: bool = False) -> Seats:
    weights = np.full(len(points), scale.n_rows / len(points))
    found = Coreset(points, weights, 0.0, single=False, hashed=hashed, spent=0.0, sliced=sliced)
    return Seats(found, 0.01, scale, np.zeros(k), np.zeros(k))


def every(axes: np.ndarray) -> np.ndarray:
    return np.ones(len(axes), dtype=np.bool_)


def looked(rows: np.ndarray, centers: np.ndarray, std: float, axes: np.ndarray) -> tuple[Seats, State, Any]:
    scale = scale_of(rows.shape[1], len(rows))
    state = started(centers, 2.0, 1.0)
    (state, halves), _ = answered(halved_round(scale, state, 0.1, axes, every(axes)), with_noise(rows, std))
    return traded(scale, seats_of(scale, rows, len(centers)), centers, state, halves)


def cost(rows: np.ndarray, centers: np.ndarray) -> float:
    return float(squared_distances(rows, centers).min(axis=1).sum())


GROUPS = np.array([[-0.7, -0.7, 0.0], [-0.7, -0.5, 0.0], [0.6, 0.6, 0.3]])


def three_groups(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.clip(GROUPS[rng.integers(3, size=3000)] + 0.03 * rng.standard_normal((3000, 3)), -1, 1)


SHARED = np.array([[-0.7, -0.6, 0.0], [0.58, 0.6, 0.3], [0.62, 0.6, 0.3]])
"""Two groups share a center, while the third has two: Lloyd steps rest here."""

ACROSS = np.repeat([[0.0, 1.0, 0.0]], 3, axis=0)


@pytest.mark.parametrize("d", [1, 2, 6])
def test_halves_together_give_the_step_of_whole_clusters(d: int) -> None:
    rng = np.random.default_rng(d)
    rows, centers = rng.uniform(-1, 1, (500, d)), rng.uniform(-1, 1, (4, d))
    axes = rng.standard_normal((4, d))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    scale, state = scale_of(d, 500), started(centers, 4.0 * np.sqrt(d), 1.0)
    whole, _ = answered(lloyd_round(scale, state, 0.1), with_noise(rows, 1e-9))
    (both, halves), asks = answered(
        halved_round(scale, state, 0.1, axes, every(axes)), with_noise(rows, 1e-9)
    )
    # A cut is 1 % of the radius wide: rows between two clusters may change theirs.
    np.testing.assert_allclose(both.centers, whole.centers, atol=0.05)
    np.testing.assert_allclose(both.found, whole.found, atol=25)
    assert len(asks[0].question.centers) == 8  # type: ignore[attr-defined]
    assert both.count_noise == whole.count_noise and (halves.part == 0.5).all()


def test_a_cluster_that_is_not_cut_has_one_cell_and_its_count_the_noise_of_one() -> None:
    rng = np.random.default_rng(0)
    rows, centers, cut = rng.uniform(-1, 1, (500, 3)), rng.uniform(-1, 1, (4, 3)), np.array([1, 0, 1, 0]) > 0
    scale, state, axes = scale_of(3, 500), started(centers, 7.0, 1.0), next_axes_of(np.ones((4, 3)))
    whole, _ = answered(lloyd_round(scale, state, 0.1), with_noise(rows, 1e-9))
    (some_cut, halves), asks = answered(halved_round(scale, state, 0.1, axes, cut), with_noise(rows, 1e-9))
    assert len(asks[0].question.centers) == 6  # type: ignore[attr-defined]
    np.testing.assert_allclose(some_cut.centers, whole.centers, atol=0.05)
    np.testing.assert_allclose(some_cut.found, whole.found, atol=25)
    assert halves.part.tolist() == [0.5, 1.0, 0.5, 1.0] and ((halves.gain > 0.0) == cut).all()
    alone, _ = answered(halved_round(scale, state, 0.1, axes, cut & False), with_noise(rows, 3.0))
    again, _ = answered(lloyd_round(scale, state, 0.1), with_noise(rows, 3.0))
    for name in some(("centers", "variance", "counts", "found")):
        np.testing.assert_allclose(getattr(alone[0], name), getattr(again, name))


def test_where_a_center_is_empty_counts_get_more_of_the_same_share() -> None:
    (rows, centers, axes), cut = (
        (np.pad(one, ((0, 0), (0, 2))) for one in (three_groups(), SHARED[:2], ACROSS[:2])),
        np.array([True, False]),
    )
    scale, state = scale_of(5, len(rows)), started(centers, 4.0, 1.0)

    def answer(ask: Ask) -> Total:
        exact = ask.question.answer(ClientData(rows), np.random.default_rng(0))
        return Total(exact, (0,), noise_std={name: (ask.weights or {})[name] ** -0.5 for name in exact})

    found = [answered(halved_round(scale, state, 0.1, axes, cut, spare), answer) for spare in (False, True)]
    usual, more = (dict(asks[0].weights or {}) for _, asks in found)
    assert sum(more.values()) == pytest.approx(sum(usual.values())) == pytest.approx(0.1)
    assert more["count"] > 1.5 * usual["count"] and more["distance"] == usual["distance"]
    # Counts are so much surer, in units of a usual round's noise.
    (before, whole), (after, halves) = (one for one, _ in found)
    assert after.count_noise == pytest.approx(before.count_noise) == pytest.approx(usual["count"] ** -0.5)
    np.testing.assert_allclose(halves.part, more["count"] / usual["count"] * whole.part)
    np.testing.assert_allclose(whole.part, [0.5, 1.0])


def test_only_after_hyperplanes_a_center_stays_whole_where_rounds_saw_no_rows() -> None:
    hashed, grid = (seats_of(scale_of(3, 900), SHARED, 4, hashed=one) for one in (True, False))
    counted, rounds = np.array([4e3, 50.0, 70.0, 0.0]), np.array([4.0, 4.0, 4.0, 0.0])
    hashed, grid = (replace(one, counted=counted, rounds=rounds) for one in (hashed, grid))
    # 200, 2.5 and 3.5 deviations; of the last center no round asked yet.
    assert hashed.cut(10.0).tolist() == [True, False, True, True]
    assert grid.cut(10.0).all()


def test_counts_that_a_center_had_elsewhere_are_forgotten() -> None:
    seats = replace(
        seats_of(scale_of(3, 900), SHARED, 3), counted=np.array([900.0, 900.0, 60.0]), rounds=np.full(3, 2.0)
    )
    state = replace(started(SHARED, 1.0, 1.0), found=np.array([20.0, 420.0, 20.0]), count_noise=10.0)
    after = seats.counting(state, 0.5)
    assert after.counted.tolist() == [10.0, 1110.0, 70.0] and after.rounds.tolist() == [0.5, 2.5, 2.5]
    # 450 rows before and 20 now are another place; 30 before and 20 now are noise.
    grid = replace(seats, coreset=replace(seats.coreset, hashed=False)).counting(state, 0.5)
    assert grid.counted.tolist() == [910.0, 1110.0, 70.0]


def test_after_hyperplanes_a_center_without_rows_is_spare() -> None:
    hashed, grid = (seats_of(scale_of(3, 900), SHARED, 4, hashed=one) for one in (True, False))
    centers, rounds = np.concatenate([SHARED, [[0.9, -0.9, -0.9]]]), np.full(4, 4.0)
    full, hollow = (np.array([4e3, 4e3, 4e3, rows]) for rows in (4e2, 3e1))
    assert not hashed.spare(centers, 10.0)
    assert not replace(hashed, counted=full, rounds=rounds).spare(centers, 10.0)
    assert replace(hashed, counted=hollow, rounds=rounds).spare(centers, 10.0)
    assert not replace(grid, counted=hollow, rounds=rounds).spare(centers, 10.0)


def test_a_center_too_many_goes_where_two_groups_share_one() -> None:
    rows = three_groups()
    _, state, new = looked(rows, SHARED, 1.0, ACROSS)
    assert new.all() and cost(rows, state.centers) < 1.01 * cost(rows, GROUPS)


def test_nothing_moves_where_noise_hides_what_it_would_save() -> None:
    _, state, new = looked(three_groups(), SHARED, 400.0, ACROSS)
    assert not new.any() and np.isfinite(state.centers).all()


def test_a_center_without_rows_goes_and_one_with_rows_stays() -> None:
    rows = three_groups()
    centers = np.array([[-0.7, -0.6, 0.0], [0.6, 0.6, 0.3], [0.9, -0.9, -0.9]])
    _, state, new = looked(rows, centers, 1.0, ACROSS)
    assert new[2] and cost(rows, state.centers) < 1.01 * cost(rows, GROUPS)
    held = np.concatenate([rows, np.repeat(centers[2:], 50, axis=0)])
    seats, state, new = looked(held, centers, 1.0, ACROSS)
    assert not new[2] and not new.any() and len(seats.coreset.points) == len(held)


@pytest.mark.parametrize(
    ("weight", "found", "noise", "empty"),
    [
        (36.0, 1.0, 53.0, True),
        (60.0, 2.0, 53.0, False),
        (36.0, 40.0, 53.0, False),
        (36.0, 25.0, 5.0, False),
    ],
)
def test_a_center_is_empty_while_all_counts_together_are_within_their_noise(
    weight: float, found: float, noise: float, empty: bool
) -> None:
    # Together 1.9, 3.2, 2.7 and 10 deviations.
    centers = np.array([[-0.7, -0.6], [0.6, 0.6], [0.9, -0.9]])
    points = Coreset(
        centers,
        np.array([1025.0, 1025.0, weight]),
        0.0,
        single=False,
        hashed=False,
        spent=0.0,
        least=np.full(3, 46.0),
        errors=np.full(3, 16.0),
    )
    seats = Seats(points, 0.01, scale_of(2, 2100), 4.0 * np.array([1e3, 1e3, found]), np.full(3, 4.0))
    assert seats.empty(centers, noise).tolist() == [False, False, empty]
    clipped = replace(seats, scale=replace(seats.scale, count_length=0.5))
    unknown = replace(seats, coreset=replace(points, errors=None))
    assert not clipped.empty(centers, noise).any() and not unknown.empty(centers, noise).any()


@pytest.mark.parametrize("seed", range(20))
def test_without_noise_no_trade_raises_the_cost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    d, k = int(rng.integers(1, 5)), int(rng.integers(3, 9))
    rows = rng.uniform(-1, 1, (k, d))[rng.integers(k, size=600)] + 0.1 * rng.standard_normal((600, d))
    rows = np.clip(rows, -1, 1)
    scale, state = scale_of(d, 600), started(rng.uniform(-1, 1, (k, d)), 4.0 * np.sqrt(d), 1.0)
    axes = next_axes_of(rng.standard_normal((k, d)))
    for _ in range(3):
        asked = state.centers
        (after, halves), _ = answered(
            halved_round(scale, state, 0.1, axes, every(axes)), with_noise(rows, 1e-6)
        )
        _, state, new = traded(scale, seats_of(scale, rows, k), asked, after, halves)
        assert (
            cost(rows, state.centers)
            <= sum(
                ((rows[own] - rows[own].mean(axis=0)) ** 2).sum()
                for own in (squared_distances(rows, asked).argmin(axis=1) == j for j in range(k))
                if own.any()
            )
            * (1.0 + 1e-3)
            + 1e-6
        )
        axes = next_axes(halves, new, rng)
        np.testing.assert_allclose(np.linalg.norm(axes, axis=1), 1.0)
        state = replace(state, radius=4.0 * np.sqrt(d))


def next_axes_of(drawn: np.ndarray) -> np.ndarray:
    unit: np.ndarray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def test_the_first_cut_goes_across_the_main_direction_of_points() -> None:
    scale, rng = scale_of(2, 900), np.random.default_rng(0)
    points = np.concatenate([SHARED[:1, :2] + np.outer(np.linspace(-0.1, 0.1, 9), [0.6, 0.8]), [[0.9, 0.9]]])
    axes = first_axes(seats_of(scale, points, 2).coreset, np.array([SHARED[0, :2], [0.9, 0.9]]), rng)
    assert abs(axes[0] @ [0.6, 0.8]) == pytest.approx(1.0)
    np.testing.assert_allclose(np.linalg.norm(axes, axis=1), 1.0)


def test_rounds_ask_of_halves_only_where_it_pays() -> None:
    scale, points = scale_of(3, 1e5), np.random.default_rng(0).uniform(-1, 1, (20, 3))
    assert may(scale, LEAST_ROUNDS, 4) and not may(scale, LEAST_ROUNDS - 1, 4)
    assert not may(scale, LEAST_ROUNDS, 2) and not may(replace(scale, count_length=0.5), LEAST_ROUNDS, 4)
    share = (1.0 - scale.spent) / LEAST_ROUNDS
    hashed, grid = (seats_of(scale, points, 4, hashed=one) for one in (True, False))
    assert pays(scale, hashed, share, False) and pays(scale, grid, share, False)
    # With more noise after a grid a late round does, if rounds found no rows for a center.
    noisy, rounds = scale_of(3, 500.0, 0.01), np.full(4, 4.0)
    assert not pays(noisy, grid, share, False) and pays(noisy, grid, share, True)
    assert not pays(noisy, replace(grid, counted=np.full(4, 1e5), rounds=rounds), share, True)


def test_across_a_line_halves_are_asked_once_rounds_find_no_rows_for_a_center() -> None:
    scale, points = scale_of(3, 1e5), np.random.default_rng(0).uniform(-1, 1, (20, 3))
    share = (1.0 - scale.spent) / LEAST_ROUNDS
    noise = scale.count_noise(share, count_share(3))
    shown, few = (seats_of(scale, points, k, sliced=True) for k in (4, 21))
    rounds = np.full(4, 2.0)
    held, hollow = (
        replace(shown, counted=np.array([9e3, 9e3, 9e3, n * noise]), rounds=rounds) for n in (3, 2)
    )
    assert not pays(scale, held, share, False)
    assert all(pays(scale, one, share, False) for one in (hollow, shown, few))


def test_two_centers_without_rows_go_to_two_pairs_of_groups_at_once() -> None:
    pairs = np.array([[-0.9, -0.6, 0], [-0.5, -0.6, 0], [0.4, 0.6, 0], [0.8, 0.6, 0]])
    rng = np.random.default_rng(1)
    rows = np.repeat(pairs, 300, axis=0) + 0.02 * rng.standard_normal((1200, 3))
    centers = np.array([[-0.7, -0.6, 0], [0.6, 0.6, 0], [0.9, -0.9, -0.9], [0.9, -0.9, 0.9]])
    scale, axes = scale_of(3, 1200), next_axes_of(np.tile([1.0, 0.1, 0.0], (4, 1)))
    counted, asked = 4.0 * np.array([600.0, 600.0, 0.0, 0.0]), started(centers, 2.0, 1.0)
    seats = replace(seats_of(scale, rows, 4), counted=counted, rounds=np.full(4, 4.0))
    (state, halves), _ = answered(halved_round(scale, asked, 0.1, axes, every(axes)), with_noise(rows, 1.0))
    _, state, new = traded(scale, seats, centers, state, halves)
    assert new.all() and cost(rows, state.centers) < 1.05 * cost(rows, pairs)


def test_some_but_not_the_last_round_asks_of_halves() -> None:
    for rounds in some(range(LEAST_ROUNDS, 9)):
        assert not asked_in(rounds - 1, rounds) and any(asked_in(one, rounds) for one in range(rounds))


@pytest.mark.parametrize("seed", range(6))
def test_groups_that_no_hyperplane_through_the_center_parts_get_a_center_each(seed: int) -> None:
    rng = np.random.default_rng(3)
    best = np.concatenate([sign * 0.8 + 0.05 * rng.uniform(-1, 1, (2, 4)) for sign in (-1.0, 1.0)])
    rows = best[rng.integers(4, size=4000)] + 0.005 * rng.standard_normal((4000, 4))
    budget = 1.0
    terms = PrivacyTerms(
        epsilon=1.0, delta=1e-6, unit=Unit.RECORD, neighbours="add-remove", noise="distributed", budget=budget
    )
    noise = np.random.default_rng(seed)

    def answer(ask: Ask) -> Total:
        exact, bounds = ask.question.answer(ClientData(rows), noise), ask.question.bounds  # type: ignore[attr-defined]
        std = {name: bounds[name].l2 / np.sqrt((ask.weights or {})[name] * budget) for name in exact}
        noised = {name: exact[name] + std[name] * noise.standard_normal(exact[name].shape) for name in exact}
        return Total(Statistics(**noised), (0,), noise_std=std)

    running = PrivateKMeans(n_clusters=4, seed=seed).run(Setting(("0",), 4, Box(-1, 1), privacy=terms))
    outcome, asks = answered(running, answer)
    rounds = [len(ask.question.centers) for ask in asks if isinstance(ask.question, RelativeSums)]
    assert len(rounds) == 8 and rounds[-1] == 4 and all(4 <= one <= 8 for one in rounds)
    assert sum(one > 4 for one in rounds) >= 3
    assert sum(sum((ask.weights or {}).values()) for ask in asks) == pytest.approx(1.0)
    assert cost(rows, outcome.centers) < 1.2 * cost(rows, best)
