"""Public random projections of updates: short sketches that keep distances (Johnson and Lindenstrauss 1984).

A sketch is linear in the update up to rounding: those of a start and of an update give that of the end. So
whoever knows the models can compute equations 1 and 2 of DCFL from sketches of updates. It hides nothing by
itself: its numbers are chosen by a seed that everybody knows.

Property: a vector's sketch is the same to the last bit whatever is sketched beside it, in any order of
additions. Its values are rounded to a grid of its own first, 2^-51 of its largest value times the number of
values, so that all sums are of whole numbers below 2^53.
"""

from __future__ import annotations

import math

import numpy as np

from privfed.core.values.domain import FloatArray
from privfed.core.values.numbers import check_number

SKETCHED = 1 << 22
"""Entries of the projection that are held at a time."""

TAG_SIZE = 16
"""Numbers of a tag, by which a client finds what it sent among what others did."""

_BITS = 51
"""Of sums: one less than float64 has, and one for the sign."""


def sketch_size(n_vectors: int, error: float, n_parameters: int) -> int:
    """Return how many numbers keep all distances of n vectors up to a factor 1 +- error.

    k >= 4 ln n / (error^2 / 2 - error^3 / 3) (Dasgupta and Gupta 2003, theorem 2.1, for squared distances:
    with probability at least 1 / n for a random projection; more numbers make it surer). Never more than
    there are parameters: then vectors stay as they are.

    Raises:
        ArgumentError: error does not lie in (0, 1), as in a program that a coordinator made.
    """
    check_number("error", error, "(0, 1)")
    # An error below 1e-9 asks for more numbers than any model has.
    error = max(error, 1e-9)
    wanted = math.ceil(4.0 * math.log(max(n_vectors, 2)) / (error**2 / 2.0 - error**3 / 3.0))
    return min(wanted, n_parameters)


def sketched(vectors: FloatArray, size: int, seed: int) -> FloatArray:
    """Return the projections of vectors, float64 of shape (n, size).

    Entries of the projection are +-1 / sqrt(size) (Achlioptas 2003), drawn from the seed; with as many
    numbers as parameters the vectors are returned as they are.

    Args:
        vectors: finite, float64 of shape (n, n_parameters).
        size: numbers of a sketch.
        seed: public.
    """
    n_parameters = vectors.shape[1]
    if size >= n_parameters:
        return vectors
    grid = _grid(vectors)
    whole, total = np.rint(vectors / grid), np.zeros((len(vectors), size))
    height = max(1, SKETCHED // size)
    for first in range(0, n_parameters, height):
        part = whole[:, first : first + height]
        # With signs of 2 b - 1: twice what the ones add up to, less all.
        total += 2.0 * (part @ _bits(part.shape[1], size, [seed, first])) - part.sum(axis=1, keepdims=True)
    return np.asarray(total * (grid / math.sqrt(size)))


def tags(vectors: FloatArray, seed: int) -> FloatArray:
    """Return up to `TAG_SIZE` numbers of each vector, float64 of shape (n, min(TAG_SIZE, size)).

    Each is a sum of every sixteenth value, with signs that the seed draws (count sketches, Charikar, Chen
    and Farach-Colton 2002).

    Args:
        vectors: finite, float64 of shape (n, size).
        seed: public.
    """
    n, size = vectors.shape
    width, drawn = min(TAG_SIZE, size), np.random.default_rng(seed).bytes((size + 7) // 8)
    signed = vectors * (1.0 - 2.0 * np.unpackbits(np.frombuffer(drawn, dtype=np.uint8), count=size))
    rest = size % width
    found = signed[:, : size - rest].reshape(n, -1, width).sum(axis=1)
    found[:, :rest] += signed[:, size - rest :]
    return np.asarray(found)


def _grid(vectors: FloatArray) -> FloatArray:
    """Return the step of each vector's grid, a power of two, float64 of shape (n, 1)."""
    bits = _BITS - 1 - math.ceil(math.log2(vectors.shape[1]))
    exponents = np.frexp(np.abs(vectors).max(axis=1, keepdims=True))[1]
    return np.asarray(np.ldexp(1.0, np.maximum(exponents - bits, -1000)))


def _bits(height: int, size: int, seed: list[int]) -> FloatArray:
    """Return zeros and ones, float64 of shape (height, size)."""
    drawn = np.frombuffer(np.random.default_rng(seed).bytes((height * size + 7) // 8), dtype=np.uint8)
    return np.unpackbits(drawn)[: height * size].reshape(height, size).astype(np.float64)
