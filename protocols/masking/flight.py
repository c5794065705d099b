"""One masked sum in flight on the coordinator: requests out, uploads in, secrets opened, masks off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from privfed.core.messages import Refusal
from privfed.errors import IntegrityError, MessageError
from privfed.protocols.fixed_point import Grid, Words
from privfed.protocols.masking.bindings import lock_binding, pair_mask_key, self_mask_key
from privfed.protocols.masking.keys import (
    KEY_BYTES,
    RECEIPT_BYTES,
    CryptographyError,
    bound,
    digest,
    equal,
    expand,
    parsed,
    public_key,
    unseal,
)
from privfed.protocols.masking.keystream import Masker
from privfed.protocols.masking.messages import (
    CollectRequest,
    Preparation,
    Slot,
    Unmasking,
    UnmaskRequest,
    Upload,
)
from privfed.protocols.masking.rules import Agreement, bitmap, cohort_digest, sum_header, threshold
from privfed.protocols.masking.shamir import Bytes
from privfed.protocols.masking.state import BOX_BYTES
from privfed.protocols.masking.unmasking import Accept, Shares


def _without(members: tuple[int, ...], client: int) -> tuple[int, ...]:
    return tuple(i for i in members if i != client)


def _table(rows: Iterable[tuple[int, bytes]], n: int, size: int) -> Bytes:
    """Lay out what each client made for all others: uint8 of shape (n, n, size), by maker and receiver."""
    table = np.zeros((n, n, size), dtype=np.uint8)
    for place, data in rows:
        parts = np.frombuffer(data, dtype=np.uint8).reshape(n - 1, size)
        table[place, :place], table[place, place + 1 :] = parts[:place], parts[place:]
    return table


class Flight:
    """A sum of one cohort, and what befell its clients.

    Attributes:
        prepared: clients whose preparation arrived, ascending (P).
        receipts: client -> the receipts of its upload; its keys are the living (U).
        answers: client -> its unmasking.
        dropped: client -> the stage in which it was lost.
        rejected: client -> why a message of it was thrown away.
        refused: client -> the code of its refusal.
    """

    def __init__(
        self,
        agreement: Agreement,
        session: bytes,
        number: int,
        index: int,
        question: bytes,
        cohort: int,
        prepared: tuple[int, ...],
        preparations: Mapping[int, Preparation],
        grid: Grid,
    ) -> None:
        self.number, self.grid, self.prepared = number, grid, prepared
        self._session, self._cohort, self._index, self._question = session, cohort, index, question
        self._preparations = preparations
        self._members = agreement.configuration.cohort(cohort)
        self._threshold = threshold(len(self._members) - 1, agreement.configuration.terms)
        self._bitmap = bitmap(self._members, frozenset(prepared))
        cohort_hash = cohort_digest(cohort, self._members)
        self._header = sum_header(session, number, index, question, cohort_hash, self._bitmap)
        self._total: Words = np.zeros(grid.size, dtype=np.uint64)
        self._place = {i: place for place, i in enumerate(self._members)}
        self._prepared_place = {i: place for place, i in enumerate(prepared)}
        self.receipts: dict[int, bytes] = {}
        self._living: tuple[int, ...] = ()
        self.answers: dict[int, Unmasking] = {}
        self.dropped: dict[int, str] = {}
        self.rejected: dict[int, str] = {}
        self.refused: dict[int, str] = {}

    @property
    def living(self) -> tuple[int, ...]:
        """Clients whose upload arrived, ascending."""
        if len(self._living) != len(self.receipts):
            self._living = tuple(i for i in self.prepared if i in self.receipts)
        return self._living

    @property
    def dead(self) -> tuple[int, ...]:
        """Prepared clients whose upload did not arrive, ascending."""
        return tuple(i for i in self.prepared if i not in self.receipts)

    def note(self, read: Mapping[int, object], rejected: Mapping[int, str], stage: str) -> None:
        """Keep who refused and whose messages were thrown away, and who was lost in a stage."""
        self.rejected.update(rejected)
        self.refused.update({i: reply.code for i, reply in read.items() if isinstance(reply, Refusal)})
        left = self.receipts if stage == "collect" else self.answers
        for client in self.prepared:
            if client not in left:
                self.dropped.setdefault(client, stage)

    # Requests.

    def collect_request(self, client: int, upcoming: tuple[Slot, ...]) -> CollectRequest:
        """Return what one client needs to mask its answer."""
        others = _without(self.prepared, client)
        keys = [self._preparations[j].mask_key for j in others]
        hashes = [self._preparations[j].seed_hash for j in others]
        boxes = self._boxes[[self._place[j] for j in others], self._place[client]]
        return CollectRequest(
            self._cohort,
            self._index,
            self._question,
            self._bitmap,
            b"".join(keys),
            b"".join(hashes),
            boxes.tobytes(),
            upcoming,
        )

    @cached_property
    def _boxes(self) -> Bytes:
        rows = ((self._place[i], self._preparations[i].boxes) for i in self.prepared)
        return _table(rows, len(self._members), BOX_BYTES)

    def unmask_request(self, client: int, upcoming: tuple[Slot, ...]) -> UnmaskRequest:
        """Return what one client needs to know of the others: the dead, and the living's receipts."""
        senders = [self._prepared_place[j] for j in _without(self.living, client)]
        receipts = self._receipts[senders, self._prepared_place[client]]
        return UnmaskRequest(self._dead_bitmap(client), receipts.tobytes(), upcoming)

    @cached_property
    def _receipts(self) -> Bytes:
        """The receipts of all uploads; first looked at when no more uploads come."""
        rows = ((self._prepared_place[i], receipts) for i, receipts in self.receipts.items())
        return _table(rows, len(self.prepared), RECEIPT_BYTES)

    def _dead_bitmap(self, client: int) -> bytes:
        return bitmap(_without(self.prepared, client), frozenset(self.dead))

    # Replies.

    def add(self, client: int, upload: Upload, name: str) -> None:
        """Check one upload and add it to the total."""
        receipts = RECEIPT_BYTES * (len(self.prepared) - 1)
        if len(upload.words) != 8 * self.grid.size or len(upload.receipts) != receipts:
            raise MessageError("an upload of another length", sender=name, stage="collect")
        self.grid.add(self._total, np.frombuffer(upload.words, dtype="<u8"))
        self.receipts[client] = upload.receipts

    def answer(self, client: int, reply: Unmasking, name: str) -> None:
        """Check the form of one unmasking and keep it."""
        neighbours = _without(self.living, client)
        left_out = set(reply.left_out)
        if not left_out <= set(neighbours) or list(reply.left_out) != sorted(left_out):
            raise MessageError("leaves out clients that are not alive", sender=name, stage="unmask")
        if len(neighbours) - len(left_out) < self._threshold:
            raise MessageError("leaves out too many", sender=name, stage="unmask")
        if len(reply.answer_shares) != KEY_BYTES * (len(neighbours) - len(left_out)):
            raise MessageError("shares of another length", sender=name, stage="unmask")
        self.answers[client] = reply

    # Opening.

    def opened(self) -> Words:
        """Rebuild the secrets and take all masks off.

        Raises:
            IntegrityError: shares do not give secrets that fit the preparations.
        """
        locked = self._unlock()
        seeds = self._secrets({i: seeds for i, (seeds, _) in locked.items()}, self.living, self._is_seed)
        masks = self._secrets({i: masks for i, (_, masks) in locked.items()}, self.dead, self._is_mask)
        masker = Masker(self.grid)
        for i in self.living:
            masker.subtract(self._total, self_mask_key(seeds[i], self._session, self.number, i, self._header))
        for j in self.dead:
            self._remove_pair_masks(masker, j, masks[j])
        return self._total

    def _remove_pair_masks(self, masker: Masker, dead: int, secret: bytes) -> None:
        own = parsed(secret)
        for i in self.living:
            public = self._preparations[i].mask_key
            key = pair_mask_key(own, public, self._session, self.number, dead, i, self._header)
            (masker.subtract if i < dead else masker.add)(self._total, key)

    def _good(self, client: int) -> tuple[int, ...]:
        left_out = set(self.answers[client].left_out)
        return tuple(j for j in self.living if j != client and j not in left_out)

    def _unlock(self) -> dict[int, tuple[Bytes, Bytes]]:
        """Open the answer keys, and with them the locked shares: of seeds, and of mask keys."""
        unlocked: dict[int, tuple[Bytes, Bytes]] = {}

        def accept(client: int, key: bytes) -> bool:
            reply = self.answers[client]
            lock = expand(key, bound("lock", self._session, self.number, client, self._header))
            story = lock_binding(self._header, client, self._dead_bitmap(client), reply.left_out)
            try:
                plain = unseal(lock, reply.locked, story)
            except CryptographyError:
                return False
            n_seeds, n_masks = len(self._good(client)), len(self.dead)
            if len(plain) != KEY_BYTES * (n_seeds + n_masks):
                return False
            rows = np.frombuffer(plain, dtype=np.uint8).reshape(-1, KEY_BYTES)
            unlocked[client] = rows[:n_seeds], rows[n_seeds:]
            return True

        held = {
            i: (self._good(i), np.frombuffer(reply.answer_shares, dtype=np.uint8).reshape(-1, KEY_BYTES))
            for i, reply in self.answers.items()
        }
        shares = Shares(held, self._abscissae, self._threshold)
        shares.open(tuple(sorted(self.answers)), accept)
        return unlocked

    @property
    def _abscissae(self) -> dict[int, int]:
        return {i: place + 1 for i, place in self._place.items()}

    def _secrets(
        self, rows: Mapping[int, Bytes], targets: tuple[int, ...], accept: Accept
    ) -> dict[int, bytes]:
        held = {i: (self._good(i) if targets == self.living else targets, data) for i, data in rows.items()}
        opened, failed = Shares(held, self._abscissae, self._threshold).open(targets, accept)
        if failed:
            raise IntegrityError(
                f"shares of clients {failed} do not give what they committed to in sum {self.number}: a "
                "client sent wrong shares, or too few answered. Nothing was opened; ask again."
            )
        return opened

    def _is_seed(self, client: int, secret: bytes) -> bool:
        return equal(digest("seed", secret), self._preparations[client].seed_hash)

    def _is_mask(self, client: int, secret: bytes) -> bool:
        return equal(public_key(secret), self._preparations[client].mask_key)
