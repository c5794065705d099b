"""Tables of the kind that their name says."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.files import replaced
from privfed.errors import ArgumentError

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
"""How the names of written tables may end."""


def check_suffix(path: Path, known: Sequence[str] = TABLES) -> str:
    """Return which of `known` the file's name ends with, in lower case: it says how the file is written.

    Raises:
        ArgumentError: it ends with none of them.
    """
    for suffix in known:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ArgumentError(
        f"{path} does not say how it is to be written: its name must end with {' or '.join(known)}."
    )


def write_table(path: Path, columns: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write a table in the way that the file's name says, whole or not at all; `load_features` reads it.

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
    # Without the time of writing, so that the same table gives the same file.
    return gzip.compress(text, mtime=0) if suffix.endswith(".gz") else text
