"""Bounds on one record's contribution to a question's statistics: the sensitivities by which it is priced.

A question with such bounds answers on a grid: each record's contribution is clipped to its bound,
then truncated toward zero to multiples of the entry's step (the specification's resolution, a power
of two), then compared with its bound in whole steps, then summed (`privfed.privacy.contributions`).
Truncation toward zero lengthens no contribution, and sums of multiples of a step are exact in float64 below
2^53 steps, so that rounding never increases a sensitivity.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from privfed.core.asking.question import BOUNDED_FORMS, AdditiveOver, ClientData, Question
from privfed.core.asking.statistics import Entry, Statistics, StatisticsSpec
from privfed.core.values.domain import LARGEST, FloatArray, Ranges
from privfed.core.values.numbers import LEAST_BOUND, MOST_BOUND
from privfed.errors import ArgumentError
from privfed.privacy.contributions import Contribution, summed

MOST_SHARED = 1 << 16
"""Most clusters that share a record: the rounding error of a sum of that many memberships is negligible."""

HAIR = 1.0 - 2.0**-36
"""Factor by which clipped lengths stay below their bound; rounding of norms (d < 2^16) is 2^-38 at most."""

STEPS_OF_A_BOUND = 2.0**20
"""Least number of steps of the grid within the bound of one record's contribution."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound on one record's contribution to an entry, in L2 norm.

    Adding or removing a record changes the entry by at most `l2`. The squared change by a replacement of one
    record is at most l2^2 times a factor. The factor depends on whether both records fall into the same cell
    (`stay`) or not (`move`). All entries of a question have the same cells.

    Args:
        l2: largest L2 norm of one record's contribution.
        stay: largest squared change by a replacement within a cell, in units of l2^2.
        move: largest squared change by a replacement across cells, in units of l2^2.
    """

    l2: float
    stay: float = 4.0
    move: float = 4.0

    @property
    def fixed(self) -> bool:
        """Whether no replacement changes the entry: each record adds exactly `l2`."""
        return self.stay == self.move == 0.0

    @property
    def nonnegative(self) -> bool:
        """Whether the bound counts on values that are not negative: two of them are less than 2 l2 apart."""
        return self.stay < 4.0


def counted(l2: float = 1.0) -> Bound:
    """Return the bound of counts, one cell a record: a replacement changes none, or two of them by l2."""
    return Bound(l2, stay=0.0, move=2.0)


def lone_count() -> Bound:
    """Return the bound of the count of all records: a replacement never changes it, so that it is public."""
    return Bound(1.0, stay=0.0, move=0.0)


def in_cells(l2: float) -> Bound:
    """Return the bound of vector sums in cells: a replacement changes a cell by 2 l2, or two cells by l2."""
    return Bound(l2, stay=4.0, move=2.0)


def magnitude(l2: float) -> Bound:
    """Return the bound of a sum of values in [0, l2]: two such values differ by at most l2."""
    return Bound(l2, stay=1.0, move=1.0)


def nonnegative(l2: float) -> Bound:
    """Return the bound of sums of nonnegative vectors: two of length l2 differ by at most sqrt(2) l2."""
    return Bound(l2, stay=2.0, move=2.0)


def of_a_client(entry: Entry, l2: float) -> Bound:
    """Return the bound of an entry of one client's answer, clipped to its range and to the length `l2`."""
    if np.min(np.asarray(entry.low)) < 0.0:
        return Bound(l2)
    return nonnegative(l2) if prod(entry.shape) > 1 else magnitude(l2)


Form = TypeVar("Form", bound="RecordBounded")


class RecordBounded(Question):
    """A question, additive over records, with a proven bound on one record's contribution.

    A subclass says what each row adds, and `answer_all` adds: no question under differential privacy at
    unit "record" has another way to an answer.
    """

    additive_over: ClassVar[AdditiveOver] = AdditiveOver.RECORDS

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        if cls.answer_all is not RecordBounded.answer_all:
            raise TypeError(
                f"{cls.__name__} answers by itself: a question with a bound on one record says what each row "
                "adds, in contributions(rows, labels), and privfed holds each row to its bound and adds."
            )

    @property
    @abstractmethod
    def bounds(self) -> Mapping[str, Bound]:
        """Entry of the statistics -> bound on one record's contribution."""

    @abstractmethod
    def contributions(self, rows: FloatArray, labels: npt.NDArray[np.int64]) -> Mapping[str, Contribution]:
        """Return what each row adds to each entry, as if it were alone.

        An entry whose bound is `fixed` needs none: each row adds its `l2`.

        Args:
            rows: float64 of shape (n_rows, n_features), in the ranges.
            labels: int64 of shape (n_rows,); -1 where a row has none.
        """

    @property
    def values_of_a_row(self) -> int:
        """Number of values that one row's contributions take in memory, about."""
        return 2 * (self.ranges.n_features + 1)

    def answer_all(
        self, clients: Sequence[ClientData], generators: Sequence[np.random.Generator]
    ) -> list[Statistics]:
        """Answer for several clients: sums of their rows, each checked against its bound in whole steps."""
        return summed(self, clients)

    def bounded(self, reach: float | None = None, **limits: Any) -> RecordBounded:
        """Return the question itself."""
        return self


def bounded_form_of(plain: type[Question]) -> Callable[[type[Form]], type[Form]]:
    """Declare a class as the bounded form of another question class (a class decorator).

    It has the fields of the other class and `reach`: the radius of a ball around the midpoint of the ranges
    that contains all rows, or None where rows are only known to lie in the ranges.

    Args:
        plain: the class without bounds.
    """

    def declare(form: type[Form]) -> type[Form]:
        BOUNDED_FORMS[plain] = form
        return form

    return declare


def check_point(point: FloatArray, ranges: Ranges) -> None:
    """Check the point of a question.

    Raises:
        ArgumentError: it has not one value a feature of the ranges, or one is too large.
    """
    if point.shape != (ranges.n_features,):
        raise ArgumentError(f"a point needs {ranges.n_features} values, got shape {point.shape}.")
    check_sizes("a point", point)


def check_widths(widths: FloatArray, *ends: FloatArray) -> None:
    """Check units in which offsets are measured, given the farthest offsets; all of shape (n_features,).

    Raises:
        ArgumentError: one is not above 0, or so small that squares of offsets may overflow.
    """
    if not (widths > 0.0).all():
        raise ArgumentError(f"widths must be above 0, got {widths}.")
    with np.errstate(over="ignore"):
        check_sizes("offsets in units of widths", *(one / widths for one in ends))


def check_sizes(name: str, *values: FloatArray) -> None:
    """Check the public numbers in a question under differential privacy: centers, ends of ranges.

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
    """Return the quantisation step of an entry with this bound: the largest power of two <= l2 / 2^20."""
    # From the float's exponent: a computed logarithm might be rounded up to the next whole number.
    return float(np.exp2(np.frexp(l2 / STEPS_OF_A_BOUND)[1] - 1))


def bounded_spec(
    limits: Mapping[str, float],
    shapes: Mapping[str, tuple[int, ...]],
    rows: float = 1.0,
    *,
    signed: Container[str] = ("sum",),
) -> StatisticsSpec:
    """Return the layout of sums of at most `rows` contributions, each up to its entry's limit.

    Args:
        limits: entry -> bound on the L2 norm of one contribution, in the order of the layout.
        shapes: entry -> its shape.
        rows: most contributions of a client.
        signed: entries that may be negative even without noise.
    """
    return StatisticsSpec(
        *(
            Entry(name, shapes[name], -rows * most if name in signed else 0.0, rows * most, step_of(most))
            for name, most in limits.items()
        )
    )


def truncated(values: FloatArray, step: float) -> FloatArray:
    """Return values truncated toward zero to multiples of a power-of-two step."""
    return np.asarray(np.trunc(values / step) * step)


def shortened(vectors: FloatArray, limit: float) -> FloatArray:
    """Return vectors, those longer than a limit shortened to just below it.

    Lengths neither underflow nor overflow: where squares might, they are computed of the vector in units of
    its largest entry. Which vectors are beside a vector makes no difference to it.

    Args:
        vectors: float64 of shape (n, size); one with NaN or infinity becomes zeros.
        limit: L2 norm, in [`LEAST_BOUND`, `MOST_BOUND`].
    """
    with np.errstate(all="ignore"):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    odd = ~((lengths >= LEAST_BOUND) & (lengths <= MOST_BOUND))[:, 0]
    # The factor keeps the length below the limit even after the quotient is rounded.
    below = limit * (1.0 - 2.0**-40)
    lengths[odd] = 0.0
    short: FloatArray = vectors * np.minimum(1.0, below / np.maximum(lengths, limit * 2.0**-60))
    if odd.any():
        short[odd] = _shortened_odd(vectors[odd], below)
    return short


def _shortened_odd(vectors: FloatArray, below: float) -> FloatArray:
    """Return vectors of any length at most `below` long; of those with no numbers zeros."""
    own = np.where(np.isfinite(vectors).all(axis=1, keepdims=True), vectors, 0.0)
    exponents = np.frexp(np.abs(own).max(axis=1, keepdims=True, initial=0.0))[1]
    with np.errstate(all="ignore"):
        scaled = np.ldexp(own, -exponents)
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        return np.where(
            np.ldexp(lengths, exponents) > below, scaled * (below / np.maximum(lengths, 0.5)), own
        )
