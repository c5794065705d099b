"""Writing tables, in the format that the file's name ends with."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.stored.files import replaced
from privfed.errors import ArgumentError

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
"""Suffixes of the tables that can be written."""


def check_suffix(path: Path, known: Sequence[str] = TABLES) -> str:
    """Return which of `known` suffixes the file's name has, in lower case; it determines the format.

    Raises:
        ArgumentError: it ends with none of them.
    """
    for suffix in known:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ArgumentError(f"{path} has no known format: its name must end with {' or '.join(known)}.")


def write_table(path: Path, columns: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write a table atomically, in the format of the file's suffix; `load_features` reads it.

    Args:
        path: ends with one of `TABLES`.
        columns: name -> values, shape (n_rows,).

    Raises:
        ArgumentError: it ends with none of them.
    """
    suffix, frame = check_suffix(path), pl.DataFrame(dict(columns))
    with replaced(path) as fresh:
        if suffix == ".parquet":
            frame.write_parquet(fresh)
        else:
            fresh.write_bytes(_text(frame, suffix))


def _text(frame: pl.DataFrame, suffix: str) -> bytes:
    text = frame.write_csv(separator="\t" if suffix.startswith(".tsv") else ",").encode()
    # Without a time stamp, so that the same table always gives the same file.
    return gzip.compress(text, mtime=0) if suffix.endswith(".gz") else text
