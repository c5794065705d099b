"""A server that tells each client what a test likes, and keeps everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from privfed.core.asking.question import question_from_bytes
from privfed.core.stored.encoding import Refusal, decode, encode
from privfed.protocols.crypto.fixed_point import grid_of
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    RECEIPT_BYTES,
    encapsulation_key,
    new_secret,
    new_seed,
    public_key,
)
from privfed.protocols.masked import bindings, blocks
from privfed.protocols.masked import masked_client as code
from privfed.protocols.masked.bindings import BOX_KEYS
from privfed.protocols.masked.client_state import Block, Pair, box_bytes
from privfed.protocols.masked.history import next_head
from privfed.protocols.masked.masked_messages import (
    Agreed,
    CollectRequest,
    Preparation,
    Prepared,
    PrepareRequest,
    SumEntry,
    Unmasking,
    UnmaskRequest,
    Upload,
)
from privfed.protocols.setup.advertising import advertise_request, listed, signed_roster, with_keys
from privfed.protocols.setup.hybrid import agreed_on, encapsulates, key_from, keyring
from privfed.protocols.setup.rules import bitmap
from privfed.protocols.setup.setup_messages import (
    Advertisement,
    Capsule,
    Channel,
    Envelope,
    Joining,
    Listed,
    Offered,
    Slot,
    part,
)
from tests.protocols.hostile.kept import Answered, Collected, Fit
from tests.protocols.hostile.model import Story
from tests.protocols.hostile.world import Words, World, numbers_question


class HostileServer:
    """Tells each client what a test likes, and keeps everything.

    A method returns "" where the client answered, else the code of its refusal.
    """

    def __init__(self, world: World) -> None:
        self.world, self.agreement = world, world.agreement
        self.collected: list[Collected] = []
        self.answered: list[Answered] = []
        self.fits: list[Fit] = []
        self.refusals: list[str] = []
        self.offers: dict[bytes, bytes] = {}
        self.heard: dict[int, list[SumEntry]] = {i: [] for i in self.everyone}

    @property
    def everyone(self) -> tuple[int, ...]:
        """Positions of all clients."""
        return tuple(range(len(self.agreement.configuration.clients)))

    # Set-up.

    def advertise(self, client: int, fit: bytes) -> Listed:
        """Have a client begin a fit."""
        reply = self.world.ask(
            client, encode(advertise_request(self.agreement, self.world.server_identity, fit))
        )
        advertisement = decode(reply, Advertisement, sender="client", stage="advertise")
        one = listed(client, advertisement)
        self.offers[one.encapsulation] = advertisement.encapsulation
        return one

    def fit_of(self, fit: bytes, entries: Iterable[Listed]) -> Fit:
        """Return a set-up over a list of the server's choice."""
        chosen, key, seed = tuple(entries), new_secret(), new_seed()
        session = code.session_of(self.agreement, fit, chosen)
        own = public_key(key), encapsulation_key(seed)
        roster = signed_roster(self.world.server_identity, self.agreement, fit, *own, chosen)
        made = Fit(fit, key, seed, chosen, session, {}, roster)
        self.fits.append(made)
        return made

    def _offered(self, fit: Fit, client: int) -> tuple[Offered, ...]:
        others = [one for one in fit.listed if one.client != client]
        return tuple(
            Offered(one.client, self.offers[one.encapsulation])
            for one in others
            if encapsulates(client, one.client)
        )

    def capsules(self, fit: Fit, client: int) -> tuple[Capsule, ...]:
        """Return what others encapsulated to a client, as far as the server has it, and may use."""
        for one in fit.listed:
            maker = one.client in self.world.corrupted and encapsulates(one.client, client)
            if maker and (one.client, client) not in fit.capsules:
                with suppress(StopIteration):
                    self.pair_key(fit, one.client, client)
        made = [one for (maker, holder), one in fit.capsules.items() if holder == client]
        return tuple(self.changed_capsules(fit, client, tuple(made)))

    def changed_capsules(self, fit: Fit, client: int, capsules: tuple[Capsule, ...]) -> tuple[Capsule, ...]:
        """Return what a client gets in the place of capsules; a server that lies about them changes it."""
        return capsules

    def join(self, fit: Fit, client: int, slots: Iterable[tuple[int, int]] = ()) -> str:
        """Send a client the list, and have it prepare (number, cohort) slots with the keys that it has."""
        request = encode(with_keys(fit.roster, self._offered(fit, client)))
        fit.requests.append((client, request))
        reply = decode(self.world.ask(client, request), Joining | Refusal, sender="client", stage="agree")
        if isinstance(reply, Refusal):
            self.refusals.append(reply.code)
            return reply.code
        public = next(one.key for one in fit.listed if one.client == client)
        ours = fit.roster.key + fit.roster.encapsulation
        bound = ("channel", fit.session, client)
        key = key_from(fit.key, fit.seed, public, ours, reply.ciphertext, *bound)
        fit.channels[client] = Channel(key, fit.session, client)
        envelope = decode(reply.envelope, Envelope, sender="client", stage="agree")
        agreed: Agreed = fit.channels[client].up.open(envelope, Agreed, "client")
        for one in agreed.capsules:
            fit.capsules[client, one.client] = Capsule(client, one.ciphertext, one.tag)
        upcoming = self.slots(slots)
        return self.ask_to_prepare(fit, client, upcoming) if upcoming else ""

    def slots(self, of: Iterable[tuple[int, int]]) -> tuple[Slot, ...]:
        """Return the blocks of (number, cohort) pairs, each once."""
        named = [(self.block_of(number), cohort) for number, cohort in of]
        return tuple(Slot(*one) for one in dict.fromkeys(named))

    def block_of(self, number: int) -> int:
        """Return the block that a number is prepared with."""
        return self.agreement.block_of(number)

    def prepared(self, fit: Fit, client: int, number: int, cohort: int = 0) -> Preparation:
        """Return what a client prepared for a number."""
        return fit.preparations[self.block_of(number), cohort, client]

    def ask_to_prepare(self, fit: Fit, client: int, upcoming: tuple[Slot, ...]) -> str:
        """Have a client prepare sums, with all keys that it can have."""
        request = PrepareRequest(upcoming, (), self.capsules(fit, client))
        return self.send(fit, client, 0, "prepare", request)

    def open(self, slots: Iterable[tuple[int, int]] = ()) -> Fit:
        """Set up as an honest server would."""
        fit, slots = new_secret(), tuple(slots)
        made = self.fit_of(fit, [self.advertise(i, fit) for i in self.everyone])
        assert {self.join(made, i) for i in self.everyone} == {""}
        for i in self.everyone:
            mine = self.slots(slot for slot in slots if i in self.agreement.configuration.cohort(slot[1]))
            assert self.ask_to_prepare(made, i, mine) == ""
        return made

    # Requests within a fit.

    def _send(self, fit: Fit, client: int, request: bytes, number: int, stage: str) -> str:
        fit.requests.append((client, request))
        data = self.world.ask(client, request)
        reply = decode(data, Envelope | Refusal, sender="client", stage=stage)
        if isinstance(reply, Envelope):
            reply = fit.channels[client].up.open(reply, Prepared | Upload | Unmasking | Refusal, "client")
        self.last = reply
        if isinstance(reply, Refusal):
            self.refusals.append(reply.code)
            return reply.code
        for one in reply.preparations:
            fit.preparations[one.block, one.cohort, client] = one
        return ""

    def send(self, fit: Fit, client: int, number: int, stage: str, message: Any) -> str:
        """Send any message."""
        return self._send(fit, client, fit.channels[client].down.seal(number, stage, message), number, stage)

    def prepare(self, fit: Fit, number: int, cohort: int = 0, clients: Iterable[int] | None = None) -> None:
        """Have those of a cohort that have not done so prepare for a number."""
        members, block = self.agreement.configuration.cohort(cohort), self.block_of(number)
        for i in members if clients is None else clients:
            if (block, cohort, i) not in fit.preparations:
                self.ask_to_prepare(fit, i, (Slot(block, cohort),))

    def collect(
        self,
        fit: Fit,
        client: int,
        number: int,
        *,
        question: bytes | int = 0,
        prepared: Collection[int] | None = None,
        cohort: int = 0,
        index: int = 0,
        swap: Mapping[int, Preparation] | None = None,
        history: Iterable[SumEntry] | None = None,
    ) -> str:
        """Ask a client to mask: any question, any list P, any keys."""
        members = self.agreement.configuration.cohort(cohort)
        data = numbers_question(question) if isinstance(question, int) else question
        block = self.block_of(number)
        given = {j: fit.preparations.get((block, cohort, j)) for j in members} | dict(swap or {})
        chosen = frozenset(members if prepared is None else prepared)
        near = self.agreement.neighbours(fit.session, cohort, client)
        neighbours = tuple(j for j in near.clients if j in chosen)
        used = {j: given[j] for j in neighbours if given[j] is not None}
        if len(used) != len(neighbours):
            return "not prepared"
        flags = bitmap(members, chosen)
        history = tuple(self.stories(fit, client, number) if history is None else history)
        request = CollectRequest(
            cohort,
            index,
            history,
            self.head_of((*self.heard[client], *history)),
            data,
            flags,
            bytes([1]) * len(neighbours),
            b"".join(self.box_of(fit, used[j], j, client) for j in neighbours),
            (),
        )
        refused = self.send(fit, client, number, "collect", request)
        if refused:
            return refused
        upload = self.last
        self.heard[client] += history
        cohort_hash = self.agreement.cohort(cohort).digest
        head = self.world.stores[client].load().keys.losses.head
        header = code.sum_header(fit.session, number, index, data, cohort_hash, flags, head)
        # Of a block the first box counts that opened.
        used = {j: fit.opened.setdefault((block, cohort, client, j), one) for j, one in used.items()}
        words = np.frombuffer(upload.words, dtype="<u8").astype(np.uint64)
        receipts = {j: part(upload.receipts, place, RECEIPT_BYTES) for place, j in enumerate(neighbours)}
        own, truth = fit.preparations[block, cohort, client], self._truth(client, data, index, len(members))
        self.collected.append(
            Collected(
                fit,
                client,
                number,
                cohort,
                data,
                header,
                neighbours,
                used,
                own,
                words,
                receipts,
                truth,
                flags,
                index,
            )
        )
        return ""

    def stories(self, fit: Fit, client: int, number: int) -> list[SumEntry]:
        """Return what a client hears of earlier sums: what most others heard that go on where it stands."""
        own = tuple(self.heard[client])
        others = [tuple(one) for one in self.heard.values() if tuple(one[: len(own)]) == own != tuple(one)]
        best = Counter(others).most_common(1)
        return list(best[0][0][len(own) :]) if best else []

    def head_of(self, entries: Iterable[SumEntry]) -> bytes:
        """Return the head of a history."""
        head = b""
        for one in entries:
            head = next_head(head, one, self.agreement)
        return head

    def _truth(self, client: int, question: bytes, index: int, n: int) -> Words:
        decoded = question_from_bytes(question)
        statistics, moved = self.world.answerers[client](decoded, index)
        vector, clipped = decoded.spec.clip(decoded.spec.flatten(statistics))
        return grid_of(question, n).encode(vector, moved + clipped)

    def upload_of(self, fit: Fit, client: int, number: int) -> Collected | None:
        """Return a client's last upload for a number."""
        found = [c for c in self.collected if c.fit is fit and (c.client, c.number) == (client, number)]
        return found[-1] if found else None

    def receipt(self, told: Collected, sender: int) -> bytes:
        """Return the receipt that a client made for another; a corrupted one makes any."""
        if sender in self.world.corrupted:
            seed = self.seed_of(told.fit, sender, told.client, told.number, told.cohort)
            return self.forged(told, sender, seed)
        theirs = self.upload_of(told.fit, sender, told.number)
        return bytes(RECEIPT_BYTES) if theirs is None else theirs.receipts.get(told.client, bytes(16))

    def forged(self, told: Collected, sender: int, seed: bytes) -> bytes:
        """Return the receipt that whoever knows the secret of two clients makes for one of them."""
        prefix = bindings.pair_prefix(told.header)
        (stream,) = bindings.pair_streams(seed, prefix, sender, (told.client,), 1)
        return stream[bindings.receipt_from(sender, told.client)]

    def secrets_with(self, fit: Fit, corrupted: int, other: int, block: int, cohort: int) -> bytes:
        """Return what a corrupted client and another one derived for a block."""
        numbers, agreed = self.agreement.numbers(block), self.agreement.cohort(cohort)
        # Through the client's modules: a test of a weaker form may have changed them there.
        t = code.threshold(len(agreed.members), self.agreement.configuration.terms)
        prefix = blocks.block_prefix(fit.session, block, len(numbers), t, agreed.digest)
        chain = blocks.ratcheted(self.pair_key(fit, corrupted, other), block).chain
        low, high = sorted((corrupted, other))
        return blocks.block_secrets(chain, prefix, low, high, len(numbers))

    def seed_of(self, fit: Fit, corrupted: int, other: int, number: int, cohort: int) -> bytes:
        """Return the secret that a corrupted client and another one have for a number."""
        block = self.block_of(number)
        place = self.agreement.numbers(block).index(number)
        derived = self.secrets_with(fit, corrupted, other, block, cohort)
        return part(derived[BOX_KEYS:], place, KEY_BYTES)

    def pair_key(self, fit: Fit, corrupted: int, other: int) -> Pair:
        """Return what a corrupted client shares with another under a list, also one it never joined.

        Raises:
            StopIteration: it never held keys of this list, or the other has encapsulated nothing to it yet.
        """
        if (corrupted, other) not in fit.pairs:
            fit.pairs[corrupted, other] = self._pair(fit, corrupted, other)
        return fit.pairs[corrupted, other]

    def _pair(self, fit: Fit, me: int, other: int) -> Pair:
        states = self.world.spied[me]
        for state in states:
            keys = state.keys
            pair = None if keys is None or keys.session != fit.session else keys.pairs.get(other)
            if pair is not None and pair.block == 1:
                return pair
        mine = next(one.key for one in fit.listed if one.client == me)
        held = next(state for state in states if state.key and public_key(state.key) == mine)
        n = len(self.everyone)
        ring = keyring(held.key, held.seed, me, fit.listed, n, fit.session, whole=False)
        offered, brought = [one for one in self._offered(fit, me) if one.client == other], list[Capsule]()
        if not offered:
            brought = [next(one for ends, one in fit.capsules.items() if ends == (other, me))]
        _, keys, made = agreed_on(ring, fit.session, me, (), offered, brought)
        for one in made:
            fit.capsules[me, other] = Capsule(me, one.ciphertext, one.tag)
        return code.pair_of(keys[other], fit.session)

    def unmask(
        self,
        fit: Fit,
        client: int,
        number: int,
        dead: Collection[int] = (),
        withheld: Collection[int] = (),
        *,
        receipts_of_dead: bool = False,
    ) -> str:
        """Tell a client who is dead, and pass on the receipts of the others but those withheld."""
        told = self.upload_of(fit, client, number)
        if told is None:
            return "never asked"
        named = [j for j in told.neighbours if receipts_of_dead or j not in dead]
        receipts = [bytes(RECEIPT_BYTES) if j in withheld else self.receipt(told, j) for j in named]
        request = UnmaskRequest(bitmap(told.neighbours, frozenset(dead)), b"".join(receipts), ())
        refused = self.send(fit, client, number, "unmask", request)
        if not refused:
            self.answered.append(Answered(told, frozenset(dead), self.last))
            there = [
                flag and j not in dead
                for j, flag in zip(
                    self.agreement.configuration.cohort(told.cohort), told.prepared, strict=True
                )
            ]
            bits = [
                np.packbits(np.array(one, dtype=np.bool_)).tobytes() for one in (list(told.prepared), there)
            ]
            self.heard[client].append(SumEntry(fit.session, number, told.index, told.cohort, *bits))
        return refused

    def collect_all(self, fit: Fit, number: int, clients: Iterable[int], **told: Any) -> list[str]:
        """Ask clients to mask, all alike; return the codes of their refusals."""
        return [code for i in clients if (code := self.collect(fit, i, number, **told))]

    def unmask_all(
        self, fit: Fit, number: int, stories: Mapping[int, Collection[int]], **told: Any
    ) -> list[str]:
        """Tell each client whom the test calls dead; return the codes of their refusals."""
        return [code for i, dead in stories.items() if (code := self.unmask(fit, i, number, dead, **told))]

    def tell(self, fit: Fit, number: int, story: Story) -> tuple[set[int], set[int]]:
        """Tell the clients a story of the model; return who uploaded, and who answered."""
        asked = {
            i: self.collect(fit, i, number, question=one.question, prepared=one.prepared)
            for i, one in story.asked.items()
        }
        told = {i: self.unmask(fit, i, number, one.dead, one.withheld) for i, one in story.told.items()}
        return {i for i in asked if not asked[i]}, {i for i in told if not told[i]}

    def blocks_of(self, corrupted: int) -> list[tuple[bytes, int, Block]]:
        """Return all blocks that a corrupted client ever held, with their session and place."""
        states = [state.keys for state in self.world.spied[corrupted] if state.keys is not None]
        return [(keys.session, place, one) for keys in states for place, one in keys.blocks.items()]

    def abscissa_of(self, fit: Fit, cohort: int, sender: int, holder: int) -> int:
        """Return the point at which a holder's share of a sender's secrets was taken."""
        return 1 + self.agreement.neighbours(fit.session, cohort, sender).clients.index(holder)

    def box_of(self, fit: Fit, preparation: Preparation, sender: int, holder: int) -> bytes:
        """Return the box that a sender made for a holder."""
        place = self.abscissa_of(fit, preparation.cohort, sender, holder) - 1
        return part(preparation.boxes, place, box_bytes(self.agreement.block_size))
