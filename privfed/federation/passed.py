"""What users pass to `fit`: a list or a dict of tables, or one table; columns are matched by their names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.sparse import issparse

from privfed.errors import ArgumentError, DataError


def is_named(X: Any) -> bool:
    """Say whether `X` is a dict of tables by the clients' names. Some sparse tables are mappings, too."""
    return isinstance(X, Mapping) and not issparse(X)


def as_passed(X: Any, groups: Any = None, y: Any = None, names: Any = None) -> tuple[Any, Any, Any, Any]:
    """Return tables with their groups, labels and names: a dict of tables as a list with names.

    A table with a column of groups becomes two things, and what a frame's `groupby` returns is a dict of
    tables. Columns of tables with the same names in another order are put into the order of the first table.

    Raises:
        ArgumentError: clients are named twice, or no column has the name of `groups`.
        DataError: labels are of other clients.
    """
    if type(X).__name__ in ("DataFrameGroupBy", "GroupBy"):  # of pandas, and of polars
        by = X.by if type(X).__name__ == "GroupBy" else X.keys
        X = {
            "-".join(map(str, np.atleast_1d(key))): one[
                [name for name in one.columns if not np.isin(name, by)]
            ]
            for key, one in X
        }
    if is_named(X):
        if groups is not None or names is not None:
            raise ArgumentError(
                "the keys of X name the clients: leave groups and client_names out.",
                parameters=["client_names"],
            )
        if is_named(y):
            if set(y) != set(X):
                raise DataError("y is a dict of other clients than X; give both the same keys.")
            y = [y[name] for name in X]
        X, names = list(X.values()), list(X)
    if isinstance(groups, str):
        columns = list(getattr(X, "columns", ()))
        if groups not in columns:
            raise ArgumentError(
                f"groups={groups!r} is no column of X, which has {', '.join(map(str, columns)) or 'none'}; "
                "name one, or pass the client of each row."
            )
        X, groups = X[[one for one in columns if one != groups]], np.asarray(X[groups])
    return _aligned(X) if is_client_list(X) else X, groups, y, names


def _aligned(tables: Sequence[Any]) -> list[Any]:
    """Return tables whose columns have the same names in the order of the first one's."""
    found = [list(getattr(one, "columns", ())) for one in tables]
    first = next((one for one in found if one), [])
    return [
        table[first] if own != first and own and len(own) == len(first) and set(own) == set(first) else table
        for table, own in zip(tables, found, strict=True)
    ]


def is_client_list(X: Any) -> bool:
    """Say whether `X` is a list of tables, one a client, rather than one table (a list of rows)."""
    return isinstance(X, list | tuple) and (len(X) == 0 or any(_n_axes(one) >= 2 for one in X))


def _n_axes(table: Any) -> int:
    try:
        return np.ndim(table)
    except ValueError:  # rows of different lengths
        return 0


def on_each(X: Any, mapped: Callable[[Any], Any]) -> Any:
    """Return a mapped table; of several tables a list, or a dict of them, as they were passed."""
    if is_named(X):
        return {name: mapped(one) for name, one in X.items()}
    return [mapped(one) for one in X] if is_client_list(X) else mapped(X)


def check_one_table(X: Any) -> None:
    """Check that `X` is no list of tables, where one table of rows is needed.

    Raises:
        DataError: it is one; the message says how to pass it.
    """
    if (is_client_list(X) and len(X)) or (isinstance(X, np.ndarray) and X.ndim == 3):
        raise DataError("X holds several tables; pass each by itself: [model.predict(one) for one in X].")


def check_given(X: Any) -> None:
    """Check that `X` is a table or a list of tables, and holds numbers.

    scikit-learn's own checks come later; their messages know no clients, and quote values.

    Raises:
        DataError: `fit` cannot take it; the message says how to pass it.
    """
    if X is None or isinstance(X, int | float | Iterator | str | bytes | os.PathLike):
        raise DataError(
            f"X is {type(X).__name__!r}; pass a list with one array a client, or one array with groups=. "
            "privfed.data.load_clients(path).arrays is such a list, from a file."
        )
    if np.ma.is_masked(X):
        raise DataError("X holds masked values; drop or impute these rows.")
    if is_client_list(X):
        return
    if isinstance(X, np.ndarray) and X.ndim == 3:
        raise DataError("X has three axes; pass list(X), one table of shape (n_rows, n_features) a client.")
    if isinstance(X, list | tuple) and len({len(one) for one in X if hasattr(one, "__len__")}) > 1:
        raise DataError(
            "X is a list of entries of different lengths; pass one array of shape (n_rows, n_features) a "
            "client (of one feature: array.reshape(-1, 1)), or rows of one length."
        )
    table = np.asarray(X)
    if table.ndim == 0 or table.dtype.kind not in "OUS":
        return
    with suppress(TypeError):  # For other objects than text and numbers, scikit-learn's message suffices.
        try:
            table.astype(np.float64)
        except ValueError:
            raise DataError("all values of X must be numbers; encode or drop the other columns.") from None
