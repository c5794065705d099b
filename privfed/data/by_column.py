"""The partition with one client for each value of a column, such as patients by hospital.

Source: Stallmann and Wilbik 2022, section 3.2.3 (bank customers by job). Laws: those of
`privfed.data.partition`, and the rows of a client share one value.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privfed.data.partition import RowNumbers
from privfed.errors import DataError


def by_column(values: npt.ArrayLike) -> dict[str, RowNumbers]:
    """Give each value of a column its own client.

    Args:
        values: the column, of any sortable type, shape (n_rows,).

    Returns:
        Value as text -> row numbers of its client, ascending int64 of shape (n_rows of the client,), in
        ascending order of values. `list(split.values())` has the form of the results of `partition`.

    Raises:
        DataError: the column is empty, has another shape, misses values, or two values have the same text.
    """
    column = np.asarray(values)
    if column.ndim != 1 or column.size == 0:
        raise DataError(f"a column to split by needs shape (n_rows,) and rows, got shape {column.shape}.")
    if column.dtype.kind == "f" and np.isnan(column).any():
        raise DataError("the column to split by misses values; fill them in or remove those rows.")
    try:
        found, members = np.unique(column, return_inverse=True)
    except TypeError:
        raise DataError(
            "the column to split by misses values or mixes types; give texts or numbers, none missing."
        ) from None
    if any(one is None for one in found.tolist()):
        raise DataError("the column to split by misses values; fill them in or remove those rows.")
    names = [str(value) for value in found.tolist()]
    if len(set(names)) < len(names):
        raise DataError("two values of the column to split by have the same text; encode them differently.")
    order = np.argsort(members, kind="stable")
    rows = np.split(order, np.cumsum(np.bincount(members))[:-1])
    return dict(zip(names, rows, strict=True))
