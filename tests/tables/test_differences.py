"""Standardised differences between clusters: those of the pooled rows, from the sums of a profile."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from privfed import metrics
from privfed.tables.profiled import differences
from privfed.tables.schema import CATEGORY, parse
from tests.tables.test_pages import fitted, home

__all__ = ["home"]

SCHEMA = parse(
    '[columns.who]\nkind = "id"\n[columns.age]\nkind = "number"\n'
    '[columns.ward]\nkind = "category"\ncategories = ["heart", "lung", "bone", "none"]\n'
    '[columns.crp]\nkind = "number"\n[columns.sex]\nkind = "category"\ncategories = ["f", "m"]'
)


def pooled(rows: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return the differences of pooled rows, pair by pair, by the papers' formulas."""
    found, place = {}, 0
    groups = [rows[labels == one] for one in np.unique(labels) if (labels == one).sum() > 1]
    for name, own in SCHEMA.columns.items():
        if not own.is_feature:
            continue
        columns = slice(place, place + own.width)
        place += own.width
        each = []
        for one, other in combinations([rows[:, columns] for rows in groups], 2):
            if own.kind == CATEGORY:
                p, q = one.mean(axis=0)[1:], other.mean(axis=0)[1:]
                spread = sum(np.diag(share) - np.outer(share, share) for share in (p, q)) / 2
                each.append(np.sqrt((p - q) @ np.linalg.pinv(spread) @ (p - q)))
            else:
                variance = (one.var(ddof=1) + other.var(ddof=1)) / 2
                each.append(abs(one.mean() - other.mean()) / np.sqrt(variance))
        found[name] = float(np.mean(each))
    return found


def drawn(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of the schema, the nearest of three centers, and these; no row has the last category."""
    rng = np.random.default_rng(seed)
    group = rng.integers(3, size=n)
    ward = np.array(
        [rng.choice(4, p=one) for one in np.array([[6, 3, 1, 0], [2, 2, 6, 0], [1, 8, 1, 0]])[group] / 10]
    )
    rows = np.column_stack(
        [
            30 + 15 * group + rng.normal(0, 4, n),
            np.eye(4)[ward],
            rng.lognormal(1, 1, n),
            np.eye(2)[rng.integers(2, size=n)],
        ]
    )
    centers = np.array([rows[group == one].mean(axis=0) for one in range(3)])
    return rows, ((rows[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1), centers


@pytest.mark.parametrize(("protocol", "within"), [("plain", 1e-9), ("masked", 1e-6)])
@pytest.mark.parametrize("seed", range(4))
def test_they_are_those_of_the_pooled_rows(protocol: Any, within: float, seed: int) -> None:
    rows, labels, centers = drawn(seed)
    known = metrics.profiles(np.array_split(rows, 5), centers, protocol=protocol)
    found, wanted = differences(known, SCHEMA.features, SCHEMA), pooled(rows, labels)
    assert list(found) == ["age", "ward", "crp", "sex"]
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=within, abs=within)


def test_far_columns_and_clusters_of_few_rows() -> None:
    rows, _, centers = drawn(9)
    far = np.array([1e6, 0, 0, 0, 0, 0, 0, 0])
    alone, nobody = (rows[:1] + far * by for by in (9e-4, 5e-3))
    more, about = np.vstack([rows, alone]) + far, np.vstack([centers, alone, nobody]) + far
    labels = ((more[:, None] - about) ** 2).sum(axis=2).argmin(axis=1)
    known = metrics.profiles([more[:200], more[200:]], about, protocol="plain")
    assert known.sizes[3:].tolist() == [1.0, 0.0]
    for name, value in pooled(more, labels).items():
        assert differences(known, SCHEMA.features, SCHEMA)[name] == pytest.approx(value, rel=1e-6)


def test_without_spread_a_difference_is_infinite_and_without_difference_it_is_none() -> None:
    rows = np.repeat(
        [[0.0, 1.0, 0.0, 0.0, 0.0, 7.0, 1.0, 0.0], [9.0, 0.0, 1.0, 0.0, 0.0, 7.0, 1.0, 0.0]], 20, axis=0
    )
    known = metrics.profiles([rows[:8], rows[8:25], rows[25:]], rows[[0, -1]], protocol="masked")
    assert differences(known, SCHEMA.features, SCHEMA) == {
        "age": np.inf,
        "ward": np.inf,
        "crp": 0.0,
        "sex": 0.0,
    }
    one = metrics.profiles([rows[:15], rows[15:]], rows[:1], protocol="plain")
    assert all(np.isnan(value) for value in differences(one, SCHEMA.features, SCHEMA).values())


def test_the_command_prints_writes_and_returns_them(home: Path, invoke: Callable[..., Any]) -> None:
    run = fitted(home, invoke, "--profile", "--scale", "standard")
    told = json.loads(invoke("profile", run, "--no-picture", "--json").stdout)["between"]
    assert list(told) == ["age", "sex", "ward", "seen"]
    invoke("predict", run, home / "sites", "--out-folder", home / "labels")
    names = [one.name for one in sorted((home / "sites").iterdir())]
    rows, cluster = (
        pl.concat(pl.read_csv(home / folder / name) for name in names) for folder in ("sites", "labels")
    )
    ages = [rows["age"].filter(cluster["cluster"] == one).drop_nulls() for one in range(2)]
    spread = np.sqrt(np.mean([one.var() for one in ages]))  # type: ignore[arg-type]
    assert told["age"] == pytest.approx(abs(ages[0].mean() - ages[1].mean()) / spread, rel=1e-6)  # type: ignore[operator]
    said = invoke("profile", run, "--out", home / "p.csv", "--no-picture").stdout
    assert "between" in said and f"{told['ward']:.2f}" in said
    table = pl.read_csv(home / "p.csv").rows_by_key("column", named=True)
    assert [one["between"] for one in table["ward=lung"]] == pytest.approx([told["ward"]] * 2)
    invoke("profile", run, "--out", home / "page.html")
    page = (home / "page.html").read_text()
    assert f"<td>{told['age']:.2f}</td>" in page and "Yang and Dalton" in page and "nan" not in page


def test_means_of_groups_and_noised_means_have_none(home: Path, invoke: Callable[..., Any]) -> None:
    run = fitted(home, invoke, "--profile", "--group-size", 5)
    assert json.loads(invoke("profile", run, "--no-picture", "--json").stdout)["between"] is None
    invoke("profile", run, "--out", home / "page.html")
    assert "Yang" not in (home / "page.html").read_text()


def test_pairs_of_clusters_with_many_categories_are_taken_one_by_one() -> None:
    width, k = 200, 30
    listed = ", ".join(f'"c{i}"' for i in range(width))
    schema = parse(f'[columns.code]\nkind = "category"\ncategories = [{listed}]')
    shares = np.tile(np.random.default_rng(0).dirichlet(np.ones(width)), (k, 1))
    none = np.zeros(width)
    known = metrics.Profiles(np.full(k, 9.0), shares, shares * 0.0, none, none)
    tracemalloc.start()
    try:
        found = differences(known, schema.features, schema)
        # The matrices of all 435 pairs take 139 MB, those of the clusters 10 MB.
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()
    assert found == {"code": 0.0}
