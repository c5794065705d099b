"""Takes rows that the attacker knows out of all totals: what is left is of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privfed.attacks.evidence.equations import asked, summed
from privfed.core.asking.question import ClientData
from privfed.core.asking.statistics import Statistics
from privfed.core.record.view import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError


def without_known(view: View, rows: FloatArray) -> View:
    """Return a view whose totals are over the rows that the attacker does not know.

    It need not know whose rows they are, as long as they are in every total. Totals that do not add up over
    rows, and answers of single clients, are left out: nobody can tell what known rows did in them.

    Args:
        view: what a party saw, of one run or of several.
        rows: rows that took part, as they were fitted, float64 of shape (n_rows, n_features).

    Raises:
        ArgumentError: the rows have other columns than the run's, or more of them than a total counts.
    """
    known = ClientData(np.asarray(rows, dtype=np.float64))
    return replace(view, sums=tuple(_others(one, known) for one in view.sums))


def _others(one: SumView, known: ClientData) -> SumView:
    question, total = asked(one), one.total
    if question is None:
        return one
    whole = set(summed(question)) == {name for name, _ in question.spec.layout}
    if total is None or not whole:
        return replace(one, total=None, answers={})
    if known.features.shape[1] != question.ranges.n_features:
        raise ArgumentError(
            f"the known rows have {known.features.shape[1]} columns, the run has "
            f"{question.ranges.n_features}."
        )
    own = question.answer(known.within(question.ranges)[0], np.random.default_rng(0))
    left = Statistics(**{name: total[name] - own[name] for name in total})
    counts = () if question.declaration is None else question.declaration.row_counts
    if asked(one) is one.question and any(left[name].min() < -1e-3 for name in counts if name in left):
        raise ArgumentError(
            f"some of the {len(known.features)} known rows did not take part: sum {one.index} counts fewer "
            "rows in their cells. Pass rows that did, as they were fitted."
        )
    return replace(one, total=left, answers={})
