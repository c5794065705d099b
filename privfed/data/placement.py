"""Partitions at random, by the clients' locations, and by the clusters that clients hold.

Laws and form are those of `privfed.data.partition`. Source of `by_distance` and `by_cluster`: Garst and
Reinders 2023 (arXiv:2310.01195v2), section 3; `by_distance` goes back to Servetnyk, Fung and Han 2020.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray
from privfed.data.table import check_finite
from privfed.errors import ArgumentError

RowNumbers = npt.NDArray[np.intp]


def at_random(n_rows: int, n_clients: int, rng: np.random.Generator) -> list[RowNumbers]:
    """Give each row to a client drawn uniformly; sizes vary, unlike those of `iid`.

    A client that got no row takes a random row of a client with several.

    Args:
        n_rows: number of rows.
        n_clients: number of clients, in [1, n_rows].
        rng: source of the draws.

    Raises:
        ArgumentError: `n_clients` is out of its bounds.
    """
    check_n_clients(n_clients, n_rows)
    drawn = rng.integers(n_clients, size=n_rows)
    members = fill_empty(drawn, rng.random((n_rows, 1)), n_clients)
    return [np.flatnonzero(members == client) for client in range(n_clients)]


def by_distance(
    X: FloatArray, locations: npt.ArrayLike, beta: float, rng: np.random.Generator
) -> list[RowNumbers]:
    """Give rows to clients near them: a row hits a client at distance d with probability 1 - exp(-beta / d).

    A row that hits several clients goes to a random one of them (eq. 2). The paper does not specify where a
    row goes that hits none; as in the authors' code, it goes to the nearest client. A client that got no row
    takes the nearest row of a client with several.

    Args:
        X: float64 of shape (n_rows, n_features).
        locations: location of each client, shape (n_clients, n_features), at most as many as rows.
        beta: positive; small values give each row to its nearest client, large ones spread rows evenly.
        rng: source of hits and choices.

    Raises:
        ArgumentError: an argument is out of its bounds.
        DataError: `X` holds values that are missing or infinite.
    """
    X, places = checked_rows(X), np.asarray(locations, dtype=np.float64)
    if places.ndim != 2 or places.shape[1] != X.shape[1] or not np.isfinite(places).all():
        raise ArgumentError(
            f"locations must be finite of shape (n_clients, {X.shape[1]}), got shape {places.shape}."
        )
    check_n_clients(len(places), len(X))
    if not 0 < beta < np.inf:
        raise ArgumentError(f"beta must be positive and finite, got beta={beta}.")
    distances = np.stack([np.linalg.norm(X - place, axis=1) for place in places], axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        # A row at a client's location has distance zero and always hits that client.
        hits = rng.random(distances.shape) < -np.expm1(-beta / distances)
    missed = ~hits.any(axis=1)
    hits[missed, distances[missed].argmin(axis=1)] = True
    chosen = np.where(hits, rng.random(distances.shape), -1.0).argmax(axis=1)
    members = fill_empty(chosen, -distances, len(places))
    return [np.flatnonzero(members == client) for client in range(len(places))]


def by_cluster(y: npt.ArrayLike, clusters: npt.ArrayLike, rng: np.random.Generator) -> list[RowNumbers]:
    """Give each client rows of a given number of clusters (in the paper 1, 4, 7, 10 and 16 of 16).

    Each client draws that many clusters. A cluster that nobody drew replaces one that several clients drew.
    The rows of a cluster are shuffled and cut into slices for its clients, whose lengths differ by at most
    one.

    Args:
        y: cluster of each row, of any sortable type, shape (n_rows,).
        clusters: number of clusters of each client, integers of shape (n_clients,), in sum at least the
            number of clusters.
        rng: source of the draws and shuffles.

    Raises:
        ArgumentError: an argument is out of its bounds, or a cluster has fewer rows than clients.
    """
    labels, wanted = np.asarray(y), np.asarray(clusters)
    if labels.ndim != 1:
        raise ArgumentError(f"y must have shape (n_rows,), got shape {labels.shape}.")
    codes = np.unique(labels, return_inverse=True)[1]
    n_clusters = int(codes.max(initial=-1)) + 1
    check_n_clients(wanted.size, len(labels))
    whole = wanted.ndim == 1 and np.issubdtype(wanted.dtype, np.integer)
    if not whole or wanted.min() < 1 or wanted.max() > n_clusters or wanted.sum() < n_clusters:
        raise ArgumentError(
            f"clusters must be whole numbers in [1, {n_clusters}], one a client, at least {n_clusters} "
            f"together, got clusters={wanted.tolist()}."
        )
    holds = _drawn_clusters(wanted, n_clusters, rng)
    members = np.empty(len(codes), dtype=np.intp)
    for code in range(n_clusters):
        rows, holders = rng.permutation(np.flatnonzero(codes == code)), np.flatnonzero(holds[:, code])
        if len(rows) < len(holders):
            raise ArgumentError(
                f"a cluster of {len(rows)} rows is too small for the {len(holders)} clients that hold it; "
                "take fewer clients or fewer clusters a client."
            )
        members[rows] = np.repeat(rng.permutation(holders), [*map(len, np.array_split(rows, len(holders)))])
    return [np.flatnonzero(members == client) for client in range(len(wanted))]


def checked_rows(X: FloatArray) -> FloatArray:
    """Return the rows as a finite float64 table.

    Raises:
        ArgumentError: `X` is not two-dimensional.
        DataError: `X` holds values that are missing or infinite.
    """
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ArgumentError(f"X must have shape (n_rows, n_features), got shape {X.shape}.")
    check_finite(X, [str(position) for position in range(X.shape[1])], "X")
    return X


def check_n_clients(n_clients: int, most: int, bound: str = "the number of rows") -> None:
    """Check that there is at least one client, and at most `most`.

    Raises:
        ArgumentError: there is none, or there are more.
    """
    if not 1 <= n_clients <= most:
        raise ArgumentError(
            f"n_clients must be in [1, {most}] ({bound}), got n_clients={n_clients}; "
            "take fewer clients or more rows."
        )


def fill_empty(
    members: npt.NDArray[np.integer], preference: FloatArray, n_clients: int
) -> npt.NDArray[np.integer]:
    """Return the client of each row, changed so that every client has a row.

    Args:
        members: client of each row, integer of shape (n_rows,).
        preference: an empty client takes the row of the highest value; float64 of shape
            (n_rows, n_clients), or (n_rows, 1) where it is the same for all clients.
        n_clients: number of clients, at most n_rows.
    """
    members = members.copy()
    sizes = np.bincount(members, minlength=n_clients)
    for empty in np.flatnonzero(sizes == 0):
        # Only clients with several rows give one, since a client with one row would become empty.
        wish = preference[:, min(int(empty), preference.shape[1] - 1)]
        row = int(np.argmax(np.where(sizes[members] > 1, wish, -np.inf)))
        sizes[members[row]] -= 1
        members[row], sizes[empty] = empty, 1
    return members


def _drawn_clusters(
    wanted: npt.NDArray[np.integer], n_clusters: int, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Draw which clusters each client holds, bool (n_clients, n_clusters), so that each cluster is held."""
    ranks = rng.random((len(wanted), n_clusters)).argsort(axis=1).argsort(axis=1)
    holds = ranks < wanted[:, None]
    for missing in rng.permutation(np.flatnonzero(~holds.any(axis=0))):
        # Some cluster has several holders, since clients hold at least as many as there are, in sum.
        spare = holds & (holds.sum(axis=0) > 1)
        client, other = spare.nonzero()
        one = rng.integers(len(client))
        holds[client[one], other[one]], holds[client[one], missing] = False, True
    return holds
