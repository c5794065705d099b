"""A party's journal over all its fits: what it answered, paid and lost, on which of its data sets.

Property (`tests/party/test_journal_killed.py`): killed between any two steps, a party never answers a sum
twice, and never forgets a payment. State, journal and ledger change together, before a reply leaves.

A party shows where its journal stands, signed, and remembers where its peers' stood (`JournalIdentity`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privfed.core.agreed.agreement import Agreement, JournalCounter
from privfed.core.agreed.policy import Claim, ClientPolicy, Usage
from privfed.core.agreed.program import kept_starts
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import ErrorLog
from privfed.core.stored.files import make_folder, write_new
from privfed.errors import ArgumentError, PolicyError, StateError
from privfed.party.database import Database, now
from privfed.party.datasets import DataSet, protection_of
from privfed.party.groups import OwnRows
from privfed.party.identity import OwnIdentity
from privfed.party.journalled import JournalledFit, parties_of, start_of
from privfed.privacy.ledger import claim_of, refuses_fit
from privfed.protocols.crypto.keys import Identity, equal

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
        mechanism: which noise, as in `privfed.core.agreed.policy.Claim`.
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
    mechanism: str | None
    answered: int
    losses: int
    spent: float
    closed: bool

    @property
    def claim(self) -> Claim | None:
        """The agreed guarantee; None where none is claimed."""
        if self.epsilon is None or self.delta is None:
            return None
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=str(self.unit),
            neighbours=str(self.neighbours),
            mechanism=str(self.mechanism),
        )


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
    def head(self) -> JournalCounter:
        """Where the journal stands: its number of entries and the hash that chains them; never back."""
        return self._database.head

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
        """Return all entries, in order: what an owner may export.

        Raises:
            StateError: an entry, or a row of another table, is not what was written.
        """
        names = ("counter", "at", "fit", "kind", "content", "head")
        with self._database.transaction() as database:
            self._database.verify()
            rows = database.execute(f"SELECT {', '.join(names)} FROM entries ORDER BY counter").fetchall()
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return tuple(
            one | {"content": json.loads(one["content"]), "head": one["head"].hex()} for one in found
        )

    def usage(self, data_set: str, parties: bytes | None = None) -> Usage:
        """Return what a data set has given so far.

        Args:
            data_set: the party's own name of it.
            parties: of a fit that would begin now (`privfed.party.journalled.parties_of`); its set of clients
                counts, too.
        """
        fits = [one for one in self.fits if one.data_set == data_set]
        with self._database.transaction() as database:
            query = "SELECT COUNT(*) FROM starts WHERE data_set = ?"
            (starts,) = database.execute(query, (data_set,)).fetchone()
            query = "SELECT DISTINCT parties FROM fits WHERE data_set = ?"
            sets = {bytes(one) for (one,) in database.execute(query, (data_set,))}
        if parties is not None:
            sets.add(parties)
        return Usage(
            fits=len(fits),
            starts=starts,
            sums=sum(one.answered for one in fits),
            losses=sum(one.losses for one in fits) + max(0, len(sets) - 1),
            claims=tuple(one.claim for one in fits if one.claim is not None),
            unprotected=sum(one.epsilon is None for one in fits),
        )

    def begin(
        self,
        agreement: Agreement,
        position: int,
        data_set: str,
        policy: ClientPolicy,
        rows: OwnRows | None = None,
        log: ErrorLog | None = None,
    ) -> JournalledFit:
        """Begin a fit, or go on with one that has not ended. An agreement runs once.

        The whole agreed epsilon counts as spent from here on, however much of it will be.

        Args:
            agreement: what was agreed.
            position: the client's number in it.
            data_set: the client's own name of the rows that it answers from.
            policy: what the client insists on; what its journal shows counts.
            rows: how its rows are read, where a fit begins that answers from groups of them.
            log: the party's own log of errors.

        Raises:
            PolicyError: the agreement has run, the policy refuses, or the data set is exact, grouped or
                private and would become another; the text is the code of the refusal.
            DataError: rows are to be grouped for the first time, and cannot be read.
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
                self._database.verify()
                fit = self._begun(agreement, position, data_set, policy)
                if rows is not None and policy.group_size > 1:
                    self.data_set(data_set).begin(rows, policy.group_size, log)
                return fit
            number, before, place, closed = known
            # All before it was checked when it began.
            query = "SELECT counter FROM entries WHERE fit = ? AND kind = 'begin'"
            (began,) = database.execute(query, (number,)).fetchone() or (0,)
            self._database.verify(began)
        if closed:
            raise PolicyError("journal:ran")
        if (before, place) != (data_set, position):
            raise ArgumentError(
                f"this fit began on data_set={before!r} at position {place}, and goes on there only; got "
                f"data_set={data_set!r}, position {position}."
            )
        # A fit goes on while the policy as it is now, which its owner may have changed, would have it begin.
        if (code := refuses_fit(policy, agreement.configuration)) is not None:
            raise PolicyError(code)
        self.data_set(data_set).used(protection_of(policy, agreement.configuration))
        self.data_set(data_set).go_on(policy.group_size)
        most = policy.most_losses(agreement.configuration)
        return JournalledFit(self._database, number, most, policy.max_starts)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep all that is written within, or nothing."""
        with self._database.transaction():
            yield

    def data_set(self, name: str) -> DataSet:
        """Return one of the party's data sets, by its own name of it."""
        return DataSet(self._database, name)

    def start_of(self, agreement: Agreement, data_set: str, verified: bool) -> Total | None:
        """Return the start total that an agreement names (`privfed.party.journalled.start_of`)."""
        if kept_starts(agreement.configuration.program):
            self._database.verify()
        return start_of(self._database, agreement, data_set, verified)

    def end(self, number: int) -> None:
        """End a fit: its keys are erased, what it gave stays known, and its agreement never runs again.

        Raises:
            ArgumentError: there is no such fit, or it has ended.
            StateError: the journal cannot be used.
        """
        with self._database.transaction():
            running = [one.number for one in self.fits if not one.closed]
            if number not in running:
                raise ArgumentError(f"there is no open fit {number}; open are {running or 'none'}.")
            JournalledFit(self._database, number).end()

    def _begun(
        self, agreement: Agreement, position: int, data_set: str, policy: ClientPolicy
    ) -> JournalledFit:
        configuration, parties = agreement.configuration, parties_of(agreement)
        code = refuses_fit(policy, configuration, self.usage(data_set, parties))
        if code is not None:
            raise PolicyError(code)
        self.data_set(data_set).used(protection_of(policy, configuration))
        terms = configuration.privacy
        columns: tuple[object, ...] = (None,) * 6
        if terms is not None:
            claim = claim_of(terms)
            facts = (claim.unit, claim.neighbours, str(terms.noise), claim.mechanism)
            columns = (claim.epsilon, claim.delta, *facts)
        about = (agreement.digest, data_set, configuration.protocol, configuration.algorithm, position)
        with self._database.transaction() as database:
            number = database.execute(
                "INSERT INTO fits (agreement, data_set, protocol, algorithm, position, parties, began, "
                "epsilon, delta, unit, neighbours, noise, mechanism) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number",
                (*about, parties, now(), *columns),
            ).fetchone()[0]
            self._database.enter(number, "begin", agreement=agreement.digest.hex(), data_set=data_set)
        return JournalledFit(self._database, number, policy.most_losses(configuration), policy.max_starts)


AT_ONCE = 8
"""How many journal counters of a peer are remembered, the highest: so many set-ups may run at once."""


_MEET = "INSERT OR IGNORE INTO peers (public, counter, head, met) VALUES (?, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class _Met:
    """Where a peer's journal stood, and how many entries this one had when that was met."""

    journal_counter: JournalCounter
    met: int


class JournalIdentity:
    """The long-term key of a party that keeps a journal; give it to `SecureSum.client` as the identity.

    Args:
        key: the party's secret key.
        database: its journal's file.
    """

    def __init__(self, key: Identity, database: Database) -> None:
        self._key, self._database = key, database

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public

    def sign(self, message: bytes) -> bytes:
        """Return a signature, 64 bytes."""
        return self._key.sign(message)

    def journal_counter(self) -> JournalCounter:
        """Return where the journal stands now; it moves on before the next reply leaves."""
        return self._database.head

    def meets(self, peers: Mapping[bytes, JournalCounter], since: int) -> bytes | None:
        """Remember the highest counters of each peer; return the key of one that shows a lower one.

        Args:
            peers: public key -> where that party's journal stood at a set-up, as it signed.
            since: number of entries that this journal had when its party advertised for that set-up.
        """
        with self._database.transaction() as database:
            known: dict[bytes, list[_Met]] = {}
            for public, counter, head, met in database.execute(
                "SELECT public, counter, head, met FROM peers"
            ):
                known.setdefault(bytes(public), []).append(_Met(JournalCounter(counter, bytes(head)), met))
            back = next((one for one, now in peers.items() if _back(known.get(one, []), now, since)), None)
            if back is None:
                at = self._database.head.counter
                new = [(public, one.counter, one.head, at) for public, one in peers.items() if one.counter]
                database.executemany(_MEET, new)
                kept = "SELECT counter FROM peers WHERE public = :public ORDER BY counter DESC LIMIT :most"
                forget = f"DELETE FROM peers WHERE public = :public AND counter NOT IN ({kept})"
                database.executemany(forget, [{"public": public, "most": AT_ONCE} for public in peers])
        return back


def _back(known: list[_Met], now: JournalCounter, since: int) -> bool:
    """Say whether a journal is not the one that was known, or not what came of it.

    Where it stood is compared with what was known when this party advertised: two set-ups may run at once,
    and the list of the later one may come first. Where more was met since than is remembered, the lowest of
    it counts.
    """
    lowest = min(one.journal_counter.counter for one in known) if len(known) == AT_ONCE else 0
    return any(
        not equal(now.head, one.journal_counter.head)
        if now.counter == one.journal_counter.counter
        else now.counter < one.journal_counter.counter
        and (one.met <= since or one.journal_counter.counter == lowest)
        for one in known
    )
