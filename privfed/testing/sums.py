"""The contract of secure sums: they open the sum of those who contributed, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.asking.question import Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.records import Began, Exchanged, Summed
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Answerer, Client
from privfed.core.roles.secure_sum import SecureSum, answer_stages
from privfed.core.stored.encoding import StateCodec
from privfed.engines.in_process import Fault
from privfed.errors import NotEnoughClientsError, ProtocolError, RefusedError
from privfed.testing.sum_runs import Sums, Vectors, told_by_bits, told_by_repeats, vectors, wide_vectors

QUESTION = vectors()


class SecureSumContract:
    """Properties of every `privfed.core.roles.secure_sum.SecureSum`. Write `make`.

    A total is the sum of those who contributed, on a grid no coarser than the question's, whoever is lost in
    whichever stage. With too few left it is an error that names them, and nothing is opened. What is no reply
    of that client to that request changes no sum. Lengths of messages tell nothing. Where answers
    are hidden, what a client sends is alike for different answers with the same total
    (`privfed.testing.sum_runs`).

    Attributes:
        n_clients: of the federations that are tried.
        small_cohort: clients of a cohort that the sum protects; None where it takes everyone.
    """

    n_clients = 5
    small_cohort: int | None = 3

    def make(self) -> SecureSum:
        """Return the secure sum, configured."""
        raise NotImplementedError

    def federation(self, n: int | None = None, rounds: Any = (), **more: Any) -> Sums:
        """Return a federation over the sum, whose clients answer what a test gives them."""
        return Sums(self.make(), self.n_clients if n is None else n, rounds, **more)

    def stages(self) -> list[str]:
        """Return the stages in which a client can be lost, as two sums show them, in order."""
        run = self.federation()
        run.ask(), run.ask()
        return list(dict.fromkeys(exchange.stage for exchange, _ in run.engine.log))

    # --- the sum ---

    def test_totals_of_different_questions_in_one_session(self) -> None:
        """The total is the sum; everyone contributed; nobody is accused."""
        run = self.federation()
        for question in (vectors(2), wide_vectors(7), vectors(40, 0, 1e6, 1e-3), vectors(3, round=9)):
            total = run.ask(question)
            run.assert_sum(total, question)
            assert total.contributors == tuple(range(self.n_clients))
            assert not total.dropped and not total.rejected

    @pytest.mark.parametrize("sign", [-1.0, 1.0])
    def test_the_ends_of_wide_ranges(self, sign: float) -> None:
        """No overflow, no wrap: all clients at one end of ranges of 2^80."""
        question, run = wide_vectors(6), self.federation()
        run.values = {i: sign * question.high for i in range(self.n_clients)}
        found = question.spec.flatten(run.open(question).statistics)
        np.testing.assert_allclose(found, self.n_clients * sign * question.high, rtol=1e-15)

    def test_multiples_of_the_resolution_add_up_exactly(self) -> None:
        """No rounding where none is needed, so that counts are whole."""
        run = self.federation()
        run.draw(QUESTION)
        run.values = {i: np.rint(one) for i, one in run.values.items()}
        found = QUESTION.spec.flatten(run.open(QUESTION).statistics)
        np.testing.assert_array_equal(found, sum(run.values.values()))

    def test_an_answer_that_is_no_number_is_counted_and_never_a_wrong_sum(self) -> None:
        """NaN counts as a clipped zero, infinity as the end of the range."""
        run = self.federation()
        run.values = {i: np.array([1.0, 2.0, float(i)]) for i in range(self.n_clients)}
        run.values[2] = np.array([np.nan, np.inf, -np.inf])
        total = run.open(QUESTION)
        others = self.n_clients - 1
        expected = [1.0 * others, 2.0 * others + 10.0, sum(range(self.n_clients)) - 2 - 10.0]
        np.testing.assert_array_equal(QUESTION.spec.flatten(total.statistics), expected)
        assert total.clipped == 3

    def test_clipped_rows_and_entries_are_counted(self) -> None:
        """`Total.clipped` is what the contributors clipped, together."""
        run = self.federation()
        run.values = {i: np.array([15.0, -15.0, 0.0]) for i in range(self.n_clients)}
        run.moved = {i: 10**i for i in range(self.n_clients)}
        run.assert_sum(run.open(QUESTION), QUESTION)

    def test_permuting_the_clients_changes_nothing(self) -> None:
        """The sum does not know who is who."""
        rng, n = np.random.default_rng(4), self.n_clients
        values, totals = [rng.uniform(-10, 10, 3) for _ in range(n)], []
        for order in (range(n), rng.permutation(n)):
            run = self.federation()
            run.values = {i: values[place] for i, place in enumerate(order)}
            totals.append(QUESTION.spec.flatten(run.open(QUESTION).statistics))
        np.testing.assert_allclose(totals[0], totals[1], rtol=1e-14, atol=1e-14)

    def test_totals_of_disjoint_cohorts_add_up_to_the_total_of_all(self) -> None:
        """Cohorts are sums of their own."""
        size = self.small_cohort
        if size is None:
            pytest.skip("takes everyone")
        run = self.federation(2 * size, (tuple(range(size)), tuple(range(size, 2 * size))))
        run.draw(QUESTION)
        run.values = {i: np.rint(one) for i, one in run.values.items()}
        whole, *parts = [run.open(QUESTION, label).statistics for label in (0, 1, 2)]
        for name in whole:
            np.testing.assert_array_equal(parts[0][name] + parts[1][name], whole[name])

    # --- who is lost, and what is no reply ---

    @pytest.mark.parametrize("kind", ["drop", "lost-reply", "late", "twice", "garbage", "truncate"])
    def test_a_client_that_fails_in_any_stage_changes_no_sum_but_by_its_absence(self, kind: Any) -> None:
        """The sum of those who contributed, or an error and nothing opened; and so is the next one."""
        for stage in self.stages():
            run = self.federation()
            for faults in ([Fault(1, stage, kind)], []):
                total = self.opened_or_nothing(run, faults)
                if total is not None and kind in ("drop", "lost-reply") and faults:
                    assert set(total.dropped) <= {1} and not total.rejected

    def test_with_too_few_left_nothing_is_opened(self) -> None:
        """An error says who is missing, how many are left and how many are needed."""
        everyone = range(self.n_clients)
        for stage in self.stages():
            failed = False
            for lost in everyone:
                run = self.federation()
                faults = [Fault(i, stage, "drop") for i in range(lost + 1)]
                try:
                    run.assert_sum(run.ask(QUESTION, 0, (0,), *faults), QUESTION)
                    # Fewer lost never fail where more do not.
                    assert not failed
                except NotEnoughClientsError as error:
                    failed = True
                    assert error.stage == stage and len(error.missing) == lost + 1
                    assert error.left == self.n_clients - lost - 1 < error.needed
                    assert not run.transcript.of(Summed)
            # A stage may be one that needs nobody's reply; that of the answers is none.
            assert failed or stage != self.stage_of_answers()

    def test_what_nobody_asked_for_is_named_and_ignored(self) -> None:
        """Replies of clients that were not asked, and of no client at all."""
        n = self.n_clients
        run = self.federation(n + 1, (tuple(range(n)),))
        run.ask(QUESTION, 1, (1,))
        _, replies = run.engine.log[-1]
        run.engine.change_replies = lambda exchange, real: [(n, replies[0][1]), (77, b""), (-1, b"?"), *real]
        total = run.ask(QUESTION, 1, (1,))
        run.assert_sum(total, QUESTION)
        assert total.contributors == tuple(range(n)) and set(total.rejected) == {n, 77, -1}

    def test_a_client_refuses_what_its_policy_forbids(self) -> None:
        """Clients check the terms themselves: the coordinator's word is not enough."""
        run = self.federation(policy=ClientPolicy(min_clients=self.n_clients + 1))
        with pytest.raises(RefusedError):
            run.ask()
        assert not run.transcript.of(Summed)

    # --- what is declared, and what is seen ---

    def test_it_says_in_words_who_must_be_honest_and_how_many_may_collude(self) -> None:
        """Reports print these texts beside every result."""
        declared = self.make().assumptions
        for said in (declared.honest, declared.colluding, declared.besides):
            assert len(said.split()) > 3 and not said.endswith("."), f"four words or more, no dot: {said!r}"
            assert said in str(declared)

    def test_clients_answer_in_the_declared_stages_and_in_no_other(self) -> None:
        """Under differential privacy each such exchange is paid for, by what is declared."""
        run, answered = self.federation(), list[tuple[str, bool]]()

        def watched(client: int) -> Answerer:
            inner = run.answerer(client)

            def answer(question: Question, index: int) -> tuple[Statistics, int]:
                answered[-1] = (answered[-1][0], True)
                return inner(question, index)

            return answer

        for client, one in run.clients.items():
            one._answerer = watched(client)
        run.engine.before = lambda exchange: answered.append((exchange.stage, False))
        run.ask(), run.ask()
        run.federation.close()
        declared = {one.name: one for one in run.protocol.stages}
        assert len(declared) == len(run.protocol.stages) and {name for name, _ in answered} <= set(declared)
        assert any(is_answer for _, is_answer in answered)
        for name, is_answer in answered:
            assert declared[name].answers is is_answer, name
        assert run.transcript.of(Began)[0].answer_stages == answer_stages(run.protocol.stages)
        short = [one.unheard for one in declared.values() if len(one.unheard.split()) < 4]
        assert not short, f"Stage.unheard takes four words or more, got {short}"

    def test_what_a_sum_reveals_is_what_it_shows(self) -> None:
        """`reveals` and `recipient` go into reports: they must be true of the transcript."""
        run = self.federation()
        total = run.ask(QUESTION)
        shown = run.transcript.of(Summed)[0].contributions
        assert (total.contributions is not None) == (run.protocol.reveals == "contributions")
        assert (shown is not None) == (run.protocol.reveals == "contributions")
        assert run.transcript.of(Began)[0].recipient == run.protocol.recipient

    def test_message_lengths_do_not_depend_on_the_answers(self) -> None:
        """Where answers are hidden, their size is."""
        sizes = []
        for values in (np.zeros(3), np.full(3, 9.99), np.full(3, 1e9)):
            run = self.federation()
            run.values = dict.fromkeys(range(self.n_clients), values)
            run.open(QUESTION), run.open(QUESTION)
            # Each fit draws anew which client leads, whose replies are longer than those of others.
            sizes.append([sorted(len(data) for _, data in replies) for _, replies in run.engine.log])
        assert run.protocol.reveals == "contributions" or sizes[0] == sizes[1] == sizes[2]

    def test_what_a_client_sends_tells_nothing_of_its_answer_beyond_the_total(self) -> None:
        """Clear text, and masks that are fixed, used twice, shared or of a few, tell answers apart."""
        if self.make().reveals == "contributions":
            pytest.skip("shows every answer, and says so")
        assert not told_by_bits(self.federation), "some bits depend on a client's answer"
        assert not told_by_repeats(self.federation), "masks recur"

    def test_bytes_counted_are_the_bytes_sent(self) -> None:
        """Traffic in reports is what passed, lost and damaged messages too."""
        run = self.federation(record="messages")
        for faults in ([], [Fault(1, self.stage_of_answers())], [Fault(0, None, "garbage")]):
            with suppress(ProtocolError):
                run.ask(QUESTION, 0, (0,), *faults)
        sent = [exchange.requests for exchange, _ in run.engine.log]
        down = {i: sum(len(one[i]) for one in sent if i in one) for i in range(self.n_clients)}
        replies = [pair for _, got in run.engine.log for pair in got]
        up = {i: sum(len(data) for client, data in replies if client == i) for i in range(self.n_clients)}
        assert (run.federation.traffic.down, run.federation.traffic.up) == (down, up)
        assert len(run.transcript.of(Exchanged)) == len(run.engine.log) == run.exchanges

    # --- helpers ---

    def stage_of_answers(self) -> str:
        """Return the stage without which there is no total."""
        return next(one.name for one in self.make().stages if one.answers)

    def opened_or_nothing(self, run: Sums, faults: Sequence[Fault]) -> Total | None:
        """Ask one sum; assert that it is the contributors', or that nothing was opened."""
        question: Vectors = QUESTION
        before = len(run.transcript.of(Summed))
        try:
            total = run.ask(question, 0, (0,), *faults)
        except ProtocolError:
            assert len(run.transcript.of(Summed)) == before
            return None
        run.assert_sum(total, question)
        return total

    # --- a client's state ---

    def test_a_state_is_stored_as_bytes_between_any_two_messages(self) -> None:
        """On its own machine every message may meet a new process, which knows what was stored."""
        run = self.federation()
        stores = [StoredBytes(side.codec) for side in run.sides.values()]
        for i, store in enumerate(stores):
            run.clients[i] = Client(run.sides[i], store, run.answerer(i))
        for _ in range(3):
            run.assert_sum(run.ask(QUESTION), QUESTION)
        assert all(store.data for store in stores)
        with pytest.raises(ValueError):
            run.sides[0].codec.from_bytes(stores[0].data[:-1])


class StoredBytes:
    """A store that keeps what a disk would: bytes.

    Args:
        codec: how a state becomes bytes.
    """

    def __init__(self, codec: StateCodec) -> None:
        self.codec, self.data = codec, b""

    @contextmanager
    def transaction(self) -> Iterator[StoredBytes]:
        """Return the store itself."""
        yield self

    def load(self) -> Any | None:
        """Return the state that the bytes hold, or None before the first."""
        return self.codec.from_bytes(self.data) if self.data else None

    def save(self, state: Any) -> None:
        """Keep a state as bytes, which must give the same bytes again."""
        self.data = self.codec.to_bytes(state)
        assert self.codec.to_bytes(self.codec.from_bytes(self.data)) == self.data
