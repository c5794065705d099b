"""The work of `privfed audit --my-rows`: what one's own rows moved in a run, beside what was charged.

Reveals: it is about single rows. It is printed for whoever has them, and neither written nor sent.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click
import msgspec
import numpy as np

from privfed.attacks.audits import RowShift, audit_rows
from privfed.attacks.audits.truth import unlike_own
from privfed.cli.described import load, other_columns
from privfed.cli.output import answer, table
from privfed.cli.run_folder import Source
from privfed.core.asking.question import ClientData
from privfed.core.record.records import Asked
from privfed.core.record.transcript import Transcript
from privfed.core.stored.encoding import digest
from privfed.core.values.guarantee import Unit
from privfed.data.own import ReadRows
from privfed.data.table import KEEP, LEAVE_OUT, marked, missing_rule
from privfed.data.table_files import is_folder, read_frame, suffix
from privfed.errors import ArgumentError, DataError
from privfed.estimators.scaling import scaled_as
from privfed.nodes.identity import read_identity
from privfed.nodes.journal import Journal
from privfed.party.answerer import of_users
from privfed.privacy.claim import PrivacySpent
from privfed.tables.beside import gaps_in

FOR_YOU = "this is about single rows of yours: for your eyes, and no claim covers it"

DOUBT = "the record leaves room for these rows, as noise does for others: whose they are, you must know"

ANOTHER_CHOICE = "without --journal rows of each id are chosen by another key than in the run"


def audit_own_rows(
    transcript: Transcript,
    claim: PrivacySpent,
    source: Source,
    client: str | None,
    grouped: bool,
    journal: Path | None,
    as_json: bool,
) -> None:
    """Replay a run on the rows in a file, print what they moved, and exit with 1 beyond a bound.

    Args:
        transcript: of the run.
        claim: the run's.
        source: the table of the client's rows, and how it is read.
        client: whose rows those are, where the table has several clients'; None for all of them.
        grouped: whether the column that says whose a row is was named now.
        journal: folder of the client's party, whose journal says what it answered; None without.
        as_json: whether to print JSON.
    """
    answered = [] if journal is None else [_answered(journal, transcript)]
    if journal is None and claim.unit == Unit.USER:
        answered.append(ANOTHER_CHOICE)
    key = None if journal is None else read_identity(journal).user_key
    own = _own(transcript, source, client, grouped)
    _check_own(transcript, own, client, key)
    found = audit_rows(transcript, own, key)
    lines = map(_cells, (*found.questions, found.together))
    shown = table(("sum", "question", "charged (mu)", "largest shift", "row", ""), lines)
    plain = found.to_dict() | {"privacy": claim.to_dict()}
    plain |= {"doubt": DOUBT}
    answer(plain, as_json, str(claim), FOR_YOU, *answered, shown, DOUBT, f"verdict: {found.verdict}")
    if found.verdict == "violated":
        raise click.exceptions.Exit(1)


def _own(transcript: Transcript, source: Source, client: str | None, grouped: bool) -> ClientData:
    """Return the client's rows, scaled as the run's were, with marks in the gaps that it counted.

    Raises:
        DataError: they are of other columns than the run's, or in another order, which no noised total shows.
    """
    rows = Path(source.path)
    named = source.group is not None and suffix(rows) != ".npz" and not is_folder(rows)
    if client is None and (grouped or (named and source.group in read_frame(rows, None).columns)):
        raise ArgumentError(f"{rows} says whose rows are whose: name yours with --client.")
    names = transcript.configuration.clients
    if client is not None and client not in names:
        raise ArgumentError(f"client {client!r} is not in this run; it has {', '.join(names[:8])}.")
    tables = load(
        msgspec.structs.replace(
            source,
            missing=KEEP,
            group=None if client is None else source.group,
            clients=() if client is None else names,
        ),
        private=True,
    )
    if (others := other_columns(transcript, tuple(tables.columns))) is not None:
        raise DataError(others)
    own = tables.tables[0 if client is None else tables.names.index(client)]
    rule = missing_rule(LEAVE_OUT if source.missing is None else source.missing, error=False)
    ids = None if own.ids is None else np.array(own.ids, dtype=object)
    table = marked(np.asarray(own.features), gaps_in(transcript.configuration))
    read = ReadRows(tables.columns, table, own.labels, rule, ids)
    return ClientData(scaled_as(transcript)(read.features), read.labels, users=read.ids)


def _check_own(transcript: Transcript, own: ClientData, client: str | None, key: bytes | None) -> None:
    """Check that the record leaves room for rows of a client: what others moved says nothing of its own.

    Raises:
        DataError: it leaves none.
    """
    terms, names = transcript.configuration.privacy, transcript.configuration.clients
    if terms is None or (terms.unit == Unit.USER and key is None):
        return
    counted = of_users(own, terms, key)
    if why := unlike_own(transcript, counted, None if client is None else names.index(client)):
        raise DataError(
            f"these are not rows that {'a client' if client is None else client} of this run answered from: "
            f"they contradict {why}. Name the file, and the client, of the run."
        )


def _answered(party: Path, transcript: Transcript) -> str:
    """Compare a run's questions with those that a party's journal answered, and say how many it did.

    Raises:
        ArgumentError: the journal answered none of them, or others in the same fit.
    """
    asked = {(one.index, digest("question", one.question).hex()) for one in transcript.of(Asked)}
    given: dict[int, set[tuple[int, str]]] = defaultdict(set)
    for entry in Journal(party, read_identity(party)).entries():
        if entry["kind"] == "sum":
            given[entry["fit"]].add((entry["content"]["index"], entry["content"]["digest"]))
    # Fits of one algorithm may begin with the same question.
    fit = max(given, key=lambda number: len(given[number] & asked), default=0)
    if not given[fit] & asked:
        raise ArgumentError(f"the journal in {party} answered no question of this run; name its own run.")
    if others := given[fit] - asked:
        raise ArgumentError(
            f"in fit {fit} the journal in {party} answered {len(others)} questions that this run has not, "
            f"first that of sum {min(others)[0]}. The record is not the whole run, or not as it was."
        )
    return (
        f"{len(given[fit])} of {len(asked)} questions were answered, in fit {fit} of the journal in {party}"
    )


def _cells(one: RowShift) -> tuple[str, ...]:
    still = "" if one.shift else "nothing moved it"
    said = (
        "rows change what others add" if not one.additive else "beyond its bound" if one.violated else still
    )
    return (
        "" if one.index is None else str(one.index) if one.times == 1 else f"{one.index} x {one.times}",
        one.question,
        f"{one.bound:.4g}",
        f"{one.shift:.4g}",
        "" if one.row is None else str(one.row + 1),
        said,
    )
