"""Whether two machines ask the same: floats may differ in their last digits, and nothing else may."""

from __future__ import annotations

from dataclasses import is_dataclass

import numpy as np

from privfed.core.asking.phases import NEAR
from privfed.core.asking.question import Question, centers_of
from privfed.core.stored.encoding import asdict
from privfed.core.values.domain import FloatArray, Ranges


def alike(expected: Question, asked: Question) -> bool:
    """Say whether a question is the expected one: the same but for floats within 1e-9 of their range.

    The range of centers and of ranges is that of the data, feature by feature; that of another array is its
    largest absolute value. Classes, shapes and options must be equal.
    """
    return _Comparison(expected).holds(expected, asked)


class _Comparison:
    """Compares the values of questions with those of an expected one.

    Args:
        expected: the question; its ranges and its declared centers say what a small difference is.
    """

    def __init__(self, expected: Question) -> None:
        self._width, self._centers = expected.ranges.width, centers_of(expected)

    def holds(self, expected: object, asked: object) -> bool:
        """Say whether one value is the other up to the last digits of its floats."""
        if type(expected) is not type(asked):
            return False
        if isinstance(expected, np.ndarray) and isinstance(asked, np.ndarray):
            return _near(expected, asked, self._range(expected))
        if isinstance(expected, Ranges) and isinstance(asked, Ranges):
            bounds = ((expected.low, asked.low), (expected.high, asked.high))
            return expected.rows == asked.rows and all(_near(a, b, self._width) for a, b in bounds)
        if is_dataclass(expected):
            others = asdict(asked)
            return all(self.holds(one, others[name]) for name, one in asdict(expected).items())
        return bool(expected == asked)

    def _range(self, array: FloatArray) -> FloatArray:
        is_center = any(one is array for one in self._centers)
        if is_center and array.shape[-1:] == self._width.shape:
            return self._width
        return np.asarray(np.abs(array).max(initial=0.0))


def _near(expected: FloatArray, asked: FloatArray, width: FloatArray) -> bool:
    if expected.shape != asked.shape:
        return False
    # The last bits of a value far from the origin may be more than 1e-9 of a narrow range.
    last_bits = 8.0 * np.finfo(np.float64).eps * np.abs(expected)
    return bool((np.abs(expected - asked) <= NEAR * width + last_bits).all())
