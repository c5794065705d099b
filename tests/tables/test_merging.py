"""Exports of five sites in five dialects become one table, by commands and a line that an analyst writes."""

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from privfed.errors import ArgumentError, DataError
from privfed.tables import check_tables, draft_schema, read_described
from privfed.tables.merging import conversion_of, in_unit, inverse, merge, pairs_of
from privfed.tables.schema import Column, Schema, parse, to_toml

N = 150
WARDS = {
    "aarhus": ("Kirurgi", "Medicin", "Kardiologi"),
    "berlin": ("Chirurgie", "Innere", "Kardiologie"),
    "boston": ("Surgery", "Medicine", "Cardiology"),
    "leeds": ("SURG", "MED", "CARD"),
    "omop": ("surgery", "medicine", "cardiology"),
}
SEX = {
    "aarhus": "MK",
    "berlin": "mw",
    "boston": ["male", "female"],
    "leeds": "12",
    "omop": ["Male", "Female"],
}
Patients = dict[str, Any]


def patients(rng: np.random.Generator) -> Patients:
    kind = rng.integers(0, 3, N)
    ward = np.where(rng.random(N) < 0.9, kind, rng.integers(0, 3, N))
    days = rng.integers(0, 700, N)
    return {
        "kind": kind,
        "age": np.round(np.array([40, 60, 80])[kind] + rng.normal(0, 5, N)),
        "sex": rng.integers(0, 2, N),
        "kg": np.round(np.array([62, 104, 80])[kind] + rng.normal(0, 5, N), 1),
        "mmol": np.round(np.array([5.2, 10.0, 7.0])[kind] + rng.normal(0, 0.5, N), 1),
        "ward": ward,
        "day": [datetime.date(2021, 1, 1) + datetime.timedelta(days=int(one)) for one in days],
    }


def write(folder: Path, site: str, own: Patients) -> None:
    def comma(value: float) -> str:
        return f"{value:.1f}".replace(".", ",")

    lines = []
    for i in range(N):
        age, kg, mmol, day = (own[one][i] for one in ("age", "kg", "mmol", "day"))
        sex, ward = SEX[site][own["sex"][i]], WARDS[site][own["ward"][i]]
        row = {
            "aarhus": f"{1112380000 + i * i};{age:.0f};{sex};{comma(kg)};{comma(mmol)};{ward};{day:%d-%m-%Y}",
            "berlin": f"B{i:05d};{age:.0f};{sex};{comma(kg)};{mmol * 18.016:.0f};{ward};{day:%d.%m.%Y}",
            "boston": f"{i * 7},{age:.0f},{sex},{kg / 0.45359:.1f},{mmol * 18.016:.0f},{ward},{day:%m/%d/%Y}",
            "leeds": f"{9434765919 + 10 * i},{age:.0f},{sex},{kg:.1f},{mmol:.1f},{ward},{day:%d-%b-%Y}",
        }
        values = {"age": age, "sex": sex, "weight": kg, "ward": ward, "admission date": day, "glucose": 99.9}
        long = [*values.items(), ("glucose", mmol)]
        rows = [f"{1000 + i},{name},{one},2023-01-{1 + j:02d}" for j, (name, one) in enumerate(long)]
        lines += rows[::-1] if site == "omop" else [row[site]]
    head = {
        "aarhus": "cpr;alder;køn;vægt [kg];glukose [mmol/l];afdeling;indlagt",
        "berlin": "Patienten-ID;Alter;Geschlecht;Gewicht [kg];Glukose [mg/dl];Abteilung;Aufnahme",
        "boston": "mrn,age,sex,weight [lb],glucose [mg/dl],ward,admitted",
        "leeds": "NHS number,Age,Gender,Weight [kg],Glucose [mmol/l],Ward,Admission date",
        "omop": "person_id,concept_name,value,date",
    }
    text = "\n".join([head[site], *lines])
    (folder / f"{site}.csv").write_text(text, encoding="latin-1" if site == "aarhus" else "utf-8")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Patients]]:
    folder, rng = tmp_path_factory.mktemp("five"), np.random.default_rng(3)
    (folder / "sites").mkdir()
    known = {site: patients(rng) for site in WARDS}
    for site, own in known.items():
        write(folder / "sites", site, own)
    return folder, known


def settled(folder: Path, invoke: Callable[..., Any]) -> Path:
    """Draft, merge, and settle what is left as an analyst does in an editor."""
    given = {"aarhus": ["--encoding", "latin-1", "--decimal", ","], "berlin": ["--decimal", ","]}
    for site in WARDS:
        out = folder / f"{site}.toml"
        said = invoke("schema", "draft", folder / "sites" / f"{site}.csv", *given.get(site, []), "--out", out)
        assert "long" in said.stderr or site != "omop"
    drafts = [folder / f"{site}.toml" for site in WARDS]
    merged = invoke("schema", "merge", *drafts, "--out", folder / "merged.toml", exit_code=1)
    assert "what '1', '2' mean beside 'K', 'M'" in merged.stderr
    with pytest.raises(ArgumentError, match="conflicts"):
        parse((folder / "merged.toml").read_text())
    lines = [one for one in (folder / "merged.toml").read_text().splitlines() if "conflicts" not in one]
    place = lines.index('[files."leeds"]')
    place = next(i for i, one in enumerate(lines) if i > place and one.startswith("values = {"))
    lines[place] = lines[place].replace("values = {", 'values = {"køn" = {"1" = "M", "2" = "K"}, ')
    (folder / "schema.toml").write_text("\n".join(lines))
    return folder / "schema.toml"


def test_five_dialects_become_one_table_and_the_clusters_of_pooled_rows(
    drawn: tuple[Path, dict[str, Patients]], invoke: Callable[..., Any]
) -> None:
    folder, known = drawn
    path = settled(folder, invoke)
    schema = parse(path.read_text())
    assert [*schema.columns] == ["cpr", "alder", "køn", "vægt", "glukose", "afdeling", "indlagt"]
    for site, own in known.items():
        read = read_described(folder / "sites" / f"{site}.csv", schema).checked()
        names = [*schema.features]
        assert len(names) == 9 and read.kept.all()
        column = dict(zip(names, read.features.T, strict=True))
        np.testing.assert_array_equal(column["alder"], own["age"])
        np.testing.assert_allclose(column["vægt"], own["kg"], atol=0.06)
        np.testing.assert_allclose(column["glukose"], own["mmol"], atol=0.06)
        np.testing.assert_array_equal(column["køn=M"] > 0, own["sex"] == 0)
        np.testing.assert_array_equal(column["afdeling=Medicin"] > 0, own["ward"] == 1)
        days = [(one - datetime.date(2000, 1, 1)).days for one in own["day"]]
        np.testing.assert_array_equal(column["indlagt"], days)
    invoke("check", folder / "sites", "--schema", path)
    words = ("--schema", path, "-k", 3, "--scale", "standard", "--profile", "--quiet")
    invoke("fit", folder / "sites", *words, "--out", folder / "run")
    invoke("predict", folder / "run", folder / "sites", "--out-folder", folder / "labels")
    found, kinds, pooled = [], [], []
    for site, own in known.items():
        found.append(pl.read_csv(folder / "labels" / f"{site}.csv")["cluster"].to_numpy())
        kinds.append(own["kind"])
        numbers = [own["age"], own["kg"], own["mmol"], [one.toordinal() for one in own["day"]]]
        pooled.append(np.column_stack([*numbers, np.eye(2)[own["sex"]], np.eye(3)[own["ward"]]]))
    rows = np.concatenate(pooled)
    scaled = StandardScaler().fit_transform(rows)
    for block in ([4, 5], [6, 7, 8]):  # As `privfed` scales categories: their variances add up to 1.
        scaled[:, block] = rows[:, block] / np.sqrt(rows[:, block].var(axis=0).sum())
    by_hand = KMeans(3, n_init=10, random_state=0).fit_predict(scaled)
    truth = np.concatenate(kinds)
    assert adjusted_rand_score(truth, np.concatenate(found)) >= 0.98 * adjusted_rand_score(truth, by_hand)


@pytest.mark.parametrize(
    ("own", "known", "pairs"),
    [
        (["K", "M"], ["male", "female"], {"K": "female", "M": "male"}),
        (["Kirurgi", "SURG"], ["surgery", "heart"], {"Kirurgi": "surgery", "SURG": "surgery"}),
        (["Kirurgi"], ["surgery", "heart"], {"Kirurgi": "surgery"}),
        (["Brüche", "bruche"], ["BRUCHE "], {"Brüche": "BRUCHE ", "bruche": "BRUCHE "}),
        (["hypothyroidism"], ["hyperthyroidism"], {}),
        (["hyperthyroidsm", "x"], ["hyperthyroidism"], {"hyperthyroidsm": "hyperthyroidism"}),
        (["hypotension", "hypertension"], ["hypertension"], {}),
        (["1", "2"], ["10", "20"], {}),
        (["250.1"], ["250.2"], {}),
        (["ja", "nej"], ["no", "yes"], {"ja": "yes", "nej": "no"}),
        (["A", "B"], ["Alpha", "Amber", "Beta"], {"B": "Beta"}),
        ([""], ["", "-"], {}),
        (["+", "-"], ["positive", "negative"], {}),
    ],
)
def test_only_texts_that_mean_one_are_pairs(own: list[str], known: list[str], pairs: dict[str, str]) -> None:
    assert pairs_of(own, known) == pairs


def test_two_columns_of_a_site_are_never_one() -> None:
    assert pairs_of(["Weight", "weight"], ["weight"], names=True) == {}
    assert pairs_of(["Weight", "gewicht"], ["vægt"], names=True) == {"Weight": "vægt"}


def test_factors_of_units_go_both_ways_and_depend_on_what_is_measured() -> None:
    assert conversion_of("glucose", "mg/dl", "mmol/L") == pytest.approx((1 / 18.016, 0.0))
    assert conversion_of("Cholesterin", "mmol/l", "mg/dl") == pytest.approx((38.67, 0.0))
    assert conversion_of("weight", "kg", "lb") == pytest.approx((2.2046, 0.0), rel=1e-4)
    assert conversion_of("sodium", "mg/dl", "mmol/l") is None
    assert conversion_of("x", "kg", "KG") == (1.0, 0.0)


@pytest.mark.parametrize(
    "spelling", ["°F", "F", "° F", "degF", "deg F", "degrees F", "Fahrenheit", "fahrenheit"]
)
def test_degrees_have_an_offset_in_every_spelling(spelling: str) -> None:
    factor, offset = conversion_of("temperature", spelling, "Celsius") or (0.0, 0.0)
    assert (factor * 212 + offset, factor * 32 + offset) == pytest.approx((100.0, 0.0))
    factor, offset = conversion_of("temp", "°C", spelling) or (0.0, 0.0)
    assert (factor * 37 + offset, factor * -40 + offset) == pytest.approx((98.6, -40.0))
    assert conversion_of("x", spelling, "°C") is None


def test_conversions_of_others_than_degrees() -> None:
    factor, offset = conversion_of("HbA1c", "%", "mmol/mol") or (0.0, 0.0)
    assert factor * 7.0 + offset == pytest.approx(53.0, abs=0.1)
    assert conversion_of("body temp", "K", "°C") == (1.0, -273.15)
    assert inverse((1.0, -273.15)) == (1.0, 273.15)


def test_a_column_in_another_unit_reads_the_same(tmp_path: Path) -> None:
    text = (
        '[columns.temp]\nkind = "number"\nunit = "F"\nlow = 86\nhigh = 113\nmissing = 98.6\nshift = 90.0\n'
        'spread = 9.0\nunits = {"K" = [1.8, -459.67]}\n[files.k]\nunits = {temp = "K"}\n'
    )
    schema = parse(text)
    own = in_unit(schema.columns["temp"], "C", (5 / 9, -160 / 9))
    assert (own.low, own.high, own.missing) == pytest.approx((30.0, 45.0, 37.0))
    assert own.conversion("K") == pytest.approx((1.0, -273.15)) and own.unit == "C"
    other = parse(to_toml(Schema(columns={"temp": own}, files=schema.files)))
    (tmp_path / "k.csv").write_text("temp,x\n310.15,1\n,2\n273,3\n310,4\n")
    one, two = (read_described(tmp_path / "k.csv", each) for each in (schema, other))
    np.testing.assert_allclose(one.features, two.features, atol=1e-12)


def test_sites_in_two_units_are_merged_whichever_is_first(tmp_path: Path) -> None:
    cells = {"us": "98.6\n100.4", "dk": "37\n38", "uk": "310.15\n311.15"}
    given: dict[str, dict[str, Any]] = {
        "us": {"unit": "°F", "low": 86.0, "high": 113.0},
        "dk": {"unit": "°C", "low": 30.0, "high": 45.0},
        "uk": {"unit": "K", "units": {"°F": (5 / 9, 255.372)}, "low": 303.15, "high": 318.15},
    }
    for site, own in cells.items():
        (tmp_path / f"{site}.csv").write_text(f"temp\n{own}\n")
    for order in (("us", "dk", "uk"), ("dk", "uk", "us"), ("uk", "us", "dk")):
        drafts = [(site, Schema(columns={"temp": Column(kind="number", **given[site])})) for site in order]
        whole, said = merge(drafts)
        merged = whole.columns["temp"]
        assert (merged.unit, merged.guessed) == (given[order[0]]["unit"], ("units",)) and len(said) == 2
        whole = parse(to_toml(whole))
        assert whole.columns["temp"].range == pytest.approx(
            (given[order[0]]["low"], given[order[0]]["high"]), abs=0.01
        )
        read = [read_described(tmp_path / f"{site}.csv", whole).checked().features for site in order]
        np.testing.assert_allclose(read[1:], [read[0]] * 2, atol=0.01)


@pytest.mark.parametrize("wrong", ["[1.0]", "[0.0, 1.0]", "[1.0, inf]", "[1.0, 2.0, 3.0]", '"1.8"', "0.0"])
def test_a_wrong_conversion_is_refused(wrong: str) -> None:
    with pytest.raises(ArgumentError, match="units"):
        parse(f'[columns.temp]\nkind = "number"\nunits = {{"°F" = {wrong}}}\n')


def test_check_proposes_the_conversion_of_a_file_in_another_unit(tmp_path: Path) -> None:
    schema = parse('[columns.temp]\nkind = "number"\nunit = "°C"\n[columns."HbA1c"]\nkind = "number"\n')
    for i, site in enumerate(("a", "b", "c", "d")):
        lines = [f"{36.5 + j / 10 + i / 50},{40 + j + i}" for j in range(10)]
        (tmp_path / f"{site}.csv").write_text("\n".join(["temp,HbA1c", *lines]))
    lines = [f"{97.7 + j / 6},{(40 + j) * 0.09148 + 2.152}" for j in range(10)]
    (tmp_path / "us.csv").write_text("\n".join(["temp,HbA1c", *lines]))
    found = [one for one in check_tables(tmp_path, schema).findings if "median" in one.what]
    assert [(Path(one.file).name, one.column) for one in found] == [("us.csv", "temp"), ("us.csv", "HbA1c")]
    assert "°F to °C" in found[0].what and "[0.5556, -17.78]" in found[0].remedy
    assert "% to mmol/mol" in found[1].what and "[10.93, -23.5]" in found[1].remedy


def test_a_unit_that_one_site_has_alone_is_said() -> None:
    drafts = [("a", column("number")), ("b", column("number", unit="kg")), ("c", column("number"))]
    whole, said = merge(drafts)
    assert (whole.columns["x"].unit, whole.columns["x"].guessed) == ("kg", ("unit",))
    assert len(said) == 2 and all("kg" in one for one in said)


@pytest.mark.parametrize(
    ("own", "known"),
    [
        ("admit_date", "Indlagt"),
        ("Date of Admission", "Aufnahmedatum"),
        ("dept", "Afdeling"),
        ("Patient age", "Alter"),
    ],
)
def test_names_are_one_but_for_words_that_say_nothing(own: str, known: str) -> None:
    assert pairs_of([own], [known], names=True) == {own: known}
    assert pairs_of(["date"], ["Indlagt"], names=True) == {}


def test_long_lists_of_categories_are_compared_in_little_time() -> None:
    assert pairs_of([f"a{i:03d}" for i in range(300)], [f"b{i:03d}" for i in range(300)]) == {}


def column(kind: Any, **given: Any) -> Schema:
    return Schema(columns={"x": Column(kind=kind, **given), "y": Column(kind="number")})


@pytest.mark.parametrize(
    ("a", "b", "kind", "conflicts"),
    [
        (column("number"), column("id"), "id", 0),
        (column("id"), column("category", categories=("a",)), "id", 0),
        (column("number"), column("category", categories=("0", "1")), "number", 0),
        (column("number"), column("category", categories=("no", "yes")), "number", 1),
        (column("date"), column("number"), "date", 1),
        (column("number", unit="kg"), column("number"), "number", 0),
        (column("number", unit="kg"), column("number", unit="s"), "number", 1),
        (column("number", low=0.0, high=2.0), column("number", low=-1.0, high=1.0), "number", 0),
        (column("number", low=0.0, high=2.0), column("number"), "number", 2),
        (column("number", missing=3.0), column("number", missing="leave-out"), "number", 1),
        (column("date", pivot=1930), column("date"), "date", 0),
        (column("number", censored="bound"), column("number"), "number", 0),
    ],
)
def test_what_no_rule_decides_is_a_conflict_that_stops_a_fit(
    a: Schema, b: Schema, kind: str, conflicts: int
) -> None:
    for first, second in ((a, b), (b, a)):
        whole = merge([("one", first), ("two", second)])[0]
        found = whole.columns["x"]
        assert len(found.conflicts) == conflicts
        assert conflicts or found.kind == kind
        if conflicts:
            with pytest.raises(ArgumentError, match="conflicts"):
                parse(to_toml(whole))
        else:
            assert parse(to_toml(whole)) == whole


def test_values_of_a_file_are_the_categories_that_they_mean(tmp_path: Path) -> None:
    text = '[columns.sex]\nkind = "category"\ncategories = ["female", "male"]\n'
    text += 'codes = ["?"]\nmissing = "leave-out"\n'
    schema = parse(text + '[files.t.values]\nsex = {"1" = "male", K = "female", "9" = "?"}')
    (tmp_path / "t.csv").write_text("sex,z\n1,0\nK,0\nmale,0\n9,0\n")
    read = read_described(tmp_path / "t.csv", schema).checked()
    np.testing.assert_array_equal(read.features[:, 1] > 0, [True, False, True, False])
    np.testing.assert_array_equal(read.kept, [True, True, True, False])
    (tmp_path / "t.csv").write_text("sex,z\n2,0\n")
    with pytest.raises(DataError, match="category that the schema does not name"):
        read_described(tmp_path / "t.csv", schema).checked()
    for wrong in ('sex = {a = "other"}', 'age = {a = "b"}'):
        with pytest.raises(ArgumentError, match="mean no category"):
            parse(text + f"[files.t.values]\n{wrong}")


LONG = """
[columns.who]
kind = "id"
[columns.age]
kind = "number"
[columns.hb]
kind = "number"
missing = "leave-out"
[files.t]
names = {person_id = "who", haemoglobin = "hb"}
long = {id = "person_id", name = "concept", value = "value", date = "date"}
"""


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize(("take", "hb"), [("", 7.0), (', take = "first"', 9.0)])
def test_a_long_table_has_one_row_for_each_person(
    take: str, hb: float, private: bool, tmp_path: Path
) -> None:
    lines = ["2,age,50,2020-01-01", "1,hb,7,2020-03-01", "1,haemoglobin,9,2020-01-01", "1,age,40,2020-01-01"]
    odd = [
        ",age,3,2020-01-01",
        "3,,3,2020-01-01",
        "1,who,4,2020-01-01",
        "1,person_id,4,2020-01-01",
        "1,hb,,2021-01-01",
    ]
    (tmp_path / "t.csv").write_text("\n".join(["person_id,concept,value,date", *lines, *odd]) + "\n")
    schema = parse(LONG.replace(', date = "date"', ', date = "date"' + take))
    read = read_described(tmp_path / "t.csv", schema, private=private)
    assert read.frame["who"].to_list() == ["1", "2"]
    np.testing.assert_array_equal(read.kept, [True, False])
    np.testing.assert_array_equal(read.features[0], [40.0, hb])


def test_a_long_table_without_some_measurement_lacks_values_and_no_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("person_id,concept,value,date\n1,age,50,2020-01-01\n")
    read = read_described(tmp_path / "t.csv", parse(LONG))
    assert not read.kept.any()
    with pytest.raises(DataError, match="no column 'date'"):
        (tmp_path / "t.csv").write_text("person_id,concept,value\n1,age,50\n")
        read_described(tmp_path / "t.csv", parse(LONG))
    with pytest.raises(ArgumentError, match="long"):
        parse(LONG.replace('value = "value", ', ""))


def test_a_file_of_two_measurements_is_drafted_long_only_if_persons_repeat(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("person_id,test,value\n" + "".join(f"{i // 2},{'ab'[i % 2]},{i}.5\n" for i in range(60)))
    assert [*draft_schema(path).schema.columns] == ["person_id", "a", "b"]
    path.write_text("person_id,test,value\n" + "".join(f"{i},{'ab'[i % 2]},{i}.5\n" for i in range(60)))
    assert draft_schema(path).schema.files["t"].long == {}
