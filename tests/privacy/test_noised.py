"""The contract of a noised question: its grid, its clipping, its ranges, and whose noise is whose."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.algorithms.weightings import name_of
from privfed.algorithms.wf_kmeans import WeightedCentroids
from privfed.core.asking.question import ClientData, Question, QuestionMessage, question_from_bytes
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.stored.encoding import Array
from privfed.core.values.domain import Ranges
from privfed.errors import ArgumentError, MessageError
from privfed.numerics.kmeans import LocalUpdate
from privfed.privacy.bounds import STEPS_OF_A_BOUND
from privfed.privacy.noised import MOST_STEPS, TAIL, Noised
from privfed.questions.bounded.bounded_sums import GridSums, RelativeSums
from privfed.questions.lloyd import LloydSums
from privfed.questions.slots import Slots
from tests.core.question_examples import EXAMPLES
from tests.seeded import seeded
from tests.some import some

RANGES = Ranges([-1.0, -1.0], [1.0, 1.0], 20)
CENTERS = np.array([[-0.5, 0.0], [0.5, 0.0], [0.0, 0.9]])
WIDE = Ranges([-1.0, -1.0], [1.0, 2.0], 20)
RECORDS = RelativeSums(ranges=RANGES, centers=CENTERS, radius=0.7)
CLIENTS = LloydSums(ranges=RANGES, centers=CENTERS)
LIMITS = np.array([2.0, 0.7])

# Skellam noise has at least 1024 steps.
SIGMAS = st.lists(st.floats(1024.0, 2.0**40), min_size=3, max_size=3)
MECHANISMS = st.sampled_from(["gaussian", "skellam"])
SEEDS = st.integers(0, 2**32 - 1)


def noised(
    inner: Question = RECORDS,
    sigma: Any = 2e3,
    limits: Any = (),
    mechanism: str = "gaussian",
) -> Noised:
    sigmas = np.broadcast_to(np.asarray(sigma, dtype=np.float64), len(inner.spec.entries)).copy()
    return Noised(
        ranges=inner.ranges,
        inner=inner,
        sigma=sigmas,
        limits=np.array(limits, dtype=np.float64),
        mechanism=mechanism,
    )


def data(seed: int, n: int = 15) -> ClientData:
    return ClientData(np.random.default_rng(seed).uniform(-1, 1, (n, 2)))


def answered(question: Noised, rows: ClientData, seed: int = 0) -> np.ndarray:
    """Return a client's flat answer, in steps of each value."""
    answer = question.answer(rows, seeded(seed))
    return question.spec.flatten(answer) / question.spec.resolution


@given(SIGMAS, SEEDS, MECHANISMS)
def test_answers_lie_on_the_grid_and_in_the_ranges_of_the_specification(
    sigma: list[float], seed: int, mechanism: str
) -> None:
    question = noised(sigma=sigma, mechanism=mechanism)
    answer = question.spec.flatten(question.answer(data(seed), seeded(seed)))
    assert (answer % np.repeat(question.steps, [3, 6, 1]) == 0).all()
    assert question.spec.holds(answer)


@given(SIGMAS, SEEDS, MECHANISMS)
def test_noise_is_added_to_the_exact_answer_and_does_not_depend_on_it(
    sigma: list[float], seed: int, mechanism: str
) -> None:
    question = noised(sigma=sigma, mechanism=mechanism)
    one, other = data(seed), data(seed + 1, 4)
    exact = [
        question.inner.spec.flatten(RECORDS.answer(rows, np.random.default_rng(0))) for rows in (one, other)
    ]
    apart = answered(question, one, seed) - answered(question, other, seed)
    assert np.array_equal(apart, (exact[0] - exact[1]) / question.spec.resolution)


def test_answers_beyond_the_ranges_are_clipped_into_them() -> None:
    # Three times as many rows as were declared.
    crowded = ClientData(np.full((60, 2), 0.3))
    question = noised(replace(RECORDS, centers=np.zeros((1, 2)), radius=0.5))
    # One row in the middle: a count of 1. A seeded run's noise follows from the seed alone.
    noise = (
        answered(question, ClientData(np.zeros((1, 2)))) - np.array([1, 0, 0, 0]) / question.spec.resolution
    )
    exact = (answered(question, crowded) - noise) * question.spec.resolution
    assert exact.tolist() == [20.0, 20 * 0.5, 20 * 0.5, 20 * 0.5]


@given(st.integers(0, 1000), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_a_clients_entries_are_shortened_to_their_limits_and_truncated(
    seed: int, first: float, second: float
) -> None:
    question = noised(CLIENTS, limits=[first, second])
    exact = question._limited(
        question.inner.spec.flatten(CLIENTS.answer(data(seed), np.random.default_rng(0)))[None], [data(seed)]
    )
    assert np.array_equal(exact, np.trunc(exact))
    raw = CLIENTS.answer(data(seed), np.random.default_rng(0))
    for part, name, limit, step in zip(
        np.split(exact[0], [3]), ("count", "sum"), (first, second), question.steps, strict=True
    ):
        whole = raw[name].ravel()
        wanted = whole * min(1.0, limit / np.linalg.norm(whole))
        assert np.linalg.norm(part) * step <= limit
        # Toward zero, by less than a step (and the hair by which limits are kept).
        assert (np.abs(part * step) <= np.abs(wanted) * (1 + 1e-12)).all()
        assert (np.abs(wanted) - np.abs(part * step) < step * (1 + 1e-5)).all()


def test_a_client_without_an_answer_is_left_at_zero_by_its_limit() -> None:
    question = noised(CLIENTS, limits=LIMITS)
    assert np.array_equal(question._limited(np.zeros((2, 9)), [data(0)] * 2), np.zeros((2, 9)))


@given(SIGMAS)
def test_ranges_reach_forty_standard_deviations_beyond_those_of_the_answer(sigma: list[float]) -> None:
    question = noised(sigma=sigma)
    assert [entry.name for entry in question.spec.entries] == ["count", "sum", "distance"]
    for entry, inner, own, step in zip(
        question.spec.entries, RECORDS.spec.entries, sigma, question.steps, strict=True
    ):
        assert entry.shape == inner.shape
        assert (np.asarray(entry.resolution) == step).all()
        for end, bound, sign in ((entry.low, inner.low, -1), (entry.high, inner.high, 1)):
            reach = sign * (np.asarray(end) - np.asarray(bound)) / step
            assert ((TAIL * own - 1 <= reach) & (reach < TAIL * own + 1)).all()


@pytest.mark.parametrize("slots", [None, 3])
def test_an_error_of_a_users_weighting_does_not_show(slots: int | None) -> None:
    """Also where a deviating coordinator asks bare for weights that estimators wrap."""

    def weights(update: LocalUpdate) -> np.ndarray:
        return update.counts if update.counts.min() > 0 else np.ones(1 // 0)

    inner: Question = WeightedCentroids(
        ranges=RANGES,
        centers=CENTERS[:2],
        local_iter=1,
        weights=name_of(weights),
    )
    inner = inner if slots is None else Slots(ranges=RANGES, inner=inner, slots=slots)
    for far in (0.5, -0.4):
        rows = ClientData(np.array([[-0.5, 0.0], [far, 0.0]]))
        assert np.isfinite(answered(noised(inner, limits=(2.0, 2.0)), rows)).all()


def test_limits_narrow_the_ranges_and_set_the_grid() -> None:
    question = noised(CLIENTS, sigma=5.0, limits=LIMITS)
    assert question.steps.tolist() == [2.0**-19, 2.0**-21]
    assert (LIMITS / question.steps >= STEPS_OF_A_BOUND).all()
    count, sums = question.spec.entries
    # Counts are not negative; what a limit allows is less than twenty rows.
    assert np.unique(count.low).tolist() == [-200 * 2.0**-19]
    assert np.unique(count.high).tolist() == [2.0 + 200 * 2.0**-19]
    assert np.unique(sums.high) == pytest.approx(0.7, abs=202 * 2.0**-21)


@pytest.mark.parametrize("mechanism", ["gaussian", "skellam"])
@pytest.mark.parametrize(("inner", "limits"), [(RECORDS, ()), (CLIENTS, LIMITS)], ids=["record", "client"])
def test_a_noised_question_travels(inner: Question, limits: Any, mechanism: str) -> None:
    question = noised(inner, [1100.0, 2.0**40, 1033.0][: len(inner.spec.entries)], limits, mechanism)
    decoded = question_from_bytes(question.to_bytes())
    assert isinstance(decoded, Noised) and decoded.mechanism == mechanism
    assert decoded.to_bytes() == question.to_bytes()
    assert np.array_equal(decoded.sigma, question.sigma) and np.array_equal(decoded.limits, question.limits)
    assert np.array_equal(decoded.spec.low, question.spec.low)


@pytest.mark.parametrize(
    ("name", "value"),
    [("sigma", [-1.0, 1.0, 1.0]), ("sigma", [1.0]), ("sigma", [np.nan, 1.0, 1.0]), ("limits", [1.0])],
)
def test_a_noised_question_that_is_out_of_bounds_does_not_arrive(name: str, value: list[float]) -> None:
    message = msgspec.msgpack.decode(noised().to_bytes(), type=QuestionMessage)
    arrays = message.arrays | {name: Array.from_numpy(np.array(value))}
    with pytest.raises(MessageError, match="well-formed"):
        question_from_bytes(msgspec.msgpack.encode(msgspec.structs.replace(message, arrays=arrays)))


@pytest.mark.parametrize("limit", [0.0, -1.0, 5e-324, 2.0**-451, 2.0**451, 1e300, np.inf, np.nan])
def test_a_limit_whose_square_is_no_normal_number_does_not_arrive(limit: float) -> None:
    message = msgspec.msgpack.decode(noised(CLIENTS, limits=LIMITS).to_bytes(), type=QuestionMessage)
    arrays = message.arrays | {"limits": Array.from_numpy(np.array([0.7, limit]))}
    with pytest.raises(MessageError, match="well-formed"):
        question_from_bytes(msgspec.msgpack.encode(msgspec.structs.replace(message, arrays=arrays)))


def test_an_answer_that_is_never_zero_is_not_asked_of_clients_as_a_whole() -> None:
    class Never(LloydSums):
        spec = StatisticsSpec(Entry("count", (3,), 1.0, 2.0, 1.0), Entry("sum", (3, 2), 0.0, 1.0, 1.0))

    with pytest.raises(ArgumentError, match="must contain zero"):
        noised(Never(ranges=RANGES, centers=CENTERS), limits=LIMITS)


@pytest.mark.parametrize(("contributors", "mechanism"), [(1, "gaussian"), (7, "gaussian"), (7, "skellam")])
def test_the_noise_of_a_sum_has_the_standard_deviation_that_is_named(
    contributors: int, mechanism: str
) -> None:
    grid = GridSums(ranges=RANGES, radius=0.01, per_axis=60)
    question = noised(grid, sigma=[4000.0, 2.0**33], mechanism=mechanism)
    clients = [ClientData(np.full((1, 2), 0.5))] * contributors
    generators = [seeded([9, i]) for i in range(contributors)]
    answers = question.answer_all(clients, generators)
    total = Statistics(
        **{name: np.sum([answer[name] for answer in answers], axis=0) for name in ("count", "sum")}
    )
    named = question.noise_std(contributors)
    for name, std in some(named.items()):
        # All but one cell are empty; 3600 counts and 7200 sums.
        noise = np.sort(total[name].ravel())[5:-5]
        assert noise.std() == pytest.approx(std, rel=0.05)
        assert abs(noise.mean()) < 4.5 * std / np.sqrt(noise.size)


@pytest.mark.parametrize("mechanism", ["gaussian", "skellam"])
def test_seeded_runs_repeat_for_each_client_by_its_own_generator(mechanism: str) -> None:
    question, clients = noised(mechanism=mechanism, sigma=1e9), [data(seed) for seed in range(4)]
    together = question.answer_all(clients, [seeded(seed) for seed in range(4)])
    for seed, (client, answer) in some(enumerate(zip(clients, together, strict=True))):
        alone = question.answer(client, seeded(seed))
        other = question.answer(client, seeded(seed + 1))
        assert all(np.array_equal(alone[name], answer[name]) for name in alone)
        assert not any(np.array_equal(other[name], answer[name]) for name in alone)


@pytest.mark.parametrize("mechanism", ["gaussian", "skellam"])
def test_claimed_noise_is_fresh_and_takes_nothing_from_a_generator(mechanism: str) -> None:
    question = noised(sigma=1e12, mechanism=mechanism)
    generator = np.random.default_rng(3)
    told = [question.answer(data(0), np.random.default_rng(3)) for _ in range(2)]
    question.answer(data(0), generator)
    assert not np.equal(*(question.spec.flatten(one) for one in told)).any()
    assert generator.bit_generator.state == np.random.default_rng(3).bit_generator.state


@pytest.mark.parametrize("mechanism", ["gaussian", "skellam"])
def test_noise_is_seeded_only_where_the_first_generator_says_so(mechanism: str) -> None:
    """A sequence that begins with a generator of a node is answered without any seed."""
    question, clients = noised(mechanism=mechanism, sigma=1e9), [data(seed) for seed in range(2)]
    told = question.answer_all(clients, [np.random.default_rng(0), seeded(1)])
    repeats = [question.answer(own, seeded(i)) for i, own in enumerate(clients)]
    for one, other in some(list(zip(told, repeats, strict=True))):
        assert not any(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("made", "mechanism"), [(seeded, "skellam"), (np.random.default_rng, "gaussian")])
def test_noise_is_independent_across_rounds_clients_and_entries(made: Any, mechanism: str) -> None:
    grid = GridSums(ranges=RANGES, radius=0.01, per_axis=100)
    question = noised(grid, sigma=[1e6, 1e9], mechanism=mechanism)
    clients = [ClientData(np.full((1, 2), 0.5))] * 3
    generators = [made([4, i]) for i in range(3)]
    columns = []
    for _ in range(3):
        for answer in question.answer_all(clients, generators):
            # Every cell but the last few hundred, which the row is not in; x and y are entries of their own.
            sums = answer["sum"].reshape(-1, 2)[:2000]
            columns += [answer["count"].ravel()[:2000], sums[:, 0], sums[:, 1]]
    units = np.stack([(column - column.mean()) / column.std() for column in columns])
    # Each of 27 columns against the others and, a cell further, against itself and the others.
    near = np.corrcoef(units) - np.eye(27)
    far = units[:, 1:] @ units[:, :-1].T / 2000
    assert max(np.abs(near).max(), np.abs(far).max()) < 6.5 / np.sqrt(2000)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: noised(sigma=[1.0, 0.0, 1.0]), "each sigma must lie in"),
        (lambda: noised(sigma=1e-300), "each sigma must lie in"),
        (lambda: noised(sigma=1000.0, mechanism="skellam"), "each sigma must lie in"),
        (lambda: noised(sigma=np.inf), "each sigma must lie in"),
        (
            lambda: noised(mechanism="normal"),
            "mechanism must be 'gaussian' or 'skellam', got mechanism='normal'",
        ),
        (lambda: replace(noised(), sigma=np.ones(2)), "one sigma for each of 3 entries"),
        (lambda: noised(noised()), "of a plain question"),
        (lambda: noised(CLIENTS, limits=[1.0]), "limits must be one for each of 2 entries"),
        (lambda: noised(CLIENTS, limits=[1.0, 0.0]), "each limit must be a number in"),
        (lambda: noised(CLIENTS, limits=[1.0, np.nan]), "each limit must be a number in"),
        (lambda: noised(replace(CLIENTS, ranges=WIDE)), "one power-of-two step an entry"),
        (lambda: noised(sigma=MOST_STEPS / TAIL), "more than 2\\^52; declare a smaller max_rows"),
        (
            lambda: replace(noised(), ranges=Ranges([-1.0, -1.0], [1.0, 1.0], 21)),
            "must have the ranges of its inner question",
        ),
    ],
)
def test_what_cannot_be_noised_says_why(build: Callable[[], Noised], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        build()


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"Noised"}))
@pytest.mark.parametrize("sizes", [(7, 0, 5), (0, 0, 0), (0, 3, 0)])
def test_a_client_without_rows_answers_zeros_whatever_is_asked(name: str, sizes: tuple[int, ...]) -> None:
    inner = EXAMPLES[name](RANGES, CENTERS)
    exact = replace(noised(inner, limits=np.full(len(inner.spec.entries), 2.0)), by_server=True)
    rows = [np.random.default_rng(size).uniform(-1, 1, (size, 2)) for size in sizes]
    clients = [ClientData(own, np.zeros(len(own), dtype=np.int64)) for own in rows]
    answers = exact.answer_all(clients, [seeded(i) for i in range(3)])
    for i, (client, answer) in some(enumerate(zip(clients, answers, strict=True))):
        found = exact.spec.flatten(answer)
        alone = exact.spec.flatten(exact.answer(ClientData(client.features, client.labels), seeded(i)))
        np.testing.assert_array_equal(found, alone if client.n_rows else 0.0)


@pytest.mark.parametrize("name", ["RelativeSums", "LocalMovements-batches"])
def test_a_seeded_runs_noise_is_its_clients_whoever_else_has_rows(name: str) -> None:
    inner = EXAMPLES[name](RANGES, CENTERS)
    question = noised(inner, limits=np.full(len(inner.spec.entries), 2.0))
    full, other = data(1), data(2)
    found = [
        question.answer_all([first, full], [seeded(i) for i in (8, 9)])
        for first in (other, ClientData(np.empty((0, 2))))
    ]
    np.testing.assert_array_equal(question.spec.flatten(found[0][1]), question.spec.flatten(found[1][1]))
    assert np.any(question.spec.flatten(found[1][0]))  # Noise, not zeros.


@pytest.mark.parametrize("error", [MemoryError(), RecursionError(), ArgumentError("my rows"), SystemExit(1)])
@pytest.mark.parametrize("limits", [(), (2.0, 2.0, 2.0)], ids=["record", "client"])
def test_whatever_a_question_raises_its_client_answers_noise(
    error: BaseException, limits: tuple[float, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    question, rows = noised(limits=limits), [data(seed) for seed in range(3)]
    whole = question.answer_all(rows, [seeded(seed) for seed in range(3)])
    honest = type(RECORDS).answer_all

    def failing(asked: Question, clients: Any, generators: Any) -> Any:
        if any(own in rows[1].features for one in clients for own in one.features):
            warnings.warn("my rows", RuntimeWarning, stacklevel=1)
            raise error
        return honest(asked, clients, generators)  # type: ignore[arg-type]

    monkeypatch.setattr(type(RECORDS), "answer_all", failing)
    told = question.answer_all(rows, [seeded(seed) for seed in range(3)])
    for i in (0, 2):
        assert all(np.array_equal(told[i][name], whole[i][name]) for name in told[i])
    low, high = question.inner.spec.low, question.inner.spec.high
    nothing = question.spec.flatten(told[1]) - np.clip(0.0, low, high)
    assert (np.abs(nothing) <= 8 * question.shares * question.spec.resolution).all() and nothing.any()
    assert rows[1].errors == [error] and not rows[0].errors and not rows[2].errors
