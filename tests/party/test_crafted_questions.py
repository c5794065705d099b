"""A server that crafts one question: what it shows of rows and of groups of them, and what it may cost."""

from typing import Any

import numpy as np
import pytest

from privfed import Box, ClientPolicy, DWFKMeans
from privfed.algorithms.wf_kmeans import WeightedCentroids, WeightedKMeans
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Ask
from privfed.core.values.domain import Ranges
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError
from privfed.federation.driver import Federation
from privfed.federation.opening import open_over
from privfed.federation.simulation import Simulation
from privfed.protocols import Masked
from privfed.questions.cells import CellSums
from privfed.questions.lloyd import LloydSums
from privfed.questions.ranges import FeatureRanges

pytestmark = pytest.mark.filterwarnings("ignore:arrays are grouped anew")

DOMAIN = Box(-5.0, 5.0, max_rows=64)
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
    """Return how many rows of all clients are the mean of a cell of a total, as where they stand alone."""
    total = federation.ask(Ask(question)).statistics
    held = total["count"] > 0.5
    alone = total["sum"][held] / total["count"][held][:, None]
    rows = np.concatenate(clients(question.ranges.n_features))
    return int((np.abs(rows[:, None] - alone[None]).max(axis=2, initial=0.0) < 1e-6).any(axis=1).sum())


def test_in_cells_rows_stand_alone_and_groups_of_rows_do_not() -> None:
    grid = cells(2, per_axis=4)
    assert lone_rows(federation(), grid) > 0
    assert lone_rows(federation(group_size=5), grid) == 0
    planes = cells(10, n_planes=6)
    assert lone_rows(federation(10), planes) > 0
    assert lone_rows(federation(10, group_size=5), planes) == 0


@pytest.mark.parametrize(("group_size", "least", "most"), [(1, 1, 6), (5, 0, 0)])
def test_two_equal_sums_with_one_client_named_lost_give_what_stands_alone_in_cells(
    group_size: int, least: int, most: int
) -> None:
    # As long as clients answered about any number of cells this gave all 40 rows of client 3.
    lost = Simulation(faults=[Fault(3, "collect", "lost-reply", sums=frozenset({2}))])
    policy = ClientPolicy(min_clients=8, fixed_cohorts=True, undeclared=True, group_size=group_size)
    words: dict[str, Any] = {"protocol": "masked", "domain": DOMAIN, "policy": policy, "engine": lost}
    asked = open_over(clients(), n_clusters=3, **words)
    grid = cells(2, per_axis=4)
    whole, others = (asked.ask(Ask(grid)) for _ in range(2))
    assert 3 in whole.contributors and 3 in others.dropped
    own = whole.statistics["sum"] - others.statistics["sum"]
    count = whole.statistics["count"] - others.statistics["count"]
    means = own[count > 0.5] / count[count > 0.5][:, None]
    found = np.abs(clients()[3][:, None] - means[None]).max(axis=2) < 1e-6
    assert least <= found.any(axis=1).sum() <= most


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


def test_whoever_asks_a_question_that_costs_too_much_is_told_before_it_is_sent() -> None:
    asked = WeightedCentroids(ranges=RANGES, centers=np.zeros((60_000, 2)), local_iter=10**5)
    with pytest.raises(ArgumentError, match=r"needs row work of 1\.2e\+10, .* fewer local steps"):
        federation().ask(Ask(asked))


def test_a_fit_agrees_on_its_number_of_clusters() -> None:
    model = DWFKMeans(3, max_iter=1, tol=0, protocol="plain", domain=DOMAIN).fit(clients())
    agreed = model.transcript_.configuration
    assert (agreed.n_clusters, agreed.max_rows) == (3, 64)
