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
from privfed.core.roles.secure_sum import Replay
from privfed.core.stored.encoding import encode
from privfed.errors import PolicyError
from privfed.protocols.client_opened.opened_messages import (
    Joined,
    first_head,
    invitation_data,
    invitation_key,
)
from privfed.protocols.client_opened.scheme import CODEC, Group, Scheme, State, closed
from privfed.protocols.crypto.keys import KEY_BYTES, CryptographyError, new_secret, seal, unseal
from privfed.protocols.setup.hybrid import Keyring, agreed_on
from privfed.protocols.setup.parties import JoiningClient
from privfed.protocols.setup.rules import bitmap
from privfed.protocols.setup.setup_messages import Capsule, Channel, Joining, RosterRequest


class GroupSetup(JoiningClient):
    """Sets up a group on one client's side.

    Args:
        position: the client's number on the wire.
        agreement: the configuration and registry, which the client did not get from the coordinator.
        identity: the client's long-term key.
        policy: decides what the client answers.
        scheme: says whether pairwise keys are needed, and which secret travels with G.
        replay: the client's own run, which knows how many totals it has; None where the server opens them.
    """

    codec = CODEC

    def __init__(
        self,
        position: int,
        agreement: Agreement,
        identity: Signer,
        policy: ClientPolicy,
        scheme: Scheme,
        replay: Replay | None = None,
    ) -> None:
        super().__init__(position, agreement, identity, policy)
        self._scheme, self._replay = scheme, replay

    def join(self, state: State, message: RosterRequest) -> tuple[State, bytes]:
        """Check the list of clients and derive the keys; the leader draws the group's secret.

        Raises:
            PolicyError: the list fails a check; the text is the code of the refusal.
            MessageError: the client advertised no key.
        """
        # An earlier fit ends only once the whole list, with this client's key, is the coordinator's.
        before, me = closed(state), self._me
        session, channel, ciphertext, ring, counted = self._checked_list(
            state, before.losses, message, "prepare", whole=self._scheme.pairwise
        )
        leader = message.clients[0].client
        ring, pairs, capsules = agreed_on(ring, session, me, (), message.keys, ())
        listed = frozenset(one.client for one in message.clients)
        lost = bytes(1 - there for there in self._bitmap(listed))
        group = Group(session, leader, channel, pairs, first_head(session), ring, lost=lost, losses=counted)
        group, boxes = self._lead(group) if leader == me else (group, b"")
        told = 0 if self._replay is None else self._replay.told
        joined = Joined(boxes, told, capsules)
        sealed = Channel(channel, session, me).up.seal(0, "prepare", joined)
        state = msgspec.structs.replace(before, key=b"", seed=b"", group=group)
        return state, encode(Joining(ciphertext, sealed))

    def _bitmap(self, chosen: frozenset[int]) -> bytes:
        return bitmap(tuple(range(len(self._agreement.configuration.clients))), chosen)

    def _lead(self, group: Group) -> tuple[Group, bytes]:
        """Draw the group's secret; return the group, and the secret sealed for each other client."""
        secret, extra = new_secret(), self._scheme.draw()
        boxes = [
            seal(
                invitation_key(group.pairs[j], group.session),
                secret + extra,
                invitation_data(group.session, self._me, j),
            )
            for j in sorted(group.pairs)
        ]
        return msgspec.structs.replace(group, secret=secret, extra=extra), b"".join(boxes)

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
