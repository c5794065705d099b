"""Models know the names of their columns, whatever they were fitted on, and wherever they are read from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import privfed
from privfed import KFED, Box, DPKMeans, DWFKMeans, Privacy, select_n_clusters
from privfed.data import load_clients
from privfed.deep import FedAvg
from privfed.errors import DataError, ProtocolError, RunFolderError
from privfed.estimators.fitting import clients_of
from tests.cli.wide import run

NAMES = ["age", "bmi", "pulse"]
CLAIM = Privacy(epsilon=4.0, delta=1e-6, unit="record", domain=Box(0, 90), neighbours="add-remove")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [rng.normal(one, 2.0, (40, 3)) for one in ((30, 20, 60), (60, 30, 80), (45, 25, 40))]
    )
    frame = pl.DataFrame(dict(zip(NAMES, rows.round(2).T, strict=True)))
    frame = frame.with_columns(
        site=pl.Series([f"s{i % 4}" for i in range(120)]), ill=pl.Series(np.arange(120) % 2)
    )
    path = tmp_path_factory.mktemp("data") / "t.csv"
    frame.write_csv(path)
    return path


def frames(table: Path) -> list[pl.DataFrame]:
    return [own.select(NAMES) for _, own in pl.read_csv(table).group_by("site", maintain_order=True)]


def fits(model: Any, table: Path) -> Any:
    return model.fit(frames(table))


COLUMNS = ["--columns", ",".join(NAMES), "--group", "site", "--quiet"]
PYTHON: dict[str, Any] = {
    "k-means": lambda folder, table: fits(DWFKMeans(3, run_dir=folder), table),
    "private": lambda folder, table: fits(DPKMeans(3, privacy=CLAIM, run_dir=folder), table),
    "own centers": lambda folder, table: fits(KFED(3, privacy=CLAIM, run_dir=folder), table),
    "tables": lambda folder, table: DWFKMeans(3, run_dir=folder).fit(
        load_clients(table, group="site", columns=NAMES)
    ),
    "one table": lambda folder, table: DWFKMeans(3, run_dir=folder).fit(
        pl.concat(frames(table)), groups=np.arange(120) % 4
    ),
    "command line": lambda folder, table: run("fit", table, *COLUMNS, "-k", 3, "--out", folder),
    "selection": lambda folder, table: run(
        "select-k", table, *COLUMNS, "--min-k", 2, "--max-k", 3, "--out", folder
    ),
}


@pytest.mark.parametrize("way", PYTHON)
def test_a_runs_folder_is_read_and_its_model_refuses_another_order(
    way: str, table: Path, tmp_path: Path
) -> None:
    PYTHON[way](tmp_path / "run", table)
    rows, model = frames(table)[0], privfed.load(tmp_path / "run")
    assert model.feature_names_in_.tolist() == NAMES
    again = privfed.load(tmp_path / "run" / "model.npz")
    np.testing.assert_array_equal(model.predict(rows), again.predict(rows))
    assert model.privacy_claim_ == again.privacy_claim_ and (model.privacy_claim_ is not None) == (
        way in ("private", "own centers")
    )
    for other in (rows.select(NAMES[::-1]), rows.rename({"bmi": "weight"})):
        with pytest.raises(ValueError, match=r"[Ff]eature names"):
            model.predict(other)


@pytest.mark.parametrize("way", ["command line", "k-means"])
def test_the_command_line_predicts_by_name(way: str, table: Path, tmp_path: Path) -> None:
    PYTHON[way](tmp_path / "run", table)
    pl.concat(frames(table)).select(NAMES[::-1]).write_csv(tmp_path / "other.csv")
    lines = run("predict", tmp_path / "run", tmp_path / "other.csv").stdout.splitlines()[1:]
    model = privfed.load(tmp_path / "run")
    assert lines == [str(one) for one in model.predict(pl.concat(frames(table)))]
    assert len(set(lines)) == 3


def test_models_of_clients_know_their_columns(table: Path, tmp_path: Path) -> None:
    words = ["--label", "ill", "--algorithm", "fedavg", "--rounds", 1, "--out", tmp_path / "run"]
    run("fit", table, *COLUMNS, *words)
    model, rows = privfed.load(tmp_path / "run"), frames(table)[0]
    assert model.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(model.predict(rows), model.predict(rows.to_numpy()))
    with pytest.raises(
        DataError, match=r"the columns are pulse, bmi, age, and the model was fitted on age, bmi"
    ):
        model.predict(rows.select(NAMES[::-1]))
    labels = [np.arange(len(one)) % 2 for one in frames(table)]
    fitted = FedAvg(n_classes=2, rounds=1, run_dir=tmp_path / "own").fit(frames(table), labels)
    assert fitted.feature_names_in_.tolist() == NAMES
    assert privfed.load(tmp_path / "own").feature_names_in_.tolist() == NAMES


def test_names_are_agreed_on_and_arrays_have_none(table: Path) -> None:
    fitted = DWFKMeans(3, protocol="plain", max_iter=1, tol=0).fit(frames(table))
    assert fitted.transcript_.configuration.columns == tuple(NAMES)
    arrays = [one.to_numpy() for one in frames(table)]
    fitted.fit(arrays)
    assert fitted.transcript_.configuration.columns is None and not hasattr(fitted, "feature_names_in_")
    in_order = fitted.fit(frames(table)).cluster_centers_.tolist()
    other = [frames(table)[0], frames(table)[1].select(NAMES[::-1]), *frames(table)[2:]]
    assert fitted.fit(other).cluster_centers_.tolist() == in_order
    with pytest.raises(
        DataError, match="client 1 has columns age, bmi, weight; client 0 has age, bmi, pulse"
    ):
        fitted.fit([frames(table)[0], frames(table)[1].rename({"pulse": "weight"}), *frames(table)[2:]])
    selected = select_n_clusters(frames(table), [2, 3], estimator=DWFKMeans(2, protocol="plain"))
    assert selected.estimator.feature_names_in_.tolist() == NAMES


def test_the_folder_of_a_run_that_is_not_finished_is_said(table: Path, tmp_path: Path) -> None:
    def stop(index: int, ask: object, total: object) -> None:
        raise ProtocolError("stopped")

    model = DWFKMeans(3, run_dir=tmp_path / "run")
    with pytest.raises(ProtocolError, match="stopped"):
        model.fit_clients(clients_of(model, frames(table), None, None, None), watch=stop)
    with pytest.raises(RunFolderError, match=r"run cannot be read: it holds no model\.npz"):
        privfed.load(tmp_path / "run")
    fitted = model.resume(frames(table))
    np.testing.assert_array_equal(privfed.load(tmp_path / "run").cluster_centers_, fitted.cluster_centers_)
