"""One fit in a party's journal: the stores of its client, what it has answered and lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from privfed.core.asking.question import Question, parts_of, wire_name
from privfed.core.asking.statistics import Statistics
from privfed.core.roles.engine import Answerer, CountsLosses, StateTransaction
from privfed.core.stored.codec import StateCodec
from privfed.core.stored.hashing import digest
from privfed.core.values.numbers import check_whole
from privfed.errors import PolicyError, StateError
from privfed.party.chain import Chain
from privfed.party.database import Database
from privfed.party.guard import MOVES
from privfed.party.readings import FOLLOWED
from privfed.party.remembering import MEMORIES, Memories
from privfed.party.replica import TOTALS
from privfed.protocols.crypto.keys import equal

Kept = Literal["state", "moves", "followed", "totals", "spent"]
"""What a fit's stores keep."""


class JournalledFit:
    """One fit in a party's journal: the stores of its client, and what it has answered.

    Args:
        database: the journal's file.
        number: of the fit.
        max_losses: most losses of clients in all fits on the same rows; None for any number.
        max_starts: in how many sets of cells the same rows are counted, in all fits; None for any number.
    """

    def __init__(
        self,
        database: Database,
        number: int,
        max_losses: int | None = None,
        max_starts: int | None = None,
    ) -> None:
        self._database, self.number = database, number
        self._max_losses, self._max_starts = max_losses, max_starts
        self._chain = Chain(database)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep all that is written within, or nothing."""
        with self._database.transaction():
            yield

    def state(self, codec: StateCodec) -> JournalStore:
        """Return the store of the client's state."""
        return JournalStore(self, "state", codec)

    @property
    def moves(self) -> JournalStore:
        """The store of what the client's guard remembers."""
        return JournalStore(self, "moves", MOVES)

    @property
    def followed(self) -> JournalStore:
        """The store of where the client stands in the agreed program."""
        return JournalStore(self, "followed", FOLLOWED)

    @property
    def opened(self) -> JournalStore:
        """The store of a replica's totals, where clients open them.

        A transaction that fails takes them back with the state; the replica keeps them once they are told
        again.
        """
        return JournalStore(self, "totals", TOTALS)

    @property
    def memory(self) -> MemoryTable:
        """The store of what questions have the client remember."""
        return MemoryTable(self, self._database)

    @property
    def ledger(self) -> JournalStore:
        """The store of the share of the fit's budget that is spent."""
        return JournalStore(self, "spent", None)

    def read(self, column: Kept | Literal["asked", "question"]) -> Any:
        """Return one value of a fit that has not ended.

        Raises:
            StateError: it has ended, and its keys are gone.
        """
        with self._database.transaction() as database:
            query = f"SELECT closed, {column} FROM fits WHERE number = ?"
            closed, value = database.execute(query, (self.number,)).fetchone()
        if closed:
            raise StateError(f"fit {self.number} has ended; begin a new one under a new agreement.")
        return value

    def write(self, kind: str, values: dict[str, Any], **content: Any) -> None:
        """Change a fit that has not ended, and enter why.

        Raises:
            StateError: it has ended, or a number was to go back.
        """
        with self._database.transaction() as database:
            self.read("asked")
            changes = ", ".join(f"{column} = ?" for column in values)
            database.execute(f"UPDATE fits SET {changes} WHERE number = ?", (*values.values(), self.number))
            self._chain.enter(self.number, kind, **content)

    def answers(self, question: Question, index: int) -> None:
        """Enter that a sum is answered, before it is.

        A sum may be asked again where clients dropped out of it, with the same question only, and never one
        before it.

        Raises:
            PolicyError: an earlier sum, another question, or more sets of cells than the policy allows; the
                text is the code of the refusal.
        """
        asked = digest("question", question.to_bytes())
        with self._database.transaction() as database:
            upcoming = self.read("asked")
            if index < upcoming - 1:
                raise PolicyError("journal:index")
            if index == upcoming - 1 and not equal(self.read("question"), asked):
                raise PolicyError("journal:question")
            query = "SELECT answered FROM fits WHERE number = ?"
            (answered,) = database.execute(query, (self.number,)).fetchone()
            if any(one.declaration and one.declaration.n_cells for one in parts_of(question)):
                self._counts_in(asked)
            values = {"answered": answered + 1, "asked": index + 1, "question": asked}
            self.write("sum", values, index=index, question=wire_name(type(question)), digest=asked.hex())

    def _counts_in(self, cells: bytes) -> None:
        """Enter in which cells the rows are counted. The same cells, in any fit, count once.

        Raises:
            PolicyError: they are more sets of cells than the policy allows; the text is the code.
        """
        with self._database.transaction() as database:
            query = "SELECT data_set FROM fits WHERE number = ?"
            (data_set,) = database.execute(query, (self.number,)).fetchone()
            query = "SELECT cells FROM starts WHERE data_set = ?"
            known = {bytes(one) for (one,) in database.execute(query, (data_set,))}
            if cells in known:
                return
            if self._max_starts is not None and len(known) >= self._max_starts:
                raise PolicyError("policy:max_starts")
            database.execute("INSERT INTO starts VALUES (?, ?)", (data_set, cells))

    def counted(self, lost: int) -> None:
        """Keep how often clients were lost in this fit, before anything is given because of it.

        Args:
            lost: how often, over all set-ups.

        Raises:
            PolicyError: in all fits on these rows it would be more often than the policy allows; the text is
                the code of the refusal.
        """
        with self._database.transaction() as database:
            query = "SELECT losses FROM fits WHERE number = ?"
            (known,) = database.execute(query, (self.number,)).fetchone()
            if lost > known:
                self.lost(lost - known, self._max_losses)

    def lost(self, clients: int, most: int | None = None) -> None:
        """Count clients that were lost in a sum or a set-up, before anything is given because of it.

        Args:
            clients: how many.
            most: losses in all fits on these rows that the policy allows (`max_losses`).

        Raises:
            ArgumentError: not a whole number of at least 1.
            PolicyError: they would be more than that; the text is the code of the refusal.
        """
        check_whole("clients", clients, 1)
        with self._database.transaction() as database:
            losses, before = database.execute(
                "SELECT losses, (SELECT SUM(losses) FROM fits AS all_fits WHERE all_fits.data_set = "
                "fits.data_set) FROM fits WHERE number = ?",
                (self.number,),
            ).fetchone()
            if most is not None and before + clients > most:
                raise PolicyError("policy:max_losses")
            self.write("lost", {"losses": losses + clients}, clients=clients)

    def end(self) -> None:
        """End the fit. Its keys and memories are erased, and its agreement never runs again."""
        with self._database.transaction() as database:
            self.write("end", {"closed": 1, "state": None, "moves": None, "followed": None, "totals": None})
            database.execute("DELETE FROM memories WHERE fit = ?", (self.number,))


class JournalStore:
    """One store of a client's, in its party's journal. Stores of one fit share their transactions.

    Args:
        fit: the fit.
        column: what is kept.
        codec: how it is kept; None for a number.
    """

    def __init__(
        self,
        fit: JournalledFit,
        column: Kept,
        codec: StateCodec | None,
    ) -> None:
        self._fit, self._column, self._codec = fit, column, codec

    @contextmanager
    def transaction(self) -> Iterator[StateTransaction]:
        """Lock the whole journal; what is saved is on disk once the outermost transaction has ended."""
        with self._fit.together():
            yield self

    def load(self) -> Any | None:
        """Return what is kept, or None before the first message.

        Raises:
            StateError: the fit has ended, or the journal is damaged.
        """
        kept = self._fit.read(self._column)
        if kept is None or self._codec is None:
            return kept
        try:
            return self._codec.from_bytes(kept)
        except ValueError as error:
            raise StateError(
                f"the {self._column} of fit {self._fit.number} in the journal: {error}"
            ) from None

    def save(self, state: Any) -> None:
        """Keep a value; of a state also how often clients were lost.

        Raises:
            PolicyError: that is more often than the policy allows; nothing of the transaction is kept.
        """
        if isinstance(state, CountsLosses):
            self._fit.counted(state.losses_so_far)
        kept = state if self._codec is None else self._codec.to_bytes(state)
        content = {"spent": state} if self._codec is None else {}
        self._fit.write(self._column, {self._column: kept}, **content)


class MemoryTable:
    """The store of a client's memories, beside the fits, as they may be as large as models.

    Args:
        fit: the fit.
        database: the journal's file.
    """

    def __init__(self, fit: JournalledFit, database: Database) -> None:
        self._fit, self._database = fit, database

    @contextmanager
    def transaction(self) -> Iterator[StateTransaction]:
        """Lock the whole journal; what is saved is on disk once the outermost transaction has ended."""
        with self._fit.together():
            yield self

    def load(self) -> Memories | None:
        """Return what is kept, or None before the first question that has the client remember.

        Raises:
            StateError: the fit has ended, or the journal is damaged.
        """
        self._fit.read("asked")
        with self._database.transaction() as database:
            query = "SELECT kept FROM memories WHERE fit = ?"
            kept = database.execute(query, (self._fit.number,)).fetchone()
        try:
            return None if kept is None else MEMORIES.from_bytes(kept[0])
        except ValueError as error:
            raise StateError(f"the memory of fit {self._fit.number} in the journal: {error}") from None

    def save(self, state: Memories) -> None:
        """Keep memories; raises `StateError` where the fit has ended."""
        self._fit.read("asked")
        with self._database.transaction() as database:
            database.execute(
                "INSERT INTO memories VALUES (?, ?) ON CONFLICT (fit) DO UPDATE SET kept = excluded.kept",
                (self._fit.number, MEMORIES.to_bytes(state)),
            )


class JournallingAnswerer:
    """A client's answerer that enters each sum into the party's journal before it is answered.

    Args:
        answerer: answers, pays and guards.
        fit: the fit in the journal.
    """

    def __init__(self, answerer: Answerer, fit: JournalledFit) -> None:
        self._answerer, self._fit = answerer, fit

    def __call__(self, question: Question, index: int) -> tuple[Statistics, int]:
        """Answer a sum that may still be answered; raises `PolicyError` otherwise."""
        self._fit.answers(question, index)
        return self._answerer(question, index)
