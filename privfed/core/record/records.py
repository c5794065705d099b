"""The records of a run's transcript and their form on disk; and views, which attacks get: one party's part.

A view has what one party saw, and never the clients' rows. A record is a JSON object a line. A large table of
answers lies in a file beside the transcript's lines.
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

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import Question, question_from_bytes, unknown_name
from privfed.core.asking.statistics import Statistics, table_of, unwire
from privfed.core.roles.conversation import Contributions, Total
from privfed.core.roles.secure_sum import COLLECT
from privfed.core.stored.encoding import Array
from privfed.core.stored.files import Format, open_file
from privfed.core.values.domain import FloatArray, frozen
from privfed.core.values.numbers import Count
from privfed.errors import MessageError, PolicyError, RunFolderError

FILE, VALUES = "transcript.jsonl", "transcript.values"
"""In a run's folder: the records, and large tables of answers."""

MODEL, CLIENTS, LOCAL, SCALING = "model.npz", "clients", "local", "scaling"
"""In a run's folder: the fitted model, what simulated clients keep, the clients' own runs by position,
and the run that found how rows are scaled."""

TRANSCRIPTS = Format(name=FILE, version=9, again="start a new run in another folder")

INLINE = 1 << 14
"""Most bytes of a table that is kept in the transcript's line itself."""

PACKED = 1 << 20
"""Most bytes of a table that is compressed: histograms shrink, and larger tables are updates of models."""


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
    """A table of the answers that a sum showed: little-endian float64, one client after the other.

    Args:
        clients: positions of the contributors, one a row of the table.
        size: number of its columns.
        length: number of its bytes as they are kept; tables up to `PACKED` are compressed by zlib.
        sha256: of these bytes, in hexadecimal digits; empty where no file has them.
        data: these bytes; empty where they are in the file.
        at: their position in the file; None where they are in `data`.
    """

    clients: tuple[int, ...]
    size: Count
    length: Count
    sha256: str
    data: bytes = b""
    at: Count | None = None

    @property
    def end(self) -> int:
        """Where it ends in the file; 0 where it is not there."""
        return 0 if self.at is None else self.at + self.length

    def check(self, clients: Collection[int], file_size: int) -> None:
        """Check all of a sum's table but its bytes, which are checked whenever they are read.

        Args:
            clients: the sum's contributors.
            file_size: bytes in the file.

        Raises:
            ValueError: it is damaged, or has other clients.
        """
        if set(self.clients) != set(clients) or len(self.clients) != len(clients):
            raise ValueError("a table of answers has other clients than the total")
        if self.end > file_size:
            raise ValueError("a table of answers is not in the file of values")

    def values(self, file: Path | None) -> FloatArray:
        """Return the table, float64 of shape (n_clients, size).

        Args:
            file: where large ones are kept.

        Raises:
            ValueError: its bytes are damaged, or not there.
        """
        found, n_bytes = self.data, 8 * len(self.clients) * self.size
        if self.at is not None and file is not None and file.exists():
            with file.open("rb") as opened:
                opened.seek(self.at)
                found = opened.read(self.length)
        if (self.sha256 or self.at is not None) and hashlib.sha256(found).hexdigest() != self.sha256:
            raise ValueError("a table of answers is damaged")
        try:
            # No more than these bytes are ever made of damaged ones.
            found = zlib.decompressobj().decompress(found, n_bytes + 1) if n_bytes <= PACKED else found
            return frozen(np.frombuffer(found, dtype="<f8").reshape(len(self.clients), self.size))
        except zlib.error:
            raise ValueError("a table of answers is damaged") from None


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


class Tables:
    """Writes tables of answers, large ones to a file.

    Args:
        file: where large ones are kept; None to keep all in the records.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.file = file

    def kept(self, answers: Mapping[int, Statistics]) -> Table:
        """Return the answers to a sum as they are kept; in a file they are durable."""
        table = answers.table if isinstance(answers, Contributions) else table_of(list(answers.values()))
        vectors = np.ascontiguousarray(table.vectors, dtype="<f8")
        # A view of bytes that are all its own, as a message's are, is not copied.
        owner = vectors.base.base if isinstance(vectors.base, np.ndarray) else vectors.base
        data = owner if isinstance(owner, bytes) and len(owner) == vectors.nbytes else vectors.tobytes()
        data = zlib.compress(data, 1) if vectors.nbytes <= PACKED else data
        digest = "" if self.file is None else hashlib.sha256(data).hexdigest()
        kept = Table(tuple(answers), vectors.shape[1], len(data), digest, data)
        if self.file is None or len(data) <= INLINE:
            return kept
        with open_file(self.file, "ab") as file:
            at: int = file.seek(0, os.SEEK_END)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return msgspec.structs.replace(kept, data=b"", at=at)

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
