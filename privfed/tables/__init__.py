"""Tables whose columns a schema describes: units, categories, dates, gaps and ranges; and spreadsheets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privfed.core.names import lazily

if TYPE_CHECKING:
    from privfed.tables.beside import columns_by_cluster
    from privfed.tables.checking import Check, check_tables
    from privfed.tables.described_clients import in_units, load_described
    from privfed.tables.described_tables import read_described
    from privfed.tables.drafting import Draft, draft_schema
    from privfed.tables.outcomes import Survival, survival
    from privfed.tables.schema import Schema, read_schema

__all__ = [
    "Check",
    "Draft",
    "Schema",
    "Survival",
    "check_tables",
    "columns_by_cluster",
    "draft_schema",
    "in_units",
    "load_described",
    "read_described",
    "read_schema",
    "survival",
]

__getattr__ = lazily(
    __name__,
    {
        "Check": "privfed.tables.checking",
        "Draft": "privfed.tables.drafting",
        "Schema": "privfed.tables.schema",
        "Survival": "privfed.tables.outcomes",
        "check_tables": "privfed.tables.checking",
        "columns_by_cluster": "privfed.tables.beside",
        "draft_schema": "privfed.tables.drafting",
        "in_units": "privfed.tables.described_clients",
        "load_described": "privfed.tables.described_clients",
        "read_described": "privfed.tables.described_tables",
        "read_schema": "privfed.tables.schema",
        "survival": "privfed.tables.outcomes",
    },
)
