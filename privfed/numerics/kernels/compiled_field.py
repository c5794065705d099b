"""Arithmetic modulo p = 2^64 - 2^32 + 1 and Reed-Solomon codes over it, compiled by numba.

`privfed.protocols.valid.proof` calls it, and loads it when the first proof is made or checked. All arrays are
uint64, and their elements lie in [0, p). Polynomials and codewords stand in columns: element (i, j) of a
table belongs to polynomial j, so that a row of a table of codewords is what all of them hold at one point.

A polynomial of fewer than k coefficients has values on the subgroup of order k, and its codeword are the
values on the 8 cosets 7 w^a of that subgroup, a = 0..7, where w has order 8k. Both stand in the order that a
transform without permutation gives: bit-reversed powers.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types, vectorize
from numba.extending import intrinsic

P = 2**64 - 2**32 + 1
RATE = 8
"""Values of a codeword for each coefficient of its polynomial."""

_GENERATOR = 7
_MODULUS, _REST, _HALF, _NONE = np.uint64(P), np.uint64(2**32 - 1), np.uint64(32), np.uint64(0)
_TOGETHER = 16
"""Polynomials that are transformed together: those of 4,096 coefficients stay in the processor's cache."""

Field = npt.NDArray[np.uint64]


@njit(cache=True)
def _added(a, b):
    """Return a + b."""
    total = a + b
    # 2^64 = 2^32 - 1 modulo p.
    total += _REST if total < a else _NONE
    return total - _MODULUS if total >= _MODULUS else total


@intrinsic
def _upper(context, a, b):
    """Return the upper half of the product on 128 bits."""

    def emit(context, builder, signature, arguments):
        left, right = (builder.zext(one, ir.IntType(128)) for one in arguments)
        half = builder.lshr(builder.mul(left, right), ir.Constant(ir.IntType(128), 64))
        return builder.trunc(half, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), emit


@njit(cache=True)
def _times(a, b):
    """Return a b: of the product on 128 bits 2^64 = 2^32 - 1 and 2^96 = -1."""
    low, high = a * b, _upper(a, b)
    top, more = high >> _HALF, (high & _REST) * _REST
    total = low - top - (_REST if low < top else _NONE) + more
    total += _REST if total < more else _NONE
    return total - _MODULUS if total >= _MODULUS else total


@vectorize(["uint64(uint64, uint64)"], cache=True)
def sums(a, b):
    """Return the sums of arrays, as a ufunc of numpy's."""
    return _added(a, b)


@vectorize(["uint64(uint64, uint64)"], cache=True)
def products(a, b):
    """Return the products of arrays, as a ufunc of numpy's."""
    return _times(a, b)


@njit(cache=True)
def _transform(table, roots, back):
    """Transform columns in place: from coefficients to values in bit-reversed order, or back, times k."""
    k, m = table.shape
    for first in range(0, m, _TOGETHER):
        stop = min(m, first + _TOGETHER)
        half = 1 if back else k // 2
        while 0 < half < k:
            for start in range(0, k, 2 * half):
                for j in range(half):
                    root = roots[j * (k // (2 * half))]
                    above, below = table[start + j], table[start + j + half]
                    for c in range(first, stop):
                        a, b = above[c], below[c]
                        b = _times(b, root) if back else b
                        above[c] = _added(a, b)
                        a = a - b + (_MODULUS if a < b else _NONE)
                        below[c] = a if back else _times(a, root)
            half = 2 * half if back else half // 2


@njit(cache=True)
def combined(weights, table):
    """Return for each list of weights, (r, m), the sum of weight times column: (r, n) of a table (n, m)."""
    out = np.zeros((len(weights), len(table)), np.uint64)
    for r in range(len(weights)):
        for i in range(len(table)):
            total = _NONE
            for j in range(table.shape[1]):
                if weights[r, j]:
                    total = _added(total, _times(weights[r, j], table[i, j]))
            out[r, i] = total
    return out


@cache
def _powers(base: int, n: int, first: int = 1) -> Field:
    """Return first times the powers 0..n-1 of base."""
    factors = np.full(n, base, dtype=np.uint64)
    factors[0] = first
    return products.accumulate(factors)


def _root(order: int) -> int:
    """Return an element whose order is a power of two."""
    return pow(_GENERATOR, (P - 1) // order, P)


def interpolated(values: Field, shift: int = 1) -> Field:
    """Return coefficients, (k, m), of polynomials with values (k, m) on the subgroup times a shift."""
    k, found = len(values), values.copy()
    _transform(found, _powers(pow(_root(k), -1, P), k // 2), True)
    return products(found, _powers(pow(shift, -1, P), k, pow(k, -1, P)).reshape(-1, 1))


def evaluated(coefficients: Field, k: int, *shifts: int) -> Field:
    """Return values on the subgroup of order k times each shift of polynomials with k or 2k coefficients.

    Args:
        coefficients: of shape (n, m).
        k: order of the subgroup.
        shifts: s of them.

    Returns:
        Values of shape (s k, m).
    """
    n, m = coefficients.shape
    out = np.empty((len(shifts) * k, m), dtype=np.uint64)
    for part, shift in zip(np.split(out, len(shifts)), shifts, strict=True):
        raised = products(coefficients, _powers(shift, n).reshape(-1, 1))
        # There x^k is constant: what lies above folds onto what lies below.
        part[:] = raised if n == k else sums(raised[:k], raised[k:])
        _transform(part, _powers(_root(k), k // 2), False)
    return out


def encoded(coefficients: Field, k: int, step: int = 1) -> Field:
    """Return codewords, (8k, m), of polynomials with k or 2k coefficients, (n, m); or each step-th coset."""
    shifts = [_GENERATOR * pow(_root(RATE * k), a, P) % P for a in range(0, RATE, step)]
    return evaluated(coefficients, k, *shifts)


def decoded(values: Field) -> Field:
    """Return (2k, m) coefficients of polynomials with values (2k, m) at the cosets 0 and 4 of a codeword."""
    k = len(values) // 2
    other = _GENERATOR * pow(_root(2 * k), 1, P) % P
    left, right = interpolated(values[:k], _GENERATOR), interpolated(values[k:], other)
    # There x^k is s and -s: these are below + s above, and below - s above.
    half, part = pow(2, -1, P), pow(2 * pow(_GENERATOR, k, P), -1, P)
    difference = sums(left, np.where(right > 0, _MODULUS - right, right))
    return np.concatenate(
        [products(sums(left, right), np.uint64(half)), products(difference, np.uint64(part))]
    )
