"""The append-only record of a run, and the views that parties have of it.

It keeps questions, totals and plain answers in full; of masked or encrypted bytes, their length and hash. It
never holds a key or a seed of claimed noise. On disk it has one JSON record a line (`transcript.jsonl`), and
large tables of plain answers in a file beside it (`transcript.values`); only its owner may read them.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.statistics import Statistics, StatisticsTable, unwire, wire
from privfed.core.record import records
from privfed.core.record.records import SumView, View
from privfed.core.roles.conversation import Ask, Contributions, Total
from privfed.core.roles.secure_sum import COLLECT
from privfed.core.stored.encoding import Array
from privfed.core.stored.files import make_folder, open_file
from privfed.core.values.numbers import check_whole, check_word
from privfed.core.values.shown import as_table
from privfed.errors import ResumeError, RunFolderError

if TYPE_CHECKING:
    from privfed.core.roles.engine import Exchange, Replies

Kept = Literal["digests", "messages", "totals"]
"""What a transcript keeps of messages and answers."""


def has_begun(folder: Path) -> bool:
    """Say whether a run has begun in a folder, that is, whether its transcript has a complete first line.

    Nothing is agreed on or asked before that line is written, so that a new run may begin there.
    """
    try:
        with (folder / records.FILE).open("rb") as file:
            return file.readline().endswith(b"\n")
    except FileNotFoundError:
        return False


class Transcript:
    """The record of one run, in memory and, with a folder, on disk.

    Args:
        folder: where to keep `transcript.jsonl`; None keeps it in memory only.
        record: "digests"; "messages" to keep masked and encrypted bytes whole; or "totals" to keep, of the
            answers that a sum shows, their digests alone.
    """

    def __init__(self, folder: Path | None = None, record: Kept = "digests") -> None:
        self.records: list[records.AnyRecord] = []
        self._whole, self._shows = record == "messages", record != "totals"
        self._tables = records.Tables(None if folder is None else folder / records.VALUES)
        self._path = None if folder is None else folder / records.FILE

    _repr_html_ = as_table(
        lambda self: [
            ("asked for", "clients", "sums"),
            *(
                (*asked, sums)
                for asked, sums in Counter(
                    (one.purpose, len(one.clients)) for one in self.of(records.Asked)
                ).items()
            ),
        ]
    )

    @classmethod
    def load(cls, folder: str | Path, *, mend: bool = False, record: Kept = "digests") -> Transcript:
        """Read a run's transcript; a last line cut off by a crash is left out.

        Args:
            folder: the run's folder.
            mend: also cut the incomplete line off the file, so that the run can be resumed.
            record: how to record the messages that follow, as for the constructor.

        Raises:
            RunFolderError: there is no transcript, a line of it is damaged, its lines do not fit together,
                or this privfed cannot read its format.
        """
        folder = Path(folder)
        transcript, path = cls(folder, record), folder / records.FILE
        try:
            lines = path.read_bytes().splitlines(keepends=True)
        except OSError:
            raise RunFolderError(f"{folder} holds no {records.FILE}; name the folder of a run.") from None
        records.check_version(lines[:1], path)
        kept = 0
        for number, line in enumerate(lines, start=1):
            if number == len(lines) and not line.endswith(b"\n"):
                break
            try:
                read = records.decode(line)
                shown = read.contributions if isinstance(read, records.Summed) else None
                if shown is not None and shown.at is None:
                    shown.values(None)
            except (msgspec.MsgspecError, ValueError):
                raise RunFolderError(
                    f"{path}, line {number}, is damaged; restore the file or start anew."
                ) from None
            transcript.records.append(read)
            kept += len(line)
        if not transcript.records or not isinstance(transcript.records[0], records.Began):
            raise RunFolderError(f"{path} does not begin with a run's configuration; start anew.")
        transcript.totals()
        if mend:
            for one in (path, folder / records.VALUES):
                if one.is_symlink():
                    raise RunFolderError(f"{one} is a link, which is not written to; copy the file here.")
            make_folder(folder, ours=True)
            with open_file(path, "r+b") as file:
                file.truncate(kept)
            # A table is written before the line that refers to it, which a crash may have cut off.
            tables = (one.contributions for one in transcript.of(records.Summed))
            transcript._tables.cut(max((one.end for one in tables if one is not None), default=0))
        return transcript

    def _append(self, record: records.AnyRecord, durable: bool = False) -> None:
        self.records.append(record)
        if self._path is None:
            return
        with open_file(self._path, "ab") as file:
            file.write(records.encode(record) + b"\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())

    def begin(
        self,
        configuration: Configuration,
        recipient: str,
        reveals: str,
        answer_stages: tuple[str, ...] = (COLLECT,),
        by_author: bool = False,
    ) -> None:
        """Record the agreement of the run.

        Args:
            configuration: what the parties agreed on.
            recipient: who can read totals.
            reveals: what the opener sees.
            answer_stages: names of the stages in which clients answer.
            by_author: whether the secure sum is not privfed's own.

        Raises:
            RunFolderError: a run has begun in the folder.
        """
        if self._path is not None:
            if has_begun(self._path.parent):
                raise RunFolderError(
                    f"{self._path.parent} already holds a run; resume it or name another folder."
                )
            # A crash may have left an incomplete first line, which records no agreement.
            self._path.unlink(missing_ok=True)
            self._path.with_name(records.VALUES).unlink(missing_ok=True)
            make_folder(self._path.parent)
        self._append(
            records.Began(
                version=records.TRANSCRIPTS.version,
                configuration=configuration,
                recipient=recipient,
                reveals=reveals,
                answer_stages=answer_stages,
                by_author=by_author,
            ),
            durable=True,
        )

    def check_agreement(self, configuration: Configuration) -> None:
        """Check that the run has this configuration; how many clients may be lost may be another number.

        Raises:
            ResumeError: it has another one.
        """
        terms = msgspec.structs.replace(self.configuration.terms, losses=configuration.terms.losses)
        if msgspec.structs.replace(self.configuration, terms=terms) != configuration:
            raise ResumeError(
                "the transcript is of another run: clients, parameters and protocol must be the same. Resume "
                "it with those that it began with, or begin a new run in another folder."
            )

    def asked(self, index: int, ask: Ask, clients: tuple[int, ...]) -> None:
        """Record a question before it is sent; under differential privacy it is on disk by then."""
        self._append(
            records.Asked(
                index=index,
                question=ask.question.to_bytes(),
                cohort=ask.cohort,
                clients=clients,
                purpose=ask.purpose,
            ),
            durable=self.configuration.privacy is not None,
        )

    def exchanged(self, index: int, exchange: Exchange, replies: Replies) -> None:
        """Record one exchange."""
        down, up = self._sent(exchange.requests.items()), self._sent(replies)
        self._append(
            records.Exchanged(index=index, stage=exchange.stage, number=exchange.number, down=down, up=up)
        )

    def _sent(self, messages: Iterable[tuple[int, bytes]]) -> tuple[records.Sent, ...]:
        sent, last, digest = list[records.Sent](), None, ""
        for client, data in messages:
            # Requests are often one object, sent to all.
            if data is not last:
                last, digest = data, hashlib.sha256(data).hexdigest()
            sent.append(records.Sent(client, len(data), digest, data if self._whole else None))
        return tuple(sent)

    def summed(self, index: int, total: Total) -> None:
        """Record an opened total; on disk it is durable when this returns."""
        shown = total.contributions if self._shows else None
        self._append(
            records.Summed(
                index=index,
                statistics=wire(total.statistics),
                contributors=total.contributors,
                dropped=dict(total.dropped),
                clipped=total.clipped,
                rejected=dict(total.rejected),
                contributions=self._tables.kept(shown) if shown else None,
                attempts=total.attempts,
            ),
            durable=True,
        )

    def relayed(self, index: int, data: bytes) -> None:
        """Record what a session keeps of a sum (`Relays`), before anything is sent because of it."""
        self._append(records.Relayed(index=index, data=data), durable=True)

    def recalled(self) -> list[bytes]:
        """Return what sessions kept, in order."""
        return [one.data for one in self.of(records.Relayed)]

    def ended(self, result: Mapping[str, Array]) -> None:
        """Record the public result."""
        self._append(records.Ended(result=dict(result)), durable=True)

    @property
    def configuration(self) -> Configuration:
        """What the parties agreed on."""
        return self._began().configuration

    def _began(self) -> records.Began:
        if not self.records or not isinstance(self.records[0], records.Began):
            raise RunFolderError("the transcript is empty: no run has begun.")
        return self.records[0]

    def of(self, kind: type[records.RecordType]) -> list[records.RecordType]:
        """Return the records of one type, in order."""
        return [record for record in self.records if isinstance(record, kind)]

    def totals(self) -> list[tuple[records.Asked, Total]]:
        """Return each opened sum, in order, with the question that asked for it."""
        asked = self._asked()
        file_size = self._tables.file_size
        try:
            sums = self.of(records.Summed)
            if len({one.index for one in sums}) < len(sums):
                raise ValueError("the same sum twice")
            for record in sums:
                self._check(record, file_size)
            return [(asked[r.index], records.total_of(r, self._contributions(r))) for r in sums]
        except (KeyError, ValueError):
            raise self._damaged("its lines do not fit together") from None

    def _check(self, record: records.Summed, file_size: int) -> None:
        """Check a sum's clients, and its contributions as far as that needs no table."""
        known = range(len(self.configuration.clients))
        if len(record.contributors) > len({i for i in record.contributors if i in known}):
            raise ValueError("contributors that are no clients, or the same twice")
        if not 1 <= record.attempts <= 1 + self.configuration.terms.repeats:
            raise ValueError("more attempts than were agreed on")
        if record.contributions is not None:
            record.contributions.check(record.contributors, file_size)

    def _damaged(self, why: str) -> RunFolderError:
        return RunFolderError(f"{self._path or 'the transcript'} is damaged: {why}; start anew.")

    def _contributions(self, record: records.Summed) -> Mapping[int, Statistics] | None:
        """Return the contributions to a sum, where it showed them and they were kept."""
        table = record.contributions
        if table is None:
            return None
        layout = tuple((name, array.shape) for name, array in record.statistics.items())
        if sum(prod(shape) for _, shape in layout) != table.size:
            raise ValueError("contributions of another layout than the total")

        def read() -> StatisticsTable:
            try:
                return StatisticsTable(layout, table.values(self._tables.file))
            except ValueError:
                raise self._damaged(
                    f"the answers to sum {record.index} are not those that were written"
                ) from None

        return Contributions(table.clients, read)

    def _asked(self) -> dict[int, records.Asked]:
        """Return the last question of each index, since a resumed run repeats an interrupted sum."""
        return {record.index: record for record in self.of(records.Asked)}

    def view(self, party: str = "server", colluding: Iterable[int] = ()) -> View:
        """Return what one party saw of the run.

        Where clients open the totals, the transcript is kept on their side. The server alone saw none of its
        questions and totals. Every client saw all of them, including those of sums without it. Otherwise
        a client saw the questions to its cohorts; with verified totals, also the other questions and all
        totals. Encrypted answers are not in the view, although with one
        key for all clients (`ckks`) a server with a colluder could decrypt each of them.

        Args:
            party: "server", "observer" (who sees the final model only) or "clients" (what the
                colluding clients see together).
            colluding: positions of clients that tell the party all they know.

        Returns:
            The view. It has the colluders' own statistics where the sum showed them; otherwise the
            attacker, who has its colluders' data, can compute them from the questions in the view.
        """
        check_word("party", party, ("server", "observer", "clients"))
        began, given = self._began(), list(colluding)
        for i, one in enumerate(given):
            check_whole(f"colluding[{i}]", one, 0, len(began.configuration.clients) - 1)
        colluders = tuple(sorted(set(given)))
        ended = self.of(records.Ended)
        result = {name: array.to_numpy() for name, array in ended[-1].result.items()} if ended else {}
        if party == "observer" and not colluders:
            return View("observer", (), began.configuration.clients, (), result)
        server, opens = party == "server", began.recipient == "clients"
        all_read = opens or began.configuration.terms.verified
        reads_totals = began.recipient == party or (all_read and (party == "clients" or bool(colluders)))
        # Where clients open totals, they derive the questions themselves: a server only relays messages.
        sums = tuple(
            self._sum_view(r, server, reads_totals, reads_totals or (server and not opens), colluders)
            for r in self._asked().values()
        )
        return View(
            party, colluders, began.configuration.clients, sums, result if reads_totals or not opens else {}
        )

    def _sum_view(
        self,
        asked: records.Asked,
        server: bool,
        reads_totals: bool,
        reads_questions: bool,
        colluders: tuple[int, ...],
    ) -> SumView:
        summed = next((one for one in self.of(records.Summed) if one.index == asked.index), None)
        asks = reads_questions or not set(asked.clients).isdisjoint(colluders)
        answers = (None if summed is None else self._contributions(summed)) or {}
        if not server:
            answers = {i: answers[i] for i in colluders if i in answers}
        return SumView(
            index=asked.index,
            purpose=asked.purpose if asks else "",
            question=records.question_of(asked) if asks else None,
            cohort=asked.clients,
            contributors=summed.contributors if summed and (server or reads_totals) else (),
            total=unwire(summed.statistics) if summed and reads_totals else None,
            answers=answers,
            upload_bytes=self._upload_bytes(asked.index) if server else {},
        )

    def _upload_bytes(self, index: int) -> dict[int, int]:
        sizes: dict[int, int] = {}
        for sent in (one for r in self.of(records.Exchanged) if r.index == index for one in r.up):
            sizes[sent.client] = sizes.get(sent.client, 0) + sent.size
        return sizes
