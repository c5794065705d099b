"""Primitives against published vectors.

Vectors: RFC 7748 (X25519), RFC 8032 (Ed25519), RFC 5869 (HKDF), NIST SP 800-38A (AES-256).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privfed.core.agreed.agreement import Registry
from privfed.errors import ArgumentError
from privfed.protocols.crypto.fixed_point import Grid, Layout
from privfed.protocols.crypto.keys import (
    CryptographyError,
    Identity,
    agree,
    combine_secrets,
    expand,
    new_secret,
    public_key,
    verify,
    with_numbers,
)
from privfed.protocols.crypto.keystream import BLOCK_WORDS, Masker, keystream
from tests.protocols.federations import vectors, wide_vectors

h = bytes.fromhex


# --- published vectors ---


@pytest.mark.parametrize(
    ("scalar", "u", "result"),
    [
        pytest.param(
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
            id="section-5.2",
        ),
        pytest.param(
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
            id="section-6.1-alice",
        ),
        pytest.param(
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
            "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
            id="section-6.1-bob",
        ),
    ],
)
def test_x25519_of_rfc_7748(scalar: str, u: str, result: str) -> None:
    assert agree(h(scalar), h(u)).hex() == result


def test_x25519_public_keys_of_rfc_7748() -> None:
    alice = h("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = h("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert public_key(alice).hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert public_key(bob).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"


@pytest.mark.parametrize(
    ("secret", "public", "message", "signature"),
    [
        pytest.param(
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            id="test-1",
        ),
        pytest.param(
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            id="test-2",
        ),
    ],
)
def test_ed25519_of_rfc_8032(secret: str, public: str, message: str, signature: str) -> None:
    identity = Identity(h(secret))
    assert identity.public.hex() == public
    assert identity.sign(h(message)).hex() == signature
    verify(h(public), h(signature), h(message))
    with pytest.raises(CryptographyError, match="does not hold"):
        verify(h(public), h(signature), h(message) + b"\0")


def test_expand_gives_the_first_32_bytes_of_rfc_5869() -> None:
    # Test case 1: its output has 42 bytes.
    prk = h("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
    okm = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert expand(prk, h("f0f1f2f3f4f5f6f7f8f9")).hex() == okm[:64]


def test_combined_secrets_give_the_first_32_bytes_of_rfc_5869() -> None:
    # Test case 3: no salt, no info.
    okm = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    assert combine_secrets(b"\x0b" * 11, b"\x0b" * 11, b"").hex() == okm[:64]


def aes(key: bytes, block: bytes) -> bytes:
    encryptor = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
    return encryptor.update(block)


def counted(key: bytes, size: int) -> np.ndarray:
    """Return a keystream made block by block: AES of 0, 1, 2, ... as NIST SP 800-38A, section 6.5, says."""
    blocks = -(-size // 2)
    stream = b"".join(aes(key, counter.to_bytes(16, "big")) for counter in range(blocks))
    return np.frombuffer(stream, dtype="<u8")[:size].astype(np.uint64)


NIST_KEY = h("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")


def test_the_block_cipher_of_nist_sp_800_38a() -> None:
    # F.5.5 (CTR-AES256) starts its counter at f0f1...ff; ours start at zero, so only its blocks fit.
    assert aes(NIST_KEY, bytes(range(0xF0, 0x100))).hex() == "0bdf7df1591716335e9a8b15c860c502"
    assert aes(NIST_KEY, h("6bc1bee22e409f96e93d7e117393172a")).hex() == "f3eed1bdb5d2a03c064b5a7e3db181f8"


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1001])
@pytest.mark.parametrize("key", [NIST_KEY, bytes(32)])
def test_keystreams_are_aes_256_in_counter_mode_from_zero(key: bytes, size: int) -> None:
    np.testing.assert_array_equal(keystream(key, size), counted(key, size))


@pytest.mark.parametrize("size", [2, 2 * BLOCK_WORDS, 2 * BLOCK_WORDS + 7])
def test_masking_adds_the_keystream_and_unmasking_subtracts_it(size: int) -> None:
    grid = Grid(vectors(size).spec, 5)
    total = np.arange(grid.size, dtype=np.uint64)
    Masker(grid).add(total, NIST_KEY)
    np.testing.assert_array_equal(
        total, np.arange(grid.size, dtype=np.uint64) + keystream(NIST_KEY, grid.size)
    )
    other = Masker(grid)
    other.add(total, NIST_KEY, -1)
    np.testing.assert_array_equal(total, np.arange(grid.size, dtype=np.uint64))


def test_masks_of_wide_entries_carry() -> None:
    grid = Grid(wide_vectors(9).spec, 5)
    start = np.full(grid.size, 2**64 - 1, dtype=np.uint64)
    total = start.copy()
    Masker(grid).add(total, NIST_KEY)
    stream = keystream(NIST_KEY, grid.size).tolist()
    narrow, wide = grid.n_narrow, grid.n_wide
    for place in range(wide):
        mask = (stream[narrow + wide + place] << 64) + stream[narrow + place]
        value = (int(total[narrow + wide + place]) << 64) + int(total[narrow + place])
        assert value == (2**128 - 1 + mask) % 2**128
    Masker(grid).add(total, NIST_KEY, -1)
    np.testing.assert_array_equal(total, start)


@pytest.mark.parametrize("n_paired", [3, BLOCK_WORDS + 5])
def test_masks_of_halves_do_not_carry(n_paired: int) -> None:
    layout = Layout(2, 0, 0, n_paired)
    start = np.full(layout.size, 2**64 - 1, dtype=np.uint64)
    total, stream = start.copy(), keystream(NIST_KEY, layout.size)
    Masker(layout).add(total, NIST_KEY)
    # Minus one, modulo 2^32 in both halves and modulo 2^64 in the words after them.
    low, high = (stream - np.uint64(1)) & np.uint64(2**32 - 1), (stream >> np.uint64(32)) - np.uint64(1)
    expected = np.where(np.arange(layout.size) < n_paired, low | (high << np.uint64(32)), stream - 1)
    np.testing.assert_array_equal(total, expected)
    Masker(layout).add(total, NIST_KEY, -1)
    np.testing.assert_array_equal(total, start)


# --- key agreement ---

SMALL_ORDER = [
    # The points of small order in RFC 7748's encoding: an all-zero result whatever the secret.
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]


@pytest.mark.parametrize("public", SMALL_ORDER)
def test_an_all_zero_x25519_result_is_an_error(public: str) -> None:
    with pytest.raises(CryptographyError, match="unusable public key"):
        agree(new_secret(), h(public))


@pytest.mark.parametrize("public", [b"", bytes(31), bytes(33)])
def test_a_public_key_of_another_length_is_an_error(public: bytes) -> None:
    with pytest.raises(CryptographyError):
        agree(new_secret(), public)
    with pytest.raises(CryptographyError):
        verify(public, bytes(64), b"")


def test_secrets_and_identities_are_drawn_anew() -> None:
    assert len({new_secret() for _ in range(100)} | {Identity.generate().secret for _ in range(100)}) == 200


@pytest.mark.parametrize(
    ("clients", "server"),
    [((bytes(32), bytes(31)), bytes(32)), ((bytes(32),), b""), ((b"\1" * 32, b"\1" * 32), bytes(32))],
)
def test_a_registry_needs_keys_of_their_own(clients: tuple[bytes, ...], server: bytes) -> None:
    with pytest.raises(ArgumentError, match="registry"):
        Registry(clients, server)


def test_registries_have_the_same_digest_only_where_they_are_the_same() -> None:
    keys = [bytes([i]) * 32 for i in range(4)]
    registries = [
        Registry((keys[0], keys[1]), keys[2]),
        Registry((keys[1], keys[0]), keys[2]),
        Registry((keys[0],), keys[2]),
        Registry((keys[0], keys[1]), keys[3]),
    ]
    assert len({one.digest() for one in registries}) == 4


@pytest.mark.parametrize("numbers", [(), (1,), (0, 2**64 - 1), (1, 2, 3, 4), tuple(range(50))], ids=len)
def test_any_number_of_numbers_is_appended(numbers: tuple[int, ...]) -> None:
    found = with_numbers(b"prefix", *numbers)
    assert found == b"prefix" + b"".join(one.to_bytes(8, "big") for one in numbers)


@pytest.mark.parametrize("number", [-1, 2**64, 0.5, "1"])
def test_a_number_that_does_not_fit_is_an_error(number: Any) -> None:
    with pytest.raises(ArgumentError):
        with_numbers(b"prefix", 1, number)
