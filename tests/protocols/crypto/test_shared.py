"""What two simulated clients share is computed once, and is what each would compute."""

import itertools
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans, Simulation
from privfed.engines.in_process import Fault
from privfed.protocols import Masked
from privfed.protocols.crypto import keys as shared_keys
from privfed.protocols.crypto.keys import (
    APART,
    InOneProcess,
    Shared,
    encapsulation_key,
    new_secret,
    new_seed,
    once,
    public_key,
)
from privfed.protocols.setup.advertising import hash_of
from privfed.protocols.setup.hybrid import Keyring, agreed_on, keyring
from privfed.protocols.setup.setup_messages import Listed, Offered


def test_each_value_is_handed_over_once() -> None:
    computed: list[str] = []

    def compute() -> str:
        computed.append("a")
        return "a"

    together = InOneProcess()
    assert [once(together.kept("kind"), "a", compute) for _ in range(5)] == ["a"] * 5
    assert len(computed) == 3
    assert [once(APART.kept("kind"), "a", compute) for _ in range(2)] == ["a", "a"]
    assert len(computed) == 5


def test_what_nobody_takes_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_keys, "MOST_KEPT", 3)
    together = InOneProcess()
    for number in range(10):
        once(together.kept("mask", number), "a", lambda: 0)
        together.kept("taken", number)
    assert len(together._kept) <= 5
    assert sum(map(len, together._kept.values())) <= 3


def test_keys_for_a_fit_are_the_same_on_both_sides() -> None:
    for together, whole in itertools.product((APART, InOneProcess()), (True, False)):
        one, other = ends(together, whole=whole)
        ring, made, capsules = agreed_on(one.ring, b"s", 0, (), [Offered(1, other.key)], (), together)
        assert agreed_on(ring, b"s", 0, made, [Offered(1, other.key)], (), together)[2] == capsules
        brought = [msgspec.structs.replace(capsules[0], client=0)]
        _, taken, none = agreed_on(other.ring, b"s", 1, (), (), brought, together)
        assert made == {1: taken[0]} and none == ()
        # Of bytes that were altered nothing is taken from the other end, and no key comes of them.
        for name in ("ciphertext", "tag"):
            altered = bytearray(getattr(brought[0], name))
            altered[-1] ^= 1
            lie = [msgspec.structs.replace(brought[0], **{name: bytes(altered)})]
            assert agreed_on(other.ring, b"s", 1, (), (), lie, together)[1] == {}


@dataclass
class End:
    """One of two clients: its ring, and its ML-KEM-768 key."""

    ring: Keyring
    key: bytes


def ends(together: Shared, *, whole: bool) -> list[End]:
    secrets, seeds = [new_secret(), new_secret()], [new_seed(), new_seed()]
    keys = [encapsulation_key(one) for one in seeds]
    listed = tuple(
        Listed(i, public_key(secret), hash_of(key), bytes(32), b"")
        for i, (secret, key) in enumerate(zip(secrets, keys, strict=True))
    )
    return [
        End(keyring(secrets[i], seeds[i], i, listed, 2, b"s", whole=whole, shared=together), keys[i])
        for i in range(2)
    ]


@pytest.mark.parametrize("kind", ["drop", "garbage", "lost-reply"])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_a_fit_with_lost_clients_opens_the_same_totals(blobs: list[np.ndarray], kind: str) -> None:
    words = {"init": blobs[0][:3], "max_iter": 3, "random_state": 0}
    faults = [Fault(2, "collect", kind, frozenset({2})), Fault(4, "unmask", kind, frozenset({3}))]
    model = DWFKMeans(3, protocol=Masked(losses=4), engine=Simulation(faults=faults), **words).fit(blobs)
    plain = DWFKMeans(3, protocol="plain", engine=Simulation(faults=faults[:1]), **words).fit(blobs)
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, atol=1e-6)
