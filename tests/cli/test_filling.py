"""`privfed schema fill`: what stands for missing values is what the pooled rows say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privfed.data import read_described, read_schema

SCHEMA = """
[columns.who]
kind = "id"
[columns.age]
kind = "number"
low = 0
high = 120
outside = "clip"
[columns.ward]
kind = "category"
categories = ["eye", "heart"]
[columns.day]
kind = "date"
low = 2020-01-01
high = 2030-01-01
outside = "clip"
[columns.grade]
kind = "ordinal"
categories = ["low", "mid", "high"]
[columns.cost]
kind = "number"
missing = 7.0
"""


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path, list[list[str]]]:
    """A folder of clients, a schema, and all rows as they are written."""
    rng, folder, written = np.random.default_rng(0), tmp_path / "clients", []
    folder.mkdir()
    for name in "abc":
        rows = []
        for i in range(40):
            ward = rng.choice(["heart", "heart", "eye"])
            row = [
                f"{name}{i}",
                f"{30 + i}.5",
                ward,
                f"2024-01-{1 + i % 28:02d}",
                rng.choice(["low", "high"]),
                "1",
            ]
            rows.append([one if place == 0 or rng.random() > 0.1 else "" for place, one in enumerate(row)])
        (folder / f"{name}.csv").write_text(
            "\n".join(["who,age,ward,day,grade,cost", *map(",".join, rows)]), encoding="utf-8"
        )
        written += rows
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return folder, tmp_path / "schema.toml", written


def test_what_is_learnt_is_what_the_pooled_rows_say(tables: Any, invoke: Any, tmp_path: Path) -> None:
    folder, schema, rows = tables
    out = tmp_path / "filled.toml"
    said = invoke("schema", "fill", folder, "--schema", schema, "--out", out).stdout
    filled = read_schema(out)
    ages = [float(row[1]) for row in rows if row[1]]
    assert filled.columns["age"].missing == pytest.approx(np.mean(ages), rel=1e-9)
    assert f"({len(ages) / 120:.1%} of all rows have a value)" in said
    assert filled.columns["ward"].missing == "heart" and filled.columns["grade"].missing == "mid"
    days = [int(row[3][-2:]) for row in rows if row[3]]
    assert filled.columns["day"].missing.day == round(np.mean(days))
    assert filled.columns["cost"].missing == 7.0
    for name in "abc":
        read = read_described(folder / f"{name}.csv", filled).checked()
        assert read.kept.all() and np.isfinite(read.features).all()
    invoke("fit", folder, "--schema", out, "-k", 2, "--out", tmp_path / "run", "--quiet")


def test_under_privacy_a_claim_is_made_and_values_stay_in_their_ranges(
    tables: Any, invoke: Any, tmp_path: Path
) -> None:
    folder, schema, _ = tables
    schema.write_text(SCHEMA.replace("missing = 7.0", 'missing = 7.0\nlow = 0\nhigh = 9\noutside = "clip"'))
    claim = ("--epsilon", 2, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    out = tmp_path / "filled.toml"
    said = invoke("schema", "fill", folder, "--schema", schema, "--out", out, *claim).stdout
    assert "differential privacy: epsilon 2" in said
    filled = read_schema(out)
    assert 0 <= filled.columns["age"].missing <= 120 and filled.columns["ward"].missing in ("eye", "heart")


def test_what_cannot_be_filled_is_one_line(tables: Any, failing: Any, invoke: Any, tmp_path: Path) -> None:
    folder, schema, _ = tables
    out = tmp_path / "filled.toml"
    words = ("schema", "fill", folder, "--schema", schema, "--out", out)
    assert "--fill names 'who', and the schema's features are age" in failing(*words, "--fill", "who")
    assert "--schema is missing" in failing(*words[:3], "--out", out)
    invoke(*words, "--fill", "age,ward,day,grade,cost")
    assert "each column says" in failing(*words[:3], "--schema", out, "--out", tmp_path / "again.toml")
    assert "exists; name another file" in failing(*words)
    for own in folder.iterdir():
        lines = [line.split(",") for line in own.read_text().splitlines()]
        own.write_text(
            "\n".join(",".join([line[0], "" if i else line[1], *line[2:]]) for i, line in enumerate(lines))
        )
    empty = failing(*words[:-1], tmp_path / "none.toml")
    assert "no client has a value in column age" in empty
