"""What a client makes with its neighbours under the header of a sum: masks of its answer, and receipts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privfed.protocols.crypto.fixed_point import Layout, Words
from privfed.protocols.crypto.keystream import Masker
from privfed.protocols.masked.bindings import (
    BOTH_RECEIPTS,
    pair_prefix,
    pair_streams,
    receipt_from,
    self_stream,
)


@dataclass(frozen=True, slots=True)
class Masking:
    """Holds the masks of one client in one sum, and the receipts of both ways.

    Args:
        masks: its own mask, then one for each prepared neighbour.
        adds: whether each is added.
        made: its receipts for these neighbours, one after the other.
        expected: those that they make for it, if they mask under the same header.
    """

    masks: tuple[bytes, ...]
    adds: tuple[bool, ...]
    made: bytes
    expected: bytes

    def __repr__(self) -> str:
        return "Masking(...)"

    def apply(self, words: Words, layout: Layout) -> None:
        """Mask an answer in place."""
        Masker(layout).apply(words, self.masks, np.array(self.adds))


def masking(
    session: bytes,
    number: int,
    me: int,
    header: bytes,
    own: bytes,
    prepared: Sequence[int],
    seeds: bytes,
    size: int,
) -> Masking:
    """Return the masks and receipts of a client.

    Args:
        session: the fit's session.
        number: number of the sum.
        me: the client's position.
        header: H, all that the sum is bound to.
        own: its secret b, 32 bytes.
        prepared: positions of the neighbours that are prepared.
        seeds: its secrets with them, in the same order, 32 bytes each.
        size: words of an answer.
    """
    masks, made, expected = [self_stream(own, session, number, me, header, size)], [], []
    streams = pair_streams(seeds, pair_prefix(header), me, prepared, size)
    for j, stream in zip(prepared, streams, strict=True):
        made.append(stream[receipt_from(me, j)])
        expected.append(stream[receipt_from(j, me)])
        masks.append(stream[BOTH_RECEIPTS:])
    adds = (True, *[me < j for j in prepared])
    return Masking(tuple(masks), adds, b"".join(made), b"".join(expected))
