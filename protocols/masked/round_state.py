"""The coordinator's state of one masked sum, from the requests to the unmasked total.

Receipts and shares are kept in arrays with a row for each member of the cohort and a column for each of its
neighbours.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Final, Literal

import msgspec
import numpy as np

from privfed.core.stored.encoding import Refusal
from privfed.errors import IntegrityError, MessageError
from privfed.protocols.crypto.fixed_point import Grid, Layout, Words
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    RECEIPT_BYTES,
    CryptographyError,
    equal,
    holds,
    unseal,
)
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.crypto.shamir import Bytes, Flags, Shares, rows
from privfed.protocols.masked.bindings import (
    BOTH_RECEIPTS,
    box_binding,
    commitment,
    key_hash,
    leaf,
    lock_binding,
    lock_key,
    pair_prefix,
    pair_streams,
    prepared_data,
    proof_context,
    proof_data,
    receipt_from,
    recovery_pad,
    self_stream,
    upload_data,
)
from privfed.protocols.masked.client_state import box_bytes
from privfed.protocols.masked.masked_messages import (
    CollectRequest,
    LeafRequest,
    Preparation,
    Proof,
    ProvenRequest,
    ProvenUpload,
    SumEntry,
    Unmasking,
    UnmaskRequest,
    Upload,
)
from privfed.protocols.masked.preparing import Coming
from privfed.protocols.masked.statements import ProvenGrid, words_of
from privfed.protocols.masked.verification import Place
from privfed.protocols.setup.graph import Places
from privfed.protocols.setup.hybrid import Ahead
from privfed.protocols.setup.rules import Rules, sum_header
from privfed.protocols.setup.setup_messages import part
from privfed.protocols.valid.proof import ProofError, totals_hold, verify

UNMASK: Final = "unmask"
"""Stage in which clients help to open a sum."""

Given = tuple[Flags, Bytes]
"""Of which neighbours a member gave shares, bool of shape (d,); and these, uint8 of shape (n, 32)."""


class RoundState:
    """Tracks one sum of a cohort, and what happened to each of its clients.

    Attributes:
        label: that of the cohort.
        is_proven: whether clients prove their answers.
        most_liars: half of a member's neighbours: no secret opens where more give wrong shares.
        prepared: P, clients whose preparation arrived and that have at least t prepared neighbours.
        living: U, clients whose upload arrived.
        answers: client -> its unmasking.
        dropped: client -> the stage in which it was lost.
        rejected: client -> why one of its messages was thrown away.
        refused: client -> the code of its refusal.
        signatures: living client -> what it signed of this sum.
        proven: living client -> its proven functionals, where answers are proven.
        doubted: lost client -> living ones whose receipts for it do not fit its seeds with them.
    """

    def __init__(
        self,
        agreement: Rules,
        session: bytes,
        number: int,
        index: int,
        question: bytes,
        coming: Coming,
        chosen: Container[int],
        grid: tuple[Grid | ProvenGrid, Layout],
        history: bytes = b"",
        head: bytes = b"",
        doubted: Container[int] = (),
    ) -> None:
        self.number, (self.grid, self._layout) = number, grid
        self.is_proven = isinstance(self.grid, ProvenGrid)
        self._history, self._head = history, head
        self._session, self._index, self._question = session, index, question
        self._configuration = agreement.configuration
        self._coming, self._cohort, self.label = coming, coming.cohort, coming.label
        self._threshold, self._at = agreement.threshold(coming.label), coming.numbers.index(number)
        self._neighbours, self._back = coming.neighbours, coming.back
        self.most_liars = int(self._neighbours.shape[1]) // 2
        members = self._cohort.members
        self._is_prepared = self._core(chosen)
        self.prepared = tuple([members[place] for place in np.flatnonzero(self._is_prepared).tolist()])
        self._bitmap = self._is_prepared.tobytes()
        parts = (index, question, self._cohort.digest, self._bitmap, history, head)
        self._header = sum_header(session, number, *parts)
        self._total: Words = np.zeros(self._layout.size, dtype=np.uint64)
        self._is_living = np.zeros(len(members), dtype=np.bool_)
        self._receipts = np.zeros((*self._neighbours.shape, RECEIPT_BYTES), dtype=np.uint8)
        self.living: dict[int, None] = {}
        self.answers: dict[int, Unmasking] = {}
        self.dropped: dict[int, str] = {}
        self.rejected: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self.signatures: dict[int, bytes] = {}
        self._uploads, self._proofs = dict[int, ProvenUpload](), dict[int, Proof]()
        self.proven: dict[int, Words] = {}
        self._doubted, self._wrong = np.array([i in doubted for i in members]), set[tuple[int, int]]()
        self.doubted: dict[int, list[int]] = {}

    def _core(self, prepared: Container[int]) -> Flags:
        """Leave out clients that would refuse, and cannot be recovered: too few neighbours are prepared."""
        flags = np.array([i in prepared for i in self._cohort.members])
        while True:
            kept = flags & (flags[self._neighbours].sum(axis=1) >= self._threshold)
            if np.array_equal(kept, flags):
                return flags
            flags = kept

    @property
    def place(self) -> Place:
        """Which sum this is, for whoever verifies its total."""
        parts = (self._head, self._cohort.digest, self._bitmap)
        return Place(self._session, self.number, self._index, *parts)

    @property
    def contributors(self) -> bytes:
        """U, one byte for each member of the cohort."""
        return self._is_living.tobytes()

    @property
    def wrong(self) -> Iterator[tuple[int, int]]:
        """Pairs of clients: who dealt a share, and who gave another one; one of the two lied."""
        return ((self._cohort.members[one], self._cohort.members[other]) for one, other in self._wrong)

    def is_cut_off(self, left: Container[int]) -> bool:
        """Say whether some prepared client has too few neighbours left to open its secrets."""
        flags = np.array([i in left for i in self._cohort.members])
        return bool((flags[self._neighbours[self._is_prepared]].sum(axis=1) < self._threshold).any())

    def note(self, read: Mapping[int, object], rejected: Mapping[int, str], stage: str) -> None:
        """Record who refused, whose messages were thrown away, and who was lost in a stage."""
        self.rejected.update(rejected)
        self.refused.update({i: reply.code for i, reply in read.items() if isinstance(reply, Refusal)})
        left: Container[int] = self.answers if stage == UNMASK else self.living
        for client in self.prepared:
            if client not in left:
                self.dropped.setdefault(client, stage)
            elif self.dropped.get(client) == stage:
                # It answered when it was asked again.
                del self.dropped[client]

    # Requests.

    def entry(self, *, unmasked: bool) -> SumEntry:
        """Return the sum's entry in the history, before it is unmasked or once it is to be."""
        there = np.packbits(self._is_living).tobytes() if unmasked else b""
        prepared = np.packbits(self._is_prepared).tobytes()
        return SumEntry(self._session, self.number, self._index, self.label, prepared, there)

    def collect_request(self, client: int, history: tuple[SumEntry, ...], ahead: Ahead) -> CollectRequest:
        """Return what one client needs to mask its answer; `ahead` is for sums to come."""
        place = self._cohort.place[client]
        chosen = self._is_prepared[self._neighbours[place]]
        brought = chosen & ~self._coming.brought[place]
        kind: Any = partial(ProvenRequest, challenge=self._head) if self.is_proven else CollectRequest
        made: CollectRequest = kind(
            self.label,
            self._index,
            history,
            self._history,
            self._question,
            self._bitmap,
            brought[chosen].tobytes(),
            self._coming.boxes_for(place, np.flatnonzero(brought)),
            *ahead,
        )
        return made

    def unmask_request(self, client: int, ahead: Ahead, *, shows: bool = False) -> UnmaskRequest:
        """Return what one client needs to unmask: which neighbours are dead, and the others' receipts.

        Args:
            client: position of the client.
            ahead: what it gets for sums to come.
            shows: whether it gets their signatures too.
        """
        place = self._cohort.place[client]
        others, back = self._neighbours[place], self._back[place]
        living = self._is_living[others]
        receipts = self._receipts[others[living], back[living]].tobytes()
        upcoming, keys, capsules = ahead
        dead, lost = self._dead(place)[1], self._lost_bits
        signed = [self.signatures[self._cohort.members[other]] for other in others[living] if shows]
        return UnmaskRequest(dead, receipts, upcoming, lost, b"".join(signed), keys, capsules)

    def leaf_request(self, client: int, sender: int) -> LeafRequest:
        """Return what shows a client what another signed of the box that it could not open."""
        one, (column, leaves) = self._coming.preparations[sender], self._leaves(client, sender)
        return LeafRequest(one.block, sender, self._box(one, column), leaves, one.signature)

    def _leaves(self, client: int, sender: int) -> tuple[int, bytes]:
        """Return the column of a client among another's neighbours, and the leaves of that one's boxes."""
        one, place = self._coming.preparations[sender], self._cohort.place[client]
        others = self._neighbours[self._cohort.place[sender]].tolist()
        leaves = [
            leaf(self._cohort.members[other], c + 1, self._box(one, c), part(one.key_hashes, c, KEY_BYTES))
            for c, other in enumerate(others)
        ]
        return others.index(place), b"".join(leaves)

    def _box(self, one: Preparation, column: int) -> bytes:
        return part(one.boxes, column, box_bytes(len(self._coming.numbers)))

    def is_between(self, client: int, sender: int) -> bool:
        """Say whether one client made a box for another that is prepared."""
        places = [self._cohort.place[j] for j in (client, sender)]
        return sender in self.prepared and places[0] in self._neighbours[places[1]]

    def liar(self, client: int, sender: int, signer: bytes, key: bytes) -> int | None:
        """Return who lied, if the key of a box shows it: who made the box, or who complained of it.

        Args:
            client: who complained.
            sender: who made the box.
            signer: that one's key of the fit.
            key: what the client revealed; empty for nothing.
        """
        one, (column, leaves) = self._coming.preparations[sender], self._leaves(client, sender)
        bound_to = (self._session, one.block, len(self._coming.numbers))
        digested = (self._threshold, self._cohort.digest)
        if not holds(signer, one.signature, prepared_data(*bound_to, *digested, sender, leaves)):
            return sender
        if not key:
            return None
        binding = box_binding(*bound_to, sender, client, digested[0], column + 1, digested[1])
        try:
            unseal(key, self._box(one, column), binding)
        except CryptographyError:
            return sender if equal(key_hash(key), part(one.key_hashes, column, KEY_BYTES)) else client
        return client

    def forgers(self, signers: Mapping[int, bytes]) -> set[int]:
        """Return living clients whose signature over this sum does not hold."""
        signed = {i: (one, upload_data(self._header, i)) for i, one in self.signatures.items()}
        return {i for i, one in signed.items() if not holds(signers[i], *one)}

    @cached_property
    def _lost_bits(self) -> bytes:
        """Who was lost after preparing, a bit each; empty for nobody, or where all share with all."""
        lost = self._is_prepared & ~self._is_living
        sparse = self._neighbours.shape[1] < len(lost) - 1
        return np.packbits(lost).tobytes() if sparse and lost.any() else b""

    def _dead(self, place: int) -> tuple[Flags, bytes]:
        """Return which neighbours of a member are dead, bool of shape (d,); and that of the prepared ones."""
        others = self._neighbours[place]
        prepared = self._is_prepared[others]
        dead: Flags = prepared & ~self._is_living[others]
        return dead, dead[prepared].tobytes()

    # Replies.

    def add(self, client: int, upload: Upload, name: str) -> None:
        """Check one upload and add it to the total."""
        place = self._cohort.place[client]
        chosen = self._is_prepared[self._neighbours[place]]
        receipts = RECEIPT_BYTES * int(chosen.sum())
        if len(upload.words) != 8 * self._layout.size or len(upload.receipts) != receipts:
            raise MessageError("an upload of another length", sender=name, stage="collect")
        if isinstance(upload, ProvenUpload):
            # It is added once it is proven.
            self._uploads[client] = msgspec.structs.replace(upload, words=memoryview(bytes(upload.words)))
        else:
            self._layout.add(self._total, np.frombuffer(upload.words, dtype="<u8"))
        self._receipts[place, chosen] = rows(upload.receipts, RECEIPT_BYTES)
        self._coming.brought[place] |= chosen
        self._is_living[place] = True
        self.living[client], self.signatures[client] = None, upload.signature

    def prove(self, client: int, reply: Proof, name: str) -> None:
        """Keep a proof."""
        self._proofs[client] = msgspec.structs.replace(reply, proof=memoryview(bytes(reply.proof)))

    def settle(self, sigma: bytes, signers: Mapping[int, bytes]) -> dict[int, str]:
        """Add the uploads whose proofs hold; the others are lost. Return by which check each proof fails.

        A client that computed another statement is lost, and no liar: its machine computes other floats.

        Args:
            sigma: that clients proved by.
            signers: client -> its key of the fit.
        """
        failed = dict[int, str]()
        for client, upload in self._uploads.items():
            if (one := self._proofs.get(client)) is not None:
                signed = proof_data(self._header, client, upload.root, sigma, one.proof)
                context = proof_context(self._header, client)
                parts = self._question, len(self._cohort.members), self._configuration, client
                grid: Any = words_of(*parts)[0]
                try:
                    if one.statement != grid.statement.digest:
                        raise ProofError("statement")
                    if not holds(signers[client], one.signature, signed):
                        raise ProofError("signature")
                    own = verify(grid.statement, upload.root, context, sigma, bytes(one.proof))
                except ProofError as error:
                    failed[client] = f"proof:{error.code}"
                else:
                    self.proven[client] = own
                    self._layout.add(self._total, np.frombuffer(upload.words, dtype="<u8"))
            if client not in self.proven:
                del self.living[client], self.signatures[client]
                self._is_living[self._cohort.place[client]] = False
        self._uploads, self._proofs = {}, {}
        return failed

    def totals_hold(self, sigma: bytes, words: Words) -> bool:
        """Say whether an opened total is what the proofs of its clients say."""
        grid, proven = self.grid, np.array(list(self.proven.values()), dtype=np.uint64)
        assert isinstance(grid, ProvenGrid)
        digits = words[: grid.size - 2].view(np.int64)
        return totals_hold(grid.statement, sigma, digits, words[grid.size :], proven)

    def answer(self, client: int, reply: Unmasking, name: str) -> None:
        """Check the form of one unmasking and keep it."""
        others = self._neighbours[self._cohort.place[client]]
        if len(reply.answer_shares) != KEY_BYTES * int(self._is_living[others].sum()):
            raise MessageError("shares of another length", sender=name, stage="unmask")
        self.answers[client] = reply

    # Opening.

    def opened(self) -> Words:
        """Reconstruct the secrets and subtract all masks from the total, and from check words after it.

        Raises:
            IntegrityError: the shares give secrets that do not match the preparations, or are too few.
        """
        unlocked = self._unlock()
        of_own, of_lost = (self._shares({i: both[kind] for i, both in unlocked.items()}) for kind in (0, 1))
        own = self._secrets(of_own, np.flatnonzero(self._is_living), "self")
        lost = self._secrets(of_lost, np.flatnonzero(self._is_prepared & ~self._is_living), "recovery")
        masker, members = Masker(self._layout), self._cohort.members
        masks = [
            self_stream(one, self._session, self.number, members[place], self._header, self._layout.size)
            for place, one in own.items()
        ]
        masker.apply(self._total, masks, np.zeros(len(masks), dtype=np.bool_))
        for place, one in lost.items():
            self._remove_pair_masks(masker, place, one)
        return self._total

    def _remove_pair_masks(self, masker: Masker, place: int, secret: bytes) -> None:
        """Take off the masks that living neighbours have with a lost member, whose e is known."""
        dead, members, masks, adds = self._cohort.members[place], self._cohort.members, [], []
        pad = recovery_pad(secret, self._session, self.number, dead, self._neighbours.shape[1])
        columns = np.flatnonzero(self._is_living[self._neighbours[place]])
        recovery = part(self._coming.preparations[dead].recovery, self._at, KEY_BYTES * len(pad))
        seeds = (rows(recovery, KEY_BYTES) ^ pad)[columns].tobytes()
        places = self._neighbours[place, columns].tolist()
        others, prefix = [members[other] for other in places], pair_prefix(self._header)
        streams = pair_streams(seeds, prefix, dead, others, self._layout.size)
        for i, other, column, stream in zip(others, places, columns.tolist(), streams, strict=True):
            receipt = self._receipts[other, self._back[place, column]].tobytes()
            if not equal(receipt, stream[receipt_from(i, dead)]):
                self.doubted.setdefault(dead, []).append(i)
            masks.append(stream[BOTH_RECEIPTS:])
            adds.append(i > dead)
        masker.apply(self._total, masks, np.array(adds, dtype=np.bool_))

    def _unlock(self) -> dict[int, tuple[Given, Given]]:
        """Open the answer keys; return what each member sealed: shares of living ones' b and dead ones' e."""
        unlocked: dict[int, tuple[Given, Given]] = {}
        in_clear: dict[int, Given] = {}
        for client, reply in self.answers.items():
            place = self._cohort.place[client]
            in_clear[place] = self._is_living[self._neighbours[place]], rows(reply.answer_shares, KEY_BYTES)

        def accept(place: int, key: bytes) -> bool:
            client, good, (dead, told) = self._cohort.members[place], in_clear[place][0], self._dead(place)
            reply, n_good = self.answers[client], int(good.sum())
            lock = lock_key(key, self._session, self.number, client, self._header)
            try:
                plain = unseal(lock, reply.locked, lock_binding(self._header, client, told))
            except CryptographyError:
                return False
            if len(plain) != KEY_BYTES * (n_good + int(dead.sum())):
                return False
            shares = rows(plain, KEY_BYTES)
            unlocked[place] = (good, shares[:n_good]), (dead, shares[n_good:])
            return True

        self._shares(in_clear).open(sorted(in_clear), accept)
        return unlocked

    def _shares(self, gave: Mapping[int, Given]) -> Shares:
        """Arrange the shares that each member gave by the client whose secret they belong to."""
        n, d = self._neighbours.shape
        given, values = np.zeros((n, d), dtype=np.bool_), np.zeros((n, d, KEY_BYTES), dtype=np.uint8)
        for place, (chosen, shares) in gave.items():
            owners, columns = self._neighbours[place][chosen], self._back[place][chosen]
            given[owners, columns], values[owners, columns] = True, shares
        return Shares(given, values, self._threshold, self._neighbours, self._doubted, self._wrong)

    def _secrets(
        self, shares: Shares, targets: Places, kind: Literal["self", "recovery"]
    ) -> dict[int, bytes]:
        """Rebuild the b or the e of members, which must be what they committed to."""

        def accept(place: int, secret: bytes) -> bool:
            client, which = self._cohort.members[place], ("self", "recovery").index(kind)
            committed = self._coming.preparations[client].commitments
            made = commitment(kind, secret, self._session, self.number, client)
            return equal(made, part(committed, 2 * self._at + which, KEY_BYTES))

        opened, failed = shares.open(targets.tolist(), accept)
        if failed:
            names = [self._configuration.name_of(self._cohort.members[place]) for place in failed]
            raise IntegrityError(
                f"shares of the secrets of clients {', '.join(names)} do not give what these committed to in "
                f"sum {self.number}: a client sent wrong shares, or too few answered. Nothing was opened; "
                "ask again."
            )
        return opened
