"""One fit in a party's journal: the stores of its client, what it has answered and lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

from privfed.algorithms.starts import is_start
from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import CohortRule, Configuration
from privfed.core.agreed.program import START_MISSING, from_agreed, kept_starts
from privfed.core.asking.question import Question, parts_of, wire_name
from privfed.core.roles.conversation import EVERYONE, Ask, Total
from privfed.core.roles.engine import ClientSide, CountsLosses, ShowsLosses, StateTransaction
from privfed.core.stored.encoding import StateCodec, digest
from privfed.core.values.numbers import check_whole
from privfed.errors import PolicyError, StateError
from privfed.nodes.database import Database
from privfed.party.client import Stores
from privfed.party.program import PROGRAM_STATE
from privfed.party.replay import TOTAL, TOTALS, OpenedTotal
from privfed.party.state import MEMORIES
from privfed.protocols.crypto.keys import equal

Kept = Literal["state", "program", "totals", "spent", "memory"]
"""What a fit's stores keep."""

_CODECS: dict[str, StateCodec] = {"program": PROGRAM_STATE, "totals": TOTALS, "memory": MEMORIES}

SECRET = ("state", "program", "totals", "memory")
"""What of it is sealed, each time under a fresh key (`privfed.nodes.database`), and erased with the fit."""


GAVE = "(answered > 0 OR spent > 0.0 OR NOT closed)"
"""Of a fit that gave something, or may yet: one that ended before it answered counts nowhere."""

_BEFORE = (
    f"SELECT 1 FROM fits AS one WHERE one.data_set = fits.data_set AND one.number < fits.number AND {GAVE}"
)

LOSSES = f"losses + ({GAVE} AND EXISTS ({_BEFORE}) AND NOT EXISTS ({_BEFORE} AND one.parties = fits.parties))"
"""What a fit costs of `max_losses`: how often others were lost, and one for a set of clients that is new."""


def parties_of(keys: Sequence[bytes], rule: CohortRule) -> bytes:
    """Return a digest of over which sets of clients the sums of a fit are, by their long-term keys.

    Cohorts that are drawn are the same rule at any seed: what they show is agreed to, and goes on being.
    """
    cohorts = {digest("parties", *sorted(keys[i] for i in members)) for members in rule.rounds}
    everyone = digest("parties", *sorted(keys))
    return digest("parties", everyone, rule.kind.encode(), rule.size, *sorted(cohorts))


class _Shown(PolicyError):
    """A refusal that comes too late for some losses: the totals without these clients were opened.

    Args:
        code: of the refusal.
        clients: how many losses the journal has not counted.
    """

    def __init__(self, code: str, clients: int) -> None:
        super().__init__(code)
        self.clients = clients


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

    def together(self) -> AbstractContextManager[Any]:
        """Keep all that is written within, or nothing."""
        return self._database.transaction()

    def stores(self, side: ClientSide) -> Stores:
        """Return the stores of the client with this side of the secure sum, which change together."""
        spent, program, memory = (self.store(one) for one in ("spent", "program", "memory"))
        return Stores(self.store("state", side.codec), spent, program, memory, self.answers)

    def store(self, column: Kept, codec: StateCodec | None = None) -> JournalStore:
        """Return the store of the client's state, given its codec, or one of those beside it.

        These are where the client stands in the agreed program, the totals of a replay, what questions have
        the client remember, and the share of the fit's budget that is spent. A transaction that fails takes
        totals back with the state; the replay keeps them once they are told again.
        """
        return JournalStore(self, column, codec or _CODECS.get(column))

    def read(self, column: Kept | Literal["asked", "question"]) -> Any:
        """Return one value of a fit that has not ended.

        Raises:
            StateError: it has ended, and its keys are gone.
        """
        query = f"SELECT closed, {column} FROM fits WHERE number = ?"
        ((closed, value),) = self._database.rows(query, self.number)
        if closed:
            raise StateError(f"fit {self.number} has ended; begin a new one under a new agreement.")
        if column not in SECRET or value is None:
            return value
        return self._database.unsealed(self._place(column), value)

    def write(self, kind: str, values: dict[str, Any], **content: Any) -> None:
        """Change a fit that has not ended, and enter why, if there is more to say than that it changed.

        Raises:
            StateError: it has ended, or a number was to go back.
        """
        with self._database.transaction():
            self.read("asked")
            changes = ", ".join(f"{column} = ?" for column in values)
            kept = [self._sealed(column, value) for column, value in values.items()]
            self._database.rows(f"UPDATE fits SET {changes} WHERE number = ?", *kept, self.number)
            if content:
                self._database.enter(self.number, kind, **content)

    def _sealed(self, column: str, value: Any) -> Any:
        if column not in SECRET:
            return value
        ((before,),) = self._database.rows(f"SELECT {column} FROM fits WHERE number = ?", self.number)
        return self._database.sealed(self._place(column), value, before)

    def _place(self, column: str) -> int:
        return len(SECRET) * self.number + SECRET.index(column)

    def answers(self, question: Question, index: int) -> None:
        """Enter that a sum is answered, before it is.

        A sum may be asked again where clients dropped out of it, with the same question only, and never one
        before it.

        Raises:
            PolicyError: an earlier sum, another question, or more sets of cells than the policy allows; the
                text is the code of the refusal.
        """
        asked = digest("question", question.to_bytes())
        with self._database.transaction():
            upcoming = self.read("asked")
            if index < upcoming - 1:
                raise PolicyError("journal:index")
            if index == upcoming - 1 and not equal(self.read("question"), asked):
                raise PolicyError("journal:question")
            ((answered,),) = self._database.rows("SELECT answered FROM fits WHERE number = ?", self.number)
            if any(one.declaration and one.declaration.n_cells for one in parts_of(question)):
                self._counts_in(digest("question", question.at(None).to_bytes()))
            values = {"answered": answered + 1, "asked": index + 1, "question": asked}
            self.write("sum", values, index=index, question=wire_name(type(question)), digest=asked.hex())

    def _counts_in(self, cells: bytes) -> None:
        """Enter in which cells the rows are counted. The same cells, in any fit, count once.

        Raises:
            PolicyError: they are more sets of cells than the policy allows; the text is the code.
        """
        rows = self._database.rows
        ((data_set,),) = rows("SELECT data_set FROM fits WHERE number = ?", self.number)
        known = {bytes(one) for (one,) in rows("SELECT cells FROM starts WHERE data_set = ?", data_set)}
        if cells in known:
            return
        if self._max_starts is not None and len(known) >= self._max_starts:
            raise PolicyError("policy:max_starts")
        rows("INSERT INTO starts (data_set, cells) VALUES (?, ?)", data_set, cells)

    def counted(self, lost: int, shown: int = 0) -> None:
        """Keep how often clients were lost in this fit, before anything is given because of it.

        Args:
            lost: how often, over all set-ups.
            shown: how often in totals that the client has opened.

        Raises:
            PolicyError: in all fits on these rows it would be more often than the policy allows; the text is
                the code of the refusal.
        """
        with self._database.transaction():
            ((known,),) = self._database.rows("SELECT losses FROM fits WHERE number = ?", self.number)
            try:
                self.lost(max(0, lost - known), self._max_losses)
            except PolicyError as error:
                raise (_Shown(str(error), shown - known) if shown > known else error) from None

    def lost(self, clients: int, most: int | None = None) -> None:
        """Count clients that were lost in a sum or a set-up, before anything is given because of it.

        Args:
            clients: how many.
            most: losses in all fits on these rows that the policy allows (`max_losses`).

        Raises:
            ArgumentError: not a whole number.
            PolicyError: they would be more than that; the text is the code of the refusal.
        """
        check_whole("clients", clients, 0)
        with self._database.transaction():
            query = "SELECT losses, data_set FROM fits WHERE number = ?"
            ((losses, data_set),) = self._database.rows(query, self.number)
            query = f"SELECT SUM({LOSSES}) FROM fits WHERE data_set = ?"
            ((before,),) = self._database.rows(query, data_set)
            if most is not None and before + clients > most:
                raise PolicyError("policy:max_losses")
            if clients:
                self.write("lost", {"losses": losses + clients}, clients=clients)

    def keep_start(self, agreement: Agreement, index: int, ask: Ask, opened: OpenedTotal) -> None:
        """Keep a verified total that is a start's, from which later fits may begin; of a sum the first.

        It is kept with the rows' name, its fit's configuration, its number, and who is in it by long-term
        keys.

        Args:
            agreement: of the fit.
            index: number of the sum.
            ask: what it asked.
            opened: its total.
        """
        if ask.cohort != EVERYONE or not is_start(ask.question):
            return
        configuration, keys = agreement.configuration, agreement.registry.clients
        cohort = _cohort(configuration, [keys[i] for i in opened.contributors])
        where = (configuration.digest(), index, cohort, TOTAL.to_bytes(opened), self.number)
        self._database.rows(
            "INSERT OR IGNORE INTO start_totals (data_set, fit, sum, cohort, total) "
            "SELECT data_set, ?, ?, ?, ? FROM fits WHERE number = ?",
            *where,
        )

    def end(self) -> None:
        """End the fit. Its keys and memories are erased, and its agreement never runs again."""
        with self._database.transaction():
            self._database.enter(self.number, "end")
            self.write("end", {"closed": 1} | dict.fromkeys(SECRET))


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
        """Lock the whole journal; what is saved is on disk once the outermost transaction has ended.

        Where a state that counts too many losses is not kept, those in totals that were opened are: in the
        same transaction, so that no other process finds neither.
        """
        shown: _Shown | None = None
        with self._fit.together():
            try:
                with self._fit._database.attempt():
                    yield self
            except _Shown as error:
                shown = error
                self._fit.lost(error.clients)
        if shown is not None:
            raise shown

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
            shown = state.losses_shown if isinstance(state, ShowsLosses) else 0
            self._fit.counted(state.losses_so_far, shown)
        kept = state if self._codec is None else self._codec.to_bytes(state)
        content = {"spent": state} if self._codec is None else {}
        self._fit.write(self._column, {self._column: kept}, **content)


def start_of(database: Database, agreement: Agreement, data_set: str, verified: bool) -> Total | None:
    """Return the start total that an agreement names; None where it names none.

    Args:
        database: the journal's file.
        agreement: what was agreed.
        data_set: the client's own name of its rows.
        verified: whether this client verifies or opens the totals of this fit.

    Raises:
        PolicyError: this journal has none that is of these rows and parties, the agreement names several, or
            its sums are not verified; the text is the code.
    """
    configuration = agreement.configuration
    named = {from_agreed(one) for one in kept_starts(configuration.program)}
    if not named:
        return None
    database.verify()
    if len(named) > 1 or not verified or configuration.privacy is not None:
        raise PolicyError(START_MISSING)
    (one,) = named
    query = "SELECT total FROM start_totals WHERE data_set = ? AND fit = ? AND sum = ? AND cohort = ?"
    cohort = _cohort(configuration, agreement.registry.clients)
    kept = database.rows(query, data_set, bytes.fromhex(one.fit), one.index, cohort)
    if not kept:
        raise PolicyError(START_MISSING)
    return TOTAL.from_bytes(bytes(kept[0][0])).total()


def _cohort(configuration: Configuration, keys: tuple[bytes, ...] | list[bytes]) -> bytes:
    """Return a digest of who is in a total, and of what its columns are as far as that is agreed."""
    agreed = configuration
    box = [b"" if one is None else one.data for one in (agreed.low, agreed.high)]
    return digest("start cohort", agreed.n_features.to_bytes(8, "little"), *box, *sorted(keys))
