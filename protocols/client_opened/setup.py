"""One client's side of the set-up of a group: pairwise keys, and a secret that only clients know.

1. Advertise: each client sends fresh keys of X25519 and ML-KEM-768, signed by its registered identity over
   role, position, fit and agreement; the coordinator relays the list.
2. Prepare: each client checks the list, and agrees on K_iS with the coordinator and on K_ij with those that
   it encapsulates to (`privfed.protocols.setup.hybrid`). The lowest on the list (the leader) encapsulates to
   all others, draws G, 32 bytes from the operating system's generator, and seals it for each under K_ij.
   This invitation, and what others encapsulated, travel with the first request after the set-up.

Reveals to the coordinator: who takes part. A single colluding client can tell it G and the scheme's own
secret, which travels with G.
"""

from __future__ import annotations

import msgspec

from privfed.core.agreed.agreement import Agreement, Signer
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.stored.encoding import encode
from privfed.errors import MessageError, PolicyError
from privfed.protocols.answering import admit_configuration
from privfed.protocols.client_opened.bindings import first_head, invitation_data, invitation_key
from privfed.protocols.client_opened.messages import Joined
from privfed.protocols.client_opened.scheme import Scheme
from privfed.protocols.client_opened.state import Group, State, closed
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    encapsulation_key,
    equal,
    new_secret,
    new_seed,
    public_key,
    seal,
    unseal,
)
from privfed.protocols.setup import losses
from privfed.protocols.setup.advertising import check_request
from privfed.protocols.setup.bindings import session_of
from privfed.protocols.setup.channel import Channel
from privfed.protocols.setup.hybrid import Keyring, agreed_on, channel_to, keyring
from privfed.protocols.setup.journal_counter import advertised, check_journals, hash_of
from privfed.protocols.setup.messages import (
    Advertisement,
    AdvertiseRequest,
    Capsule,
    Joining,
    RosterRequest,
)
from privfed.protocols.setup.roster import check_roster
from privfed.protocols.setup.rules import bitmap


class GroupSetup:
    """Sets up a group on one client's side.

    Args:
        position: the client's number on the wire.
        agreement: the configuration and registry, which the client did not get from the coordinator.
        identity: the client's long-term key.
        policy: decides what the client answers.
        scheme: says whether pairwise keys are needed, and which secret travels with G.
    """

    def __init__(
        self, position: int, agreement: Agreement, identity: Signer, policy: ClientPolicy, scheme: Scheme
    ) -> None:
        self._me, self._agreement, self._identity = position, agreement, identity
        self._policy, self._scheme = policy, scheme

    def advertise(self, state: State, message: AdvertiseRequest) -> tuple[State, Advertisement]:
        """Send a fresh key, signed over role, fit, agreement and where this client's journal stands.

        An earlier fit goes on until a list is joined that has this key. If the request comes again for the
        same fit, it gets the same key until that list has arrived, and a refusal after that.

        Raises:
            PolicyError: the agreement is another one, or the policy refuses it.
            MessageError: the fit is set up already.
        """
        agreement, again = self._agreement, equal(message.fit, state.fit)
        known = equal(state.agreement, agreement.digest)
        check_request(agreement, message, state.begun if known and not again else ())
        admit_configuration(agreement.configuration, self._policy)
        if again and not state.key:
            raise MessageError("a fit that is already set up", sender="the coordinator", stage="advertise")
        key, seed = (state.key, state.seed) if again else (new_secret(), new_seed())
        state = state if known else State()
        begun = state.begun if again else (*state.begun, message.fit)
        state = msgspec.structs.replace(
            state, fit=message.fit, key=key, seed=seed, agreement=agreement.digest, begun=begun
        )
        keys = public_key(key), encapsulation_key(seed)
        return state, advertised(self._identity, self._me, message.fit, agreement.digest, *keys)

    def join(self, state: State, message: RosterRequest, told: int = 0) -> tuple[State, bytes]:
        """Check the list of clients and derive the keys; the leader draws the group's secret.

        Args:
            state: of the client.
            message: the list.
            told: how many totals the client's own run has; none where the server opens them.

        Raises:
            PolicyError: the list fails a check; the text is the code of the refusal.
            MessageError: the client advertised no key.
        """
        if not state.key:
            raise MessageError("before an advertisement", sender="the coordinator", stage="prepare")
        me, whole = self._me, self._scheme.pairwise
        own = public_key(state.key), hash_of(encapsulation_key(state.seed))
        check_roster(self._agreement, me, *own, state.fit, message)
        check_journals(self._identity, self._agreement, me, message.clients)
        session = session_of(self._agreement, state.fit, message.clients)
        channel, ciphertext = channel_to(state.key, message, session, me)
        leader, n = message.clients[0].client, len(self._agreement.configuration.clients)
        ring = keyring(state.key, state.seed, me, message.clients, n, session, whole=whole)
        ring, pairs, capsules = agreed_on(ring, session, me, (), message.keys, ())
        listed = frozenset(one.client for one in message.clients)
        lost = bytes(1 - there for there in self._bitmap(listed))
        # Only now does an earlier fit end: the whole list and this client's key in it are the coordinator's.
        before, absent = closed(state), [i for i, away in enumerate(lost) if away]
        counted = losses.checked(losses.begun(before.losses, absent), self._agreement.configuration)
        group = Group(session, leader, channel, pairs, first_head(session), ring, lost=lost, losses=counted)
        joined = Joined(b"", b"", told)
        if leader == me:
            group, joined = self._lead(group, told)
        joined = msgspec.structs.replace(joined, capsules=capsules)
        sealed = Channel(channel, session, me).up(0, "prepare", joined)
        state = msgspec.structs.replace(before, key=b"", seed=b"", group=group)
        return state, encode(Joining(ciphertext, sealed))

    def _bitmap(self, chosen: frozenset[int]) -> bytes:
        return bitmap(tuple(range(len(self._agreement.configuration.clients))), chosen)

    def _lead(self, group: Group, told: int) -> tuple[Group, Joined]:
        secret, (extra, public) = new_secret(), self._scheme.draw()
        boxes = [
            seal(
                invitation_key(group.pairs[j], group.session),
                secret + extra,
                invitation_data(group.session, self._me, j),
            )
            for j in sorted(group.pairs)
        ]
        led = msgspec.structs.replace(group, secret=secret, extra=extra)
        return led, Joined(b"".join(boxes), public, told)

    def accept(self, group: Group, invitation: bytes, capsules: tuple[Capsule, ...]) -> Group:
        """Return the group with the leader's secret and keys shared with all; only the first request counts.

        Raises:
            PolicyError: the invitation is not from the leader for this client in this session.
        """
        if not group.ring.seed or not (group.secret or invitation):
            return group
        _, new, _ = agreed_on(group.ring, group.session, self._me, group.pairs, (), capsules)
        # What agrees on keys goes, whoever was lost before: nobody joins later.
        group = msgspec.structs.replace(group, pairs=group.pairs | new, ring=Keyring())
        if group.secret:
            return group
        if group.leader not in group.pairs:
            raise PolicyError("invitation")
        key = invitation_key(group.pairs[group.leader], group.session)
        data = invitation_data(group.session, group.leader, self._me)
        try:
            opened = unseal(key, invitation, data)
        except CryptographyError:
            raise PolicyError("invitation") from None
        if len(opened) < KEY_BYTES:
            raise PolicyError("invitation")
        return msgspec.structs.replace(group, secret=opened[:KEY_BYTES], extra=opened[KEY_BYTES:])
