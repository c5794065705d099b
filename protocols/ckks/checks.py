"""Check words, which show that a decrypted total is the sum of whole answers, each at most once.

A dishonest server could send something else than the sum: n times one ciphertext, an old one, one with an
offset, or parts of different clients' ciphertexts. So each client appends three check words of its answer x,

    c = sum over l of r_l x_l  modulo 2^64,    r uniform, from PRG(G, header), unknown to the server,

each cut into four limbs of 16 bits. The clients compare the total of these check words with the check
words of the total.

Why it holds. An answer x_i has a who-slot for each client of the cohort: 1 in the client's own, 0 in all
others. Let y be what was decrypted: any function of the answers x_i and their check words c_i. With b_i
the who-slots of y, y' = y - sum b_i x_i is zero in every who-slot. The r_l of the who-slots make the c_i
uniform and independent of all other r_l. So y passes one check word with probability at most 2^(v - 64),
where 2^v is the largest power of two that divides every y'_l. Slots of a total are at most 2^40, so
v <= 41, and a wrong y passes three words with probability at most 2^-69. The b_i are checked to be 0 or 1
(`SlotGrid.decode`).
"""

from __future__ import annotations

import numpy as np

from privfed.errors import IntegrityError
from privfed.protocols.ckks.grid import Slots
from privfed.protocols.crypto.fixed_point import Words
from privfed.protocols.crypto.keys import bound, equal, expand
from privfed.protocols.crypto.keystream import keystream

WORDS = 3
LIMBS = 4
LIMB_BITS = 16
CHECK_SLOTS = WORDS * LIMBS

_SHIFTS = np.arange(LIMBS, dtype=np.uint64) * np.uint64(LIMB_BITS)
_LIMB = np.uint64((1 << LIMB_BITS) - 1)


class Checks:
    """Computes and verifies the check words of one sum.

    Args:
        group: secret that the clients share and the server does not know, 32 bytes.
        header: hash that identifies the sum; never the same for two sums.
        size: number of slots of an answer.
    """

    def __init__(self, group: bytes, header: bytes, size: int) -> None:
        stream = keystream(expand(group, bound("ckks check", header)), WORDS * size)
        self._factors = stream.reshape(WORDS, size)

    def extend(self, slots: Slots) -> Slots:
        """Return an answer, int64 of shape (size,), followed by its check slots."""
        limbs = (self._words(slots)[:, np.newaxis] >> _SHIFTS) & _LIMB
        return np.concatenate([slots, limbs.astype(np.int64).ravel()])

    def verify(self, totals: Slots) -> Slots:
        """Return a total without its check slots.

        Raises:
            IntegrityError: it is not a sum of whole answers under this header.
        """
        slots, limbs = totals[:-CHECK_SLOTS], totals[-CHECK_SLOTS:].reshape(WORDS, LIMBS)
        words = (limbs.astype(np.uint64) << _SHIFTS).sum(axis=1, dtype=np.uint64)
        if not equal(words.tobytes(), self._words(slots).tobytes()):
            raise IntegrityError(
                "the check words of an opened sum are wrong: it is not the sum of the clients' answers to "
                "this question. The coordinator did not just add them, or a client sent check words that do "
                "not belong to its answer. The fit ends and its key is erased."
            )
        return slots

    def _words(self, slots: Slots) -> Words:
        products = self._factors * slots.view(np.uint64)
        words: Words = products.sum(axis=1, dtype=np.uint64)
        return words
