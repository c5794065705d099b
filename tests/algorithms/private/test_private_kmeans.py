"""k-means from noised sums: plans, coresets, rounds, and clients in the place of records."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.private_baselines import packed
from privfed.algorithms.private.clients import by_client
from privfed.algorithms.private.coreset import (
    clustered,
    count_share,
    denoised,
    reaching,
    slabbed,
    wide_clusters,
)
from privfed.algorithms.private.halves import Seats
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.noised_rounds import lloyd_round, started, wanted_radius
from privfed.algorithms.private.points import Coreset
from privfed.algorithms.private.scale import Frame, Scale, clipped, frame_of
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.conversation import Ask, Setting, Total
from privfed.core.values.domain import Ball, Box, Domain, Ranges
from privfed.core.values.guarantee import Unit
from privfed.errors import PrivacyError
from privfed.numerics.kernels.interpreted import squared_distances
from privfed.questions.bounded.shells import SlabSums
from privfed.questions.client_sizes import ClientSizes, typical_size

RNG = np.random.default_rng(1)
CENTERS = np.array([[-0.6, -0.5], [0.6, -0.5], [0.0, 0.6]])
ROWS = np.clip(CENTERS[RNG.integers(3, size=4000)] + 0.1 * RNG.standard_normal((4000, 2)), -1, 1)


def setting(
    domain: Domain | None, unit: Any = "record", neighbours: Any = "add-remove", d: int = 2
) -> Setting:
    terms = PrivacyTerms(
        epsilon=1.0, delta=1e-6, unit=Unit(unit), neighbours=neighbours, noise="distributed", budget=0.05
    )
    return Setting(("0",), d, domain, privacy=terms)


def scale_of(d: int = 2, n_rows: float = 4000.0, budget: float = 1.0, **words: Any) -> Scale:
    ranges = Ranges(np.full(d, -1.0), np.full(d, 1.0), 1 << 20)
    frame = Frame(ranges, np.zeros(d), float(np.sqrt(d)))
    return replace(Scale(frame, budget, False, n_rows, np.zeros(d), 1.0, 0.065), **words)


@pytest.mark.parametrize(
    ("end", "far", "budget", "noise", "radius"),
    [
        (0.9, 1000.0, 1.0, 50.0, 0.9),
        (0.9, 1000.0, 1e-6, 50.0, 0.01),  # Noise is dearer than what these rows cost.
        (0.9, 1000.0, 1.0, 250.0, 0.01),  # They may be noise.
        (0.025, 1000.0, 1.0, 50.0, 0.01),  # They are the tail of the others.
        (0.031, 500.0, 1.0, 50.0, 0.01),  # They cost less than a center of the others saves.
    ],
)
def test_far_rows_that_were_seen_lengthen_the_radius_where_they_cost_more_than_noise_and_a_center(
    end: float, far: float, budget: float, noise: float, radius: float
) -> None:
    shells = np.array([[end, 0.01], [end, 0.01], [far, 19_000.0]])
    scale = scale_of(6, 20_000.0, budget, radius=0.01, shells=shells, shell_noise=noise)
    assert reaching(scale, 4).radius == radius


def total_of(ask: Ask, rows: np.ndarray, std: float = 1e-6) -> Total:
    """Answer exactly, and say that there is some noise."""
    answer = ask.question.answer(ClientData(rows), np.random.default_rng(0))
    return Total(answer, (0,), noise_std={name: std for name in answer})


def driven(conversation: Any, answer: Callable[[Ask], Total]) -> tuple[Any, list[Ask]]:
    asks = [next(conversation)]
    try:
        while True:
            asks.append(conversation.send(answer(asks[-1])))
    except StopIteration as finished:
        return finished.value, asks


@pytest.mark.parametrize("domain", [Box(-1, 1), Box([-1, -3], [1, 2]), Ball(1.6)])
@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_without_noise_it_finds_the_clusters_and_spends_all_of_its_budget(
    domain: Domain, neighbours: str
) -> None:
    algorithm = PrivateKMeans(n_clusters=3)
    outcome, asks = driven(
        algorithm.run(setting(domain, neighbours=neighbours)), lambda ask: total_of(ask, ROWS)
    )
    found = outcome.centers[np.argsort(outcome.centers[:, 0])]
    np.testing.assert_allclose(found, CENTERS[np.argsort(CENTERS[:, 0])], atol=0.02)
    shares = [sum((ask.weights or {}).values()) for ask in asks]
    assert sum(shares) == pytest.approx(1.0) and len(asks) <= algorithm.max_sums
    assert len(outcome.history) - 1 == sum(ask.purpose == "round" for ask in asks)


def noisy(rows: np.ndarray, budget: float, seed: int) -> Callable[[Ask], Total]:
    """Answer with the noise that the weights of a question pay for."""
    rng = np.random.default_rng(seed)

    def answer(ask: Ask) -> Total:
        exact = ask.question.answer(ClientData(rows), rng)
        bounds = ask.question.bounds  # type: ignore[attr-defined]
        std = {name: bounds[name].l2 / np.sqrt((ask.weights or {})[name] * budget) for name in exact}
        return Total(
            Statistics(
                **{name: exact[name] + rng.normal(0.0, std[name], exact[name].shape) for name in exact}
            ),
            (0,),
            noise_std=std,
        )

    return answer


def relative_cost(rows: np.ndarray, centers: np.ndarray, best: np.ndarray) -> float:
    return float(squared_distances(rows, centers).min(1).sum() / squared_distances(rows, best).min(1).sum())


@pytest.mark.parametrize("d", [2, 3, 8])
def test_rows_in_a_corner_of_the_domain_are_clustered_as_well_as_rows_that_fill_it(d: int) -> None:
    rng = np.random.default_rng(7)
    best = 0.6 + 0.005 * rng.uniform(-1, 1, (4, d))
    rows = best[rng.integers(4, size=5000)] + 0.0005 * rng.standard_normal((5000, d))
    algorithm = PrivateKMeans(n_clusters=4)
    found = [
        driven(algorithm.run(setting(Box(-1, 1), d=d)), noisy(rows, 0.056, seed))[0].centers
        for seed in range(5)
    ]
    assert np.median([relative_cost(rows, centers, best) for centers in found]) < 1.02


@pytest.mark.parametrize("budget", [0.0147, 0.056, 0.7])
def test_rows_along_a_line_are_cut_into_slabs_across_it(budget: float) -> None:
    rng = np.random.default_rng(11)
    direction = rng.standard_normal(20) / np.sqrt(20.0)
    best = np.linspace(-2.0, 2.0, 8)[:, None] * direction
    rows = best[rng.integers(8, size=5000)] + 0.06 * rng.standard_normal((5000, 1)) * direction
    algorithm, found = PrivateKMeans(n_clusters=8), []
    for seed in range(5):
        outcome, asks = driven(algorithm.run(setting(Box(-1, 1), d=20)), noisy(rows, budget, seed))
        assert sum(isinstance(ask.question, SlabSums) for ask in asks) == 1
        found.append(relative_cost(rows, outcome.centers, best))
    assert max(found) < 1.1


def test_clusters_within_clusters_are_found_by_cutting_cells() -> None:
    rng = np.random.default_rng(3)
    groups = np.array([[-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]])
    best = (groups[:, None] + 0.03 * np.array([[1.0, 0.0], [-1.0, 0.5], [0.0, -1.0]])).reshape(-1, 2)
    rows = best[rng.integers(9, size=6000)] + 0.004 * rng.standard_normal((6000, 2))
    algorithm, found = PrivateKMeans(n_clusters=9), []
    for seed in range(5):
        outcome, asks = driven(algorithm.run(setting(Box(-1, 1))), noisy(rows, 0.7, seed))
        assert sum(getattr(ask.question, "cuts", None) is not None for ask in asks) == 1
        assert sum(sum((ask.weights or {}).values()) for ask in asks) == pytest.approx(1.0)
        found.append(relative_cost(rows, outcome.centers, best))
    assert np.median(found) < 1.05


def test_no_cluster_of_noise_is_left_where_there_is_budget_for_rounds() -> None:
    rng = np.random.default_rng(1)
    groups = np.array([[-0.8, -0.8], [0.8, 0.8], [-0.8, 0.8]])
    best = np.concatenate([group + 0.04 * rng.uniform(-1, 1, (3, 2)) for group in groups])
    rows = best[rng.integers(9, size=6000)] + 0.004 * rng.standard_normal((6000, 2))
    algorithm = PrivateKMeans(n_clusters=9)
    found = [
        driven(algorithm.run(setting(Box(-1, 1))), noisy(rows, 0.7, seed))[0].centers for seed in range(8)
    ]
    assert max(relative_cost(rows, centers, best) for centers in found) < 1.05


def seats_of(points: np.ndarray, weights: np.ndarray, k: int) -> Seats:
    none = np.zeros(k)
    least = np.zeros(len(points))
    found = Coreset(points, weights, 0.0, single=False, hashed=False, spent=0.0, least=least)
    return Seats(found, 0.01, scale_of(), none, none)


def test_an_empty_center_moves_to_where_the_coreset_has_rows_and_the_others_stay() -> None:
    points = np.concatenate(
        [center + 0.02 * RNG.standard_normal((10, 2)) for center in CENTERS] + [[[0.9, 0.9]]]
    )
    weights = np.r_[np.full(30, 50.0), 20.0]
    centers = np.array([[-0.61, -0.5], [0.3, 0.05], [0.9, 0.9]])
    before = started(centers, 1.0, 0.01)
    told = replace(before, found=np.array([500.0, 1000.0, 1.0]), count_noise=5.0)
    counted = seats_of(points, weights, 3).counting(told, 1.0)
    seats, after, new = counted.after(centers, told, np.random.default_rng(0))
    assert len(seats.coreset.points) == 30 and new.tolist() == [False, True, True]
    np.testing.assert_array_equal(after.centers[0], centers[0])
    assert np.linalg.norm(after.centers[1:][:, None] - CENTERS[1:], axis=2).min(axis=0).max() < 0.05


@pytest.mark.parametrize(("rows", "noise"), [(1.0, 100.0), (60.0, 20.0)])
def test_a_center_that_only_noise_may_make_empty_stays(rows: float, noise: float) -> None:
    # The coreset's count is not much larger than the noise; or the round has found rows.
    points = np.concatenate([CENTERS, CENTERS + 0.01])
    told = replace(started(CENTERS, 1.0, 0.01), found=np.array([200.0, 200.0, rows]), count_noise=noise)
    seats = seats_of(points, np.array([100.0, 100.0, 50.0] * 2), 3)
    found, after, new = seats.after(CENTERS, told, np.random.default_rng(0))
    assert not new.any() and len(found.coreset.points) == 6
    np.testing.assert_array_equal(after.centers, CENTERS)


def test_a_cell_that_noise_alone_fills_becomes_no_cluster() -> None:
    points = np.concatenate([0.01 * RNG.standard_normal((40, 2)), [[0.9, 0.9]]])
    weights, least = np.r_[np.full(40, 50.0), 12.0], np.full(41, 15.0)
    found = Coreset(points, weights, 0.0, single=False, hashed=False, spent=0.0)
    for one, inside in ((found, False), (replace(found, least=least), True)):
        reach = np.abs(clustered(scale_of(), one, 3, np.random.default_rng(0))).max()
        assert reach < 0.1 if inside else reach > 0.5


@pytest.mark.parametrize("epsilon_budget", [0.0008, 0.056])
def test_radii_grow_where_noise_is_low(epsilon_budget: float) -> None:
    scale = scale_of(3, n_rows=5000.0, budget=epsilon_budget)
    radius = wanted_radius(scale, 0.1, 0.1, 4)
    assert 0.1 < radius <= 0.3 * 1.7 and radius <= wanted_radius(replace(scale, budget=1.0), 0.1, 0.1, 4)


def test_many_dimensions_get_a_wide_round() -> None:
    centers = RNG.uniform(-0.7, 0.7, (4, 6))
    rows = np.clip(centers[RNG.integers(4, size=20_000)] + 0.1 * RNG.standard_normal((20_000, 6)), -1, 1)
    algorithm = PrivateKMeans(n_clusters=4)
    outcome, asks = driven(algorithm.run(setting(Box(-1, 1), d=6)), lambda ask: total_of(ask, rows, std=1.0))
    assert [ask.purpose for ask in asks].count("wide") == 1
    nearest = np.linalg.norm(centers[:, None] - outcome.centers, axis=2).min(axis=1)
    assert nearest.max() < 0.1


def test_a_wide_round_is_planned_where_there_are_rows_for_it() -> None:
    assert wide_clusters(scale_of(8, 1e5), 4) and not wide_clusters(scale_of(8, 40.0), 4)
    assert not wide_clusters(scale_of(2, 1e5), 4)


@pytest.mark.parametrize("replaced", [False, True])
def test_predicted_noise_falls_with_the_budget_and_grows_where_a_record_is_replaced(replaced: bool) -> None:
    scale, share = scale_of(5, replaced=replaced), count_share(5)
    assert scale_of(5, budget=4.0, replaced=replaced).noise(0.1, share) == scale.noise(0.1, share) / 2.0
    assert replace(scale, sum_length=0.5).noise(0.1, share) == scale.noise(0.1, share) / 2.0
    assert replace(scale, count_length=0.5).count_noise(0.1, share) == scale.count_noise(0.1, share) / 2.0
    assert scale.noise(0.1, share) >= scale_of(5).noise(0.1, share)


def round_of(statistics: Statistics, std: float, centers: np.ndarray) -> Any:
    noise = {"count": std, "sum": std, "distance": std}
    conversation = lloyd_round(scale_of(), started(centers, 0.5, 0.01), 0.1)
    return driven(conversation, lambda ask: Total(statistics, (0,), noise_std=noise))[0]


def test_a_center_follows_its_step_as_far_as_it_is_more_than_noise() -> None:
    centers = np.array([[0.0, 0.0], [0.5, 0.5]])
    sums = Statistics(count=[1000.0, 1000.0], sum=[[100.0, 0.0], [0.0, 0.0]], distance=[400.0])
    sure, unsure = (round_of(sums, std, centers) for std in (1e-3, 150.0))
    np.testing.assert_allclose(sure.centers, [[0.1, 0.0], [0.5, 0.5]], atol=1e-6)
    assert 0.0 < unsure.centers[0, 0] < 0.06 and (unsure.gain < sure.gain).all()
    assert sure.radius < 0.5 == round_of(sums, 1e6, centers).radius


def test_a_center_of_fewer_rows_than_noise_stays() -> None:
    centers = np.array([[0.0, 0.0], [0.5, 0.5]])
    sums = Statistics(count=[-3.0, 19.0], sum=[[8.0, 8.0], [8.0, 8.0]], distance=[400.0])
    moved = round_of(sums, 10.0, centers)
    np.testing.assert_array_equal(moved.centers, centers)
    np.testing.assert_array_equal(moved.variance, 0.01)


def test_shrinking_singular_values_finds_what_is_below_noise() -> None:
    true = 30.0 * np.outer(RNG.standard_normal(60), RNG.standard_normal(12)) / np.sqrt(60)
    noisy = true + RNG.standard_normal((60, 12))
    assert np.linalg.norm(denoised(noisy, 1.0) - true) < 0.6 * np.linalg.norm(noisy - true)
    assert np.abs(denoised(0.5 * RNG.standard_normal((60, 12)), 1.0)).max() == 0.0


def test_clipping_makes_no_vector_longer_and_turns_none() -> None:
    vectors = RNG.standard_normal((50, 3))
    short = clipped(vectors, 0.7)
    lengths = np.linalg.norm(short, axis=1)
    assert lengths.max() <= 0.7 + 1e-12
    np.testing.assert_allclose(np.cross(short, vectors), 0.0, atol=1e-12)
    assert (clipped(np.zeros((2, 3)), 0.7) == 0.0).all()


@pytest.mark.parametrize("k", [1, 5, 40])
def test_packed_centers_lie_in_the_domain_and_apart(k: int) -> None:
    frame = frame_of(setting(Box([-1, 0], [1, 5])))
    centers = packed(frame, k, np.random.default_rng(0))
    assert ((centers >= frame.ranges.low) & (centers <= frame.ranges.high)).all()
    gaps = np.linalg.norm(centers[:, None] - centers, axis=2)[~np.eye(k, dtype=bool)]
    assert k == 1 or gaps.min() > 1e-3


def test_a_typical_size_is_found_among_bins_of_noise() -> None:
    ranges = Ranges([0.0], [1.0], 1 << 20)
    counts = 30.0 * RNG.standard_normal(ClientSizes(ranges=ranges).spec.size)
    counts[7] += 1000.0  # 2^3.5 rows
    total = Total(Statistics(clients=counts), (0,), noise_std={"clients": 30.0})
    assert driven(typical_size(ranges), lambda ask: total)[0] == 2.0**3.5


def test_clients_in_the_place_of_records_spend_the_share_and_bound_each_entry() -> None:
    scale = scale_of()
    conversation = lloyd_round(scale, started(CENTERS, 0.5, 0.01), 0.4)
    _, asks = driven(by_client(conversation, 50.0, 0.9), lambda ask: total_of(ask, ROWS))
    assert sum((asks[0].weights or {}).values()) == pytest.approx(0.36)
    assert asks[0].limits is not None and set(asks[0].limits) == set(asks[0].weights or {})


def test_it_needs_privacy_and_a_domain() -> None:
    with pytest.raises(PrivacyError, match="privacy=Privacy"):
        next(PrivateKMeans(n_clusters=2).run(Setting(("0",), 2, Box(-1, 1))))


def test_points_of_slabs_lie_in_their_slabs_beyond_the_clipping_radius_too() -> None:
    """Rows at the ends of a line are longer than the radius: their slab says where they are."""
    ends = np.array([[-2.0], [0.0], [2.0]]) * np.full(4, 0.5)
    rows = np.repeat(ends, [100, 800, 100], axis=0)
    scale = scale_of(d=4, n_rows=1000.0, budget=1e6)
    first = Coreset(ends, np.array([100.0, 800.0, 100.0]), 1e-6, False, True, 0.2)
    found, asks = driven(slabbed(scale, first, 3), noisy(rows, 1e6, 0))
    (question,) = (ask.question for ask in asks)
    assert isinstance(question, SlabSums)
    width = 2.0 * question.reach / question.n_slabs
    along = np.sort(found.points @ np.full(4, 0.5))
    # The outermost slabs have no outer border: their points lie at the inner one at least.
    assert along[0] <= -question.reach + width + 1e-9 and along[-1] >= question.reach - width - 1e-9
