"""Contributions that a sum showed, as a transcript keeps them: the values that differ from an earlier sum's.

From one round to the next most of the clients' clusters stay as they are, and most entries of histograms are
zero. So of each table of contributions only the values are kept that differ, bit for bit, from those of the
last table with the same shape, or from zero.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import msgspec
import numpy as np
import numpy.typing as npt

from privfed.core.asking.statistics import Layout, Statistics, StatisticsTable, table_of
from privfed.core.values.domain import FloatArray, frozen


class Shown(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A table of contributions.

    Args:
        clients: positions of the contributors, one a row of the table.
        size: number of its columns.
        changed: one bit a value, row by row: whether it differs; compressed by zlib.
        values: those that differ, little-endian float64.
        follows: index of the sum from whose table they differ; None for zeros.
    """

    clients: tuple[int, ...]
    size: int
    changed: bytes
    values: bytes
    follows: int | None

    def bits(self) -> npt.NDArray[np.bool_]:
        """Return whether each value differs, bool of shape (n_clients, size).

        Raises:
            ValueError: the record is damaged.
        """
        number = len(self.clients) * self.size
        try:
            packed = np.frombuffer(zlib.decompress(self.changed), dtype=np.uint8)
        except zlib.error:
            raise ValueError("bits of a table of contributions are damaged") from None
        found = np.unpackbits(packed, count=number).astype(np.bool_)
        if len(packed) != (number + 7) // 8 or len(self.values) != 8 * np.count_nonzero(found):
            raise ValueError("values of a table of contributions are missing, or too many")
        return found.reshape(len(self.clients), self.size)

    def check(self, index: int) -> None:
        """Check the contributions to the sum with this index.

        Raises:
            ValueError: they are damaged, or follow a later sum's.
        """
        self.bits()
        if self.follows is not None and self.follows >= index:
            raise ValueError("a table of contributions follows a later one")

    def applied_to(self, before: FloatArray | None) -> FloatArray:
        """Return the table, given the one that it follows."""
        bits = self.bits()
        table = np.zeros(bits.shape) if before is None else before.copy()
        if table.shape != bits.shape:
            raise ValueError("a table of contributions follows one of another shape")
        table[bits] = np.frombuffer(self.values, dtype="<f8")
        return frozen(table)


class ShownTables:
    """Packs tables of contributions as they come, and unpacks those of a transcript."""

    def __init__(self) -> None:
        self._packed: tuple[int, FloatArray] | None = None
        self._unpacked: tuple[int, FloatArray] | None = None

    def pack(self, index: int, contributions: Mapping[int, Statistics]) -> Shown:
        """Return the contributions to a sum with this index as they are kept."""
        vectors = table_of(list(contributions.values())).vectors
        follows, before = None, np.zeros(vectors.shape)
        if self._packed is not None and self._packed[1].shape == vectors.shape:
            follows, before = self._packed
        # Compared as integers: zeros have signs, and NaN differs from itself.
        changed = np.ascontiguousarray(vectors).view(np.int64) != before.view(np.int64)
        self._packed = index, vectors
        bits = zlib.compress(np.packbits(changed).tobytes(), 1)
        values = vectors[changed].astype("<f8", copy=False).tobytes()
        return Shown(tuple(contributions), vectors.shape[1], bits, values, follows)

    def unpack(self, index: int, kept: Mapping[int, Shown]) -> FloatArray:
        """Return the table of a sum, float64 of shape (n_clients, size).

        Args:
            index: of the sum.
            kept: index of each sum -> its contributions.

        Raises:
            KeyError: it follows a sum that is not there.
            ValueError: a record is damaged.
        """
        chain, at, table = list[Shown](), index, None
        while True:
            if self._unpacked is not None and self._unpacked[0] == at:
                table = self._unpacked[1]
                break
            kept[at].check(at)
            chain.append(kept[at])
            follows = kept[at].follows
            if follows is None:
                break
            at = follows
        for shown in reversed(chain):
            table = shown.applied_to(table)
        if table is None:
            raise ValueError("no contributions")
        self._unpacked = index, table
        return table


class Contributions(Mapping[int, Statistics]):
    """Contributions to a sum by client, unpacked when they are first looked at.

    Args:
        clients: positions of the contributors.
        layout: of the statistics.
        unpack: returns their table.
    """

    def __init__(self, clients: tuple[int, ...], layout: Layout, unpack: Callable[[], FloatArray]) -> None:
        self._places = {client: place for place, client in enumerate(clients)}
        self._layout, self._unpack = layout, unpack

    @cached_property
    def _table(self) -> StatisticsTable:
        return StatisticsTable(self._layout, self._unpack())

    def __getitem__(self, client: int) -> Statistics:
        return self._table[self._places[client]]

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
