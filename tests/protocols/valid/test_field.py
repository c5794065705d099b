"""The compiled field and its codes give what Python's whole numbers give."""

from __future__ import annotations

import numpy as np
import pytest

compiled_field = pytest.importorskip("privfed.numerics.kernels.compiled_field", reason="needs numba")

P, RATE = compiled_field.P, compiled_field.RATE
EDGES = [0, 1, 2, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63, P // 2, P - 2**32, P - 2, P - 1]


def uniform(*shape: int, seed: int = 0) -> compiled_field.Field:
    return np.random.default_rng(seed).integers(0, P, shape, dtype=np.uint64)


def test_p_is_prime_and_has_a_subgroup_of_order_2_to_the_32() -> None:
    factors = [2, 3, 5, 17, 257, 65537]
    assert P - 1 == 2**32 * 3 * 5 * 17 * 257 * 65537
    assert pow(7, P - 1, P) == 1
    # A primitive root of that order exists modulo primes only (Lucas).
    assert all(pow(7, (P - 1) // one, P) != 1 for one in factors)


def test_sums_and_products_are_those_of_whole_numbers() -> None:
    values = np.concatenate([np.array(EDGES, dtype=np.uint64), uniform(300)])
    left, right = (one.ravel() for one in np.meshgrid(values, values))
    both = list(zip(left.tolist(), right.tolist(), strict=True))
    assert compiled_field.sums(left, right).tolist() == [(a + b) % P for a, b in both]
    assert compiled_field.products(left, right).tolist() == [a * b % P for a, b in both]


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 3), (3, 64, 40)])
def test_combinations_are_those_of_whole_numbers(shape: tuple[int, int, int]) -> None:
    r, n, m = shape
    weights, table = uniform(r, m), uniform(n, m, seed=1)
    weights[:, ::2] = 0
    expected = (table.astype(object) @ weights.T.astype(object)).T % P
    assert (compiled_field.combined(weights, table).astype(object) == expected).all()


def points(k: int, shift: int) -> list[int]:
    """Return the points of a subgroup times a shift, in the order of bit-reversed powers."""
    root, bits = pow(7, (P - 1) // k, P), k.bit_length() - 1
    return [shift * pow(root, int(f"{i:0{bits}b}"[::-1], 2), P) % P for i in range(k)]


@pytest.mark.parametrize("k", [2, 8, 64])
@pytest.mark.parametrize("width", [1, 17, 33])
@pytest.mark.parametrize("halves", [1, 2])
def test_codewords_are_values_of_polynomials(k: int, width: int, halves: int) -> None:
    coefficients = uniform(halves * k, width)
    found = compiled_field.encoded(coefficients, k)
    root = pow(7, (P - 1) // (RATE * k), P)
    where = [x for a in range(RATE) for x in points(k, 7 * pow(root, a, P) % P)]
    powers = np.array([[pow(x, i, P) for i in range(halves * k)] for x in where], dtype=object)
    assert found.shape == (RATE * k, width)
    assert (found.astype(object) == powers @ coefficients.astype(object) % P).all()
    # No point of a codeword holds the witness: all of those are in the subgroup itself.
    assert len(set(where)) == RATE * k and not set(where) & set(points(k, 1))


@pytest.mark.parametrize("k", [2, 8, 512])
def test_values_give_their_polynomials(k: int) -> None:
    coefficients = uniform(k, 20)
    assert (compiled_field.interpolated(compiled_field.evaluated(coefficients, k, 1)) == coefficients).all()
    wide = uniform(2 * k, 3)
    two = compiled_field.encoded(wide, k, 4)
    whole = compiled_field.encoded(wide, k)
    assert (two == np.concatenate([whole[:k], whole[4 * k : 5 * k]])).all()
    assert (compiled_field.decoded(two) == wide).all()
