"""The named attacks by what clients are told, in two halves each: nothing; and, unguarded, too small a sum.

The others stand in `test_hostile_both_secrets` and `test_hostile_replays`.

| attack | guard that is taken out in the second half |
|---|---|
| deaths spread over clients | the lock on answers |
| two lists | receipts |
| reflected receipts | sender and receiver in the receipt |
| single survivor | lock and counts of the living together; each alone suffices |
| list P too small | receipts and counts of the prepared together; each alone suffices |
| one client, another question | the question in H |
| two cohorts for one number | `check_slot`: a number keeps its cohort |
| colluding cohort by trying labels | `check_label`: there are as many as sums |
| everyone asked where cohorts are small | `colluders_in`: as many colluders as the cohort is large |
| same secrets for overlapping cohorts | secrets made anew for each number |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from privfed.core.agreed.configuration import CohortRule
from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer
from privfed.core.values.domain import Ranges
from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import APART, InOneProcess
from privfed.protocols.masked.masked_client import MaskedClient
from privfed.questions.lloyd import LloydSums
from tests.protocols.hostile import weaker, world
from tests.protocols.hostile.attack import (
    ALL,
    OTHERS,
    OVERLAPPING,
    VICTIM,
    N,
    calls,
    collected,
    opened,
    patched,
)
from tests.protocols.hostile.comparison import check
from tests.protocols.hostile.loot import Loot
from tests.protocols.hostile.model import Clients, Model, Story
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.stories import spread_deaths, two_lists
from tests.protocols.hostile.weaker import PreparesTwice, ReusesSecrets
from tests.protocols.hostile.world import World, terms_of


@pytest.fixture(params=[APART, InOneProcess], ids=["apart", "in one process"], autouse=True)
def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack clients that compute everything, and simulated ones that take from each other what they may."""
    if request.param is InOneProcess:
        monkeypatch.setattr(world, "what_clients_share", InOneProcess)


# --- stories that differ from client to client ---

BUILT: dict[str, tuple[Callable[[], Story], int, int, weaker.Patch]] = {
    "2 of 6": (lambda: spread_deaths(6, 3, 2), 6, 2, weaker.without_lock),
    "2 of 20": (lambda: spread_deaths(20, 10, 2), 20, 2, weaker.without_lock),
    "6 of 14": (lambda: two_lists(14, 7, 6, 4), 14, 6, weaker.without_receipts),
    "8 of 20": (lambda: two_lists(20, 10, 8, 4), 20, 8, weaker.without_receipts),
}


@pytest.mark.parametrize("name", BUILT)
@pytest.mark.few(1)
def test_deaths_spread_over_clients_and_two_lists(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, n, size, patch = BUILT[name]
    terms, story = terms_of(n, colluders=0), build()
    assert size < Model(n, terms).promise
    server = HostileServer(World(n, terms=terms))
    assert check(Model(n, terms), server, server.open(), 1, story) == []

    patch(monkeypatch)
    server = HostileServer(World(n, terms=terms))
    weak = Model(n, terms, lock=patch is not weaker.without_lock)
    assert check(weak, server, server.open(), 1, story) == [frozenset(range(size))]


def reflected(monkeypatch: pytest.MonkeyPatch) -> list[Clients]:
    """Send each client the receipts that it made itself, as if its neighbours had made them."""
    server = HostileServer(World(14, terms=terms_of(14, colluders=0)))
    with monkeypatch.context() as patch:
        patch.setattr(server, "receipt", lambda told, sender: told.receipts[sender])
        fit = server.open([(1, 0)])
        server.tell(fit, 1, two_lists(14, 7, 6, 4))
    return [one.clients for one in Loot(server).opened()]


def test_receipts_that_are_reflected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reflected(monkeypatch) == []

    weaker.without_direction(monkeypatch)
    assert reflected(monkeypatch) == [frozenset(range(6))]


def single_survivor() -> tuple[HostileServer, list[str]]:
    server, fit = collected(World(N))
    return server, server.unmask_all(fit, 1, calls(ALL, OTHERS))


def test_single_survivor(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refusals = single_survivor()
    assert refusals == ["reports:few"] * N
    assert opened(server) == set()

    for guard, count in ((weaker.without_lock, N), (weaker.without_counts, 0)):
        with monkeypatch.context() as patch:
            guard(patch)
            server, refusals = single_survivor()
            assert len(refusals) == count
            assert opened(server) == set()

    patched(monkeypatch, weaker.without_lock, weaker.without_counts)
    server, _ = single_survivor()
    assert frozenset({VICTIM}) in opened(server)


def short_list() -> tuple[HostileServer, str]:
    server = HostileServer(World(N))
    fit = server.open([(1, 0)])
    server.collect_all(fit, 1, OTHERS)
    refused = server.collect(fit, VICTIM, 1, prepared={VICTIM})
    server.unmask_all(fit, 1, calls(OTHERS, ()))
    return server, refused


def test_list_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    server, refused = short_list()
    assert refused == "prepared:few"
    assert opened(server) == set()

    for guard, code in ((weaker.without_receipts, "prepared:few"), (weaker.without_counts, "")):
        with monkeypatch.context() as patch:
            guard(patch)
            server, refused = short_list()
            assert refused == code
            assert opened(server) == set()

    patched(monkeypatch, weaker.without_receipts, weaker.without_counts)
    server, _ = short_list()
    assert opened(server) == {frozenset({VICTIM})}


ROWS = [np.random.default_rng(i).normal(size=(3 + i, 2)) for i in range(N)]
SQUARE = Ranges(np.full(2, -5.0), np.full(2, 5.0), 50)


def lloyd_answerer(client: int) -> Answerer:
    def answer(question: Question, index: int) -> tuple[Statistics, int]:
        return question.answer(ClientData(ROWS[client]), np.random.default_rng(0)), 0

    return answer


def two_questions() -> tuple[HostileServer, bytes]:
    """Send the victim the same centroids in another order: its rows alone go to the second one."""
    near, far = np.zeros(2), np.full(2, 1e6)
    common = LloydSums(ranges=SQUARE, centers=np.stack([near, far])).to_bytes()
    special = LloydSums(ranges=SQUARE, centers=np.stack([far, near])).to_bytes()
    server = HostileServer(World(N, answerer=lloyd_answerer, n_features=2))
    fit = server.open([(1, 0)])
    assert server.collect_all(fit, 1, OTHERS, question=common) == []
    assert server.collect(fit, VICTIM, 1, question=special) == ""
    server.unmask_all(fit, 1, calls(ALL, ()))
    return server, common


def test_one_client_is_sent_other_centroids(monkeypatch: pytest.MonkeyPatch) -> None:
    server, _ = two_questions()
    # A client gives nothing while one of the living has not masked under its header.
    assert server.refusals == ["receipts"] * N
    assert opened(server) == set()

    weaker.without_question(monkeypatch)
    server, common = two_questions()
    (found,) = Loot(server).opened()
    vector, _, contributors = grid_of(common, N).decode(found.words)
    counts, sums = vector[:2], vector[2:].reshape(2, 2)
    assert contributors == N
    assert counts[1] == len(ROWS[VICTIM])
    np.testing.assert_allclose(sums[1], ROWS[VICTIM].sum(axis=0), atol=1e-7)


# --- cohorts ---


def overlap(side: type, *, twice: bool) -> HostileServer:
    """Call the victim alive in the first cohort's sum, dead in the second's, which it is not asked for."""
    server = HostileServer(World(11, rule=OVERLAPPING, side=side))
    first, second = (server.agreement.configuration.cohort(label) for label in (1, 2))
    other = 1 if twice else 2
    fit = server.open([(1, 1)] if twice else [(1, 1), (2, 2)])
    if twice:
        server.prepare(fit, 1, 2)
    server.collect_all(fit, 1, first, cohort=1)
    server.unmask_all(fit, 1, calls(first, ()))
    rest = [i for i in second if i != VICTIM]
    server.collect_all(fit, other, rest, cohort=2)
    server.unmask_all(fit, other, calls(rest, {VICTIM}))
    return server


def test_two_cohorts_for_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for side in (MaskedClient, PreparesTwice):
        server = overlap(side, twice=True)
        assert set(server.refusals) == {"message"}
        assert opened(server) == {ALL}

    weaker.without_slots(monkeypatch)
    assert frozenset({VICTIM}) in opened(overlap(PreparesTwice, twice=True))


def test_one_set_of_secrets_for_two_sums_of_overlapping_cohorts() -> None:
    later = frozenset(range(6, 11))
    assert opened(overlap(MaskedClient, twice=False)) == {ALL, later}
    assert frozenset({VICTIM}) in opened(overlap(ReusesSecrets, twice=False))


LABELS = CohortRule(kind="sampled", size=10, seed=6)
COLLUDERS = frozenset(range(6))
"""A tenth of sixty: fewer than three, as assumed, in each of the first eight cohorts."""


def tried_labels() -> tuple[HostileServer, frozenset[int]]:
    """Name labels until three colluders fall into a cohort of ten, which promised to hold with two."""
    world = World(60, rule=LABELS, terms=terms_of(10, max_sums=8), corrupted=COLLUDERS)
    cohorts = world.agreement.configuration.cohort
    assert all(len(COLLUDERS & set(cohorts(label))) <= 2 for label in range(1, 9))
    label = next(k for k in range(1, 10_000) if len(COLLUDERS & set(cohorts(k))) == 3)
    server = HostileServer(world)
    fit = server.open()
    server.prepare(fit, 1, label)
    honest = [i for i in cohorts(label) if i not in COLLUDERS]
    server.collect_all(fit, 1, honest, cohort=label)
    stories = calls(honest, ()) | calls(honest[1:4], {honest[0]})
    server.unmask_all(fit, 1, stories)
    return server, frozenset(honest[:1])


def test_labels_are_not_tried_until_colluders_fill_a_cohort(monkeypatch: pytest.MonkeyPatch) -> None:
    server, victim = tried_labels()
    assert set(server.refusals) == {"policy:cohort"}
    assert opened(server) == set()

    weaker.without_labels(monkeypatch)
    server, victim = tried_labels()
    assert victim in opened(server)


def everyone_asked() -> tuple[HostileServer, frozenset[int]]:
    """Ask all sixty, six colluders among them, though cohorts of ten need withstand two only."""
    server = HostileServer(World(60, rule=LABELS, terms=terms_of(10, max_sums=8), corrupted=COLLUDERS))
    fit = server.open([(1, 0)])
    honest = [i for i in server.everyone if i not in COLLUDERS]
    assert server.collect_all(fit, 1, honest) == []
    t = server.agreement.threshold(0)
    # t shares of either secret: those of the six count twice.
    server.unmask_all(fit, 1, calls(honest, ()) | calls(honest[1 : 1 + t - len(COLLUDERS)], {honest[0]}))
    return server, frozenset(honest[:1])


@pytest.mark.slow
def test_a_larger_cohort_withstands_the_colluders_of_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    server, victim = everyone_asked()
    assert server.refusals == []
    assert victim not in opened(server)

    weaker.without_larger_colluders(monkeypatch)
    server, victim = everyone_asked()
    assert victim in opened(server)
