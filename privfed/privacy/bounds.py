"""How far one record can move a question's statistics: the sensitivities that releases are priced by.

A question with such bounds answers on a grid: each record's contribution is clipped to its bound,
then truncated toward zero to multiples of the entry's step (the specification's resolution, a power
of two), then summed. Truncation toward zero makes no contribution longer, and sums of multiples of a
step are exact in float64 below 2^53 steps: rounding inflates no sensitivity.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

from privfed.core.domain import LARGEST, FloatArray
from privfed.core.question import BOUNDED_FORMS, Question
from privfed.core.statistics import Entry
from privfed.errors import ArgumentError

LEAST_BOUND, MOST_BOUND = 2.0**-450, 2.0**450
"""Least and largest bound: their squares, and what is squared to be compared with them, are normal numbers of
float64 then. Of a smaller one squares would vanish, and what is longer would pass as no longer."""

MOST_SHARED = 1 << 16
"""Most clusters that share a record: rounding in the sum of so many memberships is less than a hair."""

STEPS_OF_A_BOUND = 2.0**20
"""Least number of steps of the grid within the bound of one record's contribution."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound on one record's contribution to an entry, in L2 norm.

    Adding or removing a record changes the entry by at most `l2`. Replacing one record by another
    changes the square of that by at most a factor, which depends on whether both records fall into
    the same cell (`stay`) or not (`move`); all entries of a question have the same cells.

    Args:
        l2: greatest L2 norm of one record's contribution.
        stay: squared change of a replacement within a cell, in units of l2^2.
        move: squared change of a replacement across cells, in units of l2^2.
    """

    l2: float
    stay: float = 4.0
    move: float = 4.0


def counted(l2: float = 1.0) -> Bound:
    """Bound of counts in cells, one cell a record: a replacement leaves them, or moves one across."""
    return Bound(l2, stay=0.0, move=2.0)


def lone_count() -> Bound:
    """Bound of a count of all records: a replacement leaves it, so that it is public then."""
    return Bound(1.0, stay=0.0, move=0.0)


def in_cells(l2: float) -> Bound:
    """Bound of sums in cells: a replacement turns a vector within its cell, or moves it to another."""
    return Bound(l2, stay=4.0, move=2.0)


def magnitude(l2: float) -> Bound:
    """Bound of a sum of values in [0, l2]: two of them differ by no more than one of them."""
    return Bound(l2, stay=1.0, move=1.0)


def nonnegative(l2: float) -> Bound:
    """Bound of vectors without negative values: two of them differ by no more than sqrt 2 times one."""
    return Bound(l2, stay=2.0, move=2.0)


def of_a_client(entry: Entry, l2: float) -> Bound:
    """Bound of an entry of one client's answer, clipped to its range and its length to `l2`."""
    if np.min(np.asarray(entry.low)) < 0.0:
        return Bound(l2)
    return nonnegative(l2) if prod(entry.shape) > 1 else magnitude(l2)


Form = TypeVar("Form", bound="RecordBounded")


class RecordBounded(Question):
    """A question whose statistics have a proven bound for one record. Additive over records."""

    @property
    @abstractmethod
    def bounds(self) -> Mapping[str, Bound]:
        """Entry of the statistics -> bound on one record's contribution."""

    def bounded(self, reach: float | None = None) -> RecordBounded:
        """Return the question itself."""
        return self


def bounded_form_of(plain: type[Question]) -> Callable[[type[Form]], type[Form]]:
    """Declare a class to ask the same as another one, with bounds (a class decorator).

    It has the fields of the other one, and `reach`: the radius of the ball around the middle of the ranges
    that rows lie in, or None for the ranges.

    Args:
        plain: the class without bounds.
    """

    def declare(form: type[Form]) -> type[Form]:
        BOUNDED_FORMS[plain] = form
        return form

    return declare


def check_bound(name: str, l2: float) -> None:
    """Check a bound on a contribution: a radius, a limit, what follows from centers and ranges.

    Raises:
        ArgumentError: it is so small or large that squares in float64 would not keep to it.
    """
    if not LEAST_BOUND <= l2 <= MOST_BOUND:
        raise ArgumentError(
            f"{name} must lie in [{LEAST_BOUND:.3g}, {MOST_BOUND:.3g}], where squares are exact enough to "
            f"keep to it, got {l2:.3g}; scale the features, or take smaller powers."
        )


def check_sizes(name: str, *values: FloatArray) -> None:
    """Check the numbers that a question under differential privacy brings along: centers, ends of ranges.

    Raises:
        ArgumentError: one is NaN, or so large that squares of differences may overflow.
    """
    largest = max(float(np.abs(one).max(initial=0.0)) for one in values)
    if not largest <= LARGEST:
        raise ArgumentError(
            f"{name} under differential privacy must be at most {LARGEST:.3g} in size, got {largest:.3g}; "
            "scale the features."
        )


def step_of(l2: float) -> float:
    """Return the step of an entry with this bound: the power of two that is l2 / 2^20 or just below."""
    # By its exponent: a logarithm just below a whole number may be rounded up to it.
    return float(np.exp2(np.frexp(l2 / STEPS_OF_A_BOUND)[1] - 1))


def truncated(values: FloatArray, step: float) -> FloatArray:
    """Return values truncated toward zero to multiples of a power-of-two step."""
    kept: FloatArray = np.trunc(values / step) * step
    return kept
