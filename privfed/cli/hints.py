"""What a statistician would say of a finished fit, from what it has released alone; nobody is asked."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from privfed.cli.result import Result
from privfed.core.record.records import Asked, question_of
from privfed.estimators.base import FederatedClusterer

_UNLIKE = 30.0
"""Widths of ranges that differ by more are unlike scales."""

_HARDLY = 1e-4
"""A column with a smaller standard deviation hardly varies, in widths of its range."""

_FEWEST_ROWS = 10
"""Fewer rows for each cluster say little of it."""


def hints(model: FederatedClusterer, result: Result) -> Iterator[str]:
    """Yield a line for each thing that a reader of the centroids should know."""
    if model.scaling_ is None and model.transcript_.of(Asked):
        ranges = question_of(model.transcript_.of(Asked)[-1]).ranges
        width = ranges.high - ranges.low
        # A range that was declared as one value is on no scale.
        wide, narrow = int(np.argmax(width)), int(np.argmin(np.where(width > 0.0, width, np.inf)))
        if width[wide] > _UNLIKE * width[narrow]:
            names, size = result.columns, max(abs(ranges.low[narrow]), abs(ranges.high[narrow]))
            # A range that is found has edges of bins: that of a single value is as narrow as they lie apart.
            constant = f" If {names[narrow]} is one value in all rows, leave it out." * bool(
                width[narrow] < size / 8
            )
            yield (
                f"the range of {names[wide]} is {width[wide] / width[narrow]:.0f} times that of "
                f"{names[narrow]}, and distances follow the wider one: --scale puts all columns on one "
                f"scale.{constant}"
            )
    rows = result.rows
    if rows is not None and rows < _FEWEST_ROWS * result.n_clusters:
        each = "one row or less" if rows <= result.n_clusters else f"{rows / result.n_clusters:.0f} rows"
        yield f"{result.n_clusters} clusters of {rows} rows have {each} each on average: take a smaller -k."
    if result.profile is not None and model.transcript_.of(Asked):
        ranges = question_of(model.transcript_.of(Asked)[-1]).ranges
        scale = 1.0 if model.scaling_ is None else np.array(model.scaling_.scale)
        still = np.array(result.profile["std"]) <= _HARDLY * (ranges.high - ranges.low) * scale
        if named := ", ".join(result.columns[j] for j in np.flatnonzero(still)):
            yield f"these columns hardly vary, and tell no clusters apart: {named}; leave them out."
    if result.profile is not None and (empty := sum(size == 0.0 for size in result.profile["sizes"])):
        yield f"{empty} of {result.n_clusters} clusters have no rows: take a smaller -k."
