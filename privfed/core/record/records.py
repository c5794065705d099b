"""The records of a run's transcript, one JSON object a line on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from privfed.core.agreed.assumptions import COLLECT
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import Question, question_from_bytes, unknown_name
from privfed.core.asking.statistics import Statistics
from privfed.core.record.shown import Shown
from privfed.core.roles.conversation import Total
from privfed.core.stored.formats import Format
from privfed.core.stored.messages import Array
from privfed.errors import MessageError, RunFolderError

FORMAT = 5
"""Format of transcripts. The agreement of format 1 named no number of clusters; format 2 named no stages in
which clients answer, for all sums of that time had one of the same name; format 3 kept each contribution by
itself, as text; format 4 kept them uncompressed, in the lines."""

TRANSCRIPTS = Format(name="transcript.jsonl", version=FORMAT, again="start a new run in another folder")

RESUMED_FROM = 2
"""Oldest format of a run that can be resumed."""


Kind = TypeVar("Kind")


class Record(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the records."""


class Began(Record, frozen=True):
    """A run began: what the parties agreed on, who opens its totals, and in which stages clients answer."""

    version: int
    configuration: Configuration
    opens_to: str
    reveals: str
    answer_stages: tuple[str, ...] = (COLLECT,)

    def check_format(self, path: Path, *, resumes: bool) -> None:
        """Check that this privfed can read a run of this format and, with `resumes`, resume it.

        Raises:
            RunFolderError: it cannot.
        """
        TRANSCRIPTS.check(self.version, path)
        if resumes and self.version < RESUMED_FROM:
            raise RunFolderError(
                f"{path} has format {self.version}, of an older privfed: its clients agreed on no number of "
                "clusters, so that this version cannot resume the run. Finish it with the older version, or "
                "start a new run in another folder."
            )


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


class Summed(Record, frozen=True):
    """A sum was opened."""

    index: int
    statistics: dict[str, Array]
    contributors: tuple[int, ...]
    dropped: dict[int, str]
    clipped: int
    rejected: dict[int, str]
    contributions: dict[int, dict[str, Array]] | Shown | None = None
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


def wire(statistics: Statistics) -> dict[str, Array]:
    """Return statistics as a record holds them."""
    return {name: Array.of(array) for name, array in statistics.items()}


def unwire(arrays: Mapping[str, Array]) -> Statistics:
    """Return the statistics that a record holds."""
    return Statistics(**{name: array.to_numpy() for name, array in arrays.items()})


def question_of(asked: Asked) -> Question:
    """Return the question that was sent.

    Raises:
        RunFolderError: it is damaged, of a newer privfed, or of a class that is not imported here.
    """
    try:
        return question_from_bytes(asked.question)
    except MessageError:
        name = unknown_name(asked.question)
    if name is not None:
        raise RunFolderError(
            f"sum {asked.index} asked {name[:100]!r}, which this privfed does not know: if it belongs to an "
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
