"""The model of what a story opens says what real keys open: no more, and no less.

Guards: none is taken out where the promise is asserted; locks and receipts are taken out in turn to
show that the model also says rightly what opens then.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.default_run import slow_but
from tests.protocols.hostile import weaker
from tests.protocols.hostile.comparison import check
from tests.protocols.hostile.model import Model, Story, Told, unions
from tests.protocols.hostile.server import HostileServer
from tests.protocols.hostile.stories import random_story
from tests.protocols.hostile.world import World, terms_of

COHORTS = [(4, ()), (5, ()), (5, (1,)), (6, ()), (7, ()), (7, (3,))]
PATCHES = {"all guards": None, "no lock": weaker.without_lock, "no receipts": weaker.without_receipts}


@pytest.mark.parametrize(("n", "corrupted"), slow_but(COHORTS, (4, ()), (5, (1,))))
@pytest.mark.parametrize("guards", PATCHES)
@pytest.mark.few(2)
def test_model_and_real_keys_agree_on_random_stories(
    n: int, corrupted: tuple[int, ...], guards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = PATCHES[guards]
    if patch is not None:
        patch(monkeypatch)
    terms, rng = terms_of(n), np.random.default_rng([n, len(corrupted)])
    model = Model(n, terms, corrupted, lock=guards != "no lock")
    opened = []
    for _ in range(30):
        # Clients that heard different stories share no mask any more: each story is told to others.
        server = HostileServer(World(n, terms=terms, corrupted=corrupted))
        opened.append(check(model, server, server.open(), 1, random_story(model, rng)))
    sizes = [len(one) for story in opened for one in story]
    assert len(sizes) > 1
    if guards == "all guards":
        assert min(sizes) >= model.promise
        assert max(map(len, opened)) == 1


def more_told(model: Model, story: Story) -> Story:
    """Return the story with whatever was left out told: it gives the server all it got, and more."""
    uploads = model.uploads(story)
    told = {}
    for i in uploads:
        one = story.told.get(i, Told(frozenset()))
        matching = {
            j
            for j in uploads[i]
            if j in model.corrupted or (j in uploads and story.asked[j] == story.asked[i])
        }
        told[i] = Told(one.dead | (frozenset(uploads[i]) - matching))
    return Story(story.asked, told)


@pytest.mark.parametrize(("n", "corrupted"), slow_but(COHORTS, (4, ()), (5, (1,)), (6, ())))
@pytest.mark.few(1)
def test_leaving_clients_out_opens_nothing_that_calling_them_dead_or_alive_does_not(
    n: int, corrupted: tuple[int, ...]
) -> None:
    """The enumeration rests on this: what is known only grows with what is told."""
    model, rng = Model(n, terms_of(n), corrupted), np.random.default_rng(n)
    for _ in range(150):
        story = random_story(model, rng)
        assert unions(model.opened(story)) <= unions(model.opened(more_told(model, story)))
