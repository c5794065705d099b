"""The graph and its numbers: laws of the graph, tails against scipy, bounds against all sets and matrices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privfed.core.agreed.agreement import Registry
from privfed.core.agreed.configuration import CohortRule, Configuration, Terms
from privfed.errors import ArgumentError, BoundsError
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import digest
from privfed.protocols.crypto.shamir import MAX_HOLDERS
from privfed.protocols.setup.graph import (
    FULL_GRAPH,
    Graph,
    circle,
    colluders_in,
    sizes,
    smallest_set,
    tail,
)
from privfed.protocols.setup.rules import Rules, check_cohort, needed_to_open
from tests.default_run import examples, slow

SEED = digest("a seed")


def graph_of(n: int, d: int, seed: bytes = SEED) -> Graph:
    return Graph(tuple(range(100, 100 + n)), d, seed)


def matrix(graph: Graph, n: int) -> np.ndarray:
    """Return the graph as ones and zeros."""
    rows, _ = graph.rows(np.arange(n))
    adjacent = np.zeros((n, n), dtype=int)
    adjacent[np.arange(n)[:, None], rows] = 1
    return adjacent


# --- the graph ---


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, int, Graph]:
    n = draw(st.integers(3, 60))
    d = draw(st.sampled_from([n - 1, *range(2, n - 1, 2)]))
    return n, d, graph_of(n, d, draw(st.binary(min_size=32, max_size=32)))


@given(graphs())
def test_each_member_has_d_neighbours_who_have_it_in_turn(drawn: tuple[int, int, Graph]) -> None:
    n, d, graph = drawn
    adjacent = matrix(graph, n)
    assert (adjacent.sum(axis=1) == d).all() and not adjacent.diagonal().any()
    assert np.array_equal(adjacent, adjacent.T)


@given(graphs())
def test_the_way_back_names_the_member_itself(drawn: tuple[int, int, Graph]) -> None:
    n, d, graph = drawn
    rows, back = graph.rows(np.arange(n))
    assert np.array_equal(rows[rows, back], np.broadcast_to(np.arange(n)[:, None], (n, d)))


@given(graphs(), st.data())
def test_a_neighbour_holds_a_share_where_the_sender_took_it(
    drawn: tuple[int, int, Graph], data: st.DataObject
) -> None:
    n, d, graph = drawn
    one = graph.neighbours(client := data.draw(st.integers(100, 99 + n)))
    assert one.abscissae == tuple(range(1, d + 1)) and len(set(one.clients)) == d
    assert [100 + place for place in one.places] == list(one.clients)
    for j, held in zip(one.clients, one.held, strict=True):
        theirs = graph.neighbours(j)
        assert theirs.abscissae[theirs.clients.index(client)] == held


def test_everyone_is_a_neighbour_on_the_full_graph_in_order_and_whatever_the_seed() -> None:
    first, other = graph_of(5, 4), graph_of(5, 4, digest("another"))
    assert first.neighbours(102).clients == other.neighbours(102).clients == (100, 101, 103, 104)


def test_neighbourhoods_are_drawn_by_the_seed_alone_and_are_uniform() -> None:
    n, d, draws = 12, 4, 3000
    counts, pairs = np.zeros(n), np.zeros((n, n))
    for number in range(draws):
        seed = digest("draw", number)
        drawn = np.array(graph_of(n, d, seed).neighbours(100).clients) - 100
        assert drawn.tolist() == [i - 100 for i in graph_of(n, d, seed).neighbours(100).clients]
        counts[drawn] += 1
        pairs[np.ix_(drawn, drawn)] += 1
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > 1e-6
    # Any two others are neighbours together as often as any other two: all sets of d are alike.
    together = pairs[1:, 1:][np.triu_indices(n - 1, 1)]
    assert stats.chisquare(together).pvalue > 1e-6


@pytest.mark.parametrize(("n", "d"), [(30, 6), (31, 6), (201, 56), (300, 76)])
def test_the_second_eigenvalue_is_that_of_the_matrix(n: int, d: int) -> None:
    values = np.sort(np.abs(np.linalg.eigvalsh(matrix(graph_of(n, d), n))))
    assert values[-1] == pytest.approx(d)
    assert values[-2] <= circle(n, d)[1] <= values[-2] + 0.0011


@pytest.mark.parametrize(("n", "d", "whole"), [(312, 78, 18), (598, 112, 24), (870, 128, 28)])
def test_whole_eigenvalues_are_rounded_up_beyond_the_last_bits(n: int, d: int, whole: int) -> None:
    # A transform that gives 18 - 1e-14 and one that gives 18 + 1e-14 must lead to the same numbers.
    assert circle(n, d)[1] == whole + 0.001


@pytest.mark.parametrize("n", [1000, 10_000])
def test_no_set_of_distances_makes_a_bad_expander(n: int) -> None:
    for d in (128, 172):
        distances = circle(n, d)[0]
        assert len(np.unique(distances)) == d and np.array_equal(n - distances[::-1], distances)
        assert circle(n, d)[1] < 3.6 * np.sqrt(d)


# --- how small a set can be ---


@pytest.mark.parametrize(
    ("n", "d", "t", "n_colluders"), [slow((12, 4, 4, 1)), (11, 6, 5, 2), (10, 6, 6, 3), slow((13, 4, 3, 0))]
)
def test_no_set_is_smaller_than_the_bound(n: int, d: int, t: int, n_colluders: int) -> None:
    """All sets and all colluders of a small graph."""
    adjacent, smallest = matrix(graph_of(n, d), n), n
    c = min(n_colluders, d)
    for colluders in itertools.combinations(range(n), n_colluders):
        outside = np.ones(n, dtype=bool)
        outside[list(colluders)] = False
        for size in range(1, n - n_colluders + 1):
            for chosen in itertools.combinations(np.flatnonzero(outside), size):
                either = [*chosen, *colluders]
                if size < smallest and (adjacent[np.ix_(chosen, either)].sum(axis=1) >= t).all():
                    smallest = size
    assert 1 < smallest_set(n, d, t, c, n_colluders) <= smallest


# --- colluders and losses among the neighbours ---


@given(st.integers(20, 3000), st.data())
@settings(max_examples=examples(50))
def test_tails_are_those_of_the_hypergeometric_distribution(n: int, data: st.DataObject) -> None:
    marked, d = data.draw(st.integers(0, n // 3)), data.draw(st.integers(1, min(n - 1, 254)))
    bits = data.draw(st.sampled_from([10, 20, 100]))
    x = tail(n, marked, d, bits)
    law = stats.hypergeom(n - 1, marked, d)
    assert n * law.sf(x) <= 2.0**-bits * (1 + 1e-6)
    if x > 0:
        assert n * law.sf(x - 1) > 2.0**-bits * (1 - 1e-6)


TABLE = [
    # n, d, c, t, m
    (202, 56, 20, 39, 92),
    (500, 104, 47, 76, 267),
    (1000, 128, 59, 94, 523),
    (2000, 150, 69, 110, 1057),
    (5000, 164, 75, 120, 2569),
    (10_000, 172, 79, 126, 5110),
]


@pytest.mark.parametrize(("n", "d", "c", "t", "m"), TABLE)
def test_the_table_of_defaults(n: int, d: int, c: int, t: int, m: int) -> None:
    numbers = sizes(n, Masked().terms(n, n, 1))
    assert (numbers.neighbours, numbers.colluders, numbers.threshold, numbers.honest) == (d, c, t, m)


@given(
    st.integers(FULL_GRAPH + 1, 4000),
    st.sampled_from([0.0, 0.03, 0.1, 0.15]),
    st.sampled_from([0.0, 0.05, 0.1]),
)
@settings(max_examples=examples(25))
def test_the_numbers_hold_together(n: int, share: float, dropouts: float) -> None:
    colluders = int(n * share)
    numbers = sizes(n, Masked(colluders=colluders, dropouts=dropouts).terms(n, n, 1))
    d, c, t = numbers.neighbours, numbers.colluders, numbers.threshold
    assert 2 * t > d + c and t <= d < MAX_HOLDERS and d % 2 == 0
    assert n * stats.hypergeom(n - 1, colluders, d).sf(c) <= 2.0**-100
    assert n * stats.hypergeom(n - 1, int(n * dropouts), d).sf(d - t) <= 2.0**-20 * (1 + 1e-6)
    # Two sets of one number would need more honest clients than there are, where fewer collude too.
    assert 2 * numbers.honest > n - colluders
    for fewer in (0, colluders // 2, colluders):
        smallest = smallest_set(n, d, t, c, fewer)
        assert smallest >= numbers.honest and 2 * smallest > n - fewer


def test_neighbours_grow_as_the_logarithm_of_the_clients() -> None:
    counts = np.array([300, 1000, 3000, 10_000, 30_000])
    degrees = np.array([sizes(int(n), Masked().terms(int(n), int(n), 1)).neighbours for n in counts])
    slope, _ = np.polyfit(np.log(counts[1:]), degrees[1:], 1)
    assert 10 < slope < 30 and degrees[-1] < 1.5 * degrees[1]


def test_a_threshold_and_honest_clients_that_are_asked_for_are_kept() -> None:
    assert sizes(400, Masked().terms(400, 400, 1)).honest < 230
    numbers = sizes(400, Masked(honest=230).terms(400, 400, 1))
    assert numbers.honest >= 230 and numbers.needed == numbers.honest
    assert sizes(400, Masked(threshold=380).terms(400, 400, 1)).needed == 380
    with pytest.raises(ArgumentError, match="with 300 honest ones"):
        Masked(honest=300).terms(400, 400, 1)


@pytest.mark.parametrize(("colluders", "dropouts"), [(400, 0.1), (100, 0.4)])
def test_what_no_graph_withstands_is_an_error_before_the_fit(colluders: int, dropouts: float) -> None:
    with pytest.raises(
        ArgumentError, match=f"withstands {colluders} colluders and {int(1000 * dropouts)} lost"
    ):
        Masked(colluders=colluders, dropouts=dropouts).terms(1000, 1000, 1)


@pytest.mark.parametrize("dropouts", [-0.1, 1.0])
def test_a_share_of_losses_out_of_bounds_is_an_error(dropouts: float) -> None:
    with pytest.raises(BoundsError) as found:
        Masked(dropouts=dropouts).terms(10, 10, 1)
    assert (found.value.parameter, found.value.value) == ("dropouts", dropouts)


# --- larger cohorts of a fit ---


@given(st.integers(3, 60), st.integers(0, 400))
def test_a_larger_cohort_withstands_a_tenth_of_its_own(smallest: int, more: int) -> None:
    terms = Masked().terms(smallest, smallest, 1)
    n = smallest + more
    c = colluders_in(n, terms)
    assert c >= terms.colluders and (more == 0 or c >= n // 10)
    if n <= FULL_GRAPH:
        t = sizes(n, terms).threshold
        assert 2 * t > n - 1 + c and t - c + 1 >= terms.honest
        check_cohort(n, terms)
        assert needed_to_open(n, terms) == t + 1


def test_colluders_that_were_named_hold_for_larger_cohorts_too() -> None:
    assert colluders_in(100, Terms(min_clients=10, colluders=30)) == 30
    assert colluders_in(10, Terms(min_clients=10, colluders=0)) == 0


def test_labels_of_the_same_clients_share_a_graph_and_sessions_do_not() -> None:
    configuration = Configuration(
        protocol="masked",
        algorithm="",
        clients=tuple(map(str, range(210))),
        n_features=1,
        cohorts=CohortRule(kind="all"),
        terms=Masked().terms(210, 210, 1),
    )
    agreement = Rules(configuration, Registry(tuple(digest("key", i) for i in range(210)), SEED))
    one = agreement.neighbours(SEED, 0, 7)
    assert agreement.neighbours(SEED, 3, 7).clients == one.clients
    assert agreement.neighbours(digest("another"), 0, 7).clients != one.clients
    assert agreement.cohort(0).digest != agreement.cohort(3).digest
