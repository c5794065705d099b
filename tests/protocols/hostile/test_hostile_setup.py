"""A server that lies about the keys of a set-up, or records it and breaks X25519 later.

| attack | guard that is taken out in the second half |
|---|---|
| ciphertexts exchanged for the server's own | the MAC of a capsule |
| an offered key exchanged for the server's own | the hash that the signed list names |
| recorded messages, X25519 broken | ML-KEM-768 |
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.errors import MessageError
from privfed.protocols import Masked
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    agree,
    decapsulate,
    encapsulate,
    encapsulation_key,
    new_secret,
    new_seed,
    unseal,
)
from privfed.protocols.masked.bindings import (
    block_prefix,
    block_secrets,
    box_binding,
    pair_of,
    ratcheted,
    sending,
)
from privfed.protocols.masked.client_state import SECRET_BYTES, State
from privfed.protocols.masked.masked_messages import Agreed, Upload
from privfed.protocols.setup import hybrid
from privfed.protocols.setup.advertising import with_keys
from privfed.protocols.setup.rules import BLOCK
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    Capsule,
    Channel,
    Envelope,
    Joining,
    Offered,
    RosterRequest,
)
from tests.protocols.federations import Sums
from tests.protocols.hostile.attack import OTHERS, VICTIM, N
from tests.protocols.hostile.kept import Fit
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.world import World


class Exchanging(HostileServer):
    """Gives the victim ciphertexts of its own in the place of those that others made for it.

    Attributes:
        made: by position, what is in them.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.made: dict[int, tuple[bytes, bytes]] = {}

    def changed_capsules(self, fit: Fit, client: int, capsules: tuple[Capsule, ...]) -> tuple[Capsule, ...]:
        """Return capsules for the victim's key, with no MAC that would be right."""
        if client != VICTIM:
            return capsules
        public = next(self.offers[one.encapsulation] for one in fit.listed if one.client == VICTIM)
        self.made = {one.client: encapsulate(public) for one in capsules}
        return tuple(Capsule(one.client, self.made[one.client][1], bytes(len(one.tag))) for one in capsules)


def exchanged() -> tuple[int, int, int]:
    """Exchange ciphertexts; return how many, how many boxes were made, and how many open without X25519."""
    server = Exchanging(World(N))
    identifier = new_secret()
    fit = server.fit_of(identifier, [server.advertise(i, identifier) for i in server.everyone])
    assert {server.join(fit, i) for i in server.everyone} == {""}
    # Whoever breaks X25519 has what the two agreed on.
    broken = server.world.stores[VICTIM].load().keys.ring.halves
    server.prepare(fit, 1)
    sent, cohort = fit.preparations[1, 0, VICTIM], server.agreement.cohort(0)
    boxes = {j: server.box_of(fit, sent, VICTIM, j) for j in server.made}
    opened = 0
    for j, (secret, ciphertext) in server.made.items():
        key, _ = hybrid._keys(broken[j], secret, fit.session, j, VICTIM, ciphertext)
        point = server.abscissa_of(fit, 0, VICTIM, j)
        t = server.agreement.threshold(0)
        prefix, ends = block_prefix(fit.session, 1, BLOCK, t, cohort.digest), sorted((VICTIM, j))
        derived = block_secrets(pair_of(key, fit.session).chain, prefix, *ends, BLOCK)
        data = box_binding(fit.session, 1, BLOCK, VICTIM, j, t, point, cohort.digest)
        try:
            plain = unseal(derived[sending(VICTIM, j)], boxes[j], data)
        except CryptographyError:
            continue
        opened += len(plain) == SECRET_BYTES * BLOCK
    return len(server.made), sum(any(box) for box in boxes.values()), opened


def test_ciphertexts_that_the_server_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    count, made, opened = exchanged()
    assert count > 1 and (made, opened) == (0, 0)

    # A share of each of the victim's secrets from each of these neighbours, whatever these answer later.
    monkeypatch.setattr(hybrid, "equal", lambda one, other: True)
    count, made, opened = exchanged()
    assert count > 1 and (made, opened) == (count, count)


def offered_own(seed: bytes) -> tuple[str, bytes]:
    """Offer the victim the server's own key as that of all others; return its refusal, or a secret of it."""
    server = HostileServer(World(N))
    identifier = new_secret()
    fit = server.fit_of(identifier, [server.advertise(i, identifier) for i in server.everyone])
    own = tuple(Offered(j, encapsulation_key(seed)) for j in sorted(OTHERS))
    reply = server.world.ask(VICTIM, encode(with_keys(fit.roster, own)))
    message = decode(reply, Joining | Refusal, sender="", stage="")
    if isinstance(message, Refusal):
        return message.code, b""
    state: State = server.world.stores[VICTIM].load()
    assert state.keys is not None
    return "", decapsulate(seed, state.keys.ring.sent[0].ciphertext)


def test_keys_that_the_server_offers_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert offered_own(new_seed()) == ("roster:key", b"")

    monkeypatch.setattr(hybrid, "equal", lambda one, other: True)
    refused, secret = offered_own(new_seed())
    assert refused == "" and len(secret) == KEY_BYTES


class Recorded:
    """A run of which somebody keeps all messages, and learns secret keys afterwards.

    Attributes:
        x25519: position -> the client's secret X25519 key; -1 for the coordinator's.
        mlkem: the coordinator's ML-KEM-768 seed, and those of clients.
        header: H of the sum, which the coordinator knows.
    """

    def __init__(self) -> None:
        self.run = Sums(Masked(losses=9), 5)
        self.header = b""
        self.x25519: dict[int, bytes] = {}
        self.mlkem: dict[int, bytes] = {}
        self.run.engine.before = lambda exchange: self._look()
        self.run.ask()
        session = self.run.session
        self.x25519[-1], self.mlkem[-1] = session._key, session._seed  # type: ignore[attr-defined]
        self.log = [(e.stage, dict(e.requests), dict(replies)) for e, replies in self.run.engine.log]

    def _look(self) -> None:
        pending = [] if self.run.state(0) is None else [self.run.state(0).keys]
        self.header = next((one.pending.header for one in pending if one and one.pending), self.header)
        for i in range(self.run.n):
            state = self.run.state(i)
            if state is not None and state.key:
                self.x25519[i], self.mlkem[i] = state.key, state.seed

    def uploads(self, *, x25519: bool, mlkem: bool) -> int:
        """Return how many uploads somebody reads who broke one or both; what is unknown is taken as zeros."""
        advertised = {i: decode(one, Advertisement, sender="", stage="") for i, one in self.log[0][2].items()}
        session, read = self.run.state(0).keys.session, 0
        for i, reply in self.log[1][2].items():
            roster = decode(self.log[1][1][i], RosterRequest, sender="", stage="")
            joining = decode(reply, Joining, sender="", stage="")
            agreed = agree(self.x25519[-1], advertised[i].key) if x25519 else bytes(32)
            inside = decapsulate(self.mlkem[-1], joining.ciphertext) if mlkem else bytes(32)
            ours, ct = roster.key + roster.encapsulation, joining.ciphertext
            key = hybrid._hybrid(agreed, inside, ours, ct, ("channel", session, i))
            for stage, _, replies in self.log:
                if stage == "collect":
                    read += _reads(Channel(key, session, i), replies[i])
        return read

    def pairs(self, *, x25519: bool, mlkem: bool) -> int:
        """Return how many keys of two clients come out, from their capsules."""
        advertised = {i: decode(one, Advertisement, sender="", stage="") for i, one in self.log[0][2].items()}
        found, session = 0, self.run.state(0).keys.session
        for i, reply in self.log[1][2].items():
            channel = Channel(self.run.state(i).keys.channel, session, i)
            joining = decode(reply, Joining, sender="", stage="")
            envelope = decode(joining.envelope, Envelope, sender="", stage="")
            for one in channel.up.open(envelope, Agreed, "").capsules:
                agreed = agree(self.x25519[i], advertised[one.client].key) if x25519 else bytes(32)
                inside = decapsulate(self.mlkem[one.client], one.ciphertext) if mlkem else bytes(32)
                key, tag = hybrid._keys(agreed, inside, session, i, one.client, one.ciphertext)
                # Their chains stand behind the first block.
                same = self.run.state(i).keys.pairs[one.client] == ratcheted(pair_of(key, session), 2)
                assert same == (tag == one.tag)
                found += same
        return found


def _reads(channel: Channel, data: bytes) -> bool:
    try:
        channel.up.open(decode(data, Envelope, sender="", stage=""), Upload, "")
    except MessageError:
        return False
    return True


@pytest.mark.parametrize("what", [Recorded.uploads, Recorded.pairs])
def test_what_was_recorded_opens_once_both_are_broken_and_no_earlier(what: Callable[..., int]) -> None:
    recorded = Recorded()
    found = [what(recorded, x25519=a, mlkem=b) for a in (False, True) for b in (False, True)]
    assert found == [0, 0, 0, {Recorded.uploads: 5, Recorded.pairs: 10}[what]]
