"""Reads one file, as a frame of columns or as named arrays, and writes tables.

This module knows file formats, but not clients. A file that is missing, damaged or no table always raises a
`DataError` of one line. The libraries' own messages are not passed on, since they quote the file's content.
An error about a text that is not UTF-8 gives the position of the first wrong byte, and no bytes.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import shlex
import sys
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.names import PARTS
from privfed.core.stored.files import replaced
from privfed.data.table import repeated
from privfed.errors import ArgumentError, DataError

SEPARATORS = (",", ";", "\t", "|")
# Longest first, so that ".csv.gz" is removed as a whole.
SUFFIXES = (".csv.gz", ".tsv.gz", ".parquet", ".xlsx", ".csv", ".tsv", ".npz")

STDIN = Path("-")
"""Stands for a CSV table on standard input."""

_GZIP_MAGIC = b"\x1f\x8b"
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# Errors that zipfile and NumPy raise for damaged or malicious archives of arrays.
_ARCHIVE_ERRORS = (
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)

AnyArray = npt.NDArray[np.generic]


def suffix(path: Path) -> str:
    """Return which of `SUFFIXES` the file's name ends with, in lower case.

    Raises:
        DataError: it ends with none of them.
    """
    if path == STDIN:
        return ".csv"
    for known in SUFFIXES:
        if path.name.lower().endswith(known):
            return known
    raise DataError(
        f"{path} is no file of a known kind; its name must end with one of {', '.join(SUFFIXES)}."
    )


def stem(path: Path) -> str:
    """Return the file's name without its suffix, which is the client's name."""
    return path.name[: -len(suffix(path))] or path.name


def is_folder(path: Path) -> bool:
    """Say whether the path is a folder; otherwise it is a file.

    Raises:
        DataError: there is nothing at the path, or it cannot be accessed.
    """
    if path == STDIN:
        return False
    try:
        exists, folder = path.exists(), path.is_dir()
    except OSError as error:
        raise _unreadable(path, error) from None
    if not exists or any("\udc7f" < one < "\ue000" for one in path.name):
        raise DataError(
            f"{str(path).encode(errors='replace').decode()} does not exist; check the path, and rename "
            "a file whose name is not UTF-8."
        )
    return folder


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder, without hidden ones, in no particular order.

    Raises:
        DataError: the folder cannot be read, holds no file, or holds another folder.
    """
    try:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        folders = [entry.name for entry in entries if entry.is_dir()]
    except OSError as error:
        raise _unreadable(folder, error) from None
    if any("\udc7f" < one < "\ue000" for entry in entries for one in entry.name):
        raise DataError(
            f"{folder} holds a file whose name is not UTF-8, and names of files are those of clients; rename "
            "it, or set LC_ALL=C.UTF-8."
        )
    if folders:
        raise DataError(
            f"{folder} holds a folder ({min(folders)!r}); keep one file a client in it, and nothing else."
        )
    if not entries:
        raise DataError(f"{folder} holds no files; put one file a client in it.")
    return entries


def read_frame(path: Path, separator: str | None = None, *, empty: bool = False) -> pl.DataFrame:
    """Read a CSV, Parquet or .xlsx file.

    Args:
        path: a file whose suffix is not ".npz".
        separator: one character between the fields of a CSV file; None to find it in the header line.
        empty: whether it may have no rows.

    Returns:
        Its columns; those of a CSV or .xlsx file are text, so that an id "007" keeps its zeros.

    Raises:
        ArgumentError: `separator` is not one character.
        DataError: the file is missing, unreadable, without header or rows, or has two columns of one name.
    """
    content = content_of(path)
    frame = csv_columns(path, content, separator) if is_text(path) else columns_of(path, content)
    if frame.height == 0 and not (empty and frame.width):
        raise DataError(f"{path} has no rows; leave it out or give it data.")
    return frame


def read_arrays(path: Path) -> dict[str, AnyArray]:
    """Read all arrays of an .npz file, never unpickling.

    Raises:
        DataError: the file is missing, unreadable, no archive of arrays, or an array holds Python objects.
    """
    content = content_of(path)
    # A single .npy file or a pickle is no archive; NumPy would open the former as an array.
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise _unreadable(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except _ARCHIVE_ERRORS as error:
        raise _unreadable(path, error) from None
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise _unreadable(path)
    if not arrays:
        raise DataError(f"{path} holds no arrays; save X, or one array a client, in it.")
    return arrays


def content_of(path: Path) -> bytes:
    """Return the bytes of a file or `STDIN`, decompressed if they start with gzip's magic bytes."""
    try:
        content = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
        # Python's gzip checks the checksum at the end; a streaming reader may stop early without an error.
        return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: BaseException | None = None) -> DataError:
    # Only the error's class or the operating system's reason is shown: neither quotes the file's content.
    reason = getattr(error, "strerror", None) or (type(error).__name__ if error else "it is no such file")
    return DataError(
        f"{path} cannot be read ({reason}); check that it is whole and that its name tells its kind."
    )


def is_text(path: Path) -> bool:
    """Say whether a file is lines of text."""
    return suffix(path) not in (".parquet", ".xlsx", ".npz")


def columns_of(path: Path, content: bytes) -> pl.DataFrame:
    """Return the columns of a Parquet or .xlsx file's content; raises `DataError` where it is damaged."""
    if suffix(path) == ".xlsx":
        return cast(pl.DataFrame, PARTS.find("spreadsheets").read(path, content))
    try:
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _unreadable(path, error) from None


def csv_columns(path: Path, content: bytes, separator: str | None) -> pl.DataFrame:
    """Return the columns of a CSV file's content as text; raises `DataError` where it is no table."""
    content = from_header(content)
    separator = separator_in(content, separator)
    if wrong := not_utf8(path, content):
        raise wrong
    names = names_in(path, content, separator)
    # Blank lines at the end are not rows, except in a file of one column, where they are missing values.
    body = content.rstrip(b"\r\n") if len(names) > 1 else content
    try:
        frame = pl.read_csv(body, separator=separator, infer_schema=False)
        frame.columns = names
    except pl.exceptions.PolarsError:
        if b"\n" not in body:
            raise DataError(
                f"{path} ends its lines by returns alone; convert it with: tr '\\r' '\\n' < "
                f"{shlex.quote(str(path))} > lines.csv."
            ) from None
        raise DataError(
            f"{path} cannot be read as a table of {len(names)} columns{_odd_line(body, separator, names)}; "
            "check that each line has as many fields as the header, and that quotes are closed."
        ) from None
    return frame


def are_rows(frame: pl.DataFrame) -> pl.Series:
    """Say which lines are rows: those with a value; of one column all, since its gaps are missing values.

    Nothing but blanks is no value, however it was read: `,,` is `"","",""`.
    """
    if frame.width == 1:
        return pl.repeat(True, frame.height, eager=True)
    texts = pl.selectors.string()
    blank = [texts.str.strip_chars().fill_null("") == "", (~texts).is_null()]
    return frame.select(~pl.all_horizontal(*blank)).to_series()


def from_header(content: bytes) -> bytes:
    """Return a text from its header on: a mark, blank lines or a spreadsheet's `sep=;` may stand before."""
    return re.sub(rb"\Asep=[^\r\n]?[\r\n]+", b"", content.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n"))


def _odd_line(body: bytes, separator: str, names: list[str]) -> str:
    """Return a remark on the first line with more fields than the header; empty where none is found."""
    reader = csv.reader(io.StringIO(body.decode("utf-8"), newline=""), delimiter=separator)
    try:
        odd = next(((reader.line_num, len(row)) for row in reader if len(row) > len(names)), None)
    except csv.Error:
        return ""
    return "" if odd is None else f" (line {odd[0]} has {odd[1]} fields)"


def _checked(separator: str) -> str:
    separator = {"\\t": "\t"}.get(separator, separator)  # A shell passes --separator '\t' unescaped.
    printable = separator == "\t" or (separator.isascii() and separator.isprintable())
    if len(separator) != 1 or not printable or separator == '"':
        raise ArgumentError(
            f"separator must be one character (such as , ; | or a tab), got separator={separator!r}; "
            "leave it out to have it found in the header line.",
            parameters=["separator"],
        )
    return separator


def separator_in(content: bytes, given: str | None = None) -> str:
    """Return the separator that occurs most often in the header line outside quotes; a comma if none does.

    Args:
        content: of a CSV file.
        given: the one that the caller named, which is checked; None to find it.

    Raises:
        ArgumentError: the one that was named is not one character.
    """
    if given is not None:
        return _checked(given)
    line = content.partition(b"\n")[0].decode("utf-8", errors="replace")
    return max(SEPARATORS, key=re.sub(r'"[^"]*"', "", line).count)


def names_in(path: Path, content: bytes, separator: str) -> list[str]:
    """Return the names in the header line; polars would silently rename duplicates."""
    lines = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", newline="")
    try:
        names = [name.strip() for name in next(csv.reader(lines, delimiter=separator), [])]
    except csv.Error as error:
        raise _unreadable(path, error) from None
    if not any(names):
        raise DataError(f"{path} has no header line; put the names of the columns in its first line.")
    if _looks_like_data(names):
        raise DataError(
            f"the first line of {path} holds numbers; put a line with the names of the columns before it."
        )
    if twice := repeated(names):
        raise DataError(f"{path} has two columns called {twice[0]!r}; rename or remove one.")
    return names


def _looks_like_data(names: list[str]) -> bool:
    """Say whether a header line is a row of data, which would be lost, and quoted in messages as names."""
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
    # Ascending whole numbers, as in 0, 1, 2, ..., are the names of tables that were written without names.
    counted = all(name.isdigit() for name in numbers) and all(
        float(a) < float(b) for a, b in pairwise(numbers)
    )
    return 2 * len(numbers) >= len(names) and not counted


def not_utf8(path: Path, content: bytes) -> DataError | None:
    """Return the error for a text that is not UTF-8, with the command that converts it; None if it is UTF-8.

    Args:
        path: path of the file, for the message.
        content: content of the file, decompressed.
    """
    name = _wider(content)
    if name is not None:
        return DataError(f"{path} is {name} text, which must be UTF-8; {_remedy(path, name)}.")
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        return DataError(
            f"{path} is not UTF-8 text: byte {column} of line {line} does not fit; "
            + (
                f"if it is Latin-1, as spreadsheets write it, {_remedy(path, 'ISO-8859-1')}."
                if min(content[: 1 << 16]) > 8
                else "it is no text at all: name another file."
            )
        )
    return None


def _wider(content: bytes) -> str | None:
    """Return the name of the text's UTF-16 encoding, or None if it has none."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16"
    # Without a byte order mark: every other byte of an ASCII header line is zero.
    if b"\0" not in content[:2]:
        return None
    encoding = "UTF-16LE" if content[1:2] == b"\0" else "UTF-16BE"
    try:
        # A file of numbers begins with a zero as well, and is no text at all.
        content[: len(content) // 2 * 2].decode(encoding)
    except UnicodeDecodeError:
        return None
    return encoding


def _remedy(path: Path, encoding: str) -> str:
    packed = path.name.lower().endswith(".gz")
    source = f"gunzip -c {shlex.quote(str(path))} | " if packed else ""
    what = "" if packed else f" {shlex.quote(str(path))}"
    return f"convert it with: {source}iconv -f {encoding} -t UTF-8{what} > utf8.csv"


def write_table(path: Path, columns: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write a table atomically, in the format of the file's suffix; `load_features` reads it.

    Args:
        path: ends with .csv, .tsv (and .gz), .parquet or .xlsx; another one is written as CSV.
        columns: name -> values, shape (n_rows,).
    """
    frame, name = pl.DataFrame(dict(columns)), path.name.lower()
    with replaced(path) as fresh:
        if name.endswith(".parquet"):
            frame.write_parquet(fresh)
        elif name.endswith(".xlsx"):
            PARTS.find("spreadsheets").write(fresh, frame)
        else:
            text = frame.write_csv(separator="\t" if name.endswith((".tsv", ".tsv.gz")) else ",").encode()
            # Without a time stamp, so that the same table always gives the same file.
            fresh.write_bytes(gzip.compress(text, mtime=0) if name.endswith(".gz") else text)
