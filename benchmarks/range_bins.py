"""What a second range sum shows whoever has a complete list of candidates, beside how near its range is.

    python benchmarks/range_bins.py

Half of a table's rows are members, spread over clients. The attack knows all rows, and names each that is
alone in a bin that some client marks with its smallest or largest value. Such a name is never wrong. Bins by
octaves grow around the mean of the members; even ones divide the range that the first sum found. "loose" asks
only the columns that `privfed.questions.ranges.loose` names. Figures are means of ten draws of the members.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from privfed.core.values.domain import FloatArray, Ranges
from privfed.questions.ranges import FINER_OCTAVES, FeatureRanges, edges, loose, subdivisions

Between = Callable[[FloatArray, Ranges, int], FloatArray]


def octaves(parts: int) -> Between:
    """Return bins of so many parts an octave around the mean."""

    def between(rows: FloatArray, ranges: Ranges, column: int) -> FloatArray:
        reach = np.ldexp(1.0, np.frexp(ranges.width[column])[1])
        return rows[:, column].mean() + reach * edges(parts, -FINER_OCTAVES, 0)

    return between


def even(bins: int) -> Between:
    """Return so many bins of one width."""
    return lambda rows, ranges, column: np.linspace(ranges.low[column], ranges.high[column], bins + 1)


def bins_of(values: FloatArray, between: FloatArray) -> np.ndarray:
    """Return the bin of each value."""
    return np.clip(np.searchsorted(between, values, side="right") - 1, 0, len(between) - 2)


def located(rows: FloatArray) -> Ranges:
    """Return the ranges that the first sum finds."""
    known = edges(subdivisions(rows.shape[1]))
    first, last = (bins_of(end, known) for end in (rows.min(axis=0), rows.max(axis=0)))
    return Ranges(known[first], known[last + 1], len(rows))


def named(rows: FloatArray, members: np.ndarray, owner: np.ndarray, bins: dict[int, FloatArray]) -> float:
    """Return the share of the members that the marked bins of some columns name."""
    hit = np.zeros(len(rows), dtype=bool)
    for column, between in bins.items():
        own = bins_of(rows[:, column], between)
        alone = np.bincount(own, minlength=len(between))[own] == 1
        for client in np.unique(owner[members]):
            held = np.flatnonzero(members & (owner == client))
            ends = held[[rows[held, column].argmin(), rows[held, column].argmax()]]
            hit[ends] |= alone[ends]
    return float(hit[members].mean())


def measured(rows: FloatArray, n_clients: int) -> dict[str, float]:
    """Return what each kind of bins names, in the mean of ten draws; 0 clients are one for each row."""
    found: dict[str, list[float]] = {}
    rng = np.random.default_rng(0)
    for _ in range(10):
        members = rng.random(len(rows)) < 0.5
        n = n_clients or int(members.sum())
        owner = np.zeros(len(rows), dtype=int)
        owner[members] = rng.permutation(np.arange(members.sum()) % n)
        own = rows[members]
        ranges, every = located(own), range(rows.shape[1])
        asked = loose(ranges).tolist()
        first = edges(subdivisions(len(every)))
        kinds: dict[str, dict[int, FloatArray]] = {"first": dict.fromkeys(every, first), "second": {}}
        if asked:
            finer = FeatureRanges(ranges=ranges, find_ranges=True, center=ranges.clip(own.mean(axis=0)))
            kinds["second"] = dict(zip(asked, finer.edges, strict=True))
        for name, between in {
            "octaves/16": octaves(16),
            "octaves/4": octaves(4),
            "even 64": even(64),
            "even 256": even(256),
        }.items():
            kinds[name] = {column: between(own, ranges, column) for column in every}
            kinds[f"{name} loose"] = {column: kinds[name][column] for column in asked}
        for name, bins in kinds.items():
            found.setdefault(name, []).append(named(rows, members, owner, bins))
    return {name: float(np.mean(shares)) for name, shares in found.items()}


def main() -> None:
    """Print the table."""
    for load in (load_wine, load_breast_cancer, load_iris):
        for n_clients in (4, 10, 30, 0):
            figures = measured(load().data, n_clients)
            shown = ", ".join(f"{name} {share:.2f}" for name, share in figures.items())
            print(f"{load.__name__[5:]}, {n_clients or 'one-row'} clients: {shown}")


if __name__ == "__main__":
    main()
