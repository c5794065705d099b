"""`privfed profile`, hints after a fit, and `privfed show`, of a run with a schema."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from privfed.errors import PrivacyError
from privfed.tables.schema import parse
from tests.cli.wide import run

SCHEMA = """
[columns.age]
kind = "number"
low = 0
high = 100
shift = 40.0
spread = 10.0
[columns.ward]
kind = "category"
categories = ["heart", "lung", "unknown"]
missing = "unknown"
[columns.seen]
kind = "date"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "sites").mkdir()
    for name in "abc":
        rows = [f"{30 + 30 * (i % 2)},{('heart', 'lung')[i % 2]},2024-02-{1 + i % 2:02d}" for i in range(24)]
        (tmp_path / "sites" / f"{name}.csv").write_text("\n".join(["age,ward,seen", *rows]) + "\n")
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def fitted(home: Path, *words: object) -> str:
    schema = ("--schema", home / "s.toml", "-k", 2, "--out", home / "run")
    return run("fit", home / "sites", *schema, *words).stderr


def test_a_written_profile_is_in_the_units_of_the_printed_one(home: Path) -> None:
    fitted(home, "--profile", "--quiet")
    run("profile", home / "run", "--out", home / "p.csv", "--no-picture")
    found = pl.read_csv(home / "p.csv").sort("rows", "mean").rows_by_key("column", named=True)
    assert sorted(one["mean"] for one in found["age"]) == pytest.approx([30.0, 60.0])
    assert sorted(one["mean"] for one in found["ward=lung"]) == pytest.approx([0.0, 1.0])
    assert sorted(one["date"] for one in found["seen"]) == ["2024-02-01", "2024-02-02"]
    assert {one["date"] for one in found["age"]} == {""}


def test_a_category_that_no_row_has_is_not_to_be_left_out(home: Path) -> None:
    assert "hardly vary" not in fitted(home, "--profile", "--scale", "standard")
    for one in (home / "sites").iterdir():
        one.write_text(one.read_text().replace("lung", "heart"))
    (home / "run").rename(home / "before")
    said = fitted(home, "--profile")
    assert "no clusters apart: ward=heart, ward=lung, ward=unknown; leave them out." in said


def test_show_names_the_kind_of_a_scale_not_all_its_numbers(home: Path) -> None:
    fitted(home, "--quiet", "--scale", "standard")
    said = run("show", home / "run").stdout
    assert "scaled standard" in said and "shift" not in said


def test_a_folder_that_is_none_and_one_of_a_selection_are_told_apart(home: Path) -> None:
    assert "no folder" in run("profile", home / "nowhere", exit_code=2).output
    for place, one in enumerate((home / "sites").iterdir()):
        one.write_text(
            one.read_text() + "\n".join(f"{20 + 7 * i + place},heart,2024-02-01" for i in range(9))
        )
    run(
        "select-k",
        home / "sites",
        "--schema",
        home / "s.toml",
        "--max-k",
        3,
        "--quiet",
        "--out",
        home / "sel",
    )
    assert "a folder that 'privfed fit' wrote" in run("profile", home / "sel", exit_code=2).output


def test_all_that_a_private_fit_needs_of_a_schema_is_said_at_once() -> None:
    with pytest.raises(PrivacyError) as raised:
        parse(SCHEMA).check_private()
    said = str(raised.value)
    assert "give low and high to 'seen'; missing = \"leave-out\" or a value to 'age', 'seen';" in said
    assert "outside = \"clip\" or \"missing\" to 'age', 'seen'." in said
