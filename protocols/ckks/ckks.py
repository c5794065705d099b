"""Encrypted sums: their configuration, as users write it, and how answers are encrypted, added and opened.

docs/protocols/ckks.md has the protocol.

Check words, which show that a decrypted total is the sum of whole answers, each at most once.

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

from functools import lru_cache
from typing import Literal

import numpy as np

from privfed.core.agreed.configuration import Configuration, Terms
from privfed.core.agreed.policy import default_losses
from privfed.core.roles.secure_sum import COLLECT, Assumptions, Stage
from privfed.core.stored.encoding import Message, decode, encode
from privfed.core.values.numbers import Items, check_whole
from privfed.errors import ArgumentError, IntegrityError, MessageError, PolicyError
from privfed.privacy.pricing import Drawn, reach_of
from privfed.protocols.answering import FEWEST_SUMMED, RangedAnswer
from privfed.protocols.ckks.cipher import CipherSum, Key, with_noise
from privfed.protocols.ckks.grid import MAX_CLIENTS, SlotGrid, Slots, grid_of
from privfed.protocols.client_opened.client_opened import ClientOpenedSum
from privfed.protocols.client_opened.scheme import Adder, Group, Opened, SumAttempt, needed
from privfed.protocols.crypto.fixed_point import Words
from privfed.protocols.crypto.keys import CryptographyError, bound, equal, expand
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
        words: Words = (self._factors * slots.view(np.uint64)).sum(axis=1, dtype=np.uint64)
        return words


class Encrypted(Message, frozen=True):
    """Holds an encrypted answer or total: one ciphertext for each 4096 slots."""

    ciphertexts: Items[bytes]


class CkksAdder:
    """Adds encrypted answers on the coordinator, which has the parameters and no key."""

    def __init__(self) -> None:
        self._sum = CipherSum()
        self._added: list[int] = []

    def add(self, client: int, body: bytes | memoryview, name: str) -> None:
        """Check the form of one answer and add it.

        Raises:
            MessageError: these are not ciphertexts of the agreed parameters, or unlike the first answer's.
        """
        answer: Encrypted = decode(body, Encrypted, sender=name, stage="collect")
        try:
            self._sum.add(answer.ciphertexts)
        except CryptographyError as error:
            raise MessageError(str(error), sender=name, stage="collect") from None
        self._added.append(client)

    def result(self) -> tuple[tuple[int, ...], bytes]:
        """Return the positions of the clients whose answers were added, and the encrypted total."""
        return tuple(sorted(self._added)), encode(Encrypted(self._sum.total()))


class CkksScheme:
    """Encrypts answers under a key that the clients share; a total's who-slots say whose answers it holds.

    Args:
        terms: say how many clients a total must hold for a client to open it.
        by_server: whether the coordinator adds the noise. Check words then cover only what gets no noise,
            the number clipped and the who-slots; the coordinator can change all other slots as it likes.
    """

    pairwise: Literal[False] = False

    def __init__(self, terms: Terms, *, by_server: bool = False) -> None:
        self._terms, self._by_server = terms, by_server

    def check(self, question: bytes, n_clients: int) -> None:
        """Check that the total of a cohort fits the grid, and that its limbs reveal no more than the total.

        Raises:
            ArgumentError: it does not fit, or they do (`grid_of`).
        """
        grid_of(question, n_clients)

    def draw(self) -> bytes:
        """Return a fresh key."""
        return Key.generate().to_bytes()

    def upload(self, group: Group, attempt: SumAttempt, own: RangedAnswer) -> bytes:
        """Return a client's encrypted answer, with its who-slot and check words.

        Raises:
            PolicyError: the leader sent no usable key.
        """
        grid, first, checks = self._parts(group, attempt)
        slots = grid.encode(own.vector, own.clipped, attempt.cohort.index(attempt.me))
        checked = np.concatenate([slots[:first], checks.extend(slots[first:])])
        return encode(Encrypted(_key(group.extra).encrypt(checked, grid.capacity)))

    def open(self, group: Group, attempt: SumAttempt, body: bytes) -> Opened:
        """Decrypt a total, round it to its grid, and check it before its values are used.

        Raises:
            IntegrityError: the total is malformed, off the grid, not the sum of whole answers under this
                header, or of too few.
            PolicyError: the leader sent no usable key.
        """
        (grid, first, checks), key = self._parts(group, attempt), _key(group.extra)
        try:
            total: Encrypted = decode(body, Encrypted, sender="the coordinator", stage="collect")
            slots = key.decrypt(total.ciphertexts, grid.capacity, grid.size + CHECK_SLOTS)
        except (CryptographyError, MessageError) as error:
            raise IntegrityError(f"the encrypted total of the coordinator cannot be read: {error}") from None
        slots = np.concatenate([slots[:first], checks.verify(slots[first:])])
        decoded = grid.decode(slots)
        contributors = tuple(attempt.cohort[place] for place in decoded.places)
        enough = needed(len(attempt.cohort), self._terms)
        if len(contributors) < enough:
            raise IntegrityError(
                f"the encrypted total holds {len(contributors)} answers, but needs at least {enough}: the "
                "coordinator left some out. The fit ends and its key is erased."
            )
        return Opened(decoded.vector, decoded.clipped, contributors, slots.astype("<i8").tobytes())

    def noised(self, body: bytes, noise: Drawn, n_clients: int) -> bytes:
        """Add noise to an encrypted sum.

        Raises:
            IntegrityError: the sum has another layout.
        """
        total: Encrypted = decode(body, Encrypted, sender="the clients", stage="collect")
        grid = SlotGrid(noise.spec, n_clients, noise.reach)
        # Each entry has one limb. The server is no contributor: its who-slots are zero.
        slots = np.zeros(grid.size + CHECK_SLOTS, dtype=np.int64)
        slots[: grid.entries] = np.rint(noise.values / grid.step)
        try:
            return encode(Encrypted(with_noise(total.ciphertexts, slots, grid.capacity)))
        except CryptographyError as error:
            raise IntegrityError(
                f"the clients' answers are not of the layout that was agreed on for this sum ({error}), so "
                "no noise can be added. Nothing is released; begin a new fit."
            ) from None

    def adder(self) -> Adder:
        """Return the coordinator's adder."""
        return CkksAdder()

    def _parts(self, group: Group, attempt: SumAttempt) -> tuple[SlotGrid, int, Checks]:
        """Return a sum's grid, the first slot that check words cover, and the checks from that slot on."""
        grid = grid_of(attempt.question, len(attempt.cohort))
        first = grid.entries if self._by_server else 0
        return grid, first, Checks(group.secret, attempt.header, grid.size - first)


# One key is cached: all simulated clients of a process hold the same one, and the next fit replaces it.
@lru_cache(maxsize=1)
def _key(data: bytes) -> Key:
    try:
        return Key.from_bytes(data)
    except CryptographyError:
        raise PolicyError("key") from None


LEAST_BUDGET = 5e-4
"""Least budget mu^2 for noise of the server; below it, float rounding in the encoding would matter."""

FEWEST = 3
"""Default of `honest`: in a total of two answers, each of the two clients learns the other's."""


class CKKS(ClientOpenedSum):
    """Sums homomorphically encrypted answers: the server adds ciphertexts, the clients open the total.

    Reveals to every client: every total, whose answers are in it, and every question, including those of
    sums that it is not in. Reveals to the server: who contributed, who was lost and when, message lengths
    and times; no question, no total, no answer.

    Protects answers and totals from a server that may lie about everything and colludes with *no* client:
    all clients hold the key of the fit, so a single colluding client can open every answer. A server alone
    changes nothing unnoticed (a wrong total passes with probability 2^-69), but it chooses whose answers
    are in a total, at least `honest` of them. Assumes identities that the parties exchanged before (a
    registry) and state that is never restored from a copy. Assumes ring-LWE with the parameters of
    `privfed.protocols.ckks.grid` at 128 bits, X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519. Any
    client can spoil or stop a sum. If the server adds the noise (`Privacy(noise="server")`), it can also
    change totals as it likes, except whose answers they name.

    Args:
        honest: fewest clients in a total; clients refuse to open a total of fewer.
        repeats: how often in a fit a client contributes again to a sum whose total it never got.
        losses: in how many sums of a fit, over all its set-ups, other clients may be lost than before, until
            it ends: the totals are then over at most one more sets of clients, whose differences show single
            answers, and a server can invent losses. By default one, or a tenth of 30 clients or more. It
            does not bind under differential privacy.
    """

    name = "ckks"
    recipient: Literal["clients"] = "clients"
    reveals: Literal["sums"] = "sums"
    one_key = True
    """One client's key opens every upload: shares of noise do not protect against it and the server."""
    slotted_sums = 0
    verified = False

    stages = (
        Stage("advertise", "it is out of the fit"),
        Stage("prepare", "it is out of the fit"),
        Stage("invite", "it is out of the fit"),
        Stage(COLLECT, "its answer is not in the sum", answers=True),
        Stage("close", "it does not have the last total"),
    )
    assumptions = Assumptions(
        honest="the server may lie about everything",
        colluding="no client colludes with it: one that does opens every answer",
        besides="identities were exchanged before, a client's state is never restored from a copy, and "
        "ring-LWE at 128 bits, X25519 or ML-KEM-768, AES-256, SHA-256 and Ed25519 hold",
    )

    def __init__(self, *, honest: int = FEWEST, repeats: int = 3, losses: int | None = None) -> None:
        check_whole("honest", honest, 2)
        check_whole("repeats", repeats, 0)
        check_whole("losses", losses, 0, or_none=True)
        self.honest, self.repeats, self.losses = honest, repeats, losses

    steps = staticmethod(lambda question, n_clients: grid_of(question, n_clients).step)
    """Steps of the grid in the total of an encoded question, float64 of shape (spec.size,)."""

    def terms(self, clients: int, smallest_cohort: int, max_sums: int) -> Terms:
        """Return the terms that protect a client.

        Raises:
            ArgumentError: a cohort is smaller than `honest`, or there are more clients than one sum can hold.
        """
        if not 2 <= self.honest <= smallest_cohort or smallest_cohort < FEWEST_SUMMED:
            raise ArgumentError(
                f"an encrypted sum needs 2 <= honest <= {smallest_cohort} (the smallest cohort), got honest="
                f"{self.honest}, and at least {FEWEST_SUMMED} clients in every cohort: a total of few "
                "clients shows their answers to each other. Take more clients, or draw more of them for a "
                'round, or use protocol="plain", which hides nothing.'
            )
        check_whole("clients", clients, 1, MAX_CLIENTS)
        return Terms(
            min_clients=smallest_cohort,
            honest=self.honest,
            max_sums=max_sums,
            repeats=self.repeats,
            losses=default_losses(clients) if self.losses is None else self.losses,
        )

    def scheme(self, configuration: Configuration) -> CkksScheme:
        """Return the scheme that encrypts answers.

        Raises:
            ArgumentError: a planned sum with noise does not fit its slots, or the server would add more noise
                than the encoding's float precision allows.
        """
        terms = configuration.privacy
        # The planned sums are checked before the first, so that no budget is spent on a fit that must fail.
        for added in () if terms is None else terms.schedule:
            SlotGrid(added.spec, configuration.cohorts.smallest(len(configuration.clients)), reach_of(added))
        if terms is not None and configuration.noised_by_server and terms.budget < LEAST_BUDGET:
            raise ArgumentError(
                f'noise="server" over encrypted sums needs a budget of mu^2 >= {LEAST_BUDGET:g} (epsilon of '
                f"about 0.1 or more), got epsilon={terms.epsilon:g}: with wider noise, float rounding would "
                'reveal too much. Use protocol="group-masked".'
            )
        return CkksScheme(configuration.terms, by_server=configuration.noised_by_server)
