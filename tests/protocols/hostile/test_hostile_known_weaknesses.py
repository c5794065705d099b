"""The eight weaknesses of Flower's SecAgg+ (1.42), each tried against masked sums: none of eight is there.

They were found by running its own functions; each test is named after what was seen. Guards: the full
key in the keystream (1), `check_reports` (2), the clients' own threshold and the signed list (3), the
channel and the masked entries (4), preparing one sum ahead (5), regular graphs and `check_cohort` (6),
the count of what was clipped (7), AES and the erasure of secrets (8).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Entry, Statistics
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Answerer, Client
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.encoding import decode
from privfed.engines.in_process import Fault, InProcessEngine
from privfed.errors import ArgumentError, PrivFedError
from privfed.party.state import MemoryStore
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import KEY_BYTES, new_secret
from privfed.protocols.crypto.keystream import SHORT, keystream
from privfed.protocols.crypto.shamir import combine, lagrange
from privfed.protocols.masked.bindings import BOTH_RECEIPTS, pair_prefix, pair_streams
from privfed.protocols.masked.client_state import CODEC, SECRET_BYTES
from privfed.protocols.masked.masked_messages import UnmaskRequest, Upload
from privfed.protocols.setup.setup_messages import Envelope, part
from tests.protocols.hostile.loot import Loot
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import (
    ONE_COLUMN,
    HostileNumbers,
    World,
    numbers_answerer,
    numbers_of,
    numbers_question,
    terms_of,
)
from tests.protocols.sparse import small_graphs


@pytest.fixture(autouse=True, params=["full graph", "sparse graph"])
def _graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test on both graphs."""
    if request.param == "sparse graph":
        small_graphs(monkeypatch)


def fair_sum(
    n: int,
    *,
    protocol: Masked | None = None,
    faults: Sequence[Fault] = (),
    answerer: type[Answerer] = numbers_answerer,
) -> Total:
    """Return the total that an honest server opens."""
    protocol = protocol or Masked()
    names = tuple(f"client {i}" for i in range(n))
    configuration = Configuration(
        protocol="masked", algorithm="", clients=names, n_features=1, terms=protocol.terms(n, n, 10)
    )
    session, sides = protocol.parties(configuration, {i: ClientPolicy() for i in range(n)})
    clients = {i: Client(side, MemoryStore(), answerer(i)) for i, side in sides.items()}
    engine = InProcessEngine(clients, faults=faults)

    def drive(steps: Steps[object]) -> object:
        exchange = next(steps)
        while True:
            try:
                exchange = steps.send(engine.exchange(exchange))
            except StopIteration as finished:
                return finished.value

    drive(session.open())
    total = drive(session.sum(HostileNumbers(ranges=ONE_COLUMN, tag=0), 0, 0, ()))
    assert isinstance(total, Total)
    return total


def expected(clients: Sequence[int]) -> list[float]:
    """Return the true sum."""
    return np.sum([numbers_of(i, 0) for i in clients], axis=0).tolist()


def varying_bits(values: Sequence[bytes]) -> int:
    """Return how many bits differ at all between values."""
    rows = np.array([np.frombuffer(value, dtype=np.uint8) for value in values])
    return int(np.unpackbits(np.bitwise_or.reduce(rows ^ rows[0], axis=0)).sum())


def test_1_mask_generator_is_seeded_with_28_bits_that_vary() -> None:
    prefix = pair_prefix(new_secret())
    # Of a long mask the stream gives the key.
    streams = [pair_streams(new_secret(), prefix, 0, (1,), SHORT + 1)[0] for _ in range(500)]
    keys = [one[BOTH_RECEIPTS:] for one in streams]
    assert varying_bits([one[:BOTH_RECEIPTS] for one in streams]) == 8 * BOTH_RECEIPTS
    assert varying_bits(keys) == 8 * KEY_BYTES
    assert varying_bits([keystream(key, 4).tobytes() for key in keys]) == 8 * 32

    # Each single bit of the key changes all of the stream: nothing is folded together.
    key, stream = np.frombuffer(keys[0], dtype=np.uint8), keystream(keys[0], 16)
    for bit in range(8 * KEY_BYTES):
        flipped = key.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        assert (keystream(flipped.tobytes(), 16) != stream).all()


def test_2_client_listed_as_active_and_dead_loses_both_secrets() -> None:
    server = HostileServer(World(6))
    fit = server.open([(1, 0)])
    server.collect_all(fit, 1, range(6))
    # There is no list of the active: whoever is not dead is alive. More receipts than living are refused. By
    # `lost` clients only count, and no living neighbour may be in it.
    assert UnmaskRequest.__struct_fields__ == (
        *("dead", "receipts", "upcoming", "lost", "signatures", "keys", "capsules"),
    )
    near = server.agreement.neighbours(fit.session, 0, 5).clients
    told_both = server.unmask_all(fit, 1, {i: {5} for i in near}, receipts_of_dead=True)
    assert told_both == ["receipts:length"] * len(near)
    assert server.unmask_all(fit, 1, {i: {5} for i in range(5)}) == []
    assert {one.clients for one in Loot(server).opened()} == {frozenset(range(5))}


def test_3_client_accepts_threshold_1_and_an_invented_neighbour() -> None:
    world = World(6, corrupted=range(1, 6))
    server = HostileServer(world)
    fit = server.open([(1, 0)])
    shares, near = Loot(server)._shares, server.agreement.neighbours(fit.session, 0, 0)
    of_victim = {
        kind: {point: shares[(fit.preparations[1, 0, 0], 0), kind][point] for point in near.abscissae}
        for kind in range(3)
    }
    own = world.stores[0].load().keys.blocks[1].own[1]
    for kind, secret in enumerate(part(own, kind, KEY_BYTES) for kind in range(3)):
        assert rebuilt(of_victim[kind], 3) == secret
        assert rebuilt(of_victim[kind], 2) != secret
        assert secret not in of_victim[kind].values()

    server = HostileServer(World(6, impostors=[3]))
    fit_id = new_secret()
    made = server.fit_of(fit_id, [server.advertise(i, fit_id) for i in range(6)])
    assert server.join(made, 0, [(1, 0)]) == "roster:signature"


def rebuilt(shares: dict[int, bytes], t: int) -> bytes:
    """Return what t shares give."""
    points = tuple(sorted(shares))[:t]
    rows = np.frombuffer(b"".join(shares[p] for p in points), dtype=np.uint8).reshape(1, t, KEY_BYTES)
    return combine(rows, lagrange(points)[None])[0].tobytes()


def test_4_counts_and_metrics_are_sent_in_clear_beside_the_masked_vector() -> None:
    def silent(client: int) -> Answerer:
        return lambda question, index: (Statistics(x=np.full(3, 5000.0 if client else 0.0)), 7 * client)

    server = HostileServer(World(6, answerer=silent))
    fit = server.open([(1, 0)])
    server.collect_all(fit, 1, range(6))
    assert Upload.__struct_fields__ == (
        *("words", "receipts", "signature", "preparations", "capsules", "invitations"),
    )
    lengths = set()
    for client, request in fit.requests[-6:]:
        reply = server.world.ask(client, request)
        envelope = decode(reply, Envelope, sender="client", stage="collect")
        lengths.add(len(reply))
        # On the wire: number, stage, and bytes that nobody without the channel's key can read.
        assert (envelope.number, envelope.stage) == (1, "collect")
        told = server.upload_of(fit, client, 1)
        assert told is not None
        for hidden in (told.words, told.truth):
            assert not any(part(hidden.tobytes(), place, 8) in reply for place in range(5))
        # Rows clipped and the number of contributors are entries of the masked vector itself.
        assert len(told.words) == 3 + 2
        assert (told.words != told.truth).all()
    assert len(lengths) == 1


@pytest.mark.parametrize("stage", ["advertise", "prepare"])
@pytest.mark.parametrize("kind", ["drop", "lost-reply", "late"])
@pytest.mark.few(3)
def test_5_client_lost_before_it_shared_keys_ends_the_round_for_all(stage: str, kind: str) -> None:
    total = fair_sum(10, faults=[Fault(3, stage, kind)])  # type: ignore[arg-type]
    left = [i for i in range(10) if i != 3]
    assert total.contributors == tuple(left)
    assert total.statistics["x"].tolist() == pytest.approx(expected(left), abs=1e-6)


@pytest.mark.parametrize("n", range(3, 13))
@pytest.mark.few(4)
def test_6_even_number_of_shares_fails_every_client(n: int) -> None:
    total = fair_sum(n)
    assert total.contributors == tuple(range(n))
    assert total.statistics["x"].tolist() == pytest.approx(expected(range(n)), abs=1e-6)


@pytest.mark.parametrize("threshold", range(0, 12))
@pytest.mark.few(6)
def test_6_threshold_of_either_parity_opens_or_is_an_error_before_anything_is_sent(threshold: int) -> None:
    if 1 <= threshold <= 10:
        assert fair_sum(10, protocol=Masked(threshold=threshold)).contributors == tuple(range(10))
    else:
        with pytest.raises(ArgumentError, match=rf"got (threshold=)?{threshold}\b"):
            fair_sum(10, protocol=Masked(threshold=threshold))


def test_7_values_outside_the_range_saturate_without_a_word() -> None:
    def outside(client: int) -> Answerer:
        def answer(question: Question, index: int) -> tuple[Statistics, int]:
            return Statistics(x=[5000.0 if client == 2 else 1.0, 1.0, -5000.0 if client < 4 else 1.0]), 0

        return answer

    total = fair_sum(6, answerer=outside)  # type: ignore[arg-type]
    assert total.clipped == 1 + 4
    assert total.statistics["x"].tolist() == pytest.approx([1005.0, 6.0, -3998.0], abs=1e-6)
    with pytest.raises(ArgumentError, match="low above its high"):
        Entry("x", (1,), 1.0, -1.0, 1.0)


def test_8_largest_value_is_never_drawn() -> None:
    """Of 2^20 uniform bytes at a place, each value comes 4096 times, give or take 64."""
    words = keystream(new_secret(), 1 << 20).view(np.uint8).reshape(-1, 8)
    for place in range(8):
        counts = np.bincount(words[:, place], minlength=256)
        # Seven standard deviations: 2048 counts stay within it but once in 10^8 runs.
        assert np.abs(counts - 4096).max() < 7 * 64


def test_8_keys_are_kept_after_the_round() -> None:
    world = World(6)
    server = HostileServer(world)
    fit = server.open([(1, 0)])
    blocks = [world.stores[i].load().keys.blocks[1] for i in range(6)]
    secrets = [[part(one.own[1], kind, KEY_BYTES) for kind in range(3)] for one in blocks]
    advertised = world.stores[0].load()
    assert advertised.key == b""  # the key of the fit went when the list came

    server.collect_all(fit, 1, range(6))
    stored = [CODEC.to_bytes(world.stores[i].load()) for i in range(6)]
    for kept, own, block in zip(stored, secrets, blocks, strict=True):
        assert own[0] not in kept and own[1] not in kept
        assert own[2] in kept
        assert not any(part(block.seeds[1], j, KEY_BYTES) in kept for j in range(len(block.opened)))

    held = [world.stores[i].load().keys.pending.shares for i in range(6)]
    assert server.unmask_all(fit, 1, {i: () for i in range(6)}) == []
    for i, own in enumerate(secrets):
        kept = CODEC.to_bytes(world.stores[i].load())
        assert own[2] not in kept
        # What others gave to hold is gone, but for what the kept reply gave to the server anyway.
        for j in range(len(held[i]) // SECRET_BYTES):
            assert not any(part(held[i], 3 * j + kind, KEY_BYTES) in kept for kind in (0, 1))


def test_nothing_but_the_errors_of_this_project_reaches_a_user_who_is_too_few() -> None:
    with pytest.raises(PrivFedError, match="at least 3 clients"):
        fair_sum(2)
    assert terms_of(3).honest == 2
    assert numbers_question(0) != numbers_question(1)
