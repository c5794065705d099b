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
from privfed.protocols.masked.history import History
from privfed.protocols.masked.masked_messages import (
    BoxKey,
    KeptEntry,
    KeptOut,
    Proof,
    ProvenUpload,
    ProveRequest,
    Relayed,
    Unmasking,
    Upload,
)
from privfed.protocols.masked.preparing import Preparing
from privfed.protocols.masked.round_state import UNMASK, RoundState
from privfed.protocols.masked.statements import ProvenGrid, words_of
from privfed.protocols.setup.ceilings import Ceiling
from privfed.protocols.setup.parties import NO_KEY
from privfed.protocols.setup.rules import check_cohort, needed_to_open
from privfed.protocols.setup.setup_messages import Slot, Stage
from privfed.protocols.valid.proof import ceiling, new_sigma, sigma_hash_of

LIED = (
    "its box did not open with the key that its own signature names",
    "it refused a box, and revealed a key that opens it or is another",
)
UNDECIDED = "it or another says that what one sealed for the other does not open; no evidence says who lies"
DEALT = "it gave or dealt other shares than follow from opened secrets, towards more than half of the others"
FORGED = "its signature over its own upload does not hold"
OTHER, OTHER_STATEMENT = "its machine computes another statement of the same question", "proof:statement"
VIOLATED = "its proof shows an answer that its own rows cannot give, or does not hold"
REJECTED = "it rejected valid signatures of others"
"""Why a client is left out of all later sums."""


class MaskedSession(Preparing):
    """Coordinates the masked sums of one fit.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
        resumes: whether another process may go on with the same clients.
    """

    def __init__(self, agreement: Agreement, identity: Signer, *, resumes: bool = True) -> None:
        super().__init__(agreement, identity)
        self._resumes = resumes
        self._kept: list[bytes] = []
        self._told_out = 0
        self._sigma = b""
        self._wrong: dict[tuple[int, int], set[int]] = {}

    # Totals that clients verify, over several processes of the coordinator.

    def relayed(self) -> list[bytes]:
        """Return what another process needs to go on, of what is new since this was asked last."""
        out = list(self._out.items())
        ended = [encode(KeptOut(self._agreement.digest, *one)) for one in out[self._told_out :]]
        kept, self._kept, self._told_out = [*self._kept, *ended], [], len(out)
        return kept if self._resumes else []

    def recall(self, relayed: Iterable[bytes], opened: int) -> None:
        """Take what earlier processes kept, in order, before the session is opened.

        Args:
            relayed: what they kept.
            opened: how many totals the run has.

        Raises:
            MessageError: it is damaged.
        """
        kinds: Any = Relayed | KeptEntry | KeptOut
        read = [decode(one, kinds, sender="the transcript", stage="advertise") for one in relayed]
        # With other keys or terms it is another agreement, whose clients begin anew.
        mine = [one for one in read if one.agreement == self._agreement.digest]
        self._history = History(self._agreement, [one.entry for one in mine if isinstance(one, KeptEntry)])
        self._out |= {one.client: one.why for one in mine if isinstance(one, KeptOut)}
        self._told_out = len(self._out)
        totals = {one.sum.total.index: one for one in mine if isinstance(one, Relayed)}
        self._earlier = [totals[index] for index in sorted(totals) if index < opened]

    def _keep(self, state: RoundState, *, unmasked: bool) -> None:
        """Have an entry of the history stored before what follows is sent."""
        entry = state.entry(unmasked=unmasked)
        self._history.begin(entry)
        self._kept.append(encode(KeptEntry(self._agreement.digest, entry)))

    # A sum.

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open a cohort's total: collect, then unmask."""
        members, terms = self._agreement.cohort(cohort).members, self._agreement.configuration.terms
        check_cohort(len(members), terms)
        data, needed = question.to_bytes(), needed_to_open(len(members), terms)
        for client in members:
            words_of(data, len(members), self._agreement.configuration, client)
        while True:
            if (led := self._delivery) is not None and led.leader in self._out and not led.n_totals:
                # Others may not have its secret: another client draws one, before a total is checked by it.
                yield from self.open()
            state = yield from self._collected(data, index, cohort, upcoming)
            # A sum in which a client complained is not unmasked, whoever lied.
            if self._out.keys().isdisjoint(state.prepared):
                self._require_neighbours(state, state.living, members, "collect")
                if state.is_proven:
                    # Who violates its statement is lost to this sum, which goes on.
                    yield from self._prove(state)
                    self._require_neighbours(state, state.living, members, "prove")
                out = len(self._out)
                yield from self._unmask(state, self._announced.slots(()))
                few = len(state.answers) < needed or state.is_cut_off(state.answers)
                if len(self._out) == out or not few:
                    self._require_neighbours(state, state.answers, members, "unmask")
                    return self._total(question, state)
            # Asked again without those who are out: each time one more at least.
            self._rejected = state.rejected

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
        excluded = set(self._out)
        block, number = yield from self._block(cohort, needed_to_open(len(members), terms), excluded)
        coming = self._announced.taken(block, number)
        self._history.close()
        astray = self._history.joined(self._stand)
        self._unprepared |= dict.fromkeys(astray, "history")
        excluded |= astray
        missing = list(coming.without_box(self._channels.keys() - excluded))
        # Who still waited for another's capsule when it prepared has no key: that one came late.
        waited = {(i, j) for i, j in missing if j in coming.awaited.get(i, ())}
        self._leave((pair for pair in missing if pair not in waited), NO_KEY)
        late = {j for _, j in waited}
        excluded |= late | self._out.keys()
        chosen = coming.preparations.keys() - excluded
        self._require(chosen, members, "prepare", self._unprepared)
        words = words_of(question, len(members), self._agreement.configuration)
        if isinstance(words[0], ProvenGrid):
            stated: Any = [words_of(question, len(members), self._agreement.configuration, i) for i in chosen]
            self._sigma, proof = new_sigma(), max(ceiling(one.statement) for one, _ in stated)
            heads = self._history.head, sigma_hash_of(self._sigma)
        else:
            proof, heads = 0, (self._history.head, b"" if self._delivery is None else self._delivery.head)
        doubted = {client for _, client in self._wrong}
        state = RoundState(
            self._agreement, self._session, number, index, question, coming, chosen, words, *heads, doubted
        )
        if late - self._announced.late:
            # Who joined after the others had prepared can be in their next block only.
            self._announced.late |= late
            self._announced.coming.pop(block, None)
        self._require(set(state.prepared), members, "prepare", self._unprepared)
        if self._delivery is not None:
            yield from self._led(self._delivery, number, state.prepared)
        state.dropped = {
            i: "advertise" if i not in self._listed else "agree" if i in (self._missed or ()) else "prepare"
            for i in sorted(set(members) - set(state.prepared))
        }
        self._missed = set()
        state.rejected, self._rejected = self._rejected, {}
        state.rejected |= {i: why for i, why in self._out.items() if i in members}
        self._ceiling = Ceiling.of(self._agreement.configuration, words=8 * words[1].size, proof=proof)
        yield from self._collect(state, self._announced.slots(upcoming or (cohort,)))
        return state

    def _collect(self, state: RoundState, slots: tuple[Slot, ...]) -> Steps[None]:
        requests, sent = dict[int, Message](), ProvenUpload if state.is_proven else Upload
        self._keep(state, unmasked=False)
        for client in state.prepared:
            ahead = self._ahead(client, slots, last=False)
            request = state.collect_request(client, self._history.lacking(client), ahead)
            requests[client] = request if self._delivery is None else self._delivery.request(client, request)
        yield from self._asked(state, "collect", requests, slots, sent, state.add)
        codes = {f"box:{j}": j for j in state.prepared}
        leader = None if self._delivery is None else self._delivery.leader
        if leader is not None:
            # Of an invitation that did not open no evidence can be shown: it is the secret of all.
            refused = sorted(state.refused.items())
            self._leave(((i, leader) for i, code in refused if code == "invitation"), UNDECIDED)
        accused = {i: codes[code] for i, code in state.refused.items() if code in codes}
        accused = {i: j for i, j in accused.items() if state.is_between(i, j)}
        if accused:
            yield from self._settled(state, accused)

    def _settled(self, state: RoundState, accused: Mapping[int, int]) -> Steps[None]:
        """Find who lied of boxes that did not open, and leave out who did, or else both ends.

        Args:
            state: of the sum, which is not unmasked.
            accused: who complained -> who made the box.
        """
        number = state.number
        asked = {i: state.leaf_request(i, j) for i, j in accused.items()}
        sealed = {i: self._channels[i].down.seal(number, "prepare", one) for i, one in asked.items()}
        replies = yield Exchange("prepare", number, sealed)
        read, _ = gather(replies, sealed, lambda i, data: self._opened(i, data, number, "prepare", BoxKey))
        edges = []
        for i, j in sorted(accused.items()):
            key = read[i].key if isinstance(read.get(i), BoxKey) else b""
            liar = state.liar(i, j, self._listed[j].signing, key)
            if liar is not None:
                self._out[liar] = LIED[liar == i]
            else:
                edges.append((i, j))
        self._leave(edges, UNDECIDED)

    def _prove(self, state: RoundState) -> Steps[None]:
        """Show sigma to whose uploads came, and leave out whoever does not prove its statement."""
        requests = {i: ProveRequest(self._sigma, *self._ahead(i, ())) for i in state.living}
        yield from self._asked(state, "prove", requests, (), Proof, state.prove)
        failed = state.settle(self._sigma, {i: one.signing for i, one in self._listed.items()})
        said = {i: f"{OTHER if code == OTHER_STATEMENT else VIOLATED} ({code})" for i, code in failed.items()}
        # Whoever sent another statement is of no use to this fit, though no liar by that alone.
        self._out |= said
        state.note({}, said, "prove")

    def _unmask(self, state: RoundState, slots: tuple[Slot, ...]) -> Steps[None]:
        self._keep(state, unmasked=True)
        requests = {i: state.unmask_request(i, self._ahead(i, slots)) for i in state.living}
        yield from self._asked(state, "unmask", requests, slots, Unmasking, state.answer)
        doubting = [i for i, code in state.refused.items() if code == "receipts" and i in state.living]
        if not doubting:
            return
        forgers = state.forgers({i: one.signing for i, one in self._listed.items()})
        self._out |= dict.fromkeys(forgers, FORGED)
        requests = {i: state.unmask_request(i, self._ahead(i, ()), shows=True) for i in doubting}
        yield from self._asked(state, "unmask", requests, (), Unmasking, state.answer)
        if not forgers:
            # All signatures hold: who rejects them lies.
            rejecting = [i for i in doubting if state.refused.get(i) == "receipts" and i not in state.answers]
            self._out |= dict.fromkeys(rejecting, REJECTED)

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
            self._history.heard(client, opens=stage == UNMASK)
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
        for pair in state.wrong:
            for client, other in (pair, pair[::-1]):
                # Of two honest ends no share is wrong: who has such pairs with most neighbours is a liar.
                others = self._wrong.setdefault((state.label, client), set())
                others.add(other)
                if len(others) > state.most_liars:
                    self._out.setdefault(client, DEALT)
        vector, clipped, contributors = state.grid.decode(words[: state.grid.size])
        if contributors != len(state.living):
            raise IntegrityError(
                f"sum {state.number} of {len(state.living)} clients counts {contributors}: masks did not "
                f"cancel, or a client sent a wrong count; nothing is released. {self._doubts(state)} Ask "
                "again, or begin a fit without clients that you do not trust."
            )
        if state.is_proven and not state.totals_hold(self._sigma, words):
            raise IntegrityError(
                f"the total of sum {state.number} is not what its {contributors} clients proved: one of them "
                "proved another answer than it uploaded, and masked answers do not show which. Nothing is "
                "released. Ask again, or begin a fit without clients that you do not trust."
            )
        if self._delivery is not None:
            self._kept.append(
                encode(self._delivery.opened(state.place, state.label, state.contributors, words))
            )
        return Total(
            statistics=question.spec.unflatten(vector),
            contributors=tuple(sorted(state.living)),
            dropped=state.dropped,
            clipped=clipped,
            rejected=state.rejected,
        )

    def _doubts(self, state: RoundState) -> str:
        """Say whose seeds and receipts do not fit: either of a pair lies, and nothing shows which."""
        pairs = [(lost, i) for lost, others in state.doubted.items() for i in others]
        named = [f"{self._name(lost)} or {self._name(i)}" for lost, i in pairs]
        if not named:
            return "Masked answers do not show which client it was."
        return f"Of what was prepared for lost clients, parts are wrong: by {', '.join(named)}."
