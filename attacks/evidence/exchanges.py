"""Witnesses: other rows of a list that give all that a view shows, so that nobody can be certain of these.

Whoever took part is a multiset of rows of the list. An exchange takes some away and adds as many others, so
that no total changes. Then all clients are asked again, with the other rows in place of theirs. If they
answer what the view shows, nothing that is computed from it tells one multiset from the other.

Single rows and pairs are looked up by what they add. Larger exchanges are searched in whole numbers, unless
there are so few of them, beside the places that totals are spread over, that none is to be expected. Rows are
tried first that lie inside every client's range, as a sum over clients may show how far the others reach.

Exchanges start from the rows that took part, so that they are for the score of an attack, and for no attack.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb, log, pi

import numpy as np
import numpy.typing as npt
from scipy.linalg import qr
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from privfed.attacks.audits.truth import room
from privfed.attacks.base.report import IntArray
from privfed.attacks.evidence.equations import adds_up, asked
from privfed.attacks.evidence.subsets import CHANCE, step_of
from privfed.core.asking.question import ClientData
from privfed.core.record.records import View
from privfed.core.values.domain import FloatArray
from privfed.privacy.noised import Noised

BoolArray = npt.NDArray[np.bool_]
_MOST_SETS = 400_000
"""Most pairs that are looked up, on each side."""
_MOST_WHOLE = 600
"""Most rows of a list among which larger exchanges are searched."""
_MOST_TRIED, _PARTNERS, _SEARCHES, _NODES = 1_000, 3, 10, 20
"""Most exchanges that are tried; others for one set of rows; searches, and nodes of one."""
_SAME = 1e-9
"""Largest difference of equal totals, as a share of the most that one row adds."""


def exchanged(
    view: View,
    clients: Sequence[FloatArray],
    rows: FloatArray,
    taken: FloatArray,
    left: csr_array,
    most: float,
) -> BoolArray:
    """Say of each listed row whether another multiset with all that was shown holds it more or less often.

    Args:
        view: what a party saw.
        clients: true rows of each client, by position.
        rows: the list, float64 of shape (n_rows, n_features).
        taken: how often each of them took part, (n_rows,).
        left: what each adds to each exact total that adds up over rows, (n_values, n_rows).
        most: how often a row can take part.
    """
    found = np.zeros(len(rows), dtype=np.bool_)
    replay = _Replay(view, clients, rows)
    scale = np.asarray(abs(left).max(axis=1).todense()).ravel()
    table = left[scale > 0.0].multiply(1.0 / scale[scale > 0.0, None]).T.tocsr()
    if not replay.holds(np.zeros(0, np.intp), np.zeros(0, np.intp)):
        return found
    ends = [np.sort(one, axis=0)[[min(1, len(one) - 1), max(-2, -len(one))]] for one in clients if len(one)]
    low, high = np.max([one[0] for one in ends], axis=0), np.min([one[1] for one in ends], axis=0)
    for free in (((rows >= low) & (rows <= high)).all(axis=1), np.ones(len(rows), dtype=np.bool_)):
        for one, other in (*_alike(table, taken, most, free), *_larger(table, taken, most, free, found)):
            if not (found[one].all() and found[other].all()) and replay.holds(one, other):
                found[one] = found[other] = True
    return found


class _Replay:
    """Asks all clients again, where some of their rows are others.

    Args:
        view: what a party saw.
        clients: true rows of each client, by position.
        rows: the list, float64 of shape (n_rows, n_features).
    """

    def __init__(self, view: View, clients: Sequence[FloatArray], rows: FloatArray) -> None:
        self._clients, self._rows, self._tried = clients, rows, 0
        self._places = defaultdict[bytes, list[tuple[int, int]]](list)
        for i, own in enumerate(clients):
            for place, row in enumerate(own):
                self._places[row.tobytes()].append((i, place))
        shown = [one for one in view.sums if not isinstance(one.question, Noised)]
        everyone = set(range(len(clients))) - set(view.colluding)
        # A total of everyone that adds up over rows is known to stay.
        self._sums = [
            one
            for one in shown
            if one.answers
            or (
                one.total is not None
                and not (adds_up(one) and set(one.contributors or one.cohort) == everyone)
            )
        ]

    def holds(self, less: IntArray, more: IntArray) -> bool:
        """Say whether all that was shown stays, with some listed rows fewer and others more."""
        self._tried += 1
        if self._tried > _MOST_TRIED:
            return False
        clients, used = [np.array(own) for own in self._clients], defaultdict[bytes, int](int)
        for i, j in zip(less, more, strict=True):
            key = self._rows[i].tobytes()
            if used[key] >= len(self._places[key]):
                return False
            client, place = self._places[key][used[key]]
            used[key] += 1
            clients[client][place] = self._rows[j]
        for one in self._sums:
            question, names = asked(one), one.contributors or one.cohort
            if question is None:
                return False
            data = [ClientData(clients[i]).within(question.ranges)[0] for i in names]
            answers = question.answer_all(data, [np.random.default_rng(0)] * len(data))
            given = np.stack([question.spec.clip(question.spec.flatten(answer))[0] for answer in answers])
            seen = [(given[names.index(i)], own.vector, 1) for i, own in one.answers.items()]
            seen += [] if one.total is None else [(given.sum(axis=0), one.total.vector, len(names))]
            if any((np.abs(own - told) > room(question, many, told)).any() for own, told, many in seen):
                return False
        return True


def _alike(
    table: csr_array, taken: FloatArray, most: float, free: BoolArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows, and pairs, that took part, with others that add the same."""
    sides = np.flatnonzero(free & (taken > 0.0)), np.flatnonzero(free & (taken < most))
    along = np.rint(table @ np.random.default_rng(0).normal(size=(table.shape[1], 2)) / _SAME)
    for size in (1, 2):
        if max(comb(len(side), size) for side in sides) > _MOST_SETS:
            return
        sets = [np.array([*combinations(side, size)], dtype=np.intp).reshape(-1, size) for side in sides]
        # Sums that agree along two random directions agree.
        one, other = (along[each].sum(axis=1) @ np.array([1.0, 1.0j]) for each in sets)
        order = np.argsort(other)
        first, last = (np.searchsorted(other[order], one, side) for side in ("left", "right"))
        for i in np.flatnonzero(first < last):
            yield from (
                (sets[0][i], sets[1][j])
                for j in order[first[i] : last[i]][:_PARTNERS]
                if not np.isin(sets[0][i], sets[1][j]).any()
            )


def _larger(
    table: csr_array, taken: FloatArray, most: float, free: BoolArray, found: BoolArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield larger exchanges of rows that were in none so far, as whole numbers."""
    n = len(taken)
    if n > _MOST_WHOLE or found.all():
        return
    # As many random combinations of the totals are as independent as all of them.
    combined = table @ np.random.default_rng(0).normal(size=(table.shape[1], n + 1))
    if np.linalg.matrix_rank(combined) == n:
        return
    dense = table.toarray()
    _, triangle, order = qr(dense, mode="economic", pivoting=True)
    size = np.abs(np.diag(triangle))
    kept = order[: int((size > _SAME * size.max(initial=1.0)).sum())]
    steps = np.array([step_of(column) for column in dense.T[kept]])
    places = np.log(np.maximum((2.0 * pi) ** 0.5 * size[: len(kept)] / steps, 1.0)).sum()
    if n * log(2.0) - places < log(CHANCE):
        return
    # Whole numbers in the unit of each total; and as many rows are added as are taken away.
    whole = np.vstack([np.rint((dense[:, kept] - dense[0, kept]) / steps).T, np.ones(n)])
    side, rng = np.where(taken > 0.0, 1.0, -1.0 if most == 1.0 else 0.0), np.random.default_rng(0)
    for _ in range(_SEARCHES):
        solved = milp(
            np.where(found, 0.0, side * rng.uniform(0.5, 1.0, n)),
            constraints=LinearConstraint(csr_array(whole), 0.0, 0.0),
            bounds=Bounds(-taken * free, (np.minimum(most, taken.sum()) - taken) * free),
            integrality=np.ones(n),
            options={"node_limit": _NODES, "presolve": False},
        )
        change = np.zeros(n, dtype=np.intp) if solved.x is None else np.rint(solved.x).astype(np.intp)
        if not ((change * side < 0.0) & ~found).any() or np.abs(change @ dense).max() > _SAME * n:
            return
        less, more = (np.repeat(np.arange(n), np.maximum(sign * change, 0)) for sign in (-1, 1))
        yield less, more
