"""Boxes: a client's shares for its neighbours, each sealed so that only that neighbour can open it.

A box also authenticates its sender's mask key and seed hash, the sum, the cohort and the threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from privfed.errors import PolicyError
from privfed.protocols.crypto.keys import KEY_BYTES, CryptographyError, seal, unseal
from privfed.protocols.crypto.shamir import Bytes
from privfed.protocols.crypto.shared import APART, Shared
from privfed.protocols.masked.bindings import box_key
from privfed.protocols.masked.messages import CollectRequest
from privfed.protocols.masked.state import BOX_BYTES, Pair
from privfed.protocols.setup.bindings import part
from privfed.protocols.setup.graph import Neighbours
from privfed.protocols.setup.rules import box_binding


@dataclass(frozen=True, slots=True)
class Boxes:
    """Makes and opens the boxes of one client for one sum.

    Args:
        pairs: the keys that the client shares with others, by their position.
        session: the fit's session.
        number: number of the sum.
        me: the client's position.
        threshold: t, how many shares open a secret in the cohort.
        cohort: H(Q), the cohort's digest.
        shared: in a simulation, what is in boxes that another client sealed.
    """

    pairs: Mapping[int, Pair]
    session: bytes
    number: int
    me: int
    threshold: int
    cohort: bytes
    shared: Shared = APART

    def sealed(self, mask_key: bytes, seed_hash: bytes, neighbours: Neighbours, shares: Bytes) -> bytes:
        """Return the boxes for all neighbours, one after the other.

        Args:
            mask_key: the client's public mask key for this sum.
            seed_hash: hash of the seed of its own mask.
            neighbours: who gets the boxes.
            shares: each neighbour's shares, uint8 of shape (d, SHARES_BYTES).
        """
        boxes, held = [], self.shared.held("box", self.session, self.number)
        for abscissa, (j, own) in enumerate(zip(neighbours.clients, shares, strict=True), start=1):
            pair = self.pairs.get(j)
            if pair is None:
                # This neighbour does not take part in the fit: an empty box of equal length holds its place.
                boxes.append(bytes(BOX_BYTES))
                continue
            data = self._binding(self.me, j, abscissa, mask_key, seed_hash)
            key, plain = box_key(pair, self.session, self.number, self.me, j), own.tobytes()
            box = seal(key, plain, data)
            held[box] = (pair.box, self.me, j, data), plain
            boxes.append(box)
        return b"".join(boxes)

    def opened(self, prepared: Sequence[int], held: Sequence[int], message: CollectRequest) -> bytes:
        """Open the box from each prepared neighbour, which also authenticates the neighbour's mask key.

        Args:
            prepared: positions of the prepared neighbours.
            held: the abscissa of this client's share of each neighbour's secrets.
            message: their boxes and keys, in the same order.

        Returns:
            The shares, SHARES_BYTES from each neighbour, concatenated.

        Raises:
            PolicyError: a box does not open.
        """
        opened, sealed = [], self.shared.held("box", self.session, self.number)
        for place, (j, abscissa) in enumerate(zip(prepared, held, strict=True)):
            mask_key = part(message.mask_keys, place, KEY_BYTES)
            seed_hash = part(message.seed_hashes, place, KEY_BYTES)
            if j not in self.pairs:
                raise PolicyError(f"box:{j}")
            data = self._binding(j, self.me, abscissa, mask_key, seed_hash)
            pair, box = self.pairs[j], part(message.boxes, place, BOX_BYTES)
            how, plain = sealed.pop(box, (None, b""))
            opened.append(plain if how == (pair.box, j, self.me, data) else self._opened(j, box, data))
        return b"".join(opened)

    def _opened(self, sender: int, box: bytes, data: bytes) -> bytes:
        key = box_key(self.pairs[sender], self.session, self.number, sender, self.me)
        try:
            return unseal(key, box, data)
        except CryptographyError:
            raise PolicyError(f"box:{sender}") from None

    def _binding(self, sender: int, holder: int, abscissa: int, mask_key: bytes, seed_hash: bytes) -> bytes:
        return box_binding(
            self.session,
            self.number,
            sender,
            holder,
            self.threshold,
            abscissa,
            self.cohort,
            mask_key,
            seed_hash,
        )
