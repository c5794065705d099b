"""The client of a masked sum: a pure step that checks every request before it answers.

The checks are in `protocols.masked.checks`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.roles.engine import Answerer
from privfed.core.roles.secure_sum import COLLECT, Replay
from privfed.core.stored.encoding import Message, Refusal, encode
from privfed.errors import IntegrityError, MessageError, PolicyError, PrivFedError
from privfed.protocols.answering import admit, answer, refusal_code
from privfed.protocols.crypto.keys import (
    APART,
    KEY_BYTES,
    SIGNATURE_BYTES,
    CryptographyError,
    Identity,
    Shared,
    digest,
    equal,
    public_key,
    seal,
)
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.crypto.shamir import rows
from privfed.protocols.masked import checks
from privfed.protocols.masked.bindings import (
    lock_binding,
    lock_key,
    masking,
    pair_of,
    proof_context,
    proof_data,
    upload_data,
)
from privfed.protocols.masked.blocks import BlockMaker
from privfed.protocols.masked.client_state import (
    ANSWER,
    CODEC,
    RECOVERY,
    SECRET_BYTES,
    SELF,
    DropoutReport,
    Fit,
    Pending,
    Proving,
    State,
    closed,
)
from privfed.protocols.masked.history import extended, told
from privfed.protocols.masked.masked_messages import (
    Agreed,
    BoxKey,
    CollectRequest,
    LeadRequest,
    LeafRequest,
    Preparation,
    Prepared,
    PrepareRequest,
    Proof,
    ProvenRequest,
    ProvenUpload,
    ProveRequest,
    SumEntry,
    Unmasking,
    UnmaskRequest,
    Upload,
    VerifiedRequest,
)
from privfed.protocols.masked.statements import PROVEN, ProvenGrid, words_of
from privfed.protocols.masked.verifier import Verifier
from privfed.protocols.setup.advertising import check_signed, signing_of
from privfed.protocols.setup.ceilings import MOST_SLOTS
from privfed.protocols.setup.graph import FULL_GRAPH
from privfed.protocols.setup.hybrid import agreed_on
from privfed.protocols.setup.parties import JoiningClient
from privfed.protocols.setup.rules import Rules, check_cohort, sum_header, threshold
from privfed.protocols.setup.setup_messages import (
    Channel,
    Envelope,
    Joining,
    RosterRequest,
    Slot,
    part,
    session_of,
)
from privfed.protocols.valid.proof import commit, prove

MOST_REPORTS = 16
"""Sums since the last total of which a client remembers who was said to be lost."""

Asked = CollectRequest | ProveRequest | UnmaskRequest | PrepareRequest | LeadRequest
"""What a request asks for, without the totals that may come with it."""


class MaskedClient(JoiningClient):
    """Answers masked sums for one client.

    Args:
        position: the client's number on the wire.
        agreement: the configuration and registry, which the client did not get from the server.
        identity: the client's long-term key.
        policy: decides what the client answers.
        replay: where totals are verified, its own run of the algorithm; None elsewhere.
        shared: in a simulation, what it would compute as others do.
    """

    codec = CODEC

    def __init__(
        self,
        position: int,
        agreement: Agreement,
        identity: Signer,
        policy: ClientPolicy,
        replay: Replay | None = None,
        shared: Shared = APART,
    ) -> None:
        self._agreement: Rules
        super().__init__(position, Rules.of(agreement), identity, policy)
        self._shared = shared
        self._verifier = None if replay is None else Verifier(self._agreement, position, replay)

    def step(self, state: State, request: bytes, answerer: Answerer) -> tuple[State, bytes]:
        """Answer one request, or refuse it with a code that depends on messages and policy only."""
        keys, request_hash = state.keys, digest("request", request)
        if keys is not None and equal(request_hash, keys.reply_to):
            return state, keys.reply
        try:
            message = self.set_up(state, request)
            if not isinstance(message, Envelope):
                return message
            if keys is None:
                raise MessageError("before the set-up", sender="the coordinator", stage=message.stage)
        except (PrivFedError, CryptographyError) as error:
            return state, encode(Refusal(refusal_code(error)))
        channel = Channel(keys.channel, keys.session, self._me)
        try:
            asked = self._read(channel, message)
            if isinstance(asked, LeafRequest):
                return state, channel.up.seal(message.number, message.stage, self._shown(keys, asked))
            inner = asked.collect if isinstance(asked, VerifiedRequest) else asked
            keys, made = self._agreed(keys, inner)
            if self._verifier is not None and isinstance(asked, VerifiedRequest):
                keys = self._verifier.taken(keys, message.number, asked)
                # These totals hold: they stay, also where the question is refused.
                state = msgspec.structs.replace(state, keys=keys)
            keys, reply = self._in_session(keys, message.number, inner, answerer)
            if not isinstance(reply, Refusal):
                reply = msgspec.structs.replace(reply, **made)
        except (PrivFedError, CryptographyError) as error:
            refusal = Refusal(refusal_code(error))
            if isinstance(error, IntegrityError):
                # A second try at another total would be a second guess.
                state, refusal = msgspec.structs.replace(closed(state), past=()), Refusal("total")
            return state, channel.up.seal(message.number, message.stage, refusal)
        packed = channel.up.seal(message.number, message.stage, reply)
        keys = msgspec.structs.replace(keys, reply_to=request_hash, reply=packed)
        return msgspec.structs.replace(state, keys=keys), packed

    # Set-up of a fit.

    def join(self, state: State, message: RosterRequest) -> tuple[State, bytes]:
        """Check the list of clients, and agree on keys with the coordinator and with others."""
        own = [one.key for one in message.clients if one.client == self._me]
        # A list with the fresh key that this client advertised last begins a fit.
        fresh = state.key and any(equal(one, public_key(state.key)) for one in own)
        if state.keys is not None and not fresh:
            return self._joined_before(state, state.keys, message)
        before, n = closed(state), len(self._agreement.configuration.clients)
        # An earlier fit ends only once the whole list, with this client's key, is the coordinator's.
        session, channel, ciphertext, ring, counted = self._checked_list(
            state, before.losses, message, "agree", whole=n <= FULL_GRAPH, shared=self._shared
        )
        signing = signing_of(state.key, state.fit).secret
        counts = {"answered": before.answered, "losses": counted, "fit": state.fit, "signing": signing}
        keys = Fit(session, channel, {}, ring, **counts)  # type: ignore[arg-type]
        if self._verifier is not None:
            keys = msgspec.structs.replace(keys, chain=self._verifier.begun(session, before.past))
        keys, made = self._agreed(keys, message)
        sealed = Channel(channel, session, self._me).up.seal(
            0, "agree", Agreed(made["capsules"], counted.head)
        )
        reply = encode(Joining(ciphertext, sealed))
        keys = msgspec.structs.replace(keys, joining=reply)
        return msgspec.structs.replace(before, fit=state.fit, key=b"", seed=b"", keys=keys), reply

    def _agreed(self, keys: Fit, message: Any) -> tuple[Fit, dict[str, Any]]:
        """Agree on keys with clients that a request names; return what that adds to the reply."""
        offered, capsules = message.keys, () if isinstance(message, RosterRequest) else message.capsules
        session, known = keys.session, keys.pairs
        ring, new, made = agreed_on(keys.ring, session, self._me, known, offered, capsules, self._shared)
        pairs = known | {j: pair_of(key, session) for j, key in new.items()} if new else known
        keys = msgspec.structs.replace(keys, ring=ring, pairs=pairs, joining=b"")
        added: dict[str, Any] = {"capsules": made}
        if self._verifier is not None:
            chosen = pairs if isinstance(message, LeadRequest) else new
            keys = self._verifier.led(keys) if isinstance(message, LeadRequest) else keys
            added["invitations"] = self._verifier.invitations(keys, chosen)
        return keys, added

    def _joined_before(self, state: State, keys: Fit, message: RosterRequest) -> tuple[State, bytes]:
        """Answer a list that was sent again, if it gives the same session, with the same reply."""
        if not equal(session_of(self._agreement, keys.fit, message.clients), keys.session):
            raise PolicyError("roster:other")
        check_signed(self._agreement, keys.fit, message)
        if not keys.joining:
            raise MessageError("a list that was answered", sender="the coordinator", stage="agree")
        return state, keys.joining

    # Within a fit.

    def _read(self, channel: Channel, envelope: Envelope) -> Asked | VerifiedRequest | LeafRequest:
        verifies, proves = self._verifier is not None, self._agreement.configuration.protocol == PROVEN
        kinds: dict[str, Any] = {
            "prepare": PrepareRequest | LeafRequest | LeadRequest
            if verifies
            else PrepareRequest | LeafRequest,
            COLLECT: ProvenRequest if proves else VerifiedRequest if verifies else CollectRequest,
            **({"prove": ProveRequest} if proves else {}),
            "unmask": UnmaskRequest,
        }
        if envelope.stage not in kinds:
            raise MessageError("no stage of a sum", sender="the coordinator", stage=envelope.stage)
        message: Asked | VerifiedRequest | LeafRequest = self.ceiling.unsealed(
            channel.down, envelope, kinds[envelope.stage]
        )
        return message

    def _in_session(self, keys: Fit, number: int, message: Asked, answerer: Answerer) -> tuple[Fit, Message]:
        if isinstance(message, CollectRequest):
            return self._collect(keys, number, message, answerer)
        if isinstance(message, UnmaskRequest):
            return self._unmask(keys, number, message)
        if isinstance(message, ProveRequest):
            return self._prove(keys, number, message)
        keys, preparations = self._prepare(keys, message.upcoming)
        return keys, Prepared(preparations)

    def _prepare(self, keys: Fit, upcoming: tuple[Slot, ...]) -> tuple[Fit, tuple[Preparation, ...]]:
        """Prepare blocks of future sums; a preparation that was sent before is sent again unchanged."""
        preparations = []
        for slot in upcoming:
            checks.check_slot(keys, slot, self.ceiling.skipped)
            if slot.block not in keys.blocks:
                keys = self._with_block(keys, slot)
            preparations.append(keys.blocks[slot.block].sent)
        # Prepared sums that never ran are closed for good once too many later ones are prepared.
        closed = sorted(keys.blocks)[:-MOST_SLOTS]
        later = {block: kept for block, kept in keys.blocks.items() if block not in closed}
        last = max([keys.last, *(self._agreement.numbers(block)[-1] for block in closed)])
        pending = keys.pending if last == keys.last else None
        keys = msgspec.structs.replace(keys, blocks=later, last=last, pending=pending)
        return keys, tuple([one for one in preparations if one is not None])

    def _with_block(self, keys: Fit, slot: Slot) -> Fit:
        agreement, me = self._agreement, self._me
        checks.check_label(agreement.configuration, slot.cohort)
        cohort = agreement.cohort(slot.cohort)
        if me not in cohort.place:
            raise MessageError("not in this cohort", sender="the coordinator", stage="prepare")
        check_cohort(len(cohort.members), agreement.configuration.terms)
        moved, block = self._maker(keys, slot).made(keys.pairs, Identity(keys.signing))
        blocks, skipped = {**keys.blocks, slot.block: block}, keys.skipped + slot.block - keys.prepared - 1
        return msgspec.structs.replace(
            keys, pairs=keys.pairs | moved, blocks=blocks, prepared=slot.block, skipped=skipped
        )

    def _maker(self, keys: Fit, slot: Slot) -> BlockMaker:
        agreement = self._agreement
        cohort, numbers = agreement.cohort(slot.cohort), agreement.numbers(slot.block)
        t = threshold(len(cohort.members), agreement.configuration.terms)
        neighbours = agreement.neighbours(keys.session, slot.cohort, self._me)
        return BlockMaker(keys.session, self._me, slot, numbers, t, cohort.digest, neighbours)

    def _collect(
        self, keys: Fit, number: int, message: CollectRequest, answerer: Answerer
    ) -> tuple[Fit, Message]:
        """Stage A: answer, masked with the client's own secret and with every prepared neighbour."""
        agreed = self._agreement.configuration
        slot = Slot(self._agreement.block_of(number), message.cohort)
        block = checks.check_number(keys, number, slot.block, message, agreed.terms.max_sums)
        known = extended(keys.losses, message.history, message.head, self._agreement)
        keys = msgspec.structs.replace(keys, losses=known)
        question = admit(message.question, self._policy, agreed)
        if self._verifier is not None:
            self._verifier.check_question(keys, message)
        cohort = self._agreement.cohort(message.cohort)
        maker = self._maker(keys, slot)
        slots, brought = checks.check_prepared(self._agreement, maker.neighbours, self._me, message)
        block = maker.opened(block, brought, message.boxes)
        checks.check_opened(block, maker.neighbours, slots)
        asked = question.to_bytes()  # The same object for all simulated clients, hashed once.
        challenge = message.challenge if isinstance(message, ProvenRequest) else b""
        parts = (message.index, asked, cohort.digest, message.prepared, known.head)
        header = sum_header(keys.session, number, *parts, challenge or keys.chain.head)
        prepared = tuple([maker.neighbours.clients[place] for place in slots])
        grid, layout = words_of(asked, len(cohort.members), agreed, self._me)
        chosen, secrets = list(slots), block.own[number]
        seeds = rows(block.seeds[number], KEY_BYTES)[chosen].tobytes()
        own, answer_key = part(secrets, SELF, KEY_BYTES), part(secrets, ANSWER, KEY_BYTES)
        masks = masking(keys.session, number, self._me, header, own, prepared, seeds, layout.size)
        shares = rows(block.shares[number], SECRET_BYTES)[chosen].tobytes()
        later = {b: kept for b, kept in keys.blocks.items() if b > slot.block}
        if number < maker.numbers[-1]:
            later[slot.block] = block.after(number)
        keys = msgspec.structs.replace(
            keys, last=number, answered=keys.answered + 1, blocks=later, pending=None
        )
        keys, preparations = self._prepare(keys, message.upcoming)
        # Nothing so far depends on the data. From here on the sum counts as answered, even if this fails.
        try:
            answered = answer(question, message.index, answerer)
            words = grid.encode(answered.vector, answered.clipped)
            proving = None
            if isinstance(grid, ProvenGrid):
                digits = words[:-2].view(np.int64)
                committed = commit(grid.statement, digits, proof_context(header, self._me), challenge)
                stored = digits.astype("<i8").tobytes()
                proving = Proving(asked, challenge, stored, committed.key, committed.root)
                words = np.concatenate([words, committed.pads])
            elif self._verifier is not None:
                words = self._verifier.with_check(keys, number, message, grid, words)
        except PrivFedError as error:
            return keys, Refusal(refusal_code(error))
        Masker(layout).apply(words, masks.masks, np.array(masks.adds))
        participants = np.packbits(np.frombuffer(message.prepared, dtype=np.uint8)).tobytes()
        besides = (prepared, shares, answer_key, masks.expected, message.index, participants, proving)
        keys = msgspec.structs.replace(keys, pending=Pending(number, header, message.cohort, *besides))
        signature = Identity(keys.signing).sign(upload_data(header, self._me))
        sent = words.astype("<u8", copy=False).data.cast("B"), masks.made, signature, preparations
        return keys, Upload(*sent) if proving is None else ProvenUpload(*sent, root=proving.root)

    def _prove(self, keys: Fit, number: int, message: ProveRequest) -> tuple[Fit, Message]:
        """Stage A2: prove what was committed to, once, by the sigma whose hash is in the header."""
        pending = checks.check_pending(keys, number)
        proving = checks.check_challenge(pending, message.sigma)
        cohort = self._agreement.cohort(pending.cohort).members
        grid, _ = words_of(proving.question, len(cohort), self._agreement.configuration, self._me)
        assert isinstance(grid, ProvenGrid)
        digits, context = np.frombuffer(proving.digits, dtype="<i8"), proof_context(pending.header, self._me)
        proof = prove(grid.statement, digits.astype(np.int64), proving.blind, context, message.sigma)
        signed = proof_data(pending.header, self._me, proving.root, message.sigma, proof)
        keys = msgspec.structs.replace(keys, pending=msgspec.structs.replace(pending, proving=None))
        keys, preparations = self._prepare(keys, message.upcoming)
        signature = Identity(keys.signing).sign(signed)
        return keys, Proof(grid.statement.digest, memoryview(proof), signature, preparations)

    def _unmask(self, keys: Fit, number: int, message: UnmaskRequest) -> tuple[Fit, Message]:
        """Stage B: give shares of each living neighbour's b and each lost one's e, never both."""
        pending = checks.check_pending(keys, number)
        living, dead = checks.check_reports(self._agreement, pending, message)
        there = checks.survivors(self._agreement, pending, self._me, message, living)
        where = (keys.session, number, pending.index, pending.cohort, pending.participants)
        known = told(keys.losses, SumEntry(*where, there), self._agreement)
        keys = msgspec.structs.replace(keys, losses=known)
        good = checks.check_receipts(pending, living, message.receipts)
        signed = {
            j: part(message.signatures, i, SIGNATURE_BYTES) for i, j in enumerate(living) if j not in good
        }
        checks.check_signatures(pending, signed, keys.ring.signers)
        shares = np.frombuffer(pending.shares, dtype=np.uint8).reshape(-1, 3, KEY_BYTES)
        place = {j: place for place, j in enumerate(pending.prepared)}
        of_living, of_dead = shares[[place[j] for j in living]], shares[[place[j] for j in dead]]
        lock = lock_key(pending.answer, keys.session, number, self._me, pending.header)
        bound_to = lock_binding(pending.header, self._me, message.dead)
        locked = seal(lock, of_living[:, SELF].tobytes() + of_dead[:, RECOVERY].tobytes(), bound_to)
        if self._verifier is not None:
            reports = (*keys.chain.reports, DropoutReport(number, there))[-MOST_REPORTS:]
            keys = msgspec.structs.replace(keys, chain=msgspec.structs.replace(keys.chain, reports=reports))
        keys, preparations = self._prepare(msgspec.structs.replace(keys, pending=None), message.upcoming)
        return keys, Unmasking(of_living[:, ANSWER].tobytes(), locked, preparations)

    def _shown(self, keys: Fit, message: LeafRequest) -> BoxKey:
        """Reveal the key of a box, if its sender signed that box with the hash of this key."""
        block = keys.blocks.get(message.block)
        if block is None or len(message.leaves) % KEY_BYTES:
            raise MessageError("not a block that waits", sender="the coordinator", stage="prepare")
        maker = self._maker(keys, Slot(message.block, block.cohort))
        if message.sender not in maker.neighbours.clients:
            raise MessageError("a box of no neighbour", sender="the coordinator", stage="prepare")
        return BoxKey(maker.revealed(block, message, part(keys.ring.signers, message.sender, KEY_BYTES)))
