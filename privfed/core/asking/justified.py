"""Limits on the numbers of centers and cells that a question may have, given the agreed clustering.

A server that chooses centers or cells freely can isolate single rows: of 2^18 cells, each holds about one. So
a client answers only questions of the size that the agreed clustering needs. With k the agreed number of
clusters (of the fit, or of a client's own clustering where that is larger), n clients and at most R rows a
client, the limits are:

- centers, and clusters of a client's own: 2 k;
- cells: as many as the initialisation of a fit of 2 k clusters to n R rows has. That is one cell for eight
  rows, but at least 16 and at most 64 cells for each of the k clusters, rounded to a grid over the features
  or to a power of two (cells between hyperplanes).

The factor 2 is there because a fitted federation may be asked for the indices of other centers and for fits
with other numbers of clusters. Where no number was agreed on, as for metrics, clients count rows in no cells
and answer for at most 64 centers. Under differential privacy there is no such limit, since every total is
noised as its share of the budget demands.
"""

from __future__ import annotations

from math import ceil, log2

GRID_FEATURES = 3
"""Up to this many features an initialisation's cells form a grid; above, hyperplanes divide the space."""

MOST_PLANES = 16

ROOM = 2
"""Factor by which a question may exceed the agreed number of clusters."""

CENTERS_WITHOUT = 64
"""Most centers of a question where no number of clusters was agreed on."""


def cells_wanted(n_rows: int, n_clusters: int) -> int:
    """Return how many cells an initialisation wants: one for eight rows, 8 to 32 for each cluster."""
    return min(max(n_rows // 8, 8 * n_clusters), 32 * n_clusters)


def per_axis(wanted: int, n_features: int) -> int:
    """Return how many cells a grid has on each side of its center along each axis."""
    a_side: float = wanted ** (1.0 / n_features)
    return max(1, round(a_side / 2.0))


def n_planes(wanted: int) -> int:
    """Return how many hyperplanes divide the space into about `wanted` cells."""
    return min(ceil(log2(wanted)), MOST_PLANES)


def n_cells(wanted: int, n_features: int) -> int:
    """Return how many cells an initialisation has that wants about `wanted` of them."""
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
