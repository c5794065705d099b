"""The clients' data: loading it, checking it, and splitting one table into simulated clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily

if TYPE_CHECKING:
    from privfed.data.described_clients import in_units, load_described
    from privfed.data.described_tables import read_described
    from privfed.data.features import load_features
    from privfed.data.loading import load_clients
    from privfed.data.named_partitions import partition
    from privfed.data.schema import Schema, read_schema
    from privfed.data.splits import (
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

__getattr__ = lazily(
    __name__,
    {
        "ClientTable": "privfed.data.table",
        "ClientTables": "privfed.data.table",
        "Schema": "privfed.data.schema",
        "at_random": "privfed.data.splits",
        "by_cluster": "privfed.data.splits",
        "by_column": "privfed.data.splits",
        "by_dirichlet": "privfed.data.splits",
        "by_distance": "privfed.data.splits",
        "by_kmeans": "privfed.data.splits",
        "half_iid": "privfed.data.splits",
        "iid": "privfed.data.splits",
        "in_units": "privfed.data.described_clients",
        "load_clients": "privfed.data.loading",
        "load_described": "privfed.data.described_clients",
        "load_features": "privfed.data.features",
        "partition": "privfed.data.named_partitions",
        "read_described": "privfed.data.described_tables",
        "read_schema": "privfed.data.schema",
    },
)
