"""What a client prepares for a block of numbers, and what it opens of what its neighbours prepared.

One box a neighbour brings the shares of all numbers. Its key is for that box alone: the sender erases it
after sealing, the holder once it has opened the box. The chain that both keys follow from goes forward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from privfed.core.agreed.agreement import Signer
from privfed.errors import PolicyError
from privfed.protocols.crypto.keys import (
    KEY_BYTES,
    CryptographyError,
    equal,
    new_secret,
    seal,
    unseal,
    verify,
)
from privfed.protocols.crypto.shamir import Bytes, rows, share
from privfed.protocols.masked.bindings import (
    BOX_KEYS,
    block_prefix,
    block_secrets,
    box_binding,
    commitment,
    key_hash,
    leaf,
    prepared_data,
    ratcheted,
    recovery_pad,
    sending,
)
from privfed.protocols.masked.client_state import RECOVERY, SECRET_BYTES, SELF, Block, Pair, box_bytes
from privfed.protocols.masked.masked_messages import LeafRequest, Preparation
from privfed.protocols.setup.graph import Neighbours
from privfed.protocols.setup.setup_messages import Slot, part

_BY_KIND = (("self", SELF), ("recovery", RECOVERY))


@dataclass(frozen=True, slots=True)
class BlockMaker:
    """Prepares a block of one client, and opens its neighbours' boxes.

    Args:
        session: the fit's session.
        me: the client's position.
        slot: the block, and the label of its cohort.
        numbers: the block's numbers.
        threshold: t, how many shares open a secret in the cohort.
        cohort: H(Q), the cohort's digest.
        neighbours: whom the client shares with.
    """

    session: bytes
    me: int
    slot: Slot
    numbers: range
    threshold: int
    cohort: bytes
    neighbours: Neighbours

    def made(self, pairs: Mapping[int, Pair], signing: Signer) -> tuple[dict[int, Pair], Block]:
        """Return the pairs whose chains went on, and the prepared block, signed by the key of the fit."""
        me, others, count = self.me, self.neighbours.clients, len(self.numbers)
        moved, derived = self._derived(pairs)
        own = {r: b"".join([new_secret() for _ in range(3)]) for r in self.numbers}
        shares = share(b"".join(own.values()), self.neighbours.abscissae, self.threshold)
        boxes = [
            seal(keys[sending(me, j)], shares[place].tobytes(), self._binding(me, j, place + 1))
            if j in moved
            # This neighbour does not take part in the fit: an empty box of equal length holds its place.
            else bytes(box_bytes(count))
            for place, (j, keys) in enumerate(zip(others, derived, strict=True))
        ]
        seeds = rows(b"".join(derived), BOX_KEYS + KEY_BYTES * count)[:, BOX_KEYS:]
        seeds = seeds.reshape(len(others), count, KEY_BYTES)
        opening = b"".join([keys[sending(j, me)] for j, keys in zip(others, derived, strict=True)])
        hashes = [key_hash(keys[sending(me, j)]) for j, keys in zip(others, derived, strict=True)]
        made = self._commitments(own), self._recovery(own, seeds), b"".join(boxes), b"".join(hashes)
        leaves = [
            leaf(j, place, *one) for place, (j, *one) in enumerate(zip(others, boxes, hashes, strict=True), 1)
        ]
        signature = signing.sign(self._signed(me, b"".join(leaves)))
        sent = Preparation(self.slot.block, self.slot.cohort, *made, signature)
        block = Block(
            cohort=self.slot.cohort,
            own=own,
            seeds={r: seeds[:, place].tobytes() for place, r in enumerate(self.numbers)},
            opening=opening,
            opened=bytes(len(others)),
            shares=dict.fromkeys(self.numbers, bytes(SECRET_BYTES * len(others))),
            sent=sent,
        )
        return moved, block

    def _derived(self, pairs: Mapping[int, Pair]) -> tuple[dict[int, Pair], list[bytes]]:
        """Return the pairs, gone forward, and what each neighbour and this client use in the block."""
        block, count, moved, derived = self.slot.block, len(self.numbers), dict[int, Pair](), []
        prefix = block_prefix(self.session, block, count, self.threshold, self.cohort)
        for j in self.neighbours.clients:
            if j not in pairs:
                derived.append(bytes(BOX_KEYS + KEY_BYTES * count))
                continue
            pair = ratcheted(pairs[j], block)
            low, high = (self.me, j) if self.me < j else (j, self.me)
            derived.append(block_secrets(pair.chain, prefix, low, high, count))
            moved[j] = ratcheted(pair, block + 1)
        return moved, derived

    def _commitments(self, own: Mapping[int, bytes]) -> bytes:
        return b"".join(
            commitment(name, part(secrets, kind, KEY_BYTES), self.session, r, self.me)
            for r, secrets in own.items()
            for name, kind in _BY_KIND
        )

    def _recovery(self, own: Mapping[int, bytes], seeds: Bytes) -> bytes:
        """Return R of each number: all its seeds, for whoever rebuilds its e."""
        d, hidden = len(self.neighbours.clients), []
        for place, (r, secrets) in enumerate(own.items()):
            pad = recovery_pad(part(secrets, RECOVERY, KEY_BYTES), self.session, r, self.me, d)
            hidden.append((seeds[:, place] ^ pad).tobytes())
        return b"".join(hidden)

    def opened(self, block: Block, slots: Sequence[int], boxes: bytes) -> Block:
        """Open boxes; of one that came before the first counts.

        Args:
            block: what the client has of the block.
            slots: places among the neighbours whose boxes these are.
            boxes: their boxes, one after the other.

        Raises:
            PolicyError: a box does not open.
        """
        size, new, plain = box_bytes(len(self.numbers)), list[int](), []
        for place, slot in enumerate(slots):
            if not block.opened[slot]:
                new.append(slot)
                plain.append(self._opened(block, slot, part(boxes, place, size)))
        if not new:
            return block
        came = rows(b"".join(plain), SECRET_BYTES).reshape(len(new), -1, SECRET_BYTES)
        shares = dict(block.shares)
        for r, data in shares.items():
            kept = rows(data, SECRET_BYTES).copy()
            kept[new] = came[:, self.numbers.index(r)]
            shares[r] = kept.tobytes()
        opening = rows(block.opening, KEY_BYTES).copy()
        flags = np.frombuffer(block.opened, dtype=np.uint8).copy()
        opening[new], flags[new] = 0, 1
        return msgspec.structs.replace(
            block, shares=shares, opening=opening.tobytes(), opened=flags.tobytes()
        )

    def _opened(self, block: Block, slot: int, box: bytes) -> bytes:
        j, key = self.neighbours.clients[slot], part(block.opening, slot, KEY_BYTES)
        # Zeros stand where there was no key with this neighbour.
        if not any(key):
            raise PolicyError(f"box:{j}")
        try:
            return unseal(key, box, self._binding(j, self.me, self.neighbours.held[slot]))
        except CryptographyError:
            raise PolicyError(f"box:{j}") from None

    def _signed(self, sender: int, leaves: bytes) -> bytes:
        count = len(self.numbers)
        return prepared_data(
            self.session, self.slot.block, count, self.threshold, self.cohort, sender, leaves
        )

    def revealed(self, block: Block, message: LeafRequest, signer: bytes) -> bytes:
        """Return the key of a box that its sender signed, names this key for, and that the key does not open.

        Args:
            block: what the client has of the block.
            message: what the coordinator shows.
            signer: the sender's key of the fit.

        Raises:
            PolicyError: the sender signed no such thing, so that nothing is revealed, or the box opens.
            CryptographyError: the signature does not hold.
        """
        j, slot = message.sender, self.neighbours.clients.index(message.sender)
        verify(signer, message.signature, self._signed(j, message.leaves))
        held, key = self.neighbours.held[slot], part(block.opening, slot, KEY_BYTES)
        named = leaf(self.me, held, message.sealed_box, key_hash(key))
        if not equal(named, part(message.leaves, held - 1, KEY_BYTES)) or not any(key):
            raise PolicyError(f"leaf:{j}")
        try:
            unseal(key, message.sealed_box, self._binding(j, self.me, held))
        except CryptographyError:
            return key
        raise PolicyError("leaf:opens")

    def _binding(self, sender: int, holder: int, abscissa: int) -> bytes:
        where = (self.session, self.slot.block, len(self.numbers), sender, holder)
        return box_binding(*where, self.threshold, abscissa, self.cohort)
