"""Arrays of an .npz file as columns of a frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from privfed.data.table import listed
from privfed.data.table_files import AnyArray
from privfed.errors import DataError

FEATURES = "X"
"""Name of the array of rows."""


def rows_frame(
    path: Path, arrays: dict[str, AnyArray], extra: Sequence[str | None], empty: bool = False
) -> pl.DataFrame:
    """Return X as columns x0, x1, ... together with the arrays of `extra`, one value a row."""
    if FEATURES not in arrays:
        raise DataError(
            f"{path} has no array 'X'; save the rows as X. Its arrays are {listed(sorted(arrays))}."
        )
    frame = array_frame(arrays[FEATURES], f"array 'X' of {path}", empty)
    for name in extra:
        if name is not None and name in arrays and name not in frame.columns:
            frame = frame.with_columns(_value_column(path, name, arrays[name], frame.height))
    return frame


def array_frame(array: AnyArray, origin: str, empty: bool) -> pl.DataFrame:
    """Return the columns of one array of rows as x0, x1, ...

    Args:
        array: numbers of shape (n_rows, n_columns).
        origin: how messages name it.
        empty: whether it may have no rows.

    Raises:
        DataError: it is none.
    """
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise DataError(
            f"{origin} has shape {array.shape} and type {array.dtype}; "
            "save numbers of shape (n_rows, n_columns)."
        )
    if array.shape[1] == 0 or not (empty or len(array)):
        raise DataError(f"{origin} is empty (shape {array.shape}); leave it out or give it data.")
    values = _plain(array)
    return pl.DataFrame({f"x{position}": values[:, position] for position in range(values.shape[1])})


def _value_column(path: Path, name: str, array: AnyArray, n_rows: int) -> pl.Series:
    if array.shape != (n_rows,) or array.dtype.kind not in "biufU":
        raise DataError(
            f"array {name!r} of {path} has shape {array.shape} and type {array.dtype}; "
            f"save one text or number for each of the {n_rows} rows of X."
        )
    return pl.Series(name, array.tolist() if array.dtype.kind == "U" else _plain(array))


def _plain(array: AnyArray) -> AnyArray:
    """Return an array of a type that polars supports, which excludes 80-bit floats."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array
