"""Joins a party's views of several fits on the same rows into one view.

Each fit draws its own start, and so asks for sums in other cells. A party that saw five fits of the same
rows, or a fit and metrics, can attack all of their sums together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privfed.core.record.view import View
from privfed.errors import ArgumentError


def pooled(views: Sequence[View]) -> View:
    """Join views of the same rows into one that any passive attack can run on.

    Args:
        views: views of one party, with the same colluders and clients. The rows must be the same in all of
            them and preprocessed alike, as scaling moves them.

    Returns:
        A view with all sums, renumbered in the order of the views, and the last view's result.

    Raises:
        ArgumentError: there is no view, or they differ in party, colluders or clients.
    """
    if not views:
        raise ArgumentError("views must hold at least one view.")
    for name, found in (
        ("party", {view.party for view in views}),
        ("colluding", {view.colluding for view in views}),
        ("clients", {view.clients for view in views}),
    ):
        if len(found) > 1:
            raise ArgumentError(f"views must agree on {name}, got {sorted(map(str, found))}.")
    sums = [one for view in views for one in view.sums]
    return replace(views[-1], sums=tuple(replace(one, index=i) for i, one in enumerate(sums)))
