"""Shamir's scheme over GF(2^8): against a slow field, and that too few shares say nothing.

No published vector of sharings is used: the known ones (SLIP-39) fix their polynomials by values at
points of their own. The field is tested with the products of FIPS 197, sharings with polynomials
that are evaluated one term at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privfed.protocols.crypto import shamir
from privfed.protocols.crypto.shamir import (
    Bytes,
    Shares,
    check_abscissae,
    combine,
    interpolation,
    lagrange,
    share,
)
from tests.raised import parameter_refused
from tests.some import some

P_VALUE = 1e-6
SECRET = bytes(range(32))


def times(a: int, b: int) -> int:
    """Multiply in GF(2)[x] modulo x^8 + x^4 + x^3 + x + 1, a bit at a time."""
    product = 0
    for bit in range(8):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(14, 7, -1):
        if product >> bit & 1:
            product ^= 0x11B << (bit - 8)
    return product


def value_at(coefficients: list[int], point: int) -> int:
    """Evaluate a polynomial term by term."""
    result, power = 0, 1
    for coefficient in coefficients:
        result ^= times(coefficient, power)
        power = times(power, point)
    return result


def opened(shares: Bytes, abscissae: tuple[int, ...]) -> bytes:
    return bytes(combine(shares[None], lagrange(abscissae)[None])[0].tobytes())


# --- the field ---


def product(a: Bytes, b: Bytes) -> Bytes:
    """Return the products of a secret and a public element: how a share enters what is opened."""
    return combine(np.repeat(a[:, None, None], 8, axis=2), b[:, None])[:, 0]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    # FIPS 197, sections 4.2 and 4.2.1.
    [
        (0x57, 0x83, 0xC1),
        (0x57, 0x13, 0xFE),
        (0x57, 0x02, 0xAE),
        (0x57, 0x04, 0x47),
        (0x57, 0x08, 0x8E),
        (0x57, 0x10, 0x07),
    ],
)
def test_products_of_fips_197(a: int, b: int, expected: int) -> None:
    assert times(a, b) == expected
    assert product(np.array([a], dtype=np.uint8), np.array([b], dtype=np.uint8)).tolist() == [expected]


def test_all_products_are_those_of_a_slow_field() -> None:
    a, b = np.divmod(np.arange(65536), 256)
    slow = [times(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    assert product(a.astype(np.uint8), b.astype(np.uint8)).tolist() == slow


def test_a_value_elsewhere_is_that_of_the_polynomial() -> None:
    """All points at which a quotient of logarithms is looked up, against the polynomials themselves."""
    rng = np.random.default_rng(4)
    for _ in range(20):
        points = rng.permutation(256)[:8]
        coefficients = rng.integers(0, 256, 7).tolist()
        values = [value_at(coefficients, int(point)) for point in points]
        factors = interpolation(points[None, :7].astype(np.uint8), points[7:].astype(np.uint8))[0]
        found = 0
        for value, factor in zip(values[:7], factors.tolist(), strict=True):
            found ^= times(value, factor)
        assert found == values[7]
    # With two points the factors are x_k / (x_j + x_k): all quotients, and so all inverses, come up.
    every = np.array([(a, b) for a in range(1, 256) for b in range(1, 256) if a != b], dtype=np.uint8)
    first = interpolation(every, np.zeros(len(every), dtype=np.uint8))[:, 0]
    assert all(times(int(f), int(a ^ b)) == b for f, (a, b) in zip(first, every, strict=True))


# --- sharing and opening ---


@given(st.data())
def test_any_threshold_of_the_shares_open_the_secret(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 40))
    abscissae = tuple(data.draw(st.lists(st.integers(1, 255), min_size=n, max_size=n, unique=True)))
    threshold = data.draw(st.integers(1, n))
    secret = data.draw(st.binary(min_size=32, max_size=32))
    shares = share(secret, abscissae, threshold)
    assert shares.shape == (n, 32)
    chosen = data.draw(st.permutations(range(n)))[:threshold]
    assert opened(shares[chosen], tuple(abscissae[i] for i in chosen)) == secret


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_every_subset_of_threshold_shares_opens_the_secret(n: int) -> None:
    abscissae = tuple(range(1, n + 1))
    for threshold in some(range(1, n + 1)):
        shares = share(SECRET, abscissae, threshold)
        for size in some(range(threshold, n + 1)):
            for chosen in some(itertools.combinations(range(n), size)):
                assert opened(shares[list(chosen)], tuple(abscissae[i] for i in chosen)) == SECRET


def test_shares_at_the_largest_cohort() -> None:
    abscissae = tuple(range(1, 256))
    shares = share(SECRET * 3, abscissae, 140)
    assert opened(shares[115:], abscissae[115:]) == SECRET * 3
    assert opened(shares[:139], abscissae[:139]) != SECRET * 3


def test_shares_are_the_values_of_the_polynomials(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    drawn = rng.bytes(8 * 2)
    monkeypatch.setattr(shamir, "derived", lambda secret, threshold: drawn)
    secret, abscissae = rng.bytes(8), (1, 2, 77, 255)
    shares = share(secret, abscissae, 3)
    assert shares[:2].tobytes() == drawn
    for byte in range(8):
        # The one parabola through the secret and the two shares that were drawn, found by trying all.
        fitting = []
        for a in range(256):
            coefficients = [secret[byte], a, secret[byte] ^ drawn[byte] ^ a]
            if value_at(coefficients, 2) == drawn[8 + byte]:
                fitting.append([value_at(coefficients, point) for point in abscissae])
        assert fitting == [shares[:, byte].tolist()]


def test_polynomials_follow_from_the_secret_and_differ_for_every_byte_and_every_secret() -> None:
    """Whoever opened a secret knows all shares that were dealt of it, also beside other secrets."""
    other = bytes(range(1, 33))
    both = share(SECRET + other + SECRET, (1, 2, 3), 2)
    for place, secret in some(enumerate((SECRET, other, SECRET))):
        np.testing.assert_array_equal(both[:, 32 * place : 32 * place + 32], share(secret, (1, 2, 3), 2))
    assert not np.array_equal(both[:, :32], both[:, 32:64])
    assert len(set(share(bytes(32), (1, 2, 3), 2)[0].tolist())) > 16


# --- too few shares ---


@pytest.mark.parametrize("secret", [0x00, 0x01, 0x57, 0xFF])
def test_one_share_of_two_takes_every_value_once_whatever_the_secret(
    secret: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shamir, "derived", lambda secret, threshold: bytes(range(256)))
    shares = share(bytes([secret]) * 256, tuple(range(1, 256)), 2)
    for one in some(shares):
        assert sorted(one.tolist()) == list(range(256))


@pytest.mark.parametrize("secret", [0x00, 0x01, 0x57, 0xFF])
def test_two_shares_of_three_take_every_pair_of_values_once_whatever_the_secret(
    secret: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = np.divmod(np.arange(65536), 256)
    every = np.concatenate(pairs).astype(np.uint8).tobytes()
    monkeypatch.setattr(shamir, "derived", lambda secret, threshold: every)
    shares = share(bytes([secret]) * 65536, (1, 2, 9, 255), 3).astype(int)
    for one, other in some(itertools.combinations(shares, 2)):
        assert len(set((256 * one + other).tolist())) == 65536


def test_shares_below_the_threshold_are_uniform() -> None:
    secret = np.random.default_rng(7).bytes(8192)
    shares = share(secret, tuple(range(1, 10)), 6)
    some = shares[:5]
    for view in (some[0], np.bitwise_xor.reduce(some), some[0] ^ np.frombuffer(secret, dtype=np.uint8)):
        assert stats.chisquare(np.bincount(view, minlength=256)).pvalue > P_VALUE
    # One more share, and the guess that was uniform is the secret.
    assert opened(shares[:6], tuple(range(1, 7))) == secret
    guess = np.frombuffer(opened(np.concatenate([some, some[:1]]), (1, 2, 3, 4, 5, 6)), dtype=np.uint8)
    wrong = guess ^ np.frombuffer(secret, dtype=np.uint8)
    assert stats.chisquare(np.bincount(wrong, minlength=256)).pvalue > P_VALUE


# --- bounds ---


@pytest.mark.parametrize(
    ("abscissae", "threshold", "wrong"),
    [
        pytest.param((0, 1, 2), 2, "abscissae", id="zero"),
        pytest.param((1, 2, 256), 2, "abscissae", id="above-255"),
        pytest.param((1, 2, 2), 2, "abscissae", id="twice"),
        pytest.param((-1, 2, 3), 2, "abscissae", id="negative"),
        pytest.param((1, 2, 3), 0, "threshold", id="threshold-zero"),
        pytest.param((1, 2, 3), 4, "threshold", id="threshold-above"),
        pytest.param((), 1, "threshold", id="nobody"),
    ],
)
def test_sharing_outside_the_bounds_is_an_error(
    abscissae: tuple[int, ...], threshold: int, wrong: str
) -> None:
    with parameter_refused(wrong):
        share(SECRET, abscissae, threshold)
    with parameter_refused(wrong):
        check_abscissae(abscissae, threshold)


# --- opening with liars ---


class Held:
    """Shares of several clients' secrets as answers bring them, on the full graph of n clients."""

    def __init__(self, n: int, threshold: int) -> None:
        rng = np.random.default_rng(n)
        self.n, self.threshold = n, threshold
        self.secrets = {i: rng.bytes(32) for i in range(n)}
        abscissae = tuple(range(1, n))
        self.values = np.stack([share(self.secrets[i], abscissae, threshold) for i in range(n)])
        self.given = np.ones((n, n - 1), dtype=bool)
        self.holders = np.array([[j for j in range(n) if j != i] for i in range(n)])
        self.doubted = np.zeros(n, dtype=bool)

    def at(self, owner: int, holder: int) -> tuple[int, int]:
        """Return where a holder's share of an owner's secret stands."""
        return owner, holder - (holder > owner)

    def open(self, targets: tuple[int, ...], holders: tuple[int, ...]) -> tuple[dict[int, bytes], list[int]]:
        given = np.zeros_like(self.given)
        for owner, holder in itertools.product(range(self.n), holders):
            if owner != holder:
                given[self.at(owner, holder)] = self.given[self.at(owner, holder)]
        accept: Callable[[int, bytes], bool] = lambda target, secret: secret == self.secrets[target]  # noqa: E731
        return Shares(given, self.values, self.threshold, self.holders, self.doubted).open(targets, accept)


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_threshold_and_one_more_holders_open_everybodys_secret(n: int) -> None:
    everyone = tuple(range(n))
    for threshold in some(range(1, n)):
        held = Held(n, threshold)
        for holders in some(itertools.combinations(everyone, threshold + 1)):
            assert held.open(everyone, holders) == (held.secrets, [])


def test_many_rows_are_opened_a_block_at_a_time() -> None:
    held = Held(20, 7)
    tiled = np.tile(held.given, (30, 1)), np.tile(held.values, (30, 1, 1))
    many = Shares(*tiled, 7, np.tile(held.holders, (30, 1)), held.doubted)
    many.given[5:300, :3] = False
    right, failed = many.open(range(600), lambda row, secret: secret == held.secrets[row % 20])
    assert sorted(right) == list(range(600)) and not failed


def test_fewer_holders_open_the_secrets_of_those_who_did_not_answer_only() -> None:
    held = Held(6, 4)
    right, failed = held.open(tuple(range(6)), (0, 1, 2, 3))
    assert sorted(right) == [4, 5] and failed == [0, 1, 2, 3]
    assert held.open((4, 5), (0, 1, 2)) == ({}, [4, 5])


@pytest.mark.parametrize("liar", range(7))
def test_one_liar_spoils_nothing_while_one_more_than_the_threshold_are_honest(liar: int) -> None:
    held, everyone = Held(7, 4), tuple(range(7))
    for owner in set(everyone) - {liar}:
        held.values[held.at(owner, liar)] ^= np.uint8(0x5A)
    # A target that answered holds no share of its own: without it and the liar, the threshold is left.
    honest = [i for i in everyone if i != liar][: held.threshold + 1]
    assert held.open(everyone, tuple(sorted([liar, *honest]))) == (held.secrets, [])


@pytest.mark.parametrize("n", [20, 100])
def test_two_liars_among_many_spoil_nothing(n: int) -> None:
    held = Held(n, n // 2 + 1)
    for owner, liar in itertools.product(range(n), (0, 3)):
        if owner != liar:
            held.values[held.at(owner, liar)][7] ^= 1
    targets = tuple(range(0, n, 7))
    right, failed = held.open(targets, tuple(range(n)))
    assert right == {i: held.secrets[i] for i in targets} and not failed


def test_a_share_that_was_left_out_is_not_needed() -> None:
    held = Held(6, 3)
    held.given[held.at(2, 0)] = held.given[held.at(2, 1)] = False
    assert held.open((0, 1, 2), (0, 1, 3, 4, 5)) == ({i: held.secrets[i] for i in range(3)}, [])


def test_too_many_liars_are_named_by_what_cannot_be_opened() -> None:
    held = Held(5, 4)
    held.values[held.at(1, 0)] ^= np.uint8(1)
    right, failed = held.open((0, 1), (0, 1, 2, 3, 4))
    assert right == {0: held.secrets[0]} and failed == [1]


@pytest.mark.parametrize(("n", "threshold", "liars"), [(10, 6, 3), (20, 11, 4), (100, 55, 22), (100, 55, 6)])
@pytest.mark.parametrize("byte", [None, 31])
def test_as_many_liars_as_decoding_bears_are_found_once_and_left_out(
    n: int, threshold: int, liars: int, byte: int | None
) -> None:
    """Reed and Solomon: g shares bear floor((g - t) / 2) wrong ones; where all choices are tried, g - t."""
    held, rng = Held(n, threshold), np.random.default_rng(n)
    lying = rng.choice(n, liars, replace=False)
    for owner, liar in itertools.product(range(n), lying.tolist()):
        if owner != liar:
            where = held.at(owner, liar) if byte is None else (*held.at(owner, liar), byte)
            held.values[where] ^= np.uint8(0x5A)
    honest = tuple(i for i in range(n) if i not in lying)
    right, failed = held.open(honest, tuple(range(n)))
    assert right == {i: held.secrets[i] for i in honest} and not failed
    assert set(np.flatnonzero(held.doubted).tolist()) == set(lying.tolist())
