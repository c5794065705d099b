"""What two simulated clients share is computed once, and is what each would compute."""

import itertools
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest

from privfed import DWFKMeans, Simulation
from privfed.engines.in_process import Fault
from privfed.errors import PolicyError
from privfed.protocols import Masked
from privfed.protocols.crypto import shared
from privfed.protocols.crypto.fixed_point import Layout
from privfed.protocols.crypto.keys import encapsulation_key, new_secret, new_seed, public_key
from privfed.protocols.crypto.keystream import SHORT, Mask, Masker, keystream
from privfed.protocols.crypto.shared import APART, InOneProcess, Shared, once
from privfed.protocols.masked.bindings import pair_mask_key
from privfed.protocols.masked.boxes import Boxes
from privfed.protocols.masked.checks import check_receipts
from privfed.protocols.masked.masking import BoundTo
from privfed.protocols.masked.messages import CollectRequest, Preparation
from privfed.protocols.masked.state import Fit, Pair, Pending, Secrets
from privfed.protocols.setup.graph import Neighbours
from privfed.protocols.setup.hybrid import Keyring, agreed_on, keyring
from privfed.protocols.setup.journal_counter import hash_of
from privfed.protocols.setup.messages import Listed, Offered


def test_each_value_is_handed_over_once() -> None:
    computed: list[str] = []

    def compute() -> str:
        computed.append("a")
        return "a"

    together = InOneProcess()
    assert [once(together.held("kind"), "a", compute) for _ in range(5)] == ["a"] * 5
    assert len(computed) == 3
    assert [once(APART.held("kind"), "a", compute) for _ in range(2)] == ["a", "a"]
    assert len(computed) == 5


def test_what_nobody_takes_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_HELD", 3)
    together = InOneProcess()
    for number in range(10):
        once(together.held("mask", number), "a", lambda: 0)
        together.held("taken", number)
    assert len(together._held) <= 5
    assert sum(map(len, together._held.values())) <= 3


@pytest.mark.parametrize("together", [APART, InOneProcess()], ids=["apart", "in one process"])
def test_both_sides_agree_and_other_keys_or_sums_do_not(together: Shared) -> None:
    secrets = [new_secret() for _ in range(3)]
    publics = [public_key(one) for one in secrets]

    def key(me: int, other: int, header: bytes = b"h", public: bytes | None = None) -> bytes:
        own = Secrets(secrets[me], b"", b"", Preparation(1, 0, publics[me], b"", b""))
        theirs = publics[other] if public is None else public
        masks = BoundTo(b"s", 1, me, header, together).masks(own, [other], theirs)
        assert masks[1][1] == (me < other)
        return masks[1][0].key

    apart = pair_mask_key(secrets[0], publics[1], b"s", 1, 0, 1, b"h")
    assert key(0, 1) == key(1, 0) == apart
    # A server that exchanges a key, or tells two stories about the sum, leaves the two with different masks.
    assert key(0, 1) != key(1, 0, public=publics[2])
    assert key(0, 1) != key(1, 0, header=b"other")


@pytest.mark.parametrize("together", [APART, InOneProcess()], ids=["apart", "in one process"])
@pytest.mark.parametrize("altered", ["box", "mask key", "seed hash", "nothing"])
def test_a_box_opens_only_as_it_was_sealed(together: Shared, altered: str) -> None:
    pair, key, seed_hash = Pair(new_secret(), new_secret()), new_secret(), new_secret()
    one, other = (Boxes({1 - me: pair}, b"s", 1, me, 1, b"cohort", together) for me in range(2))
    plain = np.arange(96, dtype=np.uint8)[None]
    box = one.sealed(key, seed_hash, Neighbours((1,), np.array([1]), (1,)), plain)
    if altered == "nothing":
        assert other.opened([0], [1], collect(key, seed_hash, box)) == plain.tobytes()
        assert other.opened([0], [1], collect(key, seed_hash, box)) == plain.tobytes()
        return
    sent = {
        "box": (key, seed_hash, box[:-1] + bytes([box[-1] ^ 1])),
        "mask key": (new_secret(), seed_hash, box),
        "seed hash": (key, new_secret(), box),
    }
    with pytest.raises(PolicyError, match="box:0"):
        other.opened([0], [1], collect(*sent[altered]))


def collect(mask_key: bytes, seed_hash: bytes, box: bytes) -> CollectRequest:
    return CollectRequest(0, 0, b"", b"", mask_key, seed_hash, box, ())


@pytest.mark.parametrize("together", [APART, InOneProcess()], ids=["apart", "in one process"])
def test_receipts_hold_for_one_sum_and_way_only(together: Shared) -> None:
    pair = Pair(new_secret(), new_secret())
    receipt = BoundTo(b"s", 1, 0, b"h", together).receipts({1: pair}, [1])
    fit = Fit(session=b"s", channel=b"", pairs={0: pair, 1: pair})

    def good(data: bytes, number: int = 1, header: bytes = b"h", me: int = 1) -> bool:
        pending = Pending(number, header, 0, (1 - me,), b"", b"")
        return bool(check_receipts(fit, pending, me, (1 - me,), data, together))

    assert not good(bytes(16))
    assert good(receipt)
    assert good(receipt)
    assert not good(receipt, number=2)
    assert not good(receipt, header=b"other")
    assert not good(receipt, me=0)


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
        Listed(i, public_key(secret), hash_of(key), b"")
        for i, (secret, key) in enumerate(zip(secrets, keys, strict=True))
    )
    return [
        End(keyring(secrets[i], seeds[i], i, listed, 2, b"s", whole=whole, shared=together), keys[i])
        for i in range(2)
    ]


@pytest.mark.parametrize(
    "layout", [Layout(7, 0), Layout(0, 5), Layout(SHORT - 2, 1), Layout(SHORT, 1), Layout(9, 2, 3)]
)
@pytest.mark.parametrize("signs", [[], [True], [False], [True, False, True, True, False]])
def test_masks_are_added_at_once_as_one_after_the_other(layout: Layout, signs: list[bool]) -> None:
    masks = [(Mask(new_secret()), adds) for adds in signs]
    total = np.full(layout.size, 2**64 - 1, dtype=np.uint64)
    expected = total.copy()
    Masker(layout).apply(total, masks)
    for mask, adds in masks:
        (layout.add if adds else layout.subtract)(expected, keystream(mask.key, layout.size))
    assert total.tolist() == expected.tolist()
    Masker(layout).apply(total, [(mask, not adds) for mask, adds in masks])
    assert (total == 2**64 - 1).all()


def test_a_mask_shows_no_key() -> None:
    key = new_secret()
    assert key.hex() not in repr(Mask(key)) and repr(key) not in repr(Mask(key))


@pytest.mark.parametrize("kind", ["drop", "garbage", "lost-reply"])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_a_fit_with_lost_clients_opens_the_same_totals(blobs: list[np.ndarray], kind: str) -> None:
    words = {"init": blobs[0][:3], "max_iter": 3, "random_state": 0}
    faults = [Fault(2, "collect", kind, frozenset({2})), Fault(4, "unmask", kind, frozenset({3}))]
    model = DWFKMeans(3, protocol=Masked(losses=4), engine=Simulation(faults=faults), **words).fit(blobs)
    plain = DWFKMeans(3, protocol="plain", engine=Simulation(faults=faults[:1]), **words).fit(blobs)
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, atol=1e-6)
