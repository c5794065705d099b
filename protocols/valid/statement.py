"""What is proven of an answer: its whole numbers lie in ranges, and so do some of their linear forms.

The whole numbers are called digits. Each is one 64-bit word of an upload, and a proof holds them modulo the
prime p = 2^64 - 2^32 + 1. A statement under which anything could wrap modulo p is refused when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privfed.core.stored.encoding import digest
from privfed.errors import ArgumentError

P = 2**64 - 2**32 + 1
UNBOUNDED = 2**63 - 1
"""Upper end of a form that has none; negated the lower end of a form that has none."""

IntArray = npt.NDArray[np.int64]


class StatementError(ArgumentError):
    """A statement cannot be proven, or an answer does not meet it.

    Attributes:
        code: "shape", "order" (a low above its high), "empty" (no digits meet a form), "wraps" (a value may
            reach p / 2), or "witness" (an answer does not meet its statement).
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class Forms(NamedTuple):
    """Linear forms of digits with whole coefficients, and the range of each.

    Attributes:
        form: number of each term's form, int64 of shape (n_terms,).
        digit: each term's digit, likewise; no pair of form and digit comes twice.
        coefficient: each term's coefficient, likewise.
        low: smallest value of each form, int64 of shape (n_forms,); -UNBOUNDED where there is none.
        high: largest value, likewise.
    """

    form: IntArray
    digit: IntArray
    coefficient: IntArray
    low: IntArray
    high: IntArray


@dataclass(frozen=True, eq=False)
class Statement:
    """States that digits lie in ranges, and their linear forms too.

    A digit's range is *implied* where forms in which its coefficient is 1 or -1 give it, whatever the other
    digits are in their ranges: of low x count <= sum <= high x count. An implied range needs no proof.

    Args:
        clients: most clients whose digits are added up, at least 2.
        low: smallest value of each digit of one client, int64 of shape (size,).
        high: largest value, likewise.
        forms: linear forms of the digits. Their ends are drawn in to what the digits' ranges allow.

    Attributes:
        size: number of digits.
        implied: which ranges are implied, bool of shape (size,).
        digest: SHA-256 of all that is stated, 32 bytes.

    Raises:
        StatementError: see its codes. A value wraps where a total of `clients` digits may reach p / 2, or
            the sum of a form's largest terms together with its own end may.
    """

    clients: int
    low: IntArray
    high: IntArray
    forms: Forms = field(default_factory=lambda: Forms(*[np.empty(0, dtype=np.int64)] * 5))
    size: int = field(init=False)
    implied: npt.NDArray[np.bool_] = field(init=False)
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        low, high = _whole(self.low), _whole(self.high)
        given = Forms(*map(_whole, self.forms))
        _check(len(low) == len(high) > 0 and self.clients >= 2, "shape", "digits need a low and a high each")
        pairs = given.form * len(low) + given.digit
        _check(len(np.unique(pairs)) == len(pairs), "shape", "a form names each digit once at most")
        ordered = bool((low <= high).all() and (given.low <= given.high).all())
        _check(ordered, "order", "no low is above its high")
        reach = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
        _check(self.clients * reach.max() < _MOST, "wraps", "totals of digits stay below p / 2")
        terms = np.abs(given.coefficient.astype(np.float64)) * reach[given.digit]
        sizes = np.bincount(given.form, terms, len(given.low))
        _check(bool((sizes < _MOST).all()), "wraps", "forms stay below p / 2")
        both = given.coefficient * low[given.digit], given.coefficient * high[given.digit]
        least, most = np.minimum(*both), np.maximum(*both)
        lowest, highest = _summed(given, least), _summed(given, most)
        ends = np.maximum(given.low, lowest), np.minimum(given.high, highest)
        _check(bool((ends[0] <= ends[1]).all()), "empty", "some digits meet each form")
        sizes += np.maximum(np.abs(ends[0]), np.abs(ends[1]))
        _check(bool((sizes < _MOST).all()), "wraps", "forms and their ends stay below p / 2")
        forms = Forms(*given[:3], _kept(ends[0]), _kept(ends[1]))
        names = ("size", "low", "high", "forms", "digest", "implied")
        about = digest(
            "valid statement", self.clients, *[one.astype("<i8").tobytes() for one in (low, high, *forms)]
        )
        implied = _implied(low, high, forms, (lowest[forms.form] - least, highest[forms.form] - most))
        for name, value in zip(names, (len(low), low, high, forms, about, implied), strict=True):
            object.__setattr__(self, name, value)

    def holds(self, digits: IntArray) -> bool:
        """Say whether digits, int64 of shape (size,), meet the statement."""
        if digits.shape != self.low.shape or ((digits < self.low) | (digits > self.high)).any():
            return False
        values = self.values(digits)
        return bool(((self.forms.low <= values) & (values <= self.forms.high)).all())

    def values(self, digits: IntArray) -> IntArray:
        """Return the value of each form, int64 of shape (n_forms,), of digits in their ranges."""
        return _summed(self.forms, self.forms.coefficient * digits[self.forms.digit])


_MOST = (P // 2) * (1 - 2.0**-30)
"""Bound of sums of absolute values in float64, with room for their rounding."""


def _whole(values: IntArray) -> IntArray:
    array = np.asarray(values)
    _check(array.ndim == 1 and array.dtype.kind == "i", "shape", "all are signed whole numbers in a row")
    return _kept(array.astype(np.int64))


def _kept(array: IntArray) -> IntArray:
    array.flags.writeable = False
    return array


def _check(holds: bool, code: str, what: str) -> None:
    if not holds:
        raise StatementError(code, f"a statement about an answer cannot be proven unless {what}.")


def _summed(forms: Forms, terms: IntArray) -> IntArray:
    """Return the sums of terms over each form, exactly."""
    sums = np.zeros(len(forms.low), dtype=np.int64)
    np.add.at(sums, forms.form, terms)
    return sums


def _implied(
    low: IntArray, high: IntArray, forms: Forms, rest: tuple[IntArray, IntArray]
) -> npt.NDArray[np.bool_]:
    """Say of which digits forms imply the range in which their coefficient is 1 or -1, a form one at most.

    Args:
        low: smallest value of each digit.
        high: largest value.
        forms: the forms.
        rest: of each term, the smallest and the largest sum of all other terms of its form.
    """
    found = np.full(len(low), -UNBOUNDED), np.full(len(low), UNBOUNDED)
    least, most = forms.low[forms.form] - rest[1], forms.high[forms.form] - rest[0]
    for sign in (1, -1):
        own = forms.coefficient == sign
        ends = (least[own], most[own]) if sign > 0 else (-most[own], -least[own])
        np.maximum.at(found[0], forms.digit[own], ends[0])
        np.minimum.at(found[1], forms.digit[own], ends[1])
    implied: npt.NDArray[np.bool_] = (found[0] >= low) & (found[1] <= high)
    several = np.bincount(forms.form, implied[forms.digit], len(forms.low)) > 1
    # The others of its form must have ranges of their own.
    implied[forms.digit[several[forms.form]]] = False
    return implied
