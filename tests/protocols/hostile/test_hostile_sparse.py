"""A hostile server on sparse graphs: what opens is what an honest sum would open, or nothing.

Random servers play on graphs over a few clients; the built attacks over thirty; one over 202 of a real
one. Guards: the lock, receipts, the clients' own graph and threshold, `check_reports`, one number once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import pytest

from privfed.protocols.crypto.keys import new_secret
from privfed.protocols.setup import rules
from privfed.protocols.setup.graph import Graph
from tests.protocols.federations import seeded
from tests.protocols.hostile import weaker
from tests.protocols.hostile.attack import calls
from tests.protocols.hostile.chaos import Chaos
from tests.protocols.hostile.kept import Fit
from tests.protocols.hostile.loot import Loot, Opened
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import World, terms_of
from tests.protocols.sparse import small_graphs


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    # The graph comes from the parties' keys: drawn anew, it would be another in each run.
    with seeded(1):
        yield


def inner_neighbours(world: World, one: Opened) -> list[int]:
    """Return how many neighbours in the set, colluders counted, each honest client of an opened set has."""
    told, counts = one.uploads[0], []
    for i in one.clients - world.corrupted:
        near = world.agreement.neighbours(told.fit.session, told.cohort, i).clients
        counts.append(sum(j in one.clients or j in world.corrupted for j in near))
    return counts


def attack(n: int, seed: int, n_sums: int = 5) -> tuple[list[str], int]:
    """Return what broke the promise, and how many sums were opened at all."""
    chaos = Chaos(n, np.random.default_rng([n, seed, 1]))
    found = chaos.run(n_sums)
    broken = chaos.violations(found)
    for one in found:
        t = chaos.world.agreement.threshold(one.uploads[0].cohort)
        spare = len(chaos.forked)
        broken += [f"{k} of {t} neighbours" for k in inner_neighbours(chaos.world, one) if k + spare < t]
    return broken, len(found)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "servers"), [(7, 12), (12, 8)])
def test_random_servers_open_nothing_beyond_the_promise(
    n: int, servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_graphs(monkeypatch)
    results = [attack(n, seed) for seed in range(servers)]
    assert [one for broken, _ in results for one in broken] == []
    assert sum(count for _, count in results) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("n", "servers"), [(7, 150), (12, 60), (20, 30), (40, 6)])
def test_many_random_servers_open_nothing_beyond_the_promise(
    n: int, servers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_graphs(monkeypatch)
    results = [attack(n, seed) for seed in range(100, 100 + servers)]
    assert [one for broken, _ in results for one in broken] == []
    assert sum(count for _, count in results) > 0


# --- a single client among thirty ---

N, D, VICTIM = 30, 12, 4


def prepared(corrupted: Iterable[int] = (), colluders: int = 0) -> tuple[HostileServer, Fit, tuple[int, ...]]:
    """Set up, and have all upload; return also the victim's neighbours."""
    world = World(N, terms=terms_of(N, colluders=colluders), corrupted=corrupted)
    server = HostileServer(world)
    fit = server.open([(1, 0)])
    honest = [i for i in server.everyone if i not in world.corrupted]
    assert server.collect_all(fit, 1, honest) == []
    return server, fit, server.agreement.neighbours(fit.session, 0, VICTIM).clients


def spread_over_neighbours(server: HostileServer, fit: Fit, near: tuple[int, ...]) -> list[str]:
    """Have each of the victim's neighbours called dead by t of its own, who call the victim alive."""
    agreement = server.agreement
    t = agreement.threshold(0)
    told: dict[int, set[int]] = {i: set() for i in server.everyone}
    for j in near:
        around = [k for k in agreement.neighbours(fit.session, 0, j).clients if k != VICTIM]
        for k in sorted(around, key=lambda k: len(told[k]))[:t]:
            told[k].add(j)
    return server.unmask_all(fit, 1, told)


def test_deaths_of_all_neighbours_spread_over_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    server, fit, near = prepared()
    assert spread_over_neighbours(server, fit, near) == []
    assert Loot(server).opened() == []

    weaker.without_lock(monkeypatch)
    server, fit, near = prepared()
    assert spread_over_neighbours(server, fit, near) == []
    assert frozenset({VICTIM}) in {one.clients for one in Loot(server).opened()}


def both_secrets(near: tuple[int, ...], corrupted: int, assumed: int) -> set[frozenset[int]]:
    """Own some of the victim's neighbours; call it dead to as few of the others as will do, else alive."""
    server, fit, _ = prepared(near[:corrupted], colluders=assumed)
    t = server.agreement.threshold(0)
    honest = [i for i in server.everyone if i not in server.world.corrupted]
    server.unmask_all(fit, 1, calls(honest, ()) | calls(near[corrupted:t], {VICTIM}))
    return {one.clients for one in Loot(server).opened()}


@pytest.mark.parametrize("assumed", [2, 4])
@pytest.mark.few(1)
def test_both_secrets_of_a_client_with_too_many_colluding_neighbours(
    assumed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_graphs(monkeypatch, D)
    # Who collude does not depend on the graph. Here it is fixed, so that they can surround the victim.
    monkeypatch.setattr(rules, "Graph", lambda members, degree, seed: Graph(members, degree, bytes(32)))
    near, alone = Graph(tuple(range(N)), D, bytes(32)).neighbours(VICTIM).clients, frozenset({VICTIM})
    assert alone not in both_secrets(near, assumed, assumed)
    assert alone in both_secrets(near, assumed + 2, assumed)


# --- graphs, lists and rounds that a server would choose ---


def test_a_box_of_someone_else_is_no_box_of_a_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    server = HostileServer(World(N, terms=terms_of(N, colluders=0)))
    fit = server.open([(1, 0)])
    near = server.agreement.neighbours(fit.session, 0, VICTIM).clients
    far = next(j for j in server.everyone if j not in near and j != VICTIM)
    swap = {near[3]: fit.preparations[1, 0, far]}
    assert server.collect(fit, VICTIM, 1, swap=swap) == f"box:{near[3]}"
    # The right box but for a bit is none either.
    sent = fit.preparations[1, 0, near[3]]
    own = msgspec.structs.replace(sent, boxes=bytes([one ^ 1 for one in sent.boxes]))
    assert server.collect(fit, VICTIM, 1, swap={near[3]: own}) == f"box:{near[3]}"
    assert server.collect(fit, VICTIM, 1) == ""


def test_neither_labels_nor_numbers_choose_the_graph_and_every_set_up_draws_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small_graphs(monkeypatch, D)
    server = HostileServer(World(N, terms=terms_of(N)))
    first, second = server.open([(1, 0), (1 + rules.BLOCK, 3)]), server.open([(1, 0)])
    agreement = server.agreement
    neighbours = [agreement.neighbours(first.session, label, VICTIM).clients for label in (0, 1, 3)]
    assert len(set(neighbours)) == 1
    assert agreement.neighbours(second.session, 0, VICTIM).clients != neighbours[0]


def test_clients_left_out_of_the_list_bring_nobody_closer(monkeypatch: pytest.MonkeyPatch) -> None:
    # The graph is over the cohort, not over the server's list: who is left out is a neighbour all the same.
    small_graphs(monkeypatch, D)
    monkeypatch.setattr(rules, "Graph", lambda members, degree, seed: Graph(members, degree, bytes(32)))
    near = Graph(tuple(range(N)), D, bytes(32)).neighbours(VICTIM).clients
    for count, refused in ((D - D // 2 - 1, ""), (D - D // 2, "prepared:few")):
        server, gone = HostileServer(World(N, terms=terms_of(N, colluders=0))), set(near[:count])
        left = [i for i in server.everyone if i not in gone]
        fit_id = new_secret()
        fit = server.fit_of(fit_id, [server.advertise(i, fit_id) for i in left])
        assert {server.join(fit, i) for i in left} == {""}
        server.prepare(fit, 1, 0, left)
        assert server.agreement.threshold(0) == D // 2 + 1
        assert server.collect(fit, VICTIM, 1, prepared=left) == refused


def test_an_upload_that_comes_late_stays_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    server, fit, near = prepared()
    others = [i for i in server.everyone if i != VICTIM]
    assert server.unmask_all(fit, 1, calls(others, {VICTIM})) == []
    # Its upload is there all along; it is asked to unmask too, as if it had been in time.
    assert server.unmask(fit, VICTIM, 1, ()) == ""
    assert {one.clients for one in Loot(server).opened()} == {frozenset(others)}
    assert len(near) == D


def test_no_story_is_told_twice_nor_another_sum_opened_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    server, fit, _ = prepared()
    assert server.unmask_all(fit, 1, calls(server.everyone, ())) == []
    assert set(server.unmask_all(fit, 1, calls(server.everyone, {VICTIM}))) == {"message"}
    assert set(server.collect_all(fit, 1, server.everyone, question=1)) == {"message"}
    for client, request in fit.requests[-N:]:
        assert server.world.ask(client, request) in server.world.replies[client]
    assert {one.clients for one in Loot(server).opened()} == {frozenset(server.everyone)}


# --- a real graph ---


@pytest.mark.slow
def test_a_server_that_lies_to_two_hundred_clients_opens_one_sum_of_the_rest() -> None:
    n = 202
    world = World(n)
    server = HostileServer(world)
    fit = server.open([(1, 0)])
    numbers = server.agreement
    near = numbers.neighbours(fit.session, 0, VICTIM).clients
    assert len(near) == 56
    # The victim is sent another question; its neighbours are called dead to different clients.
    others = [i for i in server.everyone if i != VICTIM]
    assert server.collect_all(fit, 1, others) == []
    assert server.collect(fit, VICTIM, 1, question=1) == ""
    told: dict[int, set[int]] = {i: {VICTIM} for i in others}
    for j in near:
        for k in numbers.neighbours(fit.session, 0, j).clients[::2]:
            if k in told and len(told[k]) < 6:
                told[k].add(j)
    server.unmask_all(fit, 1, told)
    server.unmask(fit, VICTIM, 1, ())
    opened = Loot(server).opened()
    assert all(one.is_true and len(one.clients) >= world.promise() for one in opened)
    assert len(opened) <= 1 and not any(VICTIM in one.clients for one in opened)
