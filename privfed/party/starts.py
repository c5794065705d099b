"""Start totals in a party's journal: what it verified once, and from which later fits begin.

A total is kept with the rows' name, the configuration of its fit, the number of its sum, and who is in it by
their long-term keys. A later agreement that names it must be of exactly these parties, over as many columns
in the same declared domain, and on rows of the same name; otherwise the client refuses, and asks for nothing.
"""

from __future__ import annotations

from privfed.algorithms.starts.kept import KeptStart, is_start
from privfed.core.agreed.agreement import Agreement
from privfed.core.agreed.configuration import Configuration
from privfed.core.agreed.described import START_MISSING, kept_starts
from privfed.core.agreed.program import built
from privfed.core.roles.conversation import EVERYONE, Ask, Total
from privfed.core.stored.hashing import digest
from privfed.errors import PolicyError
from privfed.party.database import Database
from privfed.party.journalled import JournalledFit
from privfed.party.replica import TOTAL, OpenedTotal


def keep_start(
    database: Database, fit: JournalledFit, agreement: Agreement, index: int, ask: Ask, opened: OpenedTotal
) -> None:
    """Keep a verified total that is a start's; of the same sum the first is kept.

    Args:
        database: the journal's file.
        fit: the fit in it.
        agreement: of the fit.
        index: number of the sum.
        ask: what it asked.
        opened: its total.
    """
    if ask.cohort != EVERYONE or not is_start(ask.question):
        return
    configuration, keys = agreement.configuration, agreement.registry.clients
    cohort = _cohort(configuration, [keys[i] for i in opened.contributors])
    where = (configuration.digest(), index, cohort, TOTAL.to_bytes(opened), fit.number)
    with database.transaction() as transaction:
        transaction.execute(
            "INSERT OR IGNORE INTO start_totals (data_set, fit, sum, cohort, total) "
            "SELECT data_set, ?, ?, ?, ? FROM fits WHERE number = ?",
            where,
        )


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
    named = {built(one) for one in kept_starts(configuration.program)}
    if not named:
        return None
    if len(named) > 1 or not verified or configuration.privacy is not None:
        raise PolicyError(START_MISSING)
    (one,) = named
    kept = _kept(database, one, data_set, _cohort(configuration, agreement.registry.clients))
    if kept is None:
        raise PolicyError(START_MISSING)
    return TOTAL.from_bytes(kept).total()


def _kept(database: Database, named: KeptStart, data_set: str, cohort: bytes) -> bytes | None:
    query = "SELECT total FROM start_totals WHERE data_set = ? AND fit = ? AND sum = ? AND cohort = ?"
    with database.transaction() as transaction:
        where = (data_set, bytes.fromhex(named.fit), named.index, cohort)
        found = transaction.execute(query, where).fetchone()
    return None if found is None else bytes(found[0])


def _cohort(configuration: Configuration, keys: tuple[bytes, ...] | list[bytes]) -> bytes:
    """Return a digest of who is in a total, and of what its columns are as far as that is agreed."""
    agreed = configuration
    box = [b"" if one is None else one.data for one in (agreed.low, agreed.high)]
    return digest("start cohort", agreed.n_features.to_bytes(8, "little"), *box, *sorted(keys))
