"""Sums on the sparse graph: exact for every pattern of losses that leaves t neighbours, else an error.

The law is checked on graphs over a few clients, whose losses can be tried by the hundred; then once each
on the smallest and a larger real one.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from privfed.core.record.records import Summed
from privfed.core.roles.engine import Exchange
from privfed.core.stored.encoding import Refusal, decode
from privfed.engines.in_process import Fault
from privfed.errors import NotEnoughClientsError
from privfed.protocols import Masked
from privfed.protocols.masked.bindings import ratcheted
from privfed.protocols.masked.client_state import CODEC, State, box_bytes
from privfed.protocols.masked.masked_messages import CollectRequest
from privfed.protocols.setup import rules
from privfed.protocols.setup.graph import Graph, sizes
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Envelope
from tests.default_run import slow
from tests.protocols.federations import Sums, seeded, vectors, wide_vectors
from tests.protocols.sparse import small_graphs
from tests.protocols.tapes import ALTERED, CODE, Forger, Nonsense, content, opened, resigned, sealed

VECTORS = vectors()
N, D = 14, 6
STAGES = ("prepare", "collect", "unmask")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    # The graph comes from the parties' keys: drawn anew, it would be another in each run.
    with seeded(1):
        yield


def neighbours(run: Sums) -> list[set[int]]:
    """Return everybody's neighbours in the sum of everyone."""
    session = run.session
    return [
        set(session._agreement.neighbours(session._session, 0, i).clients)  # type: ignore[attr-defined]
        for i in range(run.n)
    ]


def outcome(run: Sums, lost: dict[int, str], t: int) -> set[int] | None:
    """Return who must contribute where clients are lost in some stages, None where nothing can open."""
    near, everyone = neighbours(run), set(range(run.n))
    prepared = {i for i in everyone if lost.get(i) != "prepare"}
    while cut := {i for i in prepared if len(near[i] & prepared) < t}:
        prepared -= cut
    living = {i for i in prepared if lost.get(i) != "collect"}
    answering = {i for i in living if lost.get(i) != "unmask"}
    # A client with too few living neighbours refuses to answer.
    answering = {i for i in answering if len(near[i] & living) >= t}
    enough = all(len(near[i] & answering) >= t for i in prepared)
    return living if prepared and enough and len(answering) > t else None


@pytest.mark.slow
def test_losses_open_the_sum_of_the_rest_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    rng, counts = random.Random(0), Counter[str]()
    for _ in range(30):
        run = Sums(Masked(losses=9, colluders=0, honest=2), N)
        t = run.sides[0]._agreement.threshold(0)  # type: ignore[attr-defined]
        assert t == D // 2 + 1
        lost = {i: rng.choice(STAGES) for i in rng.sample(range(N), rng.randint(0, 4))}
        faults = [Fault(i, stage) for i, stage in lost.items()]  # type: ignore[arg-type]
        try:
            total = run.ask(VECTORS, 0, (0,), *faults)
        except NotEnoughClientsError as error:
            assert outcome(run, lost, t) is None, lost
            assert error.left < error.needed and not run.transcript.of(Summed)
            counts["failed"] += 1
        else:
            assert set(total.contributors) == outcome(run, lost, t), lost
            run.assert_exact(total, VECTORS)
            counts["opened"] += 1
        # Whoever was lost is back in the next sum.
        total = run.ask(wide_vectors())
        run.assert_exact(total, wide_vectors())
        assert total.contributors == tuple(range(N))
    assert min(counts["failed"], counts["opened"]) > 5


def test_whoever_has_too_few_prepared_neighbours_is_left_out_before_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, seed = 20, bytes(32)
    small_graphs(monkeypatch, D)
    monkeypatch.setattr(rules, "Graph", lambda members, degree, _: Graph(members, degree, seed))
    near = [set(Graph(tuple(range(n)), D, seed).neighbours(i).clients) for i in range(n)]
    # Three lost neighbours are one too many for a client, but not for anyone else.
    for client, lost in ((i, lost) for i in range(n) for lost in itertools.combinations(near[i], 3)):
        left = set(range(n)) - {client, *lost}
        if all(len(near[i] & left) > D // 2 for i in left):
            break
    run = Sums(Masked(colluders=0, honest=2, losses=4), n)
    total = run.ask(VECTORS, 0, (0,), *[Fault(i, "prepare") for i in lost])
    run.assert_exact(total, VECTORS)
    assert set(total.contributors) == left
    assert total.dropped == dict.fromkeys(sorted({client, *lost}), "prepare")
    assert all(
        client not in exchange.requests for exchange, _ in run.engine.log if exchange.stage == "unmask"
    )


def test_a_bad_box_is_named_by_a_neighbour_and_its_sender_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, 8)
    run = Sums(Masked(losses=9, colluders=1, honest=2), N)
    run.ask()
    for _ in range(7):
        run.ask()
    # The next block's boxes are still with the coordinator.
    (coming,) = run.session._announced.coming.values()  # type: ignore[attr-defined]
    sent = coming.preparations[3]
    coming.preparations[3] = resigned(run, 3, msgspec.structs.replace(sent, boxes=b"\1" * len(sent.boxes)))
    total = run.ask()
    run.assert_exact(total, VECTORS)
    # All its neighbours refuse; they are asked again without it.
    assert set(range(N)) - set(total.contributors) == {3}
    refusals = [
        content(run.state(i), i, reply) for i, reply in run.engine.log[-4][1] if i in neighbours(run)[3]
    ]
    assert refusals == [Refusal("box:3")] * 8


def test_keys_are_agreed_on_with_neighbours_only_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    run = Sums(Masked(losses=9, colluders=0, honest=2), N, rounds=(tuple(range(8)), tuple(range(4, 12))))
    run.ask(VECTORS, 1, (1,))
    near = run.session._agreement.neighbours(run.session._session, 1, 0).clients  # type: ignore[attr-defined]
    first = run.state(0).keys.pairs
    assert set(first) == set(near)
    run.ask(VECTORS, 1, (0,))
    later = run.state(0).keys.pairs
    assert {j: later[j].invitation for j in near} == {j: first[j].invitation for j in near}
    # The chains went forward, with those only that the next cohorts have in common.
    assert all(later[j] == ratcheted(first[j], later[j].block) for j in near)
    assert any(later[j] != first[j] for j in near)
    run.ask(VECTORS, 0, (0,))
    state = run.state(0)
    assert set(state.keys.pairs) > set(first) and 0 not in state.keys.pairs
    assert CODEC.from_bytes(CODEC.to_bytes(state)) == state


def test_messages_name_the_neighbours_only(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    run = Sums(Masked(losses=9, colluders=0, honest=2), N)
    run.ask()
    request = run.engine.log[-2][0].requests[0]
    _, message = opened(run.state(0), 0, request)
    assert isinstance(message, CollectRequest)
    # A byte a member, and a byte and a box of each neighbour, once in a block.
    assert (len(message.prepared), len(message.brought)) == (N, D)
    assert len(message.boxes) == box_bytes(BLOCK) * D
    run.ask()
    _, message = opened(run.state(0), 0, run.engine.log[-2][0].requests[0])
    assert (message.brought, message.boxes) == (bytes(D), b"")


def test_altered_replies_are_thrown_away(monkeypatch: pytest.MonkeyPatch, forged: type[Forger]) -> None:
    small_graphs(monkeypatch, D)
    run, rng = Sums(Masked(losses=9, colluders=0, honest=2), N), random.Random(2)
    forger = forged(run, lambda exchange, client, reply: [rng.choice(ALTERED)(rng, reply) for _ in range(4)])
    for _ in range(3):
        run.assert_exact(run.ask(), VECTORS)
    forger.assert_all_thrown_away()
    assert len(forger.sent) > 300


Held = list[tuple[int, State, bytes]]


def requests_of(run: Sums) -> Held:
    """Return the sealed requests of a few sums, each with its client and the state that it met."""
    held: Held = []

    def keep(exchange: Exchange, client: int, request: bytes) -> bytes:
        if b"Envelope" in request[:16]:
            held.append((client, run.state(client), request))
        return request

    run.engine.change_request = keep
    run.ask(), run.ask(VECTORS, 0, (0,), Fault(3, "collect")), run.ask()
    return held


def fuzz(run: Sums, mutations: int, seed: int) -> tuple[int, int]:
    """Send altered requests and well-sealed nonsense; return how many were refused and answered."""
    held, rng, counts = requests_of(run), random.Random(seed), [0, 0]
    nonsense = Nonsense(rng)
    for number in range(mutations):
        client, state, request = rng.choice(held)
        altered = rng.choice(ALTERED)(rng, request)
        if number % 2:
            envelope, message = opened(state, client, request)
            altered = sealed(state, client, envelope.number, envelope.stage, nonsense(message))
        if altered == request:
            continue
        after, reply = run.sides[client].step(state, altered, run.answerer(client))
        if after is state:
            message = decode(reply, Refusal | Envelope, sender="", stage="")
            refusal = message if isinstance(message, Refusal) else content(state, client, reply)
            assert CODE.fullmatch(refusal.code)
        else:
            # Some nonsense may be asked: another index, sums to come, an honest story of fewer dead.
            assert number % 2 and not isinstance(content(state, client, reply), Refusal)
        counts[after is not state] += 1
    return counts[0], counts[1]


def test_altered_requests_are_refused_and_nonsense_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    refused, answered = fuzz(Sums(Masked(losses=9, colluders=0, honest=2), N), 1500, 5)
    assert refused > 1000 and answered < 500


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_altered_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    small_graphs(monkeypatch, D)
    fuzz(Sums(Masked(losses=9, colluders=0, honest=2), N), 100_000, 6)


@pytest.mark.parametrize(("n", "share"), [slow((202, 0.1)), slow((1000, 0.1))])
def test_a_real_graph_opens_without_a_tenth_of_its_clients(n: int, share: float) -> None:
    run = Sums(Masked(losses=9), n)
    rng = np.random.default_rng(n)
    lost = rng.choice(n, int(share * n), replace=False).tolist()
    stages = ("advertise", "prepare", "collect", "unmask")
    total = run.ask(VECTORS, 0, (0,), *[Fault(i, stages[i % 4]) for i in lost])  # type: ignore[arg-type]
    run.assert_exact(total, VECTORS)
    expected = [i for i in range(n) if i not in lost or i % 4 == 3]
    assert total.contributors == tuple(expected)
    assert total.dropped == {i: stages[i % 4] for i in sorted(lost)}
    assert sizes(n, run.configuration.terms).neighbours < n // 3


@pytest.mark.slow
def test_too_many_lost_on_a_real_graph_are_an_error_that_says_how_many_may_be() -> None:
    run = Sums(Masked(losses=9), 202)
    with pytest.raises(NotEnoughClientsError) as error:
        run.ask(VECTORS, 0, (0,), *[Fault(i, "collect") for i in range(90)])
    assert (error.value.left, error.value.needed, error.value.stage) == (112, 182, "collect")
    assert len(error.value.missing) == 90
