"""Finds of how many rows each mean is the mean, from the number and the sum of all rows.

Sum and number of a client's rows are a combination of its clusters' means, with the clusters' sizes as
coefficients. Up to d + 1 clusters that is a linear system. With more, usually only one set of whole numbers
fits to the last digits. Lattice reduction finds it: Lenstra, Lenstra, Lovasz, Mathematische Annalen 261,
1982; then Babai's nearest plane, Combinatorica 6, 1986.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from privfed.core.values.domain import FloatArray

_ERROR = 1e-10
"""Largest error of a sum, as a share of its column's largest mean and of the number of rows."""
_DIGITS, _ROOM = 1e13, 100.0
"""Largest weight of an equation in the lattice, about the precision of float64; and how far apart sets of
numbers that fit are to lie, in numbers of rows, for which a smaller weight is often enough."""
_LOVASZ = 0.99
_MOST = 30
"""Most unknowns if there are fewer equations than unknowns; time grows with the fourth power."""
_MOST_STEPS, _COARSE = 100, 1e3
_CHANCE = 1e-3
"""Most sets of whole numbers that may be expected to fit by chance."""


def sizes_of(
    means: FloatArray, targets: FloatArray, likely: FloatArray, rounding: float = 0.0
) -> tuple[int, FloatArray] | None:
    """Return the first target that is a combination of means, and the number of rows of each mean.

    Args:
        means: float64 of shape (n_means, n_features).
        targets: sum and, last, number of all rows, float64 of shape (n_targets, n_features + 1).
        likely: likely numbers, from which the search starts, (n_targets, n_means).
        rounding: largest error of a combination by the grid of a secure sum, in the data's units.

    Returns:
        The target's place and the numbers, whole and not negative, of shape (n_means,). None if none fit, or
        if others may fit as well.
    """
    largest = np.abs(means).max(axis=0)
    units = np.append(np.maximum(largest, max(1e-3 * float(largest.max()), np.finfo(np.float64).tiny)), 1.0)
    vectors, totals = np.hstack([means, np.ones((len(means), 1))]) / units, targets / units
    error = _ERROR * float(targets[:, -1].max()) + rounding / units
    error[-1] = _ERROR * float(targets[:, -1].max())
    solved, _, rank, _ = np.linalg.lstsq(vectors.T, totals.T, rcond=1e-9)
    short = np.empty((0, len(means)))
    if rank < len(means):
        if len(means) > _MOST:
            return None
        digits = min(_DIGITS, 1.0 / rounding) if rounding else _DIGITS
        weight = min(digits, (_ROOM * max(1.0, float(totals[:, -1].max()))) ** (len(means) / rank))
        solved, short = _whole_combinations(vectors, totals, likely, weight)
    sizes = np.rint(solved.T)
    errors = np.abs(sizes @ vectors - totals)
    fits = (sizes >= 0).all(axis=1) & (errors <= error).all(axis=1)
    if not fits.any():
        return None
    which = int(fits.argmax())
    # Means of rows in whole numbers have short combinations that add nothing: then others fit as well.
    idle = short[(np.abs(short @ vectors) <= 2.0 * error).all(axis=1)]
    others = np.concatenate([sizes[which] + idle, sizes[which] - idle])
    if (others >= 0).all(axis=1).any() or (
        rank < len(means) and _by_chance(vectors, totals, float(errors[which].max())) > _CHANCE
    ):
        return None
    return which, sizes[which]


def _by_chance(vectors: FloatArray, totals: FloatArray, error: float) -> float:
    """Return how many sets of numbers would by chance have no larger error, over all targets.

    There are (n + k - 1)! / (n! (k - 1)!) sets of k numbers with sum n. The sum of a wrong one lies anywhere
    within about the spread of the means.
    """
    n, k = float(totals[:, -1].max()), len(vectors)
    spread = np.linalg.svd(vectors - vectors.mean(axis=0), compute_uv=False)
    error = max(error, n * float(np.finfo(np.float64).eps))
    near = np.minimum(1.0, 2.0 * error * k**0.5 / np.maximum(spread, np.finfo(np.float64).tiny))
    sets = gammaln(n + k) - gammaln(k) - gammaln(n + 1.0)
    return float(len(totals) * np.exp(sets + np.log(near).sum()))


def _whole_combinations(
    vectors: FloatArray, targets: FloatArray, likely: FloatArray, weight: float
) -> tuple[FloatArray, FloatArray]:
    """Return for each target integers n with n @ vectors close to it; the caller checks how close.

    Args:
        vectors: float64 of shape (n_vectors, n_equations), with largest values of about 1.
        targets: float64 of shape (n_targets, n_equations).
        likely: likely integers, (n_targets, n_vectors).
        weight: of an equation; what it is off by one part in so many counts as much as a row.

    Returns:
        The integers, (n_vectors, n_targets), and short integer combinations whose sum is small, of which all
        others are made, (n_vectors, n_vectors).
    """
    size = len(vectors)
    basis = reduced(np.hstack([np.eye(size, dtype=np.int64), np.rint(vectors * weight).astype(np.int64)]))
    directions, upper = np.linalg.qr(basis.astype(np.float64).T)
    left = np.hstack([likely, targets * weight]) @ directions
    numbers = np.zeros((len(targets), size), dtype=np.int64)
    for i in reversed(range(size)):
        numbers[:, i] = np.rint(left[:, i] / upper[i, i])
        left -= numbers[:, i : i + 1] * upper[:, i]
    short = basis[:, :size]
    return (numbers @ short).T.astype(np.float64), short.astype(np.float64)


def reduced(basis: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a reduced basis of the same lattice (LLL), int64 of the basis' shape.

    Args:
        basis: linearly independent vectors, one in each row, with entries below 2**53.
    """
    basis, i, fresh = basis.copy(), len(basis), False
    upper = np.empty((0, 0))
    # Rounding might keep the swaps from ending, so that steps are limited. A basis that is not reduced gives
    # numbers that do not fit, which the caller notices.
    for _ in range(_MOST_STEPS * len(basis) ** 2):
        if i == len(basis):
            if fresh:
                break
            # What rounding did to the triangle shows in one that is made anew.
            upper, i, fresh = np.linalg.qr(basis.astype(np.float64).T)[1], 1, True
            continue
        largest = 0.0
        for j in reversed(range(i)):
            if times := np.rint(upper[j, i] / upper[j, j]):
                upper[:, i] -= times * upper[:, j]
                basis[i] -= np.int64(times) * basis[j]
                largest = max(largest, abs(times))
        fresh &= not largest
        if largest > _COARSE:
            upper = np.linalg.qr(basis.astype(np.float64).T)[1]
        elif upper[i, i] ** 2 >= _LOVASZ * upper[i - 1, i - 1] ** 2 - upper[i - 1, i] ** 2:
            i += 1
        else:
            basis[[i - 1, i]], upper[:, [i - 1, i]] = basis[[i, i - 1]], upper[:, [i, i - 1]]
            # A rotation makes it a triangle again.
            across, down = upper[i - 1 : i + 1, i - 1] / np.hypot(*upper[i - 1 : i + 1, i - 1])
            upper[i - 1 : i + 1] = np.array([[across, down], [-down, across]]) @ upper[i - 1 : i + 1]
            i, fresh = max(i - 1, 1), False
    return basis
