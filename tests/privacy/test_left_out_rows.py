"""Where neighbours replace a record, the number of rows is public: no row is left out for what it holds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from privfed import Box, FederatedScaler, Privacy
from privfed.data import ClientTables, load_clients
from privfed.errors import PrivacyError
from privfed.tables import read_schema
from privfed.tables.described_clients import load_described

SCHEMA = """
[columns.a]
kind = "number"
low = 0
high = 1
missing = {missing}
outside = "clip"
[columns.who]
kind = "id"
"""


def folder(place: Path, first: str) -> Path:
    for client in range(4):
        lines = ["a,who", f"{first if client == 0 else 0.5},p0", *(f"0.{i},p{i}" for i in range(1, 9))]
        (place / f"c{client}.csv").write_text("\n".join(lines) + "\n")
    return place


def by_schema(place: Path, missing: str, **roles: str) -> ClientTables:
    path = place.with_suffix(".toml")
    path.write_text(SCHEMA.format(missing=missing))
    return load_described(place, read_schema(path), private=True, **roles)


LEAVING: dict[str, Callable[[Path], ClientTables]] = {
    "a rule": lambda place: load_clients(place, columns=["a"], private=True, missing="leave-out"),
    "ids": lambda place: load_clients(place, id="who", private=True, missing=0.5),
    "a schema": lambda place: by_schema(place, '"leave-out"'),
    "a schema's ids": lambda place: by_schema(place, "0.5", id="who"),
}
FILLING: dict[str, Callable[[Path], ClientTables]] = {
    "a rule": lambda place: load_clients(place, columns=["a"], private=True, missing=0.5),
    "a schema": lambda place: by_schema(place, "0.5"),
}


def n_rows(tables: ClientTables, neighbours: str) -> float:
    """Return the number of rows that a claim of a small epsilon releases."""
    domain = Box(0.0, 1.0, max_rows=32)
    claim = Privacy(epsilon=0.05, delta=1e-6, unit="record", domain=domain, neighbours=neighbours)
    return FederatedScaler("range", privacy=claim).fit(tables).n_samples_seen_


@pytest.mark.parametrize("how", LEAVING)
def test_rows_are_not_left_out_where_their_number_is_public(how: str, tmp_path: Path) -> None:
    """The number was 36 with a value and 35 with a gap in its place, at any epsilon."""
    tables = LEAVING[how](folder(tmp_path, "0.5"))
    with pytest.raises(PrivacyError, match="leave rows out"):
        n_rows(tables, "replace-one")
    assert n_rows(tables, "add-remove") > 0


@pytest.mark.parametrize("how", FILLING)
def test_a_record_with_a_gap_counts_as_any_other(how: str, tmp_path: Path) -> None:
    for first in ("0.5", "", "1e999"):
        assert n_rows(FILLING[how](folder(tmp_path, first)), "replace-one") == 36
