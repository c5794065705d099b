"""The coordinator of masked sums: set-up, then two exchanges a sum.

It relays, waits, rebuilds what the living agree to open, and checks that the masks cancelled.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from privfed.core.conversation import Total
from privfed.core.engine import Exchange, gather
from privfed.core.messages import Refusal, decode, encode
from privfed.core.question import Question
from privfed.core.secure_sum import Steps
from privfed.errors import IntegrityError, MessageError, NotEnoughClientsError, RefusedError
from privfed.protocols.fixed_point import grid_of
from privfed.protocols.masking.bindings import session_of
from privfed.protocols.masking.channel import Channel
from privfed.protocols.masking.client import MAX_PREPARED
from privfed.protocols.masking.flight import Flight
from privfed.protocols.masking.keys import (
    SERVER,
    CryptographyError,
    Identity,
    agree,
    bound,
    check_public_key,
    extract,
    new_secret,
    public_key,
    verify,
)
from privfed.protocols.masking.messages import (
    Advertisement,
    AdvertiseRequest,
    Envelope,
    Listed,
    Preparation,
    Prepared,
    PrepareRequest,
    RosterRequest,
    Slot,
    Unmasking,
    Upload,
)
from privfed.protocols.masking.rules import Agreement, check_cohort, needed_to_open
from privfed.protocols.masking.state import BOX_BYTES


@dataclass
class _Coming:
    """A sum to come: its cohort, and the preparations that have arrived."""

    cohort: int
    preparations: dict[int, Preparation] = field(default_factory=dict)


class MaskedSession:
    """The coordinator of one fit.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
    """

    def __init__(self, agreement: Agreement, identity: Identity) -> None:
        self._agreement, self._identity = agreement, identity
        self._channels: dict[int, Channel] = {}
        self._session = b""
        self._rejected: dict[int, str] = {}
        self._highest = 0
        self._longest = 1 << 20
        self._coming: dict[int, _Coming] = {}
        self._joined: set[int] = set()
        self._accusers: dict[int, set[int]] = {}
        self._accused_last: set[int] = set()

    # Set-up.

    def open(self) -> Steps[None]:
        """Advertise, then relay the list; the first cohorts prepare in the same exchange as they get it."""
        everyone, fit, key = range(len(self._agreement.configuration.clients)), new_secret(), new_secret()
        request = encode(AdvertiseRequest(fit, self._agreement.digest))
        replies = yield Exchange("advertise", 0, dict.fromkeys(everyone, request))
        read, self._rejected = gather(replies, everyone, lambda i, data: self._advertised(i, data, fit))
        roster = {i: reply for i, reply in read.items() if isinstance(reply, Listed)}
        refused = {i: reply.code for i, reply in read.items() if isinstance(reply, Refusal)}
        needed = needed_to_open(len(everyone), self._agreement.configuration.terms)
        self._require(roster, everyone, needed, "advertise", refused)
        listed = tuple(roster[i] for i in sorted(roster))
        self._session = session_of(self._agreement, fit, listed)
        for one in listed:
            shared = extract(agree(key, one.key), bound("channel", self._session, one.client))
            self._channels[one.client] = Channel(shared, self._session, one.client)
        self._roster = RosterRequest(listed, public_key(key), self._sign(fit, public_key(key)), ())

    def _sign(self, fit: bytes, key: bytes) -> bytes:
        return self._identity.sign(bound("advertise", SERVER, fit, self._agreement.digest, key))

    def _advertised(self, client: int, data: bytes, fit: bytes) -> Listed | Refusal:
        name = self._name(client)
        reply = decode(data, Advertisement | Refusal, sender=name, stage="advertise")
        if isinstance(reply, Refusal):
            return reply
        signed = bound("advertise", client, fit, self._agreement.digest, reply.key)
        try:
            verify(self._agreement.registry.clients[client], reply.signature, signed)
            check_public_key(reply.key)
        except CryptographyError as error:
            raise MessageError(str(error), sender=name, stage="advertise") from None
        return Listed(client, reply.key, reply.signature)

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
        self._coming.clear()
        codes = {self._name(i): code for i, code in refused.items()}
        if codes and n_left + len(codes) >= needed:
            raise RefusedError(codes, stage=stage)
        raise NotEnoughClientsError(
            missing=[self._name(i) for i in missing], left=n_left, needed=needed, stage=stage
        )

    # Preparing.

    def _slots(self, labels: Iterable[int], above: int) -> tuple[Slot, ...]:
        """Give each cohort that may come next a number above `above`, unless it has one."""
        have = {coming.cohort for number, coming in self._coming.items() if number > above}
        for label in dict.fromkeys(labels):
            if label not in have and len(have) < MAX_PREPARED - 1:
                have.add(label)
                self._coming[self._next_number()] = _Coming(label)
        return tuple(Slot(number, coming.cohort) for number, coming in self._coming.items() if number > above)

    def _next_number(self) -> int:
        """Return a number that no sum had: clients keep a number to the cohort that it was prepared for."""
        self._highest += 1
        return self._highest

    def _lacking(self, client: int, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        """Return the sums to come that a client is in and has not prepared for."""
        return tuple(
            slot
            for slot in slots
            if client not in self._coming[slot.number].preparations
            and client in self._agreement.configuration.cohort(slot.cohort)
        )

    def _ask_to_prepare(
        self, number: int, slots: tuple[Slot, ...], others: Container[int]
    ) -> dict[int, bytes]:
        """Return requests to all who lack a preparation and are not asked for more in this exchange."""
        requests = {}
        for client, channel in self._channels.items():
            lacking = self._lacking(client, slots)
            if client in others:
                continue
            if client not in self._joined:
                requests[client] = encode(msgspec.structs.replace(self._roster, upcoming=lacking))
            elif lacking:
                requests[client] = channel.down(number, "prepare", PrepareRequest(lacking))
        return requests

    def _keep(self, client: int, preparations: tuple[Preparation, ...], stage: str) -> None:
        for one in preparations:
            coming = self._coming.get(one.number)
            members = self._agreement.configuration.cohort(one.cohort)
            boxes = BOX_BYTES * (len(members) - 1)
            if (
                coming is None
                or coming.cohort != one.cohort
                or client not in members
                or len(one.boxes) != boxes
            ):
                raise MessageError(
                    "a preparation that was not asked for", sender=self._name(client), stage=stage
                )
            try:
                check_public_key(one.mask_key)
            except CryptographyError as error:
                raise MessageError(str(error), sender=self._name(client), stage=stage) from None
        for one in preparations:
            self._coming[one.number].preparations.setdefault(client, one)

    def _prepared(self, client: int, data: bytes, number: int) -> None:
        reply = self._opened(client, data, number, "prepare", Prepared)
        if isinstance(reply, Prepared):
            self._joined.add(client)
            self._keep(client, reply.preparations, "prepare")

    def _opened(self, client: int, data: bytes, number: int, stage: str, expected: Any) -> Any:
        """Return the reply in an envelope of this very sum and stage."""
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
        configuration = self._agreement.configuration
        members = configuration.cohort(cohort)
        check_cohort(len(members), configuration.terms)
        data, needed = question.to_bytes(), needed_to_open(len(members), configuration.terms)
        grid_of(data, len(members))
        flight = yield from self._collected(data, index, cohort, upcoming)
        if len(flight.living) < needed and self._accused_last:
            # Nothing was unmasked: once more, without those whose boxes failed.
            self._rejected = flight.rejected
            flight = yield from self._collected(data, index, cohort, upcoming)
        self._require(flight.living, members, needed, "collect", flight.refused)
        yield from self._unmask(flight, self._slots((), flight.number))
        self._require(flight.answers, members, needed, "unmask", flight.refused)
        return self._total(question, flight)

    def _collected(
        self, question: bytes, index: int, cohort: int, upcoming: tuple[int, ...]
    ) -> Steps[Flight]:
        """Collect uploads under a fresh number; return the sum in flight."""
        members = self._agreement.configuration.cohort(cohort)
        needed, excluded = needed_to_open(len(members), self._agreement.configuration.terms), self._excluded()
        number = yield from self._number(cohort, needed, excluded)
        preparations = self._coming.pop(number).preparations
        for closed in [r for r in self._coming if r < number]:
            del self._coming[closed]
        prepared = tuple(i for i in members if i in preparations and i not in excluded)
        self._require(prepared, members, needed, "prepare", {})
        grid = grid_of(question, len(members))
        flight = Flight(
            self._agreement, self._session, number, index, question, cohort, prepared, preparations, grid
        )
        flight.dropped = {
            i: "prepare" if i in self._channels else "advertise" for i in members if i not in prepared
        }
        flight.rejected, self._rejected = self._rejected, {}
        # A sum of a few may carry key material for a sum of all.
        everyone = len(self._agreement.configuration.clients)
        self._longest = 8 * grid.size + 256 * everyone * (MAX_PREPARED + 1) + 4096
        yield from self._collect(flight, self._slots(upcoming or (cohort,), number))
        return flight

    def _number(self, cohort: int, needed: int, excluded: set[int]) -> Steps[int]:
        """Return the number of a sum that the cohort is prepared for, with an exchange if too few are."""
        known = sorted(r for r, coming in self._coming.items() if coming.cohort == cohort)
        if known and len(self._coming[known[0]].preparations.keys() - excluded) >= needed:
            return known[0]
        number = known[0] if known else self._next_number()
        self._coming.setdefault(number, _Coming(cohort))
        slots = (Slot(number, cohort),)
        requests = self._ask_to_prepare(number, slots, ())
        replies = yield Exchange("prepare", number, requests)
        stage_number = {i: 0 if i not in self._joined else number for i in requests}
        _, rejected = gather(replies, requests, lambda i, data: self._prepared(i, data, stage_number[i]))
        self._rejected |= rejected
        return number

    def _excluded(self) -> set[int]:
        """Return clients whose boxes or receipts failed.

        Above c accusers for good; else, where boxes failed, for the sum after: so many may be lying.
        """
        many = self._agreement.configuration.terms.colluders
        excluded = {j for j, accusers in self._accusers.items() if len(accusers) > many} | self._accused_last
        self._accused_last = set()
        return excluded

    def _collect(self, flight: Flight, slots: tuple[Slot, ...]) -> Steps[None]:
        requests = {
            i: self._channels[i].down(
                flight.number, "collect", flight.collect_request(i, self._lacking(i, slots))
            )
            for i in flight.prepared
        }
        requests |= self._ask_to_prepare(flight.number, slots, requests)
        joined = set(self._joined)
        replies = yield Exchange("collect", flight.number, requests)

        def read(client: int, data: bytes) -> Upload | Refusal | None:
            if client not in flight.prepared:
                self._prepared(client, data, flight.number if client in joined else 0)
                return None
            reply: Upload | Refusal = self._opened(client, data, flight.number, "collect", Upload)
            if isinstance(reply, Upload):
                self._keep(client, reply.preparations, "collect")
                flight.add(client, reply, self._name(client))
            return reply

        read_replies, rejected = gather(replies, requests, read)
        flight.note(read_replies, rejected, "collect")
        codes = {f"box:{j}": j for j in flight.prepared}
        for accuser, code in flight.refused.items():
            if code in codes:
                self._accusers.setdefault(codes[code], set()).add(accuser)
                self._accused_last.add(codes[code])

    def _unmask(self, flight: Flight, slots: tuple[Slot, ...]) -> Steps[None]:
        requests = {
            i: self._channels[i].down(
                flight.number, "unmask", flight.unmask_request(i, self._lacking(i, slots))
            )
            for i in flight.living
        }
        requests |= self._ask_to_prepare(flight.number, slots, requests)
        joined = set(self._joined)
        replies = yield Exchange("unmask", flight.number, requests)

        def read(client: int, data: bytes) -> Unmasking | Refusal | None:
            if client not in flight.receipts:
                self._prepared(client, data, flight.number if client in joined else 0)
                return None
            reply: Unmasking | Refusal = self._opened(client, data, flight.number, "unmask", Unmasking)
            if isinstance(reply, Unmasking):
                self._keep(client, reply.preparations, "unmask")
                flight.answer(client, reply, self._name(client))
            return reply

        read_replies, rejected = gather(replies, requests, read)
        flight.note(read_replies, rejected, "unmask")
        for accuser, answer in flight.answers.items():
            for j in answer.left_out:
                self._accusers.setdefault(j, set()).add(accuser)

    def _total(self, question: Question, flight: Flight) -> Total:
        vector, clipped, contributors = flight.grid.decode(flight.opened())
        if contributors != len(flight.living):
            raise IntegrityError(
                f"sum {flight.number} of {len(flight.living)} clients counts {contributors}: masks did not "
                "cancel, or a client sent a wrong count; nothing is released."
            )
        return Total(
            statistics=question.spec.unflatten(vector),
            contributors=flight.living,
            dropped=flight.dropped,
            clipped=clipped,
            rejected=flight.rejected,
        )
