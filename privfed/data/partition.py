"""Ways to split the rows of one table into clients, for simulations.

Every function returns one array of row numbers a client, ascending int64 of shape (n_rows of the client,).
Laws: the arrays are disjoint, together they are all rows, none is empty, and the same generator state gives
the same split.

Source of `iid`, `by_kmeans` and `half_iid`: Holzer, Jacob and Kavane 2023, "Dynamically Weighted Federated
k-Means", section on datasets. They fix neither seeds nor what becomes of an empty cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from privfed.core.domain import FloatArray
from privfed.data.table import check_finite
from privfed.errors import ArgumentError

RowNumbers = npt.NDArray[np.intp]

# How often `by_dirichlet` draws before it gives up.
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
    _check_n_clients(n_clients, n_rows)
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
    X = _checked_rows(X)
    _check_n_clients(n_clients, len(X))
    kmeans = KMeans(n_clients, max_iter=5, n_init=5, random_state=int(rng.integers(2**32)))
    with warnings.catch_warnings():
        # Warns of exactly what `_fill_empty` mends.
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans.fit(X)
    distances = np.linalg.norm(X - kmeans.cluster_centers_[kmeans.labels_], axis=1)
    members = _fill_empty(kmeans.labels_, distances, n_clients)
    return [np.flatnonzero(members == client) for client in range(n_clients)]


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
    X = _checked_rows(X)
    _check_n_clients(n_clients, len(X) // 2, "half the rows: each client gets a part of both halves")
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

    The whole split is drawn anew until every client has `min_rows` rows, so small clients are rarer than
    under the plain distribution. Source: Yurochkin et al. 2019 (arXiv:1905.12022), experiments, heterogeneous
    partition.

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
    _check_n_clients(n_clients, len(labels))
    # Above 1e9 the draw overflows at last, and is even to the row long before.
    if not 0 < alpha <= 1e9:
        raise ArgumentError(f"alpha must be in (0, 1e9], got alpha={alpha}.")
    if not 1 <= min_rows <= len(labels) // n_clients:
        raise ArgumentError(
            f"min_rows must be in [1, {len(labels) // n_clients}] ({len(labels)} rows, {n_clients} clients), "
            f"got min_rows={min_rows}."
        )
    codes = np.unique(labels, return_inverse=True)[1]
    for _ in range(MAX_DRAWS):
        members = _skewed_members(codes, n_clients, alpha, rng)
        if np.bincount(members, minlength=n_clients).min() >= min_rows:
            return [np.flatnonzero(members == client) for client in range(n_clients)]
    raise ArgumentError(
        f"{MAX_DRAWS} draws with alpha={alpha} left some of the {n_clients} clients with fewer than "
        f"min_rows={min_rows} of {len(labels)} rows; take a larger alpha, fewer clients or fewer min_rows."
    )


def partition(
    X: FloatArray,
    n_clients: int,
    kind: str,
    rng: np.random.Generator,
    y: npt.ArrayLike | None = None,
    **options: float,
) -> list[RowNumbers]:
    """Split rows by the named way.

    Args:
        X: float64 of shape (n_rows, n_features).
        n_clients: number of clients.
        kind: "iid", "half-iid", "non-iid" (by k-means) or "dirichlet".
        rng: source of all randomness.
        y: labels of shape (n_rows,); needed by "dirichlet", not used by the others.
        **options: `alpha` (needed) and `min_rows` for "dirichlet"; the others have none.

    Raises:
        ArgumentError: `kind` or an option is unknown, labels or `alpha` are missing, or an argument is out of
            bounds.
        DataError: `X` holds values that are missing or infinite.
    """
    if kind not in KINDS:
        raise ArgumentError(f"kind must be one of {', '.join(map(repr, KINDS))}, got kind={kind!r}.")
    X = _checked_rows(X)
    if kind == "dirichlet":
        return _partition_by_dirichlet(X, n_clients, rng, y, options)
    if options:
        raise ArgumentError(f"kind={kind!r} takes no options, got {', '.join(options)}; leave them out.")
    return _BY_ROWS[kind](X, n_clients, rng)


def _iid_rows(X: FloatArray, n_clients: int, rng: np.random.Generator) -> list[RowNumbers]:
    return iid(len(X), n_clients, rng)


_BY_ROWS: dict[str, Callable[[FloatArray, int, np.random.Generator], list[RowNumbers]]] = {
    "iid": _iid_rows,
    "half-iid": half_iid,
    "non-iid": by_kmeans,
}
KINDS = (*_BY_ROWS, "dirichlet")


def _partition_by_dirichlet(
    X: FloatArray,
    n_clients: int,
    rng: np.random.Generator,
    y: npt.ArrayLike | None,
    options: dict[str, float],
) -> list[RowNumbers]:
    if y is None:
        raise ArgumentError("kind='dirichlet' splits by label, got y=None; give y, or take kind='non-iid'.")
    if len(np.asarray(y)) != len(X):
        raise ArgumentError(
            f"y must have one label a row, got {len(np.asarray(y))} labels for {len(X)} rows."
        )
    if unknown := sorted(options.keys() - {"alpha", "min_rows"}):
        raise ArgumentError(
            f"kind='dirichlet' takes the options alpha and min_rows, got {', '.join(unknown)}."
        )
    if "alpha" not in options:
        raise ArgumentError("kind='dirichlet' needs alpha; give one, such as alpha=0.5.")
    min_rows = options.get("min_rows", 1)
    if not float(min_rows).is_integer():
        raise ArgumentError(f"min_rows must be a whole number, got min_rows={min_rows}.")
    return by_dirichlet(y, n_clients, options["alpha"], rng, int(min_rows))


def _checked_rows(X: FloatArray) -> FloatArray:
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2:
        raise ArgumentError(f"X must have shape (n_rows, n_features), got shape {X.shape}.")
    check_finite(X, [str(position) for position in range(X.shape[1])], "X")
    return X


def _check_n_clients(n_clients: int, most: int, bound: str = "the number of rows") -> None:
    if not 1 <= n_clients <= most:
        raise ArgumentError(
            f"n_clients must be in [1, {most}] ({bound}), got n_clients={n_clients}; "
            "take fewer clients or more rows."
        )


def _fill_empty(
    members: npt.NDArray[np.integer], distances: FloatArray, n_clients: int
) -> npt.NDArray[np.integer]:
    """Return the clusters of the rows with none of `n_clients` empty.

    Args:
        members: cluster of each row, integer of shape (n_rows,).
        distances: distance of each row to its cluster's center, float64 of shape (n_rows,).
        n_clients: number of clusters, at most n_rows.
    """
    members = members.copy()
    sizes = np.bincount(members, minlength=n_clients)
    for empty in np.flatnonzero(sizes == 0):
        # A cluster of one row would only hand its emptiness on.
        row = int(np.argmax(np.where(sizes[members] > 1, distances, -1.0)))
        sizes[members[row]] -= 1
        members[row], sizes[empty] = empty, 1
    return members


def _skewed_members(
    codes: npt.NDArray[np.intp], n_clients: int, alpha: float, rng: np.random.Generator
) -> npt.NDArray[np.intp]:
    """Draw the client of each row, int64 of shape (n_rows,), from the rows' label codes of the same shape."""
    members = np.empty(len(codes), dtype=np.intp)
    for code in range(int(codes.max()) + 1):
        rows = rng.permutation(np.flatnonzero(codes == code))
        proportions = rng.dirichlet(np.full(n_clients, alpha))
        cuts = np.rint(np.cumsum(proportions)[:-1] * len(rows)).astype(np.intp)
        members[rows] = np.searchsorted(cuts, np.arange(len(rows)), side="right")
    return members
