"""Joins a party's views of several runs into one view.

Each fit draws its own start, and so asks for sums in other cells. A party that saw five fits of the same
rows, or a fit and metrics, can attack all of their sums together. Clients that were away from one run and not
from another give more: what differs is theirs (`privfed.attacks.evidence.absences`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privfed.attacks.evidence.absences import with_answers
from privfed.core.record.view import SumView, View
from privfed.errors import ArgumentError


def pooled(views: Sequence[View]) -> View:
    """Join views of the same rows into one that any passive attack can run on.

    Args:
        views: views of one party, with the same colluders by name. The rows of a client must be the same in
            all runs that it was in, and preprocessed alike, as scaling moves them. Clients are told apart by
            name.

    Returns:
        A view of all clients, in the order in which they first appear, with all sums, renumbered in the order
        of the views, the answers of single clients that follow from totals over changing clients, and the
        last view's result.

    Raises:
        ArgumentError: there is no view, or they differ in party or colluders.
    """
    if not views:
        raise ArgumentError("views must hold at least one view.")
    for name, found in (
        ("party", {view.party for view in views}),
        ("colluding", {frozenset(view.clients[i] for i in view.colluding) for view in views}),
    ):
        if len(found) > 1:
            raise ArgumentError(f"views must agree on {name}, got {sorted(map(str, found))}.")
    names = tuple(dict.fromkeys(name for view in views for name in view.clients))
    position = {name: i for i, name in enumerate(names)}
    sums = [
        _moved(one, [position[name] for name in view.clients], view) for view in views for one in view.sums
    ]
    colluding = tuple(position[views[-1].clients[i]] for i in views[-1].colluding)
    every = tuple(replace(one, index=i) for i, one in enumerate(sums))
    return with_answers(replace(views[-1], clients=names, colluding=colluding, sums=every))


def _moved(one: SumView, to: Sequence[int], view: View) -> SumView:
    """Return a sum with the clients' new positions."""
    if list(to) == list(range(len(view.clients))):
        return one
    return replace(
        one,
        cohort=tuple(to[i] for i in one.cohort),
        contributors=tuple(to[i] for i in one.contributors),
        answers={to[i]: answer for i, answer in one.answers.items()},
        upload_bytes={to[i]: size for i, size in one.upload_bytes.items()},
    )
