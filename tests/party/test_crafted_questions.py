"""A server that crafts one question: cells and centers are as many as what was agreed on justifies."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed import Box, ClientPolicy, DWFKMeans, metrics
from privfed.algorithms.kmeans.wf_kmeans import WeightedKMeans
from privfed.algorithms.starts.starts import KMeansCentroids
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.justified import CENTERS_WITHOUT, cells_wanted, most_cells, most_centers
from privfed.core.asking.question import Question
from privfed.core.federation import Federation
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.engines.faults import Fault
from privfed.errors import ArgumentError, RefusedError
from privfed.federation.over import open_over
from privfed.federation.simulation import Simulation
from privfed.protocols import Masked
from privfed.questions.bounded.bounded_sums import (
    GridSums,
    HashSums,
)
from privfed.questions.bounded.shells import DistanceHistogram
from privfed.questions.cells import CellSums, cell_layout
from privfed.questions.lloyd import LloydSums
from privfed.questions.local_points import PointSums
from privfed.questions.ranges import FeatureRanges, Located
from tests.some import some
from tests.undeclared import ANYTHING

DOMAIN = Box(-5.0, 5.0, max_rows=64)
GUARDS: dict[str, Any] = {"probing_guard": True, "max_jumps": 0, "max_answers": 2, "fixed_cohorts": True}
RANGES = Ranges([-5.0, -5.0], [5.0, 5.0], 64)


def clients(n_features: int = 2, n_clients: int = 8) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(40, n_features)).clip(-4.9, 4.9) for _ in range(n_clients)]


def federation(n_features: int = 2, n_clusters: int | None = 3, **policy: Any) -> Federation:
    """Return clients that check no program, so that bounds of single questions are all there is."""
    words: dict[str, Any] = {"protocol": "masked", "domain": DOMAIN}
    words["policy"] = ClientPolicy(undeclared=True, **policy)
    return open_over(clients(n_features), n_clusters=n_clusters, **words)


def cells(n_features: int, *, per_axis: int = 0, n_planes: int = 0) -> CellSums:
    rng = np.random.default_rng(2)
    ranges = Ranges(*DOMAIN.bounds(n_features), 64)
    normals = rng.normal(size=(n_planes, n_features))
    return CellSums(ranges=ranges, center=np.zeros(n_features), normals=normals, per_axis=per_axis)


def lone_rows(federation: Federation, question: Question) -> int:
    """Return how many rows of all clients stand alone in a cell of a total."""
    total = federation.ask(Ask(question)).statistics
    alone = total["sum"][np.rint(total["count"]) == 1]
    rows = np.concatenate(clients(question.ranges.n_features))
    return int((np.abs(rows[:, None] - alone[None]).max(axis=2, initial=0.0) < 1e-6).any(axis=1).sum())


@pytest.mark.parametrize("n_clusters", [None, 1, 3, 30])
def test_one_question_of_512_by_512_cells_is_refused(n_clusters: int | None) -> None:
    with pytest.raises(RefusedError, match="policy:cells"):
        federation(n_clusters=n_clusters).ask(Ask(cells(2, per_axis=256)))


@pytest.mark.parametrize("n_planes", [10, 16])
def test_hyperplanes_in_ten_features_are_counted_like_a_grid(n_planes: int) -> None:
    with pytest.raises(RefusedError, match="policy:cells"):
        federation(10).ask(Ask(cells(10, n_planes=n_planes)))


def test_as_many_cells_as_are_justified_are_answered_and_min_count_reads_them() -> None:
    most = most_cells(3, 2, 8, 64)
    grid = cells(2, per_axis=int(np.sqrt(most)) // 2)
    assert lone_rows(federation(), grid) > 0
    assert lone_rows(federation(min_count=10, **GUARDS), grid) == 0
    planes = cells(10, n_planes=int(np.log2(most_cells(3, 10, 8, 64))))
    assert lone_rows(federation(10), planes) > 0
    assert lone_rows(federation(10, min_count=10, **GUARDS), planes) == 0


def test_two_equal_sums_with_one_client_named_lost_give_what_stands_alone_in_justified_cells() -> None:
    # SECURITY.md: as long as clients answered about any number of cells this gave all 40 rows of client 3.
    lost = Simulation(faults=[Fault(3, "collect", "lost-reply", sums=frozenset({2}))])
    policy = ClientPolicy(
        min_clients=8, max_answers=2, probing_guard=True, max_jumps=0, fixed_cohorts=True, undeclared=True
    )
    words: dict[str, Any] = {"protocol": "masked", "domain": DOMAIN, "policy": policy, "engine": lost}
    asked = open_over(clients(), n_clusters=3, **words)
    grid = cells(2, per_axis=4)
    whole, others = (asked.ask(Ask(grid)) for _ in range(2))
    assert 3 in whole.contributors and 3 in others.dropped
    own = whole.statistics["sum"] - others.statistics["sum"]
    alone = own[np.rint(whole.statistics["count"] - others.statistics["count"]) == 1]
    found = np.abs(clients()[3][:, None] - alone[None]).max(axis=2) < 1e-6
    assert 1 <= found.any(axis=1).sum() <= 6
    with pytest.raises(RefusedError, match="policy:max_answers"):
        asked.ask(Ask(grid))


@pytest.mark.parametrize("slabs", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_one_counted_loss_shows_one_client_in_every_question_asked_on_both_sides_of_it(slabs: int) -> None:
    # SECURITY.md: `losses` bounds whom differences show, and not in how many questions.
    lost = Simulation(faults=[Fault(3, sums=frozenset(range(slabs + 2, 2 * slabs + 2)))])
    words: dict[str, Any] = {"n_clusters": 3, "domain": DOMAIN, "engine": lost}
    lloyd = WeightedKMeans(n_clusters=3, init=np.zeros((3, 2)), max_iter=2 * slabs, local_iter=1)
    asked = open_over(clients(), protocol=Masked(losses=1), algorithm=lloyd, **words)
    asked.ask(Ask(FeatureRanges(ranges=RANGES, find_ranges=False)))
    places = np.linspace(-3.0, 3.0, slabs)
    around = np.array([-1.0, 0.0, 1.0]) * (places[1] - places[0])
    probes = [LloydSums(ranges=RANGES, centers=np.stack([one + around, 0 * around], 1)) for one in places]
    whole, others = ([asked.ask(Ask(one)).statistics for one in probes] for _ in range(2))
    counts = np.rint([a["count"] - b["count"] for a, b in zip(whole, others, strict=True)])
    sums = np.array([a["sum"] - b["sum"] for a, b in zip(whole, others, strict=True)])
    found = np.abs(clients()[3][:, None] - sums[counts == 1][None]).max(axis=2) < 1e-6
    assert found.any(axis=1).sum() >= (1 if slabs == 20 else 14)
    assert (counts.sum(axis=1) == 40).all()


@pytest.mark.parametrize(
    "question",
    [
        GridSums(ranges=RANGES, per_axis=40, radius=1.0),
        HashSums(ranges=RANGES, center=np.zeros(2), radius=9.0, normals=np.ones((12, 2))),
        DistanceHistogram(ranges=RANGES, center=np.zeros(2), radius=9.0, n_bins=1000),
    ],
    ids=lambda one: type(one).__name__,
)
def test_cells_of_private_runs_are_counted_where_no_privacy_was_agreed(question: Question) -> None:
    with pytest.raises(RefusedError, match="policy:cells"):
        federation().ask(Ask(question))


def test_more_centers_than_are_justified_are_refused() -> None:
    rng = np.random.default_rng(3)
    asked = [LloydSums(ranges=RANGES, centers=rng.uniform(-5, 5, (k, 2))) for k in (6, 7)]
    opened = federation()
    opened.ask(Ask(asked[0]))
    with pytest.raises(RefusedError, match=r"policy:centers.*twice the agreed n_clusters"):
        opened.ask(Ask(asked[1]))


def test_more_local_clusters_than_are_justified_are_refused() -> None:
    points = KMeansCentroids(n_clusters=20, seed=0)
    with pytest.raises(RefusedError, match="policy:centers"):
        federation().ask(Ask(PointSums(ranges=RANGES, points=points, centers=np.zeros((1, 2)))))


def test_metrics_agree_on_as_many_clusters_as_they_have_centers() -> None:
    centers = np.random.default_rng(4).uniform(-5, 5, (CENTERS_WITHOUT + 10, 2))
    assert metrics.inertia(clients(), centers, protocol="plain") > 0
    with pytest.raises(RefusedError, match="policy:centers"):
        metrics.inertia(open_over(clients(), protocol="plain", policy=ANYTHING), centers)


def test_a_fit_agrees_on_its_number_of_clusters() -> None:
    model = DWFKMeans(3, max_iter=1, tol=0, protocol="plain", domain=DOMAIN).fit(clients())
    agreed = model.transcript_.configuration
    assert (agreed.n_clusters, agreed.max_rows) == (3, 64)
    with pytest.raises(RefusedError, match="policy:cells"):
        model.federation_.ask(Ask(cells(2, per_axis=256)))


# --- what starts ask for is justified ---


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 50), st.integers(1, 5000), st.floats(0.01, 1.0))
def test_every_honest_start_is_justified(
    n_clusters: int, n_features: int, n_clients: int, max_rows: int, share: float
) -> None:
    n_rows = max(1, int(share * n_clients * max_rows))
    ranges = Ranges(-np.ones(n_features), np.ones(n_features), max_rows)
    located = Located(ranges, np.zeros(n_features), n_rows)
    for wanted in some(range(1, 2 * n_clusters + 1)):
        layout = cell_layout(located, wanted, np.random.default_rng(0))
        asked = CellSums(ranges=ranges, **layout._asdict())
        for rows in (max_rows, None):
            assert asked.n_cells <= most_cells(n_clusters, n_features, n_clients, rows)
        assert wanted <= most_centers(n_clusters)


def test_the_bound_is_near_what_a_start_needs() -> None:
    # 320 rows, three clusters: a start has at most 81 cells, a question at most 144.
    assert most_cells(3, 2, 8, 40) <= 4 * cells_wanted(320, 3)
    assert most_cells(None, 2, 8, 40) == 1


# --- the domain that guards measure against ---


@pytest.mark.parametrize("word", [{"probing_guard": True}, {"max_jumps": 0}])
def test_guards_that_measure_need_a_declared_domain(word: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=r"declared domain.*pass domain=Box"):
        DWFKMeans(3, protocol="plain", policy=ClientPolicy(**word)).fit(clients())
    agreed = Configuration(protocol="plain", algorithm="", clients=("a", "b"), n_features=2)
    assert ClientPolicy(**word).refuses_configuration(agreed) == "policy:domain"
    assert ClientPolicy(domain=DOMAIN, **word).refuses_configuration(agreed) is None
    fitted = DWFKMeans(2, protocol="plain", domain=DOMAIN, policy=ClientPolicy(probing_guard=True))
    assert fitted.fit(clients()).n_iter_ >= 1
