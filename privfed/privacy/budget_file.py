"""The file of a privacy budget: what it guarantees, and its payments, which are final.

A transaction locks the file against other processes. A commit is on disk before the next statement runs.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privfed.errors import BudgetError, StateError
from privfed.privacy.claim import Privacy

FORMAT = 1
"""Of the file."""

ROUNDING = 1e-12
"""By how much the float64 sum of shares may exceed 1; the whole is lower by more (`filters.whole`)."""

FORM = (
    """CREATE TABLE budget (
    row INTEGER PRIMARY KEY CHECK (row = 1), epsilon REAL NOT NULL, delta REAL NOT NULL, unit TEXT NOT NULL,
    neighbours TEXT NOT NULL, renyi INTEGER)""",
    """CREATE TABLE payments (
    number INTEGER PRIMARY KEY, at TEXT NOT NULL, share REAL NOT NULL CHECK (share > 0),
    purpose TEXT NOT NULL, claim TEXT NOT NULL, run TEXT)""",
    *(
        f"CREATE TRIGGER budget_{event.lower()} BEFORE {event} ON budget "
        "BEGIN SELECT RAISE(ABORT, 'a budget stays as it is'); END"
        for event in ("UPDATE", "DELETE")
    ),
    "CREATE TRIGGER payments_stay BEFORE DELETE ON payments "
    "BEGIN SELECT RAISE(ABORT, 'a payment is final'); END",
    "CREATE TRIGGER payments_used BEFORE UPDATE ON payments WHEN OLD.run IS NOT NULL "
    "BEGIN SELECT RAISE(ABORT, 'a payment is for one run'); END",
    f"PRAGMA user_version = {FORMAT}",
)


@dataclass(frozen=True, slots=True)
class Paid:
    """One payment of a budget.

    Args:
        number: 1 for the first payment.
        date: when it was paid (UTC, ISO 8601).
        share: share of the budget.
        purpose: what for, in words.
        claim: the guarantee that it pays for, in words.
        used: whether a run has begun on it.
    """

    number: int
    date: str
    share: float
    purpose: str
    claim: str
    used: bool


@contextmanager
def opened(path: Path, *, create: bool = False) -> Iterator[sqlite3.Connection]:
    """Lock a budget's file; on leaving, all that was written is on disk, or after an error nothing."""
    if not create and not path.exists():
        raise StateError(f"{path} is missing; make one by privfed budget new, or PrivacyBudget(...).")
    try:
        mode = "rwc" if create else "rw"
        address = f"{path.absolute().as_uri()}?mode={mode}"
        with closing(sqlite3.connect(address, uri=True, timeout=60.0, isolation_level=None)) as database:
            # EXTRA: a commit survives a loss of power, as in the parties' journals.
            database.execute("PRAGMA synchronous = EXTRA")
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")
    except sqlite3.Error as error:
        raise StateError(f"{path} cannot be used as a budget ({error}); nothing was released.") from None


def stated_in(database: sqlite3.Connection, path: Path) -> tuple[Any, ...]:
    """Return epsilon, delta, unit, neighbours and order of a budget.

    Raises:
        StateError: the file is none.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != FORMAT:
        raise StateError(f"{path} is no budget of format {FORMAT}, which this privfed reads.")
    found: tuple[Any, ...] | None = database.execute(
        "SELECT epsilon, delta, unit, neighbours, renyi FROM budget"
    ).fetchone()
    if found is None:
        raise StateError(f"{path} states no guarantee: it is damaged.")
    return found


def enter(database: sqlite3.Connection, share: float, purpose: str, claim: str, run: str | None) -> int:
    """Add a payment, and return its number."""
    row = (datetime.now(UTC).isoformat(timespec="seconds"), share, purpose, claim, run)
    columns = "at, share, purpose, claim, run"
    number = database.execute(f"INSERT INTO payments ({columns}) VALUES (?, ?, ?, ?, ?)", row).lastrowid
    assert number is not None
    return number


def divide(database: sqlite3.Connection, number: int, part: float) -> int | None:
    """Turn a part of a payment that no run has begun on into one of its own, and return that one's number."""
    where = "WHERE number IS ? AND run IS NULL"
    found = database.execute(f"SELECT share, purpose, claim FROM payments {where}", (number,)).fetchone()
    if found is None:
        return None
    share, purpose, claim = found
    database.execute(f"UPDATE payments SET share = ? {where}", ((1.0 - part) * share, number))
    return enter(database, part * share, purpose, claim, None)


@contextmanager
def recording(path: Path, run: str, asked: int) -> Iterator[None]:
    """Enter how many questions a run has recorded, once the last of them is, before it is sent.

    A question that is refused is not to be recorded: by its record a later try would not be refused.

    Args:
        path: of the budget's file.
        run: that was paid.
        asked: questions in its record, the one that is to be recorded and sent among them.

    Raises:
        BudgetError: it sent as many before: the record is an older copy, from which more would be released
            than was paid.
    """
    with opened(path) as database:
        _check_asked(database, path, run, asked)
    yield
    with opened(path) as database:
        # Meanwhile a copy may have sent its own.
        _check_asked(database, path, run, asked)
        database.execute("INSERT OR REPLACE INTO asked VALUES (?, ?)", (run, asked))


def _check_asked(database: sqlite3.Connection, path: Path, run: str, asked: int) -> None:
    # Made here, so that files of this format which have none go on.
    database.execute("CREATE TABLE IF NOT EXISTS asked (run TEXT PRIMARY KEY, questions INTEGER)")
    found = database.execute("SELECT questions FROM asked WHERE run = ?", (run,)).fetchone()
    if found is not None and asked <= found[0]:
        raise BudgetError(
            f"the record of this run has {asked - 1} questions, and {found[0]} were sent: it is an older "
            f"copy, and what was paid from {path.name} is released; nothing was sent. Begin a new run."
        )


def has_paid(database: sqlite3.Connection, run: str, share: float) -> bool:
    """Say whether a run was paid.

    Raises:
        BudgetError: it was, for less than the share that it claims: its folder has another run's payment.
    """
    found = database.execute("SELECT share FROM payments WHERE run = ?", (run,)).fetchone()
    if found is not None and share > found[0] * (1.0 + ROUNDING):
        raise BudgetError(
            f"the payment that this folder shows is for {found[0]:.4g} of the budget, and {share:.4g} is "
            "claimed: it is another run's; nothing was released. Put its own file back, or begin a new run."
        )
    return found is not None


def shown_of(database: sqlite3.Connection, run: str) -> str:
    """Return what a run's folder keeps of its payment: the budget's id, the payment's number, and its run."""
    name_it(database)
    found = database.execute("SELECT id, number FROM identity, payments WHERE run = ?", (run,)).fetchone()
    return f"{found[0]} {found[1]} {_hashed(run)}"


def check_shown(database: sqlite3.Connection, path: Path, shown: str, run: str = "") -> None:
    """Check that a budget has the payment that a run's folder shows, if that is of this budget.

    Args:
        database: the budget.
        path: of its file.
        shown: what the folder keeps.
        run: as which the folder goes on; empty where none does.

    Raises:
        BudgetError: it has not: the file is an older copy, from which more would be released than it knows.
            Or the payment is for another name, as earlier versions gave it.
    """
    name_it(database)
    if len(parts := shown.split()) != 3 or not parts[1].isdecimal():
        return  # Folders of earlier versions show nothing, nor does a file that was cut short.
    own, number, hashed = parts
    (known,) = database.execute("SELECT id FROM identity").fetchone()
    paid = database.execute("SELECT run FROM payments WHERE number = ?", (int(number),)).fetchone()
    if own == known and (paid is None or _hashed(paid[0] or "") != hashed):
        raise BudgetError(
            f"{path} lacks payment {number}, which the run's folder shows: it is an older copy, and does not "
            "know what was released since; nothing was released now. Use the file that was paid from."
        )
    if run and own == known and hashed != _hashed(run):
        raise BudgetError(
            f"payment {number} of {path.name} is for this folder as an earlier version of privfed named it; "
            "nothing was paid again. Begin a new run, or go on with that version."
        )


def check_run(path: Path, kept: Path) -> None:
    """Check a budget's file by what a run's folder keeps, where it keeps anything; see `check_shown`."""
    if kept.exists():
        with opened(path) as database:
            check_shown(database, path, kept.read_text(encoding="ascii").partition(" ")[2])


def name_it(database: sqlite3.Connection) -> None:
    """Give a budget an id, which its copies share. As `asked`, it is made where a file has none."""
    database.execute("CREATE TABLE IF NOT EXISTS identity (row INTEGER PRIMARY KEY, id TEXT NOT NULL)")
    database.execute("INSERT OR IGNORE INTO identity VALUES (1, ?)", (secrets.token_hex(16),))


def _hashed(run: str) -> str:
    return hashlib.sha256(run.encode("utf-8", "surrogateescape")).hexdigest()


def claim_in_words(privacy: Privacy) -> str:
    """Return a claim as a budget's log has it."""
    return (
        f"epsilon {privacy.epsilon:.6g}, delta {privacy.delta:g} ({privacy.unit}, {privacy.neighbours}; "
        f"{privacy.mechanism}, {privacy.noise})"
    )


def words_of(epsilon: float, delta: float, unit: str, neighbours: str, order: int | None) -> str:
    """Return the guarantee of a budget in words."""
    by = "" if order is None else f", order={order}"
    return f'epsilon={epsilon:g}, delta={delta:g}, unit="{unit}", neighbours="{neighbours}"{by}'


def left_in(database: sqlite3.Connection) -> float:
    """Return the share that is left, in [0, 1]."""
    left = 1.0 - math.fsum([row[0] for row in database.execute("SELECT share FROM payments")])
    return left if left > ROUNDING else 0.0
