"""The clients' data: loading it, checking it, and splitting one table into simulated clients."""

from privfed.data.by_column import by_column
from privfed.data.kinds import partition
from privfed.data.loading import load_clients, load_features
from privfed.data.partition import by_dirichlet, by_kmeans, half_iid, iid
from privfed.data.placement import at_random, by_cluster, by_distance
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
