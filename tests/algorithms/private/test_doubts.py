"""Rounds that ask of doubtful points: the same cost, and a center for those that hold rows."""

from dataclasses import replace

import numpy as np
import pytest

from privfed.algorithms.private.doubts import doubted, doubting_round, settled, wanted
from privfed.algorithms.private.halves import Seats
from privfed.algorithms.private.kmeans import PrivateKMeans
from privfed.algorithms.private.noised_rounds import State, started
from privfed.algorithms.private.points import Coreset, Doubts
from privfed.core.agreed.configuration import PrivacyTerms
from privfed.core.roles.conversation import Setting
from privfed.core.values.domain import Box
from privfed.core.values.guarantee import Neighbours, Noise, Unit
from tests.algorithms.private.test_halves import answered, cost, scale_of, with_noise
from tests.algorithms.private.test_private_kmeans import driven, noisy

GROUPS, NOISE = np.array([[-0.7, -0.7], [0.6, 0.6], [0.7, -0.7]]), 20.0
CENTERS = np.array([[-0.7, -0.72], [-0.7, -0.68], [0.6, 0.6]])


def rows_of() -> np.ndarray:
    rng = np.random.default_rng(0)
    sizes = ((GROUPS[0], 2000), (GROUPS[1], 2000), (GROUPS[2], 150))
    return np.concatenate([group + 0.03 * rng.standard_normal((n, 2)) for group, n in sizes])


def coreset_of(doubtful: list[list[float]]) -> Coreset:
    points, n = np.concatenate([CENTERS, np.array(doubtful)]), 3 + len(doubtful)
    weights, sizes = np.r_[1000.0, 1000.0, 2000.0, np.full(n - 3, 45.0)], np.full(n, 0.1)
    least, errors = np.full(n, 48.0), np.full(n, 16.0)
    return Coreset(points, weights, 0.0, False, False, 0.0, sizes=sizes, least=least, errors=errors)


def seats_of(doubtful: list[list[float]]) -> Seats:
    scale, none = scale_of(2, 4150), np.zeros(3)
    found = doubted(scale, coreset_of(doubtful), 3, 0.1)
    assert found is not None and found.least is not None
    sure = found.only(found.weights >= found.least)
    return Seats(sure, 0.01, scale, none, none)


def after_a_round(doubtful: list[list[float]], std: float) -> tuple[Seats, State, np.ndarray]:
    seats, state = seats_of(doubtful), started(CENTERS, 0.5, 0.01)
    probed = wanted(seats, state, NOISE)
    conversation = doubting_round(seats.scale, seats, state, 0.1, probed)
    (seats, state, part), asks = answered(conversation, with_noise(rows_of(), std))
    assert len(asks) == 1 and sum((asks[0].weights or {}).values()) == pytest.approx(0.1)
    assert asks[0].question.n_cells == 3 + len(probed)  # type: ignore[attr-defined]
    return settled(seats.counting(state, part), CENTERS, replace(state, count_noise=NOISE), probed)


def test_a_doubtful_point_with_rows_gets_the_center_that_is_missed_least() -> None:
    seats, state, new = after_a_round([[0.7, -0.65], [0.2, -0.1]], 5.0)
    assert new.tolist() == [True, True, False]
    assert cost(rows_of(), state.centers) < 1.1 * cost(rows_of(), GROUPS)
    assert seats.coreset.doubts is not None and len(seats.coreset.doubts.rows) == 1
    assert len(seats.coreset.points) == 4


def test_a_point_that_noise_made_gets_none_and_is_given_up() -> None:
    seats, state, new = after_a_round([[-0.2, 0.9]], 5.0)
    assert not new.any() and len(seats.coreset.points) == 3
    assert not len(wanted(seats, state, NOISE))


def test_no_more_points_are_asked_of_than_there_are_centers_and_none_for_which_none_would_move() -> None:
    state, places = started(CENTERS, 0.5, 0.01), [[0.9, y] for y in (-0.9, -0.3, 0.1, 0.3, 0.95)]
    assert 0 < len(wanted(seats_of(places), state, NOISE)) <= 3
    apart = replace(state, centers=GROUPS)
    assert not len(wanted(seats_of([[0.62, 0.6]]), apart, NOISE))


def test_with_much_noise_and_for_whole_clients_no_point_is_asked_of() -> None:
    scale, found = scale_of(2, 4150), coreset_of([[0.0, 0.0]])
    assert doubted(scale, found, 3, 0.1) is not None
    assert doubted(replace(scale, n_rows=100.0), found, 3, 0.1) is None
    assert doubted(replace(scale, count_length=0.5), found, 3, 0.1) is None
    assert doubted(scale, replace(found, errors=None), 3, 0.1) is None


def test_counts_of_a_point_weigh_as_their_noise_says() -> None:
    doubts = Doubts(np.zeros((1, 2)), np.array([30.0]), np.array([0.01]), np.array([3.5]))
    assert doubts.above.tolist() == [3.0]
    assert doubts.joined(doubts).rows.tolist() == [30.0, 30.0]


@pytest.mark.slow
def test_small_groups_far_from_dense_ones_are_found() -> None:
    rng = np.random.default_rng(5)
    dense = np.array([(-0.9, -0.2), (-0.75, 0.35), (-0.6, -0.1)])
    sparse = np.array([(0.3, 0.8), (0.9, 0.75), (0.4, -0.75), (0.95, -0.7), (0.65, 0.05)])
    rows = [center + 0.03 * rng.standard_normal((2000, 2)) for center in dense]
    rows += [center + 0.06 * rng.standard_normal((100, 2)) for center in sparse]
    data, best = np.clip(np.concatenate(rows), -1, 1), np.concatenate([dense, sparse])
    terms = PrivacyTerms(
        epsilon=0.5,
        delta=1e-6,
        unit=Unit.RECORD,
        neighbours=Neighbours.ADD_REMOVE,
        noise=Noise.DISTRIBUTED,
        budget=0.0154,
    )
    place, found = Setting(("0",), 2, Box(-1, 1), privacy=terms), list[float]()
    for seed in range(20):
        algorithm = PrivateKMeans(n_clusters=8, seed=seed)
        outcome, _ = driven(algorithm.run(place), noisy(data, terms.budget, seed))
        found.append(cost(data, outcome.centers) / cost(data, best))
    assert np.median(found) < 1.3
