"""Contributions that a sum showed, as a transcript keeps them: the values that differ from an earlier sum's.

From one round to the next most of the clients' clusters stay as they are, and most entries of histograms are
zero. So of each table of contributions only the values are kept that differ, bit for bit, from those of the
last table with the same shape, or from zero; compressed (`privfed.core.record.planes`), and where they are
many, in a file beside the transcript's lines (`privfed.core.record.values`).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from privfed.core.asking.statistics import Contributions, Statistics, table_of
from privfed.core.record.planes import N_PLANES, cut, inflated, planes_of, values_of
from privfed.core.record.values import ValuesFile
from privfed.core.values.domain import FloatArray, frozen

INLINE = 1 << 14
"""Most bytes of a table that stand in the transcript's line itself."""


class Shown(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A table of contributions.

    Args:
        clients: positions of the contributors, one a row of the table.
        size: number of its columns.
        changed: in format 4 one bit a value, row by row: whether it differs; compressed by zlib.
        values: those bits and eight planes of the values that differ, or nothing where these are in the file;
            in format 4 the values, little-endian float64.
        follows: index of the sum from whose table they differ; None for zeros.
        lengths: bytes of the bits and of each plane; None in format 4.
        sha256: of all of them, in hexadecimal digits.
        at: their position in the file; None where they are in `values`.
    """

    clients: tuple[int, ...]
    size: int
    changed: bytes
    values: bytes
    follows: int | None
    lengths: tuple[int, ...] | None = None
    sha256: str = ""
    at: int | None = None

    @property
    def end(self) -> int:
        """Where it ends in the file; 0 where it is not there."""
        return 0 if self.at is None else self.at + sum(self.lengths or ())

    def check(self, index: int, clients: Collection[int], held: int) -> None:
        """Check the contributions to the sum with this index, as far as that needs no table.

        Args:
            index: of the sum.
            clients: its contributors.
            held: bytes in the file.

        Raises:
            ValueError: they are damaged, follow a later sum's, or are other clients'.
        """
        if self.follows is not None and not 0 <= self.follows < index:
            raise ValueError("a table of contributions follows a later one")
        if self.size < 0 or set(self.clients) != set(clients) or len(self.clients) != len(clients):
            raise ValueError("a table of contributions has other clients than the total")
        if self.lengths is None:
            self._plain_values()
        elif len(self.lengths) != 1 + N_PLANES or min(self.lengths) < 0:
            raise ValueError("a table of contributions has other parts")
        elif self.at is None:
            self._body(None)
        elif self.at < 0 or self.end > held:
            raise ValueError("a table of contributions is not in the file of values")

    def _bits(self, packed: bytes) -> npt.NDArray[np.bool_]:
        """Return whether each value differs, bool of shape (n_clients, size)."""
        number = len(self.clients) * self.size
        bits = np.frombuffer(inflated(packed, (number + 7) // 8), dtype=np.uint8)
        return np.unpackbits(bits, count=number).astype(np.bool_).reshape(len(self.clients), self.size)

    def _plain_values(self) -> tuple[npt.NDArray[np.bool_], FloatArray]:
        """Return the bits and values of format 4."""
        bits = self._bits(self.changed)
        if len(self.values) != 8 * np.count_nonzero(bits):
            raise ValueError("values of a table of contributions are missing, or too many")
        return bits, np.frombuffer(self.values, dtype="<f8")

    def _body(self, file: ValuesFile | None) -> bytes:
        body = self.values
        if self.at is not None:
            if file is None:
                raise ValueError("a table of contributions is in a file that is not there")
            body = file.read(self.at, sum(self.lengths or ()))
        if hashlib.sha256(body).hexdigest() != self.sha256 or len(body) != sum(self.lengths or ()):
            raise ValueError("a table of contributions is damaged")
        return body

    def applied_to(self, before: FloatArray | None, file: ValuesFile | None) -> FloatArray:
        """Return the table, given the one that it follows, and the file of values."""
        shape = (len(self.clients), self.size)
        if before is not None and before.shape != shape:
            raise ValueError("a table of contributions follows one of another shape")
        if self.lengths is None:
            bits, values = self._plain_values()
        else:
            packed, *planes = cut(self._body(file), self.lengths)
            bits = self._bits(packed)
            earlier = np.zeros(np.count_nonzero(bits)) if before is None else before[bits]
            values = values_of(planes, earlier)
        table = np.zeros(shape) if before is None else before.copy()
        table[bits] = values
        return frozen(table)


class ShownTables:
    """Packs tables of contributions as they come, and unpacks those of a transcript.

    Args:
        file: where large ones are kept; None to keep all in the records.
    """

    def __init__(self, file: ValuesFile | None = None) -> None:
        self.file = file
        self._packed: tuple[int, FloatArray] | None = None
        self._unpacked: tuple[int, FloatArray] | None = None

    def pack(self, index: int, contributions: Mapping[int, Statistics]) -> Shown:
        """Return the contributions to a sum with this index as they are kept."""
        if isinstance(contributions, Contributions):
            vectors = contributions.table.vectors
        else:
            vectors = table_of(list(contributions.values())).vectors
        follows, before = None, np.zeros(vectors.shape)
        if self._packed is not None and self._packed[1].shape == vectors.shape:
            follows, before = self._packed
        # Compared as integers: zeros have signs, and NaN differs from itself.
        changed = np.ascontiguousarray(vectors).view(np.int64) != before.view(np.int64)
        self._packed = index, vectors
        parts = [
            zlib.compress(np.packbits(changed).tobytes(), 1),
            *planes_of(vectors[changed], before[changed]),
        ]
        body = b"".join(parts)
        kept = Shown(
            clients=tuple(contributions),
            size=vectors.shape[1],
            changed=b"",
            values=body,
            follows=follows,
            lengths=tuple(map(len, parts)),
            sha256=hashlib.sha256(body).hexdigest(),
        )
        if self.file is None or len(body) <= INLINE:
            return kept
        return msgspec.structs.replace(kept, values=b"", at=self.file.append(body))

    def unpack(self, index: int, kept: Mapping[int, Shown]) -> FloatArray:
        """Return the table of a sum, float64 of shape (n_clients, size).

        Args:
            index: of the sum.
            kept: index of each sum -> its contributions, as checked.

        Raises:
            KeyError: it follows a sum that is not there.
            ValueError: a record is damaged, or the file of values is.
        """
        chain, at, table = list[Shown](), index, None
        while True:
            if self._unpacked is not None and self._unpacked[0] == at:
                table = self._unpacked[1]
                break
            chain.append(kept[at])
            follows = kept[at].follows
            if follows is None:
                break
            at = follows
        for shown in reversed(chain):
            table = shown.applied_to(table, self.file)
        if table is None:
            raise ValueError("no contributions")
        self._unpacked = index, table
        return table
