"""Ways to split the rows of one table into clients, for simulations.

Every function returns one array of row numbers a client, ascending int64 of shape (n_rows of the client,).
Properties: the arrays are disjoint, together they are all rows, and none is empty. The same generator state
gives the same split.

Source of `iid`, `by_kmeans` and `half_iid`: Holzer, Jacob and Kavane 2023, "Dynamically Weighted Federated
k-Means", section on datasets. The paper specifies neither seeds nor how empty clusters are treated. Source of
`by_distance` and `by_cluster`: Garst and Reinders 2023 (arXiv:2310.01195v2), section 3; `by_distance` goes
back to Servetnyk, Fung and Han 2020. `privfed.data.named_partitions` has partitions by name, also of users.
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number, check_whole
from privfed.data.table import check_finite
from privfed.errors import ArgumentError

RowNumbers = npt.NDArray[np.intp]

# Most draws of `by_dirichlet` before it raises an error.
MAX_DRAWS = 100


def iid(n_rows: int, n_clients: int, rng: np.random.Generator) -> list[RowNumbers]:
    """Shuffle the rows and cut them into slices whose lengths differ by one at most.

    Args:
        n_rows: number of rows.
        n_clients: number of clients, in [1, n_rows].
        rng: source of the shuffle.

    Raises:
        ArgumentError: `n_clients` is out of its bounds.
    """
    check_n_clients(n_clients, n_rows)
    return [np.sort(rows) for rows in np.array_split(rng.permutation(n_rows), n_clients)]


def by_kmeans(X: FloatArray, n_clients: int, rng: np.random.Generator) -> list[RowNumbers]:
    """Give each client one cluster of a short k-means run: the DWF paper's non-IID split.

    The paper asks for at most 5 steps and 5 starts. Stopped that early, or given fewer different rows than
    clients, k-means can leave clusters empty; each then takes the row that is farthest from its center.

    Args:
        X: float64 of shape (n_rows, n_features).
        n_clients: number of clients, in [1, n_rows].
        rng: source of the seed for scikit-learn.

    Raises:
        ArgumentError: `X` is not two-dimensional or `n_clients` is out of its bounds.
        DataError: `X` holds values that are missing or infinite.
    """
    # Imported here since it takes long, and few runs need it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    X = checked_rows(X)
    check_n_clients(n_clients, len(X))
    kmeans = KMeans(n_clients, max_iter=5, n_init=5, random_state=int(rng.integers(2**32)))
    with warnings.catch_warnings():
        # The warning is about empty clusters, which `fill_empty` repairs.
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans.fit(X)
    distances = np.linalg.norm(X - kmeans.cluster_centers_[kmeans.labels_], axis=1)
    return _members_of(fill_empty(kmeans.labels_, distances[:, None], n_clients), n_clients)


def half_iid(X: FloatArray, n_clients: int, rng: np.random.Generator) -> list[RowNumbers]:
    """Split a random half of the rows by `iid`, the others by `by_kmeans`; each client gets one part of each.

    Args:
        X: float64 of shape (n_rows, n_features).
        n_clients: number of clients, in [1, n_rows // 2].
        rng: source of the halves and of both splits.

    Raises:
        ArgumentError: `X` is not two-dimensional or `n_clients` is out of its bounds.
        DataError: `X` holds values that are missing or infinite.
    """
    X = checked_rows(X)
    check_n_clients(n_clients, len(X) // 2, "half the rows: each client gets a part of both halves")
    shuffled, clustered = np.split(rng.permutation(len(X)), [len(X) // 2])
    parts = zip(
        iid(len(shuffled), n_clients, rng),
        by_kmeans(X[clustered], n_clients, rng),
        strict=True,
    )
    return [np.sort(np.concatenate((shuffled[one], clustered[other]))) for one, other in parts]


def by_dirichlet(
    y: npt.ArrayLike, n_clients: int, alpha: float, rng: np.random.Generator, min_rows: int = 1
) -> list[RowNumbers]:
    """Skew the labels: split each label's rows in proportions drawn from Dirichlet(alpha, ..., alpha).

    The whole split is drawn again until every client has `min_rows` rows, so that small clients are rarer
    than under the plain distribution. Source: Yurochkin et al. 2019 (arXiv:1905.12022), experiments,
    heterogeneous partition.

    Args:
        y: labels of any sortable type, shape (n_rows,).
        n_clients: number of clients, in [1, n_rows].
        alpha: concentration, in (0, 1e9]: small gives each label to few clients, large spreads it evenly.
        rng: source of proportions and shuffles.
        min_rows: fewest rows of a client, in [1, n_rows / n_clients].

    Raises:
        ArgumentError: an argument is out of its bounds, or 100 draws left some client with too few rows.
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ArgumentError(f"y must have shape (n_rows,), got shape {labels.shape}.")
    check_n_clients(n_clients, len(labels))
    # Far below 1e9 the split is already even to the row; far above it, the draw overflows.
    check_number("alpha", alpha, "(0, 1e9]")
    check_whole("min_rows", min_rows, 1, len(labels) // n_clients)
    codes = np.unique(labels, return_inverse=True)[1]
    for _ in range(MAX_DRAWS):
        members = _skewed_members(codes, n_clients, alpha, rng)
        if np.bincount(members, minlength=n_clients).min() >= min_rows:
            return _members_of(members, n_clients)
    raise ArgumentError(
        f"{MAX_DRAWS} draws with alpha={alpha} left some of the {n_clients} clients with fewer than "
        f"min_rows={min_rows} of {len(labels)} rows; take a larger alpha, fewer clients or fewer min_rows."
    )


def _skewed_members(
    codes: npt.NDArray[np.intp], n_clients: int, alpha: float, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Draw the client of each row, int64 of shape (n_rows,), from the rows' label codes of the same shape."""
    members = np.empty(len(codes), dtype=np.intp)
    for code in range(int(codes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(codes == code))
        cuts = np.rint(np.cumsum(rng.dirichlet(np.full(n_clients, alpha)))[:-1] * len(rows)).astype(np.intp)
        members[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return members


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
    members = fill_empty(rng.integers(n_clients, size=n_rows), rng.random((n_rows, 1)), n_clients)
    return _members_of(members, n_clients)


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
    check_number("beta", beta, "(0, inf)")
    distances = np.stack([np.linalg.norm(X - place, axis=1) for place in places], axis=1)
    with np.errstate(divide="ignore", over="ignore"):
        # A row at a client's location has distance zero and always hits that client.
        hits = rng.random(distances.shape) < -np.expm1(-beta / distances)
    missed = ~hits.any(axis=1)
    hits[missed, distances[missed].argmin(axis=1)] = True
    chosen = np.where(hits, rng.random(distances.shape), -1.0).argmax(axis=1)
    return _members_of(fill_empty(chosen, -distances, len(places)), len(places))


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
    return _members_of(members, len(wanted))


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
    remedy = f", where {most} is {bound}; take fewer clients or more rows"
    check_number("n_clients", n_clients, f"[1, {most}]", whole=True, remedy=remedy)


def _members_of(members: npt.NDArray[np.integer], n_clients: int) -> list[RowNumbers]:
    return [np.flatnonzero(members == client) for client in range(n_clients)]


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
    """Draw the clusters of each client, bool (n_clients, n_clusters), so that each cluster has a client."""
    holds = rng.random((len(wanted), n_clusters)).argsort(axis=1).argsort(axis=1) < wanted[:, None]
    for missing in rng.permutation(np.flatnonzero(~holds.any(axis=0))):
        # Some cluster has several holders, since clients hold at least as many as there are, in sum.
        client, other = (holds & (holds.sum(axis=0) > 1)).nonzero()
        one = rng.integers(len(client))
        holds[client[one], other[one]], holds[client[one], missing] = False, True
    return holds
