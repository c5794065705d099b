"""Public random projections of updates: short sketches that keep distances (Johnson and Lindenstrauss 1984).

A sketch is linear in the update, so that the sketch of a start and of an update give that of the end, and
whoever knows the models can compute equations 1 and 2 of DCFL from sketches of updates. It hides nothing by
itself: its numbers are chosen by a seed that everybody knows.
"""

from __future__ import annotations

import math

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.errors import ArgumentError

_BLOCK = 1 << 12
"""Parameters that are projected at a time: the whole projection need not fit into memory."""


def sketch_size(n_vectors: int, error: float, n_parameters: int) -> int:
    """Return how many numbers keep all distances of n vectors up to a factor 1 +- error.

    k >= 4 ln n / (error^2 / 2 - error^3 / 3) (Dasgupta and Gupta 2003, theorem 2.1, for squared distances:
    with probability at least 1 / n for a random projection; more numbers make it surer). Never more than
    there are
    parameters: then vectors stay as they are.

    Raises:
        ArgumentError: error does not lie in (0, 1).
    """
    if not 0.0 < error < 1.0:
        raise ArgumentError(f"the error of sketches must lie in (0, 1), got {error}.")
    wanted = math.ceil(4.0 * math.log(max(n_vectors, 2)) / (error**2 / 2.0 - error**3 / 3.0))
    return min(wanted, n_parameters)


def sketched(vectors: FloatArray, size: int, seed: int) -> FloatArray:
    """Return the projections of vectors, float64 of shape (n, size).

    Entries of the projection are +-1 / sqrt(size) (Achlioptas 2003), drawn from the seed; with as many
    numbers as parameters the vectors are returned as they are.

    Args:
        vectors: float64 of shape (n, n_parameters).
        size: numbers of a sketch.
        seed: public.
    """
    n_parameters = vectors.shape[1]
    if size >= n_parameters:
        return vectors
    total = np.zeros((len(vectors), size))
    for first in range(0, n_parameters, _BLOCK):
        part = vectors[:, first : first + _BLOCK]
        rng = np.random.default_rng([seed, first])
        signs = rng.integers(0, 2, size=(part.shape[1], size), dtype=np.int8)
        total += part @ (2.0 * signs - 1.0)
    return np.asarray(total / math.sqrt(size))
