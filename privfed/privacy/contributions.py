"""Sums over rows, of which each is checked against its bound in whole steps before it is added.

A question with a bound on one record says what each row adds (`Contribution`), and never adds by itself.
Here each row's values are truncated toward zero to the entry's grid. Their length is compared with the bound
in integers: squares of steps below 2^53 are exact in float64. A row beyond its bound adds zero, only that
row, and the client's own log says how many did. So a mistake in a question's clipping costs utility, not
privacy.

Why it holds: a row that adds zero moves a total by nothing where it is added or removed, and by at most the
other record's length where it is replaced. What no neighbour changes (`Bound.fixed`) a row adds in any case.

Reveals: nothing; the log stays with the client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Entry, Statistics
from privfed.core.values.domain import FloatArray
from privfed.errors import PrivacyError

if TYPE_CHECKING:
    from privfed.privacy.bounds import Bound, RecordBounded

IntArray = npt.NDArray[np.intp]

_MOST_VALUES = 1 << 18
"""Values of rows that are in memory at once, at least."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What each of some rows adds to one entry.

    Args:
        values: float64 of shape (n_rows, width), before truncation; None where each row adds 1.
        cells: where it is added: a position in the entry's leading axes, whose last ones hold the `width`
            values, intp of shape (n_rows,); -1 for nowhere. None where the values are all of the entry's.
    """

    values: FloatArray | None = None
    cells: IntArray | None = None


def most_squared(l2: float, step: float) -> float:
    """Return the largest squared length of whole steps that is within a bound, a whole number."""
    return float((Fraction(l2) / Fraction(step)) ** 2 // 1)


def summed(question: RecordBounded, clients: Sequence[ClientData]) -> list[Statistics]:
    """Return each client's sums over its rows, of which none adds more than its bound."""
    # Imported here since it takes long, and whoever only reads a run answers nothing.
    from privfed.numerics.kernels.interpreted import FEW_FEATURES

    few = clients[0].n_features <= FEW_FEATURES
    # Of many features one matrix product a client, so that a client's result does not depend on the others.
    batches = [clients] if few or len(clients) == 1 else [[one] for one in clients]
    found = [totals for batch in batches for totals in _of_batch(question, batch)]
    return [Statistics(**totals) for totals in found]


def _of_batch(question: RecordBounded, clients: Sequence[ClientData]) -> list[dict[str, FloatArray]]:
    sizes = [one.n_rows for one in clients]
    rows = clients[0].features if len(clients) == 1 else np.concatenate([one.features for one in clients])
    labels = np.concatenate(
        [np.full(one.n_rows, -1, dtype=np.int64) if one.labels is None else one.labels for one in clients]
    )
    owner = np.repeat(np.arange(len(clients)), sizes)
    entries, bounds, n = question.spec.entries, question.bounds, len(clients)
    totals: dict[str, FloatArray] = {}
    # Rows that fit into a cache together, or more where their sums would take longer than they.
    chunk = max(1, max(_MOST_VALUES, 4 * n * question.spec.size) // question.values_of_a_row)
    zeroed = np.zeros(n, dtype=np.int64)
    for first in range(0, max(1, len(rows)), chunk):
        here = slice(first, first + chunk)
        with np.errstate(all="ignore"):  # What is no number is beyond its bound.
            parts = question.contributions(rows[here], labels[here])
            checked = _Checked.of(parts, entries, bounds)
        if not checked.within.all():
            zeroed += np.bincount(owner[here][~checked.within], minlength=n)
        for entry in entries:
            name, bound = entry.name, bounds[entry.name]
            if bound.fixed:
                added = bound.l2 * np.bincount(owner[here], minlength=n)[:, None]
            else:
                added = checked.added(parts[name], entry, owner[here], n)
            totals[name] = np.asarray(totals[name] + added if first else added, dtype=np.float64)
    for client, count in zip(clients, zeroed.tolist(), strict=True):
        if count:
            client.errors.append(beyond(question, count))
    shaped = {entry.name: totals[entry.name].reshape(n, *entry.shape) for entry in entries}
    return [{name: total[i] for name, total in shaped.items()} for i in range(n)]


def beyond(question: object, count: int) -> PrivacyError:
    """Return what a client's own log says of rows, or of the client as a whole, beyond their bound."""
    return PrivacyError(
        f"{type(question).__name__}: {count} contributions were beyond their bound and count as zero; the "
        "question clips wrongly, or its bound is wrong. This stays here: nobody else is told."
    )


class _Checked:
    """Rows in whole steps, entry by entry, and which of them are within all their bounds."""

    def __init__(self, steps: Mapping[str, FloatArray], within: npt.NDArray[np.bool_]) -> None:
        self._steps, self.within = steps, within

    @classmethod
    def of(
        cls, parts: Mapping[str, Contribution], entries: Sequence[Entry], bounds: Mapping[str, Bound]
    ) -> _Checked:
        steps: dict[str, FloatArray] = {}
        within: npt.NDArray[np.bool_] | None = None
        for entry in entries:
            bound = bounds[entry.name]
            if bound.fixed:
                continue
            part, step = parts[entry.name], float(np.max(entry.resolution))
            most = most_squared(bound.l2, step)
            tests: list[npt.NDArray[np.bool_]] = []
            if part.values is None:
                assert part.cells is not None, "a count needs cells; of all rows it is `lone_count()`"
                tests.append(np.full(len(part.cells), bool(step**-2 <= most)))
            else:
                whole = steps[entry.name] = np.trunc(part.values / step)
                tests.append(np.asarray(np.einsum("ij,ij->i", whole, whole) <= most))
                if bound.nonnegative:
                    tests.append(np.asarray((whole >= 0.0).all(axis=1)))
            if part.cells is not None:
                n_cells = prod(entry.shape) // (1 if part.values is None else part.values.shape[1])
                tests.append(np.asarray((part.cells >= -1) & (part.cells < n_cells)))
            for one in tests:
                within = one if within is None else np.logical_and(within, one)
        return cls(steps, np.zeros(0, dtype=bool) if within is None else within)

    def added(self, part: Contribution, entry: Entry, owner: IntArray, n_clients: int) -> FloatArray:
        """Return the sums of one entry, in its units."""
        from privfed.numerics.kernels.interpreted import cell_sums

        step, size = float(np.max(entry.resolution)), prod(entry.shape)
        whole = self._steps.get(entry.name)
        kept = self.within if part.cells is None else self.within & (part.cells >= 0)
        cells, owners = part.cells, owner
        if not kept.all():
            owners, cells = owner[kept], None if cells is None else cells[kept]
            whole = None if whole is None else whole[kept]
        if whole is None:
            assert cells is not None
            return np.bincount(owners * size + cells, minlength=n_clients * size).astype(np.float64)
        if cells is None:
            if n_clients == 1:
                return np.asarray(step * whole.sum(axis=0))
            return np.asarray(step * cell_sums(whole, owners, n_clients)[1])
        n_cells = size // whole.shape[1]
        return np.asarray(step * cell_sums(whole, owners * n_cells + cells, n_clients * n_cells)[1])
