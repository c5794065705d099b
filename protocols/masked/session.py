"""The coordinator of masked sums: a set-up, then two exchanges for each sum.

It relays messages, reconstructs the secrets that the living clients agree to open, and checks that the
masks cancelled.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.asking.question import Question
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import Exchange, gather
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.messages import Message, Refusal, decode, encode
from privfed.errors import IntegrityError, MessageError, NotEnoughClientsError, RefusedError
from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import agree, bound, extract, new_secret, public_key
from privfed.protocols.crypto.shamir import MAX_HOLDERS
from privfed.protocols.masked.announced import Announced
from privfed.protocols.masked.client import MAX_PREPARED
from privfed.protocols.masked.delivery import Delivery
from privfed.protocols.masked.messages import (
    CollectRequest,
    Leading,
    LeadRequest,
    Prepared,
    PrepareRequest,
    Relayed,
    Unmasking,
    Upload,
)
from privfed.protocols.masked.round_state import RoundState
from privfed.protocols.setup.advertising import advertise_request, read_advertisement, signed_roster
from privfed.protocols.setup.bindings import session_of
from privfed.protocols.setup.channel import Channel
from privfed.protocols.setup.losses import REFUSED
from privfed.protocols.setup.messages import Envelope, Listed, Slot
from privfed.protocols.setup.rules import Rules, check_cohort, needed_to_open
from privfed.protocols.setup.sizes import sizes


class MaskedSession:
    """Coordinates the masked sums of one fit.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
    """

    def __init__(self, agreement: Agreement, identity: Signer) -> None:
        self._agreement, self._identity = Rules.of(agreement), identity
        self._channels: dict[int, Channel] = {}
        self._session = b""
        self._rejected: dict[int, str] = {}
        self._longest = 1 << 20
        self._announced = Announced(self._agreement)
        self._joined: set[int] = set()
        self._unprepared: dict[int, str] = {}
        self._accusers: dict[int, set[int]] = {}
        self._accused_last: set[int] = set()
        self._delivery: Delivery | None = None
        self._earlier: list[Relayed] = []

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

    # Set-up.

    def open(self) -> Steps[None]:
        """Collect keys, then relay the list of clients; the first cohorts prepare in that same exchange."""
        everyone, fit, key = range(len(self._agreement.configuration.clients)), new_secret(), new_secret()
        request = encode(advertise_request(self._agreement, self._identity, fit))
        replies = yield Exchange("advertise", 0, dict.fromkeys(everyone, request))
        read, self._rejected = gather(
            replies,
            everyone,
            lambda i, data: read_advertisement(self._agreement, i, self._name(i), data, fit),
        )
        roster = {i: reply for i, reply in read.items() if isinstance(reply, Listed)}
        refused = {i: reply.code for i, reply in read.items() if isinstance(reply, Refusal)}
        needed = needed_to_open(len(everyone), self._agreement.configuration.terms)
        self._require(roster, everyone, needed, "advertise", refused)
        listed = tuple(roster[i] for i in sorted(roster))
        self._session = session_of(self._agreement, fit, listed)
        for one in listed:
            shared = extract(agree(key, one.key), bound("channel", self._session, one.client))
            self._channels[one.client] = Channel(shared, self._session, one.client)
        if self._agreement.configuration.terms.verified:
            self._delivery = Delivery(self._agreement, self._session, tuple(sorted(roster)), self._earlier)
            self._longest += 128 * len(everyone)
        self._roster = partial(signed_roster, self._identity, self._agreement, fit, public_key(key), listed)

    def _name(self, client: int) -> str:
        clients = self._agreement.configuration.clients
        return clients[client] if 0 <= client < len(clients) else f"client {client}"

    def _require(
        self,
        left: Container[int],
        members: Iterable[int],
        needed: int,
        stage: str,
        refused: Mapping[int, str],
    ) -> None:
        """Raise unless enough of the members are left."""
        missing = [i for i in members if i not in left]
        n_left = sum(1 for i in members if i in left)
        if n_left >= needed:
            return
        self._fail(missing, n_left, needed, stage, refused)

    def _fail(
        self, missing: list[int], n_left: int, needed: int, stage: str, refused: Mapping[int, str]
    ) -> NoReturn:
        self._announced.coming.clear()
        codes = {self._name(i): code for i, code in refused.items()}
        if codes and n_left + len(codes) >= needed:
            most = self._agreement.configuration.most_losses
            raise RefusedError(codes, stage=stage, note=f" (losses={most})" * (REFUSED in codes.values()))
        raise NotEnoughClientsError(
            missing=[self._name(i) for i in missing], left=n_left, needed=needed, stage=stage
        )

    # Preparing.

    def _ask_to_prepare(
        self, number: int, slots: tuple[Slot, ...], others: Container[int]
    ) -> dict[int, bytes]:
        """Return requests to clients that lack a preparation, but for `others`, who get another request."""
        requests: dict[int, bytes] = {}
        rosters: dict[tuple[Slot, ...], bytes] = {}
        for client, channel in self._channels.items():
            if client in others:
                continue
            lacking = self._announced.lacking(client, slots)
            if client not in self._joined:
                # The list may be long and go to many: clients that prepare the same sums share one copy.
                if lacking not in rosters:
                    rosters[lacking] = encode(self._roster(lacking))
                requests[client] = rosters[lacking]
            elif lacking:
                requests[client] = channel.down(number, "prepare", PrepareRequest(lacking))
        return requests

    def _prepared(self, client: int, data: bytes, number: int) -> None:
        expected: Any = Prepared if self._delivery is None else Prepared | Leading
        reply = self._opened(client, data, number, "prepare", expected)
        if isinstance(reply, Leading) and self._delivery is not None:
            self._delivery.lead(client, reply.boxes, self._name(client))
            reply = reply.prepared
        if isinstance(reply, Refusal):
            self._unprepared[client] = reply.code
        if isinstance(reply, Prepared):
            self._joined.add(client)
            self._unprepared.pop(client, None)
            self._announced.keep(client, reply.preparations, self._name(client), "prepare")

    def _opened(self, client: int, data: bytes, number: int, stage: str, expected: Any) -> Any:
        """Open an envelope and return the reply, which must belong to this sum and stage."""
        name = self._name(client)
        if len(data) > self._longest:
            raise MessageError(
                f"{len(data)} bytes, expected at most {self._longest}", sender=name, stage=stage
            )
        envelope = decode(data, Envelope | Refusal, sender=name, stage=stage)
        if isinstance(envelope, Refusal):
            return envelope
        if (envelope.number, envelope.stage) != (number, stage):
            reason = f"is of sum {envelope.number}, stage {envelope.stage!r}; expected was sum {number}"
            raise MessageError(reason, sender=name, stage=stage)
        return self._channels[client].open_up(envelope, expected | Refusal, name)

    # A sum.

    def sum(self, question: Question, index: int, cohort: int, upcoming: tuple[int, ...]) -> Steps[Total]:
        """Open a cohort's total: collect, then unmask."""
        members, terms = self._agreement.cohort(cohort).members, self._agreement.configuration.terms
        check_cohort(len(members), terms)
        data, needed = question.to_bytes(), needed_to_open(len(members), terms)
        grid_of(data, len(members))
        state = yield from self._collected(data, index, cohort, upcoming)
        few = len(state.living) < needed or state.is_cut_off(state.living)
        if few and self._accused_last:
            # Nothing was unmasked: ask once more, without the clients whose boxes failed.
            self._rejected = state.rejected
            state = yield from self._collected(data, index, cohort, upcoming)
        self._require_neighbours(state, state.living, members, "collect")
        yield from self._unmask(state, self._announced.slots((), state.number))
        self._require_neighbours(state, state.answers, members, "unmask")
        return self._total(question, state)

    def _require_neighbours(
        self, state: RoundState, left: Container[int], members: tuple[int, ...], stage: str
    ) -> None:
        """Raise unless enough clients are left, and enough neighbours of each whose secrets are needed."""
        terms = self._agreement.configuration.terms
        self._require(left, members, needed_to_open(len(members), terms), stage, state.refused)
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
        needed, excluded = needed_to_open(len(members), self._agreement.configuration.terms), self._excluded()
        number = yield from self._number(cohort, needed, excluded)
        arrived = self._announced.taken(number)
        preparations = {i: one for i, one in arrived.items() if i not in excluded}
        self._require(preparations, members, needed, "prepare", self._unprepared)
        grid, head = grid_of(question, len(members)), b"" if self._delivery is None else self._delivery.head
        state = RoundState(
            self._agreement, self._session, number, index, question, cohort, preparations, grid, head
        )
        self._require(set(state.prepared), members, needed, "prepare", self._unprepared)
        yield from self._led(number)
        state.dropped = {
            i: "prepare" if i in self._channels else "advertise"
            for i in sorted(set(members) - set(state.prepared))
        }
        state.rejected, self._rejected = self._rejected, {}
        # Replies in a small sum may carry preparations for a large one.
        self._longest = 8 * grid.size + 256 * MAX_HOLDERS * (MAX_PREPARED + 1) + 4096
        yield from self._collect(state, self._announced.slots(upcoming or (cohort,), number))
        return state

    def _number(self, cohort: int, needed: int, excluded: set[int]) -> Steps[int]:
        """Return the number of a sum that the cohort is prepared for, after an exchange if too few are."""
        number = self._announced.number_of(cohort)
        if len(self._announced.coming[number].preparations.keys() - excluded) >= needed:
            return number
        slots = (Slot(number, cohort),)
        requests = self._ask_to_prepare(number, slots, ())
        replies = yield Exchange("prepare", number, requests)
        stage_number = {i: 0 if i not in self._joined else number for i in requests}
        _, rejected = gather(replies, requests, lambda i, data: self._prepared(i, data, stage_number[i]))
        self._rejected |= rejected
        return number

    def _led(self, number: int) -> Steps[None]:
        """See to it that a client drew the clients' secret: another is asked where the lowest was lost.

        Raises:
            NotEnoughClientsError: none did.
        """
        for client in sorted(self._joined):
            if self._delivery is None or self._delivery.leader is not None:
                return
            request = self._channels[client].down(number, "prepare", LeadRequest(()))
            replies = yield Exchange("prepare", number, {client: request})
            read = lambda i, data: self._prepared(i, data, number)  # noqa: E731
            self._rejected |= gather(replies, (client,), read)[1]
        if self._delivery is not None and self._delivery.leader is None:
            self._require((), self._channels, 1, "prepare", self._unprepared)

    def _excluded(self) -> set[int]:
        """Return the clients to leave out of the next sum, because others report bad boxes or receipts.

        A client that more than c others accuse stays out for good, as at least one accuser is honest. With
        fewer accusers, all of whom may be lying, it stays out of one sum, and only for a bad box.
        """
        terms = self._agreement.configuration.terms
        many = sizes(len(self._agreement.configuration.clients), terms).colluders
        excluded = {j for j, accusers in self._accusers.items() if len(accusers) > many} | self._accused_last
        self._accused_last = set()
        return excluded

    def _collect_request(self, state: RoundState, client: int, slots: tuple[Slot, ...]) -> bytes:
        request: Message = state.collect_request(client, self._announced.lacking(client, slots))
        if self._delivery is not None and isinstance(request, CollectRequest):
            request = self._delivery.request(client, request)
        return self._channels[client].down(state.number, "collect", request)

    def _collect(self, state: RoundState, slots: tuple[Slot, ...]) -> Steps[None]:
        requests = {i: self._collect_request(state, i, slots) for i in state.prepared}
        requests |= self._ask_to_prepare(state.number, slots, requests)
        joined, prepared = set(self._joined), set(state.prepared)
        # Clients that only prepare a later sum are not asked.
        replies = yield Exchange("collect", state.number, requests, tuple(sorted(prepared)))

        def read(client: int, data: bytes) -> Refusal | None:
            if client not in prepared:
                self._prepared(client, data, state.number if client in joined else 0)
                return None
            reply: Upload | Refusal = self._opened(client, data, state.number, "collect", Upload)
            if isinstance(reply, Refusal):
                return reply
            self._announced.keep(client, reply.preparations, self._name(client), "collect")
            state.add(client, reply, self._name(client))
            if self._delivery is not None:
                self._delivery.heard(client)
            # The upload is in the total now; keeping it would keep its decrypted bytes in memory.
            return None

        read_replies, rejected = gather(replies, requests, read)
        state.note(read_replies, rejected, "collect")
        state.close_uploads()
        codes = {f"box:{j}": j for j in state.prepared}
        for accuser, code in state.refused.items():
            if code in codes:
                self._accusers.setdefault(codes[code], set()).add(accuser)
                self._accused_last.add(codes[code])

    def _unmask(self, state: RoundState, slots: tuple[Slot, ...]) -> Steps[None]:
        requests = {
            i: self._channels[i].down(
                state.number, "unmask", state.unmask_request(i, self._announced.lacking(i, slots))
            )
            for i in state.living
        }
        requests |= self._ask_to_prepare(state.number, slots, requests)
        joined = set(self._joined)
        replies = yield Exchange("unmask", state.number, requests)

        def read(client: int, data: bytes) -> Unmasking | Refusal | None:
            if client not in state.living:
                self._prepared(client, data, state.number if client in joined else 0)
                return None
            reply: Unmasking | Refusal = self._opened(client, data, state.number, "unmask", Unmasking)
            if isinstance(reply, Unmasking):
                self._announced.keep(client, reply.preparations, self._name(client), "unmask")
                state.answer(client, reply, self._name(client))
            return reply

        read_replies, rejected = gather(replies, requests, read)
        state.note(read_replies, rejected, "unmask")
        for accuser, answer in state.answers.items():
            for j in answer.left_out:
                self._accusers.setdefault(j, set()).add(accuser)

    def close(self) -> Steps[None]:
        """Do nothing: the server has every total."""
        yield from ()

    def _total(self, question: Question, state: RoundState) -> Total:
        words = state.opened()
        vector, clipped, contributors = state.grid.decode(words[: state.grid.size])
        if contributors != len(state.living):
            raise IntegrityError(
                f"sum {state.number} of {len(state.living)} clients counts {contributors}: masks did not "
                "cancel, or a client sent a wrong count; nothing is released. Masked answers do not show "
                "which client it was: ask again, or begin a fit without clients that you do not trust."
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
