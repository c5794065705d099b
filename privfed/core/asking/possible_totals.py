"""Totals that no cohort of honest clients could give, which are refused whatever the secure sum is.

The check finds faults, and lies that reach beyond the ranges. It stops nobody who stays within what honest
rows could add up to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from privfed.core.asking.question import Question
from privfed.core.asking.statistics import ROUNDED, Statistics
from privfed.core.values.domain import FloatArray
from privfed.errors import ImpossibleTotalError


def impossible(
    question: Question, total: Statistics, n: int, rows: tuple[int, ...] = ()
) -> ImpossibleTotalError | None:
    """Return the error of a total that honest clients cannot give; None for any other.

    Every value lies within `n` times its range. Without noise, counts of rows add up to at most the rows of
    `n` clients, and values with weights lie between the weights' total times their ends (`Within`).

    Args:
        question: that was asked.
        total: of the answers.
        n: number of clients that answered.
        rows: bounds on the rows of each of them; empty where it is that of the question's ranges.
    """
    for name, value, low, high in _bounds(question, total, n, rows):
        # NaN is neither above nor below.
        wrong = ~((value >= low) & (value <= high))
        if wrong.any():
            at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
            found, least, most = (float(np.broadcast_to(one, wrong.shape)[at]) for one in (value, low, high))
            return ImpossibleTotalError(name, found, least, most, clients=n)
    return None


def _bounds(
    question: Question, total: Statistics, n: int, rows: tuple[int, ...]
) -> Iterator[tuple[str, FloatArray, FloatArray, FloatArray]]:
    """Yield name, values, lowest and highest values of entries."""
    spec = question.spec
    if question.noise_reach is not None:
        reach = spec.unflatten(question.noise_reach)
        for name, low, high in spec.bounds(n):
            yield name, total[name], low - reach[name], high + reach[name]
        return
    for name, low, high in spec.bounds(n, total):
        yield name, total[name], low, high
    least, most = dict[str, Any](), dict[str, Any]()
    for one, times in Counter(rows).items():
        for name, low, high in bounded_by(question, one).spec.bounds(times):
            least[name], most[name] = least.get(name, 0.0) + low, most.get(name, 0.0) + high
    yield from ((name, total[name], least[name], most[name]) for name in least)
    held, declared = sum(rows) or n * question.ranges.rows, question.declaration
    for name in () if declared is None else declared.row_counts:
        whole = total[name].sum(keepdims=True)
        # No count has a coarser step than 2^-10.
        end = held * (1.0 + ROUNDED) + n * 2.0**-10 * total[name].size
        yield name, whole, np.full_like(whole, -np.inf), np.full_like(whole, end)


def bounded_by(question: Question, rows: int) -> Question:
    """Return a question whose ranges, and those of questions in it, are of a client with so many rows."""
    if rows == question.ranges.rows:
        return question
    inner: Any = {
        name: bounded_by(one, rows) for name, one in vars(question).items() if isinstance(one, Question)
    }
    return replace(question, ranges=replace(question.ranges, rows=rows), **inner)
