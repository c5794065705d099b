"""Attacks on what blocks bring: they give nothing, and with a binding taken out a client's answer.

| attack | guard that is taken out in the second half |
|---|---|
| one client, another question | H in the stream of two clients |
| R read ahead | e, which hides R |
| state seized after a block | the chain, which goes on |
| receipts forged once e is open | the lock (`test_hostile_enumeration`) |
| recorded messages, X25519 broken | ML-KEM-768 |

A state restored within a block repeats its masks: that is an assumption, which the last test shows.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import numpy as np
import pytest

from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.stored.encoding import decode
from privfed.protocols.crypto.fixed_point import Grid
from privfed.protocols.crypto.keys import KEY_BYTES, CryptographyError, agree, decapsulate, unseal
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.crypto.shamir import combine, lagrange
from privfed.protocols.masked import blocks
from privfed.protocols.masked.bindings import (
    BOTH_RECEIPTS,
    BOX_KEYS,
    pair_of,
    pair_prefix,
    pair_streams,
    self_stream,
)
from privfed.protocols.masked.client_state import Pair, box_bytes
from privfed.protocols.masked.masked_messages import Agreed, Upload
from privfed.protocols.setup import hybrid
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import Advertisement, Channel, Envelope, Joining, part
from tests.protocols.federations import vectors
from tests.protocols.hostile import weaker
from tests.protocols.hostile.attack import ALL, OTHERS, VICTIM, N, T, calls, collected, opened
from tests.protocols.hostile.loot import Loot
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.test_hostile_setup import Recorded
from tests.protocols.hostile.world import World


def other_question() -> HostileServer:
    server = HostileServer(World(N))
    fit = server.open([(1, 0)])
    assert server.collect_all(fit, 1, OTHERS) == []
    assert server.collect(fit, VICTIM, 1, question=1) == ""
    server.unmask_all(fit, 1, calls(ALL, ()))
    return server


def test_one_client_is_asked_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(other_question()) == set()

    weaker.without_header(monkeypatch)
    assert opened(other_question()) == {ALL}


def fair() -> HostileServer:
    server, fit = collected(World(N))
    assert server.unmask_all(fit, 1, calls(ALL, ())) == []
    return server


def test_what_is_kept_for_lost_clients_opens_with_their_e_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened(fair()) == {ALL}

    weaker.without_recovery_key(monkeypatch)
    assert opened(fair()) == {frozenset({i}) for i in ALL}


def seized() -> tuple[set[bytes], set[bytes], set[bytes]]:
    """Seize a client after its first block; return its seeds, and those that the state gives."""
    server, fit = collected(World(N))
    before = {
        part(one.seeds[r], place, KEY_BYTES)
        for state in (server.world.stores[VICTIM].load(),)
        for one in state.keys.blocks.values()
        for r in one.seeds
        for place in range(N - 1)
    }
    server.prepare(fit, 1 + BLOCK)
    assert server.collect_all(fit, 1 + BLOCK, ALL) == []
    state, numbers = server.world.stores[VICTIM].load(), server.agreement
    digest, t = numbers.cohort(0).digest, numbers.threshold(0)
    found: list[set[bytes]] = []
    for block in (1, 3):
        prefix = blocks.block_prefix(fit.session, block, BLOCK, t, digest)
        derived = [
            blocks.block_secrets(
                blocks.ratcheted(pair, block).chain, prefix, min(j, VICTIM), max(j, VICTIM), BLOCK
            )
            for j, pair in state.keys.pairs.items()
        ]
        found.append({part(one[BOX_KEYS:], r, KEY_BYTES) for one in derived for r in range(BLOCK)})
    return before, *found


def test_a_seized_state_gives_nothing_of_blocks_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before, of_first, of_third = seized()
    assert len(before) == (N - 1) * (BLOCK - 1) and not before & of_first and of_third

    monkeypatch.setattr(blocks, "ratcheted", lambda pair, block: Pair(pair.chain, block, pair.invitation))
    before, of_first, _ = seized()
    assert before <= of_first


def test_a_receipt_is_forged_once_e_is_open_and_opens_nothing() -> None:
    server = HostileServer(World(N))
    fit = server.open([(1, 0)])
    last = min(OTHERS)
    assert server.collect_all(fit, 1, OTHERS) == []
    assert server.collect(fit, VICTIM, 1, question=1) == ""
    first = OTHERS - {last}
    # An answer opens with t shares of its a, and so does the e of whom t such answers call lost.
    assert server.unmask_all(fit, 1, calls(first, {VICTIM})) == []
    told = server.upload_of(fit, last, 1)
    seeds = Loot(server).lost[VICTIM, fit.session, 1]
    assert told is not None and len(first) > T
    told_receipt = server.receipt
    server.receipt = lambda to, sender: (  # type: ignore[method-assign]
        server.forged(to, sender, seeds[last]) if sender == VICTIM else told_receipt(to, sender)
    )
    assert server.unmask(fit, last, 1, ()) == ""
    assert opened(server) == {OTHERS}


class Broken(Recorded):
    """What a coordinator knows that records a sum and breaks X25519 later, with or without ML-KEM-768."""

    def chains(self, *, x25519: bool, mlkem: bool) -> dict[tuple[int, int], bytes]:
        """Return the first chain key of each pair, as it comes of what was recorded."""
        advertised = {i: decode(one, Advertisement, sender="", stage="") for i, one in self.log[0][2].items()}
        session, found = self.run.state(0).keys.session, {}
        for i, reply in self.log[1][2].items():
            envelope = decode(
                decode(reply, Joining, sender="", stage="").envelope, Envelope, sender="", stage=""
            )
            for one in self.channels[i].up.open(envelope, Agreed, "").capsules:
                agreed = agree(self.x25519[i], advertised[one.client].key) if x25519 else bytes(32)
                inside = decapsulate(self.mlkem[one.client], one.ciphertext) if mlkem else bytes(32)
                key, _ = hybrid._keys(agreed, inside, session, i, one.client, one.ciphertext)
                found[min(i, one.client), max(i, one.client)] = pair_of(key, session).chain
        return found

    @property
    def channels(self) -> dict[int, Channel]:
        """The channels to all clients: the coordinator is one end."""
        return self.run.session._channels  # type: ignore[attr-defined,no-any-return]

    def read(self, **broken: bool) -> int:
        """Return how many uploads of the first sum open, each for itself."""
        rules, session = self.run.session._agreement, self.run.state(0).keys.session  # type: ignore[attr-defined]
        cohort, t, n = rules.cohort(0), rules.threshold(0), self.run.n
        prefix = blocks.block_prefix(session, 1, BLOCK, t, cohort.digest)
        derived = {
            ends: blocks.block_secrets(chain, prefix, *ends, BLOCK)
            for ends, chain in self.chains(**broken).items()
        }
        prepared = self.run.session._announced.coming[1].preparations  # type: ignore[attr-defined]
        uploads = next(replies for stage, _, replies in self.log if stage == "collect")
        question, grid, found = vectors(), Grid(vectors().spec, n), 0
        header = self.header
        for i, data in uploads.items():
            upload = self.channels[i].up.open(decode(data, Envelope, sender="", stage=""), Upload, "")
            words = np.frombuffer(upload.words, dtype="<u8").astype(np.uint64)
            shares = {}
            for place, j in enumerate([j for j in range(n) if j != i]):
                box = part(prepared[i].boxes, place, box_bytes(BLOCK))
                bound_to = (session, 1, BLOCK, i, j, t, place + 1, cohort.digest)
                with suppress(CryptographyError):
                    key = derived[min(i, j), max(i, j)][blocks.sending(i, j)]
                    shares[place + 1] = unseal(key, box, blocks.box_binding(*bound_to))[:KEY_BYTES]
            if len(shares) < t:
                continue
            points = tuple(shares)[:t]
            rows = np.frombuffer(b"".join(shares[x] for x in points), dtype=np.uint8).reshape(1, t, KEY_BYTES)
            own = combine(rows, lagrange(points)[None])[0].tobytes()
            masks, adds = [self_stream(own, session, 1, i, header, grid.size)], [False]
            for j in (j for j in range(n) if j != i):
                seed = part(derived[min(i, j), max(i, j)][BOX_KEYS:], 0, KEY_BYTES)
                (stream,) = pair_streams(seed, pair_prefix(header), i, (j,), grid.size)
                masks.append(stream[BOTH_RECEIPTS:])
                adds.append(i > j)
            Masker(grid).apply(words, masks, np.array(adds))
            inside = np.clip(self.run.values[i], question.low, question.high)
            found += bool(np.array_equal(words, grid.encode(inside, self.run.moved[i])))
        return found


def test_a_coordinator_that_records_a_sum_opens_it_once_both_are_broken_and_no_earlier() -> None:
    broken = Broken()
    found = [broken.read(x25519=a, mlkem=b) for a in (False, True) for b in (False, True)]
    assert found == [0, 0, 0, broken.run.n]


def test_a_state_that_is_restored_within_a_block_repeats_its_masks() -> None:
    """Such a client counts among the colluders: two answers under one H give their difference."""
    world = World(N, answerer=lambda client: changing)
    server = HostileServer(world)
    fit = server.open([(1, 0)])
    copy = world.stores[VICTIM].load()
    assert server.collect(fit, VICTIM, 1) == ""
    world.stores[VICTIM].save(copy)
    assert server.collect(fit, VICTIM, 1) == ""
    one, other = server.collected
    assert one.header == other.header
    np.testing.assert_array_equal(one.words - other.words, one.truth - other.truth)
    assert (one.truth != other.truth).any()


_ASKED = count(1)


def changing(question: Question, index: int) -> tuple[Statistics, int]:
    return Statistics(x=np.full(3, float(next(_ASKED)))), 0
