"""Statistics that add up, and the specification of their layout and ranges.

Property (`tests/core/test_statistics.py`): for all statistics a, b of one specification,
`spec.unflatten(spec.flatten(a) + spec.flatten(b)) == a + b`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import overload

import numpy as np
import numpy.typing as npt

from privfed.core.values.domain import FloatArray, frozen, frozen_array
from privfed.errors import ArgumentError

Layout = tuple[tuple[str, tuple[int, ...]], ...]


class Statistics(Mapping[str, FloatArray]):
    """A frozen mapping of names to float64 arrays; two of the same layout are added entry by entry."""

    __slots__ = ("_held", "_place", "_table")

    def __init__(self, **arrays: npt.ArrayLike) -> None:
        self._table: StatisticsTable | None = None
        self._place = 0
        self._held: Mapping[str, FloatArray] | None = MappingProxyType(
            {name: frozen_array(array) for name, array in arrays.items()}
        )

    @classmethod
    def views(cls, layout: Layout, vector: FloatArray) -> Statistics:
        """Return statistics of a layout whose arrays are views of a read-only flat vector."""
        arrays, start = {}, 0
        for name, shape in layout:
            arrays[name] = vector[start : (start := start + prod(shape))].reshape(shape)
        made = cls()
        made._held = MappingProxyType(arrays)
        return made

    @classmethod
    def of_row(cls, table: StatisticsTable, place: int) -> Statistics:
        """Return the statistics of one client in a table; their arrays are made when they are asked for."""
        made = cls.__new__(cls)
        made._held, made._table, made._place = None, table, place
        return made

    @property
    def _arrays(self) -> Mapping[str, FloatArray]:
        if self._held is None and self._table is not None:
            self._held = Statistics.views(self._table.layout, self._table.vectors[self._place])._held
        return self._held or {}

    @property
    def vector(self) -> FloatArray | None:
        """The flat vector of statistics in a table; None of others."""
        return None if self._table is None else self._table.vectors[self._place]

    def known_to_hold(self, spec: StatisticsSpec) -> bool:
        """Say whether these are statistics in a table that keeps to the ranges of a specification."""
        return self._table is not None and self._table.holds(spec)

    def __getitem__(self, name: str) -> FloatArray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return self.layout == other.layout and all(np.array_equal(self[name], other[name]) for name in self)

    __hash__ = None  # type: ignore[assignment]  # As of every mapping.

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if self.layout != other.layout:
            raise ArgumentError(
                f"statistics of different layouts do not add: {self.layout} and {other.layout}."
            )
        return Statistics(**{name: self[name] + other[name] for name in self})

    @property
    def layout(self) -> Layout:
        """Names and shapes, in order."""
        if self._table is not None:
            return self._table.layout
        return tuple((name, array.shape) for name, array in self._arrays.items())

    def __repr__(self) -> str:
        return f"Statistics({', '.join(f'{name}{list(shape)}' for name, shape in self.layout)})"


class StatisticsTable(Sequence[Statistics]):
    """The statistics of several clients, of one layout, as one table.

    Args:
        layout: names and shapes, in order.
        vectors: one flat vector a client, read-only float64 of shape (n_clients, size).
    """

    def __init__(self, layout: Layout, vectors: FloatArray) -> None:
        self.layout, self.vectors = layout, vectors
        self._held: tuple[StatisticsSpec, bool] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    @overload
    def __getitem__(self, place: int) -> Statistics: ...

    @overload
    def __getitem__(self, place: slice) -> list[Statistics]: ...

    def __getitem__(self, place: int | slice) -> Statistics | list[Statistics]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"client {place} of {len(self)}")
        return Statistics.of_row(self, place)

    def __iter__(self) -> Iterator[Statistics]:
        return (Statistics.of_row(self, place) for place in range(len(self)))

    def holds(self, spec: StatisticsSpec) -> bool:
        """Say whether all clients' statistics keep to the ranges of a specification; found once for each."""
        if self._held is None or self._held[0] is not spec:
            self._held = spec, self.layout == spec.layout and spec.holds(self.vectors)
        return self._held[1]


def table_of(several: Sequence[Statistics]) -> StatisticsTable:
    """Return statistics of one layout as a table: the one whose rows they are, or a new one."""
    first = several[0]
    table = first._table
    if table is not None and len(table) == len(several):
        places = enumerate(several)
        if all(one._table is table and one._place == place for place, one in places):
            return table
    flat = [
        np.concatenate([array.ravel() for array in one.values()]) if one.vector is None else one.vector
        for one in several
    ]
    return StatisticsTable(first.layout, frozen(np.stack(flat)))


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One named array of a specification, with the range that a client's answer keeps to.

    Args:
        name: name of the array.
        shape: its shape.
        low: smallest value of each entry in one client's answer; broadcasts to `shape`.
        high: largest value of each entry in one client's answer; broadcasts to `shape`.
        resolution: coarsest quantisation step of the fixed-point grid that is acceptable; broadcasts to
            `shape`.
    """

    name: str
    shape: tuple[int, ...]
    low: npt.ArrayLike
    high: npt.ArrayLike
    resolution: npt.ArrayLike

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


class StatisticsSpec:
    """Names, shapes and per-entry ranges of one question's statistics; fixes the flat layout.

    Ranges and steps are as long as an answer, and are made when they are first asked for.

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

    @cached_property
    def low(self) -> FloatArray:
        """Smallest value of each number of an answer, float64 of shape (size,)."""
        return self._flat("low")

    @cached_property
    def high(self) -> FloatArray:
        """Largest value of each number, likewise."""
        return self._flat("high")

    @cached_property
    def resolution(self) -> FloatArray:
        """Coarsest step of each number, likewise."""
        return self._flat("resolution")

    def _flat(self, field: str) -> FloatArray:
        return frozen_array(np.concatenate([np.ravel(getattr(entry, field)) for entry in self.entries]))

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
        """Return the statistics as one float64 vector of shape (size,).

        Raises:
            ArgumentError: the statistics have another layout.
        """
        self.check(statistics)
        vector = statistics.vector
        if vector is not None:
            return vector
        return np.concatenate([statistics[entry.name].ravel() for entry in self.entries])

    def tabled(self, **arrays: FloatArray) -> StatisticsTable:
        """Return the statistics of several clients; each array has one entry a client along its first axis.

        Raises:
            ArgumentError: they are others than the specification's, or of other shapes.
        """
        given = tuple((name, array.shape[1:]) for name, array in arrays.items())
        if given != self.layout:
            raise ArgumentError(f"statistics have layout {given}, the question asks for {self.layout}.")
        flat = [array.reshape(len(array), prod(array.shape[1:])) for array in arrays.values()]
        vectors = np.concatenate(flat, axis=1, dtype=np.float64)
        return StatisticsTable(self.layout, frozen(vectors))

    def unflatten(self, vector: FloatArray) -> Statistics:
        """Return the statistics of a flat float64 vector of shape (size,), the inverse of `flatten`.

        Raises:
            ArgumentError: the vector has another shape.
        """
        if vector.shape != (self.size,):
            raise ArgumentError(f"a vector of shape {vector.shape} does not fit {self.size} entries.")
        return Statistics.views(self.layout, frozen_array(vector))

    def clip(self, vector: FloatArray) -> tuple[FloatArray, int]:
        """Clip a flat answer to its ranges; return it with the number of values that were outside."""
        if self.holds(vector):
            return vector, 0
        clipped = np.clip(vector, self.low, self.high)
        return clipped, int(np.count_nonzero(clipped != vector))

    def holds(self, vectors: FloatArray) -> bool:
        """Say whether flat answers, float64 of shape (..., size), lie in their ranges; NaN never does."""
        return bool((vectors >= self.low).all() and (vectors <= self.high).all())
