"""The clients' data: loading it, checking it, and splitting one table into simulated clients."""

from privfed.data.described_clients import in_units, load_described
from privfed.data.described_tables import read_described
from privfed.data.features import load_features
from privfed.data.loading import load_clients
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
from privfed.data.schema import Schema, read_schema
from privfed.data.table import ClientTable, ClientTables

__all__ = [
    "ClientTable",
    "ClientTables",
    "Schema",
    "at_random",
    "by_cluster",
    "by_column",
    "by_dirichlet",
    "by_distance",
    "by_kmeans",
    "half_iid",
    "iid",
    "in_units",
    "load_clients",
    "load_described",
    "load_features",
    "partition",
    "read_described",
    "read_schema",
]
