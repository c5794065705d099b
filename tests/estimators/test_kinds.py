"""What users pass is fitted or refused in the words of the product, whatever kind of thing it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import sparse

import privfed
from privfed import DWFKMeans, select_n_clusters
from privfed.cli.program import is_full
from privfed.data.table_files import files_of, is_folder, not_utf8
from privfed.errors import ArgumentError, DataError

ROWS = np.random.default_rng(0).normal(size=(60, 3))
CLIENTS = np.array_split(ROWS, 4)
ESTIMATORS = ("DWFKMeans", "EWFKMeans", "FKM", "KFED", "FederatedFuzzyCMeans", "FederatedMiniBatchKMeans")
QUIET = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@QUIET
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_to_predict_that_are_not_finite_are_a_data_error(name: str, value: float) -> None:
    model = getattr(privfed, name)(2, protocol="plain", random_state=0).fit(CLIENTS)
    rows = ROWS[:4].copy()
    rows[2, 1] = value
    for ask in (model.predict, model.transform, model.score):
        with pytest.raises(DataError):
            ask(rows)


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix])
def test_sparse_tables_of_clients_are_fitted_as_dense_ones(kind: Any) -> None:
    words: dict[str, Any] = {"protocol": "masked", "random_state": 0}
    dense = DWFKMeans(2, **words).fit(CLIENTS)
    given = DWFKMeans(2, **words).fit([kind(rows) for rows in CLIENTS])
    np.testing.assert_array_equal(given.cluster_centers_, dense.cluster_centers_)


def framed() -> pl.DataFrame:
    names = [f"ward {i % 4}" for i in range(60)]
    return pl.DataFrame({"a": ROWS[:, 0], "ward": names, "b": ROWS[:, 1]})


def test_a_groupby_is_a_dict_of_its_tables() -> None:
    frame = framed()
    tables = {
        name: frame.filter(pl.col("ward") == name).select("a", "b") for name in sorted(set(frame["ward"]))
    }
    expected = DWFKMeans(2, random_state=0).fit(tables)
    found = DWFKMeans(2, random_state=0).fit(frame.group_by("ward", maintain_order=True))
    assert found.transcript_.configuration.clients == expected.transcript_.configuration.clients
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
    assert found.feature_names_in_.tolist() == ["a", "b"]


def test_a_pandas_groupby_is_a_dict_of_its_tables() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(framed().to_dict(as_series=False))
    found = DWFKMeans(2, random_state=0).fit(frame.groupby("ward"))
    expected = DWFKMeans(2, random_state=0).fit(framed().group_by("ward", maintain_order=True))
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)


def test_arrays_of_one_axis_are_told_how_they_are_passed() -> None:
    columns = [ROWS[:20, 0], ROWS[20:40, 0], ROWS[40:, 0]]
    with pytest.raises(ArgumentError, match=r"reshape\(-1, 1\)"):
        DWFKMeans(2).fit(columns)
    model = DWFKMeans(2, random_state=0).fit([one.reshape(-1, 1) for one in columns])
    assert model.cluster_centers_.shape == (2, 1)


def test_an_index_that_no_sum_gives_names_the_one_that_is() -> None:
    with pytest.raises(ArgumentError) as caught:
        select_n_clusters(CLIENTS, [2, 3], index="silhouette", protocol="plain")
    assert "simplified_silhouette" in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="names are bytes on POSIX alone")
def test_names_of_files_that_are_no_text_are_a_data_error(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/s\xf8nder.csv")
    Path(name).write_text("a\n1\n")
    with pytest.raises(DataError) as caught:
        files_of(tmp_path)
    str(caught.value).encode()
    with pytest.raises(DataError) as caught:
        is_folder(Path(name))
    str(caught.value).encode()


def test_bytes_that_are_no_text_are_not_taken_for_latin_1(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(1, 256, 4000, dtype=np.uint8).tobytes()
    latin = "größe;höhe\n1;2\n".encode("latin-1")
    refused, converted = (not_utf8(tmp_path / "rows.csv", one) for one in (noise, latin))
    assert refused is not None and "iconv" not in str(refused)
    assert converted is not None and "iconv" in str(converted)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_file_above_the_limit_is_a_full_disk(code: int) -> None:
    assert is_full(OSError(code, "no room")) and not is_full(OSError(errno.EACCES, "not allowed"))
