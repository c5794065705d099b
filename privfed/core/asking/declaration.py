"""Declarations of questions about their statistics, so that nothing has to be guessed from names.

A client's policy relies on these declarations only. A policy that needs one refuses a question without.
"""

from __future__ import annotations

from dataclasses import dataclass

from privfed.core.values.domain import FloatArray
from privfed.core.values.steps import SampledSteps


@dataclass(frozen=True, slots=True)
class RowCounts:
    """An entry that counts a client's rows, and the other entries that are computed from the same rows.

    The entry's values are counts of rows in cells, or sums of memberships; a row adds at most 1 to all of
    them together. Where the entry is one number, it counts the client's rows, and entries in `sums` and
    `means` may have any shape. Otherwise the leading dimensions of those entries are the entry's shape.

    Args:
        entry: name of the entry.
        sums: entries that add up values of these rows, cell by cell.
        means: entries that are means of these rows, cell by cell; zero where there are none.
        totals: entries that add up values of the rows of all cells together.
    """

    entry: str
    sums: tuple[str, ...] = ()
    means: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trained:
    """States that an answer depends on rows only through trainings by DP-SGD.

    Args:
        number: of the training that the question makes a client do, from 1 on; 0 where it makes it do none.
        steps: the steps of each training; None where the question makes a client do none.
    """

    number: int = 0
    steps: SampledSteps | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """States what a question, or a part of one, counts and asks about.

    Args:
        row_counts: the entries that count rows; empty where none does, because entries count clients or
            local centers, or describe a client as a whole.
        centers: points that rows are assigned to, each float64 of shape (n, n_features).
        n_cells: cells that rows or local centers are counted in; 0 where they are assigned to centers.
        n_clusters: clusters that a client looks for among its rows.
        movements: whether what is added up are movements from the centers, not positions.
        can_fail: whether some rows may raise an error, as in a user's function. Noised answers do not show
            it: a client that fails answers zeros with noise (`privfed.privacy.noised`).
        trained: whether rows show only through trainings by DP-SGD, and through which; None otherwise.
    """

    row_counts: tuple[RowCounts, ...] = ()
    centers: tuple[FloatArray, ...] = ()
    n_cells: int = 0
    n_clusters: int = 0
    movements: bool = False
    can_fail: bool = False
    trained: Trained | None = None
