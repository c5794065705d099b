"""The two sides of every set-up: the coordinator, which lists clients, and a client, which checks the list.

Masked sums and sums that clients open add what they do with the keys. The coordinator relays signed keys and
ciphertexts; it shares a key with each client, and learns no key that two clients share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from typing import Any, NoReturn

import msgspec

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.configuration import Terms
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.roles.engine import Exchange, gather
from privfed.core.roles.secure_sum import Steps
from privfed.core.stored.encoding import Codec, Refusal, encode
from privfed.errors import MessageError, NotEnoughClientsError, ProtocolError, RefusedError
from privfed.protocols.answering import admit_configuration
from privfed.protocols.crypto.keys import (
    APART,
    CryptographyError,
    Shared,
    encapsulation_key,
    equal,
    grown,
    new_secret,
    new_seed,
    public_key,
)
from privfed.protocols.setup import advertising, losses
from privfed.protocols.setup.ceilings import Ceiling
from privfed.protocols.setup.hybrid import Keyring, Pairing, key_from, key_to, keyring
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    AdvertiseRequest,
    Channel,
    Envelope,
    Joining,
    Listed,
    RosterRequest,
    WentBack,
    session_of,
)

STALE = "its journal is older than one that it showed before, as two statements that it signed show"
NO_KEY = "it or another says that they agreed on no key, and no evidence says who of the two lies"
"""Why a client is left out of a fit."""


class Coordinator:
    """Sets up a fit: it collects clients' keys, lists them, and opens a channel to each client that joins.

    Args:
        agreement: configuration and registry.
        identity: the coordinator's long-term key.
        fewest: how many clients of a cohort must be left for a sum to open, from its size and the terms.
    """

    def __init__(self, agreement: Agreement, identity: Signer, fewest: Callable[[int, Terms], int]) -> None:
        self._agreement, self._identity, self._fewest = agreement, identity, fewest
        self._everyone = range(len(agreement.configuration.clients))
        self._name = agreement.configuration.name_of
        self._ceiling = Ceiling.of(agreement.configuration)
        self._session = b""
        self._listed: dict[int, Listed] = {}
        self._channels: dict[int, Channel] = {}
        self._rejected: dict[int, str] = {}
        self._refused: dict[int, str] = {}
        self._out: dict[int, str] = {}

    def _advertised(self, fit: bytes, asked: Collection[int]) -> Steps[dict[int, Advertisement]]:
        """Ask clients for fresh keys, and list those that send some."""
        self._channels = {}
        request = encode(advertising.advertise_request(self._agreement, self._identity, fit))
        replies = yield Exchange("advertise", 0, dict.fromkeys(asked, request))
        read, rejected = gather(
            replies,
            asked,
            lambda i, data: advertising.read_advertisement(self._agreement, i, self._name(i), data, fit),
        )
        self._rejected |= rejected
        came = {i: one for i, one in sorted(read.items()) if isinstance(one, Advertisement)}
        self._refused = {i: one.code for i, one in read.items() if isinstance(one, Refusal)}
        self._require(came, self._everyone, "advertise", self._refused)
        self._listed = {i: advertising.listed(i, one) for i, one in came.items()}
        entries = tuple(self._listed.values())
        self._session = session_of(self._agreement, fit, entries)
        self._key, self._seed = new_secret(), grown(new_seed())
        own = public_key(self._key), encapsulation_key(self._seed)
        self._roster = advertising.signed_roster(self._identity, self._agreement, fit, *own, entries)
        self._pairing = Pairing({i: one.encapsulation for i, one in came.items()})
        return came

    def _joining(
        self,
        client: int,
        data: bytes,
        stage: str,
        expected: Any,
        check: Callable[[int, Any], None] = lambda client, reply: None,
    ) -> Any:
        """Read a reply to the list. A client whose reply passes `check` has a channel from then on."""
        name = self._name(client)
        joining = self._ceiling.read(data, Joining | WentBack | Refusal, sender=name, stage=stage)
        if isinstance(joining, Refusal):
            return joining
        if isinstance(joining, WentBack):
            advertising.check_went_back(self._agreement, joining, name, stage)
            self._out.setdefault(joining.client, STALE)
            return Refusal(f"journal:{joining.client}")
        own, public, session = (self._key, self._seed), self._listed[client].key, self._session
        try:
            reader = self._roster.key + self._roster.encapsulation
            key = key_from(*own, public, reader, joining.ciphertext, "channel", session, client)
        except CryptographyError as error:
            raise MessageError(str(error), sender=name, stage=stage) from None
        channel = Channel(key, session, client)
        reply = self._opened(client, joining.envelope, 0, stage, expected, channel)
        if not isinstance(reply, Refusal):
            check(client, reply)
            self._pairing.take(client, reply.capsules, name, stage)
            self._channels[client] = channel
        return reply

    def _opened(
        self, client: int, data: bytes, number: int, stage: str, expected: Any, channel: Channel | None = None
    ) -> Any:
        """Open an envelope and return the reply, which must belong to this sum and stage.

        Args:
            client: who sent it.
            data: the envelope.
            number: of the sum.
            stage: of the sum.
            expected: types that the reply may have, besides a refusal.
            channel: of a client that joins by this reply; None for one that has joined.
        """
        channel, name = channel or self._channels[client], self._name(client)
        envelope = self._ceiling.read(data, Envelope | Refusal, sender=name, stage=stage)
        if isinstance(envelope, Refusal):
            return envelope
        if (envelope.number, envelope.stage) != (number, stage):
            reason = f"is of sum {envelope.number}, stage {envelope.stage!r}; expected was sum {number}"
            raise MessageError(reason, sender=name, stage=stage)
        return self._ceiling.unsealed(channel.up, envelope, expected | Refusal, name)

    def _leave(self, edges: Iterable[tuple[int, int]], why: str) -> None:
        """Leave out both ends of each pair of which one lies; no client takes a second one with it."""
        for pair in edges:
            if not self._out.keys() & set(pair):
                self._out |= dict.fromkeys(pair, why)

    def _require(
        self, left: Container[int], members: Collection[int], stage: str, refused: Mapping[int, str]
    ) -> None:
        """Raise unless enough of the members are left."""
        missing = [i for i in members if i not in left]
        needed = self._fewest(len(members), self._agreement.configuration.terms)
        if len(members) - len(missing) < needed:
            self._fail(missing, len(members) - len(missing), needed, stage, refused)

    def _fail(
        self, missing: Iterable[int], n_left: int, needed: int, stage: str, refused: Mapping[int, str]
    ) -> NoReturn:
        codes = {self._name(i): code for i, code in refused.items()}
        error: ProtocolError = NotEnoughClientsError(
            missing=[self._name(i) for i in missing], left=n_left, needed=needed, stage=stage
        )
        if codes and n_left + len(codes) >= needed:
            most = self._agreement.configuration.most_losses
            note = f" (losses={most})" * (losses.REFUSED in codes.values())
            error = RefusedError(codes, stage=stage, note=note)
        for client, why in self._out.items():
            error.add_note(f"{self._name(client)} was left out of the fit: {why}.")
        raise error


class JoiningClient(ABC):
    """One client's side of a set-up. Its state has `fit`, `key`, `seed`, `agreement`, `begun` and `losses`.

    Args:
        position: the client's number on the wire.
        agreement: the configuration and registry, which the client did not get from the coordinator.
        identity: the client's long-term key.
        policy: decides what the client answers.

    Attributes:
        codec: how its state is stored.
        ceiling: what messages to it may cost.
    """

    codec: Codec[Any]

    def __init__(self, position: int, agreement: Agreement, identity: Signer, policy: ClientPolicy) -> None:
        self._me, self._agreement, self._identity, self._policy = position, agreement, identity, policy
        self.ceiling = Ceiling.of(agreement.configuration)

    def initial(self) -> Any:
        """Return the state before the first request."""
        return self.codec.kind()

    @abstractmethod
    def join(self, state: Any, message: RosterRequest) -> tuple[Any, bytes]:
        """Check the list of clients, and agree on keys; a subclass says with whom."""

    def set_up(self, state: Any, request: bytes) -> tuple[Any, bytes] | Envelope:
        """Answer a request of a set-up; return the envelope that any other request is.

        Raises:
            PolicyError: the client refuses; the text is the code of the refusal.
            MessageError: the request is malformed, or not one that may come now.
        """
        message: AdvertiseRequest | RosterRequest | Envelope = self.ceiling.read(
            request,
            AdvertiseRequest | RosterRequest | Envelope,
            sender="the coordinator",
            stage="request",
        )
        if isinstance(message, AdvertiseRequest):
            return self.advertise(state, message)
        try:
            return self.join(state, message) if isinstance(message, RosterRequest) else message
        except advertising.WentBackError as error:
            return state, encode(error.args[0])

    def advertise(self, state: Any, message: AdvertiseRequest) -> tuple[Any, bytes]:
        """Send a fresh key, signed over role, fit, agreement and where this client's journal stands.

        An earlier fit goes on until a list is joined that has this key. If the request comes again for the
        same fit, it gets the same key until that list has arrived, and a refusal after that.

        Raises:
            PolicyError: the agreement is another one, or the policy refuses it.
            MessageError: the fit is set up already.
        """
        agreement, again = self._agreement, equal(message.fit, state.fit)
        known = equal(state.agreement, agreement.digest)
        advertising.check_request(agreement, message, state.begun if known and not again else 0)
        admit_configuration(agreement.configuration, self._policy)
        if again and not state.key:
            raise MessageError("a fit that is already set up", sender="the coordinator", stage="advertise")
        key, seed = (state.key, state.seed) if again else (new_secret(), new_seed())
        before = state if known else type(state)()
        begun = max(before.begun, message.number)
        state = msgspec.structs.replace(
            before, fit=message.fit, key=key, seed=seed, agreement=agreement.digest, begun=begun
        )
        signing = advertising.signing_of(key, message.fit).public
        bound = agreement.digest, public_key(key), encapsulation_key(seed), signing
        return state, encode(advertising.advertised(self._identity, self._me, message.fit, *bound))

    def _checked_list(
        self,
        state: Any,
        before: losses.Losses,
        message: RosterRequest,
        stage: str,
        *,
        whole: bool,
        shared: Shared = APART,
    ) -> tuple[bytes, bytes, bytes, Keyring, losses.Losses]:
        """Check the list of clients; return what this client has with it.

        Args:
            state: of the client.
            before: how often clients were lost in closed set-ups.
            message: the list.
            stage: of this exchange.
            whole: whether keys are agreed on with everyone at the set-up.
            shared: in a simulation, what it would compute as others do.

        Returns:
            The session, the key of the channel to the coordinator, the ciphertext that brings it there, what
            keys with others are agreed on with, and the count of lost clients.

        Raises:
            PolicyError: the list fails a check; the text is the code of the refusal.
            MessageError: the client advertised no key.
        """
        if not state.key:
            raise MessageError("before an advertisement", sender="the coordinator", stage=stage)
        agreement, me, entries = self._agreement, self._me, message.clients
        signing = advertising.signing_of(state.key, state.fit).public
        own = public_key(state.key), advertising.hash_of(encapsulation_key(state.seed)), signing
        advertising.check_roster(agreement, me, *own, state.fit, message)
        gone = advertising.check_journals(self._identity, agreement, me, state.fit, entries)
        session, n = session_of(agreement, state.fit, entries), len(agreement.configuration.clients)
        key, ciphertext = key_to(state.key, message.key + message.encapsulation, "channel", session, me)
        absent = set(range(n)).difference(one.client for one in entries)
        counted = losses.checked(losses.begun(before, absent, gone), agreement.configuration)
        ring = keyring(state.key, state.seed, me, entries, n, session, whole=whole, shared=shared)
        return session, key, ciphertext, ring, counted
