"""The clients' data: loading it, checking it, and splitting one table into simulated clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily, moved

if TYPE_CHECKING:
    from privfed.data.features import load_features
    from privfed.data.loading import load_clients
    from privfed.data.named_partitions import partition
    from privfed.data.splits import (
        at_random,
        by_cluster,
        by_dirichlet,
        by_distance,
        by_kmeans,
        half_iid,
        iid,
    )
    from privfed.data.table import ClientTable, ClientTables

__all__ = [
    "ClientTable",
    "ClientTables",
    "at_random",
    "by_cluster",
    "by_dirichlet",
    "by_distance",
    "by_kmeans",
    "half_iid",
    "iid",
    "load_clients",
    "load_features",
    "partition",
]

_here = lazily(
    __name__,
    {
        "ClientTable": "privfed.data.table",
        "ClientTables": "privfed.data.table",
        "at_random": "privfed.data.splits",
        "by_cluster": "privfed.data.splits",
        "by_dirichlet": "privfed.data.splits",
        "by_distance": "privfed.data.splits",
        "by_kmeans": "privfed.data.splits",
        "half_iid": "privfed.data.splits",
        "iid": "privfed.data.splits",
        "load_clients": "privfed.data.loading",
        "load_features": "privfed.data.features",
        "partition": "privfed.data.named_partitions",
    },
)
_moved = moved(__name__, "privfed.tables")
_MOVED = ("Schema", "in_units", "load_described", "read_described", "read_schema")


def __getattr__(name: str) -> object:
    return _moved(name) if name in _MOVED else _here(name)
