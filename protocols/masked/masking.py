"""What a client makes for its neighbours under the header of a sum: masks of its answer, and receipts.

In a simulation a neighbour takes what both would compute (`privfed.protocols.crypto.shared`): the mask,
and the receipt that it would compute to check the one that it got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privfed.errors import PolicyError
from privfed.protocols.crypto.keys import KEY_BYTES, CryptographyError, mac, parsed
from privfed.protocols.crypto.keystream import Mask
from privfed.protocols.crypto.shared import APART, Shared, once
from privfed.protocols.masked.bindings import pair_mask_key, receipt_data, self_mask_key
from privfed.protocols.masked.state import Pair, Secrets
from privfed.protocols.setup.bindings import part


@dataclass(frozen=True, slots=True)
class BoundTo:
    """Holds what masks and receipts of one client are bound to.

    Args:
        session: the fit's session.
        number: number of the sum.
        me: the client's position.
        header: all that the sum is bound to.
        shared: in a simulation, what it would compute as others do.
    """

    session: bytes
    number: int
    me: int
    header: bytes
    shared: Shared = APART

    def masks(self, secrets: Secrets, prepared: Sequence[int], mask_keys: bytes) -> list[tuple[Mask, bool]]:
        """Return all masks of an answer, and whether each is added.

        Args:
            secrets: the client's own for this sum.
            prepared: the neighbours that are prepared.
            mask_keys: their public mask keys, in the same order.

        Raises:
            PolicyError: a key is unusable.
        """
        me, own, mine = self.me, parsed(secrets.mask), secrets.sent.mask_key
        held = self.shared.held("mask", self.session, self.number, self.header)
        masks = [(Mask(self_mask_key(secrets.seed, self.session, self.number, me, self.header)), True)]
        for place, j in enumerate(prepared):
            theirs = part(mask_keys, place, KEY_BYTES)
            ends = (me, mine, j, theirs) if me < j else (j, theirs, me, mine)
            try:
                masks.append((once(held, ends, partial(self._mask, own, theirs, j)), me < j))
            except CryptographyError:
                raise PolicyError(f"box:{j}") from None
        return masks

    def _mask(self, own: X25519PrivateKey, theirs: bytes, other: int) -> Mask:
        return Mask(pair_mask_key(own, theirs, self.session, self.number, self.me, other, self.header))

    def receipts(self, pairs: Mapping[int, Pair], prepared: Sequence[int]) -> bytes:
        """Return a receipt for each prepared neighbour, one after the other."""
        held, made = self.shared.held("receipt", self.number, self.header), []
        for j in prepared:
            key = pairs[j].receipt
            receipt = held[key, self.me, j] = mac(key, receipt_data(self.number, self.me, j, self.header))
            made.append(receipt)
        return b"".join(made)
