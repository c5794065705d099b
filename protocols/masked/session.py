"""The coordinator of masked sums: a set-up, then two exchanges for each sum.

It relays messages, reconstructs the secrets that the living clients agree to open, and checks that the
masks cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Exchange, gather
from privfed.core.roles.secure_sum import COLLECT, Steps
from privfed.core.stored.encoding import Message, Refusal, decode, encode
from privfed.errors import IntegrityError
from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import CIPHERTEXT_BYTES, KEY_BYTES
from privfed.protocols.crypto.shamir import MAX_HOLDERS
from privfed.protocols.masked.client_state import SECRET_BYTES
from privfed.protocols.masked.masked_client import MAX_PREPARED
from privfed.protocols.masked.masked_messages import Relayed, Unmasking, Upload
from privfed.protocols.masked.preparing import Preparing
from privfed.protocols.masked.round_state import RoundState
from privfed.protocols.setup.graph import sizes
from privfed.protocols.setup.rules import check_cohort, needed_to_open
from privfed.protocols.setup.setup_messages import Slot, Stage


class MaskedSession(Preparing):
    """Coordinates the masked sums of one fit.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
    """

    def __init__(self, agreement: Agreement, identity: Signer) -> None:
        super().__init__(agreement, identity)
        self._accusers: dict[int, set[int]] = {}
        self._accused_last: set[int] = set()

    # Totals that clients verify, over several processes of the coordinator.

    def relayed(self) -> bytes | None:
        """Return what another process needs to bring the last total to clients; None for nothing."""
        one = None if self._delivery is None else self._delivery.relayed
        return None if one is None else encode(one)

    def recall(self, relayed: Iterable[bytes]) -> None:
        """Take what earlier processes kept of the totals, in order, before the session is opened.

        Raises:
            MessageError: it is damaged.
        """
        read = [decode(one, Relayed, sender="the transcript", stage="advertise") for one in relayed]
        # With other keys or terms it is another agreement, whose clients begin anew.
        self._earlier = [one for one in read if one.agreement == self._agreement.digest]

    # A sum.

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open a cohort's total: collect, then unmask."""
        members, terms = self._agreement.cohort(cohort).members, self._agreement.configuration.terms
        check_cohort(len(members), terms)
        data, needed = question.to_bytes(), needed_to_open(len(members), terms)
        grid_of(data, len(members), terms.slotted > 0)
        state = yield from self._collected(data, index, cohort, upcoming)
        few = len(state.living) < needed or state.is_cut_off(state.living)
        if few and self._accused_last:
            # Nothing was unmasked: ask once more, without the clients whose boxes failed.
            self._rejected = state.rejected
            state = yield from self._collected(data, index, cohort, upcoming)
        self._require_neighbours(state, state.living, members, "collect")
        yield from self._unmask(state, self._announced.slots((), self._channels))
        self._require_neighbours(state, state.answers, members, "unmask")
        return self._total(question, state)

    def _require_neighbours(
        self, state: RoundState, left: Container[int], members: tuple[int, ...], stage: str
    ) -> None:
        """Raise unless enough clients are left, and enough neighbours of each whose secrets are needed."""
        terms = self._agreement.configuration.terms
        self._require(left, members, stage, state.refused)
        if state.is_cut_off(left):
            missing = [i for i in members if i not in left]
            n_left = len(members) - len(missing)
            needed = max(n_left + 1, len(members) - int(len(members) * terms.dropouts))
            self._fail(missing, n_left, needed, stage, state.refused)

    def _collected(
        self, question: bytes, index: int, cohort: int, upcoming: tuple[int, ...]
    ) -> Steps[RoundState]:
        """Collect uploads under a fresh number; return the state of the sum."""
        members = self._agreement.cohort(cohort).members
        terms = self._agreement.configuration.terms
        # A client that more than c others accuse, of bad boxes or receipts, is out for good: one of them is
        # honest. With fewer accusers, who may all lie, it is out of one sum, and only for a bad box.
        many = self._most_liars()
        excluded = {j for j, accusers in self._accusers.items() if len(accusers) > many} | self._accused_last
        self._accused_last = set()
        needed = needed_to_open(len(members), terms)
        block, number = yield from self._block(cohort, needed, excluded)
        coming = self._announced.taken(block, number)
        chosen = coming.preparations.keys() - excluded
        self._require(chosen, members, "prepare", self._unprepared)
        grid = grid_of(question, len(members), terms.slotted > 0)
        head = b"" if self._delivery is None else self._delivery.head
        state = RoundState(
            self._agreement, self._session, number, index, question, coming, chosen, grid, head
        )
        late = self._channels.keys() & set(members) - coming.joined
        if late - set(state.prepared):
            # Who joined after the others had prepared can be in their next block only.
            self._announced.leave(block)
        self._require(set(state.prepared), members, "prepare", self._unprepared)
        if self._delivery is not None:
            yield from self._led(self._delivery, number, state.prepared)
        state.dropped = {
            i: "advertise" if i not in self._listed else "agree" if i in (self._missed or ()) else "prepare"
            for i in sorted(set(members) - set(state.prepared))
        }
        self._missed = set()
        state.rejected, self._rejected = self._rejected, {}
        # Replies in a small sum may carry preparations for a large one.
        per_neighbour = (SECRET_BYTES + 2 * KEY_BYTES) * self._agreement.block_size + 256
        self._longest = 8 * grid.size + per_neighbour * MAX_HOLDERS * (MAX_PREPARED + 1) + 4096
        self._longest += (CIPHERTEXT_BYTES + 192) * len(self._listed)
        yield from self._collect(state, self._announced.slots(upcoming or (cohort,), self._channels))
        return state

    def _most_liars(self) -> int:
        """Return how many clients may lie about another."""
        configuration = self._agreement.configuration
        return sizes(len(configuration.clients), configuration.terms).colluders

    def _collect(self, state: RoundState, slots: tuple[Slot, ...]) -> Steps[None]:
        requests: dict[int, Message] = {}
        for client in state.prepared:
            request = state.collect_request(client, self._ahead(client, slots, last=False))
            requests[client] = request if self._delivery is None else self._delivery.request(client, request)
        yield from self._asked(state, "collect", requests, slots, Upload, state.add)
        codes = {f"box:{j}": j for j in state.prepared}
        for accuser, code in state.refused.items():
            if code in codes:
                self._accusers.setdefault(codes[code], set()).add(accuser)
                self._accused_last.add(codes[code])

    def _unmask(self, state: RoundState, slots: tuple[Slot, ...]) -> Steps[None]:
        requests = {i: state.unmask_request(i, self._ahead(i, slots)) for i in state.living}
        yield from self._asked(state, "unmask", requests, slots, Unmasking, state.answer)
        for accuser, answer in state.answers.items():
            for j in answer.left_out:
                self._accusers.setdefault(j, set()).add(accuser)

    def _asked(
        self,
        state: RoundState,
        stage: Stage,
        requests: Mapping[int, Message],
        slots: tuple[Slot, ...],
        expected: Any,
        take: Callable[[int, Any, str], None],
    ) -> Steps[None]:
        """Make one exchange of a sum, in which other clients join or prepare sums to come.

        Args:
            state: of the sum.
            stage: of the exchange.
            requests: to clients of the sum.
            slots: the sums to come.
            expected: type of their replies.
            take: checks and keeps one reply of a client by its name, or raises `MessageError`.
        """
        number, collects = state.number, stage == COLLECT
        sealed = {i: self._channels[i].down.seal(number, stage, one) for i, one in requests.items()}
        sealed |= self._ask_to_prepare(number, slots, requests, last=not collects)
        joined = set(self._channels)
        # Clients that only prepare a later sum are not asked the question.
        answering = tuple(sorted(requests)) if collects else None
        replies = yield Exchange(stage, number, sealed, answering)

        def read(client: int, data: bytes) -> Refusal | None:
            if client not in requests:
                self._prepared(client, data, number if client in joined else 0)
                return None
            reply = self._opened(client, data, number, stage, expected)
            if isinstance(reply, Refusal):
                return reply
            self._take(client, reply, stage)
            take(client, reply, self._name(client))
            if collects and self._delivery is not None:
                self._delivery.heard(client)
            # An upload is in the total now; keeping it would keep its decrypted bytes in memory.
            return None

        state.note(*gather(replies, sealed, read), stage)

    def close(self) -> Steps[None]:
        """Do nothing: the server has every total."""
        yield from ()

    def _total(self, question: Question, state: RoundState) -> Total:
        words = state.opened()
        vector, clipped, contributors = state.grid.decode(words[: state.grid.size])
        if contributors != len(state.living):
            raise IntegrityError(
                f"sum {state.number} of {len(state.living)} clients counts {contributors}: masks did not "
                f"cancel, or a client sent a wrong count; nothing is released. {self._doubts(state)} Ask "
                "again, or begin a fit without clients that you do not trust."
            )
        if self._delivery is not None:
            self._delivery.opened(state.place, state.label, state.contributors, words)
        return Total(
            statistics=question.spec.unflatten(vector),
            contributors=tuple(sorted(state.living)),
            dropped=state.dropped,
            clipped=clipped,
            rejected=state.rejected,
        )

    def _doubts(self, state: RoundState) -> str:
        """Say whose seeds and receipts do not fit: one more than c others contradict, else both of a pair."""
        many, named = self._most_liars(), []
        for lost, others in state.doubted.items():
            if len(others) > many:
                self._accusers.setdefault(lost, set()).update(others)
                named.append(self._name(lost))
            else:
                named += [f"{self._name(lost)} or {self._name(i)}" for i in others]
        if not named:
            return "Masked answers do not show which client it was."
        return f"Of what was prepared for lost clients, parts are wrong: by {', '.join(named)}."
