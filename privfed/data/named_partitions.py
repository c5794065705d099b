"""Partitions of rows into clients, by name: privfed's own, and those that packages add."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privfed.core.names import Registry
from privfed.core.values.domain import FloatArray
from privfed.data.splits import (
    RowNumbers,
    at_random,
    by_cluster,
    by_dirichlet,
    by_distance,
    by_kmeans,
    check_n_clients,
    checked_rows,
    half_iid,
    iid,
)
from privfed.errors import ArgumentError

Labels = npt.NDArray[np.generic]


def partition(
    X: FloatArray,
    n_clients: int,
    kind: str,
    rng: np.random.Generator,
    y: npt.ArrayLike | None = None,
    **options: npt.ArrayLike,
) -> list[RowNumbers]:
    """Split rows into clients by a named partition.

    Args:
        X: float64 of shape (n_rows, n_features).
        n_clients: number of clients.
        kind: "iid", "half-iid", "non-iid" (by k-means), "random", "dirichlet", "distance" or "cluster-wise".
        rng: source of all randomness.
        y: labels of shape (n_rows,); needed by "dirichlet" and "cluster-wise", not used by the others.
        **options: "dirichlet" requires `alpha` and takes `min_rows`. "distance" requires `beta` and takes
            `locations`, by default drawn uniformly from the bounding box of the rows. "cluster-wise" requires
            `clusters`. The others take none.

    Raises:
        ArgumentError: `kind` or an option is unknown, labels or a needed option are missing, or an argument
            is out of bounds.
        DataError: `X` holds values that are missing or infinite.
    """
    known = PARTITIONS.resolve(kind)
    X = checked_rows(X)
    _check_options(kind, known, options)
    return known.split(X, _labels(kind, y, len(X)) if known.labelled else None, n_clients, rng, **options)


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition that can be used by name.

    Args:
        split: function of X (n_rows, n_features), labels (n_rows,) or None, number of clients, generator and
            options; it returns one array of row numbers a client.
        labelled: whether it needs labels.
        option: the option that it requires, or None.
        such: an example value of that option, for error messages.
        others: further options that it accepts.
    """

    split: Callable[..., list[RowNumbers]]
    labelled: bool = False
    option: str | None = None
    such: str = ""
    others: tuple[str, ...] = ()


def _check_options(kind: str, known: Partition, options: dict[str, npt.ArrayLike]) -> None:
    taken = (() if known.option is None else (known.option,)) + known.others
    if options and not taken:
        raise ArgumentError(f"kind={kind!r} takes no options, got {', '.join(options)}; leave them out.")
    if unknown := sorted(options.keys() - set(taken)):
        raise ArgumentError(
            f"kind={kind!r} takes the options {' and '.join(taken)}, got {', '.join(unknown)}."
        )
    if known.option is not None and known.option not in options:
        raise ArgumentError(
            f"kind={kind!r} needs {known.option}; give one, such as {known.option}={known.such}."
        )


def _by_dirichlet(
    X: FloatArray,
    labels: Labels,
    n_clients: int,
    rng: np.random.Generator,
    *,
    alpha: float,
    min_rows: int = 1,
) -> list[RowNumbers]:
    return by_dirichlet(labels, n_clients, alpha, rng, min_rows)


def _by_distance(
    X: FloatArray,
    labels: None,
    n_clients: int,
    rng: np.random.Generator,
    *,
    beta: float,
    locations: npt.ArrayLike | None = None,
) -> list[RowNumbers]:
    check_n_clients(n_clients, len(X))
    if locations is None:
        locations = rng.uniform(X.min(axis=0), X.max(axis=0), (n_clients, X.shape[1]))
    _check_one_a_client("locations", locations, n_clients)
    return by_distance(X, locations, beta, rng)


def _by_cluster(
    X: FloatArray, labels: Labels, n_clients: int, rng: np.random.Generator, *, clusters: npt.ArrayLike
) -> list[RowNumbers]:
    check_n_clients(n_clients, len(labels))
    _check_one_a_client("clusters", clusters, n_clients)
    return by_cluster(labels, clusters, rng)


def _check_one_a_client(name: str, value: npt.ArrayLike, n_clients: int) -> None:
    if np.shape(value)[:1] != (n_clients,):
        raise ArgumentError(
            f"{name} must be one a client, got shape {np.shape(value)} for n_clients={n_clients}.",
            parameters=[name],
        )


def _labels(kind: str, y: npt.ArrayLike | None, n_rows: int) -> Labels:
    if y is None:
        raise ArgumentError(f"kind={kind!r} splits by label; give labels (y=), or take kind='non-iid'.")
    labels = np.asarray(y)
    if len(labels) != n_rows:
        raise ArgumentError(f"y must have one label a row, got {len(labels)} labels for {n_rows} rows.")
    return labels


IID = Partition(split=lambda X, labels, n_clients, rng: iid(len(X), n_clients, rng))
RANDOM = Partition(split=lambda X, labels, n_clients, rng: at_random(len(X), n_clients, rng))
HALF_IID = Partition(split=lambda X, labels, n_clients, rng: half_iid(X, n_clients, rng))
NON_IID = Partition(split=lambda X, labels, n_clients, rng: by_kmeans(X, n_clients, rng))
DIRICHLET = Partition(split=_by_dirichlet, labelled=True, option="alpha", such="0.5", others=("min_rows",))
DISTANCE = Partition(split=_by_distance, option="beta", such="1.0", others=("locations",))
CLUSTER_WISE = Partition(split=_by_cluster, labelled=True, option="clusters", such="[1, 4]")

PARTITIONS: Registry[Partition] = Registry(
    "kind",
    "privfed.partitions",
    {
        "iid": f"{__name__}:IID",
        "half-iid": f"{__name__}:HALF_IID",
        "non-iid": f"{__name__}:NON_IID",
        "random": f"{__name__}:RANDOM",
        "dirichlet": f"{__name__}:DIRICHLET",
        "distance": f"{__name__}:DISTANCE",
        "cluster-wise": f"{__name__}:CLUSTER_WISE",
    },
)
"""Partitions by name. Packages add theirs by entry points of `privfed.partitions`."""
