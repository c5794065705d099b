"""The range sum finds ranges that hold all data, near its spread whatever its scale, from one sum or two."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privfed import Ball, Box, DWFKMeans
from privfed.core.asking.question import ClientData, Question
from privfed.core.roles.conversation import Ask, Setting, Total, driven
from privfed.core.values.domain import Domain
from privfed.errors import DataError
from privfed.federation.opening import open_over
from privfed.questions.ranges import (
    LARGEST,
    FeatureRanges,
    Located,
    edges,
    locate,
    subdivisions,
)
from tests.undeclared import ANYTHING

Clients = list[np.ndarray]


def located(clients: Clients, domain: Domain | None = None, asked: list[Question] | None = None) -> Located:
    """Find ranges over plain additions, as a server would see them; note what was asked."""
    setting = Setting(tuple(map(str, range(len(clients)))), clients[0].shape[1], domain)

    def total(ask: Ask) -> Total:
        question = ask.question
        [] if asked is None else asked.append(question)
        within = [ClientData(rows).within(question.ranges) for rows in clients]
        clipped, statistics = sum(moved for _, moved in within), None
        for data, _ in within:
            vector, outside = question.spec.clip(
                question.spec.flatten(question.answer(data, np.random.default_rng(0)))
            )
            clipped += outside
            answer = question.spec.unflatten(vector)
            statistics = answer if statistics is None else statistics + answer
        assert statistics is not None
        return Total(statistics, tuple(range(len(clients))), clipped=clipped)

    return driven(locate(setting, upcoming=(0,)), total)


def assert_holds(found: Located, clients: Clients) -> None:
    rows = np.concatenate(clients)
    assert (rows >= found.ranges.low).all() and (rows <= found.ranges.high).all()
    assert (found.mean >= found.ranges.low).all() and (found.mean <= found.ranges.high).all()
    assert max(map(len, clients)) <= found.ranges.rows
    assert found.n_rows == len(rows)


SCALES = st.sampled_from([1e-300, 1e-9, 1e-6, 1.0, 2023.0, 1e12, LARGEST])


@st.composite
def nasty_clients(draw: st.DrawFn) -> Clients:
    d = draw(st.integers(1, 4))
    scale = np.array([draw(SCALES) for _ in range(d)])
    values = st.one_of(st.floats(-1.0, 1.0), st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 5e-324]))
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    clients = [scale * draw(arrays(np.float64, (n, d), elements=values)) for n in sizes]
    if draw(st.booleans()):
        constant = draw(values)
        for rows in clients:
            rows[:, 0] = scale[0] * constant
    return clients


@given(nasty_clients())
def test_ranges_hold_all_data(clients: Clients) -> None:
    assert_holds(located(clients), clients)


@given(nasty_clients())
def test_ranges_are_not_much_wider_than_the_data(clients: Clients) -> None:
    found, rows = located(clients), np.concatenate(clients)
    # Each power of two is cut into so many bins; one bin holds everything within +-2**-20.
    slack = np.abs(rows).max(axis=0) / subdivisions(rows.shape[1]) + 2.0 * 2.0**-20
    assert (found.ranges.low >= rows.min(axis=0) - slack).all()
    assert (found.ranges.high <= rows.max(axis=0) + slack).all()


@given(nasty_clients())
def test_a_range_is_at_most_twice_the_spread_up_to_the_last_octave(clients: Clients) -> None:
    found, rows = located(clients), np.concatenate(clients)
    # The innermost bins around a mean end fifty octaves below the width of the first range.
    digits = np.maximum(np.abs(rows).max(axis=0), 2.0**-20) * 2.0**-44
    assert (found.ranges.width <= 2.0 * np.ptp(rows, axis=0) + digits).all()


FAR = {"around-zero": (0.0, 3.0), "years": (2015.0, 6.0), "kelvin": (309.0, 4.0), "seconds": (1.7e9, 2e6)}
FAR |= {"milliseconds": (1.7e12, 2e9), "farthest": (1e12, 0.1), "moles": (0.0, 5e-9), "degrees": (55.6, 0.2)}


@pytest.mark.parametrize(("offset", "spread"), FAR.values(), ids=FAR)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_column_far_from_zero_has_a_range_near_its_spread(
    offset: float, spread: float, sign: float
) -> None:
    rng = np.random.default_rng(3)
    column = sign * (offset + spread * rng.uniform(-0.5, 0.5, 200))
    found = located(np.split(np.column_stack([column, rng.normal(size=200)]), 4))
    low, high = float(found.ranges.low[0]), float(found.ranges.high[0])
    assert low <= column.min() and column.max() <= high
    assert high - low <= 1.0625 * np.ptp(column) + 4.0 * np.spacing(abs(offset))


@pytest.mark.parametrize(
    ("columns", "n_asked"),
    [([-1.0, 1.0], 1), ([0.0, 7.0], 1), ([1.0, 1.9], 1), ([2015.0, 2020.0], 2), ([3.0, 3.0], 2)],
    ids=["around-zero", "from-zero", "most-of-an-octave", "far", "constant"],
)
def test_loose_ranges_alone_are_asked_again_and_only_once(columns: list[float], n_asked: int) -> None:
    asked: list[Question] = []
    rows = np.column_stack([np.linspace(*columns, 12), np.linspace(-4.0, 4.0, 12)])
    located(np.split(rows, 3), asked=asked)
    shapes = [one.spec.layout[0] for one in asked]
    assert shapes == [("extremes", (2, 2241)), ("extremes", (1, 1601))][:n_asked]


@given(st.lists(st.integers(1, 70), min_size=1, max_size=4))
def test_bound_on_the_rows_is_the_next_power_of_two(sizes: list[int]) -> None:
    found = located([np.zeros((n, 1)) for n in sizes])
    assert max(sizes) <= found.ranges.rows < 2 * max(sizes) or found.ranges.rows == max(sizes) == 1
    assert found.ranges.rows & (found.ranges.rows - 1) == 0


@given(nasty_clients())
def test_mean_is_the_pooled_mean(clients: Clients) -> None:
    rows = np.concatenate(clients)
    np.testing.assert_allclose(
        located(clients).mean, rows.mean(axis=0), rtol=1e-9, atol=1e-12 * np.abs(rows).max()
    )


@pytest.mark.parametrize(
    "column",
    [
        pytest.param([1987.0, 2023.0, 1999.0], id="years"),
        pytest.param([1.7e9, 1.7e9 + 3600], id="time-stamps"),
        pytest.param([1e-9, 3e-9, -2e-9], id="tiny"),
        pytest.param([-1e12, 1e12], id="huge"),
        pytest.param([-5.0, -4.0], id="negative"),
        pytest.param([0.0, 0.0], id="zeros"),
        pytest.param([-7.25, -7.25], id="constant"),
        pytest.param([LARGEST, -LARGEST], id="the-largest"),
        pytest.param([2.0**-20, -(2.0**-20)], id="the-smallest-bin"),
        pytest.param([1.0, np.nextafter(1.0, 0.0)], id="an-edge"),
    ],
)
@pytest.mark.few(8)
def test_ranges_of_a_column_over_every_protocol(column: list[float], protocol: str) -> None:
    class OnlyLocate:
        max_sums = 2

        def run(self, setting: Setting) -> Any:
            return locate(setting, upcoming=(0,))

    clients = [np.array([[value, 1.0]]) for value in column for _ in range(3)]
    found = open_over(clients, protocol=protocol, policy=ANYTHING).run(OnlyLocate())
    assert_holds(found, clients)
    rows = np.concatenate(clients)
    np.testing.assert_allclose(found.mean, rows.mean(axis=0), rtol=0, atol=1e-2 + np.abs(rows).max() / 2**19)


@pytest.mark.parametrize("n_features", [1, 3, 4, 30, 784, 5000])
def test_histograms_stay_small_with_many_features(n_features: int) -> None:
    parts = subdivisions(n_features)
    bins = len(edges(parts)) - 1
    assert parts == 1 or n_features * bins <= 8192
    assert (np.diff(edges(parts)) > 0).all()
    clients = [np.random.default_rng(i).normal(scale=100.0, size=(3, n_features)) for i in range(2)]
    assert_holds(located(clients), clients)


def test_one_row_in_all() -> None:
    found = located([np.array([[3.0, -4.0]])])
    assert_holds(found, [np.array([[3.0, -4.0]])])
    assert found.ranges.rows == 1


# --- what a domain does ---


@pytest.mark.parametrize("value", [np.nextafter(LARGEST, np.inf), 1e300, -1e16])
def test_values_beyond_the_largest_are_an_error_that_names_the_remedy(value: float, protocol: str) -> None:
    clients = [np.array([[value, 0.0]]), *(np.zeros((1, 2)) for _ in range(5))]
    with pytest.raises(DataError, match=r"lie outside \+-1.13e\+15, beyond which no ranges are found"):
        DWFKMeans(1, protocol=protocol).fit(clients)


def test_values_beyond_the_largest_are_no_error_in_a_declared_domain() -> None:
    clients = [np.array([[1e20, 0.0]]), np.array([[-1e20, 1.0]])]
    model = DWFKMeans(
        2, init=np.array([[2e20, 0.0], [-2e20, 0.0]]), domain=Box(-3e20, 3e20), protocol="plain"
    )
    assert model.fit(clients).inertia_ == 0.0


@pytest.mark.parametrize("value", [0.1, 0.3, 0.7, 1e-9, 1e9 + 0.1])
def test_rounding_in_a_sum_at_the_domains_border_is_not_outside(value: float) -> None:
    # 15 * 0.1 < sum of fifteen 0.1: a client at the border must not be told to declare a larger domain.
    for n in (*range(1, 40), 1000, 54321):
        found = located([np.full((n, 1), value)] * 2, Box(-value, value, max_rows=n))
        assert found.n_rows == 2 * n and found.ranges.rows == n
        assert found.mean[0] <= value


@pytest.mark.parametrize("domain", [Box(-2, 3), Box([-2, 0], [3, 1]), Ball(1.5, center=[0.5, 0.5])])
def test_declared_domain_is_kept_and_its_histograms_are_not_asked_for(domain: Domain) -> None:
    rows = domain.clip(np.random.default_rng(0).uniform(-2, 2, size=(30, 2)))
    found = located([rows[:11], rows[11:]], domain)
    low, high = domain.bounds(2)
    assert found.ranges.low.tolist() == low.tolist() and found.ranges.high.tolist() == high.tolist()
    assert found.ranges.rows == 32
    question = next(locate(Setting(("a",), 2, domain), upcoming=(0,))).question
    assert isinstance(question, FeatureRanges) and not question.find_ranges
    assert "extremes" not in dict(question.spec.layout)


@pytest.mark.parametrize(
    ("domain", "change"),
    [
        pytest.param(Box(0, 1), lambda rows: rows + 0.5, id="outside-the-box"),
        pytest.param(Ball(1.0, 0.5), lambda rows: rows + 3.0, id="outside-the-ball"),
        pytest.param(Box(0, 1, max_rows=4), lambda rows: np.concatenate([rows, rows]), id="more-rows"),
    ],
)
def test_data_outside_its_domain_is_an_error(
    domain: Domain, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    # The face sees this first; on other machines only the range sum does.
    rows = np.array([[0.0, 0.0], [1.0, 0.2], [0.5, 1.0]])
    assert located([rows, rows], domain).n_rows == 6
    with pytest.raises(DataError, match="lie outside its declared domain or max_rows"):
        located([rows, change(rows)], domain)
