"""Conversion of the columns of a frame to arrays of numbers, texts or codes; and of arrays to a frame.

An empty field and the texts in `MISSING` count as missing numbers. They become NaN here; callers that know
the client's name report them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from privfed.core.values.domain import FloatArray
from privfed.data.table import DECLARE, NO_LABEL, listed, natural_key, repeated
from privfed.data.table_files import AnyArray
from privfed.errors import ArgumentError, DataError, PrivacyError

# In lower case; upper and lower case count the same.
MISSING = ("", "?", "na", "n/a", "nan", "none", "null")

MOST_CLASSES = 10**9
"""Labels of a party's own table are below this number."""

_DECIMAL_COMMA = r"^[+-]?[0-9]+,[0-9]+$"


def feature_array(
    frame: pl.DataFrame, columns: Sequence[str], origin: str, *, needed: bool = False
) -> FloatArray:
    """Return columns of a frame as numbers: false is 0, true is 1, a missing value is NaN.

    Args:
        frame: has all of `columns`.
        columns: which columns, in which order; at least one.
        origin: the owner of the rows, as named in error messages.
        needed: whether the caller named these columns, so that an error must not suggest to choose others.

    Returns:
        float64 of shape (frame.height, len(columns)).

    Raises:
        DataError: a column is not numeric.
    """
    features = np.empty((frame.height, len(columns)), dtype=np.float64)
    for position, name in enumerate(columns):
        features[:, position] = _numbers(frame[name], origin, needed)
    return features


def text_column(column: pl.Series, origin: str, role: str, *, missing: bool = False) -> pl.Series:
    """Return a column of ids or labels as text: the number 3 and the float 3.0 are both "3".

    Args:
        column: values of any plain type.
        origin: the owner of the rows, as named in error messages.
        role: "group" or "label", as named in error messages.
        missing: whether values may be missing; they are null.

    Raises:
        DataError: a value is missing, or the column holds lists, structures or bytes.
    """
    try:
        text = _written(column).str.strip_chars().replace("", None)
    except pl.exceptions.PolarsError:
        raise _not_text(column, origin, role) from None
    if column.dtype.is_nested():
        raise _not_text(column, origin, role)
    if (count := text.null_count()) and not missing:
        raise DataError(
            f"{origin} has {count} rows without a value in the {role} column {column.name!r}; "
            f"fill them in or remove those rows before loading, {DECLARE}."
        )
    return text


def any_numbers(column: pl.Series, origin: str) -> FloatArray:
    """Return the number that is written in each row, NaN or infinite where none is: for rows that may be any.

    Property: a row's number depends on that row alone. "false" is 0, "true" is 1.

    Args:
        column: values of any plain type.
        origin: the owner of the rows, as named in error messages.

    Returns:
        float64 of shape (len(column),).

    Raises:
        DataError: the column's type, which is the file's and no row's, holds no numbers.
    """
    if column.dtype == pl.String:
        text = column.str.strip_chars().str.to_lowercase()
        said = text.replace_strict(["true", "false"], [1.0, 0.0], default=None, return_dtype=pl.Float64)
        column = text.cast(pl.Float64, strict=False).fill_null(said)
    elif not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
        raise _not_numeric(column.name, origin, f"its type is {column.dtype}", needed=True)
    return column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def any_codes(column: pl.Series, origin: str, n_classes: int | None) -> npt.NDArray[np.int64]:
    """Return the class that is written in each row, `NO_LABEL` where none is: for rows that may be any.

    Args:
        column: whole numbers from 0, as numbers or as text.
        origin: the owner of the rows, as named in error messages.
        n_classes: classes are 0 to n_classes - 1; None for up to `MOST_CLASSES`.

    Returns:
        int64 of shape (len(column),).

    Raises:
        DataError: as `any_numbers`.
    """
    values, most = any_numbers(column, origin), MOST_CLASSES if n_classes is None else n_classes
    known = (values >= 0.0) & (values < most) & (values == np.floor(values))
    return np.where(known, values, float(NO_LABEL)).astype(np.int64)


def sorted_names(columns: Sequence[pl.Series]) -> tuple[str, ...]:
    """Return the distinct texts of all columns together, in natural order."""
    return tuple(sorted({name for one in columns for name in one.drop_nulls().unique()}, key=natural_key))


def check_classes(classes: Sequence[str] | None, *, private: bool) -> None:
    """Check that labels have codes that depend on no row, where differential privacy will be claimed.

    Raises:
        ArgumentError: the classes are no list of different texts.
        PrivacyError: they are not declared.
    """
    if classes is None:
        if private:
            raise PrivacyError(
                "under differential privacy the classes of labels must be declared: one row of another label "
                "would change the codes of all. Name them with classes=, or leave label out."
            )
        return
    if isinstance(classes, str) or not all(isinstance(one, str) for one in classes) or repeated(classes):
        raise ArgumentError(
            f"classes must be a list of different texts, got classes={classes!r}.", parameters=["classes"]
        )


def classes_of(labels: Sequence[pl.Series], classes: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the names of labels' codes: those declared, else those found; None where nobody has labels."""
    if not labels:
        return None
    return sorted_names(labels) if classes is None else tuple(classes)


def codes(column: pl.Series, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the position of each text in `names`, int64 of shape (len(column),); -1 where it is none."""
    known = {name: place for place, name in enumerate(names)}
    positions = column.replace_strict({**known, None: NO_LABEL}, default=NO_LABEL, return_dtype=pl.Int64)
    return positions.to_numpy()


def _numbers(column: pl.Series, origin: str, needed: bool) -> FloatArray:
    if column.dtype == pl.String:
        column = _parsed(column, origin, needed)
    elif not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
        raise _not_numeric(column.name, origin, f"its type is {column.dtype}", needed)
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


def _parsed(column: pl.Series, origin: str, needed: bool) -> pl.Series:
    """Return the numbers or booleans that are written in a column of text, null where one is missing."""
    text = column.str.strip_chars().str.to_lowercase().replace(dict.fromkeys(MISSING))
    present = text.drop_nulls()
    if present.len() and present.is_in(["true", "false"]).all():
        return text == "true"
    numbers = text.cast(pl.Float64, strict=False)
    if unreadable := numbers.null_count() - text.null_count():
        commas = present.str.contains(_DECIMAL_COMMA).any()
        hint = "; some have a decimal comma: write them with a point" if commas else ""
        reason = f"{unreadable} of {len(text)} values are no numbers{hint}"
        raise _not_numeric(column.name, origin, reason, needed)
    return numbers


def _written(column: pl.Series) -> pl.Series:
    """Return a column as text, a whole float as an integer: integer ids become floats where some are missing.

    Each value by itself: in what way one is written would else depend on the others.
    """
    if not column.dtype.is_float():
        return column.cast(pl.String)
    column = column.fill_nan(None)
    whole = column.cast(pl.Int64, strict=False)
    as_whole, others = whole.cast(pl.String), column.cast(pl.String)
    return as_whole.zip_with((whole == column).fill_null(False), others)


def as_text(path: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of a table as text, blanks around it removed, an empty field as null.

    A whole number is written without a point: where values are missing, programs save whole ones as floats.

    Raises:
        DataError: a column holds lists, structures or bytes.
    """
    try:
        text = frame.select(_spelled(pl.col(name), kind) for name, kind in frame.schema.items())
        return text.select(pl.all().str.strip_chars().replace("", None))
    except pl.exceptions.PolarsError:
        raise DataError(f"{path} has a column that is no text, number or date; leave it out.") from None


def _spelled(column: pl.Expr, kind: pl.DataType) -> pl.Expr:
    if not kind.is_float():
        return column.cast(pl.String)
    whole = (column == column.floor()) & (column.abs() < 2.0**53)
    digits = column.cast(pl.Int64, strict=False).cast(pl.String)
    others = column.fill_nan(None).cast(pl.String)
    return pl.when(whole).then(digits).otherwise(others).alias(column.meta.output_name())


def _not_numeric(name: str, origin: str, reason: str, needed: bool) -> DataError:
    others = (
        ""
        if needed
        else "say what it is (group=, label=, id=), leave it out (drop=), choose others (columns=), or "
    )
    return DataError(f"column {name!r} of {origin} is not numeric ({reason}); {others}write numbers in it.")


def _not_text(column: pl.Series, origin: str, role: str) -> DataError:
    return DataError(
        f"the {role} column {column.name!r} of {origin} has type {column.dtype}; save texts or numbers in it."
    )


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
            array = arrays[name]
            if array.shape != (frame.height,) or array.dtype.kind not in "biufU":
                raise DataError(
                    f"array {name!r} of {path} has shape {array.shape} and type {array.dtype}; "
                    f"save one text or number for each of the {frame.height} rows of X."
                )
            values = array.tolist() if array.dtype.kind == "U" else _plain(array)
            frame = frame.with_columns(pl.Series(name, values))
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


def _plain(array: AnyArray) -> AnyArray:
    """Return an array of a type that polars supports, which excludes 80-bit floats."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array
