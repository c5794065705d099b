"""The records of a run's transcript and their form on disk; and views, which attacks get: one party's part.

A view has what one party saw, and never the clients' rows. A record is a JSON object a line, and tables of
answers lie beside them. From one round to the next most of the clients' clusters stay as they are. So a
table of answers is kept as its exclusive or with the last table of the same shape, or with zeros, compressed
by zlib. Where that hardly pays, as of updates, it is kept as it is. A large one lies in a file beside the
transcript's lines. Decision 025 has the measurement.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import Question, question_from_bytes, unknown_name
from privfed.core.asking.statistics import Statistics, table_of, unwire
from privfed.core.roles.conversation import Contributions, Total
from privfed.core.roles.secure_sum import COLLECT
from privfed.core.stored.encoding import Array
from privfed.core.stored.files import Format, open_file
from privfed.core.values.domain import FloatArray, frozen
from privfed.errors import MessageError, PolicyError, RunFolderError

FILE, VALUES = "transcript.jsonl", "transcript.values"
"""In a run's folder: the records, and large tables of answers."""

MODEL, CLIENTS, LOCAL = "model.npz", "clients", "local"
"""In a run's folder: the fitted model, what simulated clients keep, and the clients' own runs by position."""

TRANSCRIPTS = Format(name=FILE, version=8, again="start a new run in another folder")

INLINE = 1 << 14
"""Most bytes of a table that is kept in the transcript's line itself."""

RecordType = TypeVar("RecordType")


class Record(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the records."""


class Began(Record, frozen=True):
    """A run began: what the parties agreed on, who opens its totals, and in which stages clients answer.

    `by_author` says that the secure sum is not privfed's own: what it says of itself, only its author says.
    """

    version: int
    configuration: Configuration
    recipient: str
    reveals: str
    answer_stages: tuple[str, ...] = (COLLECT,)
    by_author: bool = False


class Asked(Record, frozen=True):
    """A question was sent."""

    index: int
    question: bytes
    cohort: int
    clients: tuple[int, ...]
    purpose: str


class Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """One message: its client, its length in bytes, its SHA-256, and with record="messages" its bytes."""

    client: int
    size: int
    sha256: str
    data: bytes | None = None


class Exchanged(Record, frozen=True):
    """One exchange: requests down to the clients, replies up from them."""

    index: int
    stage: str
    number: int
    down: tuple[Sent, ...]
    up: tuple[Sent, ...]


class Table(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A packed table of the answers that a sum showed.

    Args:
        clients: positions of the contributors, one a row of the table.
        size: number of its columns.
        follows: index of the sum with whose table it was combined; None for zeros.
        length: number of its packed bytes.
        sha256: of these bytes, in hexadecimal digits.
        data: these bytes; empty where they are in the file.
        at: their position in the file; None where they are in `data`.
        packed: whether they are compressed; else they are the table itself, little-endian float64.
    """

    clients: tuple[int, ...]
    size: int
    follows: int | None
    length: int
    sha256: str
    data: bytes = b""
    at: int | None = None
    packed: bool = True

    @property
    def end(self) -> int:
        """Where it ends in the file; 0 where it is not there."""
        return 0 if self.at is None else self.at + self.length

    def check(self, index: int, clients: Collection[int], file_size: int) -> None:
        """Check all of a sum's table that needs no other table.

        Args:
            index: of the sum.
            clients: its contributors.
            file_size: bytes in the file.

        Raises:
            ValueError: it is damaged, follows a later sum's, or has other clients.
        """
        if self.follows is not None and not 0 <= self.follows < index:
            raise ValueError("a table of answers follows a later one")
        if self.size < 0 or set(self.clients) != set(clients) or len(self.clients) != len(clients):
            raise ValueError("a table of answers has other clients than the total")
        if self.at is None:
            self._bytes(None)
        elif self.at < 0 or self.length < 0 or self.end > file_size:
            raise ValueError("a table of answers is not in the file of values")

    def _bytes(self, file: Path | None) -> bytes:
        packed = self.data
        if self.at is not None and file is not None and file.exists():
            with file.open("rb") as opened:
                opened.seek(self.at)
                packed = opened.read(self.length)
        if len(packed) != self.length or hashlib.sha256(packed).hexdigest() != self.sha256:
            raise ValueError("a table of answers is damaged")
        return packed

    def unpacked(self, file: Path | None) -> npt.NDArray[np.int64]:
        """Return the bits that its bytes hold, int64 of shape (n_clients, size).

        Raises:
            ValueError: the bytes are damaged, or not there.
        """
        size, bits = 8 * len(self.clients) * self.size, self._bytes(file)
        if self.packed:
            found = zlib.decompressobj()
            try:
                # No more than these bytes are ever made of damaged ones.
                bits = found.decompress(bits, size + 1)
            except zlib.error:
                raise ValueError("a table of answers is damaged") from None
            if not found.eof or found.unused_data:
                raise ValueError("a table of answers has another size")
        if len(bits) != size:
            raise ValueError("a table of answers has another size")
        return np.frombuffer(bits, dtype="<i8").reshape(len(self.clients), self.size)


class Summed(Record, frozen=True):
    """A sum was opened."""

    index: int
    statistics: dict[str, Array]
    contributors: tuple[int, ...]
    dropped: dict[int, str]
    clipped: int
    rejected: dict[int, str]
    contributions: Table | None = None
    attempts: int = 1


class Relayed(Record, frozen=True):
    """What the coordinator keeps of a sum besides its total, to bring it to clients from another process."""

    index: int
    data: bytes


class Ended(Record, frozen=True):
    """The run ended with this public result."""

    result: dict[str, Array]


AnyRecord = Began | Asked | Exchanged | Summed | Relayed | Ended
decode = msgspec.json.Decoder(AnyRecord).decode
encode = msgspec.json.Encoder().encode


_SAMPLES, _SAMPLED = 16, 1 << 12
"""Pieces of a large table that are tried first, and the bytes of each."""

_WORTH = 0.25
"""Part of the bytes that must not be left over for compression to be worth its time. Of float32 .5 is."""


def _shrinks(bits: npt.NDArray[np.int64], before: npt.NDArray[np.int64] | None) -> bool:
    """Say whether compression of a table, combined with the one before, pays: of pieces of a large one."""
    if bits.nbytes <= _SAMPLES * _SAMPLED:
        return True
    starts = range(0, bits.size - _SAMPLED // 8 + 1, (bits.size - _SAMPLED // 8) // (_SAMPLES - 1))
    places = np.add.outer(np.array(starts), np.arange(_SAMPLED // 8)).ravel()
    pieces = bits.ravel()[places] if before is None else bits.ravel()[places] ^ before.ravel()[places]
    return bool(len(zlib.compress(pieces.tobytes(), 1)) < _WORTH * pieces.nbytes)


def _held(bits: npt.NDArray[np.int64]) -> bytes:
    """Return the bytes of a table in C order: those that it is a view of, if they are all its own."""
    owner: object = bits
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, bytes) and len(owner) == bits.nbytes else bits.tobytes()


class Tables:
    """Packs tables of answers as they come, and unpacks those of a transcript.

    Args:
        file: where large ones are kept; None to keep all in the records.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self._packed: tuple[int, npt.NDArray[np.int64]] | None = None
        self._unpacked: tuple[int, npt.NDArray[np.int64]] | None = None

    def pack(self, index: int, answers: Mapping[int, Statistics]) -> Table:
        """Return the answers to a sum with this index as they are kept; in a file they are durable."""
        table = answers.table if isinstance(answers, Contributions) else table_of(list(answers.values()))
        # Combined as integers: zeros have signs, and NaN differs from itself.
        bits = np.ascontiguousarray(table.vectors, dtype="<f8").view(np.int64)
        follows, before = None, None
        if self._packed is not None and self._packed[1].shape == bits.shape:
            follows, before = self._packed
        self._packed, packed = (index, bits), _shrinks(bits, before)
        data = zlib.compress((bits if before is None else bits ^ before).data, 1) if packed else _held(bits)
        follows, hashed = follows if packed else None, hashlib.sha256(data).hexdigest()
        kept = Table(tuple(answers), bits.shape[1], follows, len(data), hashed, data, packed=packed)
        if self.file is None or len(data) <= INLINE:
            return kept
        with open_file(self.file, "ab") as file:
            at: int = file.seek(0, os.SEEK_END)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return msgspec.structs.replace(kept, data=b"", at=at)

    def unpack(self, index: int, kept: Mapping[int, Table]) -> FloatArray:
        """Return the table of a sum, float64 of shape (n_clients, size).

        Args:
            index: of the sum.
            kept: index of each sum -> its table, as checked.

        Raises:
            KeyError: it follows a sum that is not there.
            ValueError: a record is damaged, or the file of values is.
        """
        chain, at = [kept[index]], kept[index].follows
        while at is not None and (self._unpacked is None or self._unpacked[0] != at):
            chain.append(kept[at])
            at = kept[at].follows
        bits = np.zeros((len(chain[-1].clients), chain[-1].size), np.int64)
        if at is not None and self._unpacked is not None:
            bits = self._unpacked[1]
        for table in reversed(chain):
            if bits.shape != (len(table.clients), table.size):
                raise ValueError("a table of answers follows one of another shape")
            bits = bits ^ table.unpacked(self.file)
        self._unpacked = index, bits
        return frozen(bits.view(np.float64))

    @property
    def file_size(self) -> int:
        """Length of the file in bytes; 0 where there is none."""
        return self.file.stat().st_size if self.file is not None and self.file.exists() else 0

    def cut(self, size: int) -> None:
        """Cut the file behind its first `size` bytes: no line refers to the rest."""
        if self.file is not None and self.file_size > size:
            with open_file(self.file, "r+b") as file:
                file.truncate(size)


class _Versioned(msgspec.Struct):
    """The part of a transcript's first line that every format has."""

    version: int


_version = msgspec.json.Decoder(_Versioned).decode


def check_version(first: Sequence[bytes], path: Path) -> None:
    """Check that this privfed reads the format of a transcript, given its first line, or none.

    Raises:
        RunFolderError: it does not.
    """
    for line in first:
        with suppress(msgspec.MsgspecError, ValueError):
            TRANSCRIPTS.check(_version(line).version, path)


def question_of(asked: Asked) -> Question:
    """Return the question that was sent.

    Raises:
        RunFolderError: it is damaged, of a newer privfed, or of a class that is not imported here, or it
            costs more than any client gives.
    """
    try:
        return question_from_bytes(asked.question)
    except (MessageError, PolicyError):
        name = unknown_name(asked.question)
    if name is not None:
        raise RunFolderError(
            f"sum {asked.index} asked {name[:100]!r}, which this privfed does not know. If it belongs to an "
            "algorithm or a metric of yours, import its module before; else use the privfed that wrote it."
        )
    raise RunFolderError(f"the question of sum {asked.index} is damaged, or of a newer privfed.")


def total_of(record: Summed, contributions: Mapping[int, Statistics] | None) -> Total:
    """Return the total that was opened, with the contributions that it showed."""
    return Total(
        statistics=unwire(record.statistics),
        contributors=record.contributors,
        dropped=record.dropped,
        clipped=record.clipped,
        rejected=record.rejected,
        contributions=contributions,
        attempts=record.attempts,
    )


@dataclass(frozen=True, slots=True)
class SumView:
    """Holds what a party saw of one sum.

    Args:
        index: index of the sum in the run.
        purpose: what it was for ("range", "start", "round", "score"); empty where the question is None.
        question: what was asked; None for a server that only relays (clients open the totals), and for
            clients outside the cohort.
        cohort: positions of the clients that were asked.
        contributors: positions of the clients in the sum; empty for a party that cannot tell.
        total: the opened total; None for a party that cannot read it.
        answers: position -> statistics, for the clients whose answers the party saw.
        upload_bytes: position -> bytes that the client sent; empty unless the party is the server.
    """

    index: int
    purpose: str
    question: Question | None
    cohort: tuple[int, ...]
    contributors: tuple[int, ...]
    total: Statistics | None
    answers: Mapping[int, Statistics]
    upload_bytes: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class View:
    """Holds what a party, together with its colluders, saw of a run.

    Args:
        party: "server", "observer" or "clients".
        colluding: positions of the clients that tell the party all they know.
        clients: names of all clients, by position.
        sums: what it saw of each sum, in order.
        result: name -> array of the result ("centers"), once the run has ended; where clients open the
            totals, the server has it only from a colluder.
    """

    party: str
    colluding: tuple[int, ...]
    clients: tuple[str, ...]
    sums: tuple[SumView, ...]
    result: Mapping[str, FloatArray]
