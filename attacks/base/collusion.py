"""The view of a server with colluding clients: their own answers are subtracted from every total.

A colluder has its data and every question, so it knows its own answers exactly; what is left is the total
of the other clients. `without_colluders` does this for every passive attack, which then runs on the view
that it returns.

Two things are not subtracted exactly, so the attacker is a little weaker here than it could be: answers that
draw random numbers (a client's mini-batches) are redrawn, and the colluders' own shares of
differential-privacy noise stay in. If the sum shows single answers, those of the run are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from privfed.core.asking.question import ClientData, Question
from privfed.core.asking.statistics import Statistics
from privfed.core.record.view import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised


def without_colluders(view: View, rows: Mapping[int, FloatArray]) -> View:
    """Return a view in which totals and cohorts are those of the other clients.

    Args:
        view: `transcript.view("server", colluding=[...])`.
        rows: position -> rows of each colluder, (n_rows, n_features): what the attacker brings
            (`Prior.colluders`).

    Raises:
        ArgumentError: `rows` does not name exactly the view's colluders.
    """
    if set(rows) != set(view.colluding):
        raise ArgumentError(
            f"the view is of a server with colluders {list(view.colluding)}, rows were given for "
            f"{sorted(rows)}; pass the rows of each."
        )
    if not rows:
        return view
    data = {client: ClientData(own) for client, own in rows.items()}
    sums = [_others(one, data) for one in view.sums]
    return replace(view, sums=tuple(one for one in sums if one.cohort))


def _others(one: SumView, data: Mapping[int, ClientData]) -> SumView:
    # A party that does not see who contributed assumes that the whole cohort did.
    inside = [i for i in (one.contributors or one.cohort) if i in data]
    total = one.total
    if total is not None and one.question is not None:
        for client in inside:
            own = one.answers.get(client)
            total = _difference(total, _answer(one.question, data[client]) if own is None else own)
    return replace(
        one,
        cohort=tuple(i for i in one.cohort if i not in data),
        contributors=tuple(i for i in one.contributors if i not in data),
        total=total,
        answers={i: answer for i, answer in one.answers.items() if i not in data},
    )


def _answer(question: Question, data: ClientData) -> Statistics:
    question = question.inner if isinstance(question, Noised) else question
    return question.answer(data.within(question.ranges)[0], np.random.default_rng(0))


def _difference(total: Statistics, own: Statistics) -> Statistics:
    return Statistics(**{name: total[name] - own[name] for name in total})
