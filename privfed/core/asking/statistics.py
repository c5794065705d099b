"""Statistics that add up, and the specification of their layout and ranges.

Property (`tests/core/test_statistics.py`): for all statistics a, b of one specification,
`spec.unflatten(spec.flatten(a) + spec.flatten(b)) == a + b`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privfed.core.stored.encoding import Array
from privfed.core.values.computed import Computed
from privfed.core.values.domain import FloatArray, frozen, frozen_array
from privfed.errors import ArgumentError

Layout = tuple[tuple[str, tuple[int, ...]], ...]


class Statistics(Mapping[str, FloatArray]):
    """A frozen mapping of names to float64 arrays; two of the same layout are added entry by entry.

    Args:
        arrays: by name; they are copied.

    Attributes:
        layout: names and shapes, in order.
        vector: all numbers in that order, read-only float64 of shape (size,), of which each array is a view.
    """

    __slots__ = ("layout", "vector")

    layout: Layout
    vector: FloatArray

    def __init__(self, **arrays: npt.ArrayLike) -> None:
        given = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
        self.layout = tuple((name, array.shape) for name, array in given.items())
        self.vector = frozen(np.concatenate([np.empty(0), *(array.ravel() for array in given.values())]))

    @classmethod
    def of(cls, layout: Layout, vector: FloatArray) -> Statistics:
        """Return statistics of a layout whose arrays are views of a read-only flat vector."""
        made = cls.__new__(cls)
        made.layout, made.vector = layout, vector
        return made

    def __getitem__(self, name: str) -> FloatArray:
        start = 0
        for own, shape in self.layout:
            stop = start + prod(shape)
            if own == name:
                return self.vector[start:stop].reshape(shape)
            start = stop
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.layout)

    def __len__(self) -> int:
        return len(self.layout)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return self.layout == other.layout and np.array_equal(self.vector, other.vector)

    __hash__ = None  # type: ignore[assignment]  # As of every mapping.

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if self.layout != other.layout:
            raise ArgumentError(
                f"statistics of different layouts do not add: {self.layout} and {other.layout}."
            )
        return Statistics.of(self.layout, frozen(self.vector + other.vector))

    def __repr__(self) -> str:
        return f"Statistics({', '.join(f'{name}{list(shape)}' for name, shape in self.layout)})"


@dataclass(frozen=True, slots=True, eq=False)
class StatisticsTable(Computed[Statistics]):
    """The statistics of several clients, of one layout, as one table.

    Args:
        layout: names and shapes, in order.
        vectors: one flat vector a client, read-only float64 of shape (n_clients, size).
    """

    layout: Layout
    vectors: FloatArray

    def __len__(self) -> int:
        return len(self.vectors)

    def item(self, place: int) -> Statistics:
        """Return the statistics of one client."""
        return Statistics.of(self.layout, self.vectors[place])


def table_of(several: Sequence[Statistics]) -> StatisticsTable:
    """Return statistics of one layout as a table."""
    return StatisticsTable(several[0].layout, frozen(np.stack([one.vector for one in several])))


def wire(statistics: Statistics) -> dict[str, Array]:
    """Return statistics as records and parties' states hold them."""
    return {name: Array.from_numpy(array) for name, array in statistics.items()}


def unwire(arrays: Mapping[str, Array]) -> Statistics:
    """Return the statistics that `wire` wrote."""
    return Statistics(**{name: array.to_numpy() for name, array in arrays.items()})


class Within(NamedTuple):
    """States that each value is a weight, which another entry holds, times something between two ends.

    Attributes:
        weights: name of the other entry, whose shape the entry's own begins with or broadcasts to.
        low: lowest end; broadcasts to the entry's shape.
        high: highest end, likewise.
    """

    weights: str
    low: npt.ArrayLike
    high: npt.ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One named array of a specification, with the range that a client's answer keeps to.

    Args:
        name: name of the array.
        shape: its shape.
        low: smallest value of each entry in one client's answer; broadcasts to `shape`.
        high: largest value of each entry in one client's answer; broadcasts to `shape`.
        resolution: coarsest quantisation step of the fixed-point grid that is acceptable; broadcasts to
            `shape`. Of proven answers it is coarser where a number does not fit into one word.
        within: how its values hang together with those of another entry, or None.
    """

    name: str
    shape: tuple[int, ...]
    low: npt.ArrayLike
    high: npt.ArrayLike
    resolution: npt.ArrayLike
    within: Within | None = None

    def __post_init__(self) -> None:
        for field in ("low", "high", "resolution"):
            given = frozen_array(getattr(self, field))
            if not np.isfinite(given).all():
                raise ArgumentError(f"{field} of entry {self.name!r} must be finite.")
            object.__setattr__(self, field, given)
        if np.any(np.asarray(self.low) > np.asarray(self.high)):
            raise ArgumentError(f"entry {self.name!r} has a low above its high.")
        if np.any(np.asarray(self.resolution) <= 0):
            raise ArgumentError(f"entry {self.name!r} needs a positive resolution.")
        # Views: an entry takes no more memory than what was given for it, whatever its shape.
        for field in ("low", "high", "resolution"):
            object.__setattr__(self, field, np.broadcast_to(getattr(self, field), self.shape))


def short(values: npt.ArrayLike) -> FloatArray:
    """Return one number for an array of that number alone, as ranges of most entries are; else the array."""
    array = np.asarray(values)
    return np.asarray(array.flat[0]) if array.size and not any(array.strides) else array


class StatisticsSpec:
    """Names, shapes and per-entry ranges of one question's statistics; fixes the flat layout.

    Ranges and steps are as long as an answer, and are made each time that they are asked for. Specifications
    of the same layout and ranges are equal.

    Args:
        entries: the named arrays, in the order of the flat layout.
    """

    def __init__(self, *entries: Entry) -> None:
        if not entries or len({entry.name for entry in entries}) != len(entries):
            raise ArgumentError("a specification needs at least one entry, and each name once.")
        self.entries = entries
        self.size = sum(prod(entry.shape) for entry in entries)
        self.layout = tuple((entry.name, entry.shape) for entry in entries)
        """Names and shapes, in order."""

    @property
    def _ranges(self) -> tuple[bytes, ...]:
        ends = (end for one in self.entries for end in (one.low, one.high, one.resolution))
        return tuple(short(end).tobytes() for end in ends)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StatisticsSpec):
            return NotImplemented
        return self.layout == other.layout and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash((self.layout, self._ranges))

    @property
    def low(self) -> FloatArray:
        """Smallest value of each number of an answer, float64 of shape (size,)."""
        return self._flat("low")

    @property
    def high(self) -> FloatArray:
        """Largest value of each number, likewise."""
        return self._flat("high")

    @property
    def resolution(self) -> FloatArray:
        """Coarsest step of each number, likewise."""
        return self._flat("resolution")

    def _flat(self, field: str) -> FloatArray:
        return frozen(np.concatenate([np.ravel(getattr(entry, field)) for entry in self.entries]))

    def check(self, statistics: Statistics) -> None:
        """Check names and shapes.

        Raises:
            ArgumentError: the statistics have another layout.
        """
        if statistics.layout != self.layout:
            raise ArgumentError(
                f"statistics have layout {statistics.layout}, the question asks for {self.layout}."
            )

    def flatten(self, statistics: Statistics) -> FloatArray:
        """Return the statistics as one read-only float64 vector of shape (size,).

        Raises:
            ArgumentError: the statistics have another layout.
        """
        self.check(statistics)
        return statistics.vector

    def tabled(self, **arrays: FloatArray) -> StatisticsTable:
        """Return the statistics of several clients; each array has one entry a client along its first axis.

        Raises:
            ArgumentError: they are others than the specification's, or of other shapes.
        """
        given = tuple((name, array.shape[1:]) for name, array in arrays.items())
        if given != self.layout:
            raise ArgumentError(f"statistics have layout {given}, the question asks for {self.layout}.")
        flat = [array.reshape(len(array), prod(array.shape[1:])) for array in arrays.values()]
        return StatisticsTable(self.layout, frozen(np.concatenate(flat, axis=1, dtype=np.float64)))

    def unflatten(self, vector: FloatArray) -> Statistics:
        """Return the statistics of a flat float64 vector of shape (size,), the inverse of `flatten`.

        Raises:
            ArgumentError: the vector has another shape.
        """
        if vector.shape != (self.size,):
            raise ArgumentError(f"a vector of shape {vector.shape} does not fit {self.size} entries.")
        return Statistics.of(self.layout, frozen_array(vector))

    def clip(self, vector: FloatArray) -> tuple[FloatArray, int]:
        """Clip a flat answer to its ranges; return it with the number of values that were outside."""
        clipped = np.clip(vector, self.low, self.high)
        return clipped, int(np.count_nonzero(clipped != vector))

    def holds(self, vectors: FloatArray) -> bool:
        """Say whether flat answers, float64 of shape (..., size), lie in their ranges; NaN never does."""
        start = 0
        for entry in self.entries:
            own = vectors[..., start : (start := start + prod(entry.shape))]
            own = own.reshape((*vectors.shape[:-1], *entry.shape))
            if not ((own >= short(entry.low)).all() and (own <= short(entry.high)).all()):
                return False
        return True

    def bounds(self, n: int, total: Statistics | None = None) -> Iterator[tuple[str, FloatArray, FloatArray]]:
        """Yield name, lowest and highest values of an entry in a total of `n` answers.

        An entry comes once with n times its range. Given the total, it comes once more where weights of the
        same total bound it. Bounds are widened by what rounding on a grid and in float64 sums adds.
        """
        steps = {entry.name: entry.resolution for entry in self.entries}
        for entry in self.entries:
            ends = [short(entry.low), short(entry.high)]
            yield entry.name, *_widened(ends, np.float64(n), n * short(entry.resolution))
            if total is not None and entry.within is not None:
                name, weights = entry.within.weights, total[entry.within.weights]
                ends = [np.asarray(end) for end in entry.within[1:]]
                size = np.maximum(*map(np.abs, ends))
                if weights.shape == entry.shape[: weights.ndim]:
                    weights = weights.reshape(weights.shape + (1,) * (len(entry.shape) - weights.ndim))
                step = n * (entry.resolution + size * np.max(steps[name]))
                yield entry.name, *_widened(ends, weights, step)


ROUNDED = 2.0**-26
"""Share of a sum by which float64 additions of its terms may change it."""


def _widened(
    ends: Sequence[FloatArray], weights: FloatArray | np.float64, step: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the ends times weights, moved apart by rounding."""
    margin = step + ROUNDED * np.abs(weights) * np.maximum(*map(np.abs, ends))
    return weights * ends[0] - margin, weights * ends[1] + margin
