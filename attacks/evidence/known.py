"""Takes rows that the attacker knows out of all totals: what is left is of the others.

Where clients answer from groups of rows, a known row is in no total by itself: its group's mean stands in its
place. Groups of which all rows are known are found by their sum (`privfed.attacks.evidence.subsets`). Of the
n rows of another, n - 1 known ones tell the last. Which total is their group's is told by how alike they are:
with rows scaled so that the population is N(0, 1), those of a group are N(c, w) around its mean c. Given c,

    log p = -(sum |e|^2 + |sum e|^2) / 2w - (d (n - 1) / 2) log w + (d / 2) log n,

with e = x - c of the n - 1 rows, and d columns. The spread w is unknown, so that a few are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
from scipy.special import logsumexp

from privfed.attacks.evidence.equations import counted_in
from privfed.attacks.evidence.pooling import taken_out
from privfed.attacks.evidence.subsets import named, small_totals
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError
from privfed.privacy.noised import Noised

_MOST_ROWS = 19
"""Most rows of a group whose last one is asked for."""
_SPREADS = np.array([0.1, 0.2, 0.4, 0.8])
"""Variances of a group's rows around their mean, as shares of the population's."""
_GROUP, _SURE = 0.001, 0.99
"""How probable it is before that known rows are all of a group but one; and least probability of a claim."""


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
    left = taken_out(view, np.asarray(rows, dtype=np.float64))
    for one in left.sums:
        question = None if isinstance(one.question, Noised) else one.question
        declared = None if question is None or one.total is None else question.declaration
        counts = () if declared is None else declared.row_counts
        if any(one.total is not None and one.total[name].min() < -1e-3 for name in counts):
            raise ArgumentError(
                f"sum {one.index} does not hold the {len(rows)} known rows one by one: some did not take "
                "part, or clients answered from groups of rows. Pass rows that took part, as they were "
                "fitted; rows of groups are known to an attack by Prior(known=...), or by --known-by."
            )
    return left


def last_rows(view: View, known: Sequence[FloatArray], sample: FloatArray | None) -> FloatArray:
    """Return the rows of groups of which all other rows are known, float64 of shape (n_found, n_features).

    Args:
        view: what a party saw of clients that answer from groups of rows.
        known: tables of rows, (n_i, n_features), each of one group as far as the attacker knows.
        sample: rows of the same population; None without.

    Raises:
        ArgumentError: the rows have other columns than the run's.
    """
    rows, (n_rows, whole) = np.concatenate(known), _all_rows(view)
    if n_rows and rows.shape[1] != len(whole):
        raise ArgumentError(f"the known rows have {rows.shape[1]} columns, the run has {len(whole)}.")
    if n_rows == len(rows) + 1:
        return np.asarray(whole - rows.sum(axis=0))[None]
    _, gone, left = named(view, rows)
    totals = list(small_totals(left, _MOST_ROWS))
    if not totals:
        return rows[:0]
    like = np.concatenate(
        [rows, np.array([total / n for n, total in totals]), rows[:0] if sample is None else sample]
    )
    # Of few rows a covariance is that of single columns.
    few = like.shape[1] / (like.shape[1] + len(like))
    spread, middle = np.atleast_2d(np.cov(like.T)), like.mean(axis=0)
    spread = (1.0 - few) * spread + np.diag(few * np.diag(spread) + 1e-12)
    scaled, found = np.linalg.cholesky(np.linalg.inv(spread)), list[FloatArray]()
    ends = np.cumsum([len(own) for own in known])[:-1]
    for own in (table[~less] for table, less in zip(known, np.split(gone, ends), strict=True)):
        n, possible = len(own) + 1, [total for count, total in totals if count == len(own) + 1]
        weights = np.array([_alike((own - middle) @ scaled, (one / n - middle) @ scaled) for one in possible])
        weights += log(_GROUP / max(len(possible), 1))
        if len(own) and len(possible) and weights.max() - logsumexp([*weights, 0.0]) > log(_SURE):
            found.append(possible[weights.argmax()] - own.sum(axis=0))
    return np.array(found).reshape(-1, rows.shape[1])


def _alike(rows: FloatArray, mean: FloatArray) -> float:
    """Return the log-likelihood ratio of all rows but one of a group against any of a population N(0, 1).

    Args:
        rows: float64 of shape (n - 1, n_features).
        mean: of the n rows of the group, (n_features,).
    """
    away, (n, d) = rows - mean, rows.shape
    off = np.square(away).sum() + np.square(away.sum(axis=0)).sum()
    like = logsumexp(-off / 2 / _SPREADS - n * d / 2 * np.log(_SPREADS)) - log(len(_SPREADS))
    return float(like + np.square(rows).sum() / 2 + d / 2 * log(n + 1))


def _all_rows(view: View) -> tuple[int, FloatArray]:
    """Return number and sum of all rows, as the sum over most rows shows them."""
    found = [(0, np.zeros(0))]
    for one in view.sums:
        question = None if isinstance(one.question, Noised) else one.question
        cells = None if question is None else counted_in(question)
        if one.total is not None and cells is not None and cells.sum:
            count = int(np.rint(one.total[cells.count].sum()))
            found.append((count, cells.sums(one.total).sum(axis=0)))
    return max(found, key=lambda one: one[0])
