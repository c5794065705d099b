"""The set-ups of a sum with slots share identities, and nothing that is signed for one holds in the other."""

from __future__ import annotations

import pytest

from privfed.core.agreed.policy import ClientPolicy
from privfed.core.stored.encoding import decode, encode
from privfed.errors import ArgumentError, MessageError
from privfed.protocols import Masked, Slotted
from privfed.protocols.setup.advertising import advertise_request, read_advertisement
from privfed.protocols.setup.setup_messages import Advertisement
from privfed.protocols.setup.simulated import fresh_agreement
from privfed.protocols.slotted import PART, ForGroup
from tests.protocols.federations import Sums

PROTOCOL, FIT = Slotted(Masked()), bytes(range(32))


def test_a_key_for_the_group_is_no_key_for_the_inner_sum() -> None:
    run = Sums(PROTOCOL, 6)
    agreement, server, identities = fresh_agreement(run.configuration, range(6))
    group = agreement.of_part(PART)
    side = PROTOCOL.client(agreement, 2, identities[2], ClientPolicy())
    asked = {one: encode(advertise_request(one, server, FIT)) for one in (agreement, group)}
    _, inner = side.step(side.initial(), asked[agreement], run.answerer(2))
    _, outer = side.step(side.initial(), encode(ForGroup(asked[group])), run.answerer(2))
    for_group = decode(outer, ForGroup, sender="client", stage="advertise").data
    assert isinstance(read_advertisement(agreement, 2, "client", inner, FIT), Advertisement)
    assert isinstance(read_advertisement(group, 2, "client", for_group, FIT), Advertisement)
    for other, data in ((agreement, for_group), (group, inner)):
        with pytest.raises(MessageError, match="not signed for this fit"):
            read_advertisement(other, 2, "client", data, FIT)


def test_a_side_is_built_with_the_registered_key_alone() -> None:
    run = Sums(PROTOCOL, 6)
    agreement, server, identities = fresh_agreement(run.configuration, range(6))
    with pytest.raises(ArgumentError, match="for position 1 of 6 clients"):
        PROTOCOL.client(agreement, 1, identities[0], ClientPolicy())
    with pytest.raises(ArgumentError, match="for the coordinator"):
        PROTOCOL.coordinator(agreement, identities[0])
    PROTOCOL.coordinator(agreement, server)
