"""Public domains of the data, and the ranges that fix the fixed-point grid of a sum.

A domain is declared, never computed from rows outside a secure sum. `Box` and `Ball` are what users write;
`Ranges` is what questions carry: one low and one high per feature and a bound on the rows of a client.

Under differential privacy each row is clipped to the domain by itself. Its image depends on no other row, not
even in the last bit. A row inside the domain is left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from privfed.core.values.numbers import as_numbers, check_number, check_whole, lengths
from privfed.core.values.origin import Origin, joined, origin_of
from privfed.errors import ArgumentError

FloatArray = npt.NDArray[np.float64]
Numbers = float | Sequence[float] | FloatArray

LARGEST = 2.0**200
"""Largest magnitude in a domain under differential privacy: sums of fourth powers over 2^40 rows and all
features stay finite in float64."""

NARROWEST = 2.0**-200
"""Least width of such a domain's widest feature: the fourth power of the width does not underflow."""


def frozen(array: FloatArray) -> FloatArray:
    """Make an array of one's own read-only, and return it."""
    array.setflags(write=False)
    return array


def frozen_array(values: npt.ArrayLike) -> FloatArray:
    """Return a read-only C-contiguous float64 copy of `values`, or `values` if nobody can write to them."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and unwritable(values):
        return values
    return frozen(np.array(values, dtype=np.float64, order="C"))


def unwritable(array: npt.NDArray[np.float64]) -> bool:
    """Say whether an array, and whatever array it is a view of, is read-only, and lies in C order."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        if owner.flags.writeable:
            return False
        owner = owner.base
    return array.flags.c_contiguous and type(array) is np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Range of each feature and bound on the rows of one client; together they fix the grid of a sum.

    Args:
        low: smallest value of each feature, float64 of shape (n_features,).
        high: largest value of each feature, float64 of shape (n_features,).
        rows: most rows that one client holds.
    """

    low: FloatArray
    high: FloatArray
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", frozen_array(self.low))
        object.__setattr__(self, "high", frozen_array(self.high))
        if self.low.ndim != 1 or self.low.shape != self.high.shape or self.low.size == 0:
            raise ArgumentError(
                f"ranges need one low and one high a feature, got {self.low.shape} and {self.high.shape}."
            )
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ArgumentError("ranges must be finite.")
        if (self.low > self.high).any():
            raise ArgumentError("each low of the ranges must be at most its high.")
        check_whole("rows", self.rows, 1, 2**40)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.low.size

    @property
    def width(self) -> FloatArray:
        """Width of each feature's range, float64 of shape (n_features,)."""
        return self.high - self.low

    def clip(self, rows: FloatArray) -> FloatArray:
        """Clip each value of `rows` (n, n_features) to its feature's range."""
        return np.clip(rows, self.low, self.high)


Rows = int | Mapping[str, int] | None


def _checked_rows(given: Rows) -> Rows:
    for rows in (given.values() or [0]) if isinstance(given, Mapping) else [given]:
        check_whole("max_rows", rows, 1, 2**40, or_none=not isinstance(given, Mapping))
    whole = None if given is None or isinstance(given, Mapping) else int(given)
    return {str(name): int(rows) for name, rows in given.items()} if isinstance(given, Mapping) else whole


class _Bounded:
    """Is a domain with a bound on the rows of each client."""

    __slots__ = ()
    max_rows: Rows

    @property
    def most_rows(self) -> int | None:
        """The largest bound on a client's rows; None where none is declared."""
        return max(self.max_rows.values()) if isinstance(self.max_rows, Mapping) else self.max_rows

    def rows_of(self, name: str) -> int | None:
        """Return the bound on the rows of a client.

        Raises:
            ArgumentError: bounds are of clients by name, and it is none of them.
        """
        if not isinstance(self.max_rows, Mapping):
            return self.max_rows
        if name not in self.max_rows:
            raise ArgumentError(
                f"max_rows has a bound for each of {len(self.max_rows)} clients by name, and none for "
                f"{name!r}; give one for each client, or one number for all.",
                parameters=["max_rows"],
            )
        return self.max_rows[name]


def _of_each(name: str, value: Numbers, n_features: int) -> FloatArray:
    """Return one number for each feature, read-only float64 of shape (n_features,)."""
    found = np.asarray(value, dtype=np.float64)
    if found.ndim > 1 or (found.ndim == 1 and found.size != n_features):
        raise ArgumentError(
            f"{name} has {found.size} numbers, the data has {n_features} features; give one for all, or one "
            "a feature.",
            parameters=[name],
        )
    return frozen_array(np.broadcast_to(found, n_features))


@dataclass(frozen=True, slots=True, eq=False)
class Box(_Bounded):
    """Data domain [low, high] in each feature.

    Args:
        low: a number, or one number a feature.
        high: a number, or one number a feature; above `low`.
        max_rows: public bound on the rows of one client, or name of each client -> its own bound; None to
            find one by a sum.
    """

    kind: ClassVar[str] = "Box"
    """What agreements call it."""
    low: Numbers
    high: Numbers
    max_rows: Rows = None

    def __post_init__(self) -> None:
        low, high = as_numbers("low", self.low), as_numbers("high", self.high)
        if max(low.ndim, high.ndim) > 1 or (low.ndim == high.ndim == 1 and low.shape != high.shape):
            raise ArgumentError(
                f"Box needs one bound, or one a feature, got shapes {low.shape} and {high.shape}."
            )
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ArgumentError(
                f"low and high must be finite, got low={self.low}, high={self.high}.",
                parameters=["low", "high"],
            )
        if not (low < high).all():
            raise ArgumentError(
                f"low must be below high in each feature, got low={self.low}, high={self.high}.",
                parameters=["low", "high"],
            )
        object.__setattr__(self, "max_rows", _checked_rows(self.max_rows))

    def bounds(self, n_features: int) -> tuple[FloatArray, FloatArray]:
        """Return low and high of each feature, each float64 of shape (n_features,).

        Raises:
            ArgumentError: the box was declared for another number of features.
        """
        return _of_each("low", self.low, n_features), _of_each("high", self.high, n_features)

    @property
    def origin(self) -> Origin:
        """Where its ends come from."""
        return joined(origin_of(self.low), origin_of(self.high))

    @property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest value as declared: one number for all features, or one a feature."""
        return np.asarray(self.low, dtype=np.float64), np.asarray(self.high, dtype=np.float64)

    def contains(self, rows: FloatArray) -> npt.NDArray[np.bool_]:
        """Say of each row of `rows` (n, n_features) whether it lies in the box; bool of shape (n,)."""
        low, high = self.bounds(rows.shape[1])
        return np.asarray(((rows >= low) & (rows <= high)).all(axis=1), dtype=np.bool_)

    def clip(self, rows: FloatArray) -> FloatArray:
        """Return `rows` (n, n_features) moved to the nearest point of the box."""
        low, high = self.bounds(rows.shape[1])
        return np.clip(rows, low, high)


@dataclass(frozen=True, slots=True, eq=False)
class Ball(_Bounded):
    """Data domain: points within `radius` (Euclidean) of `center`.

    Args:
        radius: positive.
        center: a number, or one number a feature.
        max_rows: public bound on the rows of one client, or name of each client -> its own bound; None to
            find one by a sum.
    """

    kind: ClassVar[str] = "Ball"
    """What agreements call it."""
    radius: float
    center: Numbers = 0.0
    max_rows: Rows = None

    def __post_init__(self) -> None:
        check_number("radius", self.radius, "(0, inf)")
        center = as_numbers("center", self.center)
        if center.ndim > 1:
            raise ArgumentError(f"Ball needs one center, or one a feature, got shape {center.shape}.")
        if not np.isfinite(center).all():
            raise ArgumentError(f"Ball needs a finite center, got center={self.center}.")
        object.__setattr__(self, "max_rows", _checked_rows(self.max_rows))

    @property
    def origin(self) -> Origin:
        """Where its center comes from."""
        return origin_of(self.center)

    def _center(self, n_features: int) -> FloatArray:
        return _of_each("center", self.center, n_features)

    def bounds(self, n_features: int) -> tuple[FloatArray, FloatArray]:
        """Return low and high of the box around the ball, each float64 of shape (n_features,)."""
        center = self._center(n_features)
        return frozen_array(center - self.radius), frozen_array(center + self.radius)

    @property
    def ends(self) -> tuple[FloatArray, FloatArray]:
        """Lowest and highest value of the ball's bounding box: one for all features, or one a feature."""
        center = np.asarray(self.center, dtype=np.float64)
        return np.asarray(center - self.radius), np.asarray(center + self.radius)

    def contains(self, rows: FloatArray) -> npt.NDArray[np.bool_]:
        """Say of each row of `rows` (n, n_features) whether it lies in the ball; bool of shape (n,).

        Rows count as inside up to rounding, or up to 1e-12 of the radius beyond the border. The result only
        serves to warn users of rows far outside; nothing under differential privacy depends on it.
        """
        center, (low, high) = self._center(rows.shape[1]), self.bounds(rows.shape[1])
        # The rounding of coordinates is relative to their size, not to the radius.
        rounding = 4 * np.finfo(np.float64).eps * float(np.linalg.norm(np.abs(center) + self.radius))
        within = ((rows >= low) & (rows <= high)).all(axis=1)
        # Rows outside the bounding box are clipped first, since their squared distance might overflow.
        length = np.linalg.norm(np.clip(rows, low, high) - center, axis=1)
        return np.asarray(within & (length <= self.radius * (1 + 1e-12) + rounding), dtype=np.bool_)

    def clip(self, rows: FloatArray) -> FloatArray:
        """Return `rows` (n, n_features) with those outside moved to the nearest point of the ball.

        Properties: the image of a row depends on that row only. It lies within the radius of the center in
        float64 arithmetic, without tolerance. `clip(clip(rows))` equals `clip(rows)`, bit for bit.
        """
        center, (low, high) = self._center(rows.shape[1]), self.bounds(rows.shape[1])
        found, left = np.array(rows), np.flatnonzero(~self._within(rows))
        onto = self._onto(found[left])
        for pull in _PULLS:
            found[left] = moved = np.clip(center + pull * onto, low, high)
            # Adding the center rounds, perhaps to a point outside: such rows are pulled further in.
            still = ~self._within(moved)
            left, onto = left[still], onto[still]
            if not left.size:
                break
        return found

    def _onto(self, rows: FloatArray) -> FloatArray:
        """Return, for rows outside, the nearest points of the sphere as offsets from the center."""
        # Halving keeps differences from overflowing; dividing by the largest coordinate, their squares.
        offset = rows / 2.0 - self._center(rows.shape[1]) / 2.0
        unit = np.maximum(np.abs(offset).max(axis=1, keepdims=True), self.radius / 2.0)
        length = np.maximum(lengths(offset / unit)[:, None], self.radius / 2.0 / unit)
        return np.asarray(self.radius * (offset / unit) / length)

    def _within(self, rows: FloatArray) -> npt.NDArray[np.bool_]:
        """Say of each row, independently of the others, whether it lies in the ball without tolerance."""
        center, (low, high) = self._center(rows.shape[1]), self.bounds(rows.shape[1])
        inside = ((rows >= low) & (rows <= high)).all(axis=1)
        # The unit is a power of two near the radius: dividing by it is exact, and no square underflows.
        unit = np.ldexp(1.0, int(np.frexp(self.radius)[1]) - 1)
        with np.errstate(over="ignore"):  # A row whose distance overflows is outside.
            length = lengths((np.clip(rows, low, high) - center) / unit)
        return np.asarray(inside & (length <= self.radius / unit), dtype=np.bool_)


_PULLS = (*(1.0 - 2.0**-bits for bits in (np.inf, *range(52, 0, -1))), 0.0)
"""Distances from the center, in radii, that are tried in turn until a row lies inside; the last is 0."""

Domain = Box | Ball


def check_private(low: npt.ArrayLike, high: npt.ArrayLike) -> None:
    """Check that float64 arithmetic keeps sensitivity bounds valid on a domain.

    Args:
        low: lowest value of each feature, or of all.
        high: highest value of each feature, or of all.

    Raises:
        ArgumentError: a number is so large that squares overflow, or all features are so narrow that
            squares underflow; the bound on one row's contribution would not hold then.
    """
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    largest = float(np.maximum(np.abs(low), np.abs(high)).max())
    if not largest <= LARGEST:
        raise ArgumentError(
            f"a domain under differential privacy reaches to {LARGEST:.3g} at most, got {largest:.3g}; scale "
            "the features by public numbers, and the domain with them."
        )
    width = float((high - low).max())
    if not width >= NARROWEST:
        raise ArgumentError(
            f"a domain under differential privacy is {NARROWEST:.3g} wide at least, in one feature, got "
            f"{width:.3g}; scale the features by public numbers, and the domain with them."
        )
