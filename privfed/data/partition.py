"""Ways to split the rows of one table into clients, for simulations.

Every function returns one array of row numbers a client, ascending int64 of shape (n_rows of the client,).
Laws: the arrays are disjoint, together they are all rows, none is empty, and the same generator state gives
the same split.

Source of `iid`, `by_kmeans` and `half_iid`: Holzer, Jacob and Kavane 2023, "Dynamically Weighted Federated
k-Means", section on datasets. The paper specifies neither seeds nor how empty clusters are treated.
`privfed.data.kinds` has partitions by name, users' own included.
"""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from privfed.core.values.domain import FloatArray
from privfed.data.placement import (
    at_random,
    by_cluster,
    by_distance,
    check_n_clients,
    checked_rows,
    fill_empty,
)
from privfed.errors import ArgumentError

__all__ = [
    "at_random",
    "by_cluster",
    "by_dirichlet",
    "by_distance",
    "by_kmeans",
    "half_iid",
    "iid",
]

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
    X = checked_rows(X)
    check_n_clients(n_clients, len(X))
    kmeans = KMeans(n_clients, max_iter=5, n_init=5, random_state=int(rng.integers(2**32)))
    with warnings.catch_warnings():
        # The warning is about empty clusters, which `fill_empty` repairs.
        warnings.simplefilter("ignore", ConvergenceWarning)
        kmeans.fit(X)
    distances = np.linalg.norm(X - kmeans.cluster_centers_[kmeans.labels_], axis=1)
    members = fill_empty(kmeans.labels_, distances[:, None], n_clients)
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
