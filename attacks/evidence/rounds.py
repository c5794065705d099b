"""Makes a view of runs of other programs, from what their rounds show: centers, counts and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from privfed.core.asking.statistics import Statistics
from privfed.core.record.view import SumView, View
from privfed.core.values.domain import FloatArray, Ranges
from privfed.core.values.numbers import as_numbers
from privfed.errors import ArgumentError
from privfed.questions.lloyd import LloydSums

_WIDER = 10.0
"""The box of rows is so many times that of the cells' means, unless it is given, so that it cuts no row."""


def view_from_rounds(
    centers: Sequence[npt.ArrayLike],
    counts: Sequence[npt.ArrayLike],
    sums: Sequence[npt.ArrayLike],
    *,
    clients: Sequence[str] = (),
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
) -> View:
    """Return what a server saw of a k-means that another program ran, for any passive attack.

    Each round counts and adds up the rows nearest to each center. A round that shows means instead has sums
    of counts times means. Runs of several fits are joined by `pooled`.

    Args:
        centers: of each round, those that the clients were sent, float64 of shape (n_clusters, n_features).
        counts: of each round, (n_clusters,) in total, or (n_clients, n_clusters) for single answers.
        sums: of each round, (n_clusters, n_features), or (n_clients, n_clusters, n_features).
        clients: names of the clients; needed where totals are shown, and their number is not.
        low: smallest value of each feature, (n_features,), if it is known; with `high`.
        high: largest value of each feature.

    Raises:
        ArgumentError: shapes do not fit together, counts are negative, or a value is not finite.
    """
    if not len(centers) or not len(centers) == len(counts) == len(sums):
        raise ArgumentError(
            f"each round has centers, counts and sums; got {len(centers)}, {len(counts)} and {len(sums)}."
        )
    tables = [
        tuple(as_numbers(name, one) for name, one in zip(("centers", "counts", "sums"), each, strict=True))
        for each in zip(centers, counts, sums, strict=True)
    ]
    n_clients = {one.shape[0] if one.ndim == 2 else 0 for _, one, _ in tables}
    for t, (center, count, total) in enumerate(tables):
        if (
            center.ndim != 2
            or count.shape[-1:] != center.shape[:1]
            or total.shape != (*count.shape, center.shape[1])
        ):
            raise ArgumentError(
                f"round {t} has centers {center.shape}, counts {count.shape} and sums {total.shape}; they "
                "need (k, d), (k,) or (clients, k), and the shape of the counts with d at the end."
            )
        if not all(np.isfinite(one).all() for one in (center, count, total)):
            raise ArgumentError(f"centers, counts and sums of round {t} must be finite.")
        if (count < 0).any():
            raise ArgumentError(f"counts of round {t} must not be negative, got {count.min():g}.")
    if len(n_clients) > 1 or (max(n_clients) and clients and len(clients) != max(n_clients)):
        raise ArgumentError(
            f"all rounds need the same clients, got {sorted(n_clients)}, named {list(clients)}."
        )
    names = tuple(clients) or tuple(f"client {i}" for i in range(max(max(n_clients), 1)))
    ranges = _ranges(tables, low, high)
    return View(
        "server",
        (),
        names,
        tuple(_seen(t, len(names), ranges, *one) for t, one in enumerate(tables)),
        {"centers": tables[-1][0]},
    )


def _seen(
    index: int, n_clients: int, ranges: Ranges, centers: FloatArray, counts: FloatArray, sums: FloatArray
) -> SumView:
    question, everyone = LloydSums(ranges=ranges, centers=centers), tuple(range(n_clients))
    answers: Mapping[int, Statistics] = {}
    if counts.ndim == 2:
        answers = {i: Statistics(count=counts[i], sum=sums[i]) for i in everyone}
        counts, sums = counts.sum(axis=0), sums.sum(axis=0)
    total = Statistics(count=counts, sum=sums)
    return SumView(index, "round", question, everyone, everyone, total, answers, {})


def _ranges(
    tables: Sequence[tuple[FloatArray, ...]], low: npt.ArrayLike | None, high: npt.ArrayLike | None
) -> Ranges:
    most = int(max(np.rint(counts.sum(axis=-1)).max() for _, counts, _ in tables))
    if (low is None) is not (high is None):
        raise ArgumentError("low and high go together; pass both or none.", parameters=["low", "high"])
    if low is not None and high is not None:
        return Ranges(as_numbers("low", low), as_numbers("high", high), most)
    held = [(sums[counts > 0] / counts[counts > 0][:, None], centers) for centers, counts, sums in tables]
    points = np.concatenate([np.concatenate(one) for one in held])
    middle, width = points.mean(axis=0), np.maximum(np.ptp(points, axis=0), 1e-9 * (1 + np.abs(points).max()))
    return Ranges(middle - _WIDER * width, middle + _WIDER * width, most)
