"""Whatever is wrong with a file ends in one clear line that quotes nothing of its content."""

import gzip
import os
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privfed.data import load_clients, load_features
from privfed.errors import ArgumentError, DataError, PrivFedError
from tests.data.bad import CSV, ROWS, fails, npy, npz, parquet


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param("t.csv", b"", "t.csv has no header line; put the names", id="empty"),
        pytest.param("t.csv", b"\n\n", "t.csv has no header line", id="blank"),
        pytest.param("t.csv", b",,\n1,2,3\n", "t.csv has no header line", id="header-of-commas"),
        pytest.param("t.csv", b"a,b\n", "t.csv has no rows; leave it out", id="no-rows"),
        pytest.param(
            "t.csv", b"a,b,a\n1,2,3\n", "t.csv has two columns called 'a'; rename", id="column-twice"
        ),
        pytest.param("t.csv", b"a, a \n1,2\n", "t.csv has two columns called 'a'", id="column-twice-spaces"),
        pytest.param("t.csv", b",a\n0,1\n", "has a column without a name .an index", id="index-saved"),
        pytest.param(
            "t.csv",
            b"a,b\n1,2\n1,31337,3\n",
            r"table of 2 columns \(line 3 has 3 fields\); check",
            id="long-line",
        ),
        pytest.param(
            "t.csv", b'a,b\n"31337,3\n', "table of 2 columns; .* quotes are closed", id="open-quote"
        ),
        pytest.param("t.csv", b"a,b\n31337,\xff\n", "not UTF-8 text: byte 7 of line 2", id="not-utf-8"),
        pytest.param("t.csv", b"a,b\n" * 99_999 + b"\xe9", "byte 1 of line 100000", id="late-not-utf-8"),
        pytest.param("t.csv", "a,b\n1,2\n".encode("utf-16"), "is UTF-16 text", id="utf-16"),
        pytest.param("t.csv", "a,b\n1,2\n".encode("utf-16-be"), "is UTF-16BE text", id="utf-16-unmarked"),
        pytest.param(
            "t.csv", b"31337,2.5\n1,2\n", "first line of .*t.csv holds numbers; put", id="no-header"
        ),
        pytest.param(
            "t.csv", b"5.1,31337,iris\n1,2,iris\n", "first line .* holds numbers", id="no-header-label"
        ),
        pytest.param("t.csv", b"31337,7\n1,2\n", "first line .* holds numbers", id="no-header-integers"),
        pytest.param("t.csv.gz", gzip.compress(CSV)[:-9], "cannot be read .EOFError.; check", id="cut-gzip"),
        pytest.param("t.csv.gz", b"\x1f\x8b\x08garbage", r"cannot be read \(", id="no-gzip"),
        pytest.param("t.parquet", b"", "t.parquet cannot be read .ComputeError.", id="empty-parquet"),
        pytest.param("t.parquet", b"garbage" * 9, "t.parquet cannot be read .ComputeError.", id="no-parquet"),
        pytest.param("t.parquet", parquet(a=[1])[:-40], "t.parquet cannot be read", id="cut-parquet"),
        pytest.param("t.parquet", parquet(a=[]), "t.parquet has no rows", id="parquet-without-rows"),
        pytest.param("t.parquet", parquet(), "t.parquet has no rows", id="parquet-without-columns"),
        pytest.param("t.npz", b"", "t.npz cannot be read", id="empty-npz"),
        pytest.param("t.npz", b"garbage", "t.npz cannot be read .it is no such file.; check", id="no-npz"),
        pytest.param("t.npz", npz(X=ROWS)[:-30], "t.npz cannot be read", id="cut-npz"),
        pytest.param("t.npz", npy(ROWS), "t.npz cannot be read", id="npy-renamed"),
        pytest.param("t.npz", pickle.dumps(ROWS), "t.npz cannot be read", id="pickle-renamed"),
        pytest.param("t.npz", npz(X=ROWS.astype(object)), "cannot be read .ValueError.", id="npz-of-objects"),
        pytest.param("t.npz", npz(), "t.npz holds no arrays; save X", id="npz-without-arrays"),
        pytest.param("t.npz", npz(X=ROWS[0]), r"array 'X' of .* has shape \(2,\)", id="X-of-one-dimension"),
        pytest.param("t.npz", npz(X=ROWS.astype(str)), "array 'X' of .* type <U", id="X-of-text"),
        pytest.param(
            "t.npz", npz(X=ROWS[:0]), r"array 'X' of .* is empty .shape \(0, 2\)", id="X-without-rows"
        ),
        pytest.param("t.npz", npz(X=ROWS, y=[1]), "array 'y' of .* each of the 3 rows", id="y-too-short"),
        pytest.param(
            "t.npz", npz(X=ROWS, client=ROWS), "array 'client' of .* one text or number", id="client-2d"
        ),
        pytest.param("t.npz", npz(X=ROWS, y=[1j, 2, 3]), "array 'y' of .* complex128", id="y-complex"),
        pytest.param(
            "t.npz", npz(a=ROWS, b=[1.0]), r"array 'b' of .* shape \(1,\)", id="client-of-one-dimension"
        ),
        pytest.param(
            "t.npz",
            npz(a=ROWS, b=ROWS[:, :1]),
            "client 'a' and client 'b' have different columns: only one of them has 'x1'; rename",
            id="clients-differ",
        ),
        pytest.param("t.npz", npz(a=ROWS, b=ROWS[:0]), "array 'b' of .* is empty", id="client-without-rows"),
        pytest.param(
            "t.ods", b"PK", "no file of a known kind; its name must end .*parquet", id="unknown-kind"
        ),
        pytest.param("t", CSV, "no file of a known kind", id="no-suffix"),
    ],
)
def test_bad_file(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    fails(tmp_path / name, DataError, message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(
            b"a,b\n31337,\n,1\n3,\n", "client 't' has 1 .* 'a' .and more in 1 other", id="two-columns"
        ),
        pytest.param(
            b"a,b\n31337,\n4,1\n3,\n", "client 't' has 2 .* column 'b'; fill them in", id="empty-fields"
        ),
        pytest.param(
            b"a,b\n31337,NA\n4,nan\n3,?\n", "client 't' has 3 .* column 'b'; fill", id="missing-words"
        ),
        pytest.param(b"a,b\n31337,inf\n", "client 't' has 1 .* column 'b'", id="infinite"),
        pytest.param(b"a,b\n31337\n", "client 't' has 1 .* column 'b'", id="short-line"),
        pytest.param(b"a,b\n1,2\n\n3,4\n", "client 't' has 1 .* column 'a'", id="blank-line-inside"),
        pytest.param(b"a\n1\n\n", "client 't' has 1 .* column 'a'", id="blank-line-of-one-column"),
        pytest.param(b"a,b\n,\n", "client 't' has 1 .* column 'a'", id="all-empty"),
        pytest.param(
            b"a,city\n1,s31337\n2,3\n",
            r"'city' of .*t.csv is not numeric \(1 of 2 values .*\); .* \(drop=\), .* \(columns=\)",
            id="text",
        ),
        pytest.param(b"a;b\n31337;1,5\n", "column 'b' .* decimal comma: write them with", id="decimal-comma"),
        pytest.param(b"a,b\n1,true\n2,2\n", "column 'b' .* not numeric .1 of 2", id="truth-among-numbers"),
    ],
)
def test_bad_values(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    fails(tmp_path / "t.csv", DataError, message)
    with pytest.raises(DataError, match=message.replace("client 't'", r".*t.csv")):
        load_features(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        pytest.param([[1], [2]], "its type is List", id="lists"),
        pytest.param([{"k": 1}, {"k": 2}], "its type is Struct", id="structures"),
        pytest.param([b"1", b"2"], "its type is Binary", id="bytes"),
        pytest.param(pl.Series([0, 1]).cast(pl.Date), "its type is Date", id="dates"),
        pytest.param(pl.Series(["1", "2"]).cast(pl.Categorical), "its type is Categorical", id="categories"),
    ],
)
def test_parquet_column_that_is_no_number(tmp_path: Path, values: Any, reason: str) -> None:
    (tmp_path / "t.parquet").write_bytes(parquet(a=[1, 2], b=values))
    fails(tmp_path / "t.parquet", DataError, f"column 'b' of .* is not numeric .{reason}")


@pytest.mark.parametrize("role", ["group", "label"])
@pytest.mark.parametrize(
    "values", [[[1], [2]], [{"k": 1}, {"k": 2}], [b"\xff", b"\xfe"]], ids=["list", "struct", "bytes"]
)
def test_ids_and_labels_of_a_strange_type(tmp_path: Path, role: str, values: Any) -> None:
    (tmp_path / "t.parquet").write_bytes(parquet(a=[1, 2], b=values))
    fails(tmp_path / "t.parquet", DataError, f"the {role} column 'b' of .* has type .*; save", **{role: "b"})


def test_missing_value_is_told_with_the_client_of_its_group(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("g,a\nq,31337\nr,\nr,4\nr,\n")
    fails(tmp_path / "t.csv", DataError, "client 'r' has 2 missing .* column 'a'", group="g")


@pytest.mark.parametrize("role", ["group", "label"])
@pytest.mark.parametrize(
    "content", [b"g,a\n,31337\n \t,2\nq,3\n", parquet(g=[None, np.nan, 1.0], a=[1, 2, 3])]
)
def test_missing_group_or_label(tmp_path: Path, role: str, content: bytes) -> None:
    path = tmp_path / ("t.parquet" if content.startswith(b"PAR1") else "t.csv")
    path.write_bytes(content)
    fails(path, DataError, f"has 2 rows without a value in the {role} column 'g'; fill", **{role: "g"})


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        pytest.param(
            {"group": "h"}, DataError, "no column 'h'; its columns are 'g', 'y', 'a', 'b'", id="group"
        ),
        pytest.param({"label": "h"}, DataError, "no column 'h'", id="label"),
        pytest.param({"columns": ["a", "h"]}, DataError, "no column 'h'", id="columns"),
        pytest.param(
            {"group": "g", "label": "g"}, ArgumentError, "must be two columns, got 'g'", id="group-is-label"
        ),
        pytest.param({"columns": []}, ArgumentError, r"one or more names, got columns=\[\]", id="no-columns"),
        pytest.param(
            {"columns": "ab"}, ArgumentError, "one or more names, got columns='ab'", id="columns-text"
        ),
        pytest.param(
            {"columns": ["a", "a"]}, ArgumentError, "names 'a' twice; name each", id="columns-twice"
        ),
        pytest.param(
            {"columns": ["a", "g"], "group": "g"},
            ArgumentError,
            "'g', which is the group; a group",
            id="group-feature",
        ),
        pytest.param(
            {"columns": ["a", "y"], "label": "y"},
            ArgumentError,
            "'y', which is the label",
            id="label-feature",
        ),
        pytest.param(
            {"separator": ""}, ArgumentError, "must be one character .* got separator=''", id="separator-0"
        ),
        pytest.param({"separator": ", "}, ArgumentError, "must be one character", id="separator-2"),
        pytest.param({"separator": "é"}, ArgumentError, "must be one character", id="separator-not-ascii"),
        pytest.param({"separator": "\0"}, ArgumentError, "must be one character", id="separator-nul"),
        pytest.param({"separator": '"'}, ArgumentError, "must be one character", id="separator-quote"),
        pytest.param(
            {"separator": "|"}, DataError, "table of 1 columns|is not numeric", id="separator-wrong"
        ),
    ],
)
def test_bad_arguments(
    tmp_path: Path, options: dict[str, Any], kind: type[PrivFedError], message: str
) -> None:
    (tmp_path / "t.csv").write_bytes(CSV)
    fails(tmp_path / "t.csv", kind, message, **options)


def test_only_group_and_label_leave_no_features(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("g,y\nq,31337\n")
    fails(tmp_path / "t.csv", DataError, "t.csv has no feature columns", group="g", label="y")


def test_long_lists_of_columns_are_cut(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=np.zeros((1, 784)))
    fails(tmp_path / "t.npz", DataError, "'x19' and 764 more", columns=["pixel"])


@pytest.mark.parametrize("option", ["group", "label"])
def test_npz_of_clients_takes_no_group_and_no_label(tmp_path: Path, option: str) -> None:
    (tmp_path / "t.npz").write_bytes(npz(a=ROWS))
    fails(tmp_path / "t.npz", ArgumentError, f"{option}='a' cannot be used with .*t.npz", **{option: "a"})


@pytest.mark.parametrize("name", ["t.csv", "t.npz", "folder", "t" * 300 + ".csv"])
def test_missing_file(tmp_path: Path, name: str) -> None:
    fails(tmp_path / name, DataError, r"does not exist; check the path|cannot be read \(File name too long\)")
    with pytest.raises(DataError, match=r"does not exist|cannot be read"):
        load_features(tmp_path / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_file_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(CSV)
    (tmp_path / "t.csv").chmod(0)
    fails(tmp_path / "t.csv", DataError, r"cannot be read \(Permission denied\)")


DAMAGED = {".csv": CSV, ".csv.gz": gzip.compress(CSV), ".npz": npz(X=ROWS, client=[1, 2, 1])}


@given(st.sampled_from(sorted(DAMAGED)), st.data())
def test_damaged_file_loads_or_is_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject
) -> None:
    content = bytearray(DAMAGED[suffix])
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=4)):
        content[position] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("damaged") / f"t{suffix}"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        load_clients(path)
    except DataError as error:
        assert "\n" not in str(error)


@pytest.mark.skipif(shutil.which("iconv") is None, reason="the remedy is a command of the system")
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["les clients.csv", "c.csv.gz"])
def test_the_remedy_for_another_encoding_works(tmp_path: Path, encoding: str, name: str) -> None:
    content = "hôpital,a\nnuméro 1,2\nnuméro 2,3\n".encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(DataError, match=r"convert it with: (.*)\.") as caught:
        load_clients(tmp_path / name, group="hôpital")
    command = str(caught.value).partition("convert it with: ")[2].removesuffix(".")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert load_clients(tmp_path / "utf8.csv", group="hôpital").names == ("numéro 1", "numéro 2")


def test_a_file_that_is_no_text_is_not_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(bytes(range(256)) * 20)
    with pytest.raises(DataError) as found:
        load_clients(tmp_path / "t.csv")
    assert "UTF-16" not in str(found.value) and "not UTF-8 text" in str(found.value)
