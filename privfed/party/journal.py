"""A party's journal over all its fits: what it answered, paid and lost, on which of its data sets.

Law (`tests/party/test_journal_killed.py`): killed between any two steps, a party never answers a sum twice,
and never forgets a payment. State, journal and ledger change together, before a reply leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import Any

from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.given import Given
from privfed.core.agreed.policy import ClientPolicy
from privfed.core.roles.conversation import Ask, Total
from privfed.core.stored.files import make_folder
from privfed.errors import ArgumentError, PolicyError, StateError
from privfed.party.chain import Chain, Head, now
from privfed.party.database import Database
from privfed.party.identity import OwnIdentity, write_new
from privfed.party.journalled import JournalledFit
from privfed.party.peers import JournalIdentity
from privfed.party.replica import OpenedTotal
from privfed.party.starts import keep_start, start_of
from privfed.protocols.crypto.keys import equal

FILE = "journal.sqlite"
"""Name of the journal in a party's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLine:
    """One fit in a journal, as its owner reads it; no keys and no totals.

    Args:
        number: of the fit, from 1.
        agreement: digest of what was agreed, in hexadecimal digits.
        data_set: the client's own name of the rows.
        protocol: the secure sum.
        algorithm: the algorithm and its parameters.
        position: the client's number in it.
        began: when, in UTC.
        epsilon: agreed; None where no guarantee is claimed.
        delta: of the same guarantee.
        unit: what it protects.
        neighbours: which data sets it compares.
        noise: who adds the noise.
        answered: sums that were answered, repeats included.
        losses: how often clients were lost.
        spent: share of the fit's budget that was paid.
        closed: whether it has ended.
    """

    number: int
    agreement: str
    data_set: str
    protocol: str
    algorithm: str
    position: int
    began: str
    epsilon: float | None
    delta: float | None
    unit: str | None
    neighbours: str | None
    noise: str | None
    answered: int
    losses: int
    spent: float
    closed: bool


_LINE = tuple(FitLine.__slots__)


class Journal:
    """Keeps what a party must not forget, over all its fits. It is made with its identity, and only then.

    Args:
        folder: the party's.
        own: its identity.

    Raises:
        StateError: the journal is missing, of another identity, damaged, or of another version.
    """

    def __init__(self, folder: Path, own: OwnIdentity) -> None:
        self._own, self._database = own, Database(folder / FILE)
        self._chain = Chain(self._database)
        self._database.check()
        with self._database.transaction() as database:
            kept = database.execute("SELECT id, public FROM party").fetchall()
        if len(kept) != 1 or not (equal(kept[0][0], own.journal) and kept[0][1] == own.key.public):
            raise StateError(
                f"{folder / FILE} is the journal of another identity than {own.name!r}'s; take the one that "
                "was made with it."
            )

    @classmethod
    def create(cls, folder: Path, own: OwnIdentity) -> Journal:
        """Return the journal of a fresh identity, before that identity is written.

        Raises:
            ArgumentError: the folder holds one already.
            StateError: it cannot be written.
        """
        make_folder(folder)
        write_new(folder / FILE, b"")
        database = Database(folder / FILE)
        with database.transaction() as opened:
            database.make()
            values = (own.journal, own.name, own.key.public)
            opened.execute("INSERT INTO party (id, name, public) VALUES (?, ?, ?)", values)
        return cls(folder, own)

    @property
    def head(self) -> Head:
        """Where the journal stands: its number of entries and the hash that chains them; never back."""
        return self._chain.head

    @property
    def identity(self) -> JournalIdentity:
        """The party's key, which shows others where this journal stands, and remembers where theirs do."""
        return JournalIdentity(self._own.key, self._database)

    @property
    def fits(self) -> tuple[FitLine, ...]:
        """All fits, in the order in which they began."""
        columns = ", ".join("lower(hex(agreement))" if one == "agreement" else one for one in _LINE)
        with self._database.transaction() as database:
            rows = database.execute(f"SELECT {columns} FROM fits ORDER BY number").fetchall()
        lines = (dict(zip(_LINE, row, strict=True)) for row in rows)
        return tuple(FitLine(**{**line, "closed": bool(line["closed"])}) for line in lines)

    def entries(self) -> tuple[dict[str, Any], ...]:
        """Return all entries, in order; raises `StateError` if one was changed."""
        return self._chain.entries()

    def given(self, data_set: str) -> Given:
        """Return what a data set has given so far."""
        fits = [one for one in self.fits if one.data_set == data_set]
        with self._database.transaction() as database:
            query = "SELECT COUNT(*) FROM starts WHERE data_set = ?"
            (starts,) = database.execute(query, (data_set,)).fetchone()
        return Given(
            fits=len(fits),
            starts=starts,
            sums=sum(one.answered for one in fits),
            losses=sum(one.losses for one in fits),
            epsilon=fsum(one.epsilon for one in fits if one.epsilon is not None),
            delta=fsum(one.delta for one in fits if one.delta is not None),
            unprotected=sum(one.epsilon is None for one in fits),
        )

    def begin(
        self, agreement: Agreement, position: int, data_set: str, policy: ClientPolicy
    ) -> JournalledFit:
        """Begin a fit, or go on with one that has not ended. An agreement runs once.

        The whole agreed epsilon counts as spent from here on, however much of it will be.

        Args:
            agreement: what was agreed.
            position: the client's number in it.
            data_set: the client's own name of the rows that it answers from.
            policy: what the client insists on; what its journal shows counts.

        Raises:
            PolicyError: the agreement has run, or the policy refuses; the text is the code of the refusal.
            ArgumentError: the identity is not the agreement's, or the fit began on another data set.
            StateError: the journal cannot be used.
        """
        agreement.check_client(position, self._own.key)
        if not data_set:
            raise ArgumentError("data_set must be your own name of the rows, got an empty one.")
        with self._database.transaction() as database:
            known = database.execute(
                "SELECT number, data_set, position, closed FROM fits WHERE agreement = ?", (agreement.digest,)
            ).fetchone()
            if known is None:
                return self._begun(agreement, position, data_set, policy)
        number, before, place, closed = known
        if closed:
            raise PolicyError("journal:ran")
        if (before, place) != (data_set, position):
            raise ArgumentError(
                f"this fit began on data_set={before!r} at position {place}, and goes on there only; got "
                f"data_set={data_set!r}, position {position}."
            )
        return JournalledFit(self._database, number, policy.max_losses, policy.max_starts)

    def start_of(self, agreement: Agreement, data_set: str, verified: bool) -> Total | None:
        """Return the start total that an agreement names (`privfed.party.starts.start_of`)."""
        return start_of(self._database, agreement, data_set, verified)

    def keep_start(
        self, fit: JournalledFit, agreement: Agreement, index: int, ask: Ask, opened: OpenedTotal
    ) -> None:
        """Keep a verified total where it is a start's (`privfed.party.starts.keep_start`)."""
        keep_start(self._database, fit, agreement, index, ask, opened)

    def end(self, number: int) -> None:
        """End a fit: its keys are erased, what it gave stays known, and its agreement never runs again.

        Raises:
            ArgumentError: there is no such fit, or it has ended.
            StateError: the journal cannot be used.
        """
        with self._database.transaction():
            running = [one.number for one in self.fits if not one.closed]
            if number not in running:
                raise ArgumentError(f"fit must be a running one, of {running}, got {number}.")
            JournalledFit(self._database, number).end()

    def _begun(
        self, agreement: Agreement, position: int, data_set: str, policy: ClientPolicy
    ) -> JournalledFit:
        configuration = agreement.configuration
        code = policy.refuses_configuration(configuration, self.given(data_set))
        if code is not None:
            raise PolicyError(code)
        terms = configuration.privacy
        claim = (None,) * 5
        # A rehearsal's noise follows from its seed and protects nobody: it is no claim.
        if terms is not None and not terms.rehearsal:
            words = (str(terms.unit), str(terms.neighbours), str(terms.noise))
            claim = (terms.epsilon, terms.delta, *words)  # type: ignore[assignment]
        about = (agreement.digest, data_set, configuration.protocol, configuration.algorithm, position)
        with self._database.transaction() as database:
            number = database.execute(
                "INSERT INTO fits (agreement, data_set, protocol, algorithm, position, began, epsilon, "
                "delta, unit, neighbours, noise) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "RETURNING number",
                (*about, now(), *claim),
            ).fetchone()[0]
            self._chain.enter(number, "begin", agreement=agreement.digest.hex(), data_set=data_set)
        return JournalledFit(self._database, number, policy.max_losses, policy.max_starts)
