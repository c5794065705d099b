"""What a statistician would say after a fit, from what it has released alone; nobody is asked further."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from privfed.cli.result import Result
from privfed.core.record.records import Asked, question_of

if TYPE_CHECKING:
    from privfed.estimators.base import FederatedClusterer

_UNLIKE = 30.0
"""Widths of ranges that differ by more are unlike scales."""

_HARDLY = 1e-4
"""A column with a smaller standard deviation hardly varies, in widths of its range."""

_FEWEST_ROWS = 10
"""Fewer rows for each cluster say little of it."""


def unlike_ranges(model: FederatedClusterer, columns: Sequence[str]) -> tuple[str, str] | None:
    """Return a remark on ranges of unlike widths where nothing scales them, and one on a constant column."""
    if model.scaling_ is not None or not model.transcript_.of(Asked):
        return None
    ranges = question_of(model.transcript_.of(Asked)[-1]).ranges
    width = ranges.high - ranges.low
    # A range that was declared as one value is on no scale.
    wide, narrow = int(np.argmax(width)), int(np.argmin(np.where(width > 0.0, width, np.inf)))
    if width[wide] <= _UNLIKE * width[narrow]:
        return None
    # A range that is found has edges of bins: that of a single value is as narrow as they lie apart.
    constant = f" If {columns[narrow]} is one value in all rows, leave it out." * bool(
        width[narrow] < max(abs(ranges.low[narrow]), abs(ranges.high[narrow])) / 8
    )
    return (
        f"the range of {columns[wide]} is {width[wide] / width[narrow]:.0f} times that of {columns[narrow]}, "
        "and distances follow the wider one",
        constant,
    )


def hints(model: FederatedClusterer, result: Result, blocks: Sequence[Sequence[int]] = ()) -> Iterator[str]:
    """Yield a line for each thing that a reader of the centroids should know.

    Args:
        model: that was fitted.
        result: of its fit.
        blocks: features that are the categories of one column each; a category alone cannot be left out.
    """
    if (unlike := unlike_ranges(model, result.columns)) is not None:
        yield f"{unlike[0]}: --scale puts all columns on one scale.{unlike[1]}"
    if (rows := result.rows) is not None and rows < _FEWEST_ROWS * result.n_clusters:
        each = "one row or less" if rows <= result.n_clusters else f"{rows / result.n_clusters:.0f} rows"
        yield f"{result.n_clusters} clusters of {rows} rows have {each} each on average: take a smaller -k."
    if result.profile is not None and model.transcript_.of(Asked):
        ranges = question_of(model.transcript_.of(Asked)[-1]).ranges
        scale = 1.0 if model.scaling_ is None else np.array(model.scaling_.scale)
        still = np.array(result.profile["std"]) <= _HARDLY * (ranges.high - ranges.low) * scale
        for block in map(list, blocks):
            still[block] = still[block].all()
        if named := ", ".join(result.columns[j] for j in np.flatnonzero(still)):
            yield f"these columns hardly vary, and tell no clusters apart: {named}; leave them out."
    if result.profile is not None and len(result.clients) > 1:
        for i, (size, there) in enumerate(
            zip(result.profile["sizes"], result.profile["clients"], strict=True)
        ):
            if there == 1.0 and size >= _FEWEST_ROWS:
                yield (
                    f"all {size:.0f} rows of cluster {i} are one client's: if it measures in another unit, "
                    "privfed summary --between names the column."
                )
