"""What two simulated clients share is computed once, and is what each would compute."""

import numpy as np
import pytest

from privfed import DWFKMeans, Simulation
from privfed.engines.faults import Fault
from privfed.protocols.crypto import shared
from privfed.protocols.crypto.fixed_point import Layout
from privfed.protocols.crypto.keys import new_secret, public_key
from privfed.protocols.crypto.keystream import SHORT, Masker, keystream
from privfed.protocols.crypto.shared import APART, InOneProcess, Shared
from privfed.protocols.masked.bindings import box_key, pair_mask_key
from privfed.protocols.masked.pairs import with_pairs
from privfed.protocols.masked.state import Fit, Pair


def test_each_value_is_handed_over_once() -> None:
    computed: list[str] = []

    def compute(name: str) -> str:
        computed.append(name)
        return name

    together = InOneProcess()
    assert [together.once("a", lambda: compute("a")) for _ in range(5)] == ["a"] * 5
    assert len(computed) == 3
    assert [APART.once("a", lambda: compute("b")) for _ in range(2)] == ["b", "b"]
    assert len(computed) == 5


def test_what_nobody_takes_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MOST_HELD", 3)
    together = InOneProcess()
    for name in range(10):
        together.once(name, lambda: 0)
    assert len(together._held) <= 3


@pytest.mark.parametrize("together", [APART, InOneProcess()], ids=["apart", "in one process"])
def test_both_sides_agree_and_other_keys_or_sums_do_not(together: Shared) -> None:
    secrets = [new_secret() for _ in range(3)]
    publics = [public_key(one) for one in secrets]

    def key(me: int, other: int, header: bytes = b"h", public: bytes | None = None) -> bytes:
        theirs = publics[other] if public is None else public
        return pair_mask_key(secrets[me], theirs, b"s", 1, me, other, header, publics[me], together)

    apart = pair_mask_key(secrets[0], publics[1], b"s", 1, 0, 1, b"h")
    assert key(0, 1) == key(1, 0) == apart
    # A server that exchanges a key, or tells two stories about the sum, leaves the two with different masks.
    assert key(0, 1) != key(1, 0, public=publics[2])
    assert key(0, 1) != key(1, 0, header=b"other")
    pair = Pair(new_secret(), new_secret())
    boxes = [box_key(pair, b"s", 1, *ends, together) for ends in ((0, 1), (0, 1), (1, 0))]
    assert boxes[0] == boxes[1] == box_key(pair, b"s", 1, 0, 1) != boxes[2]


def test_keys_for_a_fit_are_the_same_on_both_sides() -> None:
    secrets = [new_secret(), new_secret()]
    listed = b"".join(map(public_key, secrets))
    found = []
    for together in (APART, InOneProcess()):
        for me in range(2):
            fit = Fit(session=b"s", secret=secrets[me], listed=listed, channel=b"", pairs={})
            found.append(with_pairs(fit, me, [1 - me], together).pairs[1 - me])
    assert len({(one.box, one.receipt) for one in found}) == 1


@pytest.mark.parametrize("layout", [Layout(7, 0), Layout(0, 5), Layout(SHORT, 1), Layout(9, 2, 3)])
def test_short_and_long_keystreams_are_added_alike(layout: Layout) -> None:
    key, size = new_secret(), layout.size
    for together in (APART, InOneProcess()):
        total = np.zeros(size, dtype=np.uint64)
        Masker(layout, together).add(total, key)
        expected = np.zeros(size, dtype=np.uint64)
        layout.add(expected, keystream(key, size))
        assert total.tolist() == expected.tolist()
        Masker(layout, together).subtract(total, key)
        assert not total.any()


@pytest.mark.parametrize("kind", ["drop", "garbage", "lost-reply"])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_a_fit_with_lost_clients_opens_the_same_totals(blobs: list[np.ndarray], kind: str) -> None:
    words = {"init": blobs[0][:3], "max_iter": 3, "random_state": 0}
    faults = [Fault(2, "collect", kind, frozenset({2})), Fault(4, "unmask", kind, frozenset({3}))]
    model = DWFKMeans(3, protocol="masked", engine=Simulation(faults=faults), **words).fit(blobs)
    plain = DWFKMeans(3, protocol="plain", engine=Simulation(faults=faults[:1]), **words).fit(blobs)
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, atol=1e-6)
