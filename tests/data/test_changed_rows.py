"""Rows that are left out, filled or clipped before a fit are counted by column, and the fit says so."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from privfed import Box, DPKMeans, DWFKMeans, Privacy
from privfed.data import load_clients
from privfed.tables import load_described, read_schema
from tests.some import some

COLUMNS = "site,a,b,c"


def table(folder: Path, missing: int = 3, n: int = 120) -> Path:
    """Write four clients' rows; every third lacks c, every 40th lacks a."""
    rng, path = np.random.default_rng(0), folder / "t.csv"
    lines = [COLUMNS]
    for i in range(n):
        a, b, c = rng.normal(size=3) + 5 * (i % 2)
        lines.append(f"{i % 4},{'' if i % 40 == 1 else a},{b},{'' if missing and i % missing == 0 else c}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_each_column_has_its_own_count_and_all_together_one(tmp_path: Path) -> None:
    clients = load_clients(table(tmp_path), group="site", missing="leave-out")
    assert clients.changed == {"a": 3, "b": 0, "c": 40, "": 42}
    assert sum(map(len, clients.arrays)) == 120 - 42
    filled = load_clients(table(tmp_path), group="site", missing=0.0)
    assert filled.changed == {"a": 3, "b": 0, "c": 40, "": 0}


@pytest.mark.parametrize("missing", ["leave-out", 0.0])
def test_a_fit_says_first_that_many_rows_were_changed(missing: float | str, tmp_path: Path) -> None:
    clients = load_clients(table(tmp_path), group="site", missing=missing)
    # Filling is a choice that a schema states: it is shown, and no warning.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = DWFKMeans(2, protocol="plain", random_state=0).fit(clients)
    assert (UserWarning in {one.category for one in caught}) is (missing == "leave-out")
    first = model.findings_[0]
    assert first.code == "changed" and "c: 40" in first.text and "b:" not in first.text


def test_few_changed_rows_are_no_finding(tmp_path: Path) -> None:
    clients = load_clients(table(tmp_path, missing=60), group="site", missing="leave-out")
    model = DWFKMeans(2, protocol="plain", random_state=0).fit(clients)
    assert not [one for one in model.findings_ if one.code == "changed"]


def test_a_schema_counts_the_rows_that_it_changes(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(
        '[columns.a]\nkind = "number"\nmissing = "leave-out"\n'
        '[columns.b]\nkind = "number"\n'
        '[columns.c]\nkind = "number"\nmissing = 0.5\n'
        '[columns.site]\nkind = "id"\n'
    )
    clients = load_described(table(tmp_path), read_schema(schema), group="site")
    assert clients.changed == {"a": 3, "b": 0, "c": 40, "": 3}


def test_nothing_is_counted_or_said_under_differential_privacy(tmp_path: Path) -> None:
    names = ["0", "1", "2", "3"]
    private = load_clients(table(tmp_path), group="site", missing=0.0, private=True, clients=names)
    assert private.changed == {}
    exact = load_clients(table(tmp_path), group="site", missing="leave-out", clients=names)
    claim = Privacy(epsilon=5.0, delta=1e-6, unit="record", domain=Box(-9, 9), neighbours="add-remove")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [DPKMeans(2, privacy=claim, random_state=0).fit(one).findings_ for one in (private, exact)]
    for findings in some(found):
        assert "changed" not in {one.code for one in findings}


@pytest.mark.parametrize(("n_clients", "warns"), [(21, False), (22, False), (60, True)])
def test_a_column_that_makes_clients_of_few_rows_is_doubted(n_clients: int, warns: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(220, 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        DWFKMeans(2, protocol="plain", max_iter=1, random_state=0).fit(
            rows, groups=np.arange(220) % n_clients
        )
    said = [one for one in caught if f"{n_clients:,} clients of 220 rows" in str(one.message)]
    assert bool(said) is warns
