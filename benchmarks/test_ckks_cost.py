"""Cost of an encrypted sum compared with TenSEAL alone: 49,152 entries, 10 clients, one thread, no network.

Run by `make bench`; it prints ratios of measurements of the same minute, and asserts nothing about time. It
is compared with TenSEAL's defaults (a public key, [60, 60], scale 2^40), and with TenSEAL under our
parameters and a symmetric key. Both encrypt, serialise, parse, add and decrypt, but check nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenseal
from threadpoolctl import threadpool_limits

from privfed.core.asking.statistics import Entry, StatisticsSpec
from privfed.core.stored.encoding import decode, encode
from privfed.protocols.ckks.cipher import Key
from privfed.protocols.ckks.ckks import CHECK_SLOTS, Checks, CkksAdder, Encrypted
from privfed.protocols.ckks.grid import PRIME_BITS, RING, SLOTS, SlotGrid

Cost = dict[str, float]
"""Seconds of processor time by step, and bytes of one answer."""

CLIENTS, ENTRIES, REPEATS = 10, 12 * SLOTS, 7
SPEC = StatisticsSpec(Entry("x", (ENTRIES,), -10.0, 10.0, 2.0**-20))
ANSWERS = np.random.default_rng(0).uniform(-10, 10, (CLIENTS, ENTRIES))


class Clock:
    """Adds up processor time by step."""

    def __init__(self) -> None:
        self.cost: Cost = {"encrypt": 0.0, "add": 0.0, "decrypt": 0.0}

    def __call__(self, step: str, work: Callable[[], Any]) -> Any:
        start = time.process_time()
        result = work()
        self.cost[step] += time.process_time() - start
        return result


class Raw:
    """Runs a sum with TenSEAL alone.

    Args:
        bits: bits of each of the two primes.
        scale: scale of the encoding.
        kind: whether clients encrypt under a public or a symmetric key.
    """

    def __init__(self, bits: int, scale: float, kind: tenseal.ENCRYPTION_TYPE) -> None:
        bits_of_both = [bits, bits]
        self.context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS, RING, coeff_mod_bit_sizes=bits_of_both, encryption_type=kind
        )
        self.context.global_scale = scale
        self.public = tenseal.context_from(self.context.serialize(save_secret_key=False))

    def encrypted(self, answer: Any) -> list[bytes]:
        rows = answer.reshape(-1, SLOTS)
        return [tenseal.ckks_vector(self.context, row).serialize() for row in rows]

    def run(self) -> Cost:
        clock = Clock()
        uploads = [clock("encrypt", lambda one=one: self.encrypted(one)) for one in ANSWERS]
        total = clock("add", lambda: self.added(uploads))
        opened = clock("decrypt", lambda: self.decrypted(total))
        assert np.abs(opened - ANSWERS.sum(axis=0)).max() < CLIENTS * 1e-4
        return clock.cost | {"bytes": sum(map(len, uploads[0]))}

    def added(self, uploads: list[list[bytes]]) -> list[bytes]:
        total: list[Any] = []
        for upload in uploads:
            vectors = [tenseal.ckks_vector_from(self.public, one) for one in upload]
            for one, vector in zip(total, vectors, strict=False):
                one += vector
            total = total or vectors
        return [one.serialize() for one in total]

    def decrypted(self, total: list[bytes]) -> Any:
        return np.concatenate([tenseal.ckks_vector_from(self.context, one).decrypt() for one in total])


class Ours:
    """Runs an encrypted sum of privfed, with grid, checks and messages."""

    def __init__(self) -> None:
        self.key = Key.generate()

    def upload(self, place: int) -> bytes:
        grid = SlotGrid(SPEC, CLIENTS)
        slots = grid.encode(ANSWERS[place], 0, place)
        checked = Checks(bytes(32), bytes(32), grid.size).extend(slots)
        return encode(Encrypted(self.key.encrypt(checked, grid.capacity)))

    def opened(self, body: bytes) -> Any:
        grid = SlotGrid(SPEC, CLIENTS)
        total = decode(body, Encrypted, sender="", stage="").ciphertexts
        slots = self.key.decrypt(total, grid.capacity, grid.size + CHECK_SLOTS)
        return grid.decode(Checks(bytes(32), bytes(32), grid.size).verify(slots))

    def run(self) -> Cost:
        clock, adder = Clock(), CkksAdder()
        uploads = [clock("encrypt", lambda place=place: self.upload(place)) for place in range(CLIENTS)]
        for place, upload in enumerate(uploads):
            clock("add", lambda place=place, upload=upload: adder.add(place, upload, ""))
        _, body = clock("add", adder.result)
        opened = clock("decrypt", lambda: self.opened(body))
        assert np.abs(opened.vector - ANSWERS.sum(axis=0)).max() <= CLIENTS * SlotGrid(SPEC, CLIENTS).step[0]
        assert opened.places == tuple(range(CLIENTS))
        return clock.cost | {"bytes": len(uploads[0])}


@pytest.mark.benchmark
def test_ckks_cost() -> None:
    rivals = {
        "ours": Ours(),
        "TenSEAL, public key, [60, 60]": Raw(60, 2.0**40, tenseal.ENCRYPTION_TYPE.ASYMMETRIC),
        "TenSEAL, symmetric, [55, 55]": Raw(PRIME_BITS, 2.0**40, tenseal.ENCRYPTION_TYPE.SYMMETRIC),
    }
    costs: dict[str, list[Cost]] = {name: [] for name in rivals}
    with threadpool_limits(1):
        for _ in range(REPEATS):
            for name, rival in rivals.items():
                costs[name].append(rival.run())
    report(costs)


def report(costs: dict[str, list[Cost]]) -> None:
    """Print the table: medians of times in ms, and medians of ratios within a round."""
    print(
        f"\nOne encrypted sum, {CLIENTS} clients, {ENTRIES} entries; processor time in ms, {REPEATS} rounds"
    )
    for name, rows in costs.items():
        one = {step: statistics.median(row[step] for row in rows) for step in rows[0]}
        # Times are for one client's encryption and decryption, and for all additions of the server.
        ratios = [whole(row) / whole(ours) for row, ours in zip(rows, costs["ours"], strict=True)]
        print(
            f"{name:32} encrypt {1000 * one['encrypt'] / CLIENTS:6.1f}  add {1000 * one['add']:6.1f}  "
            f"decrypt {1000 * one['decrypt']:5.1f}  ours / this {1 / statistics.median(ratios):.3f}  "
            f"bytes / float64 {one['bytes'] / 8 / ENTRIES:.4f}"
        )


def whole(cost: Cost) -> float:
    """Return the time of all clients' encryption, the server's additions and one decryption."""
    return cost["encrypt"] + cost["add"] + cost["decrypt"]
