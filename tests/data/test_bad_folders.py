"""Whatever is wrong with a folder of clients, or with rows to predict, ends in one clear line."""

from pathlib import Path
from typing import Any

import pytest

from privfed.data import load_features
from privfed.errors import ArgumentError, DataError, PrivFedError
from tests.data.bad import CSV, ROWS, fails, npz, parquet


@pytest.mark.parametrize(
    ("files", "options", "kind", "message"),
    [
        pytest.param({}, {}, DataError, "holds no files; put one file a client", id="empty"),
        pytest.param({".hidden.csv": CSV}, {}, DataError, "holds no files", id="hidden-only"),
        pytest.param(
            {"a.csv": CSV, "README.md": b""}, {}, DataError, "README.md is no file of a known", id="other"
        ),
        pytest.param(
            {"a.csv": CSV, "b/c.csv": CSV}, {}, DataError, "holds a folder .'b'.; keep", id="folder"
        ),
        pytest.param(
            {"a.csv": CSV}, {"group": "g"}, ArgumentError, "group='g' .* already; leave it out", id="group"
        ),
        pytest.param(
            {"a.csv": b"x\n1\n", "a.parquet": parquet(x=[1])},
            {},
            DataError,
            "two clients are called 'a'",
            id="twins",
        ),
        pytest.param(
            {"a.csv": b"x,z\n1,2\n", "b.csv": b"x,w,v\n1,2,3\n"},
            {},
            DataError,
            "client 'a' and client 'b' have different columns: only one of them has 'v', 'w', 'z'; rename",
            id="columns-differ",
        ),
        pytest.param(
            {"a.csv": b"x\n1\n", "b.csv": b"z\n1\n"},
            {"columns": ["x"]},
            DataError,
            "client 'b' has no column 'x'; its columns are 'z'",
            id="column-missing",
        ),
        pytest.param(
            {"a.csv": b"x,y\n1,2\n", "b.csv": b"x\n1\n"},
            {"label": "y"},
            DataError,
            "client 'b' has no column 'y'",
            id="label",
        ),
        pytest.param(
            {"a.npz": npz(X=ROWS, y=[1, 2, 3]), "b.npz": npz(X=ROWS)},
            {},
            DataError,
            "client 'b' has no labels, but others have",
            id="labels-at-some",
        ),
        pytest.param(
            {"a.npz": npz(c=ROWS)}, {}, DataError, "has no array 'X'; .* Its arrays are 'c'", id="npz"
        ),
        pytest.param(
            {"a.csv": b"x\n1\n", "b.csv": b"x\n"}, {}, DataError, "b.csv has no rows", id="client-empty"
        ),
        pytest.param(
            {"a.csv": b"x\n1\n", "b.csv": b"x\nk\n"}, {}, DataError, "column 'x' of client 'b' is", id="text"
        ),
        pytest.param(
            {"a.csv": b"x\n1\n", "b.csv": b"x\n?\n"}, {}, DataError, "client 'b' has 1 missing", id="missing"
        ),
    ],
)
def test_bad_folder(
    tmp_path: Path, files: dict[str, bytes], options: dict[str, Any], kind: type[PrivFedError], message: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    fails(tmp_path, kind, message, **options)


@pytest.mark.parametrize(
    ("content", "columns", "kind", "message"),
    [
        pytest.param(CSV, ["a", "h"], DataError, "t.csv has no column 'h'; its columns are", id="unknown"),
        pytest.param(CSV, ["a", "a"], ArgumentError, "columns names 'a' twice", id="twice"),
        pytest.param(CSV, [], ArgumentError, "one or more names", id="none"),
        pytest.param(CSV, None, DataError, "column 'g' of .*t.csv is not numeric", id="text"),
    ],
)
def test_bad_features_for_prediction(
    tmp_path: Path, content: bytes, columns: list[str] | None, kind: type[PrivFedError], message: str
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(kind, match=message):
        load_features(tmp_path / "t.csv", columns)


def test_folder_is_nothing_to_predict(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder; give one file with the rows"):
        load_features(tmp_path)
