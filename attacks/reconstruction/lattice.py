"""Finds the integer coefficients of known vectors in a sum, as a closest-vector problem in a lattice.

A client's sum and number of rows are a combination of its clusters' means, with the clusters' sizes as
coefficients. Even with fewer equations than clusters, usually only one set of integers fits to the last
digits. Lattice reduction finds it: Lenstra, Lenstra, Lovasz, Mathematische Annalen 261, 1982; then Babai's
nearest plane, Combinatorica 6, 1986.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from privfed.attacks.base.measures import IntArray
from privfed.core.values.domain import FloatArray

_SCALE = 1e13
"""Weight of an equation relative to the size of a solution; about the precision of float64 sums."""

_LOVASZ = 0.99

MOST_UNKNOWNS = 20
"""Most unknowns that are tried if there are fewer equations than unknowns."""


def whole_combinations(vectors: FloatArray, targets: FloatArray, middle: FloatArray) -> IntArray:
    """Return for each target integers n with n @ vectors close to it; the caller checks how close.

    Args:
        vectors: float64 of shape (n_vectors, n_equations).
        targets: float64 of shape (n_targets, n_equations).
        middle: likeliest size of the integers, float64 of shape (n_targets,).

    Returns:
        The integers, of shape (n_targets, n_vectors).
    """
    size = len(vectors)
    largest = np.abs(vectors).max(axis=0)
    scale = _SCALE / np.maximum(largest, max(1e-3 * float(largest.max()), np.finfo(np.float64).tiny))
    basis = np.hstack([np.eye(size, dtype=np.int64), np.rint(vectors * scale).astype(np.int64)])
    basis = reduced(basis)
    wanted = np.hstack([np.repeat(middle[:, None], size, axis=1), targets * scale])
    directions, upper = np.linalg.qr(basis.astype(np.float64).T)
    left = wanted @ directions
    numbers = np.zeros((len(targets), size), dtype=np.int64)
    for i in reversed(range(size)):
        numbers[:, i] = np.rint(left[:, i] / upper[i, i])
        left -= numbers[:, i : i + 1] * upper[:, i]
    return np.asarray(numbers @ basis[:, :size], dtype=np.intp)


def reduced(basis: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return a reduced basis of the same lattice (LLL), int64 of the basis' shape.

    Args:
        basis: linearly independent vectors, one in each row, with entries below 2**53.
    """
    basis, i = basis.copy(), 1
    # Rounding might keep the swaps from ending, so they are limited; a basis that is not reduced then gives
    # numbers that do not fit, which the caller notices.
    for _ in range(100 * len(basis) ** 2):
        if i >= len(basis):
            break
        upper = np.linalg.qr(basis[: i + 1].astype(np.float64).T)[1]
        for j in reversed(range(i)):
            times = np.rint(upper[j, i] / upper[j, j])
            upper[:, i] -= times * upper[:, j]
            basis[i] -= np.int64(times) * basis[j]
        if upper[i, i] ** 2 >= (_LOVASZ * upper[i - 1, i - 1] ** 2 - upper[i - 1, i] ** 2):
            i += 1
        else:
            basis[[i - 1, i]] = basis[[i, i - 1]]
            i = max(i - 1, 1)
    return basis
