"""A draft says what it guesses; days are read as they are written; ids and codes are no numbers."""

import csv
import datetime
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privfed.errors import ArgumentError, DataError
from privfed.tables import check_tables, draft_schema
from privfed.tables.dates import days_in, formats_of, is_format, is_short
from privfed.tables.described_tables import read_described
from privfed.tables.drafting import Draft
from privfed.tables.schema import Schema, parse, to_toml

DAYS = [datetime.date(1938, 1, 5) + datetime.timedelta(days=197 * i) for i in range(40)]
SPELLINGS = [
    *("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%-d/%-m/%Y", "%d-%m-%y"),
    *(
        "%d%b%Y",
        "%d-%b-%Y",
        "%b %d %Y",
        "%B %d, %Y",
        "%d. %B %Y",
        "%d-%b-%y",
        "%d%b%Y:%H:%M:%S",
        "%Y-%m-%dT%H:%M:%S",
    ),
    *(
        "%Y-%m-%dT%H:%M:%SZ",
        "%Y-%m-%dT%H:%M:%S+01:00",
        "%Y-%m-%d %H:%M",
        "%m/%d/%Y %H:%M",
        "%m/%d/%Y %I:%M %p",
    ),
]


def drafted(folder: Path, lines: list[str], name: str = "x", **options: Any) -> Draft:
    rows = [f'"{one}",{30 + i % 9}' for i, one in enumerate(lines)]
    (folder / "t.csv").write_text("\n".join([f"{name},age", *rows]) + "\n")
    return draft_schema(folder / "t.csv", **options)


def days_of(folder: Path, schema: Schema) -> list[datetime.date]:
    read = read_described(folder / "t.csv", schema).checked()
    return [datetime.date(2000, 1, 1) + datetime.timedelta(days=int(one)) for one in read.features[:, 0]]


@pytest.mark.parametrize("form", SPELLINGS)
def test_a_draft_reads_each_spelling_of_a_day(form: str, tmp_path: Path) -> None:
    lines = [datetime.datetime.combine(one, datetime.time(0, 30)).strftime(form) for one in DAYS]
    for texts in (lines, [one.upper() for one in lines]):
        found = drafted(tmp_path, texts, pivot=1930)
        assert found.schema.columns["x"].kind == "date"
        assert parse(found.to_toml()) == found.schema
        assert days_of(tmp_path, found.schema) == DAYS


@pytest.mark.parametrize("form", ["%d-%m-%y", "%m/%d/%y", "%d%b%y"])
def test_years_of_two_digits_need_a_pivot(form: str, tmp_path: Path) -> None:
    lines = [one.strftime(form) for one in DAYS]
    found = drafted(tmp_path, lines)
    assert "x" not in found.schema.columns and [one.column for one in found.guesses] == ["x"]
    found = drafted(tmp_path, lines, pivot=1930)
    assert "pivot" in found.schema.columns["x"].guessed
    text = found.to_toml()
    with pytest.raises(ArgumentError, match="pivot"):
        parse(text.replace("pivot = 1930", ""))
    assert days_of(tmp_path, parse(text.replace("= 1930", "= 1850")))[0].year == 1938


@given(day=st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)), pivot=st.integers(1000, 9000))
def test_what_is_read_is_what_was_written(day: datetime.date, pivot: int) -> None:
    """days_in(format(day)) == day, and what another text reads as is written as that text."""
    text = f"{day.day:02d}/{day.month:02d}/{day.year:04d}"
    assert days_in(pl.Series([text]), "%d/%m/%Y")[0] == day
    short = days_in(pl.Series([f"{day.day}/{day.month}/{day.year % 100:02d}"]), "%d/%m/%y", pivot)[0]
    if short is not None:  # 29 February is in no other century's year, perhaps.
        assert 0 <= short.year - pivot < 100
        assert (short.day, short.month, short.year % 100) == (day.day, day.month, day.year % 100)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("22/6/22", "%d/%m/%Y"),
        ("14-02-98", "%d-%m-%Y"),
        ("14-02-1998", "%d-%m-%y"),
        ("1111938", "%d%m%Y"),
        ("1938015", "%Y%m%d"),
        ("31.11.2020", "%d.%m.%Y"),
        ("2020-02-30", "%Y-%m-%d"),
        ("2021-05-01 10:30", "%Y-%m-%d"),
    ],
)
def test_a_text_that_is_not_the_day_again_is_no_day(text: str, form: str) -> None:
    assert days_in(pl.Series([text]), form, 1930)[0] is None


@pytest.mark.parametrize("form", ["%Q", "%", "hello", "%d", "%Y", "%H:%M"])
def test_a_format_that_gives_no_day_is_refused(form: str) -> None:
    assert not is_format(form)
    with pytest.raises(ArgumentError, match="format"):
        parse(f'[columns.x]\nkind = "date"\nformat = "{form}"')


def test_days_that_two_formats_read_are_left_out_and_said(tmp_path: Path) -> None:
    lines = [f"{1 + i % 12:02d}/{1 + i % 7:02d}/2020" for i in range(40)]
    found = drafted(tmp_path, lines)
    assert "x" not in found.schema.columns and "--date-format" in found.guesses[0].what
    found = drafted(tmp_path, lines, date_format="%m/%d/%Y")
    assert found.schema.files["t"].dates == {"x": "%m/%d/%Y"}
    assert all(not is_short(one) for one in formats_of(pl.Series(lines)))


@pytest.mark.parametrize(
    ("name", "lines", "kind"),
    [
        ("days", [f"{13 * i + 7}" for i in range(60)], "number"),
        ("platelets", [f"{150000 + 1733 * i}" for i in range(60)], "number"),
        ("year", [f"{1960 + i}" for i in range(60)], "number"),
        ("dose", [f"{i}" for i in range(60, 90)], "number"),
        ("row", [f"{1 + i}" for i in range(60)], "id"),
        ("cpr", [f"{1112380000 + 7919 * i}" for i in range(60)], "id"),
        ("patient_id", [f"{i // 2 * 37 + 5}" for i in range(60)], "id"),
        ("x", [f"{1234567890123456789 + i}" for i in range(60)], "id"),
        ("x", [f"{i:06d}" for i in range(0, 6000, 97)], "id"),
        ("x", [f"a-{i:04d}" for i in range(60)], "id"),
        ("zip", [f"{i % 7:05d}" for i in range(60)], "category"),
        ("x", [f"{i % 7:02d}" for i in range(60)], "category"),
        ("icd", [f"{250 + i % 7}.{i % 4}" for i in range(60)], "category"),
        ("sex", [f"{1 + i % 2}" for i in range(60)], "category"),
        ("x", [f"{i % 9}" for i in range(400)] + ["2.5"], "number"),
    ],
)
def test_ids_and_codes_are_no_numbers_and_numbers_no_ids(
    name: str, lines: list[str], kind: str, tmp_path: Path
) -> None:
    found = drafted(tmp_path, lines, name)
    own = found.schema.columns[name]
    assert own.kind == kind
    if kind == "id" or (kind == "category" and name != "t"):
        assert own.guessed == ("kind",) and [one.column for one in found.guesses] == [name]


@pytest.mark.parametrize(
    ("lines", "categories", "codes", "key"),
    [
        (["None", "Some", "Freq"], ("Freq", "None", "Some"), (), "categories"),
        (["NA", "ZA", "BW"], ("BW", "NA", "ZA"), (), "categories"),
        (["a", "b", "?"], ("a", "b"), ("?",), "codes"),
        (["NA", "1.5", "2"], (), ("NA",), "codes"),
        (["1.5", "2", "Infinity"], (), ("Infinity",), "codes"),
        (["1.5", "3", "2", "999.9"], (), (), "codes"),
        (["1.5", "3", "2", "-9"], (), (), "codes"),
    ],
)
def test_what_is_taken_for_missing_or_for_a_category_is_said(
    lines: list[str], categories: tuple[str, ...], codes: tuple[str, ...], key: str, tmp_path: Path
) -> None:
    found = drafted(tmp_path, lines * 20)
    own = found.schema.columns["x"]
    assert (own.categories, own.codes, own.guessed) == (categories, codes, (key,))
    assert [(one.column, one.key) for one in found.guesses] == [("x", key)]
    again = check_tables(tmp_path / "t.csv", found.schema, allow=["x"]).findings
    assert any("guess" in one.what and key in one.what and one.column == "x" for one in again)
    settled = parse(to_toml(found.schema).replace(f'guessed = ["{key}"]', ""))
    again = check_tables(tmp_path / "t.csv", settled, allow=["x"]).findings
    assert not any("guess" in one.what for one in again)


BOUNDS = [("<60", 60.0), ("90+", 90.0), (">= 7.5", 7.5), ("≤5", 5.0), ("12", 12.0)]


def test_a_bound_is_a_value_of_its_own_rule(tmp_path: Path) -> None:
    found = drafted(tmp_path, [text for text, _ in BOUNDS] * 10)
    assert found.schema.columns["x"].censored == "bound" and found.schema.columns["x"].guessed == (
        "censored",
    )
    read = read_described(tmp_path / "t.csv", found.schema).checked()
    np.testing.assert_array_equal(read.features[:, 0], [value for _, value in BOUNDS] * 10)
    assert read.changed["x"] == 40
    plain = parse('[columns.x]\nkind = "number"')
    with pytest.raises(DataError, match="hold a bound"):
        read_described(tmp_path / "t.csv", plain).checked()
    gone = parse('[columns.x]\nkind = "number"\ncensored = "missing"\nmissing = "leave-out"')
    assert read_described(tmp_path / "t.csv", gone).checked().kept.sum() == 10
    named = parse('[columns.x]\nkind = "category"\ncategories = ["<60", "90+", ">= 7.5", "≤5", "12"]')
    assert read_described(tmp_path / "t.csv", named).checked().features.shape == (50, 5)
    with pytest.raises(ArgumentError, match="censored"):
        parse('[columns.x]\nkind = "date"\ncensored = "bound"')


@pytest.mark.parametrize(("texts", "unit"), [(["40%", "41 %"], "%"), (["5.4 mmol/l", "6mmol/l"], "mmol/l")])
def test_a_unit_behind_each_number_is_its_unit(texts: list[str], unit: str, tmp_path: Path) -> None:
    found = drafted(tmp_path, texts * 10)
    assert found.schema.columns["x"].unit == unit
    assert np.isfinite(read_described(tmp_path / "t.csv", found.schema).checked().features).all()


def test_a_unit_in_brackets_behind_a_name_is_its_unit(tmp_path: Path) -> None:
    found = drafted(tmp_path, ["5.1", "6.2"] * 20, "glucose [mmol/l]")
    assert found.schema.columns["glucose"].unit == "mmol/l"
    assert found.schema.files["t"].names == {"glucose [mmol/l]": "glucose"}
    assert read_described(tmp_path / "t.csv", found.schema).checked().features.shape == (40, 2)


def test_a_check_shows_what_it_cannot_read_to_the_owner_and_nobody_else(
    invoke: Any, failing: Any, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("x\n" + "1\n" * 40 + "secret\n")
    (tmp_path / "s.toml").write_text('[columns.x]\nkind = "number"')
    words = ("check", tmp_path / "t.csv", "--schema", tmp_path / "s.toml")
    assert "secret" in invoke(*words, exit_code=1).stdout
    assert [one["values"] for one in json.loads(invoke(*words, "--json", exit_code=1).stdout)[:1]] == [
        ["secret"]
    ]
    found = read_described(tmp_path / "t.csv", parse('[columns.x]\nkind = "number"'), private=True)
    assert found.findings and not any(one.values or "secret" in str(one) for one in found.findings)
    assert "secret" not in failing("fit", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "-k", 2)


@pytest.mark.parametrize(("filled", "code"), [(2, 0), (3, 1)])
def test_a_check_fails_where_more_than_a_twentieth_is_changed(
    filled: int, code: int, invoke: Any, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "1.5,2\n" * (40 - filled) + ",3\n" * filled)
    text = '[columns.x]\nkind = "number"\nmissing = 7\n[columns.y]\nkind = "number"\n'
    (tmp_path / "s.toml").write_text(text)
    words = ("check", tmp_path / "t.csv", "--schema", tmp_path / "s.toml")
    invoke(*words, exit_code=code)
    invoke(*words, "--allow", "x")
    invoke(*words, "--allow", "y", exit_code=code)


def test_owners_of_flat_tables_are_told_at_home_what_a_claim_leaves_out(invoke: Any, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,2\n,3\n4,oops\n,\n5,6\n,oops\n")
    said = invoke("check", tmp_path / "t.csv").stdout
    assert "2 of 6 rows are used" in said or "2 of 5 rows are used" in said
    assert "'x'" in said and "'y'" in said and "oops" not in said


def test_a_file_in_another_unit_is_named_with_its_factor(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, factor in (("a", 1.0), ("b", 1.0), ("c", 18.016), ("d", 1.0)):
        rows = (rng.normal(5.5, 0.4, 200) * factor).round(2)
        (tmp_path / f"{name}.csv").write_text("glucose\n" + "\n".join(map(str, rows)))
    schema = parse('[columns.glucose]\nkind = "number"\nshift = 5\nspread = 2')
    found = [one for one in check_tables(tmp_path, schema).findings if "median" in one.what]
    assert [Path(one.file).name for one in found] == ["c.csv"] and "0.05551" in found[0].remedy


def test_a_notebook_shows_drafts_and_checks_as_tables(tmp_path: Path) -> None:
    found = drafted(tmp_path, ["<b>", "None"] * 20)
    checked = check_tables(tmp_path / "t.csv", found.schema)
    for one in (found, checked):
        page = one._repr_html_()
        assert page.startswith("<table>") and "<b>" not in page
    assert checked.usable and checked.rows == 40


ODD = [
    *(
        "",
        "NA",
        "None",
        "?",
        "01",
        "-0",
        "1,5",
        "1.000,5",
        "<5",
        "<",
        "+",
        "5+",
        "999.9",
        "29-02-00",
        "20200101",
    ),
    *(
        "2020-13-45",
        "2020-01-01T10:00:00Z",
        "12:30",
        "nan",
        "inf",
        "1e309",
        "40%",
        "5 mg",
        "\u0661\u0662",
        "x" * 99,
    ),
    *("[a]", '"', "\\", "{", "\x7f", "\u00a0", "=1+1", "TRUE", "Ä"),
]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(st.sampled_from(ODD), min_size=2, max_size=2), max_size=40),
    names=st.lists(
        st.sampled_from(["age", "id", "w [kg]", "(y)", "a=b", "value", "date", "æ"]),
        min_size=2,
        max_size=2,
        unique=True,
    ),
    pivot=st.sampled_from([None, 1, 1930]),
)
def test_a_draft_of_any_table_reads_that_table(
    rows: list[list[str]], names: list[str], pivot: int | None
) -> None:
    """parse(to_toml(draft)) == draft, and it reads all rows to finite numbers, under a claim, too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([names, *rows])
        try:
            found = draft_schema(path, pivot=pivot)
            schema = parse(found.to_toml())
        except (ArgumentError, DataError):  # No feature is left, or commas may mean two things.
            return
        assert schema == found.schema
        assert all(one.key in ("", *schema.columns[one.column].guessed) for one in found.guesses if one.key)
        for private in (False, True):
            assert np.isfinite(read_described(path, schema, private=private).features).all()


@pytest.mark.parametrize(
    "months",
    [
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "januar februar marts april maj juni juli august september oktober november december",
        "Jan. Feb. Mär. Apr. Mai Jun. Jul. Aug. Sep. Okt. Nov. Dez.",
        "January February March April May June July August September October November December",
    ],
)
def test_months_in_full_in_three_languages_are_days(months: str, tmp_path: Path) -> None:
    lines = [f"{one.day}. {months.split()[one.month - 1]} {one.year}" for one in DAYS]
    found = drafted(tmp_path, lines)
    assert days_of(tmp_path, parse(found.to_toml())) == DAYS


@pytest.mark.parametrize(
    ("name", "values", "unit"),
    [
        ("Blood Glucose", [4.5 + i / 20 for i in range(40)], "mmol/l"),
        ("glucose", [81 + i for i in range(40)], "mg/dl"),
        ("Kreatinin", [0.7 + i / 50 for i in range(40)], "mg/dl"),
        ("Hb", [7.1 + i / 20 for i in range(40)], "mmol/l"),
        ("hemoglobin", [11 + i / 10 for i in range(40)], "g/dl"),
        ("Haemoglobin", [110 + i for i in range(40)], "g/l"),
        ("temp", [97 + i / 10 for i in range(40)], "°F"),
        ("weight", [3 + i / 10 for i in range(40)], None),
        ("HbA1c", [5 + i / 10 for i in range(40)], "%"),
        ("increase", [80 + i for i in range(40)], None),
        ("x", [6 + i / 10 for i in range(40)], None),
    ],
)
def test_a_unit_is_guessed_where_the_median_is_usual_in_one_alone(
    name: str, values: list[float], unit: str | None, tmp_path: Path
) -> None:
    found = drafted(tmp_path, [f"{one:.2f}" for one in values], name)
    assert found.schema.columns[name].unit == unit
    assert ("unit" in found.schema.columns[name].guessed) == (unit is not None)
    assert any(one.key == "unit" for one in found.guesses) == (unit is not None)


def test_encoding_and_decimal_commas_are_found_and_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = ["køn;vægt", *(f"{'MK'[i % 2]};{60 + i % 30},{i % 10}" for i in range(40))]
    path.write_text("\n".join(lines), encoding="latin-1")
    found = draft_schema(path)
    assert (found.schema.files["t"].encoding, found.schema.files["t"].decimal) == ("cp1252", ",")
    assert [*found.schema.columns] == ["køn", "vægt"] and len(found.guesses) >= 2
    assert read_described(path, parse(found.to_toml())).checked().features[0, -1] == 60.0
    # A mix of encodings, and commas that may stand between thousands, are errors.
    path.write_bytes("navn\nKøge\n".encode() + "Århus\n".encode("latin-1"))
    with pytest.raises(DataError):
        draft_schema(path)
    path.write_text("x;y\n" + "".join(f"1,{i:03d};{i}\n" for i in range(40)))
    with pytest.raises(DataError):
        draft_schema(path)


@pytest.mark.parametrize(
    ("name", "lines", "key"),
    [
        (
            "seen",
            [f"2020-01-{1 + i:02d}" if i % 2 else f"{1 + i:02d}/01/2020" for i in range(28)] * 2,
            "kind",
        ),
        ("crp", ["below 5" if i % 3 else f"{7 + i % 9}" for i in range(60)], "kind"),
        ("q", ["9" if i % 10 == 0 else f"{1 + i % 5}" for i in range(60)], "codes"),
        ("kg", ["0" if i % 10 == 0 else f"{60 + i % 30}" for i in range(60)], "codes"),
        ("seen", ["0000-00-00" if i % 9 == 0 else f"2020-01-{1 + i % 28:02d}" for i in range(60)], "codes"),
    ],
)
def test_what_may_lose_data_is_said(name: str, lines: list[str], key: str, tmp_path: Path) -> None:
    found = drafted(tmp_path, lines, name)
    assert key in [one.key for one in found.guesses if one.column == name]
    assert key in found.schema.columns[name].guessed


@pytest.mark.parametrize("name", ["paid", "uric acid", "tid", "valid"])
def test_a_name_that_ends_in_id_is_no_ids_name(name: str, tmp_path: Path) -> None:
    assert drafted(tmp_path, [f"{31 * i}" for i in range(60)], name).schema.columns[name].kind == "number"


def test_numbers_with_other_blanks_and_signs_are_read(tmp_path: Path) -> None:
    lines = ["\u22121\u00a0200.5", "2\u202f000", "3 000", "-0"]
    found = drafted(tmp_path, lines * 10, thousands=" ")
    values = read_described(tmp_path / "t.csv", parse(found.to_toml())).checked().features[:4, 0]
    np.testing.assert_array_equal(values, [-1200.5, 2000.0, 3000.0, 0.0])


def test_a_table_without_rows_has_no_draft(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        drafted(tmp_path, [])
