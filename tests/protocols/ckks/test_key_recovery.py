"""Why a decrypted total is rounded before anything sees it: as it is, two of them give the key."""

from __future__ import annotations

import numpy as np
import tenseal

from privfed.errors import IntegrityError
from privfed.protocols.ckks.cipher import FARTHEST, CipherSum, Ciphertexts, Key, with_noise
from privfed.protocols.ckks.grid import RING, SLOTS, Capacity
from tests.protocols.ckks.key_recovery import recover_key, words
from tests.protocols.ckks.padding import unpadded

N = 5
CAPACITY = Capacity(N)
SCALE = 2.0**CAPACITY.scale_bits


def total(key: Key, seed: int) -> Ciphertexts:
    """Return what the server relays: the encrypted total of five clients."""
    rng, added = np.random.default_rng(seed), CipherSum()
    for _ in range(N):
        added.add(key.encrypt(rng.integers(-1000, 1000, SLOTS), CAPACITY))
    return added.total()


def test_two_decryptions_as_they_are_give_the_whole_key_and_rounded_ones_nothing() -> None:
    key = Key.generate()
    context = tenseal.context_from(unpadded(key.to_bytes()))
    secret = words(context.secret_key().data.data())
    totals = [total(key, 1), total(key, 2)]
    vectors = [tenseal.ckks_vector_from(context, unpadded(one[0])) for one in totals]
    held = [vector.ciphertext()[0] for vector in vectors]

    unrounded = [np.array(vector.decrypt()) for vector in vectors]
    recovered = recover_key((held[0], unrounded[0]), (held[1], unrounded[1]), SCALE)
    assert np.count_nonzero(recovered == secret) == RING

    rounded = [key.decrypt(one, CAPACITY, SLOTS).astype(np.float64) for one in totals]
    recovered = recover_key((held[0], rounded[0]), (held[1], rounded[1]), SCALE)
    assert np.count_nonzero(recovered == secret) == 0


def accepts(key: Key, one: Ciphertexts, offset: float) -> bool:
    """Return what a server sees that adds a fraction to all slots of a total: is it taken, or refused?"""
    try:
        key.decrypt(with_noise(one, np.full(SLOTS, offset), CAPACITY), CAPACITY, SLOTS)
    except IntegrityError:
        return False
    return True


def test_twenty_reactions_give_the_largest_noise_of_a_total() -> None:
    # docs/protocols/ckks.md says that this is not hidden: rounding hides noise from who sees totals only.
    key = Key.generate()
    one = total(key, 3)
    taken, refused = 0.0, FARTHEST
    for _ in range(20):
        middle = (taken + refused) / 2
        taken, refused = (middle, refused) if accepts(key, one, middle) else (taken, middle)
    context = tenseal.context_from(unpadded(key.to_bytes()))
    opened = np.array(tenseal.ckks_vector_from(context, unpadded(one[0])).decrypt())
    noise = opened - np.rint(opened)
    assert noise.max() > 0.01
    np.testing.assert_allclose(FARTHEST - taken, noise.max(), atol=5e-5)
