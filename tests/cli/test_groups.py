"""Groups of rows on the command line: what is printed says that it is of group means."""

import json
from typing import Any

import numpy as np
import polars as pl
import pytest

from privfed import ClientPolicy, DWFKMeans
from privfed.data import load_clients
from privfed.errors import ArgumentError, DataError
from tests.raised import parameter_refused


@pytest.fixture
def table(tmp_path: Any) -> Any:
    rng = np.random.default_rng(0)
    rows = rng.normal(rng.choice([-4.0, 4.0], (80, 2)), 1.0)
    columns = {"a": rows[:, 0], "b": rows[:, 1], "site": np.arange(80) % 4, "patient": np.arange(80) // 2}
    path = tmp_path / "rows.csv"
    pl.DataFrame({**columns, "kind": (rows[:, 0] > 0).astype(int)}).write_csv(path)
    return path


WORDS = ("--group", "site", "--id", "patient", "--group-size", 3)


def test_a_fit_over_groups_is_that_of_the_policy_and_says_what_its_numbers_are_of(
    invoke, table, tmp_path
) -> None:
    words = ("fit", table, *WORDS, "--columns", "a,b", "-k", 2, "--metrics", "davies_bouldin")
    shown = invoke(*words, "--out", tmp_path / "run")
    assert shown.exit_code == 0 and shown.output.count("of group means") == 2
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert found["of"] == "group means" and found["columns"] == ["a", "b"]
    tables = load_clients(table, group="site", id="patient", columns=["a", "b"])
    assert tables.tables[0].ids == tuple(str(2 * i) for i in range(20))
    own = DWFKMeans(2, policy=ClientPolicy(group_size=3)).fit(tables)
    np.testing.assert_array_equal(found["centroids"], own.cluster_centers_)
    again = invoke("resume", tmp_path / "run")
    assert again.exit_code == 0 and "of group means" in again.output
    exact = invoke("fit", table, *WORDS[:4], "--columns", "a,b", "-k", 2, "--out", tmp_path / "exact")
    assert exact.exit_code == 0 and "group means" not in exact.output


def test_summaries_selections_and_models_say_what_they_are_of(invoke, table, tmp_path) -> None:
    shown = invoke("summary", table, *WORDS, "--columns", "a,b")
    assert "all other numbers of group means" in shown.output
    words = ("select-k", table, *WORDS, "--columns", "a,b", "--min-k", 2, "--max-k", 3)
    shown = invoke(*words, "--out", tmp_path / "selection", "--json")
    assert json.loads(shown.output)["of"] == "group means"
    words = (
        "fit",
        table,
        *WORDS,
        "--columns",
        "a,b",
        "--label",
        "kind",
        "--algorithm",
        "fedavg",
        "--rounds",
        1,
    )
    shown = invoke(*words, "--out", tmp_path / "models", "--json")
    assert json.loads(shown.output)["accuracy"] is None


def test_groups_and_a_guarantee_are_one_clear_line(invoke, table, tmp_path) -> None:
    claim = ("--epsilon", 1, "--delta", 1e-5, "--unit", "record", "--neighbours", "add-remove")
    box = ("--low", -9, "--high", 9, "--clients", "0,1,2,3", "--columns", "a,b")
    words = ("fit", table, *WORDS, *claim, *box, "--algorithm", "dp", "--out", tmp_path / "run")
    shown = invoke(*words, exit_code=2)
    assert "--group-size 3 goes with no guarantee" in shown.output
    assert not (tmp_path / "run").exists()


def test_ids_are_no_feature_and_none_is_missing(table, tmp_path) -> None:
    tables = load_clients(table, group="site", label="kind", id="patient")
    assert tables.columns == ("a", "b")
    with parameter_refused("columns"):
        load_clients(table, id="patient", columns=["a", "patient"])
    with pytest.raises(ArgumentError, match="group and id must be two columns"):
        load_clients(table, group="site", id="site")
    gaps = tmp_path / "gaps.csv"
    gaps.write_text(table.read_text().replace(",39,", ",,"))
    with pytest.raises(DataError, match="2 rows without a value in the id column 'patient'"):
        load_clients(gaps, group="site", id="patient")
    kept = load_clients(gaps, group="site", id="patient", missing="leave-out")
    assert sum(map(len, kept.arrays)) == 78
    arrays = tmp_path / "rows.npz"
    np.savez(arrays, X=np.ones((4, 2)), who=np.array([1, 1, 2, 2]))
    assert load_clients(arrays, id="who").tables[0].ids == ("1", "1", "2", "2")
