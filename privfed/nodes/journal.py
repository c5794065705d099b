"""A party's journal over all its fits: what it answered, paid and lost, on which of its data sets.

Property (`tests/nodes/test_journal_killed.py`): killed between any two steps, a party never answers a sum
twice, and never forgets a payment. State, journal and ledger change together, before a reply leaves.

A party shows where its journal stands, signed, and remembers where its peers' stood (`JournalIdentity`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import time_ns
from typing import Any

import msgspec

from privfed.core.agreed.agreement import Agreement, JournalCounter
from privfed.core.agreed.policy import Claim, ClientPolicy, Usage
from privfed.core.roles.conversation import Total
from privfed.core.roles.engine import ErrorLog
from privfed.core.stored.files import make_folder, write_new
from privfed.core.values.guarantee import SampledSteps
from privfed.errors import ArgumentError, PolicyError, PrivacyError, StateError
from privfed.nodes.database import KEYS, Database, now
from privfed.nodes.datasets import DataSet, protection_of
from privfed.nodes.identity import OwnIdentity
from privfed.nodes.journalled import LOSSES, JournalledFit, parties_of, start_of
from privfed.party.groups import OwnRows
from privfed.privacy.ledger import claim_of, composed_epsilon, refuses_fit
from privfed.protocols.crypto.keys import Identity, equal

FILE = "journal.sqlite"
"""Name of the journal in a party's folder."""

_MEET = "INSERT INTO peers (public, counter, head, at, statement) VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class FitLine:
    """One fit in a journal, as its owner reads it; no keys and no totals.

    Args:
        number: of the fit, from 1.
        agreement: digest of what was agreed, in hexadecimal digits.
        data_set: the client's own name of the rows.
        parties: digest of its set of clients (`privfed.nodes.journalled.parties_of`), in hexadecimal digits.
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
        steps: of DP-SGD, in JSON; None for other noise.
        renyi: order of the Renyi filter under which it began; None for the Gaussian one.
        answered: sums that were answered, repeats included.
        losses: how often clients were lost; and one where its set of clients is not that of a fit before.
        spent: share of the fit's budget that was paid.
        closed: whether it has ended.
    """

    number: int
    agreement: str
    data_set: str
    parties: str
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
    steps: bytes | None
    renyi: int | None
    answered: int
    losses: int
    spent: float
    closed: bool

    @property
    def gave(self) -> bool:
        """Whether it gave something, or may yet: it has not ended."""
        return bool(self.answered or self.spent or not self.closed)

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
            steps=None if self.steps is None else msgspec.json.decode(self.steps, type=SampledSteps),
            order=self.renyi,
        )


_LINE, _DIGESTS = tuple(FitLine.__slots__), ("agreement", "parties")


def begun(agreement: Agreement, position: int, data_set: str, order: int | None) -> dict[str, Any]:
    """Return what a journal keeps of a fit from its beginning on, by column.

    Args:
        agreement: of the fit.
        position: of the client.
        data_set: the client's own name of its rows.
        order: of the Renyi filter of its policy; None for the Gaussian one.
    """
    configuration, terms = agreement.configuration, agreement.configuration.privacy
    fit = {
        "agreement": agreement.digest,
        "data_set": data_set,
        "protocol": configuration.protocol,
        "algorithm": configuration.algorithm,
        "position": position,
        "parties": parties_of(agreement.registry.clients, configuration.cohorts),
        "began": now(),
    }
    if terms is None:
        return fit
    claim = claim_of(terms, order)
    facts = {
        "epsilon": claim.epsilon,
        "delta": claim.delta,
        "unit": claim.unit,
        "neighbours": claim.neighbours,
        "mechanism": claim.mechanism,
    }
    steps = None if claim.steps is None else msgspec.json.encode(claim.steps)
    return fit | facts | {"noise": str(terms.noise), "steps": steps, "renyi": claim.order}


def raw(fits: Iterable[FitLine]) -> list[dict[str, Any]]:
    """Return what a journal keeps of fits, by column, from the lines of all fits of one journal."""
    found, sets = list[dict[str, Any]](), dict[str, set[str]]()
    for fit in fits:
        known = sets.setdefault(fit.data_set, set())
        kept = asdict(fit) | {
            "agreement": bytes.fromhex(fit.agreement),
            "parties": bytes.fromhex(fit.parties),
        }
        # A line counts one where the set of clients is new; a journal counts that anew.
        kept["losses"] -= fit.gave and bool(known) and fit.parties not in known
        known.update([fit.parties] * fit.gave)
        found.append(kept)
    return found


def left(policy: ClientPolicy, usage: Usage) -> dict[str, float]:
    """Return what is left over all fits on the same rows, by parameter of a policy; of those that it has."""
    limits = {
        "max_fits": (policy.max_fits, usage.fits),
        "max_losses": (policy.max_losses, usage.losses),
        "max_starts": (policy.max_starts, usage.starts),
    }
    found = {name: max(0.0, float(most - n)) for name, (most, n) in limits.items() if most is not None}
    if policy.epsilon_bound is not None:
        epsilon, delta = policy.epsilon_bound
        found["max_epsilon"] = 0.0
        with suppress(PrivacyError):
            found["max_epsilon"] = max(0.0, epsilon - composed_epsilon(usage.claims, delta))
    return found


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
        kept = self._database.rows("SELECT id, public FROM party")
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
        write_new(folder / KEYS, b"")
        database = Database(folder / FILE)
        database.make()
        values = (own.journal, own.name, own.key.public)
        database.rows("INSERT INTO party (id, name, public) VALUES (?, ?, ?)", *values)
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
        special = {one: f"lower(hex({one}))" for one in _DIGESTS} | {"losses": LOSSES}
        columns = ", ".join(special.get(one, one) for one in _LINE)
        rows = self._database.rows(f"SELECT {columns} FROM fits ORDER BY number")
        lines = (dict(zip(_LINE, row, strict=True)) for row in rows)
        return tuple(FitLine(**{**line, "closed": bool(line["closed"])}) for line in lines)

    def entries(self) -> tuple[dict[str, Any], ...]:
        """Return all entries, in order: what an owner may export.

        Raises:
            StateError: an entry, or a row of another table, is not what was written.
        """
        names = ("counter", "at", "fit", "kind", "content", "head")
        self._database.verify()
        rows = self._database.rows(f"SELECT {', '.join(names)} FROM entries ORDER BY counter")
        found = [dict(zip(names, row, strict=True)) for row in rows]
        return tuple(
            one | {"content": json.loads(one["content"]), "head": one["head"].hex()} for one in found
        )

    def usage(self, data_set: str, parties: bytes | None = None) -> Usage:
        """Return what a data set has given so far; fits that ended before an answer count nowhere.

        Args:
            data_set: the party's own name of it.
            parties: of a fit that would begin now (`privfed.nodes.journalled.parties_of`); its set of clients
                counts, too.
        """
        fits = [one for one in self.fits if one.data_set == data_set and one.gave]
        ((starts,),) = self._database.rows("SELECT COUNT(*) FROM starts WHERE data_set = ?", data_set)
        sets = {one.parties for one in fits}
        changes = bool(sets) and parties is not None and parties.hex() not in sets
        return Usage(
            fits=len(fits),
            starts=starts,
            sums=sum(one.answered for one in fits),
            losses=sum(one.losses for one in fits) + changes,
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

    def together(self) -> AbstractContextManager[Any]:
        """Keep all that is written within, or nothing."""
        return self._database.transaction()

    def data_set(self, name: str) -> DataSet:
        """Return one of the party's data sets, by its own name of it."""
        return DataSet(self._database, name)

    def start_of(self, agreement: Agreement, data_set: str, verified: bool) -> Total | None:
        """Return the start total that an agreement names (`privfed.nodes.journalled.start_of`)."""
        return start_of(self._database, agreement, data_set, verified)

    def carry(self, data_sets: Mapping[str, Any], fits: Sequence[dict[str, Any]], **entered: Any) -> None:
        """Take over what an earlier identity gave of the same rows; its fits have ended.

        Args:
            data_sets: of a record, by name.
            fits: what a journal keeps of each (`raw`, `begun`).
            **entered: kept as an entry.

        Raises:
            ArgumentError: rows were grouped, and the record has no groups: made anew, others would cut them.
        """
        with self._database.transaction():
            for name, one in data_sets.items():
                self.data_set(name).take(**one)
            for fit in fits:
                self._insert(fit | {"closed": 1})
            self._database.enter(0, "carried", **entered)

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

    def _insert(self, fit: Mapping[str, Any]) -> int:
        statement = (
            f"INSERT INTO fits ({', '.join(fit)}) VALUES ({', '.join('?' * len(fit))}) RETURNING number"
        )
        ((number,),) = self._database.rows(statement, *fit.values())
        return int(number)

    def _begun(
        self, agreement: Agreement, position: int, data_set: str, policy: ClientPolicy
    ) -> JournalledFit:
        configuration, fit = agreement.configuration, begun(agreement, position, data_set, policy.order)
        code = refuses_fit(policy, configuration, self.usage(data_set, fit["parties"]))
        if code is not None:
            raise PolicyError(code)
        self.data_set(data_set).used(protection_of(policy, configuration))
        with self.together():
            number = self._insert(fit)
            self._database.enter(number, "begin", agreement=agreement.digest.hex(), data_set=data_set)
        return JournalledFit(self._database, number, policy.most_losses(configuration), policy.max_starts)


class JournalIdentity:
    """The long-term key of a party that keeps a journal; give it to `SecureSum.client` as the identity.

    Of each peer the highest counter is remembered. Of one that contradicted it both stay, for good. Of the
    party itself the time stands there at which it showed its own last.

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
        with self._database.transaction() as database:
            last = "SELECT COALESCE(MAX(counter), 0) FROM peers WHERE public = ?"
            at = max(time_ns(), 1 + database.execute(last, (self.public,)).fetchone()[0])
            database.execute(_MEET, (self.public, at, b"", 0, b""))
            return replace(self._database.head, at=at)

    def meets(self, peers: Mapping[bytes, tuple[JournalCounter, bytes]]) -> dict[bytes, tuple[bytes, bytes]]:
        """Remember what peers showed; return two statements of each party whose journal ever went back.

        Args:
            peers: public key -> where that party's journal stood at a set-up, and what it signed of it.
        """
        query = "SELECT public, counter, head, at, statement FROM peers WHERE public != ? ORDER BY row"
        known: dict[bytes, list[tuple[JournalCounter, bytes]]] = {}
        with self._database.transaction() as database:
            for public, counter, head, at, statement in database.execute(query, (self.public,)):
                known.setdefault(public, []).append((JournalCounter(counter, head, at), statement))
            for public, one in peers.items():
                met, now = known.setdefault(public, []), one[0]
                back = len(met) == 1 and met[0][0].contradicts(now)
                if back or (len(met) < 2 and now.counter > (met[0][0].counter if met else 0)):
                    met[:] = [*met, one] if back else [one]
                    database.execute(_MEET, (public, now.counter, now.head, now.at, one[1]))
                if len(met) == 1:
                    forget = "DELETE FROM peers WHERE public = ? AND counter < ?"
                    database.execute(forget, (public, met[0][0].counter))
        return {public: (met[0][1], met[1][1]) for public, met in known.items() if len(met) > 1}
