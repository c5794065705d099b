"""What the server and its colluders hold of a masked sum is uniform, given the sum and their own state.

The tests know every key. They subtract exactly what an adversary can compute and look at the rest
with chi-square and Kolmogorov-Smirnov tests. A run computes some thousands of p-values, and what is
encapsulated differs from run to run, so that only a p-value below 1e-10 is a failure: honest masks then
fail less than one run in a million, and what is not uniform comes out below 1e-30.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pytest
from scipy import stats

from privfed.core.stored.encoding import decode
from privfed.engines.in_process import Fault
from privfed.errors import IntegrityError, MessageError, NotEnoughClientsError
from privfed.protocols import Masked
from privfed.protocols.crypto.fixed_point import Grid, Words
from privfed.protocols.crypto.keystream import SHORT, keystream
from privfed.protocols.masked import session
from privfed.protocols.masked.bindings import BOTH_RECEIPTS, pair_prefix, pair_streams, self_stream
from privfed.protocols.masked.masked_messages import Upload
from privfed.protocols.masked.round_state import RoundState
from privfed.protocols.setup.rules import threshold
from privfed.protocols.setup.setup_messages import Envelope, part
from tests.protocols.federations import Sums, Vectors, seeded, vectors
from tests.some import some

P_VALUE = 1e-10


def p_values(words: Words) -> list[float]:
    """Return p-values of words under uniformity: of their bytes, of the words, and of their low bits."""
    data = np.frombuffer(words.tobytes(), dtype=np.uint8)
    eighths = [np.bincount(data[place::8], minlength=256) for place in range(8)]
    return [
        stats.chisquare(np.bincount(data, minlength=256)).pvalue,
        *(stats.chisquare(one).pvalue for one in eighths if one.sum() > 256 * 20),
        stats.kstest(words.astype(np.float64) / 2.0**64, "uniform").pvalue,
        stats.binomtest(int(np.bitwise_count(words).sum()), 64 * len(words)).pvalue,
    ]


def assert_uniform(words: Words) -> None:
    assert min(p_values(words)) > P_VALUE


def assert_not_uniform(words: Words) -> None:
    assert min(p_values(words)) < 1e-30


class Observed:
    """One sum, and everything that anybody knew in it.

    Args:
        run: the federation.
        question: what is asked.
        dead: clients that are told dead, and whose uploads come late.
    """

    def __init__(self, run: Sums, question: Vectors, dead: Iterable[int] = ()) -> None:
        self.run, self.dead = run, tuple(dead)
        self.own: dict[int, bytes] = {}
        self.seeds: dict[int, bytes] = {}
        self.header = b""
        run.engine.before = self._look
        seen = len(run.engine.log)
        run.ask(question, 0, (0,), *(Fault(i, "collect", "late") for i in self.dead))
        self.living = tuple(i for i in self.own if i not in self.dead)
        self.grid = Grid(question.spec, run.n)
        self.uploads = dict(self._uploads(seen))
        self.answers = {
            i: self.grid.encode(np.clip(run.values[i], question.low, question.high), run.moved[i])
            for i in self.own
        }

    def _look(self, exchange: session.Exchange) -> None:
        states = {i: self.run.state(i) for i in range(self.run.n)}
        if exchange.stage == "collect":
            self.number = exchange.number
            blocks = {
                i: next(one for one in state.keys.blocks.values() if self.number in one.own)
                for i, state in states.items()
            }
            self.own = {i: part(one.own[self.number], 0, 32) for i, one in blocks.items()}
            self.seeds = {i: one.seeds[self.number] for i, one in blocks.items()}
            self.session = states[0].keys.session
        if exchange.stage == "unmask":
            self.header = states[0].keys.pending.header

    def _uploads(self, seen: int) -> Iterable[tuple[int, Words]]:
        for exchange, replies in self.run.engine.log[seen:]:
            for i, data in () if exchange.stage in ("advertise", "agree") else replies:
                envelope = decode(data, Envelope, sender="", stage="")
                if envelope.stage == "collect":
                    channel = self.run.session._channels[i]  # type: ignore[attr-defined]
                    upload = channel.up.open(envelope, Upload, "")
                    yield i, np.frombuffer(upload.words, dtype="<u8").astype(np.uint64)

    def self_mask(self, client: int) -> Words:
        bound_to = (self.session, self.number, client, self.header)
        return self._words(self_stream(self.own[client], *bound_to, self.grid.size))

    def pair_mask(self, one: int, other: int) -> Words:
        seed = part(self.seeds[one], other - (one < other), 32)
        return self._words(
            pair_streams(seed, pair_prefix(self.header), one, (other,), self.grid.size)[0][BOTH_RECEIPTS:]
        )

    def _words(self, mask: bytes) -> Words:
        if self.grid.size > SHORT:
            return keystream(mask, self.grid.size)
        return np.frombuffer(mask, dtype="<u8").astype(np.uint64)

    def without(
        self, client: int, *, own: bool = False, pairs: Iterable[int] = (), answer: bool = False
    ) -> Words:
        """Return a client's upload without some of what is in it."""
        words = self.uploads[client].copy()
        if own:
            self.grid.add(words, self.self_mask(client), -1)
        for j in pairs:
            self.grid.add(words, self.pair_mask(client, j), -1 if client < j else 1)
        if answer:
            self.grid.add(words, self.answers[client], -1)
        return words

    def others(self, client: int, but: Iterable[int] = ()) -> tuple[int, ...]:
        return tuple(i for i in self.own if i != client and i not in but)


def observed(dead: tuple[int, ...] = (), n: int = 6, wide: bool = False) -> Observed:
    """Return a sum of six clients, two of which may collude, over long answers that are mostly zero."""
    size = 3000 if wide else 6000
    question = vectors(size, -(2.0**80), 2.0**80) if wide else vectors(size)
    rng = np.random.default_rng(7)
    with seeded(8):
        run = Sums(Masked(colluders=2, honest=3), n)
        run.draw = lambda question: None  # type: ignore[method-assign]
        run.values = {i: np.where(rng.random(size) < 0.05, rng.uniform(-10, 10, size), 0.0) for i in range(n)}
        return Observed(run, question, dead)


COLLUDING = (0, 1)


@pytest.fixture(scope="module", params=[False, True], ids=["one-limb", "two-limbs"])
def all_alive(request: pytest.FixtureRequest) -> Observed:
    return observed(wide=request.param)


@pytest.fixture(scope="module", params=[False, True], ids=["one-limb", "two-limbs"])
def one_dead(request: pytest.FixtureRequest) -> Observed:
    return observed(dead=(5,), wide=request.param)


# --- that the tests can fail ---


def test_what_is_subtracted_is_what_was_added(all_alive: Observed) -> None:
    for i in some(all_alive.living):
        words = all_alive.without(i, own=True, pairs=all_alive.others(i))
        np.testing.assert_array_equal(words, all_alive.answers[i])
        assert_not_uniform(words)


def test_a_client_all_of_whose_masks_are_known_is_open(one_dead: Observed) -> None:
    for i in some(one_dead.living):
        everyone = one_dead.others(i)
        np.testing.assert_array_equal(one_dead.without(i, own=True, pairs=everyone), one_dead.answers[i])


def test_the_sum_of_all_honest_clients_is_open(one_dead: Observed) -> None:
    # It is what the server may learn: the total minus what its colluders know.
    honest = [i for i in one_dead.living if i not in COLLUDING]
    total = np.zeros(one_dead.grid.size, dtype=np.uint64)
    for i in honest:
        one_dead.grid.add(total, one_dead.without(i, own=True, pairs=(*COLLUDING, *one_dead.dead)))
    for i in honest:
        one_dead.grid.add(total, one_dead.answers[i], -1)
    assert not total.any()


def test_the_seed_makes_the_masks_repeat() -> None:
    for i, words in some(observed().uploads.items()):
        np.testing.assert_array_equal(words, observed().uploads[i])


def test_small_numbers_are_not_taken_for_uniform() -> None:
    rng = np.random.default_rng(1)
    assert_uniform(rng.integers(0, 2**64, 6000, dtype=np.uint64))
    assert_not_uniform(rng.integers(0, 2**62, 6000, dtype=np.uint64))
    # A generator with few seeds repeats itself: each word comes about twice.
    few = rng.integers(0, 2**64, 3000, dtype=np.uint64)
    assert_not_uniform(np.tile(few, 200))


# --- what must be uniform ---


def test_every_upload_is_uniform(all_alive: Observed) -> None:
    for i in some(all_alive.living):
        assert_uniform(all_alive.uploads[i])


def test_uploads_of_two_clients_are_uniform_together(all_alive: Observed) -> None:
    for i, j in some(itertools.combinations(all_alive.living, 2)):
        assert_uniform(all_alive.uploads[i] ^ all_alive.uploads[j])
        assert_uniform(all_alive.uploads[i] + all_alive.uploads[j])


@pytest.mark.parametrize("answer", [False, True], ids=["", "without-the-answer"])
def test_a_living_client_keeps_its_masks_with_honest_neighbours(one_dead: Observed, answer: bool) -> None:
    # The server opened the seeds of the living and the keys of the dead; two clients told it theirs.
    for i in (2, 3, 4):
        known = (*COLLUDING, *one_dead.dead)
        words = one_dead.without(i, own=True, pairs=known, answer=answer)
        assert_uniform(words)
        # Even a mask with a single honest neighbour is enough.
        for last in set(one_dead.others(i)) - set(known):
            assert_uniform(
                one_dead.without(i, own=True, pairs=one_dead.others(i, but=(last,)), answer=answer)
            )


def test_a_late_upload_of_a_client_told_dead_keeps_its_own_mask(one_dead: Observed) -> None:
    # The server holds all pairwise masks of the dead, and never its seed.
    for i in some(one_dead.dead):
        words = one_dead.without(i, pairs=one_dead.others(i), answer=True)
        assert_uniform(words)
        np.testing.assert_array_equal(words, one_dead.self_mask(i))


def test_the_sum_of_all_but_one_honest_client_is_uniform(one_dead: Observed) -> None:
    honest, known = (2, 3, 4), (*COLLUDING, *one_dead.dead)
    for left_out in some(honest):
        for answer in (False, True):
            total = np.zeros(one_dead.grid.size, dtype=np.uint64)
            for i in honest:
                if i != left_out:
                    one_dead.grid.add(total, one_dead.without(i, own=True, pairs=known, answer=answer))
            assert_uniform(total)


def test_the_sum_of_uploads_is_uniform_until_the_own_masks_are_opened(all_alive: Observed) -> None:
    total = np.zeros(all_alive.grid.size, dtype=np.uint64)
    for i in all_alive.living:
        all_alive.grid.add(total, all_alive.uploads[i])
    assert_uniform(total)
    # All own masks but one are not enough.
    for i in all_alive.living[1:]:
        all_alive.grid.add(total, all_alive.self_mask(i), -1)
    assert_uniform(total)
    all_alive.grid.add(total, all_alive.self_mask(all_alive.living[0]), -1)
    assert_not_uniform(total)


def test_uploads_of_the_same_answers_in_sum_after_sum_are_uniform_together() -> None:
    with seeded(9):
        run = Sums(Masked(), 3)
        run.draw = lambda question: None  # type: ignore[method-assign]
        run.values = dict.fromkeys(range(3), np.full(60, 1.5))
        sums = [Observed(run, vectors(60)) for _ in range(60)]
    for i in range(3):
        uploads = np.stack([one.uploads[i] for one in sums])
        assert_uniform(uploads.ravel())
        assert_uniform(np.ascontiguousarray(uploads[1:] - uploads[:-1]).ravel())
        assert_uniform(np.ascontiguousarray(uploads[2:] ^ uploads[:-2]).ravel())
        # Nothing comes twice: not within a sum, not between sums.
        assert len(np.unique(uploads)) == uploads.size
        pair = np.stack([one.without(i, own=True, pairs=((i + 1) % 3,), answer=True) for one in sums])
        assert_uniform(pair.ravel())
        assert_uniform(np.ascontiguousarray(pair[1:] - pair[:-1]).ravel())


def test_no_mask_is_used_for_two_clients_or_two_sums() -> None:
    run = Sums(Masked(), 4)
    masks: set[bytes] = set()
    sums = 5
    for _ in range(sums):
        one = Observed(run, vectors(8))
        masks |= {one.self_mask(i).tobytes() for i in range(4)}
        masks |= {one.pair_mask(i, j).tobytes() for i, j in itertools.combinations(range(4), 2)}
        for i, j in itertools.combinations(range(4), 2):
            np.testing.assert_array_equal(one.pair_mask(i, j), one.pair_mask(j, i))
    assert len(masks) == sums * (4 + 6)


# --- below the threshold, keys are missing, not permission ---


def test_answers_below_the_threshold_open_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[RoundState] = []

    class Kept(RoundState):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            states.append(self)

    monkeypatch.setattr(session, "RoundState", Kept)
    run = Sums(Masked(), 7)
    t = threshold(7, run.configuration.terms)
    for lost in range(7 - t, 7):
        with pytest.raises(NotEnoughClientsError):
            run.ask(None, 0, (0,), *(Fault(i, "unmask", "lost-reply") for i in range(lost)))
        state = states[-1]
        assert len(state.answers) == 7 - lost <= t
        with pytest.raises(IntegrityError):
            state.opened()
        # Nor with fewer shares than the threshold asks for.
        for fewer in range(1, t + 1):
            state._threshold = fewer
            assert state._unlock() == {}
    # One more, and it opens.
    run.ask(None, 0, (0,), *(Fault(i, "unmask", "lost-reply") for i in range(6 - t)))
    assert len(states[-1].answers) == t + 1


def test_answers_of_two_sums_do_not_open_either(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Sums(Masked(), 5)
    kept: list[tuple[int, bytes]] = []

    def keep(exchange: session.Exchange, replies: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        if exchange.stage == "unmask":
            kept.extend(replies)
            return [*kept]
        return replies

    run.engine.change_replies = keep
    half = [Fault(i, "unmask", "lost-reply") for i in range(3)]
    other = [Fault(i, "unmask", "lost-reply") for i in range(2, 5)]
    for faults in (half, other, half):
        with pytest.raises((NotEnoughClientsError, MessageError)):
            run.ask(None, 0, (0,), *faults)
    assert not run.transcript.totals()
