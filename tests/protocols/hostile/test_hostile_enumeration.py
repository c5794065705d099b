"""All stories of small cohorts: no server opens a sum over fewer than t - c + 1 honest clients.

c is here the number of clients that are corrupted, which may be less than was assumed. Guards: the
lock is taken out to show that the enumeration would see a hole; the counts of the living and of the
prepared are taken out to show that the promise does not rest on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import numpy as np
import pytest

from privfed.core.agreed.configuration import Terms
from privfed.protocols.setup.rules import needed_to_open
from tests.default_run import slow
from tests.protocols.hostile import weaker
from tests.protocols.hostile.enumeration import Enumerator, kinds, reduced, stories_of, unreduced
from tests.protocols.hostile.model import Model
from tests.protocols.hostile.world import terms_of
from tests.some import some


def count(stories: Iterable[Enumerator]) -> tuple[int, Counter[int]]:
    """Return how many stories there are, and how many open a set of which size."""
    total, sizes = 0, Counter[int]()
    for one in stories:
        total += one.stories
        sizes += one.sizes()
    return total, sizes


@pytest.mark.parametrize(
    ("n", "colluders", "corrupted", "total"),
    [(4, 0, (), 20_384), (5, 1, (0,), 41_856), slow((5, 0, (), 499_200))],
)
@pytest.mark.few(1)
def test_every_story_of_four_and_five_with_two_lists_and_clients_left_out(
    n: int, colluders: int, corrupted: tuple[int, ...], total: int
) -> None:
    model = Model(n, terms_of(n, colluders), corrupted)
    n_stories, sizes = count(unreduced(model))
    assert n_stories == total
    assert min(sizes) == model.promise


@pytest.mark.parametrize(
    ("n", "colluders", "corrupted", "total"),
    [(4, 0, (), 32_030), slow((5, 1, (0,), 61_296)), slow((5, 0, (), 707_604))],
)
def test_every_story_with_receipts_that_are_forged_once_an_e_is_open(
    n: int, colluders: int, corrupted: tuple[int, ...], total: int
) -> None:
    """R of a client gives the server its secrets with others, and so receipts: the locks still hold."""
    model = Model(n, terms_of(n, colluders), corrupted)
    n_stories, sizes = count(unreduced(model, forging=True))
    assert n_stories == total
    assert min(sizes) == model.promise


@pytest.mark.slow
def test_enumeration_sees_that_locks_are_needed_where_receipts_are_forged() -> None:
    model = Model(4, terms_of(4, 0), lock=False)
    assert min(count(unreduced(model, forging=True))[1]) == 2 < model.promise


@pytest.mark.parametrize(("n", "corrupted"), [(6, ()), (7, (2,))])
@pytest.mark.few(1)
def test_every_story_of_six_and_of_seven_with_a_colluder(n: int, corrupted: tuple[int, ...]) -> None:
    model = Model(n, terms_of(n), corrupted)
    n_stories, sizes = count(reduced(model))
    assert n_stories == 16_783_469
    assert min(sizes) == model.promise == 4


ALL_TERMS = [
    (n, c, m, threshold)
    for n in (3, 4, 5, 6)
    for c in range(n - 1)
    for m in range(2, n - c + 1)
    for threshold in (0, n - 1, n)
    if needed_to_open(n, Terms(colluders=c, honest=m, threshold=threshold)) <= n
]


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_every_story_under_all_terms_that_a_client_accepts(n: int) -> None:
    for _, c, m, threshold in some(terms for terms in ALL_TERMS if terms[0] == n):
        for n_corrupted in some(range(c + 1)):
            terms = Terms(min_clients=n, colluders=c, honest=m, threshold=threshold)
            model = Model(n, terms, range(n_corrupted))
            _, sizes = count(reduced(model))
            assert min(sizes) >= model.promise >= m


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_one_colluder_more_than_is_assumed_opens_single_clients(n: int) -> None:
    """c is sharp: by default it is raised until one more would break the threshold."""
    terms = terms_of(n)
    _, sizes = count(reduced(Model(n, terms, range(terms.colluders + 1))))
    assert min(sizes) == 1


@pytest.mark.slow  # 30 s alone, 100 s on a loaded core
def test_every_story_of_seven_without_a_colluder() -> None:
    model = Model(7, terms_of(7))
    n_stories, sizes = count(reduced(model))
    assert n_stories == 2_494_451_203
    assert min(sizes) == model.promise == 5


def test_enumeration_sees_that_locks_are_needed() -> None:
    model = Model(6, terms_of(6), lock=False)
    _, sizes = count(reduced(model))
    assert min(sizes) == 2 < model.promise


@pytest.mark.parametrize("n", [5, pytest.param(6, marks=pytest.mark.slow)])  # 6: 10 s alone, 50 s loaded
def test_promise_does_not_rest_on_the_counts_of_the_living(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weaker.without_counts(monkeypatch)
    model = Model(n, terms_of(n, 0))
    n_stories, sizes = count(reduced(model))
    assert n_stories > 2 ** (n * (n - 1))
    assert min(sizes) == model.promise


@pytest.mark.slow
@pytest.mark.parametrize(("n", "corrupted"), [(7, ()), (7, (2,))])
def test_a_million_random_stories_of_seven_with_two_lists_and_clients_left_out(
    n: int, corrupted: tuple[int, ...]
) -> None:
    """Drawn evenly from ten pairs of lists under which somebody answers."""
    model, rng = Model(n, terms_of(n), corrupted), np.random.default_rng(7)
    every = [kind for kind in kinds(model) if len(kind[0][1]) >= model.promise]
    sizes = Counter[int]()
    # Clients refuse some pairs of lists: nobody answers there.
    answered = (stories_of(model, every[place]) for place in rng.permutation(len(every)))
    ten = list(islice((stories for stories in answered if stories is not None), 10))
    assert len(ten) == 10
    for stories in ten:
        sizes += stories.drawn(rng, 100_000)
    assert len(sizes) > 1
    assert min(sizes) >= model.promise
