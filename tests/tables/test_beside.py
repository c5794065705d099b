"""Columns that no cluster was found by: numbers of pooled rows, from one sum, with noise or without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.sparse import csr_array

from privfed import Box, ClientPolicy, DWFKMeans, Privacy, PrivacyBudget
from privfed.core.asking.question import ClientData
from privfed.core.values.domain import Ranges
from privfed.core.values.origin import Origin, released
from privfed.data.own import OwnFile
from privfed.errors import ArgumentError, DataError, PrivacyError
from privfed.tables import columns_by_cluster
from privfed.tables.beside import ClusterColumns, ClusterTimes
from privfed.tables.outcomes import labels_of
from tests.cli.wide import run
from tests.raised import parameter_refused
from tests.some import some

CENTERS = np.array([[40.0, 22.0], [70.0, 30.0]])
EDGES = [np.linspace(0, 60, 61), [-0.5, 0.5, 1.5]]


def drawn(n: int = 1200, seed: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return the cluster of each row, and rows: two columns that place it, a number with gaps, a share."""
    rng = np.random.default_rng(seed)
    own = rng.integers(2, size=n)
    number = rng.gamma(2.0, np.array([3.0, 8.0])[own])
    number[rng.random(n) < np.array([0.1, 0.3])[own]] = np.nan
    share = (rng.random(n) < np.array([0.2, 0.7])[own]).astype(float)
    return own, np.column_stack([CENTERS[own] + rng.normal(size=(n, 2)), np.minimum(number, 60.0), share])


@pytest.mark.parametrize("protocol", ["plain", "masked"])
def test_they_are_those_of_pooled_rows(protocol: str) -> None:
    own, rows = drawn()
    found = columns_by_cluster(np.array_split(rows, 4), CENTERS, edges=EDGES, protocol=protocol)
    assert found.missing is not None and found.quartiles is not None
    for k in range(2):
        mine = rows[own == k, 2:]
        assert found.sizes[k] == len(mine)
        np.testing.assert_allclose(found.missing[k], np.isnan(mine).mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(found.means[k], np.nanmean(mine, axis=0), atol=1e-4)
        np.testing.assert_allclose(found.stds[k], np.nanstd(mine, axis=0), atol=1e-3)
        three = np.nanquantile(mine[:, 0], [0.25, 0.5, 0.75])
        np.testing.assert_allclose(found.quartiles[:, k, 0], three, atol=1.0)
    np.testing.assert_allclose(found.mean, np.nanmean(rows[:, 2:], axis=0), atol=1e-4)
    np.testing.assert_allclose(found.std, np.nanstd(rows[:, 2:], axis=0), atol=1e-3)


def test_far_values_stand_at_the_last_edge_and_a_cluster_without_values_has_none() -> None:
    rows = np.array([[40.0, 22.0, 1e6], [40.0, 22.0, 10.0], [70.0, 30.0, np.nan], [70.0, 30.0, np.nan]])
    far = np.vstack([CENTERS, [[900.0, 900.0]]])
    found = columns_by_cluster([rows, rows], far, edges=EDGES[:1], protocol="plain")
    assert found.means[0, 0] == pytest.approx(35.0, abs=1e-4) and found.sizes.tolist() == [4, 4, 0]
    assert np.isnan([found.means[1, 0], found.means[2, 0], found.stds[1, 0]]).all()
    assert found.missing is not None and found.missing[:2, 0].tolist() == [0.0, 1.0]
    assert found.quartiles is not None and np.isnan(found.quartiles[:, 1:]).all()


def test_groups_have_no_missing_values_and_what_is_not_counted_is_refused() -> None:
    _, rows = drawn(400)
    parts = np.array_split(rows, 4)
    words: dict[str, Any] = {"edges": EDGES, "policy": ClientPolicy(group_size=5)}
    with parameter_refused("gaps"):
        columns_by_cluster(parts, CENTERS, **words)
    with pytest.raises(DataError):
        columns_by_cluster(parts, CENTERS, edges=EDGES, gaps=False)
    whole = [np.nan_to_num(one) for one in parts]
    with pytest.warns(UserWarning):
        found = columns_by_cluster(whole, CENTERS, **words, gaps=False)
    assert found.missing is None and found.sizes.sum() == 400


def test_tables_of_all_forms_are_read_as_other_metrics_read_them() -> None:
    """Tables are marked before they are gathered, and what gathering looks at is still there."""
    _, rows = drawn(400)
    words: dict[str, Any] = {"edges": EDGES, "protocol": "plain"}
    parts, names = np.array_split(rows, 3), ["a", "b", "c", "d"]
    known = columns_by_cluster(parts, CENTERS, **words)
    frames = [pl.DataFrame(one, schema=names) for one in parts]
    forms: list[Any] = [
        [frames[0], frames[1].select(names[::-1]), frames[2]],
        dict(zip("xyz", parts, strict=True)),
        [one.tolist() for one in parts],
        list(map(csr_array, parts)),
    ]
    for form in some(forms):
        np.testing.assert_array_equal(columns_by_cluster(form, CENTERS, **words).means, known.means)
    odd: list[Any] = [
        np.zeros(4),
        None,
        np.full((2, 4), "a"),
        np.ma.masked_array(parts[0], mask=parts[0] > 9),
    ]
    odd += [np.full((2, 4), np.inf), np.full((2, 4), np.nan), np.zeros((2, 0))]
    for one in some(odd):
        with pytest.raises(DataError):
            columns_by_cluster([*parts, one], CENTERS, **words)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_tables_of_another_width_get_no_columns_of_marks(width: int, tmp_path: Path) -> None:
    """One column was taken for three that beside one more were as many as was asked of."""
    rows = np.random.default_rng(0).normal(size=(30, width))
    with pytest.raises(ArgumentError):
        columns_by_cluster([rows] * 3, [[0.0], [1.0]], edges=[[0, 1, 2]] * 3, protocol="plain")
    np.savez(tmp_path / "rows.npz", X=np.where(rows > 0.5, np.nan, rows))
    read = OwnFile(path=tmp_path / "rows.npz").read(None, np.array([-7.0, -8.0, -9.0]))
    assert read.features.shape[1] == width
    assert sorted({*read.features[read.features < -6.0]}) == [-9.0, -8.0, -7.0][:width]


@pytest.mark.parametrize("gaps", [True, False])
def test_tables_and_centers_carry_where_they_come_from_and_that_they_were_scaled(gaps: bool) -> None:
    _, rows = drawn(400)
    parts = np.array_split(np.nan_to_num(rows), 4)
    exact = [released(one, Origin.EXACT) for one in parts]
    with pytest.raises(PrivacyError):
        columns_by_cluster(exact, CENTERS, edges=EDGES, gaps=gaps, privacy=claim())
    places = [one[:, :2] for one in parts]
    model = DWFKMeans(2, scale="standard", protocol="plain", random_state=0).fit(places)
    words: dict[str, Any] = {"edges": EDGES, "gaps": gaps, "protocol": "plain"}
    scaling = model.scaling_
    assert scaling is not None
    with parameter_refused("centers"):
        columns_by_cluster(parts, model.cluster_centers_, **words)
    scaled = [np.hstack([scaling.scaled(one[:, :2]), one[:, 2:]]) for one in parts]
    found = columns_by_cluster(scaled, model.cluster_centers_, **words)
    np.testing.assert_array_equal(found.sizes, np.bincount(np.concatenate([*map(model.predict, places)])))


def claim(**words: Any) -> Privacy:
    known: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "unit": "record", "neighbours": "add-remove"}
    return Privacy(**(known | {"domain": Box([0, 0], [100, 60], max_rows=5000)} | words))


def test_noise_is_paid_once_and_intervals_cover() -> None:
    _, rows = drawn(3000)
    clean = columns_by_cluster(np.array_split(rows, 4), CENTERS, edges=EDGES, protocol="plain")
    covered = []
    for _ in range(40):
        found = columns_by_cluster(np.array_split(rows, 4), CENTERS, edges=EDGES, privacy=claim())
        assert found.claim is not None and len(found.claim.payments) == 1 and found.low and found.high
        for name in ("sizes", "means"):
            low, value, high = (getattr(one, name) for one in (found.low, clean, found.high))
            covered.append(np.ravel((low - 1e-3 <= value) & (value <= high + 1e-3)))
    # 240 cells of 95 %: below 85 % is seven deviations.
    assert np.concatenate(covered).mean() > 0.85


@pytest.mark.filterwarnings("ignore:epsilon=500")
def test_units_of_clients_and_budgets_pay(tmp_path: Path) -> None:
    _, rows = drawn()
    box = Box([0, 0], [100, 60], max_rows=5000)
    budget = PrivacyBudget(1.0, 1e-6, "record", "add-remove", tmp_path / "budget", domain=box)
    columns_by_cluster(np.array_split(rows, 4), CENTERS, edges=EDGES, privacy=budget.take(0.5))
    assert budget.remaining().share == pytest.approx(0.5)
    many = [drawn(20, seed)[1] for seed in range(40)]

    wide = claim(unit="client", epsilon=500.0)
    found = columns_by_cluster(many, CENTERS, edges=EDGES, privacy=wide, protocol="plain")
    assert found.sizes.sum() == pytest.approx(800, rel=0.2)
    assert found.means[0, 1] == pytest.approx(0.2, abs=0.3)  # Its noise has a deviation of .04.


def test_a_record_keeps_to_its_bounds() -> None:
    rng = np.random.default_rng(0)
    ranges = Ranges([-9.0] * 5, [99.0] * 5, 100)
    centers = np.hstack([rng.uniform(0, 60, (4, 2)), np.tile([30.0, 0.5, 4.0], (4, 1))])
    edges = np.array([[0.0, 20.0, 60.0], [-0.5, 0.5, 1.5], [0.0, 8.0, 8.0]])
    columns = ClusterColumns(ranges=ranges, centers=centers, placing=2, edges=edges)
    times = ClusterTimes(ranges=ranges, centers=centers, placing=3, edges=edges[:1])
    rows = rng.uniform(-9, 99, (200, 5))
    for question in (columns, times):
        each = [question.answer(ClientData(row[None]), rng) for row in rows]
        for name, bound in some(question.bounds.items()):
            values = np.stack([one[name].ravel() for one in each])
            lengths = np.linalg.norm(values, axis=1)
            assert lengths.max() <= bound.l2
            apart = np.linalg.norm(values[:, None] - values, axis=2).max()
            assert apart <= bound.l2 * np.sqrt(max(bound.stay, bound.move)) * (1 + 1e-12)
        whole = question.answer(ClientData(rows), rng)
        for name in whole:
            np.testing.assert_allclose(sum(one[name] for one in each), whole[name], atol=1e-9)


def test_times_in_columns_are_counted_as_labels_are() -> None:
    rng, edges = np.random.default_rng(0), np.array([5.0, 10.0, 20.0])
    times, events = rng.uniform(-3, 30, 300), rng.integers(0, 3, 300).astype(float)
    rows = np.column_stack([rng.uniform(0, 1, (300, 2)), times, events])
    centers = np.hstack([rng.uniform(0, 1, (3, 2)), np.zeros((3, 2))])
    ranges = Ranges([-5.0] * 4, [40.0] * 4, 300)
    asked = ClusterTimes(ranges=ranges, centers=centers, placing=2, edges=np.r_[0.0, edges][None])
    table = asked.answer(ClientData(rows), rng)["table"].reshape(-1, 3)
    own = ((rows[:, None, :2] - centers[:, :2]) ** 2).sum(axis=2).argmin(axis=1)
    labels = labels_of(times, events, edges)
    wanted = np.zeros((8, 3))
    np.add.at(wanted, (np.where(labels < 0, 7, labels), own), 1.0)
    np.testing.assert_array_equal(table, wanted)


@pytest.mark.parametrize("edges", [[], [[1.0]], [[1.0, 1.0]], [[3.0, 2.0]], [[0.0, np.nan]], [range(99)]])
def test_edges_rise_in_each_column(edges: Any) -> None:
    _, rows = drawn(40)
    if edges and np.ndim(edges[0]) and len(edges[0]) > 1:
        with pytest.raises(ValueError, match="edges"):
            columns_by_cluster([rows[:, :3]] * 2, CENTERS, edges=edges, protocol="plain")
    else:
        with parameter_refused("edges"):
            columns_by_cluster([rows[:, :3]] * 2, CENTERS, edges=edges, protocol="plain")


SCHEMA = """
[columns.crp]
kind = "number"
unit = "mg/l"
low = 0
high = 60
outside = "clip"
[columns.ward]
kind = "category"
categories = ["heart", "lung"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    _, rows = drawn(400)
    lines = [
        f"{'abcd'[i % 4]},{a!r},{b!r},{'' if c != c else c},{('heart', 'lung')[int(s)]}"
        for i, (a, b, c, s) in enumerate(rows.tolist())
    ]
    (tmp_path / "t.csv").write_text("\n".join(["site,age,bmi,crp,ward", *lines]) + "\n")
    (tmp_path / "o.toml").write_text(SCHEMA)
    return tmp_path


def fitted(home: Path, *words: object) -> Path:
    own = ("--group", "site", "--columns", "age,bmi", "-k", 2, "--out", home / "run")
    run("fit", home / "t.csv", *own, *words)
    return home / "run"


@pytest.mark.parametrize("scale", [(), ("--scale", "standard")])
def test_the_command_has_the_numbers_of_pooled_rows_and_keeps_them(
    home: Path, scale: tuple[str, ...]
) -> None:
    folder = fitted(home, *scale)
    run("profile", folder, "--beside", home / "o.toml", "--no-picture")
    text = run("profile", folder, "--out", home / "t2.csv").output
    assert "crp [mg/l]" in text and "crp: missing" in text and "ward: lung" in text
    found = pl.read_csv(home / "t2.csv").rows_by_key(["cluster", "column"], named=True, unique=True)
    frame = pl.read_csv(home / "t.csv")
    result = json.loads((folder / "result.json").read_text())
    centers = np.array(result["centroids"])
    own = ((frame[["age", "bmi"]].to_numpy()[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    for k in range(2):
        crp = frame["crp"].to_numpy()[own == k]
        assert found[k, "crp"]["mean"] == pytest.approx(np.nanmean(crp), abs=1e-3)
        assert found[k, "crp"]["median"] == pytest.approx(np.nanmedian(crp), abs=1.0)
        assert found[k, "crp"]["missing"] == pytest.approx(np.isnan(crp).mean())
        lung = (frame["ward"].to_numpy() == "lung")[own == k]
        assert found[k, "ward=lung"]["mean"] == pytest.approx(lung.mean(), abs=1e-4)


def test_a_profile_of_other_columns_is_attacked_with_its_rows_as_they_were_counted(home: Path) -> None:
    folder = fitted(home)
    run("profile", folder, "--beside", home / "o.toml", "--no-picture")
    frame = pl.read_csv(home / "t.csv").with_columns(
        (pl.col("ward") == name).cast(float).mul(0.5**0.5).alias(f"ward={name}") for name in ("heart", "lung")
    )
    columns = ["age", "bmi", "crp", "ward=heart", "ward=lung"]
    words = ("--columns", ",".join(columns), "--group", "site", "--attack", "disaggregation")
    for name, gap in (("none", 0.0), ("marked", -60.0)):
        frame.select("site", *columns).with_columns(pl.col("crp").fill_null(gap)).write_csv(home / name)
        (home / name).rename(home / f"{name}.csv")
    asked = ("attack", folder / "profile_beside")
    assert run(*asked, "--attack", "disaggregation", exit_code=2).output
    assert run(*asked, "--truth", home / "none.csv", *words, exit_code=2).output
    assert "disaggregation" in run(*asked, "--truth", home / "marked.csv", *words).stdout


WHAT = ("--delta", 1e-6, "--unit", "record", "--neighbours", "add-remove")
CLAIM = (*WHAT, "--low", "0,0", "--high", "100,60")


def test_a_claim_pays_for_a_profile_and_is_said_and_kept(home: Path) -> None:
    folder = fitted(home)
    sites = ("--clients", "a,b,c,d")
    said = run("profile", folder, "--epsilon", 3, *CLAIM, *sites, "--no-picture").output
    assert "epsilon 3" in said and " to " in said
    page = ("--beside", home / "o.toml", "--out", home / "p.html")
    said = run("profile", folder, *page, "--epsilon", 1, *CLAIM, *sites).output
    assert "epsilon 1" in said and "epsilon 3" in said
    kept = json.loads((folder / "result.json").read_text())
    assert [kept["profile"]["claim"]["epsilon"], kept["beside"]["profile"]["claim"]["epsilon"]] == [3.0, 1.0]
    assert (home / "p.html").read_text().count("has a claim of its own") == 2
    run("budget", "new", home / "b", "--epsilon", 2, *WHAT)
    paid = (*CLAIM[6:], *sites, "--budget", home / "b", "--share", 0.25)
    run("profile", folder, *paid, "--no-picture")
    assert PrivacyBudget.of(home / "b").remaining().share == pytest.approx(0.75)


def test_exact_sums_after_noise_or_groups_and_columns_without_ranges_are_refused(home: Path) -> None:
    folder = fitted(home, "--group-size", 3)
    assert "claim" in run("profile", folder, "--beside", home / "o.toml", exit_code=2).output
    (home / "run").rename(home / "grouped")
    folder = fitted(home)
    (home / "o.toml").write_text('[columns.crp]\nkind = "number"\n')
    assert "low and high" in run("profile", folder, "--beside", home / "o.toml", exit_code=2).output
    (home / "o.toml").write_text('[columns.age]\nkind = "number"\nlow = 0\nhigh = 9\n')
    assert "others" in run("profile", folder, "--beside", home / "o.toml", exit_code=2).output
    assert "--clients" in run("profile", folder, "--epsilon", 1, *CLAIM, exit_code=2).output


def test_a_federation_is_asked_too() -> None:
    _, rows = drawn()
    parts = np.array_split(np.nan_to_num(rows, nan=-60.0), 4)
    model = DWFKMeans(2, random_state=0).fit([one[:, :2] for one in parts])
    whole = DWFKMeans(2, random_state=0).fit(parts)
    again = columns_by_cluster(parts, model.cluster_centers_, edges=EDGES)
    found = columns_by_cluster(whole.federation_, model.cluster_centers_, edges=EDGES)
    np.testing.assert_allclose(found.means, again.means, atol=1e-6)
