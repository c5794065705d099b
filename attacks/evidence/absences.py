"""Solves totals of the same question over changing clients for the answers of single clients.

A total is t = P s, where P says who is in it, and s are the clients' answers. They are the same whenever the
same question is asked of the same rows: in a later round, or in a later fit whose cells do not change (nested
starts over a declared domain, metrics of the same centers). So a client's answer follows exactly if its unit
vector lies in the row space of P. Two fits are enough where one client was away from one of them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from privfed.core.asking.statistics import Statistics
from privfed.core.record.view import SumView, View
from privfed.core.values.domain import FloatArray
from privfed.privacy.noised import Noised

_IN_SPAN = 1e-8


def with_answers(view: View) -> View:
    """Return a view that also holds the clients' answers that follow from its exact totals.

    Args:
        view: what a party saw, of one run or of several (`privfed.attacks.pooled`).

    Returns:
        The view, with these answers in the first sum of each question that a client was in. Sums with noise
        are left as they are.
    """
    groups: dict[bytes, list[SumView]] = defaultdict(list)
    for one in view.sums:
        if one.question is not None and one.total is not None and not isinstance(one.question, Noised):
            groups[one.question.at(None).to_bytes()].append(one)
    sums = {one.index: one for one in view.sums}
    for group in groups.values():
        if len({frozenset(_inside(one)) for one in group}) > 1:
            for client, answer in _solved(group, len(view.clients)).items():
                first = next(one.index for one in group if client in _inside(one))
                sums[first] = replace(sums[first], answers={client: answer, **sums[first].answers})
    return replace(view, sums=tuple(sums.values()))


def separable(took_part: FloatArray) -> FloatArray:
    """Say which clients' unchanging answers the cohorts determine: those with e_i in the row space of P.

    Args:
        took_part: float64 of shape (n_rounds, n_clients).

    Returns:
        bool of shape (n_clients,).
    """
    projection = np.linalg.pinv(took_part) @ took_part
    return np.asarray(np.diag(projection) > 1.0 - _IN_SPAN)


def _inside(one: SumView) -> tuple[int, ...]:
    # A party that does not see who contributed assumes that the whole cohort did.
    return one.contributors or one.cohort


def _solved(group: list[SumView], n_clients: int) -> dict[int, Statistics]:
    """Return the answers that follow, by client, of those that were not shown."""
    took_part = np.zeros((len(group), n_clients))
    for row, one in zip(took_part, group, strict=True):
        row[list(_inside(one))] = 1.0
    weights = np.linalg.pinv(took_part)
    shown = {client for one in group for client in one.answers}
    totals = [one.total for one in group if one.total is not None]
    return {
        int(client): Statistics(
            **{
                name: np.tensordot(weights[client], np.stack([total[name] for total in totals]), axes=1)
                for name in totals[0]
            }
        )
        for client in np.flatnonzero(separable(took_part))
        if client not in shown
    }


def joined(before: View, after: View) -> View:
    """Return what two runs show of the rows that joined between them.

    Of each question that both asked of the same clients, the totals' difference is that of the rows that
    joined, less that of rows that left. Rows that left are those that joined from `after` to `before`.

    Args:
        before: what a party saw of a run.
        after: what it saw of a later run.

    Returns:
        A view of one client, the rows that joined, which any passive attack on totals can run on.
    """

    def of(view: View) -> dict[tuple[bytes, frozenset[str]], SumView]:
        return {
            (one.question.at(None).to_bytes(), frozenset(view.clients[i] for i in _inside(one))): one
            for one in view.sums
            if one.question is not None and one.total is not None and not isinstance(one.question, Noised)
        }

    earlier, sums = of(before), list[SumView]()
    for key, one in of(after).items():
        if key in earlier and one.total is not None and (total := earlier[key].total) is not None:
            change = Statistics(**{name: one.total[name] - total[name] for name in total})
            sums.append(SumView(len(sums), one.purpose, one.question, (0,), (0,), change, {}, {}))
    return View(after.party, (), ("rows that joined",), tuple(sums), {})
