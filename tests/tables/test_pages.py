"""The page of a run and its profile: figures in the table's units, one line a category, nothing cut."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from privfed.core.record.records import question_of
from privfed.core.record.transcript import Transcript
from privfed.questions.cluster_spread import ClusterClients, ClusterProfiles
from privfed.tables.profiled import figure, shown
from privfed.tables.schema import parse

SCHEMA = """
[columns.age]
kind = "number"
unit = "years"
low = 0
high = 100
missing = "leave-out"
outside = "clip"
[columns.sex]
kind = "category"
categories = ["female", "male"]
weight = 0.1
[columns.ward]
kind = "category"
categories = ["<heart>", "lung", "bone"]
missing = "bone"
[columns.seen]
kind = "date"
low = 2024-01-01
high = 2025-01-01
"""
CLAIM = ("--epsilon", 5, "--delta", 1e-5, "--unit", "record", "--neighbours", "add-remove", "--max-rows", 100)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "sites").mkdir()
    rng = np.random.default_rng(0)
    for name in "abc":
        lines = ["age,sex,ward,seen"]
        for i in range(60):
            old = i % 2
            ward = ("lung", "<heart>")[old] if rng.random() < 0.85 else ""
            age = f"{30 + 40 * old + rng.normal(0, 3):.1f}" if i % 20 else ""
            lines.append(f"{age},{('male', 'female')[i % 3 == 0]},{ward},2024-02-{1 + i % 28:02d}")
        (tmp_path / "sites" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def fitted(home: Path, invoke: Callable[..., Any], *words: object, text: str = SCHEMA) -> Path:
    (home / "s.toml").write_text(text)
    given = ("--schema", home / "s.toml", "-k", 2, "--quiet", "--no-picture", "--out", home / "run")
    invoke("fit", home / "sites", *given, *words)
    return home / "run"


def kept(home: Path) -> pl.DataFrame:
    frame = pl.concat(pl.read_csv(one) for one in sorted((home / "sites").iterdir()))
    return frame.filter(pl.col("age").is_not_null())


@pytest.mark.parametrize("scale", ["none", "range"])
def test_figures_are_in_the_tables_units_everywhere(
    scale: str, home: Path, invoke: Callable[..., Any]
) -> None:
    run = fitted(home, invoke, "--profile", text=f'scale = "{scale}"\n{SCHEMA}')
    invoke("predict", run, home / "sites", "--out-folder", home / "labels")
    names = [one.name for one in sorted((home / "sites").iterdir())]
    rows = pl.concat(pl.read_csv(home / "sites" / name) for name in names)
    cluster = pl.concat(pl.read_csv(home / "labels" / name) for name in names)["cluster"]
    wanted = {
        "age": rows["age"],
        "ward=bone": rows["ward"].is_null().cast(float),
        "sex=male": (rows["sex"] == "male").cast(float),
        "seen": (rows["seen"].str.to_date() - pl.Series([datetime.date(2000, 1, 1)])).dt.total_days(),
    }
    told = json.loads(invoke("profile", run, "--no-picture", "--json").stdout)
    table = pl.read_csv(run / "centroids.csv")
    assert set(cluster) == {-1, 0, 1}
    for i in range(2):
        for name, values in wanted.items():
            place, mean = told["columns"].index(name), values.filter(cluster == i).mean()
            assert told["profile"]["means"][i][place] == pytest.approx(mean, rel=1e-6)
            assert told["profile"]["stds"][i][place] == pytest.approx(
                values.filter(cluster == i).std(ddof=0), rel=1e-4, abs=1e-6
            )
            for found in (told["centroids"][i][place], table[name][i]):
                assert found == pytest.approx(mean, rel=0.05, abs=0.05)  # Where centers came to rest.


def test_a_page_says_who_what_and_how_for_readers(home: Path, invoke: Callable[..., Any]) -> None:
    run, page = fitted(home, invoke, "--profile", "--scale", "standard"), home / "page.html"
    words = ("--names", "Young <lungs>,Old hearts", "--title", "Two kinds & more")
    invoke("profile", run, "--out", page, "--no-picture", *words)
    text = page.read_text()
    frame = kept(home)
    assert "Two kinds &amp; more" in text and "Young &lt;lungs&gt;" in text and "<lungs>" not in text
    assert "3 sites (a, b, c)" in text and f"{frame.height} rows" in text
    assert "9 of 180 rows are left out" in text and "days from 2024-02-01 to 2024-02-28" in text
    assert "ward: &lt;heart&gt;" in text and "sex: male" in text and "sex: female" not in text
    assert (
        "No differential privacy is claimed" in text
        and "can reveal rows" in text
        and "Holzer" in text
        and "Bonawitz" in text
    )
    assert "-0.0" not in text and "…" not in text and "nan" not in text
    whole = float((frame["sex"] == "male").mean())  # type: ignore[arg-type]
    row = next(one for one in text.split("<tr>") if "sex: male" in one)
    assert f"<td>{100 * whole:.0f}" in row or f"<td>{100 * whole:.1f} %" in row
    assert re.search(r"Nobody has confirmed", text) is None
    assert "script" not in text and "http" not in text
    lost = next(one for one in text.split("<tr>") if ">ward: lung" in one)
    gaps = sum(one.count(",,") for one in (p.read_text() for p in (home / "sites").iterdir()))
    assert f"<td>{gaps / 180:.1%}</td>" in lost


def test_a_page_of_a_private_run_has_intervals_and_counts_nothing(
    home: Path, invoke: Callable[..., Any]
) -> None:
    run = fitted(
        home,
        invoke,
        "--algorithm",
        "dp",
        *CLAIM,
        text=SCHEMA.replace('"male"]', '"male"]\nmissing = "male"').replace(
            "high = 2025-01-01", 'high = 2025-01-01\nmissing = "leave-out"\noutside = "clip"'
        ),
    )
    invoke("profile", run, "--out", home / "page.html")
    text = (home / "page.html").read_text()
    assert re.search(r"\d \(\d.* to ", text) and "Noise was added" in text
    assert "of 180 rows are left out" not in text and "days from" not in text
    assert "would tell of rows" in text and "-0.0" not in text
    assert "declared from 2024-01-01 to 2025-01-01" in text


def test_names_are_as_many_as_clusters_and_a_missing_table_is_no_error(
    home: Path, invoke: Callable[..., Any], failing: Callable[..., str]
) -> None:
    run = fitted(home, invoke, "--profile")
    assert "1 names for 2 clusters" in failing("profile", run, "--names", "one")
    (home / "sites").rename(home / "moved")
    invoke("profile", run, "--out", home / "page.html", "--no-picture")
    assert "left out, counted" not in (home / "page.html").read_text()


@pytest.mark.parametrize(
    ("value", "spread", "text"),
    [
        (51.145, 20.69, "51"),
        (55.167, 4.999, "55.2"),
        (-0.0001, 3.0, "0.0"),
        (-0.0, 0.0, "0.000"),
        (0.05374, 0.0021, "0.0537"),
        (123456.0, 23456.0, "123\u202f000"),
        (1e300, 1e299, "1e+300"),
        (3.0, float("nan"), "3.000"),
        (1e-12, 1e-13, "0.000000000"),
    ],
)
def test_a_figure_has_two_digits_of_its_spread(value: float, spread: float, text: str) -> None:
    assert figure(value, spread) == text


def test_of_two_categories_one_is_printed_under_any_names() -> None:
    schema = parse(
        '[columns.a]\nkind = "category"\ncategories = ["x: y", "y"]\n'
        '[columns.b]\nkind = "category"\ncategories = ["p", "q", "r"]\n[columns.c]\nkind = "number"'
    )
    assert [(place, title) for place, _, title, _ in shown(schema.features, schema)] == [
        (1, "a: y"),
        (2, "b: p"),
        (3, "b: q"),
        (4, "b: r"),
        (5, "c"),
    ]
    assert [title for _, _, title, _ in shown(["x", "y"], None)] == ["x", "y"]


@pytest.mark.parametrize("words", [(), ("--scale", "standard"), ("--group-size", 5)], ids=str)
def test_a_profile_that_the_fit_did_not_ask_for_is_asked_later(
    words: tuple[object, ...], home: Path, invoke: Callable[..., Any], failing: Callable[..., str]
) -> None:
    run = fitted(home, invoke, *words)
    before = {one: (run / one).read_bytes() for one in ("model.npz", "transcript.jsonl", "centroids.csv")}
    assert "--ask" in failing("profile", run)
    later = json.loads(invoke("profile", run, "--ask", "--json").stdout)["profile"]
    assert json.loads(invoke("profile", run, "--json").stdout)["profile"] == later
    assert all((run / one).read_bytes() == value for one, value in before.items())
    # What was asked later is on record, and attacked together with the fit.
    for name, kind in (("profile", ClusterProfiles), ("profile_clients", ClusterClients)):
        asked = [question_of(one) for one, _ in Transcript.load(run / name).totals()]
        assert kind in {type(one) for one in asked}
    run.rename(home / "later")
    at_once = json.loads(invoke("profile", fitted(home, invoke, *words, "--profile"), "--json").stdout)[
        "profile"
    ]
    for name, values in at_once.items():
        np.testing.assert_allclose(np.array(later[name]), np.array(values), rtol=1e-6, atol=1e-5)


def test_no_profile_is_asked_later_of_a_private_run(home: Path, invoke: Callable[..., Any]) -> None:
    run = fitted(
        home,
        invoke,
        "--algorithm",
        "dp",
        *CLAIM,
        text=SCHEMA.replace('"male"]', '"male"]\nmissing = "male"').replace(
            "high = 2025-01-01", 'high = 2025-01-01\nmissing = "leave-out"\noutside = "clip"'
        ),
    )
    before = (run / "result.json").read_bytes()
    assert json.loads(invoke("profile", run, "--ask", "--json").stdout)["profile"] is None
    assert (run / "result.json").read_bytes() == before
