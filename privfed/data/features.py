"""Loads rows that are assigned to clusters: the columns of a fit, by name, without clients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.values.domain import FloatArray
from privfed.data.conversion import feature_array, rows_frame
from privfed.data.loading import PathLike, Source, check_choice, check_path
from privfed.data.table import ERROR, Missing, check_finite, filled
from privfed.data.table_files import is_folder, read_arrays, read_frame, stem, suffix
from privfed.errors import DataError


def load_features(
    path: PathLike, columns: Sequence[str] | None = None, *, separator: str | None = None
) -> FloatArray:
    """Load rows to be assigned to clusters; other columns of the file are ignored.

    Args:
        path: a CSV, TSV, Parquet or .npz file (with an array X), as for `load_clients`.
        columns: names of the feature columns, in the order to be used; None for all columns of the file.
        separator: character between the fields of a CSV file; None to find it.

    Returns:
        The rows, float64 of shape (n_rows, n_columns).

    Raises:
        ArgumentError: `columns` is empty or repeats itself; `separator` is not one character.
        DataError: the file is missing or unreadable, a column is missing or not numeric, a value is missing.
    """
    check_path(path)
    check_choice(columns)
    path = Path(path)
    return features_in(frame_of(path, separator), columns, path)[0]


def frame_of(path: Path, separator: str | None = None) -> pl.DataFrame:
    """Return the columns of a table, or those of an .npz file's array X.

    Raises:
        DataError: the file is a folder, missing or unreadable.
    """
    if is_folder(path):
        raise DataError(f"{path} is a folder; give one file with the rows.")
    return rows_frame(path, read_arrays(path), ()) if suffix(path) == ".npz" else read_frame(path, separator)


def features_in(
    frame: pl.DataFrame, columns: Sequence[str] | None, path: Path, missing: Missing = ERROR
) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
    """Return the rows of a frame, after a rule for rows without a number in some column.

    Args:
        frame: as `frame_of` read it.
        columns: names of the feature columns, in the order to be used; None for all.
        path: where it was read, for messages.
        missing: the rule, as that of `load_clients`.

    Returns:
        The rows, float64 of shape (n_rows, n_columns), and bool of shape (n_rows,), those that are kept. All
        numbers of a row that is kept are finite.

    Raises:
        DataError: a column is missing or not numeric; or, without a rule, a value is missing.
    """
    source = Source(stem(path), str(path), frame, None)
    names = list(columns) if columns is not None else source.features()
    source.require(names)
    features, kept = filled(feature_array(frame, names, source.origin, needed=columns is not None), missing)
    check_finite(features[kept], names, source.origin)
    return features, kept
