"""How many centers and cells a question may name, given what the parties agreed on.

Whoever chooses centers or cells freely takes rows apart: 2^18 cells hold one row each. So a client answers
questions about as many as the agreed clustering needs, and no more. With k the agreed number of clusters
(of the fit, or of a client's own clustering where that is larger), n clients and at most R rows a client:

- centers, and clusters of a client's own: at most 2 k;
- cells: as many as a start for 2 k clusters of n R rows would have. That is one cell for eight rows, but 16
  to 64 cells for each of the k clusters, rounded to a grid of the features or to halves of space.

Twice k, because a fitted federation may be asked for indices of other centers and for fits of other numbers
of clusters. Where no number was agreed, as for metrics, clients count rows in no cells at all, and 64
centers are the most. Under differential privacy there is no limit here: each total is noised as was paid.
"""

from __future__ import annotations

from math import ceil, log2

GRID_FEATURES = 3
"""Up to this many features the cells of a start are a grid, above they lie between hyperplanes."""

MOST_PLANES = 16

ROOM = 2
"""Questions may name so many times the clusters that were agreed on."""

CENTERS_WITHOUT = 64
"""Most centers of a question where no number of clusters was agreed on."""


def cells_wanted(n_rows: int, n_clusters: int) -> int:
    """Return how many cells a start asks for: about one for eight rows, 8 to 32 times the clusters."""
    return min(max(n_rows // 8, 8 * n_clusters), 32 * n_clusters)


def per_axis(wanted: int, n_features: int) -> int:
    """Return how many cells of a grid lie to each side of its center along each axis."""
    a_side: float = wanted ** (1.0 / n_features)
    return max(1, round(a_side / 2.0))


def n_planes(wanted: int) -> int:
    """Return how many hyperplanes there are."""
    return min(ceil(log2(wanted)), MOST_PLANES)


def n_cells(wanted: int, n_features: int) -> int:
    """Return how many cells a start has that asks for `wanted`."""
    if n_features <= GRID_FEATURES:
        return int((2 * per_axis(wanted, n_features)) ** n_features)
    return 1 << n_planes(wanted)


def most_centers(n_clusters: int | None) -> int:
    """Return the most centers that a question may name; `n_clusters` is what was agreed on."""
    return CENTERS_WITHOUT if n_clusters is None else ROOM * n_clusters


def most_cells(n_clusters: int | None, n_features: int, n_clients: int, max_rows: int | None) -> int:
    """Return the most cells that a question may count rows in.

    Args:
        n_clusters: agreed number of clusters; None where there is none.
        n_features: number of columns.
        n_clients: number of clients.
        max_rows: agreed bound on the rows of a client; None where there is none.
    """
    if n_clusters is None:
        return 1
    clusters = ROOM * n_clusters
    n_rows = 8 * 32 * clusters if max_rows is None else n_clients * max_rows
    return n_cells(cells_wanted(n_rows, clusters), n_features)
