"""What a client of sums that clients open remembers between messages. It serialises; it is never shown.

A stored state must not be restored from a copy: see `privfed.party.state`.
"""

from __future__ import annotations

import msgspec


class _Hidden(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class Group(_Hidden, frozen=True):
    """One client's part in a group that was set up.

    Args:
        session: hash of the agreement and the list of clients, 32 bytes.
        leader: position of the client that drew the secret: the lowest on the list.
        channel: key shared with the coordinator, 32 bytes.
        pairs: position -> key shared with that client, 32 bytes; all others of the list, or, where the
            scheme masks nothing in pairs, the leader alone (all others, for the leader).
        secret: the group's secret G, 32 bytes that the coordinator never sees; empty until it came.
        extra: what the scheme's own secret is (the key of CKKS); it travels beside G.
        head: the chain over all totals so far, 32 bytes.
        last: highest sum number that was answered; everything up to it is closed.
        pending: number of the sum that the client contributed to and whose total has not come; 0 for none.
        opened: index of the last opened sum, -1 before.
        repeats: how often a sum was asked again, or a client named lost between two sums.
        lost: one byte a client of the configuration: 1 for who is out of the fit.
    """

    session: bytes
    leader: int
    channel: bytes
    pairs: dict[int, bytes]
    head: bytes
    secret: bytes = b""
    extra: bytes = b""
    last: int = 0
    pending: int = 0
    opened: int = -1
    repeats: int = 0
    lost: bytes = b""


class State(_Hidden, frozen=True):
    """The state of a client.

    Args:
        fit: identifier of the fit that was advertised for, empty before.
        key: secret X25519 key of that fit, until the roster comes.
        agreement: what `answered` counts for.
        answered: how many sums of this agreement were answered, over all set-ups.
        slotted: how many of them showed unlinked contributions.
        repeats: what counted as repeats of sums in the set-ups that are closed.
        lost: who was out of the fit when the last set-up was closed, one byte a client; empty before.
        group: the keys of the fit, from the roster on.
        reply_to: hash of the last request that changed the state.
        reply: the reply to it; an identical request gets it again, byte for byte.
    """

    fit: bytes = b""
    key: bytes = b""
    agreement: bytes = b""
    answered: int = 0
    slotted: int = 0
    repeats: int = 0
    lost: bytes = b""
    group: Group | None = None
    reply_to: bytes = b""
    reply: bytes = b""


def closed(state: State) -> State:
    """Return the state without its group, whose keys are gone; what counts over all set-ups stays.

    A sum in flight counts as a repeat: the coordinator may have opened it with a colluder, and a new
    set-up may ask it again, of others.
    """
    group = state.group
    if group is None:
        return state
    repeats = state.repeats + group.repeats + bool(group.pending)
    lost = group.lost if group.last else state.lost
    return msgspec.structs.replace(state, group=None, repeats=repeats, lost=lost)


_decode = msgspec.msgpack.Decoder(State).decode
_encode = msgspec.msgpack.Encoder().encode


def state_to_bytes(state: State) -> bytes:
    """Return a state as bytes, for a store on the client's own disk."""
    return _encode(state)


def state_from_bytes(data: bytes) -> State:
    """Return the state that `state_to_bytes` wrote."""
    return _decode(data)
