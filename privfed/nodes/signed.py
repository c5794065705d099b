"""Requests that the coordinator signed: what a client checks before anything else, whatever the secure sum.

A secure sum's own messages are authenticated in different ways, and those of `plain` not at all. So each
request travels inside a `SignedRequest`: whoever else reaches a client, and knows the agreement, gets a
refusal. One process of the coordinator numbers its requests; a client answers a number once, and the same
request again as its secure sum says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from privfed.core.agreed.agreement import MOST_METRICS, Agreement, Signer
from privfed.core.roles.engine import Answerer, ClientSide, CountsLosses, Exchange, ShowsLosses
from privfed.core.stored.encoding import Codec, Message, Refusal, StateCodec, decode, encode
from privfed.core.values.numbers import Number
from privfed.errors import ArgumentError, PolicyError, PrivFedError
from privfed.protocols.answering import refusal_code
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    bound,
    digest,
    equal,
    new_secret,
    verify,
)

UNSIGNED, SEEN, SESSIONS = "request:signature", "request:seen", "request:sessions"
"""Codes: not signed for this client by the agreed coordinator; an old number; too many sessions."""

MOST_SESSIONS = 256
"""Most processes of the coordinator, one after another, in one fit."""


class SignedRequest(Message, frozen=True):
    """One request of the secure sum (down).

    Args:
        session: of one process of the coordinator, at random.
        number: of its requests to all clients, from 1.
        metrics: which agreed metrics were asked so far, in order, by their place in the agreement.
        body: the secure sum's request.
        signature: Ed25519, over session, agreement, client, number, metrics and body.
    """

    session: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    number: Annotated[int, msgspec.Meta(ge=1, le=(1 << 32) - 1)]
    metrics: Annotated[tuple[Number, ...], msgspec.Meta(max_length=MOST_METRICS)]
    body: bytes
    signature: bytes

    def signed(self, agreement: Agreement, client: int) -> bytes:
        """Return what the coordinator signs of a request to a client."""
        where = (self.session, agreement.digest, client, self.number)
        return bound("request", *where, len(self.metrics), *self.metrics, self.body)


class Requests:
    """Signs the requests of one process of the coordinator.

    Args:
        agreement: of the fit.
        identity: the coordinator's.
    """

    def __init__(self, agreement: Agreement, identity: Signer) -> None:
        self._agreement, self._identity = agreement, identity
        self._session, self._number = new_secret(), 0

    def signed(self, exchange: Exchange) -> Exchange:
        """Return an exchange with its requests signed. To send it again, send what this returned."""
        self._number += 1
        signed = {i: self._signed(i, exchange.metrics, body) for i, body in exchange.requests.items()}
        return replace(exchange, requests=signed)

    def _signed(self, client: int, metrics: tuple[int, ...], body: bytes) -> bytes:
        unsigned = SignedRequest(self._session, self._number, metrics, body, b"")
        signature = self._identity.sign(unsigned.signed(self._agreement, client))
        return encode(msgspec.structs.replace(unsigned, signature=signature))


def read_request(agreement: Agreement, client: int, request: bytes) -> SignedRequest:
    """Return a request that the agreed coordinator signed for a client.

    Raises:
        MessageError: it is malformed.
        PolicyError: it is not signed so; the text is the code of the refusal.
    """
    message: SignedRequest = decode(request, SignedRequest, sender="the coordinator", stage="request")
    try:
        verify(agreement.registry.server, message.signature, message.signed(agreement, client))
    except CryptographyError:
        raise PolicyError(UNSIGNED) from None
    return message


class _Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last request of one process of the coordinator: its number, and the hash of its body."""

    session: bytes
    number: int
    body: bytes


_Kept = tuple[tuple[_Session, ...], bytes]

_CODEC: Codec[_Kept] = Codec(_Kept, "state of a client that is asked by signed requests", 2)


class SignedState(msgspec.Struct, frozen=True):
    """A client's state: which requests it has seen, and the state of its side of the secure sum."""

    sessions: tuple[_Session, ...]
    side: Any

    @property
    def losses_so_far(self) -> int:
        """How often clients were lost so far, where the secure sum counts that; else 0."""
        return self.side.losses_so_far if isinstance(self.side, CountsLosses) else 0

    @property
    def losses_shown(self) -> int:
        """How often in totals that were opened, likewise."""
        return self.side.losses_shown if isinstance(self.side, ShowsLosses) else 0


class _StateCodec:
    """How a `SignedState` is stored, given how the side's state is."""

    def __init__(self, side: StateCodec) -> None:
        self._side = side

    def to_bytes(self, value: SignedState) -> bytes:
        """Return a state as bytes."""
        return _CODEC.to_bytes((value.sessions, self._side.to_bytes(value.side)))

    def from_bytes(self, data: bytes) -> SignedState:
        """Return the state that `to_bytes` wrote; raises as `Codec.from_bytes`."""
        sessions, side = _CODEC.from_bytes(data)
        return SignedState(sessions, self._side.from_bytes(side))


class SignedSide:
    """A client's side of a secure sum, behind the check of the coordinator's signature.

    Args:
        side: what requests are for.
        agreement: what the client was given, and not by the coordinator.
        position: its number on the wire.
        follow: hears which agreed metrics were asked so far, where the client runs the program itself.

    Raises:
        ArgumentError: losses are bounded, and the side's state does not count them (`CountsLosses`), so that
            its party's journal would not either.
    """

    def __init__(
        self,
        side: ClientSide,
        agreement: Agreement,
        position: int,
        follow: Callable[[tuple[int, ...]], None] = lambda metrics: None,
    ) -> None:
        bounded = agreement.configuration.terms.losses is not None
        if bounded and not isinstance(side.initial(), CountsLosses):
            raise ArgumentError(
                f"losses are bounded, and the state of {type(side).__name__} does not count them: give it "
                "losses_so_far (privfed.core.roles.engine.CountsLosses), or leave losses out of the terms."
            )
        self._side, self._agreement, self._me, self._follow = side, agreement, position, follow

    @property
    def codec(self) -> _StateCodec:
        """How its state is stored."""
        return _StateCodec(self._side.codec)

    def initial(self) -> SignedState:
        """Return the state before the first request."""
        return SignedState((), self._side.initial())

    def step(self, state: SignedState, request: bytes, answerer: Answerer) -> tuple[SignedState, bytes]:
        """Answer a request that the coordinator signed; refuse any other, and leave the state as it is."""
        try:
            message = read_request(self._agreement, self._me, request)
            sessions = _after(state.sessions, message)
            self._follow(message.metrics)
        except PrivFedError as error:
            return state, encode(Refusal(refusal_code(error)))
        side, reply = self._side.step(state.side, message.body, answerer)
        # What changed nothing is not kept: nothing was given for it, and it may come in any number.
        return state if side is state.side else SignedState(sessions, side), reply


def _after(sessions: tuple[_Session, ...], message: SignedRequest) -> tuple[_Session, ...]:
    """Return the sessions after a request.

    Raises:
        PolicyError: its number was seen with another body, or is older; or there were too many processes.
    """
    last = _Session(message.session, message.number, digest("request", message.body))
    for place, one in enumerate(sessions):
        if one.session == last.session:
            if last.number < one.number or (last.number == one.number and not equal(last.body, one.body)):
                raise PolicyError(SEEN)
            return (*sessions[:place], last, *sessions[place + 1 :])
    if len(sessions) >= MOST_SESSIONS:
        raise PolicyError(SESSIONS)
    return (*sessions, last)
