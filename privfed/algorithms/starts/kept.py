"""A start total that an earlier fit on the same rows has opened, and from which later fits begin.

Cells of several fits cut each other into slivers of single rows. A fit that begins from the earlier one's
total asks about no cells. The agreement names that total by the fit and the number of its sum; each client
takes it from its own journal, where it keeps what it verified. The total itself is never sent again.

Reveals nothing that the earlier fit did not.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from privfed.core.asking.question import Question, question_from_bytes
from privfed.core.record.transcript import Transcript
from privfed.core.roles.conversation import EVERYONE, Total
from privfed.errors import ArgumentError
from privfed.questions.cells import SumsInPublicCells


@dataclass(frozen=True, kw_only=True)
class KeptStart:
    """Names a start total: what an agreement holds of it.

    Args:
        fit: digest of the configuration of the fit that asked for it, 64 hexadecimal digits.
        index: number of the sum in that fit.
    """

    fit: str
    index: int

    def __post_init__(self) -> None:
        digits = len(self.fit) == 64 and set(self.fit) <= set("0123456789abcdef")
        if not digits or type(self.index) is not int or not 0 <= self.index < 1 << 32:
            raise ArgumentError(
                "a kept start is named by 64 hexadecimal digits and the number of a sum, got "
                f"fit={self.fit!r}, index={self.index!r}."
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class StartTotal:
    """A start total as whoever drives fits has it: `init=` of a later fit on the same rows.

    Args:
        named: what agreements call it.
        clients: names of the clients in it.
        total: the counts and sums of its cells, over the clients in it.
        otherwise: start of a fit where a client lacks the total; it asks anew, and clients count it.
    """

    named: KeptStart
    clients: frozenset[str]
    total: Total
    otherwise: Literal["nested", "coreset"] = "nested"

    def __post_init__(self) -> None:
        if self.otherwise not in ("nested", "coreset"):
            raise ArgumentError(f'otherwise must be "nested" or "coreset", got {self.otherwise!r}.')

    def __repr__(self) -> str:
        # The total is what a fit opened: it belongs into no log.
        return f"StartTotal({self.named.fit[:8]}, sum {self.named.index})"

    @classmethod
    def of_run(cls, folder: str | Path, otherwise: Literal["nested", "coreset"] = "nested") -> Self:
        """Return the start total of the run that a folder holds.

        Raises:
            RunFolderError: the folder holds no readable run.
            ArgumentError: its fit asked for no start in cells, or had a guarantee of differential privacy.
        """
        return cls.of(Transcript.load(Path(folder)), otherwise)

    @classmethod
    def of(cls, transcript: Transcript, otherwise: Literal["nested", "coreset"] = "nested") -> Self:
        """Return the start total of a run; raises as `of_run`."""
        for asked, total in transcript.totals():
            if asked.cohort == EVERYONE and is_start(question_from_bytes(asked.question)):
                agreed = transcript.configuration
                named = KeptStart(fit=agreed.digest().hex(), index=asked.index)
                clients = frozenset(agreed.clients[i] for i in total.contributors)
                return cls(named=named, clients=clients, total=total, otherwise=otherwise)
        raise ArgumentError(
            "this fit asked about no cells of rows that a later one could start from: fit with "
            'init="coreset" or init="nested", without privacy=.'
        )


def is_start(question: Question) -> bool:
    """Say whether a question counts rows in the cells of a start, without noise."""
    return isinstance(question, SumsInPublicCells)
