"""`privfed schema fill` and `scale`: gaps and scales are what a pipeline on the pooled rows learns."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler

import privfed
from privfed import DWFKMeans
from privfed.tables import load_described, read_described, read_schema
from privfed.tables.commands import learning
from privfed.tables.described_clients import DescribedFile, scaled, unscaled
from tests.nodes.elsewhere import Elsewhere

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


@pytest.mark.parametrize("command", ["fill", "scale"])
def test_what_exact_sums_have_told_is_in_no_claim(
    command: str, mixed: Any, invoke: Any, failing: Any, tmp_path: Path
) -> None:
    """Whoever fits under privacy by it would claim an epsilon that these sums are not in."""
    folder, written, _ = mixed
    ranged = MIXED.replace('"number"', '"number"\nlow = 0\nhigh = 200000\noutside = "clip"\nmissing = 50')
    written.write_text(ranged.replace('"category"', '"category"\nmissing = "eye"'))
    claim = ("--epsilon", 2, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    fit = ("fit", folder, "--algorithm", "dp", "-k", 2, *claim, "--clients", "a,b,c", "--max-rows", 200)
    read_schema(written).check_private()
    learnt, merged = tmp_path / "learnt.toml", tmp_path / "merged.toml"
    which = ("--fill", "age") if command == "fill" else ()
    invoke("schema", command, folder, "--schema", written, "--out", learnt, *which)
    invoke("schema", "merge", learnt, learnt, "--out", merged)
    for schema in (learnt, merged):
        said = failing(*fit, "--schema", schema, "--out", tmp_path / "after")
        assert "not what rows or exact sums gave" in said and "declare`), to 'age'" in said
    invoke("fit", folder, "--schema", merged, "-k", 2, "--out", tmp_path / "open", "--quiet", "--no-picture")


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


MIXED = """
[columns.who]
kind = "id"
[columns.age]
kind = "number"
[columns.cost]
kind = "number"
[columns.ward]
kind = "category"
categories = ["ear", "eye", "heart"]
[files.b]
decimal = ","
separator = ";"
"""


@pytest.fixture
def mixed(tmp_path: Path) -> tuple[Path, Path, pl.DataFrame]:
    """Three exports with gaps of two numbers and a category, a schema, and their pooled rows."""
    rng, folder, pooled = np.random.default_rng(5), tmp_path / "clients", []
    folder.mkdir()
    for name, n in (("a", 90), ("b", 60), ("c", 1)):
        kinds = rng.integers(0, 3, n)
        age, cost = (
            np.array([[30, 2e4], [50, 9e4], [70, 4e4]])[kinds] + rng.normal(size=(n, 2)) * [5, 4e3]
        ).T
        table = {
            "age": age.tolist(),
            "cost": cost.tolist(),
            "ward": np.array(["ear", "eye", "heart"])[kinds].tolist(),
        }
        own = pl.DataFrame(
            {
                key: [
                    None if n > 1 and gap else one
                    for one, gap in zip(values, rng.random(n) < 0.05, strict=True)
                ]
                for key, values in table.items()
            }
        )
        pooled.append(own)
        text = own.with_columns(pl.Series("who", [f"{name}{i}" for i in range(n)])).select(
            *(["who", "age", "cost", "ward"] if name == "a" else ["ward", "cost", "age", "who"])
        )
        if name == "b":
            numbers = pl.col("age", "cost").cast(pl.String).str.replace(".", ",", literal=True)
            text.with_columns(numbers).write_csv(folder / "b.csv", separator=";")
        else:
            text.write_csv(folder / f"{name}.csv")
    (tmp_path / "schema.toml").write_text(MIXED)
    return folder, tmp_path / "schema.toml", pl.concat(pooled)


def learnt(invoke: Any, folder: Path, schema: Path, *words: object) -> Path:
    """Fill and scale a schema, and return its file."""
    filled, scaled = schema.parent / "filled.toml", schema.parent / "scaled.toml"
    invoke("schema", "fill", folder, "--schema", schema, "--out", filled)
    invoke("schema", "scale", folder, "--schema", filled, "--out", scaled, *words)
    return scaled


def theirs(rows: pl.DataFrame, scaler: Any) -> tuple[Any, np.ndarray]:
    """Return scikit-learn's pipeline on the pooled rows, and its table; a category has variance 1."""
    numbers = make_pipeline(SimpleImputer(), scaler)
    names = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        OneHotEncoder(categories=[["ear", "eye", "heart"]], sparse_output=False),
    )
    table = np.array([[np.nan if one is None else one for one in row] for row in rows.rows()], dtype=object)
    both = make_column_transformer((numbers, [0, 1]), (names, [2]))
    found = both.fit_transform(np.where(rows.select(pl.all().is_null()).to_numpy(), np.nan, table))
    found[:, 2:] /= np.sqrt(found[:, 2:].var(axis=0).sum())
    return both, found


@pytest.mark.parametrize("elsewhere", [False, True])
def test_fill_one_hot_scale_and_fit_are_the_pipeline_on_pooled_rows(
    mixed: Any, invoke: Any, tmp_path: Path, elsewhere: bool
) -> None:
    folder, written, rows = mixed
    schema = read_schema(learnt(invoke, folder, written))
    _, pooled = theirs(rows, StandardScaler())
    start = pooled[[0, 1, 2]]
    words: dict[str, Any] = {"local_iter": 1, "init": start, "tol": 0.0, "max_iter": 20}
    expected = KMeans(3, init=start, n_init=1, tol=0, max_iter=20, algorithm="lloyd").fit(pooled)
    if elsewhere:
        # As a node reads its own file.
        tables = [DescribedFile(path=folder / f"{name}.csv", schema=schema).read().table for name in "abc"]
        model = DWFKMeans(3, engine=Elsewhere(tmp_path / "nodes", tables), **words).fit()
        labels = model.predict(np.concatenate(tables))
    else:
        model = DWFKMeans(3, **words).fit(load_described(folder, schema))
        labels = np.concatenate(model.labels_)
    np.testing.assert_allclose(model.cluster_centers_, expected.cluster_centers_, rtol=0, atol=1e-9)
    assert labels.tolist() == expected.labels_.tolist()


def test_quartiles_are_those_of_the_pipeline_up_to_a_bin(mixed: Any, invoke: Any) -> None:
    folder, written, rows = mixed
    schema = read_schema(learnt(invoke, folder, written, "--scale", "robust"))
    both, _ = theirs(rows, RobustScaler())
    scaler = both.transformers_[0][1][1]
    for place, name in enumerate(("age", "cost")):
        values = rows[name].drop_nulls().to_numpy()
        # Bins are 64 between public edges, which may lie as far apart as powers of two.
        width = 4.0 * np.abs(values).max() / 64
        assert abs(schema.columns[name].shift - scaler.center_[place]) <= width
        assert abs(schema.columns[name].spread - scaler.scale_[place]) <= 2 * width


def test_a_scaled_schema_gives_what_the_option_gives_in_the_columns_units(mixed: Any, invoke: Any) -> None:
    folder, written, _ = mixed
    scaled, home = learnt(invoke, folder, written), written.parent
    words = ("-k", 3, "--quiet", "--profile")
    invoke(
        "fit", folder, "--schema", home / "filled.toml", "--scale", "standard", *words, "--out", home / "one"
    )
    invoke("fit", folder, "--schema", scaled, *words, "--out", home / "two")
    one, two = (pl.read_csv(home / name / "centroids-in-units.csv") for name in ("one", "two"))
    assert one.columns == two.columns
    np.testing.assert_allclose(one.to_numpy(), two.to_numpy(), rtol=1e-7, atol=1e-9)
    assert "age" in invoke("profile", home / "two").stdout
    ids = [invoke("predict", home / name, folder / "a.csv").stdout for name in ("one", "two")]
    assert ids[0] == ids[1] and ids[0].startswith("who,cluster\na0,")
    assert privfed.load(home / "two").scaling_ is None


def test_under_privacy_scales_are_paid_and_the_domain_follows(mixed: Any, invoke: Any, failing: Any) -> None:
    folder, written, _ = mixed
    ranged = MIXED.replace('"number"', '"number"\nlow = 0\nhigh = 200000\noutside = "clip"\nmissing = 50')
    written.write_text(ranged.replace('"category"', '"category"\nmissing = "eye"'))
    claim = ("--epsilon", 2, "--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
    out = written.parent / "scaled.toml"
    words = ("schema", "scale", folder, "--schema", written)
    said = invoke(*words, "--out", out, *claim, "--clients", "a,b,c", "--max-rows", 200).stdout
    assert "differential privacy: epsilon 2" in said
    schema = read_schema(out)
    schema.check_private()
    ends, own = schema.domain(), schema.columns["cost"]
    assert ends is not None and own.spread != 1.0
    assert (ends[0][1], ends[1][1]) == ((0 - own.shift) / own.spread, (200000 - own.shift) / own.spread)
    for name in "abc":
        rows = read_described(folder / f"{name}.csv", schema, private=True).features
        assert (rows >= ends[0]).all() and (rows <= ends[1]).all()
        # Groups of rows keep units, and are scaled when they are answered from.
        units = read_described(folder / f"{name}.csv", unscaled(schema), private=True).features
        np.testing.assert_allclose(scaled(schema, schema.features, units), rows, rtol=1e-15)
        some_of = schema.features[1:][::-1]
        np.testing.assert_allclose(
            scaled(schema, some_of, units[:, 1:][:, ::-1]), rows[:, 1:][:, ::-1], rtol=1e-15
        )
    written.write_text('scale = "range"\n' + ranged)
    assert 'the schema says scale = "range"' in failing(*words, "--out", out)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("spread = 0.0", "has an infinite shift, or a spread that is not above 0"),
        ("shift = inf", "has an infinite shift, or a spread that is not above 0"),
        ("shift = 1\nlow = 0\nhigh = 9", "has shift and spread, and scale is"),
    ],
)
def test_a_scale_that_is_none_is_an_error(mixed: Any, failing: Any, wrong: str, said: str) -> None:
    path = mixed[0] / "a.csv"
    scale = "range" if "low" in wrong else "none"
    mixed[1].write_text(f'scale = "{scale}"\n[columns.age]\nkind = "number"\n{wrong}\n')
    assert said in failing("check", path, "--schema", mixed[1])


CODED = """
[columns.who]
kind = "id"
[columns.age]
kind = "number"
low = 0
high = 120
missing = "leave-out"
outside = "clip"
[columns.code]
kind = "category"
categories = [{codes}]
missing = "{missing}"
[files.b.values]
code = {{one = "c1", nine = "c9", never = "c600"}}
"""
CLAIM = ("--delta", "1e-6", "--neighbours", "add-remove", "--max-rows", "9999", "--clients", "a,b,c")


def coded(folder: Path, missing: str) -> Path:
    """Write clients of whom many have two codes of 800, one row has another, and some have none."""
    (folder / "clients").mkdir()
    for name in "abc":
        rows = [f"{name}{i // 3},{20 + i % 50},c{1 + (i % 4 == 0)}" for i in range(1200)]
        rows += {"a": ["a0,30,c600"], "b": ["b0,30,nine"] * 3 + ["b1,,c600"], "c": ["c0,40,"]}[name]
        if name == "b":
            rows = [row.replace(",c1", ",one") for row in rows]
        (folder / "clients" / f"{name}.csv").write_text("\n".join(["who,age,code", *rows]) + "\n")
    names = [*(f"c{i}" for i in range(800)), *(["other"] if missing == "other" else [])]
    path = folder / "codes.toml"
    path.write_text(CODED.format(codes=", ".join(f'"{one}"' for one in names), missing=missing))
    return path


@pytest.mark.parametrize("missing", ["other", "leave-out"])
def test_without_a_claim_all_categories_that_rows_have_are_kept(
    missing: str, invoke: Any, tmp_path: Path
) -> None:
    schema, out = coded(tmp_path, missing), tmp_path / "kept.toml"
    given = ("--schema", schema, "--column", "code", "--out", out)
    said = invoke("schema", "categories", tmp_path / "clients", *given).stdout
    found = read_schema(out)
    assert found.columns["code"].categories == ("c1", "c2", "c9", "c600", *(["other"] * (missing == "other")))
    assert found.columns["code"].provenance == "exact"
    assert "c1: 2700 rows" in said and "c9: 3 rows" in said and "c600: 1 rows" in said
    # Rows are read as before.
    before, after = (load_described(tmp_path / "clients", one) for one in (read_schema(schema), found))
    for one, other in zip(before.arrays, after.arrays, strict=True):
        places = [before.columns.index(name) for name in after.columns]
        np.testing.assert_array_equal(one[:, places], other)


@pytest.mark.parametrize(
    "unit", [("--unit", "record"), ("--unit", "user", "--rows-per-user", "2", "--id", "who")]
)
def test_under_a_claim_categories_of_few_rows_are_dropped(unit: Any, invoke: Any, tmp_path: Path) -> None:
    schema, out = coded(tmp_path, "other"), tmp_path / "kept.toml"
    given = (tmp_path / "clients", "--schema", schema, "--column", "code", *CLAIM, *unit, "--epsilon", "1")
    said = invoke("schema", "categories", *given, "--out", out).stdout
    found = read_schema(out)
    kept = found.columns["code"].categories
    # A tenth of a false category is expected; two of them are left out by less than 1e-100.
    assert {"c1", "c2", "other"} <= {*kept} and len(kept) < 11
    assert found.columns["code"].provenance == "claimed" and "epsilon 1" in said
    fit = ("-k", "2", "--algorithm", "dp", "--no-picture", "--clients", "a,b,c", "--max-rows", "9999")
    claim = ("--epsilon", "1", "--delta", "1e-6", "--neighbours", "add-remove", *unit)
    invoke("fit", tmp_path / "clients", "--schema", out, *fit, *claim, "--out", tmp_path / "run")
    header = (tmp_path / "run" / "centroids.csv").read_text().splitlines()[0]
    assert [one for one in header.split(",") if "=" in one] == [f"code={one}" for one in kept]
    # Those that are left are missing values also where errors are: every row has a cluster, but for one
    # without an age.
    invoke("predict", tmp_path / "run", tmp_path / "clients" / "b.csv", "--out", tmp_path / "labels.csv")
    labels = pl.read_csv(tmp_path / "labels.csv")["cluster"]
    assert (labels == -1).sum() == 1 and len(labels) == 1204


def test_categories_that_differ_in_case_alone_are_kept_and_dropped_by_themselves(
    invoke: Any, tmp_path: Path
) -> None:
    rows, names = ["who,ward", *["p,a", "q,ß", "r,b"] * 9], ["A", "a", "ß", "SS", "B", "STRAßE", "b"]
    data, schema, out = (tmp_path / one for one in ("t.csv", "ward.toml", "kept.toml"))
    data.write_text("\n".join([*rows, ""]))
    listed = f"categories = {json.dumps(names, ensure_ascii=False)}"
    schema.write_text(f'[columns.ward]\nkind = "category"\n{listed}\nmissing = "leave-out"\n')
    given = ("--group", "who", "--schema", schema, "--column", "ward", "--out", out)
    invoke("schema", "categories", data, *given)
    assert read_schema(out).columns["ward"].categories == ("a", "ß", "b")
    data.write_text("\n".join([*rows, "p,A", "q,STRAßE", "r,straße", "r,SS", ""]))
    tables = load_described(data, read_schema(out), group="who")
    assert sum(map(len, tables.arrays)) == 27


@pytest.mark.parametrize("command", ["fill", "scale"])
def test_people_are_protected_while_a_schema_is_learnt(command: str, invoke: Any, tmp_path: Path) -> None:
    schema, out = coded(tmp_path, "other"), tmp_path / "learnt.toml"
    unit = ("--unit", "user", "--rows-per-user", "2", "--id", "who", "--epsilon", "5")
    which = ("--fill", "age") if command == "fill" else ()
    words = (tmp_path / "clients", "--schema", schema, "--out", out, *CLAIM, *unit, *which)
    assert "one user" in invoke("schema", command, *words).stdout
    age = read_schema(out).columns["age"]
    assert age.provenance == "claimed" and (age.missing if command == "fill" else age.shift) != 0.0


def test_a_private_list_is_of_declared_categories_of_a_column(
    invoke: Any, failing: Any, tmp_path: Path
) -> None:
    schema, out = coded(tmp_path, "leave-out"), tmp_path / "kept.toml"
    words = ("schema", "categories", tmp_path / "clients", "--schema", schema, "--out", out)
    assert "'age' is no column of categories; those are code" in failing(*words, "--column", "age")
    claim = ("--column", "code", *CLAIM, "--unit", "record")
    schema.write_text(
        schema.read_text().replace('kind = "category"', 'kind = "category"\nprovenance = "exact"')
    )
    assert "schema declare" in failing(*words, *claim, "--epsilon", "1")
    assert not out.exists()


def test_a_list_of_no_category_is_not_written_and_says_its_claim(
    failing: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Six deviations: by the usual threshold one of ten lists would have a category of noise.
    monkeypatch.setattr(learning, "FALSE_CATEGORIES", 1e-9)
    data, schema, out = (tmp_path / one for one in ("t.csv", "ward.toml", "kept.toml"))
    data.write_text("who,ward\n" + "a,heart\nb,lung\nc,lung\n")
    schema.write_text(
        '[columns.ward]\nkind = "category"\ncategories = ["heart", "lung"]\nmissing = "leave-out"\n'
    )
    words = (
        "schema",
        "categories",
        data,
        "--group",
        "who",
        "--schema",
        schema,
        "--column",
        "ward",
        "--out",
        out,
    )
    said = failing(*words, *CLAIM, "--unit", "record", "--epsilon", "0.01")
    assert "epsilon 0.01" in said and not out.exists()
