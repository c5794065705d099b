"""Ciphertexts: exact sums, a server without a key, and an error for everything that is not a sum."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import tenseal

from privfed.errors import IntegrityError
from privfed.protocols.ckks import cipher
from privfed.protocols.ckks.cipher import PADDED_BYTES, CipherSum, Ciphertexts, Key, chunks
from privfed.protocols.ckks.grid import NOISE, PRIME_BITS, RING, SLOTS, Capacity, Slots
from privfed.protocols.crypto.keys import CryptographyError
from tests.protocols.ckks.padding import padded, unpadded

N, SIZE = 10, 50
CAPACITY = Capacity(N)
LARGEST = 2**CAPACITY.limb_bits


@cache
def key() -> Key:
    """Return the key of these tests; making one takes a while."""
    return Key.generate()


def numbers(seed: int, size: int = SIZE) -> Slots:
    return np.random.default_rng(seed).integers(-LARGEST, LARGEST, size)


def added(*answers: Ciphertexts) -> Ciphertexts:
    total = CipherSum()
    for answer in answers:
        total.add(answer)
    return total.total()


def context_of(data: bytes) -> Any:
    return tenseal.context_from(unpadded(data))


def encrypted(seed: int = 0, size: int = SIZE) -> Ciphertexts:
    return key().encrypt(numbers(seed, size), CAPACITY)


@pytest.mark.parametrize("size", [1, SLOTS, SLOTS + 1, 3 * SLOTS - 7])
def test_the_decrypted_sum_is_the_exact_sum(size: int) -> None:
    total = added(*[encrypted(i, size) for i in range(N)])
    assert len(total) == chunks(size)
    expected = sum(numbers(i, size) for i in range(N))
    np.testing.assert_array_equal(key().decrypt(total, CAPACITY, size), expected)


@pytest.mark.parametrize("n", [1, 100, 1000])
@pytest.mark.parametrize("pattern", ["ends", "alternating", "one"])
def test_sums_at_the_ends_of_the_slots_are_exact(n: int, pattern: str) -> None:
    # Structured slots make the largest coefficients; a few ciphertexts stand for n of the same total.
    capacity = Capacity(n)
    many = min(n, 8)
    signs = {"ends": np.ones(SLOTS), "alternating": np.resize([1, -1], SLOTS), "one": np.eye(SLOTS)[5]}
    slots = (signs[pattern] * (2**capacity.total_bits // many)).astype(np.int64)
    total = added(*[key().encrypt(slots, capacity) for _ in range(many)])
    np.testing.assert_array_equal(key().decrypt(total, capacity, SLOTS), many * slots)


def test_the_noise_is_what_the_steps_are_made_for() -> None:
    # 2 * 4096 slots: the estimate of the standard deviation is good to a few percent.
    capacity = Capacity(1)
    vectors = cipher._read(key()._context, key().encrypt(numbers(0, 2 * SLOTS), capacity), None)
    opened = np.concatenate([np.asarray(vector.decrypt()) for vector in vectors])
    noise = (opened - np.rint(opened)) * 2.0**capacity.scale_bits
    assert 0.95 < noise.std() / NOISE < 1.05


def test_encryption_is_randomised() -> None:
    assert encrypted(1) != encrypted(1)


def test_the_key_travels_alone_and_opens_on_the_other_side() -> None:
    data = key().to_bytes()
    assert len(data) == PADDED_BYTES
    np.testing.assert_array_equal(Key.from_bytes(data).decrypt(encrypted(3), CAPACITY, SIZE), numbers(3))
    context = context_of(data)
    assert not context.has_galois_keys() and not context.has_relin_keys()


def test_a_key_is_never_shown() -> None:
    assert repr(key()) == str(key()) == "Key(...)"


def test_the_server_holds_parameters_and_no_key() -> None:
    context = cipher._public_context()
    assert context.is_public() and not context.has_secret_key()
    assert not context.has_galois_keys() and not context.has_relin_keys()
    assert len(cipher.parameters()) < 100
    vector = tenseal.ckks_vector_from(context, unpadded(encrypted()[0]))
    with pytest.raises(ValueError, match="doesn't hold a secret_key"):
        vector.decrypt()


def test_parameters_are_the_same_whoever_makes_them() -> None:
    cipher.parameters.cache_clear()
    first = cipher.parameters()
    cipher.parameters.cache_clear()
    assert first == cipher.parameters()


def test_the_memory_of_a_sum_is_that_of_one_answer() -> None:
    total = CipherSum()
    for i in range(20):
        total.add(encrypted(i, SLOTS + 1))
        assert len(total._total) == 2
    assert sum(map(len, total.total())) == 2 * PADDED_BYTES


def test_nothing_added_is_no_ciphertexts() -> None:
    assert CipherSum().total() == ()


def other_context(bits: list[int], ring: int = RING, **options: bool) -> bytes:
    kind = tenseal.ENCRYPTION_TYPE.SYMMETRIC
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, ring, coeff_mod_bit_sizes=bits, encryption_type=kind)
    if options.get("galois"):
        context.generate_galois_keys()
    data = context.serialize(
        save_secret_key=True,
        save_public_key=False,
        save_galois_keys=options.get("galois", False),
        save_relin_keys=options.get("relin", False),
    )
    return padded(data)


NO_KEY: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "0 bytes"),
    "shorter": (lambda: key().to_bytes()[:-1], "not 123904"),
    "longer": (lambda: key().to_bytes() + b"\0", "not 123904"),
    "nothing but padding": (lambda: bytes(PADDED_BYTES), "padding"),
    "junk": (lambda: padded(b"abc"), "does not parse"),
    "truncated": (lambda: padded(unpadded(key().to_bytes())[:-9]), "does not parse"),
    "public": (lambda: padded(cipher.parameters()), "not a secret key alone"),
    "with relinearisation": (lambda: other_context([55, 55], relin=True), "not a secret key alone"),
    "with rotation": (lambda: other_context([55, 55], galois=True), "not a secret key alone"),
    "primes": (lambda: other_context([54, 54]), "other parameters"),
    "ring": (lambda: other_context([27, 27], 4096), "other parameters"),
}


@pytest.mark.parametrize("name", NO_KEY)
def test_a_key_that_is_not_one_of_ours_is_an_error(name: str) -> None:
    make, reason = NO_KEY[name]
    with pytest.raises(CryptographyError, match=reason):
        Key.from_bytes(make())


def foreign(bits: int = PRIME_BITS, size: int = SLOTS, scale: float = 2.0**CAPACITY.scale_bits) -> bytes:
    """Return a ciphertext of somebody else."""
    context = context_of(other_context([bits, bits]))
    return padded(tenseal.ckks_vector(context, np.ones(size), scale=scale).serialize())


def squared() -> bytes:
    context = context_of(other_context([PRIME_BITS, PRIME_BITS], relin=True))
    context.auto_relin = context.auto_rescale = False
    scales = CAPACITY.scale_bits // 2, CAPACITY.scale_bits - CAPACITY.scale_bits // 2
    one, other = (tenseal.ckks_vector(context, np.ones(SLOTS), scale=2.0**bits) for bits in scales)
    product = one * other
    assert (product.ciphertext()[0].size(), product.ciphertext()[0].scale) == (3, 2.0**CAPACITY.scale_bits)
    # Three polynomials are longer than what is read.
    return padded(product.serialize())


MALFORMED: dict[str, Callable[[], Ciphertexts]] = {
    "no ciphertext": lambda: (),
    "empty": lambda: (b"",),
    "nothing but padding": lambda: (bytes(PADDED_BYTES),),
    "junk": lambda: (padded(b"junk" * 100),),
    "truncated": lambda: (padded(unpadded(encrypted()[0])[:-5]),),
    "cut in half": lambda: (encrypted()[0][: PADDED_BYTES // 2],),
    "one byte more": lambda: (encrypted()[0] + b"\0",),
    "one too many": lambda: (*encrypted(), *encrypted()),
    "other primes": lambda: (foreign(54),),
    "fewer slots": lambda: (foreign(size=SLOTS - 1),),
    "another scale": lambda: (foreign(scale=2.0 ** (CAPACITY.scale_bits + 1)),),
    "no sum but a product": lambda: (squared(),),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_ciphertext_of_ours_is_an_error_for_server_and_clients(name: str) -> None:
    total = CipherSum()
    total.add(encrypted(1))
    with pytest.raises(CryptographyError):
        total.add(MALFORMED[name]())
    np.testing.assert_array_equal(key().decrypt(total.total(), CAPACITY, SIZE), numbers(1))
    with pytest.raises(CryptographyError):
        key().decrypt(MALFORMED[name](), CAPACITY, SIZE)


def test_an_answer_without_ciphertexts_is_an_error_also_as_the_first() -> None:
    with pytest.raises(CryptographyError, match="0 ciphertexts"):
        CipherSum().add(())


def test_a_sum_of_which_one_ciphertext_is_bad_is_not_half_added() -> None:
    total = CipherSum()
    total.add(encrypted(1, SLOTS + 1))
    good, bad = encrypted(2, SLOTS + 1)[0], b"junk"
    with pytest.raises(CryptographyError):
        total.add((good, bad))
    opened = key().decrypt(total.total(), CAPACITY, SLOTS + 1)
    np.testing.assert_array_equal(opened, numbers(1, SLOTS + 1))


OFF_GRID: dict[str, Callable[[], Ciphertexts]] = {
    "another key": lambda: (foreign(),),
    "one of another key among ours": lambda: added(encrypted(1), (foreign(),)),
    "half a step": lambda: (shifted(0.5),),
    "beyond a slot": lambda: added(*[(shifted(2.0 ** (CAPACITY.total_bits - 1)),)] * 3),
}


def shifted(offset: float) -> bytes:
    """Return a ciphertext to which a server added a number in every slot: that needs no key."""
    vector = tenseal.ckks_vector_from(cipher._public_context(), unpadded(encrypted(1)[0]))
    return padded((vector + [offset] * SLOTS).serialize())


@pytest.mark.parametrize("name", OFF_GRID)
def test_what_decrypts_off_the_grid_is_an_error(name: str) -> None:
    with pytest.raises(IntegrityError, match="off the grid"):
        key().decrypt(OFF_GRID[name](), CAPACITY, SIZE)


def test_tenseal_alone_wraps_without_a_word() -> None:
    """What the capacity of a slot guards against: two answers whose sum is beyond the modulus."""
    context = context_of(key().to_bytes())
    half = tenseal.ckks_vector(context, np.full(SLOTS, 2.0**38), scale=2.0**CAPACITY.scale_bits)
    wrapped = np.asarray((half + half).decrypt())
    assert np.all(wrapped < 0)
    with pytest.raises(IntegrityError):
        key().decrypt(added(*[(padded(half.serialize()),)] * 2), CAPACITY, SLOTS)


def mutate(data: bytes, rng: random.Random) -> bytes:
    kind, at = rng.randrange(4), rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if kind == 2:
        return data[:at] + rng.randbytes(rng.randrange(1, 16)) + data[at:]
    return data[:at] + rng.randbytes(8) + data[at + 8 :]


def assert_no_wrong_total(repeats: int) -> None:
    rng, expected = random.Random(3), numbers(1) + numbers(2)
    data = unpadded(added(encrypted(1), encrypted(2))[0])
    told: Counter[type] = Counter()
    for _ in range(repeats):
        # Half of the changes go to the first bytes, where lengths and parameters are.
        changed = mutate(data[:200], rng) + data[200:] if rng.random() < 0.5 else mutate(data, rng)
        try:
            opened = key().decrypt((padded(changed),), CAPACITY, SIZE)
            np.testing.assert_array_equal(opened, expected)
        except (CryptographyError, IntegrityError) as error:
            told[type(error)] += 1
    # Most are stopped by the parser, the others by the grid; a few change a byte that means nothing.
    assert told[CryptographyError] > 0.5 * repeats and told[IntegrityError] > 0.05 * repeats
    assert told.total() > 0.99 * repeats


def test_no_changed_byte_gives_a_wrong_total() -> None:
    assert_no_wrong_total(300)


@pytest.mark.slow
def test_no_changed_byte_of_many_gives_a_wrong_total() -> None:
    assert_no_wrong_total(20_000)
