"""Intervals of quotients of two noised numbers (Fieller 1954)."""

from __future__ import annotations

import numpy as np

from privfed.core.values.domain import FloatArray


def quotients(
    s: FloatArray,
    c: FloatArray,
    s_error: float | FloatArray,
    c_error: float | FloatArray,
    most: float | FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return Fieller's intervals of quotients s / c of magnitude at most `most`; both ends are finite.

    An interval holds every q with (s - q c)^2 <= s_error^2 + q^2 c_error^2. It is [-most, most] where the
    exact denominator may be 0.

    Args:
        s: noised numerators, float64 of any shape.
        c: noised denominators, likewise.
        s_error: z standard deviations of the noise of a numerator, or of each.
        c_error: the same of a denominator.
        most: largest magnitude that the exact quotient can have, or each.
    """
    square = np.square(c) - c_error**2
    known = (square > 0.0) & (c > 0.0)
    safe = np.where(known, square, 1.0)
    root = np.sqrt(np.maximum(np.square(s * c) - safe * (np.square(s) - s_error**2), 0.0))
    low, high = ((s * c + sign * root) / safe for sign in (-1.0, 1.0))
    low, high = np.where(known, low, -most), np.where(known, high, most)
    return np.clip(low, -most, most), np.clip(high, -most, most)
