"""The state that a client of masked sums keeps between messages. Its repr shows no secret.

A stored state must not be restored from a copy: see `privfed.party.state`.
"""

from __future__ import annotations

import msgspec

from privfed.core.stored.encoding import Codec
from privfed.protocols.masked.masked_messages import Preparation
from privfed.protocols.setup.ceilings import SECRET_BYTES as SECRET_BYTES
from privfed.protocols.setup.ceilings import box_bytes as box_bytes
from privfed.protocols.setup.hybrid import Hidden, Keyring
from privfed.protocols.setup.losses import Losses

SELF, RECOVERY, ANSWER = range(3)


MOST_PAST = 4
"""Most earlier set-ups whose totals a client can still check."""


class Pair(Hidden, frozen=True):
    """Holds what two clients derive for this fit.

    Args:
        chain: the chain key, which goes forward with each block.
        block: the first block that it is for.
        invitation: the key for the clients' secret of verified totals.
    """

    chain: bytes
    block: int
    invitation: bytes


class Block(Hidden, frozen=True):
    """Holds a client's part of a block of numbers; d neighbours, in the graph's order.

    Args:
        cohort: label of its cohort.
        own: its own b, e and a, by number.
        seeds: its secrets with all neighbours, by number: 32 bytes each.
        opening: the keys of boxes that have not come, 32 bytes a neighbour; zeros for those that have.
        opened: one byte a neighbour: whether its box has come.
        shares: what neighbours gave it to hold, by number: SECRET_BYTES each.
        sent: the preparation, until the coordinator shows that it has it.
    """

    cohort: int
    own: dict[int, bytes]
    seeds: dict[int, bytes]
    opening: bytes
    opened: bytes
    shares: dict[int, bytes]
    sent: Preparation | None

    def after(self, number: int) -> Block:
        """Return the block without anything of `number` and of those before."""
        own, seeds, shares = (
            {r: one for r, one in kept.items() if r > number} for kept in (self.own, self.seeds, self.shares)
        )
        return msgspec.structs.replace(self, own=own, seeds=seeds, shares=shares, sent=None)


class Proving(Hidden, frozen=True):
    """Holds what a client committed to and has not proven; it is erased before the proof leaves.

    Args:
        question: encoded, which gives the statement.
        challenge: the hash of the sigma that it will answer.
        digits: its answer, int64 as little-endian bytes.
        blind: the secret that all blinds and pads follow from, 32 bytes.
        root: the commitment.
    """

    question: bytes
    challenge: bytes
    digits: bytes
    blind: bytes
    root: bytes


class Pending(Hidden, frozen=True):
    """Holds a sum whose upload was sent and whose unmasking was not.

    Args:
        number: number of the sum.
        header: H, the hash that the sum's masks are bound to.
        cohort: label of its cohort.
        prepared: neighbours that were prepared, in the graph's order.
        shares: what each of them gave this client to hold, SECRET_BYTES each, in the same order.
        answer: the client's own answer key.
        receipts: what each of them sends if it masked under the same header, RECEIPT_BYTES each.
        index: index of the sum.
        participants: a bit for each member of the cohort, of those that were prepared.
        proving: what the client proves of its answer; None where it does not, or did.
    """

    number: int
    header: bytes
    cohort: int
    prepared: tuple[int, ...]
    shares: bytes
    answer: bytes
    receipts: bytes
    index: int = 0
    participants: bytes = b""
    proving: Proving | None = None


class DropoutReport(Hidden, frozen=True):
    """Holds what the server told a client of a sum that it helped to open.

    Args:
        number: number of the sum.
        survivors: a bit for each member of its cohort, of those that are in the sum, as it said.
    """

    number: int
    survivors: bytes


class Chain(Hidden, frozen=True):
    """Holds what a client of verified sums keeps of the totals so far.

    Args:
        secret: the clients' secret G, 32 bytes, from the first sum on that the client was asked for.
        drawn: the secret that this client drew as the leader; empty for others.
        head: head of the hash chain over all totals so far, 32 bytes.
        opened: index of the last of them, -1 before.
        number: its number, 0 before.
        reports: what the client was told of sums that it helped to open since the last total.
        rows: digest of contributors -> how many rows they hold, from sums that count all of them.
        session: the session of the set-up.
        past: the chains of earlier set-ups, whose last totals may not have come yet.
    """

    secret: bytes = b""
    drawn: bytes = b""
    head: bytes = b""
    opened: int = -1
    number: int = 0
    reports: tuple[DropoutReport, ...] = ()
    rows: dict[bytes, float] = msgspec.field(default_factory=dict)
    session: bytes = b""
    past: tuple[Chain, ...] = ()

    def passed(self) -> tuple[Chain, ...]:
        """Return what is kept of it and of earlier chains once its set-up is closed."""
        if not self.secret:
            return self.past
        return (*self.past, msgspec.structs.replace(self, drawn=b"", rows={}, past=()))[-MOST_PAST:]


class Fit(Hidden, frozen=True):
    """Holds the keys and counters of a fit after its set-up.

    Args:
        session: hash of the agreement and the list of clients.
        channel: shared key with the coordinator.
        pairs: shared keys with other clients of the list: all in a small fit, else the neighbours so far.
        ring: what further ones are agreed on with.
        joining: the reply to the list, until the coordinator shows that it has it.
        last: highest sum number that was answered; everything up to it is closed.
        answered: how many sums were answered.
        losses: the history of the sums so far, and how often clients were lost in it.
        fit: identifier of the fit, as the coordinator named it.
        signing: secret key that the client signs its messages of the fit with.
        blocks: what is prepared for sums to come, by block.
        prepared: highest block that was prepared.
        skipped: how many blocks below it were not.
        pending: the sum between its two exchanges.
        reply_to: hash of the last request that changed the state.
        reply: the reply to it; an identical request gets it again, byte for byte.
        chain: the totals so far, where totals are verified.
    """

    session: bytes
    channel: bytes
    pairs: dict[int, Pair]
    ring: Keyring = Keyring()
    joining: bytes = b""
    last: int = 0
    answered: int = 0
    losses: Losses = Losses()
    fit: bytes = b""
    signing: bytes = b""
    blocks: dict[int, Block] = msgspec.field(default_factory=dict)
    prepared: int = 0
    skipped: int = 0
    pending: Pending | None = None
    reply_to: bytes = b""
    reply: bytes = b""
    chain: Chain = Chain()


class State(Hidden, frozen=True):
    """Holds the whole state of a client.

    Args:
        fit: identifier of the last fit that was advertised for, empty before.
        key: secret X25519 key of that fit, until the roster comes.
        seed: seed of its ML-KEM-768 key, likewise.
        keys: the keys of the fit whose roster came last; an earlier one's until another is joined.
        agreement: digest of the agreement that `answered` counts for.
        answered: how many sums of this agreement were answered in earlier set-ups; a new set-up does
            not restart the count.
        losses: how often clients were lost in them.
        begun: number of the fit that was begun last; it ascends.
        past: where totals are verified, the chains of earlier set-ups.
    """

    fit: bytes = b""
    key: bytes = b""
    seed: bytes = b""
    keys: Fit | None = None
    agreement: bytes = b""
    answered: int = 0
    losses: Losses = Losses()
    begun: int = 0
    past: tuple[Chain, ...] = ()

    @property
    def losses_so_far(self) -> int:
        """How often clients were lost so far; a party's journal keeps it over all its fits."""
        return (self.losses if self.keys is None else self.keys.losses).over_fits


def closed(state: State) -> State:
    """Return the state without the keys of its fit; counts over all set-ups stay."""
    keys = state.keys
    if keys is None:
        return msgspec.structs.replace(state, fit=b"", key=b"", seed=b"")
    counts = {"answered": keys.answered, "losses": keys.losses, "begun": state.begun}
    return State(agreement=state.agreement, past=keys.chain.passed(), **counts)  # type: ignore[arg-type]


CODEC: Codec[State] = Codec(State, "state of a client of a masked sum", 8)
"""How a state is stored on the client's own disk."""
