"""The client of a masked sum: a pure step that checks everything before it gives anything.

What it checks stands in `checks`.
"""

from __future__ import annotations

import msgspec

from privfed.core.configuration import ClientPolicy
from privfed.core.engine import Answerer
from privfed.core.messages import Message, Refusal, decode, encode
from privfed.errors import MessageError, PolicyError, PrivFedError
from privfed.protocols.answering import admit, answer, refusal_code
from privfed.protocols.fixed_point import Grid, Words, grid_of
from privfed.protocols.masking import checks
from privfed.protocols.masking.bindings import (
    box_key,
    lock_binding,
    pair_mask_key,
    part,
    receipt_data,
    self_mask_key,
    session_of,
    share_of,
)
from privfed.protocols.masking.channel import Channel
from privfed.protocols.masking.keys import (
    KEY_BYTES,
    CryptographyError,
    Identity,
    agree,
    bound,
    digest,
    equal,
    expand,
    extract,
    mac,
    new_secret,
    parsed,
    public_key,
    seal,
    unseal,
)
from privfed.protocols.masking.keystream import Masker
from privfed.protocols.masking.messages import (
    Advertisement,
    AdvertiseRequest,
    CollectRequest,
    Envelope,
    Listed,
    Preparation,
    Prepared,
    PrepareRequest,
    RosterRequest,
    Slot,
    Unmasking,
    UnmaskRequest,
    Upload,
)
from privfed.protocols.masking.rules import (
    Agreement,
    box_binding,
    check_cohort,
    cohort_digest,
    sum_header,
    threshold,
)
from privfed.protocols.masking.shamir import share
from privfed.protocols.masking.state import BOX_BYTES, Fit, Pair, Pending, Secrets, State

MAX_PREPARED = 4
"""Most sums to come that a client holds key material for."""

_STAGES = {"PrepareRequest": "prepare", "CollectRequest": "collect", "UnmaskRequest": "unmask"}


class MaskedClient:
    """One client.

    Args:
        position: the client's number on the wire.
        agreement: the configuration and registry that the client was given, not by the server.
        identity: its long-term key.
        policy: what it answers.
    """

    def __init__(self, position: int, agreement: Agreement, identity: Identity, policy: ClientPolicy) -> None:
        self._me, self._agreement, self._identity, self._policy = position, agreement, identity, policy

    def initial(self) -> State:
        """Return the state before the first request."""
        return State()

    def step(self, state: State, request: bytes, answerer: Answerer) -> tuple[State, bytes]:
        """Answer one request, or refuse it with a code that depends on messages and policy only."""
        keys = state.keys
        if keys is not None and equal(digest("request", request), keys.reply_to):
            return state, keys.reply
        channel, envelope = None, None
        try:
            message = decode(
                request,
                AdvertiseRequest | RosterRequest | Envelope,
                sender="the coordinator",
                stage="request",
            )
            if isinstance(message, AdvertiseRequest):
                return self._advertise(state, message)
            if isinstance(message, RosterRequest):
                return self._join(state, message)
            if keys is None:
                raise MessageError("before the set-up", sender="the coordinator", stage=message.stage)
            channel, envelope = Channel(keys.channel, keys.session, self._me), message
            keys, reply = self._in_session(keys, channel, message, answerer)
        except (PrivFedError, CryptographyError) as error:
            refusal = Refusal(refusal_code(error))
            if channel is None or envelope is None:
                return state, encode(refusal)
            return state, channel.up(envelope.number, envelope.stage, refusal)
        packed = channel.up(message.number, message.stage, reply)
        keys = msgspec.structs.replace(keys, reply_to=digest("request", request), reply=packed)
        return msgspec.structs.replace(state, keys=keys), packed

    # Set-up of a fit.

    def _advertise(self, state: State, message: AdvertiseRequest) -> tuple[State, bytes]:
        """Give a fresh key, signed over role, fit and agreement. Closes any fit before.

        A request that comes again for the same fit gets the same key until the list of clients has
        come, and a refusal after that: this message is in clear, and must not close its own fit.
        """
        agreement, again = self._agreement, equal(message.fit, state.fit)
        if not equal(message.agreement, agreement.digest):
            raise PolicyError("agreement")
        code = self._policy.refuses_configuration(agreement.configuration)
        if code is not None:
            raise PolicyError(code)
        if again and state.keys is not None:
            raise MessageError("of a fit that is set up", sender="the coordinator", stage="advertise")
        key = state.key if again else new_secret()
        signed = bound("advertise", self._me, message.fit, agreement.digest, public_key(key))
        answered = state.answered if state.keys is None else state.keys.answered
        if not equal(state.agreement, agreement.digest):
            answered = 0
        advertised = State(message.fit, key, None, agreement.digest, answered)
        return advertised, encode(Advertisement(public_key(key), self._identity.sign(signed)))

    def _join(self, state: State, message: RosterRequest) -> tuple[State, bytes]:
        """Check the list of clients, derive the fit's keys, prepare the first sums."""
        if state.keys is not None:
            return self._joined_before(state, state.keys, message)
        if not state.key:
            raise MessageError("before an advertisement", sender="the coordinator", stage="prepare")
        checks.check_roster(self._agreement, self._me, public_key(state.key), state.fit, message)
        session = session_of(self._agreement, state.fit, message.clients)
        shared = agree(state.key, message.key)
        channel_key = extract(shared, bound("channel", session, self._me))
        others = [one for one in message.clients if one.client != self._me]
        pairs = {one.client: self._pair(state.key, one, session) for one in others}
        keys = Fit(session, channel_key, pairs, answered=state.answered)
        keys, preparations = self._prepare(keys, message.upcoming)
        reply = Channel(channel_key, session, self._me).up(0, "prepare", Prepared(preparations))
        return msgspec.structs.replace(state, key=b"", keys=keys), reply

    def _joined_before(self, state: State, keys: Fit, message: RosterRequest) -> tuple[State, bytes]:
        """Answer a list that was sent again: the same session, under the key that is there."""
        if not equal(session_of(self._agreement, state.fit, message.clients), keys.session):
            raise PolicyError("roster:other")
        keys, preparations = self._prepare(keys, message.upcoming)
        reply = Channel(keys.channel, keys.session, self._me).up(0, "prepare", Prepared(preparations))
        return msgspec.structs.replace(state, keys=keys), reply

    def _pair(self, key: bytes, other: Listed, session: bytes) -> Pair:
        low, high = sorted((self._me, other.client))
        base = extract(agree(key, other.key), bound("pair", session, low, high))
        return Pair(expand(base, bound("boxes", session)), expand(base, bound("receipts", session)))

    # Within a fit.

    def _in_session(
        self, keys: Fit, channel: Channel, envelope: Envelope, answerer: Answerer
    ) -> tuple[Fit, Message]:
        message = channel.open_down(envelope, PrepareRequest | CollectRequest | UnmaskRequest)
        stage = _STAGES[type(message).__name__]
        if envelope.stage != stage:
            raise MessageError("stage and message differ", sender="the coordinator", stage=envelope.stage)
        if isinstance(message, CollectRequest):
            return self._collect(keys, envelope.number, message, answerer)
        if isinstance(message, UnmaskRequest):
            return self._unmask(keys, envelope.number, message)
        keys, preparations = self._prepare(keys, message.upcoming)
        return keys, Prepared(preparations)

    def _prepare(self, keys: Fit, upcoming: tuple[Slot, ...]) -> tuple[Fit, tuple[Preparation, ...]]:
        """Prepare for sums to come; what was sent once is sent again."""
        secrets, preparations = dict(keys.secrets), []
        for slot in upcoming:
            checks.check_slot(keys, slot)
            if slot.number not in secrets:
                secrets[slot.number] = self._new_secrets(keys, slot)
            preparations.append(secrets[slot.number].sent)
        # A sum that passed this client by is closed for good once too many later ones are prepared.
        closed = sorted(secrets)[:-MAX_PREPARED]
        later = {number: kept for number, kept in secrets.items() if number not in closed}
        return msgspec.structs.replace(keys, secrets=later, last=max([keys.last, *closed])), tuple(
            preparations
        )

    def _new_secrets(self, keys: Fit, slot: Slot) -> Secrets:
        configuration, me = self._agreement.configuration, self._me
        checks.check_label(configuration, slot.cohort)
        members = configuration.cohort(slot.cohort)
        if me not in members:
            raise MessageError("not in this cohort", sender="the coordinator", stage="prepare")
        check_cohort(len(members), configuration.terms)
        neighbours = self._agreement.neighbours(me, slot.cohort)
        mask, seed, answer_key = new_secret(), new_secret(), new_secret()
        t = threshold(len(neighbours), configuration.terms)
        abscissae = tuple(members.index(j) + 1 for j in neighbours)
        shares = share(seed + mask + answer_key, abscissae, t)
        mask_key, seed_hash, cohort = (
            public_key(mask),
            digest("seed", seed),
            cohort_digest(slot.cohort, members),
        )
        boxes = []
        for j, abscissa, own in zip(neighbours, abscissae, shares, strict=True):
            pair = keys.pairs.get(j)
            if pair is None:
                # Not on the list of this fit: the box is for nobody, and has the length of the others.
                boxes.append(bytes(BOX_BYTES))
                continue
            data = box_binding(keys.session, slot.number, me, j, t, abscissa, cohort, mask_key, seed_hash)
            boxes.append(seal(box_key(pair, keys.session, slot.number, me, j), own.tobytes(), data))
        sent = Preparation(slot.number, slot.cohort, mask_key, seed_hash, b"".join(boxes))
        return Secrets(mask, seed, answer_key, sent)

    def _collect(
        self, keys: Fit, number: int, message: CollectRequest, answerer: Answerer
    ) -> tuple[Fit, Message]:
        """Stage A: answer, masked with the own seed and with every prepared neighbour."""
        secrets = checks.check_number(keys, number, message, self._agreement.configuration.terms.max_sums)
        question = admit(message.question, self._policy, self._agreement.configuration)
        members = self._agreement.configuration.cohort(message.cohort)
        prepared = checks.check_prepared(self._agreement, self._me, message, members)
        cohort = cohort_digest(message.cohort, members)
        shares = self._open_boxes(keys, number, message, members, prepared, cohort)
        header = sum_header(keys.session, number, message.index, message.question, cohort, message.prepared)
        own = answer(question, message.index, answerer)
        grid = grid_of(message.question, len(members))
        words = grid.encode(own.vector, own.clipped)
        self._mask(words, grid, keys, secrets, header, message, prepared, number)
        receipts = b"".join(
            mac(keys.pairs[j].receipt, receipt_data(number, self._me, j, header)) for j in prepared
        )
        pending = Pending(number, header, message.cohort, prepared, shares, secrets.answer)
        later = {r: kept for r, kept in keys.secrets.items() if r > number}
        keys = msgspec.structs.replace(
            keys, last=number, answered=keys.answered + 1, secrets=later, pending=pending
        )
        keys, preparations = self._prepare(keys, message.upcoming)
        return keys, Upload(words.tobytes(), receipts, preparations)

    def _open_boxes(
        self,
        keys: Fit,
        number: int,
        message: CollectRequest,
        members: tuple[int, ...],
        prepared: tuple[int, ...],
        cohort: bytes,
    ) -> bytes:
        """Open what each prepared neighbour gave this client to hold; this authenticates its mask key."""
        me, configuration, opened = self._me, self._agreement.configuration, []
        abscissa = members.index(me) + 1
        t = threshold(len(members) - 1, configuration.terms)
        for place, j in enumerate(prepared):
            mask_key = part(message.mask_keys, place, KEY_BYTES)
            seed_hash = part(message.seed_hashes, place, KEY_BYTES)
            data = box_binding(keys.session, number, j, me, t, abscissa, cohort, mask_key, seed_hash)
            if j not in keys.pairs:
                raise PolicyError(f"box:{j}")
            try:
                key = box_key(keys.pairs[j], keys.session, number, j, me)
                opened.append(unseal(key, part(message.boxes, place, BOX_BYTES), data))
            except CryptographyError:
                raise PolicyError(f"box:{j}") from None
        return b"".join(opened)

    def _mask(
        self,
        words: Words,
        grid: Grid,
        keys: Fit,
        secrets: Secrets,
        header: bytes,
        message: CollectRequest,
        prepared: tuple[int, ...],
        number: int,
    ) -> None:
        masker = Masker(grid)
        masker.add(words, self_mask_key(secrets.seed, keys.session, number, self._me, header))
        own = parsed(secrets.mask)
        for place, j in enumerate(prepared):
            theirs = part(message.mask_keys, place, KEY_BYTES)
            try:
                key = pair_mask_key(own, theirs, keys.session, number, self._me, j, header)
            except CryptographyError:
                raise PolicyError(f"box:{j}") from None
            (masker.add if self._me < j else masker.subtract)(words, key)

    def _unmask(self, keys: Fit, number: int, message: UnmaskRequest) -> tuple[Fit, Message]:
        """Stage B: for each prepared neighbour a share of one secret, never of two."""
        pending = checks.check_pending(keys, number)
        living, dead = checks.check_stories(self._agreement, self._me, pending, message)
        good = checks.check_receipts(keys, pending, self._me, living, message.receipts)
        if len(good) < self._agreement.threshold(self._me, pending.cohort):
            raise PolicyError("receipts")
        seeds = b"".join(share_of(pending, j, 0) for j in good)
        masks = b"".join(share_of(pending, j, 1) for j in dead)
        lock = expand(pending.answer, bound("lock", keys.session, number, self._me, pending.header))
        left_out = tuple(j for j in living if j not in good)
        story = lock_binding(pending.header, self._me, message.dead, left_out)
        keys, preparations = self._prepare(msgspec.structs.replace(keys, pending=None), message.upcoming)
        answers = b"".join(share_of(pending, j, 2) for j in good)
        return keys, Unmasking(left_out, answers, seal(lock, seeds + masks, story), preparations)
