"""A state of one sum's client is no state of another's; that it comes back is in the contract of sums."""

from __future__ import annotations

from itertools import permutations

import pytest

from privfed.core.roles.secure_sum import SecureSum
from privfed.errors import ArgumentError
from privfed.protocols import CKKS, Masked, Plain, Slotted
from tests.protocols.federations import Sums

SUMS = [Plain(), Masked(), CKKS(), Slotted(Masked())]


@pytest.mark.parametrize(
    ("written", "read"), list(permutations(SUMS, 2)), ids=lambda protocol: str(protocol.name)
)
def test_a_state_of_another_sum_is_an_error(written: SecureSum, read: SecureSum) -> None:
    side = Sums(written, 6).sides[0]
    with pytest.raises(ArgumentError, match="these bytes are no state of a client"):
        Sums(read, 6).sides[0].codec.from_bytes(side.codec.to_bytes(side.initial()))
