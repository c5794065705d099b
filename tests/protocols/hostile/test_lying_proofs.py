"""Clients and servers that lie where answers are proven: who is out, by which code, and right totals."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from privfed.core.asking.statistics import Statistics
from privfed.core.record.transcript import Transcript
from privfed.core.roles.engine import Exchange, Replies
from privfed.core.stored.encoding import Refusal, decode
from privfed.core.values.domain import FloatArray, Ranges
from privfed.engines.in_process import Fault
from privfed.errors import ArgumentError, IntegrityError, NotEnoughClientsError, PrivFedError, RefusedError
from privfed.numerics.kernels import dispatch
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import Identity
from privfed.protocols.masked import masked_client
from privfed.protocols.masked.bindings import proof_data
from privfed.protocols.masked.masked_messages import (
    Proof,
    ProvenRequest,
    ProvenUpload,
    ProveRequest,
    UnmaskRequest,
    Upload,
)
from privfed.protocols.masked.session import OTHER, OTHER_STATEMENT, REJECTED, VIOLATED, MaskedSession
from privfed.protocols.masked.statements import ProvenGrid
from privfed.protocols.setup.setup_messages import Channel, Envelope
from privfed.protocols.valid.proof import ceiling, new_sigma, sigma_hash_of
from privfed.protocols.valid.statement import Forms, P, Statement
from privfed.questions.lloyd import LloydSums
from privfed.testing import sum_runs
from tests.protocols.federations import Sums, vectors, wide_vectors
from tests.protocols.sparse import small_graphs
from tests.protocols.tapes import Nonsense, resealed

N, K, D, ROWS = 5, 2, 1, 10
QUESTION: Any = LloydSums(
    ranges=Ranges(np.full(D, -1.0), np.full(D, 1.0), ROWS), centers=np.array([[-0.5], [0.5]])
)
Lie = Callable[[Any], Any]


def proven(n: int = N, rounds: Any = ()) -> Sums:
    """Return a federation whose clients prove sums of their rows."""
    run = Sums(Masked(losses=999, proofs=True), n, rounds)
    for client in range(n):
        run.values[client] = answer(np.random.default_rng(client))
    return run


def answer(rng: np.random.Generator) -> FloatArray:
    """Return counts and sums of a client's rows, some of them on faces of the box."""
    rows = np.clip(rng.uniform(-1.5, 1.5, (ROWS, D)), -1.0, 1.0)
    own = (rows[:, 0] > 0.0).astype(int)
    count = np.bincount(own, minlength=K)
    sums = np.stack([rows[own == k].sum(axis=0) for k in range(K)])
    return Statistics(count=count, sum=sums).vector


def assert_right(run: Sums, total: Any, out: set[int]) -> None:
    """Assert that a total is that of all clients but some, to the rounding of its grid."""
    members = set(range(run.n)) - out
    assert set(total.contributors) == members
    expected = np.sum([run.values[i] for i in members], axis=0)
    np.testing.assert_allclose(total.statistics.vector, expected, rtol=0, atol=run.n * 2.0**-29)


def lying(run: Sums, *lies: tuple[int, str, Lie]) -> None:
    """Have clients change what they send in a stage, from now on."""

    def change(exchange: Exchange, replies: Replies) -> Replies:
        changed = []
        for client, reply in replies:
            for who, stage, lie in lies:
                if (who, stage) == (client, exchange.stage):
                    reply = resealed(run, client, reply, lie)
            changed.append((client, reply))
        return changed

    run.engine.change_replies = change


def added(place: int, number: int) -> Lie:
    """Return a change of an upload: its words are sums, so that what is added to a word is in the total."""

    def lie(upload: Any) -> Any:
        words = np.frombuffer(upload.words, dtype="<u8").copy()
        more = np.zeros_like(words)
        more[place] = number % 2**64
        words += more
        return msgspec.structs.replace(upload, words=words.astype("<u8").data.cast("B"))

    return lie


@pytest.mark.parametrize(
    ("place", "number"),
    [(0, 1), (3, -1), (3, 1 << 63), (2, P), (1, 2**32 - 1), (-6, 1), (-1, 1 << 60), (4, 1), (5, 1)],
    ids=["+1", "-1", "2^63", "p", "2^32-1", "pad", "pad-top", "clipped", "counts"],
)
def test_an_upload_that_is_not_what_was_proven_stops_the_sum_unnamed(place: int, number: int) -> None:
    run = proven()
    assert_right(run, run.open(QUESTION), set())
    lying(run, (3, "collect", added(place, number)))
    if place == 4:
        # How many rows were clipped is told, and not proven.
        assert run.open(QUESTION).clipped == 1
        return
    with pytest.raises(IntegrityError) as caught:
        run.open(QUESTION)
    assert not any(name in str(caught.value) for name in run.configuration.clients)
    run.engine.change_replies = None
    assert_right(run, run.open(QUESTION), set())


def test_two_uploads_that_lie_stop_the_sum_unless_the_total_is_that_of_what_was_proven() -> None:
    run = proven()
    for place, numbers in ((0, (1, 2)), (3, (1 << 63, 1)), (2, (P, P))):
        lying(run, *((i, "collect", added(place, one)) for i, one in zip((1, 4), numbers, strict=True)))
        with pytest.raises(IntegrityError):
            run.open(QUESTION)
    lying(run, (1, "collect", added(0, 5)), (4, "collect", added(0, -5)))
    assert_right(run, run.open(QUESTION), set())


def shifted(statement: Statement, move: np.ndarray) -> Statement:
    """Return a statement of the same form whose ranges lie elsewhere, and which passes for the true one."""
    forms = statement.forms
    moved = np.zeros(len(forms.low), dtype=np.int64)
    np.add.at(moved, forms.form, forms.coefficient * move[forms.digit])
    other = Statement(
        statement.clients,
        statement.low + move,
        statement.high + move,
        Forms(*forms[:3], forms.low + moved, forms.high + moved),
    )
    object.__setattr__(other, "digest", statement.digest)
    return other


class Violators:
    """Clients whose answers are none of any rows, and who prove what they can of them.

    Attributes:
        moves: client -> what it adds to its digits.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.moves: dict[int, list[int]] = {}
        commit, prove = masked_client.commit, masked_client.prove

        def moved(statement: Statement, digits: Any, context: bytes) -> tuple[Statement, Any]:
            move = self.moves.get(int.from_bytes(context[-8:], "big"))
            if move is None:
                return statement, digits
            return shifted(statement, np.array(move)), digits

        def committed(statement: Statement, digits: Any, context: bytes, challenge: bytes) -> Any:
            move = self.moves.get(int.from_bytes(context[-8:], "big"))
            if move is not None:
                # The same memory is uploaded.
                digits += np.array(move)
            return commit(*moved(statement, digits, context), context, challenge)

        def proved(statement: Statement, digits: Any, key: bytes, context: bytes, sigma: bytes) -> bytes:
            return prove(*moved(statement, digits, context), key, context, sigma)

        patch.setattr(masked_client, "commit", committed)
        patch.setattr(masked_client, "prove", proved)


@pytest.fixture
def violators(monkeypatch: pytest.MonkeyPatch) -> Violators:
    return Violators(monkeypatch)


UNIT = 1 << 30
MOVES = {
    "one more": [1 << 40, 0, 0, 0],
    "rows that do not exist": [50 * UNIT, 50 * UNIT, 0, 0],
    "rows below zero": [-50 * UNIT, 50 * UNIT, 0, 0],
    "sums without rows": [0, 0, 50 * UNIT, 0],
    "sums outside the box": [0, 0, -50 * UNIT, 50 * UNIT],
    "a large word": [0, 0, 0, 1 << 50],
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_an_answer_of_no_rows_names_its_client_and_the_total_is_that_of_the_others(
    move: list[int], violators: Violators
) -> None:
    run = proven()
    violators.moves = {3: move}
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    assert total.dropped == {3: "prove"} and total.rejected == {3: f"{VIOLATED} (proof:linear)"}
    # It is out of the fit, and no sum was opened twice.
    violators.moves = {}
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    assert total.rejected.keys() == {3}
    assert [one.stage for one in run.transcript.records if hasattr(one, "stage")].count("unmask") in (0, 2)


def test_on_a_sparse_graph_a_violator_is_named_too(
    violators: Violators, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_graphs(monkeypatch)
    run = proven(12)
    assert_right(run, run.open(QUESTION), set())
    violators.moves = {5: MOVES["sums without rows"]}
    total = run.open(QUESTION, 0, (0,), Fault(8, "prove"))
    assert_right(run, total, {5, 8})
    assert total.rejected.keys() == {5} and total.dropped == {5: "prove", 8: "prove"}


def test_a_client_that_proves_the_rows_of_another_is_named(violators: Violators) -> None:
    """Its answer would do for anybody but itself: nobody has more rows than its own bound."""
    run, bounds = proven(), (ROWS, ROWS, ROWS, 4, ROWS)
    agreed = msgspec.structs.replace(run.configuration, max_rows=bounds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sum_runs, "Configuration", lambda **words: msgspec.structs.replace(agreed, **words))
        run = proven()
    run.values[3] = Statistics(count=[2.0, 2.0], sum=[[-1.0], [1.0]]).vector
    assert_right(run, run.open(QUESTION), set())
    violators.moves = {3: [0, 3 * UNIT, 0, 0]}
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    assert total.rejected == {3: f"{VIOLATED} (proof:linear)"}


def test_two_violators_are_both_named(violators: Violators) -> None:
    run = proven(7)
    violators.moves = {1: MOVES["sums without rows"], 6: [-one for one in MOVES["sums without rows"]]}
    total = run.open(QUESTION)
    assert_right(run, total, {1, 6})
    assert total.rejected.keys() == {1, 6} and set(total.dropped.values()) == {"prove"}


def test_more_violators_than_a_sum_bears_end_it_with_their_names(violators: Violators) -> None:
    run = proven()
    violators.moves = dict.fromkeys((0, 2, 4), MOVES["sums without rows"])
    with pytest.raises(NotEnoughClientsError) as caught:
        run.open(QUESTION)
    assert sum(VIOLATED in note for note in caught.value.__notes__) == 3


def proofs_of(run: Sums, *questions: Any) -> list[dict[int, Proof]]:
    """Return the proofs that clients send in sums, one after the other."""
    found: list[dict[int, Proof]] = []

    def keep(client: int) -> Lie:
        def kept(message: Any) -> Any:
            copied = msgspec.structs.replace(message, proof=memoryview(bytes(message.proof)))
            found[-1][client] = copied
            return message

        return kept

    for question in questions:
        found.append({})
        lying(run, *((i, "prove", keep(i)) for i in range(run.n)))
        run.open(question)
    run.engine.change_replies = None
    return found


class Roots:
    """Knows what each client committed to, and signs in its name, as it can itself."""

    def __init__(self, run: Sums) -> None:
        self.run, self.roots, self.sigma = run, dict[int, bytes](), b""
        run.engine.change_request = self._request

    def _request(self, exchange: Exchange, client: int, request: bytes) -> bytes:
        if exchange.stage == "prove":
            pending = self.run.state(client).keys.pending
            self.roots[client] = pending.proving.root
            keys = self.run.state(client).keys
            envelope = decode(request, Envelope, sender="", stage="")
            channel = Channel(keys.channel, keys.session, client)
            self.sigma = channel.down.open(envelope, ProveRequest).sigma
        return request

    def signed(self, client: int, proof: bytes) -> Proof:
        keys = self.run.state(client).keys
        about = proof_data(keys.pending.header, client, self.roots[client], self.sigma, proof)
        own = self.run.session._agreement  # type: ignore[attr-defined]
        digest = ProvenGrid(QUESTION, len(own.configuration.clients)).statement.digest
        return Proof(digest, memoryview(proof), Identity(keys.signing).sign(about))


@pytest.mark.parametrize(
    "whose", ["another sum's", "another client's", "another question's", "nothing", "of noise"]
)
@pytest.mark.parametrize("signs", [True, False])
def test_a_proof_of_something_else_names_who_sent_it(whose: str, signs: bool) -> None:
    run = proven()
    other: Any = LloydSums(ranges=QUESTION.ranges, centers=QUESTION.centers + 0.25)
    (own, asked) = proofs_of(run, QUESTION, other)
    sent = {
        "another sum's": own[3].proof,
        "another client's": own[2].proof,
        "another question's": asked[3].proof,
        "nothing": b"",
        "of noise": random.Random(1).randbytes(len(own[3].proof)),
    }[whose]
    roots = Roots(run)

    def lie(message: Any) -> Any:
        if signs:
            return roots.signed(3, bytes(sent))
        return msgspec.structs.replace(message, proof=memoryview(bytes(sent)))

    lying(run, (3, "prove", lie))
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    code = total.rejected[3].rpartition("(")[2].rstrip(")")
    known = {"proof:length", "proof:root", "proof:field", "proof:code"} if signs else {"proof:signature"}
    assert total.rejected.keys() == {3} and code in known


def test_altered_proofs_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    run = proven(8)
    roots = Roots(run)

    def altered(client: int) -> Lie:
        def lie(message: Any) -> Any:
            data = bytearray(message.proof)
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            return roots.signed(client, bytes(data))

        return lie

    lying(run, (0, "prove", altered(0)), (4, "prove", altered(4)))
    total = run.open(QUESTION)
    assert_right(run, total, {0, 4})
    assert total.rejected.keys() == {0, 4}


def test_a_root_that_is_not_that_of_what_is_proven_names_its_client() -> None:
    run = proven()
    roots = Roots(run)
    lying(
        run,
        (3, "collect", lambda message: msgspec.structs.replace(message, root=bytes(32))),
        (
            3,
            "prove",
            lambda message: (roots.roots.update({3: bytes(32)}), roots.signed(3, bytes(message.proof)))[1],
        ),
    )
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    # Other columns are shown for another root, and so other hashes beside them.
    assert total.rejected[3] in {f"{VIOLATED} (proof:{code})" for code in ("root", "length")}
    # Over the root that it sent before it signed nothing.
    run = proven()
    lying(run, (2, "collect", lambda message: msgspec.structs.replace(message, root=bytes(32))))
    assert run.open(QUESTION).rejected == {2: f"{VIOLATED} (proof:signature)"}


def test_a_client_whose_machine_computes_another_statement_is_out_and_no_liar() -> None:
    run = proven()
    lying(run, (3, "prove", lambda message: msgspec.structs.replace(message, statement=bytes(32))))
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    assert total.rejected == {3: f"{OTHER} ({OTHER_STATEMENT})"}
    run.engine.change_replies = None
    # One loss, and not one in every other sum: of these a fit has few.
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    assert total.rejected == {3: f"{OTHER} ({OTHER_STATEMENT})"}


def test_a_proof_that_is_longer_than_any_names_its_client_if_it_can_be_opened() -> None:
    most = ceiling(ProvenGrid(QUESTION, N).statement)
    for extra in (1, 100):
        run = proven()
        longer = memoryview(bytes(most + extra))
        lying(
            run, (3, "prove", lambda message, longer=longer: msgspec.structs.replace(message, proof=longer))
        )
        total = run.open(QUESTION)
        assert_right(run, total, {3})
        # It was signed over another proof.
        assert total.rejected == {3: f"{VIOLATED} (proof:signature)"}
        run.engine.change_replies = None
        assert_right(run, run.open(QUESTION), {3})


def test_a_proof_that_is_longer_than_agreed_is_none() -> None:
    """Bytes beyond the ceiling are not opened, and anyone may have sent them: it is lost, as if silent."""
    run = proven()
    lying(
        run, (3, "prove", lambda message: msgspec.structs.replace(message, proof=memoryview(bytes(1 << 22))))
    )
    total = run.open(QUESTION)
    assert_right(run, total, {3})
    assert total.dropped == {3: "prove"} and VIOLATED not in total.rejected[3]
    run.engine.change_replies = None
    assert_right(run, run.open(QUESTION), set())


def test_who_is_out_stays_out_of_a_fit_that_another_process_goes_on_with(violators: Violators) -> None:
    run = proven()
    violators.moves = {3: MOVES["sums without rows"]}
    run.session._resumes = True  # type: ignore[attr-defined]
    assert_right(run, run.open(QUESTION), {3})
    violators.moves = {}
    known = run.session._agreement, run.session._identity  # type: ignore[attr-defined]
    for stored, out in ((run.transcript, {3}), (Transcript(), set[int]())):
        again = MaskedSession(*known)
        again.recall(stored.recalled(), 1)
        assert set(again._out) == out
        # What is on record is not recorded once more.
        assert again.relayed() == []


def test_violators_of_a_sum_that_failed_are_on_record_too(violators: Violators) -> None:
    run = proven()
    run.session._resumes = True  # type: ignore[attr-defined]
    violators.moves = dict.fromkeys((0, 2, 4), MOVES["sums without rows"])
    with pytest.raises(NotEnoughClientsError):
        run.open(QUESTION)
    again = MaskedSession(run.session._agreement, run.session._identity)  # type: ignore[attr-defined]
    again.recall(run.transcript.recalled(), 0)
    assert set(again._out) == {0, 2, 4} and all(VIOLATED in why for why in again._out.values())


def test_without_numba_proofs_are_refused_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "machine_code_allowed", lambda: False)
    with pytest.raises(ArgumentError) as caught:
        Masked(proofs=True)
    assert caught.value.parameters == ("proofs",)
    assert Masked().name == "masked"


def test_a_proof_that_does_not_come_costs_what_a_lost_client_costs() -> None:
    run = proven()
    total = run.open(QUESTION, 0, (0,), Fault(3, "prove"))
    assert_right(run, total, {3})
    assert total.dropped == {3: "prove"} and not total.rejected
    lying(run, (2, "prove", lambda message: Refusal("error")))
    total = run.open(QUESTION)
    assert_right(run, total, {2})
    assert total.dropped == {2: "prove"} and not total.rejected
    # An older form of upload is none.
    lying(
        run,
        (1, "collect", lambda m: Upload(m.words, m.receipts, m.signature, m.preparations)),
    )
    total = run.open(QUESTION)
    assert_right(run, total, {1})
    assert total.dropped == {1: "collect"} and total.rejected.keys() == {1}
    run.engine.change_replies = None
    assert_right(run, run.open(QUESTION), set())


# Servers.


def changed(run: Sums, stage: str, kind: Any, change: Callable[[int, Any], Any]) -> None:
    """Have the server change what it asks in a stage, under its own keys."""

    def request(exchange: Exchange, client: int, data: bytes) -> bytes:
        if exchange.stage != stage or run.state(client).keys is None:
            return data
        keys = run.state(client).keys
        envelope = decode(data, Envelope, sender="", stage="")
        channel = Channel(keys.channel, keys.session, client)
        message = channel.down.open(envelope, kind)
        return channel.down.seal(envelope.number, envelope.stage, change(client, message))

    run.engine.change_request = request


def test_no_client_answers_a_sigma_that_was_not_announced() -> None:
    run = proven()
    changed(
        run, "prove", ProveRequest, lambda i, m: msgspec.structs.replace(m, sigma=bytes(32)) if i < 3 else m
    )
    with pytest.raises(RefusedError) as caught:
        run.open(QUESTION)
    assert set(caught.value.codes.values()) == {"proof:challenge"}


def test_clients_that_were_told_other_sigmas_do_not_open_a_sum_together() -> None:
    # A functional of its own for each client would show single answers.
    run, sigma = proven(), new_sigma()
    challenge = sigma_hash_of(sigma)
    changed(
        run,
        "collect",
        ProvenRequest,
        lambda i, m: msgspec.structs.replace(m, challenge=challenge) if i in (0, 1) else m,
    )
    first = run.engine.change_request
    changed(
        run, "prove", ProveRequest, lambda i, m: msgspec.structs.replace(m, sigma=sigma) if i in (0, 1) else m
    )
    second = run.engine.change_request
    assert first is not None and second is not None
    run.engine.change_request = lambda exchange, i, data: (first if exchange.stage == "collect" else second)(
        exchange, i, data
    )
    with pytest.raises(PrivFedError):
        run.open(QUESTION)


def test_a_client_opens_a_commitment_once_whatever_is_asked_again() -> None:
    run = proven()
    run.open(QUESTION)
    seen: list[bytes] = []

    def again(exchange: Exchange, replies: Replies) -> Replies:
        if exchange.stage == "prove":
            keys = run.state(2).keys
            channel = Channel(keys.channel, keys.session, 2)
            request = exchange.requests[2]
            # The same bytes get the same reply; the same sigma under another nonce, and another sigma, none.
            step, state = run.sides[2].step, run.state(2)
            assert keys.pending.proving is None
            assert step(state, request, run.answerer(2))[1] == dict(replies)[2]
            envelope = decode(request, Envelope, sender="", stage="")
            message = channel.down.open(envelope, ProveRequest)
            for one in (message, msgspec.structs.replace(message, sigma=new_sigma())):
                sealed = channel.down.seal(envelope.number, "prove", one)
                after, reply = step(state, sealed, run.answerer(2))
                refused = channel.up.open(decode(reply, Envelope, sender="", stage=""), Refusal | Proof, "")
                assert refused == Refusal("message") and after == state
                seen.append(reply)
        return replies

    run.engine.change_replies = again
    assert_right(run, run.open(QUESTION), set())
    assert len(seen) == 2


def test_what_is_pending_is_stored_and_read_and_shows_nothing() -> None:
    run = proven()
    states = []

    def keep(exchange: Exchange, replies: Replies) -> Replies:
        if exchange.stage == "collect":
            states.append(run.state(1))
        return replies

    run.engine.change_replies = keep
    run.open(QUESTION)
    codec, (state,) = run.sides[1].codec, states
    assert codec.from_bytes(codec.to_bytes(state)) == state
    proving = state.keys.pending.proving
    assert proving.blind not in repr(state).encode() and repr(proving) == "Proving(...)"
    assert run.state(1).keys.pending is None


# Honest clients.


def honest(runs: int, seed: int) -> Iterator[tuple[Sums, Any, dict[int, str]]]:
    """Yield honest sums in which messages are lost."""
    rng = random.Random(seed)
    run, left = proven(), 0
    for _ in range(runs):
        if left == 0:
            n = rng.randint(4, 7)
            rounds = (
                () if rng.random() < 0.6 else (tuple(range(n)), tuple(rng.sample(range(n), max(3, n - 1))))
            )
            run, left = proven(n, rounds), 8
        left -= 1
        label = rng.randint(1, len(run.rounds)) if run.rounds else 0
        members = run.configuration.cohort(label)
        lost = dict.fromkeys(rng.sample(members, rng.choice([0, 0, 1, 1, 2])), "")
        faults = [
            Fault(i, rng.choice(["collect", "prove", "prove", "unmask"]), rng.choice(["drop", "lost-reply"]))
            for i in lost
        ]
        try:
            total = run.open(QUESTION, label, (label,), *faults)
        except NotEnoughClientsError:
            left = 0
            continue
        yield run, total, {one.client: one.stage for one in faults}


def checked(runs: int, seed: int) -> int:
    opened = 0
    for run, total, lost in honest(runs, seed):
        assert not total.rejected
        assert set(total.contributors) >= {i for i, stage in lost.items() if stage == "unmask"}
        expected = np.sum([run.values[i] for i in total.contributors], axis=0)
        np.testing.assert_allclose(total.statistics.vector, expected, rtol=0, atol=run.n * 2.0**-29)
        assert set(total.dropped) >= {i for i, stage in lost.items() if stage != "unmask"}
        opened += 1
    return opened


def test_no_honest_client_is_accused_where_messages_are_lost() -> None:
    assert checked(10, 5) > 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_honest_client_is_accused_in_hundreds_of_sums_where_messages_are_lost() -> None:
    assert checked(300, 6) > 200


def test_entries_of_many_bits_are_one_coarse_word_each() -> None:
    run = Sums(Masked(losses=9, proofs=True), 4)
    question = wide_vectors()
    run.ask(question)
    total = run.ask(question)
    run.assert_exact(total, question)
    # A multiple of the prime in any word is found: the word is no sum of numbers.
    grid = ProvenGrid(question, 4)
    assert grid.statement.size == question.spec.size and grid.step[1] == 2.0**23
    for place in (0, grid.statement.size - 1):
        lying(run, (2, "collect", added(place, P)))
        with pytest.raises(IntegrityError):
            run.ask(question)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_clients_that_lie_in_any_field_cost_themselves_and_one_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(8)
    nonsense = Nonsense(rng)
    for _ in range(12):
        run = proven(6)
        run.open(QUESTION)
        who = rng.randrange(6)
        stage = rng.choice(["collect", "prove"])
        lying(run, (who, stage, nonsense))
        try:
            total = run.open(QUESTION)
        except (IntegrityError, NotEnoughClientsError):
            continue
        assert set(total.rejected) <= {who}
        assert_right(run, total, set(range(6)) - set(total.contributors))
        assert set(range(6)) - set(total.contributors) <= {who}


def test_the_upload_of_a_proven_sum_has_pads_after_its_words() -> None:
    run = proven()
    sizes = set()

    def see(message: Any) -> Any:
        assert isinstance(message, ProvenUpload)
        sizes.add(len(message.words))
        return message

    lying(run, *((i, "collect", see) for i in range(N)))
    run.open(QUESTION)
    assert sizes == {8 * (K + K * D + 2 + 24)}


def test_a_server_may_leave_out_proofs_and_opens_no_more_for_it() -> None:
    # The client helps to open a sum of which it proved nothing: proofs protect the total, not the client.
    run = proven()
    kept: list[Any] = []
    changed(run, "unmask", UnmaskRequest, lambda i, m: kept.append(m) or m)
    assert_right(run, run.open(QUESTION, 0, (0,), Fault(4, "prove", "drop")), {4})
    assert len(kept) == N - 1 and all(sum(one.dead) == 1 for one in kept)


def test_a_forger_that_proves_nothing_does_not_excuse_who_rejects_valid_signatures() -> None:
    run = proven(7)
    lying(
        run,
        (1, "collect", lambda message: msgspec.structs.replace(message, signature=bytes(64))),
        (1, "prove", lambda message: Refusal("error")),
        (2, "unmask", lambda message: Refusal("receipts")),
    )
    assert_right(run, run.open(QUESTION), {1})
    run.engine.change_replies = None
    assert run.open(QUESTION).rejected == {2: REJECTED}


def test_vectors_without_weights_have_their_ranges_proven() -> None:
    run = Sums(Masked(losses=9, proofs=True), 4)
    run.assert_exact(run.ask(vectors()), vectors())
