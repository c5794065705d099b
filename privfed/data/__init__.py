"""The clients' data: loading it, checking it, and splitting one table into simulated clients."""

from privfed.data.loading import load_clients, load_features
from privfed.data.named_partitions import partition
from privfed.data.partition import (
    at_random,
    by_cluster,
    by_column,
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
    "by_column",
    "by_dirichlet",
    "by_distance",
    "by_kmeans",
    "half_iid",
    "iid",
    "load_clients",
    "load_features",
    "partition",
]
