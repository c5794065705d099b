"""Audit of a run on a client's own rows: how far each row moved each noised total, beside what was charged.

The recorded questions are answered again, without noise, as the client answers them: for each row alone, for
no row, and for all rows together. What a row alone adds is what its absence would change, which the answer of
all rows confirms: in whole steps it is the sum of what the rows add.

Reveals: the result is about single rows. It is for the eyes of whoever has them; no claim covers it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privfed.attacks.audits.units import check_labelled, without_noise
from privfed.core.agreed.configuration import Configuration
from privfed.core.asking.question import ClientData, wire_name
from privfed.core.record.records import question_of
from privfed.core.record.transcript import Transcript
from privfed.core.roles.engine import PythonLog
from privfed.core.values.domain import FloatArray
from privfed.core.values.guarantee import Neighbours, Unit
from privfed.errors import ArgumentError, PrivacyError
from privfed.party.answerer import KEY_BYTES, chosen, in_order, of_users
from privfed.party.groups import as_ids
from privfed.privacy.accounting import ROUNDING_VARIANCE
from privfed.privacy.ledger import unopened
from privfed.privacy.noised import Noised
from privfed.privacy.pricing import SLACK, cost

Places = np.ndarray[Any, np.dtype[np.intp]]

OTHERS = 32
"""Own rows, or users, by which each row is replaced in turn, where neighbours replace a unit."""

_MOST_VALUES = 1 << 21

_HALVES = (slice(0, None, 2), slice(1, None, 2))


@dataclass(frozen=True, kw_only=True)
class RowShift:
    """Holds how far the rows moved one question's total, in standard deviations of its certain noise (mu).

    Attributes:
        index: number of the sum; None for all sums together.
        question: wire name of the question; "all questions" for the sum.
        times: how often it was asked of the client, and paid.
        bound: what was charged each time, as mu; for all together, mu of the claim.
        shift: the largest shift by one unit.
        row: position of the row that moved it most, from 0; at unit "user" of the first row that is kept of
            that user. None where the unit is the whole client, or nothing moved it.
        additive: whether the answer of all rows is the sum of what single rows add.
    """

    index: int | None
    question: str
    times: int
    bound: float
    shift: float
    row: int | None
    additive: bool = True

    @property
    def violated(self) -> bool:
        """Whether a unit moved the total further than was charged, or rows changed what others add."""
        return self.shift > self.bound * (1.0 + SLACK) or not self.additive


@dataclass(frozen=True, kw_only=True)
class RowsAudit:
    """Holds the result of an audit on a client's own rows.

    Attributes:
        questions: of the run, in order.
        together: the largest shift that one unit caused over all of them, beside the claim.
        charged: mu of all that was charged; at most that of the claim.
    """

    questions: Sequence[RowShift]
    together: RowShift
    charged: float

    @property
    def verdict(self) -> str:
        """The verdict: "violated" or "not refuted"."""
        beyond = self.charged > self.together.bound * (1.0 + SLACK)
        found = beyond or any(one.violated for one in (*self.questions, self.together))
        return "violated" if found else "not refuted"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "questions": [asdict(one) for one in self.questions],
            "together": asdict(self.together),
            "charged": self.charged,
            "verdict": self.verdict,
        }


def audit_rows(transcript: Transcript, data: ClientData, key: bytes | None = None) -> RowsAudit:
    """Replay a run's questions on one client's rows, and compare each shift with what was charged.

    At unit "record" each row is a unit, at unit "user" the rows of a user that the client's choice keeps.
    Under replace-one neighbours a unit gives way to `OTHERS` of the client's own units in turn. At unit
    "client" the unit is the whole client, and its shift that of its presence.

    Args:
        transcript: transcript of a run with differential privacy.
        data: the client's rows, scaled as the run's were. Labels, where the run trained on them.
        key: at unit "user" the client's own (`OwnIdentity.user_key`); None chooses anew, which the charge
            covers as well.

    Raises:
        ArgumentError: the run's totals are not noised; there is no row, it has other columns, or no label
            where the run trained on labels.
        PrivacyError: a question of the run carries no noise.
    """
    agreed = transcript.configuration
    terms = agreed.noising_terms
    if terms is None:
        raise ArgumentError("the run's totals are not noised: nothing was charged for a row's shift.")
    if not data.n_rows or data.n_features != agreed.n_features:
        raise ArgumentError(
            f"the rows have shape {data.features.shape}, the run has {agreed.n_features} columns; pass at "
            "least one row with these columns."
        )
    places, firsts = [np.arange(data.n_rows)], None
    if terms.unit == Unit.RECORD:
        places, firsts = [np.array([i]) for i in range(data.n_rows)], np.arange(data.n_rows)
    elif terms.unit == Unit.USER:
        ids, own = as_ids(data.users or ()), secrets.token_bytes(KEY_BYTES) if key is None else key
        kept = np.flatnonzero(chosen(data, terms.rows_per_user, own))
        if not len(kept):
            raise ArgumentError("no row has an id, so that no user moved anything.")
        names, owner = np.unique(np.array(ids, dtype=object)[kept], return_inverse=True)
        data = of_users(data, terms, own)
        places = [np.flatnonzero(owner == one) for one in range(len(names))]
        firsts = kept[[one[0] for one in places]]
    units = [_only(data, own) for own in places]
    replaced = terms.unit.of_rows and terms.neighbours == Neighbours.REPLACE_ONE
    others = np.unique(np.linspace(0, len(units) - 1, OTHERS).astype(np.intp)) if replaced else None
    together = np.zeros((len(units), 1 if others is None else len(others)))
    # The budget is in units of one row.
    whole_price = terms.budget * terms.rows_apart**2
    charged, found = 0.0, list[RowShift]()
    asked = [(one.index, question_of(one), total.attempts) for one, total in transcript.totals()]
    lost = [(one, 1) for one in unopened(transcript)]
    for index, question, times in [*asked, *((len(asked), one, times) for one, times in lost)]:
        if not isinstance(question, Noised):
            raise PrivacyError(f"{wire_name(type(question))} (sum {index}) was asked without noise.")
        check_labelled(question, data.labels is not None)
        squares, additive = _squares(question, index, data, units, others, agreed)
        price, name = cost(question, agreed) * whole_price, wire_name(type(question.inner))
        together, charged = together + times * squares, charged + times * price
        found.append(_shift(index, name, times, price, squares, additive, firsts))
    whole = _shift(None, "all questions", 1, whole_price, together, True, firsts)
    return RowsAudit(questions=found, together=whole, charged=float(np.sqrt(charged)))


def _only(data: ClientData, kept: slice | Places) -> ClientData:
    labels = None if data.labels is None else data.labels[kept]
    return ClientData(data.features[kept], labels, classes=data.classes, times=data.times)


def _shift(
    index: int | None,
    name: str,
    times: int,
    price: float,
    squares: FloatArray,
    additive: bool,
    firsts: Places | None,
) -> RowShift:
    worst = squares.max(axis=1)
    return RowShift(
        index=index,
        question=name,
        times=times,
        bound=float(np.sqrt(price)),
        shift=float(np.sqrt(worst.max())),
        row=int(firsts[worst.argmax()]) if firsts is not None and worst.any() else None,
        additive=additive,
    )


def _squares(
    question: Noised,
    index: int,
    data: ClientData,
    units: Sequence[ClientData],
    others: Places | None,
    agreed: Configuration,
) -> tuple[FloatArray, bool]:
    """Return each unit's squared shifts, (n_units, 1 or n_others), and whether the units' answers add up."""
    bare, size = without_noise(question), question.spec.size
    repeats = [int(np.prod(entry.shape)) for entry in question.inner.spec.entries]
    steps = np.repeat(question.steps, repeats)
    variance = np.repeat(agreed.noising * np.square(question.sigma) - ROUNDING_VARIANCE, repeats)

    def answers(clients: Sequence[ClientData]) -> FloatArray:
        """Return exact answers in steps, each client's as if it were alone."""
        logs = [PythonLog()] * len(clients)
        names = [agreed.clients[0]] * len(clients)
        found, _ = in_order(bare, index, names, clients, agreed.seed, logs)
        return np.stack([bare.spec.flatten(one) for one in found]) / steps

    nothing = answers([data.emptied()])
    chunk = max(1, _MOST_VALUES // size)
    against = nothing if others is None else answers([units[i] for i in others])
    added, squares = np.zeros(size), []
    for first in range(0, len(units), chunk):
        own = answers(units[first : first + chunk])
        added += (own - nothing).sum(axis=0)
        squares.append(np.stack([(np.square(own - one) / variance).sum(axis=1) for one in against], axis=1))
    totals = [added]
    if 1 < len(units) <= question.ranges.rows:
        # One pass answers many clients, in which rows could meet: each half has a pass of its own.
        totals.append(np.sum([answers([_only(data, half)])[0] - nothing[0] for half in _HALVES], axis=0))
    # Of more rows than were declared, clients clip the sum as a whole.
    ends, whole = (bare.spec.low / steps, bare.spec.high / steps), answers([data])[0]
    additive = all(np.array_equal(np.clip(nothing[0] + one, *ends), whole) for one in totals)
    return np.concatenate(squares), additive
