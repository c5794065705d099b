"""Tells real clients a story, and compares what real keys open with what the model says."""

from __future__ import annotations

from tests.protocols.hostile.kept import Fit
from tests.protocols.hostile.loot import Loot
from tests.protocols.hostile.model import Clients, Model, Story, unions
from tests.protocols.hostile.server import HostileServer


def check(model: Model, server: HostileServer, fit: Fit, number: int, story: Story) -> list[Clients]:
    """Check that real clients give what the model says, and that just what it says opens."""
    server.prepare(fit, number)
    server.collected.clear()
    server.answered.clear()
    uploaded, answered = server.tell(fit, number, story)
    assert uploaded == set(model.uploads(story))
    assert answered == set(model.given(story))
    loot, opened = Loot(server), model.opened(story)
    assert {one.clients for one in loot.opened()} == set(opened)
    assert all(one.is_true for one in loot.opened())
    if len(model.members) <= 7:
        assert loot.subsets_that_fit(number) == unions(opened)
    return opened
